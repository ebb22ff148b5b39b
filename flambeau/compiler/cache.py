"""The cache of compiled kernels: content-addressed, relocatable, shared by any number of processes.

    <root>/index/<xx>/<key>     one entry: bundle, symbol
    <root>/packed               many entries in one file (what `export` and the pre-fill write)
    <root>/compiler             the compiler's identity in the keys of a read-only level
    <root>/bundles/<digest>.so  shared libraries, named by the digest of their content
    <root>/blobs/<xx>/<key>     small values of any kind, each behind its checksum
    <root>/verified/<digest>    size and time of a large bundle when its digest was last checked

A key says everything that decides about the code (kernel text, target, flags, compiler, printer);
nothing is ever named otherwise. Files appear whole, by renaming, and never change, so reading needs
no lock. An entry whose bundle is missing, truncated or altered counts as absent and is built again.

The second level is read-only and of the same format: the kernels that the package was installed
with, in `flambeau/_kernels`.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from flambeau.runtime import settings

try:  # hashlib also loads OpenSSL, which costs milliseconds
    from _blake2 import blake2b as blake2b
except ImportError:
    from hashlib import blake2b as blake2b

_SMALL = 1 << 16  # bundles up to this size are checked whenever they are loaded
_EVICT_EVERY = 64  # stores of a process between looks at the cache's size
PREFILLED = Path(__file__).resolve().parent.parent / "_kernels"


@dataclass
class Stats:
    """What the cache did in this process."""

    hits: int = 0
    prefilled_hits: int = 0
    misses: int = 0
    stored: int = 0
    damaged: int = 0


@dataclass
class Level:
    """One directory of the format above.

    Attributes:
        root: the directory.
        writable: False for the pre-filled level.
        entries: key -> (bundle digest, symbol), as far as known.
    """

    root: Path
    writable: bool
    entries: dict[str, tuple[str, str]] = field(default_factory=dict)
    packed_read: bool = False

    def find(self, key: str) -> tuple[str, str] | None:
        """Bundle and symbol of a key."""
        if not self.packed_read:
            self._read_packed()
        found = self.entries.get(key)
        if found is not None:
            return found
        try:
            with open(f"{self.root}/index/{key[:2]}/{key}", errors="replace") as file:
                parts = file.read().split()
        except OSError:
            return None
        if len(parts) != 2 or not parts[0].isalnum() or not parts[1].isidentifier():
            return None  # damaged
        self.entries[key] = (parts[0], parts[1])
        return self.entries[key]

    def _read_packed(self) -> None:
        self.packed_read = True
        try:
            with open(f"{self.root}/packed", errors="replace") as file:
                for line in file:
                    parts = line.split()
                    if len(parts) == 3:
                        self.entries.setdefault(parts[0], (parts[1], parts[2]))
        except OSError:
            return

    def compiler(self) -> str | None:
        """Identity of the compiler that filled this level, if it says so."""
        try:
            return (self.root / "compiler").read_text(errors="replace")
        except OSError:
            return None

    def bundle(self, digest: str) -> str:
        """Path of a bundle."""
        return f"{self.root}/bundles/{digest}.so"

    def forget(self, key: str) -> None:
        """Drops the entry of a key."""
        self.entries.pop(key, None)
        if self.writable:
            with contextlib.suppress(OSError):
                os.unlink(f"{self.root}/index/{key[:2]}/{key}")

    def all_entries(self) -> Iterator[tuple[str, str, str]]:
        """(key, bundle digest, symbol) of everything in this level."""
        self._read_packed()
        for path in (self.root / "index").glob("??/*"):
            if not path.name.endswith(".tmp"):
                self.find(path.name)
        for key, (digest, symbol) in self.entries.items():
            if os.path.exists(self.bundle(digest)):
                yield key, digest, symbol


statistics = Stats()
_levels: dict[Path, Level] = {}
_libraries: dict[str, ctypes.CDLL] = {}
_stores = 0
_numbers = itertools.count()


def directory() -> Path:
    """The writable cache directory: FLAMBEAU_CACHE_DIR, default ~/.cache/flambeau."""
    root: Path = settings.get("CACHE_DIR")
    return root


def user_level() -> Level:
    """The level that this process writes to."""
    root = directory()
    if root not in _levels:
        _levels[root] = Level(root, writable=True)
    return _levels[root]


def prefilled_level() -> Level | None:
    """The package's read-only level; None where it was not filled."""
    if PREFILLED not in _levels:
        _levels[PREFILLED] = Level(PREFILLED, writable=False)
    level = _levels[PREFILLED]
    return level if level.root.is_dir() else None


