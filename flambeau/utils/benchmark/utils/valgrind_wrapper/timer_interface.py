"""Counts of instructions by function: tables that programs filter and subtract.

Instructions are not counted here (`Timer.collect_callgrind` raises); the tables work for counts
that a program has from elsewhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from flambeau.utils.benchmark.utils.common import TaskSpec

__all__ = ["CallgrindStats", "CopyIfCallgrind", "FunctionCount", "FunctionCounts"]


class FunctionCount(NamedTuple):
    """Instructions of a function.

    Attributes:
        count: how many.
        function: its name.
    """

    count: int
    function: str


@dataclasses.dataclass(repr=False, eq=False, frozen=True)
class FunctionCounts:
    """Instructions by function, most first.

    Attributes:
        inclusive: whether the instructions of called functions are counted in.
        truncate_rows: whether the text shows few rows.

    Example:
        >>> from flambeau.utils.benchmark import FunctionCount, FunctionCounts
        >>> counts = FunctionCounts((FunctionCount(3, "f"), FunctionCount(4, "g")), False)
        >>> counts.filter(lambda name: name == "f").sum()
        3
    """

    _data: tuple[FunctionCount, ...]
    inclusive: bool
    truncate_rows: bool = True
    _linewidth: int | None = None

    def __iter__(self) -> Iterator[FunctionCount]:
        yield from self._data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, item: Any) -> Any:
        picked = self._data[item]
        if isinstance(item, slice):
            return FunctionCounts(picked, self.inclusive, truncate_rows=False)  # type: ignore[arg-type]
        return picked

    def __repr__(self) -> str:
        rows = list(self._data)
        shown = rows if not self.truncate_rows or len(rows) <= 18 else [*rows[:9], *rows[-9:]]
        lines = [f"{row.count:>12}  {row.function}" for row in shown]
        if len(shown) < len(rows):
            lines.insert(9, "...".rjust(12))
        total = "" if self.inclusive else f"\n\nTotal: {self.sum()}"
        return "\n".join([object.__repr__(self), *lines]) + total

    def __add__(self, other: FunctionCounts) -> FunctionCounts:
        return self._merge(other, 1)

    def __sub__(self, other: FunctionCounts) -> FunctionCounts:
        return self._merge(other, -1)

    def __mul__(self, other: float) -> FunctionCounts:
        return self._of({row.function: int(row.count * other) for row in self._data})

    def _merge(self, other: FunctionCounts, sign: int) -> FunctionCounts:
        if self.inclusive != other.inclusive:
            raise AssertionError("Cannot merge inclusive and exclusive counts.")
        totals = {row.function: row.count for row in self._data}
        for row in other:
            totals[row.function] = totals.get(row.function, 0) + sign * row.count
        return self._of(totals)

    def _of(self, totals: dict[str, int]) -> FunctionCounts:
        rows = [FunctionCount(count, name) for name, count in totals.items() if count]
        return FunctionCounts(tuple(sorted(rows, reverse=True)), self.inclusive)

    def transform(self, map_fn: Callable[[str], str]) -> FunctionCounts:
        """The counts under other names; equal names are summed."""
        totals: dict[str, int] = {}
        for row in self._data:
            name = map_fn(row.function)
            totals[name] = totals.get(name, 0) + row.count
        return self._of(totals)

    def filter(self, filter_fn: Callable[[str], bool]) -> FunctionCounts:
        """The counts of some functions."""
        return self._of({r.function: r.count for r in self._data if filter_fn(r.function)})

    def sum(self) -> int:
        """All instructions."""
        return sum(row.count for row in self._data)

    def denoise(self) -> FunctionCounts:
        """The counts without those of Python's dictionaries, which vary from run to run."""
        return self.filter(lambda name: "dictobject.c:lookdict_unicode" not in name)


@dataclasses.dataclass(repr=False, eq=False, frozen=True)
class CallgrindStats:
    """The counts of a statement.

    Attributes:
        task_spec: what ran.
        number_per_run: how often.
        built_with_debug_symbols: whether functions have names.
        baseline_inclusive_stats, baseline_exclusive_stats: of an empty statement.
        stmt_inclusive_stats, stmt_exclusive_stats: of the statement.
        stmt_callgrind_out: callgrind's own file, or None.
    """

    task_spec: TaskSpec
    number_per_run: int
    built_with_debug_symbols: bool
    baseline_inclusive_stats: FunctionCounts
    baseline_exclusive_stats: FunctionCounts
    stmt_inclusive_stats: FunctionCounts
    stmt_exclusive_stats: FunctionCounts
    stmt_callgrind_out: str | None

    def __repr__(self) -> str:
        return f"{object.__repr__(self)}\n  {self.counts()} instructions"

    def stats(self, inclusive: bool = False) -> FunctionCounts:
        """The counts by function, of one run and without those of an empty statement."""
        if inclusive:
            return self.stmt_inclusive_stats - self.baseline_inclusive_stats
        return self.stmt_exclusive_stats

    def counts(self, *, denoise: bool = False) -> int:
        """All instructions."""
        stats = self.stmt_exclusive_stats
        return (stats.denoise() if denoise else stats).sum()

    def delta(self, other: CallgrindStats, inclusive: bool = False) -> FunctionCounts:
        """The differences from another statement."""
        return self.stats(inclusive) - other.stats(inclusive)

    def as_standardized(self) -> CallgrindStats:
        """The counts with names of functions without directories."""

        def short(counts: FunctionCounts) -> FunctionCounts:
            return counts.transform(lambda name: name.rpartition("/")[2])

        names = [field.name for field in dataclasses.fields(self) if field.name.endswith("_stats")]
        return dataclasses.replace(self, **{name: short(getattr(self, name)) for name in names})


class CopyIfCallgrind:
    """A value of the globals of a `Timer` that is copied to the process that is counted.

    Args:
        value: the value.
        setup: a statement that runs before the copy is unpickled.
    """

    def __init__(self, value: Any, *, setup: str | None = None) -> None:
        self.value, self.setup = value, setup

    @staticmethod
    def unwrap_all(globals: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - PyTorch's name
        """Globals with the values themselves."""
        return {
            name: value.value if isinstance(value, CopyIfCallgrind) else value
            for name, value in globals.items()
        }
