"""A pipe of batches by index."""

from __future__ import annotations

from typing import Any

from flambeau.utils.data.datapipes._decorator import functional_datapipe
from flambeau.utils.data.datapipes.datapipe import DataChunk, MapDataPipe

__all__ = ["BatcherMapDataPipe"]


@functional_datapipe("batch")
class BatcherMapDataPipe(MapDataPipe[DataChunk]):
    """Lists of `batch_size` items; the last one may be shorter unless `drop_last`."""

    def __init__(
        self,
        datapipe: MapDataPipe[Any],
        batch_size: int,
        drop_last: bool = False,
        wrapper_class: type[DataChunk] = DataChunk,
    ) -> None:
        if batch_size <= 0:
            raise AssertionError("[batch] Batch size is required to be larger than 0!\nhint: 1")
        super().__init__()
        self.datapipe, self.batch_size, self.drop_last = datapipe, batch_size, drop_last
        self.wrapper_class = wrapper_class

    def __getitem__(self, index: int) -> DataChunk:
        start, length = index * self.batch_size, len(self.datapipe)  # type: ignore[arg-type]
        stop = start + self.batch_size
        if stop > length and (self.drop_last or start >= length):
            raise IndexError("Index out of bound.")
        return self.wrapper_class([self.datapipe[i] for i in range(start, min(stop, length))])

    def __len__(self) -> int:
        length = len(self.datapipe)  # type: ignore[arg-type]
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)
