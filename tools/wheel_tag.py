"""The platform tag of a wheel: the oldest Linux that its shared libraries can be loaded on.

    python -m tools.wheel_tag FOLDER

A shared library says which version of the C library brought each group of functions that it calls
(`.gnu.version_r`). The tag names the newest (PEP 600): `manylinux_2_29_x86_64` is installed where
glibc is 2.29 or newer. libstdc++ counts by the oldest distribution that has the version.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

Version = tuple[int, ...]
SYSTEM = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")
LOADERS = ("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1")
ALLOWED = (*SYSTEM, *LOADERS, "libgcc_s.so.1", "libstdc++.so.6")  # that every machine has
# Versions of GCC's libraries, and the glibc of the distributions that came with them.
BESIDE: dict[str, tuple[tuple[Version, Version], ...]] = {
    "GLIBCXX": (((3, 4, 19), (2, 17)), ((3, 4, 24), (2, 28)), ((3, 4, 28), (2, 31))),
    "CXXABI": (((1, 3, 7), (2, 17)), ((1, 3, 11), (2, 28)), ((1, 3, 12), (2, 31))),
    "GCC": (((4, 8, 0), (2, 17)), ((7, 0, 0), (2, 28))),
}
_DYNAMIC, _STRING = 2, 5  # PT_DYNAMIC, DT_STRTAB
_NEEDED, _VERSIONS, _COUNT = 1, 0x6FFFFFFE, 0x6FFFFFFF  # DT_NEEDED, DT_VERNEED, DT_VERNEEDNUM


class Library:
    """A 64-bit little-endian ELF file.

    Args:
        content: of the file.

    Raises:
        ValueError: it is none.
    """

    def __init__(self, content: bytes) -> None:
        if content[:6] != b"\x7fELF\x02\x01":
            raise ValueError("[wheel] not a shared library of a 64-bit little-endian machine")
        self.content = content
        (start,) = struct.unpack_from("<Q", content, 32)
        size, count = struct.unpack_from("<HH", content, 54)
        headers = [struct.unpack_from("<IIQQQQ", content, start + size * i) for i in range(count)]
        self._loaded: list[tuple[int, int, int]] = [  # address, offset, bytes
            (h[3], h[2], h[5]) for h in headers if h[0] == 1
        ]
        [dynamic] = [h for h in headers if h[0] == _DYNAMIC]
        self._dynamic = [
            struct.unpack_from("<qQ", content, dynamic[2] + offset)
            for offset in range(0, dynamic[5], 16)
        ]

    def needed(self) -> list[str]:
        """Names of the libraries that it is loaded with."""
        return [self._text(value) for tag, value in self._dynamic if tag == _NEEDED]

    def versions(self) -> Iterator[str]:
        """Versions that these must have, as `GLIBC_2.17`."""
        numbers = dict(self._dynamic)
        if _VERSIONS not in numbers:
            return
        library = self._offset(numbers[_VERSIONS])
        for _ in range(numbers[_COUNT]):
            _, names, _, first, following = struct.unpack_from("<HHIII", self.content, library)
            version = library + first
            for _ in range(names):
                name, step = struct.unpack_from("<II", self.content, version + 8)
                yield self._text(name)
                version += step
            library += following

    def _text(self, position: int) -> str:
        begin = self._offset(dict(self._dynamic)[_STRING]) + position
        return self.content[begin : self.content.index(b"\0", begin)].decode()

    def _offset(self, address: int) -> int:
        for begin, offset, size in self._loaded:
            if begin <= address < begin + size:
                return offset + address - begin
        raise ValueError(f"[wheel] damaged library: nothing is loaded at {address:#x}")


def oldest_glibc(folder: Path) -> Version:
    """The oldest C library beside which all shared libraries below a folder can be loaded.

    Raises:
        ValueError: one of them needs what is not on every machine.
    """
    oldest: Version = (2, 17)  # as old as the first tag of this kind
    for path in sorted(folder.rglob("*.so")):
        library = Library(path.read_bytes())
        foreign = set(library.needed()).difference(ALLOWED)
        if foreign:
            raise ValueError(
                f"[wheel] {path.name} needs {sorted(foreign)}, which wheels must bring"
            )
        for version in library.versions():
            oldest = max(oldest, _glibc_of(version, path))
    return oldest


def _glibc_of(version: str, path: Path) -> Version:
    family, _, text = version.partition("_")
    numbers = tuple(int(part) for part in text.split("."))
    if family == "GLIBC":
        return numbers[:2]
    for newest, glibc in BESIDE.get(family, ()):
        if numbers <= newest:
            return glibc
    raise ValueError(f"[wheel] {path.name} needs {version}: no distribution is known to have it")


def platform_tag(folder: Path) -> str:
    """The platform part of a wheel's name."""
    major, minor = oldest_glibc(folder)
    return f"manylinux_{major}_{minor}_{os.uname().machine}"


if __name__ == "__main__":
    print(platform_tag(Path(sys.argv[1])))
