"""`Compare`: measurements in tables."""

from __future__ import annotations

import math
from enum import Enum

from flambeau.utils.benchmark.utils.common import (
    Measurement,
    ordered_unique,
    select_unit,
    trim_sigfig,
    unit_to_english,
)

__all__ = ["Colorize", "Compare"]

_BEST, _GOOD, _BAD, _WORST = "\033[92m\033[1m", "\033[34m", "\033[2m\033[91m", "\033[31m\033[1m"
_END = "\033[0m"
_SEPARATOR = "  |  "


class Colorize(Enum):
    """The values that colours compare."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


class Compare:
    """Tables of measurements: a row per sub-label, a column per description.

    Args:
        results: measurements.

    Example:
        >>> from flambeau.utils.benchmark import Measurement, TaskSpec
        >>> task = TaskSpec("f(x)", "", label="f", sub_label="f(x)", description="new")
        >>> print(Compare([Measurement(1, [2e-3], task)]))
        [------ f -------]
                    |  new
        1 threads: -------
              f(x)  |  2.0
        <BLANKLINE>
        Times are in milliseconds (ms).
        <BLANKLINE>
    """

    def __init__(self, results: list[Measurement]) -> None:
        self._results = list(results)
        self._trim, self._colors, self._warnings = False, Colorize.NONE, False

    def extend_results(self, results: list[Measurement]) -> None:
        """Adds measurements.

        Raises:
            ValueError: something else.
        """
        for result in results:
            if not isinstance(result, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(result)}")
        self._results += results

    def trim_significant_figures(self) -> None:
        """Shows only digits that the spread supports."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colours times by how they compare with the best in their column, or row."""
        self._colors = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self) -> None:
        """Marks measurements whose times differ much."""
        self._warnings = True

    def print(self) -> None:
        """Prints the tables."""
        print(str(self))

    def __str__(self) -> str:
        groups: dict[str, list[Measurement]] = {}
        for result in Measurement.merge(self._results):
            groups.setdefault(result.task_spec.label or "", []).append(result)
        return "\n".join(self._table(label, group) for label, group in groups.items())

    __repr__ = object.__repr__

    def _table(self, label: str, results: list[Measurement]) -> str:
        unit, scale = select_unit(min(result.median for result in results))
        columns = ordered_unique(result.task_spec.description for result in results)
        envs = ordered_unique(result.task_spec.env for result in results)
        threads = sorted({result.task_spec.num_threads for result in results})
        rows = ordered_unique(
            (r.task_spec.num_threads, r.task_spec.env if len(envs) > 1 else None, r.as_row_name)
            for count in threads
            for r in results
            if r.task_spec.num_threads == count
        )
        cells = {
            (r.task_spec.num_threads, r.task_spec.env if len(envs) > 1 else None, r.as_row_name,
             r.task_spec.description): r for r in results
        }  # fmt: skip
        texts = self._texts(rows, columns, cells, scale)
        names = self._row_names(rows)
        width = max(map(len, names))
        texts = [
            [text.rjust(max(len(line[i]) for line in texts)) for i, text in enumerate(line)]
            for line in texts
        ]
        heads = [str(column or "") for column in columns]
        widths = [max(len(head), len(text)) for head, text in zip(heads, texts[0], strict=True)]
        titles = [head.center(w) for head, w in zip(heads, widths, strict=True)]
        header = _SEPARATOR.join([" " * width, *titles])
        lines = [f"[{f' {label} '.center(len(header) - 2, '-')}]", header]
        previous = None
        for row, name, line in zip(rows, names, texts, strict=True):
            if row[0] != previous:
                lines.append(f"{row[0]} threads: ".ljust(len(header), "-"))
                previous = row[0]
            marked = [
                self._marked(text.center(w), row, column, rows, columns, cells)
                for text, w, column in zip(line, widths, columns, strict=True)
            ]
            lines.append(_SEPARATOR.join([name.ljust(width), *marked]))
        return "\n".join([*lines, "", f"Times are in {unit_to_english(unit)}s ({unit}).", ""])

    @staticmethod
    def _row_names(rows: list) -> list[str]:  # type: ignore[type-arg]
        """Names, behind the environment in the first row of each."""
        margin = max((len(f"  ({env})  ") for _, env, _ in rows if env), default=6)
        names, previous = [], None
        for count, env, name in rows:
            shown = f"  ({env})  " if env and (count, env) != previous else ""
            names.append(shown.ljust(margin) + name)
            previous = (count, env)
        return names

    def _texts(self, rows: list, columns: list, cells: dict, scale: float) -> list[list[str]]:  # type: ignore[type-arg]
        digits = {}
        for column in columns:
            group = [cells[(*row, column)] for row in rows if (*row, column) in cells]
            digits[column] = self._digits(group, scale)

        def text(row: tuple[object, ...], column: object) -> str:
            result = cells.get((*row, column))
            if result is None:
                return ""
            value = result.median
            value = trim_sigfig(value, result.significant_figures) if self._trim else value
            return f"{value / scale:.{digits[column]}f}"

        return [[text(row, column) for column in columns] for row in rows]

    def _digits(self, results: list[Measurement], scale: float) -> int:
        """Digits behind the point of a column's times."""
        if not self._trim:
            return 1
        leading = max(math.ceil(math.log10(result.median / scale)) for result in results)
        figures = max(result.significant_figures for result in results)
        return min(max(figures - leading, 0), 1)

    def _marked(
        self,
        text: str,
        row: tuple[object, ...],
        column: object,
        rows: list,  # type: ignore[type-arg]
        columns: list,  # type: ignore[type-arg]
        cells: dict,  # type: ignore[type-arg]
    ) -> str:
        result = cells.get((*row, column))
        if result is None:
            return text
        if self._warnings and result.has_warnings:
            text += f" (! {100 * result.iqr / result.median:.0f}%)"
        if self._colors is Colorize.NONE:
            return text
        keys = [(*row, each) for each in columns]
        if self._colors is Colorize.COLUMNWISE:
            keys = [(*each, column) for each in rows if each[0] == row[0]]
        best = min(cells[key].median for key in keys if key in cells)
        ratio = result.median / best
        steps = ((1.05, _BEST), (1.25, _GOOD), (2.0, ""), (5.0, _BAD), (math.inf, _WORST))
        color = next(color for limit, color in steps if ratio <= limit)
        return f"{color}{text}{_END * color.count(chr(27))}" if color else text
