"""The cache of compiled kernels: content-addressed, relocatable, shared by any number of processes.

    <root>/index/<xx>/<key>     one entry: bundle, symbol
    <root>/packed               many entries in one file (what `export` and the pre-fill write)
    <root>/compiler             the compiler's identity in the keys of a read-only level
    <root>/bundles/<digest>.so  shared libraries, named by the digest of their content
    <root>/blobs/<xx>/<key>     small values of any kind, each behind its checksum
    <root>/verified/<digest>    size and time of a large bundle when its digest was last checked
    <root>/filled               how much is stored: as many bytes as bundles and blobs have KiB

A key says everything that decides about the code (kernel text, target, flags, compiler, printer);
nothing is ever named otherwise. Files appear whole, by renaming, and only blobs are ever replaced,
so reading needs no lock. An entry whose bundle is missing, truncated or altered counts as absent
and is built again, and so does a file that is not this user's alone (`trust`).

The length of `filled` bounds the size of the directory, so that no walk measures it. Storing a file
makes `filled` longer, by an appending write, which several processes may do at once; replacing a
file does not shorten it, so its length is at least the sum. Once it is beyond the limit, one walk
measures the directory, evicts the oldest files and gives `filled` its true length. A walk leaves a
tenth of the limit free, so that walks are rare.

The second level is read-only and of the same format: the kernels that the package was installed
with, in `flambeau/_kernels`.

Every first call of an operator passes here, so this module is careful about what it imports: paths
are text, and libraries are opened by the C function that `ctypes` itself uses.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from _ctypes import dlopen, dlsym  # the package `ctypes` around them costs milliseconds
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from flambeau.compiler import postponed, trust
from flambeau.runtime import settings

if TYPE_CHECKING:
    from pathlib import Path

try:  # hashlib also loads OpenSSL, which costs milliseconds
    from _blake2 import blake2b as blake2b
except ImportError:
    from hashlib import blake2b as blake2b

_SMALL = 1 << 16  # bundles up to this size are checked whenever they are loaded
_KIB = 1024
PREFILLED = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "_kernels")


class Stats:
    """Counts of the cache's work in this process."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.hits = 0
        self.prefilled_hits = 0
        self.misses = 0
        self.stored = 0
        self.damaged = 0


class Level:
    """One directory of the format above.

    Attributes:
        root: the directory.
        writable: False for the pre-filled level.
        entries: key -> (bundle digest, symbol), as far as known.
    """

    def __init__(self, root: str | Path, writable: bool) -> None:
        """Reads nothing yet."""
        self.root = root
        self.writable = writable
        self.entries: dict[str, tuple[str, str]] = {}
        self.packed_read = False

    def find(self, key: str) -> tuple[str, str] | None:
        """Bundle and symbol of a key."""
        if not self.packed_read:
            self._read_packed()
        entry = self.entries.get(key)
        if entry is not None:
            return entry
        try:
            content = trust.read(f"{self.root}/index/{key[:2]}/{key}", self.writable)
        except OSError:
            return None
        parts = content.decode(errors="replace").split()
        if len(parts) != 2 or not parts[0].isalnum() or not parts[1].isidentifier():
            return None  # damaged
        self.entries[key] = (parts[0], parts[1])
        return self.entries[key]

    def _read_packed(self) -> None:
        self.packed_read = True
        try:
            content = trust.read(f"{self.root}/packed", self.writable)
        except OSError:
            return
        for line in content.decode(errors="replace").splitlines():
            parts = line.split()
            if len(parts) == 3:
                self.entries.setdefault(parts[0], (parts[1], parts[2]))

    def compiler(self) -> str | None:
        """Identity of the compiler that filled this level, if it says so."""
        try:
            with open(f"{self.root}/compiler", errors="replace") as file:
                return file.read()
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
        for key in self._names():
            self.find(key)
        for key, (digest, symbol) in self.entries.items():
            if os.path.exists(self.bundle(digest)):
                yield key, digest, symbol

    def drop_dangling(self) -> None:
        """Forgets the entries whose bundle is gone."""
        for key in self._names():
            entry = self.find(key)
            if entry is None or not os.path.exists(self.bundle(entry[0])):
                self.forget(key)

    def _names(self) -> Sequence[str]:
        """Keys of the entries that are files of their own."""
        names = (os.path.basename(path) for path in _glob(f"{self.root}/index", "??/*"))
        return [name for name in names if not name.endswith(".tmp")]


