"""Prints kernels as C: `print_kernel` chooses the printer of a kernel's form.

A template that declares `names` is its file `kernels/<name>.c.in`; others, `x` and `x_y`, are
printed by `print_template(kernel, target)` of the module `c_template_x`.
"""

from __future__ import annotations

import re
from collections import Counter

from flambeau.compiler.codegen.c.math.c_complex import lower, needs_lowering
from flambeau.compiler.codegen.c.math.records import FUNCTIONS
from flambeau.compiler.codegen.c.printer.c_column import ColumnPrinter, ScanPrinter
from flambeau.compiler.codegen.c.printer.c_forms import FormPrinter
from flambeau.compiler.codegen.c.printer.c_scan import AlongScanPrinter, along_memory
from flambeau.compiler.codegen.c.printer.c_tiled import TiledPrinter
from flambeau.compiler.targets import Target
from flambeau.ir.kernel import Kernel
from flambeau.ir.lock import late

_FORMS: dict[str, type[FormPrinter]] = {
    "map": FormPrinter,
    "row": FormPrinter,
    "column": ColumnPrinter,
    "scan": ScanPrinter,
}

OFTEN = 16  # calls of an elementary function in one kernel up to which each is inlined
_LONG_FUNCTIONS = FUNCTIONS.keys() - {"sqrt", "rsqrt", "floor", "ceil", "trunc", "rint"}
_CALL = re.compile(r"\bfb_([a-z]\w*)_f(?:32|64)x\d+\(")


def print_kernel(kernel: Kernel, target: Target) -> str:
    """C text of one kernel, a function named `fb_kernel`; `c_unit.render` completes it.

    Raises:
        NotImplementedError: for a primitive or dtype that this back end does not spell.
    """
    if kernel.form == "template":
        return _print_template(kernel, target)
    if needs_lowering(kernel):
        kernel = lower(kernel)
    scan = along_memory(kernel)
    if scan is not None:
        return call_apart(AlongScanPrinter(scan, target).print())
    printer = TiledPrinter if kernel.tiled else _FORMS[kernel.form]
    return call_apart(printer(kernel, target).print())


def _print_template(kernel: Kernel, target: Target) -> str:
    template = late("flambeau.compiler.templates").TEMPLATES.get(kernel.template)
    if template is None or template.names is None:
        family = kernel.template.partition("_")[0]
        module = late(f"flambeau.compiler.codegen.c.kernels.c_template_{family}")
        text: str = module.print_template(kernel, target)
        return text
    names = template.names(template.settings.of(kernel), target)
    complete = late("flambeau.compiler.codegen.c.kernels.c_interface").complete
    body = late("flambeau.compiler.codegen.c.template").render(kernel.template, names)
    text = complete(template.of(kernel, target), body)
    return text


def call_apart(text: str) -> str:
    """A kernel's text in which elementary functions that it calls often are functions of its own.

    Inlined they take the C compiler about a millisecond each, so that a sum over many parts of a
    tensor would take seconds. The definition is the same, and so are the bits.
    """
    calls = (call[0][:-1] for call in _CALL.finditer(text) if call[1] in _LONG_FUNCTIONS)
    for name in [name for name, count in Counter(calls).items() if count > OFTEN]:
        stem, _, vector = name.removeprefix("fb_").rpartition("_")
        own = name.replace("fb_", "fb_kernel_often_", 1)
        arguments = "ab"[: FUNCTIONS[stem]]
        parameters = ", ".join(f"{vector} {argument}" for argument in arguments)
        body = f"{{ return {name}({', '.join(arguments)}); }}"
        text = re.sub(rf"\b{name}\(", f"{own}(", text)
        text = f"static __attribute__((noinline)) {vector} {own}({parameters}) {body}\n{text}"
    return text
