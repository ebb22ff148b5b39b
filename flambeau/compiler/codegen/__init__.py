"""From kernels to machine code: `build` is all that the rest of the compiler needs.

    build(kernels) ─► text ─► key ─► in memory? ─► on disk? ─► print C, compile, load, store

A key is a digest of the kernel's text, the target, the compiler and its flags, and the sources of
the printer itself. Kernels that are missing go to the compiler in batches, while others are still
planned (`begin`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flambeau.compiler import cache, targets, toolchain
from flambeau.compiler.cache import blake2b
from flambeau.compiler.targets import Target
from flambeau.ir.kernel import Kernel, chunk_count, scratch_bytes
from flambeau.ir.lock import fork_safe_lock, importing, memo
from flambeau.ir.node import topological
from flambeau.ir.spelling import SPELLINGS
from flambeau.runtime import dry_run

if TYPE_CHECKING:
    from flambeau.compiler.codegen.batches import Batches, Library

__all__ = ["KernelHandle", "build", "chunk_count", "collect", "print_kernel", "scratch_bytes"]


@dataclass(frozen=True)
class KernelHandle:
    """A loaded kernel.

    Attributes:
        address: of the C function.
        name: its symbol.
        keepalive: what must stay alive as long as the address is in use.
    """

    address: int
    name: str
    keepalive: Any


MAX_HANDLES = 4096
_handles: dict[tuple[str, str], KernelHandle] = {}
_contents: dict[str, str] = memo()  # by the kernel's text
_collected: list[Kernel] | None = None
_lock = fork_safe_lock(level=1)


def print_kernel(kernel: Kernel, target: Target) -> str:
    """C text of one kernel."""
    with importing:
        from flambeau.compiler.codegen.c.printer.c_printer import print_kernel as print_c

    return print_c(kernel, target)


class Build:
    """Kernels that are compiled, some of them while more are planned.

    Args:
        target: what they are compiled for.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._batches: Batches | None = None
        self._kernels: dict[str, Kernel] = {}  # of the batches, by key
        self._texts: set[str] = set()  # of these kernels
        self.unstored: list[Library] = []  # which the cache could not take

    def add(self, kernel: Kernel) -> None:
        """Takes a kernel from memory or disk, or hands it to the compiler."""
        text = kernel.text()
        if text not in self._texts and (text, self.target.name) not in _handles:
            with _lock:
                self._add_missing(kernel)

    def _add_missing(self, kernel: Kernel) -> None:
        target, text = self.target, kernel.text()
        if (text, target.name) in _handles or _from_cache(kernel, target):
            return
        if self._batches is None:
            with importing:
                from flambeau.compiler.codegen.batches import Batches

            self._batches = Batches(target, functools.partial(key_of_functions, target))
        key = key_of(kernel, target, toolchain.find().identity)
        self._batches.add(key, symbol_of(key), print_kernel(kernel, target))
        self._kernels[key] = kernel
        self._texts.add(text)

    def finish(self, kernels: Sequence[Kernel]) -> list[KernelHandle]:
        """Waits until all of these kernels are in memory; returns them.

        Raises:
            NotImplementedError: for a primitive that the target does not spell.
            flambeau.compiler.toolchain.CompileError: if the compiler fails.
        """
        with _lock:
            _drop_oldest()
            for kernel in kernels:
                self.add(kernel)
            if self._batches is not None:
                for library in self._batches.finish():
                    if not _store_and_load(library, self._kernels, self.target):
                        self.unstored.append(library)
            return [_handles[kernel.text(), self.target.name] for kernel in kernels]

    def close(self) -> None:
        """Drops what nobody waits for."""
        if self._batches is not None:
            self._batches.close()


def begin() -> Build | None:
    """A build that kernels may be added to before all are known; None where none is compiled."""
    return Build(targets.current()) if _collected is None else None


def build(kernels: Sequence[Kernel], begun: Build | None = None) -> list[KernelHandle]:
    """Compiled kernels, in the same order; equal kernels share one handle.

    Args:
        kernels: what is compiled.
        begun: a build that some of them were added to.

    Raises:
        NotImplementedError: for a primitive that the target does not spell.
        flambeau.compiler.toolchain.CompileError: if the compiler fails.
    """
    target = targets.current()
    if _collected is not None:
        _collected.extend(kernels)
        return [nothing()] * len(kernels)
    handles = [_handles.get((kernel.text(), target.name)) for kernel in kernels]
    present = [handle for handle in handles if handle is not None]
    return present if len(present) == len(kernels) else (begun or Build(target)).finish(kernels)


