"""Compiles the kernels of the op table in large units before the checks ask for them one by one.

Everything is called in a dry run, then what the cache does not have yet is compiled. A stamp of
the sources skips all this when nothing has changed. This is an optimisation: a kernel that is
missed here is compiled by the check that needs it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flambeau.compiler import cache, codegen, targets, toolchain
from flambeau.compiler.codegen.c.printer.c_unit import render
from flambeau.compiler.dry_run import Describe, dry_run
from flambeau.ir.kernel import Kernel

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = 120  # kernels in one translation unit: a tenth cheaper than in units of 40


def _stamp() -> Path:
    digest = hashlib.sha256(toolchain.find().identity.encode())
    for path in sorted([*ROOT.glob("flambeau/**/*.py"), *Path(__file__).parent.glob("*.py")]):
        digest.update(path.read_bytes())
    return cache.directory() / "op-table" / digest.hexdigest()[:32]


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Processes that test side by side: one compiles, the others wait for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def new_kernels(exists: Callable[[str], object] = lambda key: False) -> Describe:
    """Describes kernels by key and C text, each once, and not those whose key is `known`."""
    target, identity = targets.current(), toolchain.find().identity
    seen: set[str] = set()

    def describe(kernels: list[Kernel]) -> Iterator[str]:
        for kernel in kernels:
            key = codegen.key_of(kernel, target, identity)
            if key not in seen and not exists(key):
                seen.add(key)
                with suppress(NotImplementedError):
                    yield f"{key}\n{codegen.print_kernel(kernel, target)}"

    return describe


def collect(calls: Sequence[Callable[[], object]], describe: Describe) -> Iterator[tuple[str, str]]:
    """Key and C text of the kernels that the calls need, as they are found."""
    for _, descriptions in dry_run(calls, describe):
        for key, _, text in (description.partition("\n") for description in descriptions):
            yield key, text


def compile_unit(unit: dict[str, str], target: targets.Target) -> bytes:
    """The shared library of a translation unit: key and C text of its kernels."""
    source = render([(codegen.symbol_of(key), text) for key, text in unit.items()], target)
    with TemporaryDirectory(prefix="flambeau") as folder:
        output = Path(folder) / "kernels.so"
        toolchain.find().compile(source, target, output)
        return output.read_bytes()


def compile_all(
    kernels: Iterable[tuple[str, str]],
    keep: Callable[[dict[str, str], bytes], object],
    jobs: int,
) -> None:
    """Compiles kernels in bundles while more of them arrive.

    Args:
        kernels: key and C text of each.
        keep: gets each unit and its library.
        jobs: compilers that run side by side.
    """
    target, arriving = targets.current(), iter(kernels)

    def one(unit: dict[str, str]) -> tuple[dict[str, str], bytes]:
        return unit, compile_unit(unit, target)

    with ThreadPoolExecutor(jobs) as pool:
        pending: set[Future[tuple[dict[str, str], bytes]]] = set()
        while True:
            while len(pending) < jobs:
                unit = dict(islice(arriving, BUNDLE))
                if not unit:
                    break
                pending.add(pool.submit(one, unit))
            if not pending:
                break
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in finished:
                unit, content = future.result()
                keep(unit, content)


def warm(groups: list[list[Callable[[], Any]]]) -> int:
    """Compiles what the calls need; each group runs in a child of its own.

    Returns:
        The number of kernels that were compiled.
    """
    stamp = _stamp()
    with _one_at_a_time(stamp.parent):
        if stamp.exists() or not hasattr(os, "fork"):
            return 0
        count = compile_ahead(groups)
        stamp.touch()
    return count


def compile_ahead(groups: list[list[Callable[[], Any]]]) -> int:
    """Compiles what the calls need and the cache does not have; returns the number of kernels."""
    levels = [level for level in (cache.user_level(), cache.prefilled_level()) if level]
    texts: dict[str, str] = {}
    for calls in groups:
        describe = new_kernels(lambda key: any(level.find(key) for level in levels))
        texts.update(collect(calls, describe))

    def keep(unit: dict[str, str], content: bytes) -> None:
        cache.store(content, {key: codegen.symbol_of(key) for key in unit})

    # Kernels of one length have more functions in common; the longest are not left for the end.
    kernels = sorted(texts.items(), key=lambda item: len(item[1]), reverse=True)
    with suppress(toolchain.CompileError):  # the check that needs it will say what is wrong
        compile_all(kernels, keep, os.cpu_count() or 1)
    return len(texts)
