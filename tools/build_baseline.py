"""Compiles the block functions: `flambeau/_baseline/<target>.so` for each target of this machine.

    python -m tools.build_baseline [--directory DIRECTORY]

For the checkout; `tools/build_package.py` builds those of a wheel beside the core. A library is
made of a few translation units, which two cores compile side by side. Their objects lie under
``build/objects``, named by content, as those of the native core: what did not change is not
compiled again.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from flambeau.compiler import toolchain
from flambeau.compiler.baseline.functions import units
from flambeau.compiler.targets import TARGETS, Target
from flambeau.compiler.toolchain import Compiler
from tools.build_native import BUILD, PARALLEL_COMPILES, ROOT, digest
from tools.jobs import Jobs

DIRECTORY = ROOT / "flambeau" / "_baseline"
UNITS = 8  # of a library; an object takes up to 10 s and 300 MB


def targets() -> list[Target]:
    """The targets that some machine of this architecture runs."""
    machine = os.uname().machine
    return [each for each in TARGETS.values() if not each.machines or machine in each.machines]


def build(directory: Path, target: Target, compiler: Compiler, jobs: Jobs) -> bool:
    """Brings the library of a target up to date; returns whether anything had to be done.

    Raises:
        CompileError: the compiler rejects the text.
    """
    texts = units(target, UNITS)
    flags = compiler.flags(target)
    objects = [_object(text, flags, compiler) for text in texts]
    output = directory / f"{target.name}.so"
    key = digest(compiler.identity, *flags, *(path.name for path in objects))
    stamp = BUILD / "objects" / f"linked-{digest(str(output.resolve()))}"
    if output.exists() and stamp.exists() and stamp.read_text() == key:
        return False
    (BUILD / "objects").mkdir(parents=True, exist_ok=True)
    directory.mkdir(parents=True, exist_ok=True)

    def compile_one(text: str, path: Path) -> None:
        if not path.exists():
            partial = path.with_suffix(f".{os.getpid()}")
            compiler.compile(text, target, partial, link=False)
            partial.replace(path)

    compiled = [jobs.submit(compile_one, *pair) for pair in zip(texts, objects)]
    for unit in compiled:
        unit.result()
    partial = output.with_suffix(f".{os.getpid()}")
    compiler.link([*map(str, objects), "-s"], target, partial)
    partial.replace(output)
    stamp.write_text(key)
    return True


def _object(text: str, flags: list[str], compiler: Compiler) -> Path:
    name = digest(compiler.identity, *compiler.command, *flags, text)
    return BUILD / "objects" / f"baseline-{name}.o"


def main() -> None:
    """Builds all libraries and prints what it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, default=DIRECTORY)
    parser.add_argument("--target", choices=[each.name for each in targets()])
    options = parser.parse_args()
    compiler = toolchain.find()
    for target in targets():
        if options.target not in (None, target.name):
            continue
        start = time.perf_counter()
        with Jobs(PARALLEL_COMPILES, f"block functions of {target.name}") as jobs:
            fresh = build(options.directory, target, compiler, jobs)
        if fresh:
            size = (options.directory / f"{target.name}.so").stat().st_size
            seconds = time.perf_counter() - start
            print(f"  block functions of {target.name}: {size / 1e6:.1f} MB, {seconds:.0f} s")


if __name__ == "__main__":
    main()
