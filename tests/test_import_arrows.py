"""Imports point one way (docs/design.md): nn → ops → prims → ir, and compiler → ir.

Every import statement of the package is read, those inside functions too; type-checking blocks
count as well. What is allowed beyond the arrows stands in one table, with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "flambeau"

# layer -> layers it may import from (itself is always allowed)
ARROWS = {
    "ir": set(),
    "prims": {"ir"},
    "compiler": {"ir", "runtime"},
    "runtime": set(),
    "language": {"ir", "prims"},
    "core": {"ir", "prims", "language", "runtime"},
    "derivation": {"ir", "prims"},
    "driver": {"ir", "prims", "language", "core", "derivation", "compiler", "runtime"},
    "autograd": {"ir", "prims", "language", "core", "driver", "derivation", "profiler", "runtime"},
    "capture": {
        "ir",
        "prims",
        "language",
        "core",
        "autograd",
        "compiler",
        "derivation",
        "driver",
        "runtime",
    },  # fmt: skip
    "reports": {"ir", "prims", "compiler", "capture", "runtime"},
    "ops": {"ir", "prims", "language", "core", "runtime"},
    "autograd/transforms": {
        "ir",
        "prims",
        "language",
        "core",
        "autograd",
        "derivation",
        "driver",
        "runtime",
    },  # fmt: skip
    "func": {"autograd", "nn", "ops"},
    "linalg": {"ops", "core", "language"},
    "nn": {"ops", "language", "core", "autograd", "linalg", "special", "runtime"},
    "sparse": {"language", "core", "autograd", "runtime"},
    "nested": {"language", "core", "autograd"},
    "profiler": {"runtime"},
    "optim": {"ops", "language", "core", "autograd", "nn", "profiler", "runtime"},
}
EVERYWHERE = {"ir.lock", "ir.failure", "ir.modules"}  # use nothing of the package
# Who may import the native module.
NATIVE = {
    "autograd/transforms", "language", "driver", "core", "runtime", "autograd", "capture",
    "profiler", "reports",
}  # fmt: skip

# (file or layer, what it imports beyond the arrows): why.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("nn", ""): "modules are written as users would write them, with the public namespace",
    ("nn/attention", "backends.attention"): "sets the switches of torch.backends.cuda",
    ("optim", ""): "optimizers too",
    ("sparse", ""): "operators composed of operators, as users would write them",
    ("nested", ""): "likewise",
    ("autograd/transforms", "utils"): "transformed functions take nested containers",
    ("linalg/eigenpairs.py", ""): "an iteration of operators, as users would write it",
    ("linalg/eigenpairs.py", "autograd"): "its derivative is not that of its steps",
    ("nn", "_core"): "parameters, buffers and hooks check for the native Tensor type",
    ("optim", "Tensor"): "the public name of that type",
    ("nn", "capture.regions.compile"): "Module.compile is torch.compile of its call",
    ("optim", "capture.recording"): "the first state is made outside of a step's region",
    ("nn", "nested.attention.multi_head_attention"): "heads of nested tensors",
    ("capture", "nn"): "compiling a module gives a module",
    (
        "capture/regions.py",
        "_dynamo.custom_backend.compiled_by",
    ): "a backend of the user takes graphs",
    ("compiler/schedule", "prims"): "the records say what a node is: kind, cost, routine",
    ("compiler/baseline", "prims"): "block functions are listed from the records",
    ("compiler/baseline", "_core"): "loads the library of block functions",
    ("compiler/simplify.py", "prims"): "the records say which nodes only compute: kind",
    (
        "ops/neural/normalization.py",
        "autograd.no_grad",
    ): "running statistics are updated outside the tape",
    (
        "ops/neural/ctc.py",
        "autograd.transforms.wrappers.inside",
    ): "a derivative may be wanted there",
    (
        "ops/linear/factorisations.py",
        "autograd.transforms.wrappers.inside",
    ): "errors of all samples raise",
    ("compiler/stepping.py", "_core"): "the core calls back after each instruction",
    ("compiler/stepping.py", "language.schema.ArgumentSpec"): "an op that runs a plan",
    (
        "autograd/anomaly.py",
        "compiler.nan_origin.find_nan",
    ): "runs the node that gave a NaN step by step",
    ("compiler/tiers.py", "_core"): "the core times runs on the baseline, and lists their plans",
    ("runtime/symbolic.py", "ir"): "symbolic numbers are sizes of the compiler's algebra",
    ("runtime/symbols.py", "ir"): "functions of these",
    ("nested/ragged.py", "runtime"): "a ragged size is a kind of `SymInt`",
    ("ops/dtype_rules.py", "_core"): "answers from the native dtype objects themselves",
}


def late_names(path: Path) -> Iterator[str]:
    """Packages that a file loads by name: `late("flambeau.nn")`, `import_module(...)`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = getattr(node.func, "id", getattr(node.func, "attr", ""))
            name = str(node.args[0].value)
            if function in ("late", "loaded", "import_module") and name.startswith("flambeau."):
                yield name.split(".")[1]