statistics = Stats()
used_blobs: set[str] = set()  # keys of blobs that this process read or stored: see `artifacts`
_levels: dict[str, Level] = {}
_libraries: dict[str, Any] = {}
_numbers = itertools.count()


def directory() -> Path:
    """The writable cache directory: FLAMBEAU_CACHE_DIR, default ~/.cache/flambeau."""
    from pathlib import Path

    return Path(_root())


def _root() -> str:
    return trust.directory(str(settings.get("CACHE_DIR")))


def _glob(folder: str, pattern: str) -> Sequence[str]:
    import glob  # for maintenance only

    return glob.glob(f"{glob.escape(folder)}/{pattern}")


def user_level() -> Level:
    """The level that this process writes to."""
    root = _root()
    if root not in _levels:
        _levels[root] = Level(root, writable=True)
    return _levels[root]


def prefilled_level() -> Level | None:
    """The package's read-only level; None where it was not filled."""
    root = os.fspath(PREFILLED)
    if root not in _levels:
        _levels[root] = Level(root, writable=False)
    return _levels[root] if os.path.isdir(root) else None


# ------------------------------------------------------------------------------- reading


def digest_of(content: bytes) -> str:
    """The name of a bundle."""
    return blake2b(content, digest_size=16).hexdigest()


def load(level: Level, key: str) -> tuple[int, str, Any] | None:
    """Address, symbol and library of the kernel under `key`; None if absent or damaged."""
    entry = level.find(key)
    if entry is None:
        return None
    loaded = load_symbol(level, *entry)
    if loaded is None:
        level.forget(key)
    return loaded


def load_symbol(level: Level, digest: str, symbol: str) -> tuple[int, str, Any] | None:
    """Address, symbol and library of a function of a bundle; None if it is not there, whole."""
    library = _libraries.get(digest)
    try:
        if library is None:
            library = _libraries[digest] = _open(level, digest)
        return dlsym(library, symbol), symbol, library
    except (OSError, AttributeError):
        return None


def _open(level: Level, digest: str) -> Any:
    path = level.bundle(digest)
    try:
        if not _intact(path, digest, level.writable):
            raise OSError(f"[cache] damaged: {path}")
        return dlopen(path, 0)
    except OSError:
        statistics.damaged += os.path.exists(path)
        if level.writable:
            with contextlib.suppress(OSError):
                os.unlink(path)
        raise


def _intact(path: str, digest: str, own: bool) -> bool:
    """Whether the file's content has this digest; large files are read again only if changed.

    Args:
        path, digest: of the bundle.
        own: whether it must be this user's alone.
    """
    try:
        state = os.stat(path)
        if own and not trust.trusted(state):
            return False
        stamp = f"{state.st_size} {state.st_mtime_ns} {state.st_ino}"
        marker = f"{_root()}/verified/{digest}"
        if state.st_size > _SMALL:
            with contextlib.suppress(OSError), open(marker, "rb") as file:
                if file.read() == stamp.encode():
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