# ------------------------------------------------------------------------------- reading


def digest_of(content: bytes) -> str:
    """The name of a bundle."""
    return blake2b(content, digest_size=16).hexdigest()


def load(level: Level, key: str) -> tuple[int, str, ctypes.CDLL] | None:
    """Address, symbol and library of the kernel under `key`; None if absent or damaged."""
    found = level.find(key)
    if found is None:
        return None
    digest, symbol = found
    library = _libraries.get(digest)
    if library is None:
        path = level.bundle(digest)
        if not _intact(path, digest):
            statistics.damaged += os.path.exists(path)
            _discard(level, key, path)
            return None
        try:
            library = ctypes.CDLL(path)
        except OSError:
            _discard(level, key, path)
            return None
        _libraries[digest] = library
    try:
        address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    except AttributeError:
        level.forget(key)
        return None
    assert address is not None
    return address, symbol, library


def _discard(level: Level, key: str, path: str) -> None:
    level.forget(key)
    if level.writable:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _intact(path: str, digest: str) -> bool:
    """Whether the file's content has this digest; large files are read again only if changed."""
    try:
        state = os.stat(path)
        stamp = f"{state.st_size} {state.st_mtime_ns} {state.st_ino}"
        marker = directory() / "verified" / digest
        if state.st_size > _SMALL:
            with contextlib.suppress(OSError):
                if marker.read_bytes() == stamp.encode():
                    return True
        with open(path, "rb") as file:
            if digest_of(file.read()) != digest:
                return False
    except OSError:
        return False
    if state.st_size > _SMALL:
        with contextlib.suppress(OSError):
            write(marker, stamp.encode())
    return True


# ------------------------------------------------------------------------------- writing


