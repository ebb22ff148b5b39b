"""Prints kernels as C: `print_kernel` chooses the printer of a kernel's form.

A template `x` is printed by `print_template(kernel, target)` of the module `c_template_x`.
"""

from __future__ import annotations

from flambeau.compiler.codegen.c_column import ColumnPrinter, ScanPrinter
from flambeau.compiler.codegen.c_complex import lower, needs_lowering
from flambeau.compiler.codegen.c_forms import FormPrinter
from flambeau.compiler.codegen.c_scan import AlongScanPrinter, along_memory
from flambeau.compiler.codegen.c_tiled import TiledPrinter
from flambeau.compiler.targets import Target
from flambeau.ir.kernel import Kernel
from flambeau.ir.lock import late

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
    if kernel.form == "template":
        module = late(f"flambeau.compiler.codegen.c_template_{kernel.template}")
        text: str = module.print_template(kernel, target)
        return text
    if needs_lowering(kernel):
        kernel = lower(kernel)
    scan = along_memory(kernel)
    if scan is not None:
        return AlongScanPrinter(scan, target).print()
    printer = TiledPrinter if kernel.tiled else _FORMS[kernel.form]
    return printer(kernel, target).print()
