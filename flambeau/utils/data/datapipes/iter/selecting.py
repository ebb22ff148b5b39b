"""A pipe that leaves items out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau.ir.failure import failure
from flambeau.utils.data.datapipes._decorator import functional_datapipe
from flambeau.utils.data.datapipes.datapipe import IterDataPipe
from flambeau.utils.data.datapipes.utils.common import validate_input_col

__all__ = ["FilterIterDataPipe"]


@functional_datapipe("filter")
class FilterIterDataPipe(IterDataPipe[Any]):
    """The items for which a function returns True.

    Args:
        datapipe: the source.
        filter_fn: called with the item, or with the columns.
        input_col: an index or key, or several; the whole item when None.

    Raises:
        ValueError: the function returns no truth value (when iterated).
    """

    def __init__(
        self, datapipe: IterDataPipe[Any], filter_fn: Callable[..., Any], input_col: Any = None
    ) -> None:
        super().__init__()
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col
        validate_input_col(filter_fn, input_col)

    def _verdict(self, item: Any) -> bool:
        columns = self.input_col
        if columns is None:
            verdict = self.filter_fn(item)
        elif isinstance(columns, (list, tuple)):
            verdict = self.filter_fn(*(item[column] for column in columns))
        else:
            verdict = self.filter_fn(item[columns])
        if not isinstance(verdict, bool):
            problem = "Boolean output is required for `filter_fn` of FilterIterDataPipe, got "
            problem += f"{type(verdict)}"
            raise failure(ValueError, "filter", problem, "return True or False")
        return verdict

    def __iter__(self) -> Iterator[Any]:
        return (item for item in self.datapipe if self._verdict(item))
