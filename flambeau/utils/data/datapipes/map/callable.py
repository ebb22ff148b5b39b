"""A pipe that applies a function to items by index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.utils.data.datapipes._decorator import functional_datapipe
from flambeau.utils.data.datapipes.datapipe import MapDataPipe

__all__ = ["MapperMapDataPipe", "default_fn"]


def default_fn(data: Any) -> Any:
    """The item itself."""
    return data


@functional_datapipe("map")
class MapperMapDataPipe(MapDataPipe[Any]):
    """`fn(item)` of each item."""

    def __init__(self, datapipe: MapDataPipe[Any], fn: Callable[[Any], Any] = default_fn) -> None:
        super().__init__()
        self.datapipe, self.fn = datapipe, fn

    def __len__(self) -> int:
        return len(self.datapipe)  # type: ignore[arg-type]

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])