def write(path: Path, content: bytes) -> None:
    """Writes a file that appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f"{os.getpid()}-{next(_numbers)}-{os.urandom(4).hex()}.tmp"
    try:
        with open(temporary, "xb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def store(content: bytes, symbols: dict[str, str], root: Path | None = None) -> str:
    """Adds a shared library and the entries it serves; returns the bundle's digest.

    Args:
        content: the library.
        symbols: key -> symbol.
        root: another directory than the user's, for the pre-fill.
    """
    global _stores
    level = user_level() if root is None else Level(root, writable=True)
    digest = digest_of(content)
    write(Path(level.bundle(digest)), content)
    for key, symbol in symbols.items():
        write(level.root / "index" / key[:2] / key, f"{digest} {symbol}\n".encode())
        level.entries[key] = (digest, symbol)
    statistics.stored += len(symbols)
    _stores += 1
    if root is None and _stores % _EVICT_EVERY == 0:
        evict()
    return digest


def evict(limit_bytes: int | None = None) -> int:
    """Deletes the oldest bundles and blobs until the cache is within its limit.

    Returns:
        Number of files deleted.
    """
    limit = settings.get("CACHE_LIMIT") << 20 if limit_bytes is None else limit_bytes
    root = directory()
    files = []
    _drop_abandoned(root)
    for path in (*(root / "bundles").glob("*.so"), *(root / "blobs").glob("??/*")):
        with contextlib.suppress(OSError):
            state = path.stat()
            files.append((state.st_mtime, state.st_size, path))
    total = sum(size for _, size, _ in files)
    deleted = 0
    for _, size, path in sorted(files):
        if total <= limit:
            break
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size
            deleted += 1
    if deleted:
        _drop_dangling(user_level())
    return deleted


def _drop_abandoned(root: Path) -> None:
    """Removes what processes that were killed while writing left behind."""
    hour_ago = time.time() - 3600
    for path in root.glob("**/*.tmp"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < hour_ago:
                path.unlink()


def _drop_dangling(level: Level) -> None:
    for path in (level.root / "index").glob("??/*"):
        found = level.find(path.name)
        if found is None or not os.path.exists(level.bundle(found[0])):
            level.forget(path.name)


# ------------------------------------------------------------------------------- blobs


def _blob_path(key: str) -> Path:
    return directory() / "blobs" / key[:2] / key


def get_blob(key: str) -> bytes | None:
    """The bytes stored under `key`; None if there are none, or they were damaged."""
    try:
        with open(_blob_path(key), "rb") as file:
            content = file.read()
    except OSError:
        return None
    if blake2b(content[16:], digest_size=16).digest() != content[:16]:
        with contextlib.suppress(OSError):
            _blob_path(key).unlink()
        return None
    return content[16:]


def put_blob(key: str, value: bytes) -> None:
    """Stores bytes under `key`, a hexadecimal digest; where nothing can be written, does not."""
    with contextlib.suppress(OSError):
        write(_blob_path(key), blake2b(value, digest_size=16).digest() + value)


# ------------------------------------------------------------------------------- maintenance


def list() -> Iterable[tuple[str, str]]:  # noqa: A001 - the name users look for
    """(key, bundle) of every kernel in the writable cache."""
    return [(key, digest) for key, digest, _ in user_level().all_entries()]


def stats() -> dict[str, int]:
    """Counts of this process and sizes on disk."""
    root = directory()
    bundles = [path for path in (root / "bundles").glob("*.so") if path.exists()]
    return {
        **vars(statistics),
        "kernels": sum(1 for _ in user_level().all_entries()),
        "bundles": len(bundles),
        "bytes": sum(path.stat().st_size for path in bundles),
        "blobs": sum(1 for _ in (root / "blobs").glob("??/*")),
    }


def clear() -> None:
    """Empties the writable cache. Kernels that are loaded keep working."""
    import shutil

    for name in ("index", "bundles", "blobs", "verified", "failed"):
        shutil.rmtree(directory() / name, ignore_errors=True)
    with contextlib.suppress(OSError):
        (directory() / "packed").unlink()
    user_level().entries.clear()


def export(path: str | os.PathLike[str], level: Level | None = None) -> int:
    """Copies all kernels into a directory of the same format, entries in one file.

    Returns:
        Number of kernels.
    """
    target = Path(path)
    level = level or user_level()
    entries = sorted(level.all_entries())
    for digest in sorted({digest for _, digest, _ in entries}):
        content = Path(level.bundle(digest)).read_bytes()
        write(target / "bundles" / f"{digest}.so", content)
    lines = "".join(f"{key} {digest} {symbol}\n" for key, digest, symbol in entries)
    write(target / "packed", lines.encode())
    return len(entries)


def import_(path: str | os.PathLike[str]) -> int:
    """Adds the kernels of an exported directory to the cache; returns how many were new."""
    source, level, count = Level(Path(path), writable=False), user_level(), 0
    for key, digest, symbol in source.all_entries():
        if level.find(key) is not None or not _intact(source.bundle(digest), digest):
            continue
        if not os.path.exists(level.bundle(digest)):
            write(Path(level.bundle(digest)), Path(source.bundle(digest)).read_bytes())
        write(level.root / "index" / key[:2] / key, f"{digest} {symbol}\n".encode())
        count += 1
    return count