def layer_of(path: Path) -> str:
    """The directory below the package that is a layer, or "" for files directly in it."""
    parts = path.relative_to(PACKAGE).parts
    nested = "/".join(parts[:2])
    return nested if nested in ARROWS else parts[0] if len(parts) > 1 else ""


def imported(path: Path) -> list[str]:
    """Dotted names below the package that a file imports."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return [n[9:] for n in found if n == "flambeau" or n.startswith("flambeau.")]


def excuses(path: Path, dotted: str) -> set[tuple[str, str]]:
    """The entries of `EXCEPTIONS` that would allow an import."""
    name = path.relative_to(PACKAGE)
    places = {str(name), *map(str, name.parents)}
    return {(place, what) for place in places for what in (dotted, dotted.split(".")[0])}


def violations(path: Path) -> list[tuple[str, str]]:
    """(file, what it must not import) of one file."""
    layer, name = layer_of(path), str(path.relative_to(PACKAGE))
    allowed = ARROWS.get(layer)
    found = []
    for dotted in imported(path):
        target = dotted.split(".")[0]
        native = target == "_core"
        wrong = native and layer not in NATIVE
        wrong |= (
            not native and allowed is not None and target not in {layer.split("/")[0], *allowed}
        )
        wrong &= not any(dotted.startswith(f"{each}.") for each in EVERYWHERE)
        if wrong and not excuses(path, dotted) & EXCEPTIONS.keys():
            found.append((name, dotted))
    return found


FILES = sorted(p for p in PACKAGE.rglob("*.py") if layer_of(p) in ARROWS)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_arrows(path):
    assert not violations(path)


def test_exceptions_are_needed():
    """An exception that nothing uses any more is removed from the table."""
    used = set()
    for path in FILES:
        for dotted in imported(path):
            used |= excuses(path, dotted)
    assert not EXCEPTIONS.keys() - used


def test_scheduler_and_templates_know_no_printer():
    """Interfaces of kernels stand in compiler/templates, which know ir and targets alone."""
    for path in sorted((PACKAGE / "compiler" / "templates").rglob("*.py")):
        inside = [n for n in imported(path) if n.startswith("compiler.")]
        known = ("compiler.targets", "compiler.templates")
        assert [n for n in inside if not n.startswith(known)] == [], path.name
    folder = PACKAGE / "compiler" / "schedule"
    readers = {
        path.name
        for path in folder.rglob("*.py")
        if any(n.startswith("compiler.codegen") for n in imported(path))
    }
    assert not readers


def test_numpy_is_optional():
    """No module of the package imports NumPy or SciPy when it is imported itself.

    Those of `_numpy` do: they are loaded where an array of NumPy is an argument.
    """
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.parent.name == "_numpy":
            continue
        for node in ast.parse(path.read_text()).body:
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            heavy = [n for n in names if n.split(".")[0] in ("numpy", "scipy", "torch")]
            assert not heavy, f"{path.relative_to(PACKAGE)} imports {heavy}"


CORE = "ir prims runtime language core derivation compiler driver autograd capture ops".split()


def test_no_cycle_between_packages_of_the_core() -> None:
    """Packages of the core form an order; imports inside functions count, too."""
    below: dict[str, set[str]] = {package: set() for package in CORE}
    for path in PACKAGE.rglob("*.py"):
        package = path.relative_to(PACKAGE).parts[0]
        if package in below:
            below[package] |= {dotted.split(".")[0] for dotted in imported(path)} & below.keys()
            below[package] |= {name for name in late_names(path) if name in below}
            below[package].discard(package)
    order: list[str] = []
    while below:
        free = [package for package, targets in below.items() if not targets - set(order)]
        assert free, {package: targets - set(order) for package, targets in below.items()}
        order += free
        for package in free:
            del below[package]
