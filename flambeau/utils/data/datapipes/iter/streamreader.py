"""A pipe that reads open files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.utils.data.datapipes._decorator import functional_datapipe
from flambeau.utils.data.datapipes.datapipe import IterDataPipe

__all__ = ["StreamReaderIterDataPipe"]


@functional_datapipe("read_from_stream")
class StreamReaderIterDataPipe(IterDataPipe[Any]):
    """Pairs (path, content).

    Args:
        datapipe: pairs (path, open file).
        chunk: bytes (or characters) per pair; the whole file when None.
    """

    def __init__(self, datapipe: IterDataPipe[Any], chunk: int | None = None) -> None:
        self.datapipe, self.chunk = datapipe, chunk

    def __iter__(self) -> Iterator[Any]:
        for pathname, stream in self.datapipe:
            while content := stream.read(self.chunk):
                yield pathname, content
            stream.close()
