"""Averages of a profile as text: one line per row, columns as wide as they need to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}  # microseconds each
PREFIXES = ("", "K", "M", "G", "T", "P")
GAP = "  "
Cell = Callable[[Any], str]


def duration(microseconds: float, unit: str | None = None) -> str:
    """Microseconds as text, in a fitting unit or the one given.

    Example:
        >>> duration(1500.0), duration(1500.0, "us")
        ('1.500ms', '1500.000us')
    """
    if unit is None:
        unit = "s" if microseconds >= 1e6 else "ms" if microseconds >= 1e3 else "us"
    if unit not in UNITS:
        raise ValueError(f"[profiler] invalid time_unit {unit!r}\nhint: one of {list(UNITS)}")
    return f"{microseconds / UNITS[unit]:.3f}{unit}"


def memory(nbytes: float) -> str:
    """Bytes as text; they may be negative.

    Example:
        >>> memory(-2048), memory(3)
        ('-2.00 KB', '3 B')
    """
    for unit, scale in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(nbytes) >= scale:
            return f"{nbytes / scale:.2f} {unit}"
    return f"{nbytes:.0f} B"


def share(part: float, total: float) -> str:
    """A part as a percentage."""
    return f"{100 * part / total:.2f}%" if total else "--"


def sorted_rows(rows: list[Any], attribute: str) -> list[Any]:
    """Rows by an attribute, the largest first."""
    attribute = attribute.replace("cuda", "device").replace("xpu", "device")
    for row in rows[:1]:
        if not hasattr(row, attribute):
            attributes = (
                "cpu_time cpu_time_total self_cpu_time_total cpu_memory_usage count flops bytes"
            )
            raise AttributeError(
                f"[profiler] events cannot be sorted by {attribute!r}\n"
                f"hint: one of {', '.join(attributes.split())}"
            )
    return sorted(rows, key=lambda row: getattr(row, attribute), reverse=True)


def table(
    rows: Sequence[Any],
    *,
    total: float,
    memory: bool,
    shapes: bool,
    most_flops: int | None,
    widths: tuple[int, int, int],
    header: str | None,
    unit: str | None,
) -> str:
    """The table of `EventList.table`.

    Args:
        rows: events or averages.
        total: microseconds that percentages are of.
        memory: whether there are columns of memory.
        shapes: whether there is one of shapes, even if no row that is shown has any.
        most_flops: what the unit of operations is chosen by, of rows that are not shown, too; None:
            no columns of operations and bytes.
        widths: largest widths of names, shapes and source lines.
        header: a line above it.
        unit: of all times, or None.
    """
    if not rows:
        return ""
    name_width, shapes_width, source_width = widths
    columns: list[tuple[str, Cell]] = [("Name", lambda row: _shortened(row.key, name_width))]
    columns += _time_columns(total, unit)
    columns += _memory_columns() if memory else []
    columns.append(("# of Calls", lambda row: str(row.count)))
    if shapes:
        columns.append(("Input Shapes", lambda row: _shortened(_shapes(row), shapes_width)))
    columns += [] if most_flops is None else _rate_columns(most_flops)
    cells = [[title for title, _ in columns]]
    cells += [[cell(row) for _, cell in columns] for row in rows]
    if any(row.stack for row in rows):
        cells = _with_sources(cells, rows, source_width)
    lines = _aligned(cells)
    if header is not None:
        lines = [lines[0], header, *lines]
    return "\n".join([*lines, f"Self CPU time total: {duration(total, unit)}", ""])


def _time_columns(total: float, unit: str | None) -> list[tuple[str, Cell]]:
    return [
        ("Self CPU %", lambda row: share(row.self_cpu_time_total, total)),
        ("Self CPU", lambda row: duration(row.self_cpu_time_total, unit)),
        ("CPU total %", lambda row: share(row.cpu_time_total, total)),
        ("CPU total", lambda row: duration(row.cpu_time_total, unit)),
        ("CPU time avg", lambda row: duration(row.cpu_time, unit)),
    ]


def _memory_columns() -> list[tuple[str, Cell]]:
    return [
        ("CPU Mem", lambda row: memory(row.cpu_memory_usage)),
        ("Self CPU Mem", lambda row: memory(row.self_cpu_memory_usage)),
    ]


def _rate_columns(most: int) -> list[tuple[str, Cell]]:
    power = min((len(str(int(most))) - 1) // 3, len(PREFIXES) - 1)

    def number(value: float, form: str) -> str:
        return format(value, form) if value else "--"

    return [
        (f"Total {PREFIXES[power]}FLOPs", lambda row: number(row.flops / 1000**power, ".3f")),
        ("GFLOP/s", lambda row: number(row.flop_rate / 1e9, ".2f")),
        ("Moved", lambda row: memory(row.bytes) if row.bytes else "--"),
        ("GB/s", lambda row: number(row.bandwidth / 1e9, ".2f")),
        ("Threads", lambda row: number(row.threads if row.bytes else 0, "d")),
    ]


def _shapes(row: Any) -> str:
    return str(row.input_shapes) if row.input_shapes else "[]"


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."


def _with_sources(cells: list[list[str]], rows: Sequence[Any], width: int) -> list[list[str]]:
    """A last column with source lines; all but the first have table lines of their own."""
    lines = [[*cells[0], "Source Location"]]
    for line, row in zip(cells[1:], rows, strict=True):
        sources = [text if len(text) <= width else "..." + text[3 - width :] for text in row.stack]
        lines.append([*line, sources[0] if sources else ""])
        lines += [[*([""] * len(line)), text] for text in sources[1:]]
    return lines


def _aligned(cells: list[list[str]]) -> list[str]:
    """Lines of a table: the header between rules, numbers to the right."""
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    rule = GAP.join("-" * width for width in widths)
    lines = [GAP.join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells]
    return [rule, lines[0], rule, *lines[1:], rule]