def write(path: str | Path, content: bytes) -> None:
    """Writes a file that appears whole or not at all."""
    folder = os.path.dirname(path)
    temporary = f"{folder}/{os.getpid()}-{next(_numbers)}-{os.urandom(4).hex()}.tmp"
    try:
        try:
            file = open(temporary, "xb")
        except FileNotFoundError:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            file = open(temporary, "xb")
        with file:
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
    level = user_level() if root is None else Level(root, writable=True)
    digest = digest_of(content)
    if root is None:
        make_room(len(content))
    write(level.bundle(digest), content)
    for key, symbol in symbols.items():
        write(f"{level.root}/index/{key[:2]}/{key}", f"{digest} {symbol}\n".encode())
        level.entries[key] = (digest, symbol)
    statistics.stored += len(symbols)
    return digest


def adopt(content: bytes, symbols: dict[str, str]) -> None:
    """Makes a shared library known to this process alone: the cache cannot be written.

    Args:
        content, symbols: as of `store`.

    Raises:
        OSError: no temporary file can be written either.
    """
    import tempfile

    digest = digest_of(content)
    if digest not in _libraries:
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(content)
            file.flush()
            _libraries[digest] = dlopen(file.name, 0)
    entries = user_level().entries
    for key, symbol in symbols.items():
        entries[key] = (digest, symbol)


def _limit() -> int:
    return int(settings.get("CACHE_LIMIT")) << 20


