"""Fetchers: from indices to a batch, under PyTorch's private names."""

from __future__ import annotations

from typing import Any

from flambeau.utils.data.worker import Fetcher

__all__: list[str] = []


class _BaseDatasetFetcher(Fetcher):
    """Turns what a sampler yields into a batch."""


class _MapDatasetFetcher(_BaseDatasetFetcher):
    """Looks items up by index."""

    def __init__(
        self, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool
    ) -> None:
        super().__init__(dataset, auto_collation, collate_fn, drop_last, None)


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    """Takes the next items of a stream."""

    def __init__(
        self, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool
    ) -> None:
        super().__init__(dataset, auto_collation, collate_fn, drop_last, iter(dataset))
