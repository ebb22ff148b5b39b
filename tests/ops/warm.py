"""Compiles the kernels of the op table in large units before the checks ask for them one by one.

A forked child calls everything while kernels are only collected; the parent compiles what the
cache does not have yet. A stamp of the sources skips all this when nothing has changed. This is an
optimisation: a kernel that is missed here is compiled by the check that needs it.
"""

from __future__ import annotations

import faulthandler
import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import flambeau
from flambeau.compiler import cache, codegen, targets, toolchain

ROOT = Path(__file__).resolve().parents[2]
UNIT = 40  # kernels in one translation unit


def _stamp() -> Path:
    digest = hashlib.sha256(toolchain.find().identity.encode())
    for path in sorted([*ROOT.glob("flambeau/**/*.py"), *Path(__file__).parent.glob("*.py")]):
        digest.update(path.read_bytes())
    return cache.directory() / "op-table" / digest.hexdigest()[:32]


def _collect(calls: Sequence[Callable[[], Any]], start: int, output: Path) -> None:
    """In the child: runs the calls and appends their positions and new kernels (key, C text)."""
    faulthandler.disable()
    flambeau.set_num_threads(1)
    target, identity = targets.current(), toolchain.find().identity
    levels = [cache.user_level(), cache.prefilled_level()]
    seen: set[str] = set()
    with output.open("a") as stream:
        for position in range(start, len(calls)):
            stream.write(f"call {position}\n")
            stream.flush()
            with codegen.collect() as kernels, suppress(Exception):
                calls[position]()
            for kernel in kernels:
                key = codegen.key_of(kernel, target, identity)
                if key in seen or any(level and level.find(key) for level in levels):
                    continue
                seen.add(key)
                with suppress(NotImplementedError):
                    text = codegen.print_kernel(kernel, target)
                    stream.write(f"{key} {len(text)}\n{text}\n")


def _read(path: Path) -> tuple[dict[str, str], int]:
    """The kernels in a child's file, and the position of the last call it began."""
    texts, last = {}, -1
    with path.open() as stream:
        while line := stream.readline():
            key, number = line.split()
            if key == "call":
                last = int(number)
            else:
                texts[key] = stream.read(int(number))
                stream.read(1)
    return texts, last


def _in_child(calls: Sequence[Callable[[], Any]], path: Path) -> dict[str, str]:
    """The kernels that the calls need. With kernels that compute nothing a native routine may
    crash on the values it gets: another child goes on after such a call."""
    start, texts = 0, {}
    while start < len(calls):
        path.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            try:
                _collect(calls, start, path)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        found, last = _read(path)
        texts.update(found)
        start = last + 1
    return texts


def _compile(texts: dict[str, str]) -> None:
    target = targets.current()
    keys = list(texts)
    units = [{k: texts[k] for k in keys[i : i + UNIT]} for i in range(0, len(keys), UNIT)]

    def one(unit: dict[str, str]) -> None:
        with suppress(Exception):  # the check that needs it will say what is wrong
            content = codegen.compile_units([unit], target)[0]
            cache.store(content, {key: codegen.symbol_of(key) for key in unit})

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(one, units))


def warm(groups: list[list[Callable[[], Any]]]) -> int:
    """Compiles what the calls need; each group runs in a child of its own.

    Returns:
        The number of kernels that were compiled.
    """
    stamp = _stamp()
    # Under a sanitizer, kernels that compute nothing make many calls end their child: too slow.
    if stamp.exists() or not hasattr(os, "fork") or "ASAN_OPTIONS" in os.environ:
        return 0
    texts: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for calls in groups:
            texts.update(_in_child(calls, Path(scratch) / "kernels"))
    _compile(texts)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.touch()
    return len(texts)
