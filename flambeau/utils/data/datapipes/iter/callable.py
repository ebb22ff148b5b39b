"""Pipes that apply a function to items."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.utils.data.collate import default_collate
from flambeau.utils.data.datapipes._decorator import functional_datapipe
from flambeau.utils.data.datapipes.datapipe import IterDataPipe
from flambeau.utils.data.datapipes.utils.common import validate_input_col

__all__ = ["CollatorIterDataPipe", "MapperIterDataPipe"]


@functional_datapipe("map")
class MapperIterDataPipe(IterDataPipe[Any]):
    """Applies a function to each item, or to some columns of each item.

    Args:
        datapipe: the source.
        fn: called with the item, or with the columns.
        input_col: an index or key, or several; the whole item when None.
        output_col: where the result goes; at -1 it is appended; over the first column when None.

    Raises:
        ValueError: an output column without input columns, or several output columns.

    Example:
        >>> IterableWrapper = torch.utils.data.datapipes.iter.IterableWrapper
        >>> list(IterableWrapper([(1, 2)]).map(lambda a: -a, input_col=1))
        [(1, -2)]
    """

    def __init__(
        self,
        datapipe: IterDataPipe[Any],
        fn: Callable[..., Any],
        input_col: Any = None,
        output_col: Any = None,
    ) -> None:
        super().__init__()
        hint = "\nhint: name input_col, and one output_col at most"
        if input_col is None and output_col is not None:
            raise ValueError(f"[map] `output_col` must be None when `input_col` is None.{hint}")
        if isinstance(output_col, (list, tuple)):
            if len(output_col) > 1:
                raise ValueError(f"[map] `output_col` must be a single-element list or tuple{hint}")
            output_col = output_col[0]
        self.datapipe, self.fn = datapipe, fn
        self.input_col, self.output_col = input_col, output_col
        validate_input_col(fn, input_col)

    def _apply(self, item: Any) -> Any:
        if self.input_col is None:
            return self.fn(item)
        columns = self.input_col
        several = isinstance(columns, (list, tuple))
        result = self.fn(*(item[c] for c in columns)) if several else self.fn(item[columns])
        changed = list(item) if isinstance(item, tuple) else copy.copy(item)
        if self.output_col is None:
            changed[columns[0] if several else columns] = result
            for column in sorted(columns[1:], reverse=True) if several else ():
                del changed[column]
        elif self.output_col == -1:
            changed.append(result)
        else:
            changed[self.output_col] = result
        return tuple(changed) if isinstance(item, tuple) else changed

    def __iter__(self) -> Iterator[Any]:
        for item in self.datapipe:
            yield self._apply(item)

    def __len__(self) -> int:
        return len(self.datapipe)  # type: ignore[arg-type]


@functional_datapipe("collate")
class CollatorIterDataPipe(MapperIterDataPipe):
    """Makes a batch of tensors of each list of items.

    Args:
        datapipe: yields lists of items.
        conversion: a function of a list of items; `default_collate` when None.
        collate_fn: an older name of `conversion`.
    """

    def __init__(
        self,
        datapipe: IterDataPipe[Any],
        conversion: Any = default_collate,
        collate_fn: Callable[..., Any] | None = None,
    ) -> None:
        function = conversion if collate_fn is None else collate_fn
        super().__init__(datapipe, default_collate if function is None else function)
