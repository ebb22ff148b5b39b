"""Prints kernels as C: `print_kernel` chooses the printer of a kernel's form."""

from __future__ import annotations

from flambeau.compiler.codegen.c_column import ColumnPrinter, ScanPrinter
from flambeau.compiler.codegen.c_complex import lower, needs_lowering
from flambeau.compiler.codegen.c_forms import FormPrinter
from flambeau.compiler.codegen.c_tiled import TiledPrinter
from flambeau.compiler.targets import Target
from flambeau.ir.kernel import Kernel

_FORMS: dict[str, type[FormPrinter]] = {
    "map": FormPrinter,
    "row": FormPrinter,
    "column": ColumnPrinter,
    "scan": ScanPrinter,
}


def print_kernel(kernel: Kernel, target: Target) -> str:
    """C text of one kernel, a function named `fb_kernel`; `c_unit.render` completes it.

    Raises:
        NotImplementedError: for a primitive or dtype that this back end does not spell.
    """
    if needs_lowering(kernel):
        kernel = lower(kernel)
    printer = TiledPrinter if kernel.tiled else _FORMS[kernel.form]
    return printer(kernel, target).print()
