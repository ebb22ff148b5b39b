"""A pipe that decodes the content of files by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flambeau.utils.data.datapipes._decorator import functional_datapipe
from flambeau.utils.data.datapipes.datapipe import IterDataPipe
from flambeau.utils.data.datapipes.utils.common import validate_pathname_binary_tuple
from flambeau.utils.data.datapipes.utils.decoder import (
    Decoder,
    basichandlers,
    extension_extract_fn,
    imagehandler,
)

__all__ = ["RoutedDecoderIterDataPipe"]


@functional_datapipe("routed_decode")
class RoutedDecoderIterDataPipe(IterDataPipe[Any]):
    """Pairs (path, decoded content).

    Args:
        datapipe: pairs (path, open file).
        handlers: functions (key, content) -> decoded content or None; texts, numbers, JSON,
            pickles of tensors and images ("torch") when there are none.
        key_fn: path -> key; its extension.
    """

    def __init__(
        self,
        datapipe: Iterable[Any],
        *handlers: Callable[..., Any],
        key_fn: Callable[[str], str] = extension_extract_fn,
    ) -> None:
        super().__init__()
        self.datapipe = datapipe
        self.decoder = Decoder(*(handlers or (basichandlers, imagehandler("torch"))), key_fn=key_fn)

    def add_handler(self, *handler: Callable[..., Any]) -> None:
        """Adds handlers, which are tried after those before."""
        self.decoder.add_handler(*handler)

    def __iter__(self) -> Iterator[Any]:
        for data in self.datapipe:
            validate_pathname_binary_tuple(data)
            result = self.decoder(data)
            yield data[0], result[data[0]]

    def __len__(self) -> int:
        return len(self.datapipe)  # type: ignore[arg-type]
