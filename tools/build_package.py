"""Builds all that is compiled of the package: core, block functions, and templates' variants.

    python -m tools.build_package [--directory PACKAGE]

All compilers run in one pool, so that every processor core is busy from start to end. `./go` calls
it for the checkout, `setup.py` for wheels. The core need not exist (`without_core`). Which files
are made, and every byte of them, depends on the sources and the compilers alone: neither on how
fast the machine is nor on what was built before.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tools import build_native, without_core
from tools.build_native import BUILD, ROOT
from tools.jobs import Jobs

LEVEL = BUILD / "variants"  # the templates' variants: wheels for several Pythons share them


def build(package: Path, count: int, warnings_are_errors: bool = False) -> None:
    """Brings the compiled files of a package up to date.

    Args:
        package: the folder `flambeau` that they are written to.
        count: compilers that run at a time.
        warnings_are_errors: of the core.

    Raises:
        NativeBuildError, CompileError: a compiler failed, or there is none.
    """
    without_core.install()
    from flambeau.compiler import targets, toolchain
    from tools import build_baseline

    compiler, blocks = toolchain.find(), package / "_baseline"

    def core() -> None:
        output = package / build_native.EXTENSION
        build_native.build(output, warnings_are_errors=warnings_are_errors, jobs=jobs)

    with Jobs(count, "package") as jobs, ThreadPoolExecutor() as parts:
        begun: list[Future[object]] = [parts.submit(core)]
        for each in targets.of_this_architecture():
            begun.append(parts.submit(build_baseline.build, blocks, each, compiler, jobs))
        begun.append(parts.submit(_variants, package / "_kernels", jobs))
        for part in begun:
            part.result()


def _variants(root: Path, jobs: Jobs) -> None:
    """Adds the templates' variants to a level; what else it has stays.

    A library of the variants holds all of one target. Where some of them changed, all are compiled
    again: a library with what is left of an earlier one would depend on the order of builds.
    """
    from flambeau.compiler import cache, targets
    from flambeau.driver import prebuilt, prefill

    stored = prefill.prepare_level(LEVEL)
    parts = [part for each in targets.of_this_architecture() for part in prebuilt.parts_of(each)]
    present = stored if stored.keys() >= {part.key for part in parts} else {}
    entries, objects = prebuilt.fill(LEVEL, present, jobs, lambda count: None)
    prefill.drop_objects(LEVEL, objects)
    prefill.write_level(LEVEL, entries)
    entries = prefill.prepare_level(root) | entries
    for path in sorted(LEVEL.rglob("*")):
        copy = root / path.relative_to(LEVEL)
        if path.is_file() and not copy.exists():  # a library that is loaded is never overwritten
            cache.write(copy, path.read_bytes())
    prefill.write_level(root, entries)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, default=ROOT / "flambeau")
    parser.add_argument("--jobs", type=int, default=max(2, os.cpu_count() or 2))
    parser.add_argument("--strict", action="store_true", help="warnings are errors")
    options = parser.parse_args()
    build(options.directory.resolve(), options.jobs, options.strict)


if __name__ == "__main__":
    main()
