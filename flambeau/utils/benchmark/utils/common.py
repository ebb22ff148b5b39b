"""Measurements: times of a statement, with median and spread."""

from __future__ import annotations

import contextlib
import math
import statistics
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import flambeau as torch

__all__ = [
    "Measurement",
    "TaskSpec",
    "ordered_unique",
    "select_unit",
    "set_torch_threads",
    "trim_sigfig",
    "unit_to_english",
]

_MAX_SIGNIFICANT_FIGURES = 4
_SHORTEST_INTERVAL = 25e-9  # seconds: below it the clock says nothing
IQR_WARN_THRESHOLD = 0.1
IQR_GROSS_WARN_THRESHOLD = 0.25
_ENGLISH = {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}


class TaskSpec:
    """The task of a measurement: a statement with its setup, and names for tables."""

    def __init__(
        self,
        stmt: str,
        setup: str,
        global_setup: str = "",
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
    ) -> None:
        self.stmt, self.setup, self.global_setup = stmt, setup, global_setup
        self.label, self.sub_label, self.description = label, sub_label, description
        self.env, self.num_threads = env, num_threads

    @property
    def title(self) -> str:
        """Label and sub-label, or the statement."""
        if self.label is not None or "\n" not in self.stmt:
            return (self.label or self.stmt) + (f": {self.sub_label}" if self.sub_label else "")
        sub = f" ({self.sub_label})" if self.sub_label else ""
        return f"stmt:{sub}\n{textwrap.indent(self.stmt, '  ')}"

    def setup_str(self) -> str:
        """The setup, where there is one."""
        if self.setup == "pass" or not self.setup:
            return ""
        if "\n" not in self.setup:
            return f"setup: {self.setup}"
        return f"setup:\n{textwrap.indent(self.setup, '  ')}"

    def summarize(self) -> str:
        """Title, description and setup."""
        parts = [part for part in (self.title, self.description, self.setup_str()) if part]
        several = any("\n" in part for part in (self.title, self.setup_str()))
        if not several:
            return "\n".join(parts)
        return "\n".join(part + "\n" if "\n" in part else part for part in parts)

    def _key(self) -> tuple[Any, ...]:
        return tuple(vars(self).values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


class Measurement:
    """Times of a statement.

    Attributes:
        number_per_run: how often the statement ran in each time.
        raw_times: seconds.
        task_spec: what was measured.
        metadata: anything.
    """

    def __init__(
        self,
        number_per_run: int,
        raw_times: list[float],
        task_spec: TaskSpec,
        metadata: dict[Any, Any] | None = None,
    ) -> None:
        self.number_per_run, self.raw_times = number_per_run, raw_times
        self.task_spec, self.metadata = task_spec, metadata

    def __getattr__(self, name: str) -> Any:
        specification = self.__dict__.get("task_spec")
        if specification is not None and hasattr(specification, name):
            return getattr(specification, name)
        raise AttributeError(f"'Measurement' object has no attribute {name!r}")

    @property
    def times(self) -> list[float]:
        """Seconds of one run of the statement, by measurement."""
        return [time / self.number_per_run for time in self.raw_times]

    def _checked(self) -> list[float]:
        if not self.raw_times:
            raise ValueError("Measurement does not contain any times.")
        return sorted(self.times)

    @property
    def median(self) -> float:
        """Seconds: half of the times are below."""
        return statistics.median(self._checked())

    @property
    def mean(self) -> float:
        """Seconds on average."""
        return statistics.fmean(self._checked())

    def _quantile(self, share: float) -> float:
        times = self._checked()
        place = share * (len(times) - 1)
        low, high = math.floor(place), math.ceil(place)
        return times[low] + (place - low) * (times[high] - times[low])

    @property
    def iqr(self) -> float:
        """Seconds between the first and the third quartile."""
        return self._quantile(0.75) - self._quantile(0.25)

    @property
    def significant_figures(self) -> int:
        """Digits of the median that the spread supports: 1 to 4."""
        times = self._checked()
        inner = times[len(times) // 4 : math.ceil(3 * len(times) / 4)]
        interval = 1.645 * statistics.pstdev(inner) / math.sqrt(len(inner))
        digits = math.floor(math.log10(self.median / max(interval, _SHORTEST_INTERVAL)))
        return min(max(digits, 1), _MAX_SIGNIFICANT_FIGURES)

    @property
    def has_warnings(self) -> bool:
        """Whether the times differ by more than a tenth."""
        return not self.meets_confidence(IQR_WARN_THRESHOLD)

    def meets_confidence(self, threshold: float = IQR_WARN_THRESHOLD) -> bool:
        """Whether the quartiles are close to each other, as a share of the median."""
        return self.iqr / self.median < threshold

    @property
    def title(self) -> str:
        """The title of the task."""
        return self.task_spec.title

    @property
    def as_row_name(self) -> str:
        """The name of the row in a table."""
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def __repr__(self) -> str:
        count, threads = len(self.raw_times), self.task_spec.num_threads
        lines = [object.__repr__(self), self.task_spec.summarize()]
        if count:
            unit, scale = select_unit(self.median)
            value = f"{self.median / scale:.2f} {unit}"
            lines.append(f"  Median: {value}" if count > 1 else f"  {value}")
            if count > 2:
                low, high = self._quantile(0.25) / scale, self._quantile(0.75) / scale
                spread = f"{self.iqr / scale:.2f} {unit}"
                lines.append(f"  IQR:    {spread} ({low:.2f} to {high:.2f})")
        runs = f"{self.number_per_run} runs {'per measurement' if count > 1 else ''}"
        lines.append(
            f"  {count} measurement{'s' if count > 1 else ''}, {runs}, "
            f"{threads} thread{'s' if threads > 1 else ''}"
        )
        if count > 1 and self.has_warnings:
            share = self.iqr / self.median * 100
            gross = share > 100 * IQR_GROSS_WARN_THRESHOLD
            lines += [
                f"  WARNING: Interquartile range is {share:.1f}% of the median measurement.",
                "           This suggests significant environmental influence."
                if gross
                else "           This could indicate system fluctuation.",
            ]
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement per task, with the times of all of them."""
        groups: dict[TaskSpec, list[Measurement]] = {}
        for measurement in measurements:
            groups.setdefault(measurement.task_spec, []).append(measurement)
        return [
            Measurement(1, [time for each in group for time in each.times], specification)
            for specification, group in groups.items()
        ]


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which a time has one to three digits, and its seconds.

    Example:
        >>> select_unit(1e-5)
        ('us', 1e-06)
    """
    exponent = min(max(math.floor(math.log10(t)) // 3 * 3 if t > 0 else -9, -9), 0)
    return {-9: "ns", -6: "us", -3: "ms", 0: "s"}[exponent], float(f"1e{exponent}")


def unit_to_english(u: str) -> str:
    """The name of a unit."""
    return _ENGLISH[u]


def trim_sigfig(x: float, n: int) -> float:
    """A number rounded to `n` digits.

    Raises:
        AssertionError: `n` is no integer.
    """
    if n != int(n):
        raise AssertionError("Number of significant figures must be an integer")
    if x == 0:
        return 0.0
    scale = 10 ** (math.floor(math.log10(abs(x))) + 1 - n)
    return float(round(x / scale) * scale)


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """Elements without repetitions, in the order of their first."""
    return list(dict.fromkeys(elements))


@contextlib.contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """A block in which operators use `n` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
