"""Pipes that change how rows are spread over data frames."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.utils.data.datapipes._decorator import functional_datapipe
from flambeau.utils.data.datapipes.dataframe import dataframe_wrapper as frames
from flambeau.utils.data.datapipes.datapipe import DFIterDataPipe, IterDataPipe

__all__ = [
    "ConcatDataFramesPipe", "DataFramesAsTuplesPipe", "ExampleAggregateAsDataFrames",
    "FilterDataFramesPipe", "PerRowDataFramesPipe", "ShuffleDataFramesPipe",
]  # fmt: skip


def _rows(source: Any) -> Iterator[Any]:
    """Data frames of one row each."""
    for frame in source:
        for index in range(frames.get_len(frame)):
            yield frames.get_item(frame, index)


@functional_datapipe("_dataframes_as_tuples")
class DataFramesAsTuplesPipe(IterDataPipe[Any]):
    """The rows of data frames as tuples.

    Args:
        source_datapipe: yields data frames.
    """

    def __init__(self, source_datapipe: Any) -> None:
        self.source_datapipe = source_datapipe

    def __iter__(self) -> Iterator[Any]:
        for frame in self.source_datapipe:
            yield from frames.iterate(frame)


@functional_datapipe("_dataframes_per_row", enable_df_api_tracing=True)
class PerRowDataFramesPipe(DFIterDataPipe):
    """Data frames of one row each.

    Args:
        source_datapipe: yields data frames.
    """

    def __init__(self, source_datapipe: Any) -> None:
        self.source_datapipe = source_datapipe

    def __iter__(self) -> Iterator[Any]:
        yield from _rows(self.source_datapipe)


@functional_datapipe("_dataframes_concat", enable_df_api_tracing=True)
class ConcatDataFramesPipe(DFIterDataPipe):
    """Several data frames as one.

    Args:
        source_datapipe: yields data frames.
        batch: how many.
    """

    def __init__(self, source_datapipe: Any, batch: int = 3) -> None:
        self.source_datapipe, self.n_batch = source_datapipe, batch

    def __iter__(self) -> Iterator[Any]:
        buffer: list[Any] = []
        for frame in self.source_datapipe:
            buffer.append(frame)
            if len(buffer) == self.n_batch:
                yield frames.concat(buffer)
                buffer = []
        if buffer:
            yield frames.concat(buffer)


def _like(rows: list[Any], size: int | None) -> Iterator[Any]:
    """Rows in data frames of the first one's size."""
    for start in range(0, len(rows), size or 1):
        yield frames.concat(rows[start : start + (size or 1)])


def _first_size(source: Any) -> tuple[list[Any], int | None]:
    rows, size = [], None
    for frame in source:
        count = frames.get_len(frame)
        size = count if size is None else size
        rows += [frames.get_item(frame, index) for index in range(count)]
    return rows, size


@functional_datapipe("_dataframes_shuffle", enable_df_api_tracing=True)
class ShuffleDataFramesPipe(DFIterDataPipe):
    """Rows of all data frames in random order, in data frames of the first one's size.

    Args:
        source_datapipe: yields data frames.
    """

    def __init__(self, source_datapipe: Any) -> None:
        self.source_datapipe = source_datapipe

    def __iter__(self) -> Iterator[Any]:
        rows, size = _first_size(self.source_datapipe)
        random.shuffle(rows)
        yield from _like(rows, size)


@functional_datapipe("_dataframes_filter", enable_df_api_tracing=True)
class FilterDataFramesPipe(DFIterDataPipe):
    """Rows for which a function is true, in data frames of the first one's size.

    Args:
        source_datapipe: yields data frames.
        filter_fn: of a data frame of one row.
    """

    def __init__(self, source_datapipe: Any, filter_fn: Callable[[Any], Any]) -> None:
        self.source_datapipe, self.filter_fn = source_datapipe, filter_fn

    def __iter__(self) -> Iterator[Any]:
        rows, size = _first_size(self.source_datapipe)
        chosen = [row for row in rows if self.filter_fn(next(iter(frames.iterate(row))))]
        yield from _like(chosen, size)


@functional_datapipe("_to_dataframes_pipe", enable_df_api_tracing=True)
class ExampleAggregateAsDataFrames(DFIterDataPipe):
    """Items as rows of data frames.

    Args:
        source_datapipe: yields rows.
        dataframe_size: rows of a data frame.
        columns: their names.
    """

    def __init__(self, source_datapipe: Any, dataframe_size: int = 10, columns: Any = None) -> None:
        self.source_datapipe, self.columns = source_datapipe, columns
        self.dataframe_size = dataframe_size

    def __iter__(self) -> Iterator[Any]:
        rows: list[Any] = []
        for item in self.source_datapipe:
            rows.append(item if isinstance(item, (list, tuple)) else (item,))
            if len(rows) == self.dataframe_size:
                yield frames.create_dataframe(rows, columns=self.columns)
                rows = []
        if rows:
            yield frames.create_dataframe(rows, columns=self.columns)
