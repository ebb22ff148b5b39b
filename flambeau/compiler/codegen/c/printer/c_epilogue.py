"""The epilogue of a template: what a fused sub-graph does with a row of its results.

A template computes a tile of results in cache and hands each row of it to the function printed
here, which applies the kernel's body to it: bias, activation, residual, casts and stores cost no
pass of their own over memory.
"""

from __future__ import annotations

import re

from flambeau.compiler.codegen.c.printer.c_forms import SYMBOL, FormPrinter
from flambeau.compiler.codegen.c.printer.c_types import MEMORY_KIND
from flambeau.compiler.targets import Target
from flambeau.ir.kernel import Kernel, Pass

EPILOGUE = f"{SYMBOL}_epilogue"


class EpiloguePrinter(FormPrinter):
    """Prints a template's body as a function of one row."""

    def print(self) -> str:
        """The C function; `inner` is the end of the columns, `result` the value of column 0.

        Memory behind the row's last result is read up to a whole vector, and not used.
        """
        self.values.kept["result"] = "result"
        for statement in self.kernel.body:
            assert isinstance(statement, Pass)
            self.loop(statement)
        kind = MEMORY_KIND[str(self.kernel.setting("result"))]
        axes = "".join(f"long long p{i}, " for i in range(len(self.kernel.rows)))
        lines = [
            f"static void {EPILOGUE}(char *const *p, const long long *n, const fb_scalar *x, {axes}"
            f"long long first, long long inner, const {kind}x1 *result) {{"
        ]
        used = set(re.findall(r"\bn(\d+)\b", "\n".join(self.row.lines)))
        if used:
            names = ", ".join(f"n{i} = n[{i}]" for i in sorted(map(int, used)))
            lines.append(f"  const long long {names};")
        return "\n".join([*lines, *self.row.lines, "}"]) + "\n"

    def inner(self) -> str:
        """Name of the end of the loop over r, a parameter."""
        return "inner"

    def first(self) -> str:
        """First r of the loop, a parameter."""
        return "first"


def print_epilogue(kernel: Kernel, target: Target) -> str:
    """C text of `fb_kernel_epilogue(p, n, x, p0, .., first, inner, result)`.

    It handles columns [first, inner) of row p0, ..; `result + r` points at the result of column r.
    """
    return EpiloguePrinter(kernel, target).print()
