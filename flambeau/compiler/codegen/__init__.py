"""From kernels to machine code: `build` is all that the rest of the compiler needs.

    build(kernels) ─► text ─► key ─► in memory? ─► on disk? ─► print C, compile, load, store

A key is a digest of the kernel's text, the target, the compiler and its flags, and the sources of
the printer itself. Kernels that are missing go to the compiler together, in at most one
translation unit per core.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flambeau.compiler import cache, machine, targets, toolchain
from flambeau.compiler.cache import blake2b
from flambeau.compiler.codegen.progress import Announcement
from flambeau.compiler.targets import Target
from flambeau.ir.kernel import Kernel, chunk_count, scratch_bytes
from flambeau.ir.lock import fork_safe_lock, importing
from flambeau.ir.node import topological
from flambeau.ir.spelling import SPELLINGS
from flambeau.runtime import rehearsal, settings

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


_handles: dict[tuple[str, str], KernelHandle] = {}
_collected: list[Kernel] | None = None
_lock = fork_safe_lock(level=1)


def print_kernel(kernel: Kernel, target: Target) -> str:
    """C text of one kernel."""
    with importing:
        from flambeau.compiler.codegen.c_printer import print_kernel as print_c

    return print_c(kernel, target)


def build(kernels: Sequence[Kernel]) -> list[KernelHandle]:
    """Compiled kernels, in the same order; equal kernels share one handle.

    Raises:
        NotImplementedError: for a primitive that the target does not spell.
        flambeau.compiler.toolchain.CompileError: if the compiler fails.
    """
    target = targets.current()
    if _collected is not None:
        _collected.extend(kernels)
        return [nothing()] * len(kernels)
    found = [_handles.get((kernel.text(), target.name)) for kernel in kernels]
    if any(handle is None for handle in found):
        with _lock:
            _build_missing([k for k, handle in zip(kernels, found) if handle is None], target)
        found = [_handles[kernel.text(), target.name] for kernel in kernels]
    return [handle for handle in found if handle is not None]


def _build_missing(kernels: Sequence[Kernel], target: Target) -> None:
    """Takes kernels from the disk, or compiles them."""
    missing: dict[str, Kernel] = {}
    for kernel in kernels:
        if (kernel.text(), target.name) not in _handles and not _from_cache(kernel, target):
            missing[key_of(kernel, target, toolchain.find().identity)] = kernel
    if not missing:
        return
    units = split(missing, target, _jobs())
    with Announcement(len(missing)) as announcement:
        libraries = compile_units(units, target, announcement)
    for unit, content in zip(units, libraries):
        symbols = {key: symbol_of(key) for key in unit}
        _store_and_load(content, symbols, missing, target)


def _from_cache(kernel: Kernel, target: Target) -> bool:
    prefilled = cache.prefilled_level()
    if prefilled is not None:
        identity = _prefilled_identity()
        if identity is not None and _load(prefilled, kernel, target, identity):
            cache.statistics.prefilled_hits += 1
            return True
    if _load(cache.user_level(), kernel, target, toolchain.find().identity):
        cache.statistics.hits += 1
        return True
    cache.statistics.misses += 1
    return False


@functools.cache
def _prefilled_identity() -> str | None:
    if " " in (settings.get("CC") or "").strip():
        return None  # flags of the user's: the kernels that came with the package lack them
    level = cache.prefilled_level()
    return None if level is None else level.compiler()


def _load(level: cache.Level, kernel: Kernel, target: Target, identity: str) -> bool:
    loaded = cache.load(level, key_of(kernel, target, identity))
    if loaded is None:
        return False
    _handles[kernel.text(), target.name] = KernelHandle(*loaded)
    return True


def _store_and_load(
    content: bytes, symbols: dict[str, str], kernels: dict[str, Kernel], target: Target
) -> None:
    """Keeps a library; where the cache cannot be written it lives in memory only."""
    try:
        cache.store(content, symbols)
        loaded = {key: cache.load(cache.user_level(), key) for key in symbols}
    except OSError:
        loaded = dict.fromkeys(symbols)
    library: ctypes.CDLL | None = None
    for key, symbol in symbols.items():
        entry = loaded[key]
        if entry is None:
            library = library or _load_unstored(content)
            address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
            entry = (address, symbol, library)
        _handles[kernels[key].text(), target.name] = KernelHandle(*entry)


def _load_unstored(content: bytes) -> ctypes.CDLL:
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(content)
        file.flush()
        return ctypes.CDLL(file.name)


# ------------------------------------------------------------------------------- keys


@functools.cache
def _printer_digest() -> bytes:
    """Digest of the sources that decide how a kernel is spelled."""
    digest = blake2b(digest_size=16)
    package = Path(__file__).parents[2]
    for pattern in ("compiler/codegen/c*.py", "ir/*.py"):
        for path in sorted(package.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.digest()


@functools.cache
def _settings_digest(target: Target, identity: str) -> Any:
    """Hash state of everything but the kernel."""
    text = "\n".join([target.name, *target.all_flags, *toolchain.LINK_FLAGS, identity])
    return blake2b(_printer_digest() + text.encode(), digest_size=16)


def key_of(kernel: Kernel, target: Target, identity: str) -> str:
    """The kernel's key for a target and a compiler."""
    digest = _settings_digest(target, identity).copy()
    digest.update(kernel.text().encode())
    for name in sorted({value.op for value in topological(kernel.roots())}):
        digest.update(_spelling_text(name))
    return str(digest.hexdigest())


