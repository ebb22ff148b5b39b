"""Builds all that is compiled of the package: core, block functions, and templates' variants.

    python -m tools.build_package [--directory PACKAGE] [--own-target]

All compilers run in one pool, so that every processor core is busy from start to end. `setup.py`
calls it for wheels, `./go` for the checkout, which gets block functions and variants for the target
of its own processor only: those of all targets take twice as long (`./go build --all-targets`). The
core need not exist (`without_core`). Which files are made, and every byte of them, depends on the
sources, the compilers and the targets: neither on how fast the machine is nor on what was built
before.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tools import build_native, without_core
from tools.build_native import BUILD, ROOT
from tools.jobs import Jobs

if TYPE_CHECKING:
    from flambeau.compiler.targets import Target

LEVELS = BUILD / "variants"  # of the templates, a level per target: wheels for all Pythons share it


def build(
    package: Path, count: int, *, own_target: bool = False, warnings_are_errors: bool = False
) -> None:
    """Brings the compiled files of a package up to date.

    Args:
        package: the folder `flambeau` that they are written to.
        count: compilers that run at a time.
        own_target: whether they are for the target of this machine only, not for all targets of
            its architecture.
        warnings_are_errors: of the core.

    Raises:
        NativeBuildError, CompileError: a compiler failed, or there is none.
    """
    without_core.install()
    from flambeau.compiler import targets, toolchain
    from tools import build_baseline

    compiler, blocks = toolchain.find(), package / "_baseline"
    chosen = (targets.current(),) if own_target else targets.of_this_architecture()

    def core() -> None:
        output = package / build_native.EXTENSION
        build_native.build(
            output,
            warnings_are_errors=warnings_are_errors,
            without_symbols=package != ROOT / "flambeau",
            jobs=jobs,
        )

    with Jobs(count, "package") as jobs, ThreadPoolExecutor() as parts:
        begun: list[Future[object]] = [parts.submit(core)]
        for each in targets.of_this_architecture():
            # A library that `./go targets` made would be one of another interface.
            if each in chosen or (blocks / f"{each.name}.so").exists():
                begun.append(parts.submit(build_baseline.build, blocks, each, compiler, jobs))
            if each in chosen:
                begun.append(parts.submit(_variants, each, jobs))
        for part in begun:
            part.result()
    _install(package / "_kernels", chosen)


def _variants(target: Target, jobs: Jobs) -> None:
    """Brings the level with a target's variants of the templates up to date.

    One library holds them all. Where some of them changed, all are compiled again: a library with
    what is left of an earlier one would depend on the order of builds.
    """
    from flambeau.driver import prebuilt

    level = LEVELS / target.name
    stored = prebuilt.prepare_level(level)
    complete = stored.keys() >= {part.key for part in prebuilt.parts_of(target)}
    present = stored if complete else {}
    entries, objects = prebuilt.fill(level, (target,), present, jobs, lambda count: None)
    prebuilt.drop_objects(level, objects)
    prebuilt.write_level(level, entries)


def _install(root: Path, chosen: Sequence[Target]) -> None:
    """Adds the variants for some targets to the package's level; what else it has stays."""
    from flambeau.compiler import cache
    from flambeau.driver import prebuilt

    entries = prebuilt.prepare_level(root)
    for target in chosen:
        level = LEVELS / target.name
        entries |= prebuilt.prepare_level(level)
        for path in sorted(level.rglob("*")):
            copy = root / path.relative_to(level)
            if path.is_file() and not copy.exists():  # a library that is loaded is never replaced
                cache.write(copy, path.read_bytes())
    prebuilt.write_level(root, entries)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, default=ROOT / "flambeau")
    parser.add_argument("--jobs", type=int, default=max(2, os.cpu_count() or 2))
    parser.add_argument("--own-target", action="store_true", help="of this machine only")
    parser.add_argument("--strict", action="store_true", help="warnings are errors")
    options = parser.parse_args()
    build(
        options.directory.resolve(),
        options.jobs,
        own_target=options.own_target,
        warnings_are_errors=options.strict,
    )


if __name__ == "__main__":
    main()
