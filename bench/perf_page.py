"""Fills the tables of docs/perf.md: `python -m bench.perf_page [--check]`.

The roofline's come from bench/results/roofline.json; the table of kernels is made here: their C
text, compiled by the tool chain that is there. With `--check` nothing is written; the status says
whether the roofline's tables are up to date.
"""

from __future__ import annotations

import json
import re
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import RESULTS
from bench.roofline import CASES, Case, Machine, Row, machine_table, table_of

PAGE = Path(__file__).parent.parent / "docs" / "perf.md"
CODEGEN = PAGE.parent.parent / "flambeau" / "compiler" / "codegen"
SHOWN = (
    "add, 32 MB", "gelu", "sum of columns", "softmax of rows", "layer norm", "cumsum of rows",
    "transpose copy", "cross entropy", "matmul 1024", "matmul 512 bfloat16",
    "linear + gelu, compiled", "conv2d 3 x 3, 64 channels", "attention, causal",
    "AdamW step, 8 M",
)  # fmt: skip


def roofline_text(results: Path = RESULTS) -> str:
    """The machine and the programs, or what to run."""
    path = results / "roofline.json"
    if not path.exists():
        return "*No results yet: `./go bench roofline` writes them.*"
    data = json.loads(path.read_text())
    machines = [Machine(**machine) for machine in data["machines"]]
    rows = [Row(**row) for row in data["rows"]]
    about = data["about"]
    measured = f"Measured on {about['processor']}, target {about['target']}, {_disturbed(about)}."
    return f"{machine_table(machines)}\n\n{table_of(rows)}\n\n{measured}"


def _disturbed(about: dict[str, Any]) -> str:
    """Whether others used the machine, which makes times longer than they need be."""
    load = about.get("load", 0.0)
    if load < 1.5:
        return "which had nothing else to do"
    return (
        f"at a load of {load} from elsewhere: times are upper bounds, those of long launches "
        "and of two threads above all"
    )


# ------------------------------------------------------------------------------- kernels


@dataclass
class KernelSize:
    """What a kernel is made of.

    Attributes:
        program: the program of the roofline's table that needs it.
        form: its form, or which template.
        printer: lines of Python that print this template; 0 for the general forms.
        text: lines of C, without the helpers it calls.
        unit: lines of C with them.
        code: bytes of machine code, helpers included.
        milliseconds: that compiling took.
    """

    program: str
    form: str
    printer: int
    text: int
    unit: int
    code: int
    milliseconds: float


def kernel_sizes(case: Case) -> list[KernelSize]:
    """The kernels of a program, compiled one by one."""
    from flambeau.compiler import codegen, targets, toolchain
    from flambeau.compiler.codegen.c.printer import c_unit
    from flambeau.runtime import plan_cache_clear

    program = case.make()
    plan_cache_clear()
    with codegen.collect() as collected:
        program()
    plan_cache_clear()
    target, found = targets.current(), []
    for kernel in {kernel.text(): kernel for kernel in collected}.values():
        text = codegen.print_kernel(kernel, target)
        unit = c_unit.render([("fb_kernel", text)], target)
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            toolchain.find().compile(unit, target, Path(folder) / "kernel.so")
            spent = (time.perf_counter() - start) * 1e3
            code = text_bytes((Path(folder) / "kernel.so").read_bytes())
        printers = CODEGEN.glob(f"c_*{kernel.template}*.py") if kernel.template else ()
        lines = sum(path.read_text().count("\n") for path in printers)
        form = kernel.template or kernel.form
        counts = (text.count("\n"), unit.count("\n"))
        found.append(KernelSize(case.name, form, lines, *counts, code, spent))
    return found


def text_bytes(library: bytes) -> int:
    """Bytes of the section .text of a 64-bit ELF file; 0 for another format."""
    if library[:5] != b"\x7fELF\x02":
        return 0
    order = "<" if library[5] == 1 else ">"
    (table,) = struct.unpack_from(order + "Q", library, 0x28)
    size, count, names = struct.unpack_from(order + "HHH", library, 0x3A)
    sections = [
        struct.unpack_from(order + "IIQQQQ", library, table + i * size) for i in range(count)
    ]
    start = sections[names][4]
    for name, _, _, _, _, length in sections:
        if library[start + name : library.index(b"\0", start + name)] == b".text":
            return int(length)
    return 0


def kernels_text(make: Callable[[Case], list[KernelSize]] = kernel_sizes) -> str:
    """The table of kernels."""
    lines = [
        "| program | form or template | its printer (lines) | C (lines) | with helpers "
        "| machine code | compiled in |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for case in CASES:
        sizes = make(case) if case.name in SHOWN else []
        for kernel in sizes:
            lines.append(
                f"| {kernel.program} | {kernel.form} | {kernel.printer or ''} | {kernel.text} "
                f"| {kernel.unit} | {kernel.code / 1024:.1f} KB | {kernel.milliseconds:.0f} ms |"
            )
        if case.name in SHOWN and not sizes:
            lines.append(f"| {case.name} | native routine | | | | | |")
    return "\n".join(lines)


def filled(page: str, name: str, text: str) -> str:
    """The page with what is between a pair of markers replaced.

    Raises:
        ValueError: the markers are missing.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    pattern = re.compile(f"({re.escape(begin)}\n).*?({re.escape(end)})", re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"[bench] docs/perf.md lacks {begin} ... {end}\nhint: put them back")
    return pattern.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page)


def main() -> int:
    """Writes the page, or says whether it is up to date."""
    old = PAGE.read_text()
    new = filled(old, "roofline", roofline_text())
    if "--check" in sys.argv[1:]:
        return int(old != new)
    PAGE.write_text(filled(new, "kernels", kernels_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