def make_room(size: int) -> None:
    """Notes that a file of `size` bytes is about to be stored, and evicts where it does not fit.

    A process that is killed before it has stored the file leaves `filled` too long, which does no
    harm: the next walk measures.
    """
    limit, count = _limit(), _kib(size)
    with contextlib.suppress(OSError):
        filled = _filled()
        if filled is None or (filled + count) * _KIB > limit:
            evict(limit * 9 // 10 - size)
        with open(f"{_root()}/filled", "ab", buffering=0) as file:
            file.write(bytes(count))


def _kib(size: int) -> int:
    return -(-size // _KIB)


def _filled() -> int | None:
    """The length of `filled`; None in a directory that nobody measured yet."""
    try:
        return os.stat(f"{_root()}/filled").st_size
    except FileNotFoundError:
        return None


def evict(limit_bytes: int | None = None) -> int:
    """Deletes the oldest bundles and blobs until the cache is within its limit.

    Returns:
        Number of files deleted.
    """
    limit = _limit() if limit_bytes is None else limit_bytes
    before = _filled() or 0
    _drop_abandoned()
    files = _stored_files()
    total = sum(size for _, size, _ in files)
    deleted = 0
    for _, size, path in files:
        if total * _KIB <= limit:
            break
        if _gone(path):
            total -= size
            deleted += 1
    with contextlib.suppress(OSError):
        os.makedirs(_root(), exist_ok=True)
        with open(f"{_root()}/filled", "ab") as file:  # what others stored during the walk
            file.truncate(total + max(0, (_filled() or 0) - before))  # may be counted twice
    if deleted:
        user_level().drop_dangling()
    return deleted


def _stored_files() -> Sequence[tuple[float, int, str]]:
    """(time, KiB, path) of all bundles and blobs, the oldest first."""
    root, files = _root(), []
    for path in (*_glob(root, "bundles/*.so"), *_glob(root, "blobs/??/*")):
        with contextlib.suppress(OSError):
            state = os.stat(path)
            files.append((state.st_mtime, _kib(state.st_size), path))
    return sorted(files)


def _gone(path: str) -> bool:
    """Deletes a file; whether it is not there any more, be it that another process was faster."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _drop_abandoned() -> None:
    """Removes what processes that were killed while writing left behind."""
    hour_ago = time.time() - 3600
    for path in directory().glob("**/*.tmp"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < hour_ago:
                path.unlink()


# ------------------------------------------------------------------------------- blobs


def _blob_path(root: str | Path, key: str) -> str:
    return f"{root}/blobs/{key[:2]}/{key}"


def get_blob(key: str) -> bytes | None:
    """The bytes stored under `key`; None if there are none, or they were damaged."""
    path = _blob_path(_root(), key)
    try:
        content = _unsealed(path, own=True)
        if content is not None:
            used_blobs.add(key)
        return content
    except ValueError:
        with contextlib.suppress(OSError):
            os.unlink(path)
        return None


def prefilled_blob(key: str) -> bytes | None:
    """Likewise, of those that the package was installed with."""
    return read_blob(PREFILLED, key)


def read_blob(root: str | Path, key: str) -> bytes | None:
    """Likewise, of those in a level that is only read."""
    try:
        return _unsealed(_blob_path(root, key), own=False)
    except ValueError:
        return None


def _unsealed(path: str, own: bool) -> bytes | None:
    """Returns the content of a blob; None if there is no file.

    Raises:
        ValueError: it is damaged.
    """
    try:
        content = trust.read(path, own)
    except OSError:
        return None
    if blake2b(content[16:], digest_size=16).digest() != content[:16]:
        raise ValueError(f"[cache] damaged: {path}")
    return content[16:]


def write_blob(root: str | Path, key: str, value: bytes) -> str:
    """Writes a blob below a directory; returns its path."""
    path = _blob_path(root, key)
    write(path, blake2b(value, digest_size=16).digest() + value)
    return path


def put_blob(key: str, value: bytes) -> None:
    """Stores bytes under `key`, a hexadecimal digest; where nothing can be written, does not."""
    make_room(len(value) + 16)
    with contextlib.suppress(OSError):
        write_blob(_root(), key, value)
        used_blobs.add(key)


# ------------------------------------------------------------------------------- maintenance


def list() -> Iterable[tuple[str, str]]:  # noqa: A001 - the name users look for
    """(key, bundle) of every kernel in the writable cache."""
    return [(key, digest) for key, digest, _ in user_level().all_entries()]


def stats() -> dict[str, int]:
    """Counts of this process and sizes on disk."""
    bundles = _glob(_root(), "bundles/*.so")
    return {
        **vars(statistics),
        "kernels": sum(1 for _ in user_level().all_entries()),
        "bundles": len(bundles),
        "bytes": sum(os.path.getsize(path) for path in bundles),
        "blobs": len(_glob(_root(), "blobs/??/*")),
    }


def clear() -> None:
    """Empties the writable cache. Kernels that are loaded stay usable."""
    import shutil

    postponed.forget()

    for name in ("index", "bundles", "blobs", "verified", "failed"):
        shutil.rmtree(directory() / name, ignore_errors=True)
    with contextlib.suppress(OSError):
        (directory() / "packed").unlink()
    with contextlib.suppress(OSError):
        (directory() / "filled").unlink()
    user_level().entries.clear()


def export(path: str | os.PathLike[str], level: Level | None = None) -> int:
    """Copies all kernels into a directory of the same format, entries in one file.

    Returns:
        Number of kernels.
    """
    level = level or user_level()
    entries = sorted(level.all_entries())
    for digest in sorted({digest for _, digest, _ in entries}):
        with open(level.bundle(digest), "rb") as file:
            write(f"{os.fspath(path)}/bundles/{digest}.so", file.read())
    lines = "".join(f"{key} {digest} {symbol}\n" for key, digest, symbol in entries)
    write(f"{os.fspath(path)}/packed", lines.encode())
    return len(entries)


def import_(path: str | os.PathLike[str]) -> int:
    """Adds the kernels of an exported directory to the cache; returns how many were new."""
    source, level, count = Level(os.fspath(path), writable=False), user_level(), 0
    for key, digest, symbol in source.all_entries():
        if level.find(key) is not None or not _intact(source.bundle(digest), digest, own=False):
            continue
        if not os.path.exists(level.bundle(digest)):
            with open(source.bundle(digest), "rb") as file:
                content = file.read()
            make_room(len(content))
            write(level.bundle(digest), content)
        write(f"{level.root}/index/{key[:2]}/{key}", f"{digest} {symbol}\n".encode())
        count += 1
    return count