def _drop_oldest() -> None:
    """Bounds the table of handles: plans hold their own, and the cache's levels find others."""
    if len(_handles) > MAX_HANDLES:
        for key in list(_handles)[: -(MAX_HANDLES // 2)]:
            del _handles[key]


def _from_cache(kernel: Kernel, target: Target) -> bool:
    prefilled = cache.prefilled_level()
    if prefilled is not None:
        identity = toolchain.prefilled_identity()
        if identity is not None and _load(prefilled, kernel, target, identity):
            cache.statistics.prefilled_hits += 1
            return True
    identity = toolchain.identity()
    if identity is not None and _load(cache.user_level(), kernel, target, identity):
        cache.statistics.hits += 1
        return True
    cache.statistics.misses += 1
    return False


def _load(level: cache.Level, kernel: Kernel, target: Target, identity: str) -> bool:
    return _load_key(level, key_of(kernel, target, identity), kernel, target)


def _store_and_load(library: Library, kernels: dict[str, Kernel], target: Target) -> bool:
    """Stores a library; where the cache cannot be written (False) it lives in memory only."""
    content, symbols, level = library.content, library.symbols, cache.user_level()
    try:
        cache.store(content, symbols)
        stored = all(_load_key(level, key, kernels[key], target) for key in symbols)
    except OSError:
        stored = False
    if not stored:
        cache.adopt(content, symbols)
        for key in symbols:
            _load_key(level, key, kernels[key], target)
    return stored


def _load_key(level: cache.Level, key: str, kernel: Kernel, target: Target) -> bool:
    entry = cache.load(level, key)
    if entry is None:
        return False
    _handles[kernel.text(), target.name] = KernelHandle(*entry)
    return True


def present(kernels: Sequence[Kernel]) -> list[KernelHandle] | None:
    """Kernels that are in memory or on disk; None if one of them must be compiled."""
    target, handles = targets.current(), []
    with _lock:
        for kernel in kernels:
            key = kernel.text(), target.name
            if key not in _handles and not _from_cache(kernel, target):
                return None
            handles.append(_handles[key])
    return handles


# ------------------------------------------------------------------------------- keys


@functools.cache
def _printer_digest() -> bytes:
    """Digest of the sources that decide how a kernel is spelled."""
    digest = blake2b(digest_size=16)
    package = Path(__file__).parents[2]
    codegen = ("compiler/codegen/c/**/*.py", "compiler/codegen/c/**/*.c.in")
    for pattern in (*codegen, "compiler/templates/*.py", "compiler/targets/*.py", "ir/*.py"):
        for path in sorted(package.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.digest()


def content_of(kernel: Kernel) -> str:
    """Digest of the kernel and of what prints it, whatever compiles it for whatever target."""
    text = kernel.text()
    if text not in _contents:
        digest = blake2b(_printer_digest() + text.encode(), digest_size=16)
        for name in sorted({value.op for value in topological(kernel.roots())}):
            digest.update(_spelling_text(name))
        _contents[text] = digest.hexdigest()
    return _contents[text]


def key_of(kernel: Kernel, target: Target, identity: str) -> str:
    """The kernel's key for a target and a compiler."""
    return toolchain.key_of(content_of(kernel), target, identity)


def key_of_functions(target: Target, names: str) -> str:
    """The key of the object of shared functions, whose names tell their text."""
    content = f"object {_printer_digest().hex()} {names}"
    return toolchain.key_of(content, target, toolchain.find().identity)


@functools.cache
def _spelling_text(name: str) -> bytes:
    """Returns the spelling of a primitive as text; "" for the nodes of kernels alone."""
    spelling = SPELLINGS.get(name)
    return b"" if spelling is None else f"{name} {spelling}".encode()


def symbol_of(key: str) -> str:
    """The C function's name."""
    return f"fb_{key[:16]}"


# ------------------------------------------------------------------------------- collecting


@functools.cache
def nothing() -> KernelHandle:
    """A kernel that does nothing: for programs that are compiled but not executed."""
    library = ctypes.CDLL(None)
    address = ctypes.cast(library.getpid, ctypes.c_void_p).value
    assert address is not None
    return KernelHandle(address, "nothing", library)


def collecting() -> bool:
    """Whether kernels are only noted (see `collect`)."""
    return _collected is not None


@contextlib.contextmanager
def collect() -> Iterator[list[Kernel]]:
    """Inside, `build` only notes kernels, and no plan launches anything.

    Results are zeros, so that this is for finding out which kernels a program needs, and for
    nothing else. Plans made inside must not be used outside.
    """
    global _collected
    saved, _collected = _collected, []
    try:
        with dry_run():
            yield _collected
    finally:
        _collected = saved
