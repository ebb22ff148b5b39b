"""Batches of data frames."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.utils.data.datapipes.dataframe import dataframe_wrapper
from flambeau.utils.data.datapipes.datapipe import DataChunk

__all__ = ["DataChunkDF"]


class DataChunkDF(DataChunk):
    """A batch of data frames, which is iterated by rows."""

    def __iter__(self) -> Iterator[Any]:
        for frame in self.items:
            yield from dataframe_wrapper.iterate(frame)

    def __len__(self) -> int:
        return sum(dataframe_wrapper.get_len(frame) for frame in self.items)
