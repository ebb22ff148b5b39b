"""Checks the kernels' C: format, samples of templates, helper functions, and block functions.

    python -m tools.template_lint [--fix]

`compiler/templates/` names samples of each template's settings. The C compiler reads their texts,
all helper functions for each lane count, and all block functions, with all warnings for each target
of this kind of processor, without generating code.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flambeau.compiler import toolchain
from flambeau.compiler.baseline import functions as block_functions
from flambeau.compiler.codegen.c.math import library
from flambeau.compiler.codegen.c.printer.c_printer import print_kernel
from flambeau.compiler.codegen.c.printer.c_unit import render
from flambeau.compiler.codegen.c.template import SUFFIX
from flambeau.compiler.targets import TARGETS, Target
from flambeau.compiler.templates import TEMPLATES
from flambeau.compiler.templates.interface import Template
from tools.build_native import ROOT

# A kernel's parameters are those of all kernels, and some need not all of them.
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")
LANES = (1, 2, 4, 8, 16)
FORMATTER = Path(sys.executable).with_name("clang-format")


def misformatted(fix: bool) -> Iterator[str]:
    """Names of files that clang-format would change; `fix` changes them."""
    for path in sorted((ROOT / "flambeau" / "compiler").rglob(f"*{SUFFIX}")):
        text = path.read_text()
        command = [str(FORMATTER), f"--assume-filename={ROOT / path.stem}"]
        formatted = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        if formatted.stdout != text:
            yield path.name
            if fix:
                path.write_text(formatted.stdout)


def unit(template: Template[Any], target: Target) -> str:
    """A translation unit of all samples of a template."""
    kernels = enumerate(template.kernels(target))
    texts = [(f"sample_{number}", print_kernel(kernel, target)) for number, kernel in kernels]
    return render(texts, target)


def helpers(lanes: int, target: Target) -> str:
    """A translation unit of all helper functions of a lane count: a list of their addresses."""
    addresses = ", ".join(name for name in library.names_of(lanes) if not is_macro(name, target))
    return render([("fb_helpers", f"void *const fb_helpers[] = {{{addresses}}};\n")], target)


def is_macro(name: str, target: Target) -> bool:
    """Whether a helper is a macro."""
    found = library.definition(name, target)
    return found is None or found.text.startswith("#define")


def warnings(name: str, source: str, target: Target) -> str:
    """What the C compiler says about a unit, which is then stored for a look."""
    compiler = toolchain.find()
    flags = [*compiler.flags(target), *WARNINGS, "-fsyntax-only", "-x", "c", "-"]
    command = [*compiler.command, *flags]
    result = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    if not result.returncode:
        return ""
    file = Path(tempfile.gettempdir()) / f"{name}.{target.name}.c"
    file.write_text(source)
    return f"{name} on {target.name}: {file}\n" + result.stderr[:2000]


def main(fix: bool) -> int:
    """Prints what is wrong; returns the exit status."""
    files = list(misformatted(fix))
    mistakes = [] if fix else [f"{name}: clang-format would change it (--fix)" for name in files]
    machine = os.uname().machine
    natives = [t for t in TARGETS.values() if not t.machines or machine in t.machines]
    for target in natives:
        units = {f"helpers_{lanes}": helpers(lanes, target) for lanes in LANES}
        units |= {template.name: unit(template, target) for template in TEMPLATES.values()}
        units |= {f"blocks_{i}": text for i, text in enumerate(block_functions.units(target, 4))}
        mistakes += filter(None, (warnings(*named, target) for named in units.items()))
    for mistake in mistakes:
        print(mistake)
    return int(bool(mistakes))


if __name__ == "__main__":
    sys.exit(main("--fix" in sys.argv[1:]))