@functools.cache
def _spelling_text(name: str) -> bytes:
    """What the record of a primitive says about its code; nothing for what only kernels have."""
    spelling = SPELLINGS.get(name)
    return b"" if spelling is None else f"{name} {spelling}".encode()


def symbol_of(key: str) -> str:
    """The C function's name."""
    return f"fb_{key[:16]}"


# ------------------------------------------------------------------------------- compiling


def _jobs() -> int:
    chosen: int = settings.get("COMPILE_JOBS")
    return chosen or machine.current().cores


def split(kernels: dict[str, Kernel], target: Target, count: int) -> list[dict[str, str]]:
    """Prints kernels and deals them out to at most `count` units of about equal length.

    Returns:
        Per unit, key -> C text.
    """
    texts = {key: print_kernel(kernel, target) for key, kernel in kernels.items()}
    units: list[dict[str, str]] = [{} for _ in range(min(count, len(texts)))]
    lengths = [0] * len(units)
    for key in sorted(texts, key=lambda key: (-len(texts[key]), key)):
        smallest = lengths.index(min(lengths))
        units[smallest][key] = texts[key]
        lengths[smallest] += len(texts[key])
    return units


def compile_units(
    units: Sequence[dict[str, str]], target: Target, announcement: Announcement | None = None
) -> list[bytes]:
    """Shared libraries of translation units, compiled side by side.

    Args:
        units: key and C text of each unit's kernels.
        target: what they are compiled for.
        announcement: is notified of each finished unit.
    """

    def compiled(unit: dict[str, str]) -> bytes:
        library = _compile_unit(unit, target)
        if announcement is not None:
            announcement.count(len(unit))
        return library

    if len(units) == 1:
        return [compiled(units[0])]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(len(units), _jobs())) as pool:
        return list(pool.map(compiled, units))


def _compile_unit(unit: dict[str, str], target: Target) -> bytes:
    import tempfile

    with importing:
        from flambeau.compiler.codegen.c_unit import render

    source = render([(symbol_of(key), text) for key, text in unit.items()])
    with tempfile.TemporaryDirectory(prefix="flambeau") as folder:
        output = Path(folder) / "kernels.so"
        toolchain.find().compile(source, target, output)
        return output.read_bytes()


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
        with rehearsal():
            yield _collected
    finally:
        _collected = saved
