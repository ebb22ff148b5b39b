"""Pipes that join several by index."""

from __future__ import annotations

from typing import Any

from flambeau.utils.data.datapipes._decorator import functional_datapipe
from flambeau.utils.data.datapipes.datapipe import MapDataPipe

__all__ = ["ConcaterMapDataPipe", "ZipperMapDataPipe"]


class _Joined(MapDataPipe[Any]):
    """Several pipes.

    Raises:
        ValueError: none is passed.
        TypeError: one has no items by index, or no length.
    """

    def __init__(self, *datapipes: Any) -> None:
        hint = "\nhint: pass pipes of items by index"
        if not datapipes:
            raise ValueError(f"[datapipe] Expected at least one DataPipe, but got nothing{hint}")
        if not all(isinstance(pipe, MapDataPipe) for pipe in datapipes):
            raise TypeError(f"[datapipe] Expected all inputs to be `MapDataPipe`{hint}")
        if not all(hasattr(pipe, "__len__") for pipe in datapipes):
            raise TypeError(f"[datapipe] Expected all inputs to be `Sized`{hint}")
        self.datapipes = datapipes


@functional_datapipe("concat")
class ConcaterMapDataPipe(_Joined):
    """Pipes one after the other."""

    def __getitem__(self, index: int) -> Any:
        offset = 0
        for pipe in self.datapipes:
            if index - offset < len(pipe):
                return pipe[index - offset]
            offset += len(pipe)
        raise IndexError(f"Index {index} is out of range.")

    def __len__(self) -> int:
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class ZipperMapDataPipe(_Joined):
    """Tuples of one item from each pipe."""

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        row = []
        for pipe in self.datapipes:
            try:
                row.append(pipe[index])
            except IndexError as error:
                raise IndexError(
                    f"Index {index} is out of range for one of the input MapDataPipes {pipe}."
                ) from error
        return tuple(row)

    def __len__(self) -> int:
        return min(map(len, self.datapipes))
