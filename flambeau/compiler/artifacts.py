"""Plans and kernels as one file: `torch.compiler.save_cache_artifacts` and `load_cache_artifacts`.

What this process compiled, or found in the cache, goes into a zip archive, in the layout of the
cache itself: libraries by digest, an index of the kernels in them, blobs (plans, choices of
autotuning). Loading adds what the cache of the other process lacks. A plan is valid for one machine
type, compiler and version of the package, which its name says: elsewhere it is never found, so that
an archive does no harm there. It holds machine code: load what you trust, as with any library.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from typing import NamedTuple

from flambeau.compiler import cache, postponed, tiers
from flambeau.ir.failure import failure

_INDEX, _BUNDLES, _BLOBS = "index", "bundles/", "blobs/"
_MAGIC = b"flambeau cache 1"


class CacheInfo(NamedTuple):
    """The contents of an archive.

    Attributes:
        kernels: their keys.
        plans: keys of plans, and of choices that were measured.
    """

    kernels: list[str]
    plans: list[str]

    @property
    def artifacts(self) -> dict[str, list[str]]:
        """The keys by kind, as PyTorch lists them: kernels are "inductor", plans "aot_autograd"."""
        return {"inductor": self.kernels, "aot_autograd": self.plans}

    @property
    def inductor_artifacts(self) -> list[str]:
        """Keys of kernels."""
        return self.kernels

    @property
    def aot_autograd_artifacts(self) -> list[str]:
        """Keys of plans."""
        return self.plans

    def empty(self) -> bool:
        """Whether there is nothing."""
        return not self.kernels and not self.plans


def save_cache_artifacts() -> tuple[bytes, CacheInfo] | None:
    """The plans and kernels of this process, as bytes for other processes of the same kind.

    Everything that runs on the baseline is compiled first.

    Returns:
        the bytes, and what they hold; None: nothing was compiled.

    Example:
        >>> _ = torch.compile(lambda x: x.sin() + 1)(torch.ones(5))
        >>> content, info = torch.compiler.save_cache_artifacts()
        >>> torch.compiler.load_cache_artifacts(content) == info
        True
    """
    tiers.wait()
    postponed.finish()
    kernels = sorted(_kernels(), key=lambda entry: entry[0])
    blobs = {key: content for key in sorted(cache.used_blobs) if (content := cache.get_blob(key))}
    info = CacheInfo([key for key, _, _ in kernels], list(blobs))
    if info.empty():
        return None
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = _MAGIC
        archive.writestr(_INDEX, "".join(f"{' '.join(entry)}\n" for entry in kernels))
        for digest in sorted({digest for _, digest, _ in kernels}):
            archive.write(cache.user_level().bundle(digest), _BUNDLES + digest)
        for key, content in blobs.items():
            archive.writestr(_BLOBS + key, content)
    return buffer.getvalue(), info


def _kernels() -> Iterator[tuple[str, str, str]]:
    """(key, digest of the library, symbol) of the kernels that this process has from its cache."""
    level = cache.user_level()
    for key, (digest, symbol) in list(level.entries.items()):
        if os.path.exists(level.bundle(digest)):
            yield key, digest, symbol


def load_cache_artifacts(serialized_artifacts: bytes) -> CacheInfo | None:
    """Adds plans and kernels of another process to the cache of this one.

    Args:
        serialized_artifacts: bytes of `save_cache_artifacts`. They contain machine code: they must
            come from where you trust.

    Returns:
        what they hold; None: nothing.

    Raises:
        RuntimeError: the bytes are damaged, or none of `save_cache_artifacts`.
    """
    if not serialized_artifacts:
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(serialized_artifacts)) as archive:
            if archive.comment != _MAGIC:
                raise _damaged("it has another format")
            return _load(archive)
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
        raise _damaged(str(error)) from None


def _load(archive: zipfile.ZipFile) -> CacheInfo:
    entries: dict[str, dict[str, str]] = {}
    for line in archive.read(_INDEX).decode().splitlines():
        key, digest, symbol = line.split(" ")
        if not key.isalnum() or not digest.isalnum() or not symbol.isidentifier():
            raise ValueError(f"a line of its index is wrong: {line}")
        entries.setdefault(digest, {})[key] = symbol
    level = cache.user_level()
    for digest, symbols in entries.items():
        missing = {key: symbol for key, symbol in symbols.items() if level.find(key) is None}
        if missing:
            content = archive.read(_BUNDLES + digest)
            if cache.digest_of(content) != digest:
                raise ValueError(f"library {digest} has another content")
            cache.store(content, missing)
    blobs = [x.removeprefix(_BLOBS) for x in archive.namelist() if x.startswith(_BLOBS)]
    for key in blobs:
        if not key.isalnum():
            raise ValueError(f"a blob has a wrong name: {key}")
        if cache.get_blob(key) is None:
            cache.put_blob(key, archive.read(_BLOBS + key))
    return CacheInfo(sorted(key for symbols in entries.values() for key in symbols), sorted(blobs))


def _damaged(problem: str) -> RuntimeError:
    hint = "pass the bytes that save_cache_artifacts() returned"
    return failure(RuntimeError, "load_cache_artifacts", f"it cannot be read: {problem}", hint)
