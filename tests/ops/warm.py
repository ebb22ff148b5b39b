"""Compiles the kernels of the op table in large units before the checks ask for them one by one.

Everything is called in a dry run, then what the cache does not have yet is compiled. A stamp of
the sources skips all this when nothing has changed. This is an optimisation: a kernel that is
missed here is compiled by the check that needs it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from flambeau.compiler import cache, codegen, toolchain
from flambeau.driver.prefill import collect, compile_all, new_kernels

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
        compile_all(kernels, keep, os.cpu_count() or 1, bundle=BUNDLE)
    return len(texts)
