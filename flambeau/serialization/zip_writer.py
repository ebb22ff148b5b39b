"""Writing of zip archives as PyTorch reads them: stored records whose bytes are aligned.

Sizes and checksums are known before a record is written, so files need not be sought. The padding
before a record's bytes is an extra field of its header, as in PyTorch's files.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Any

__all__ = ["ArchiveWriter"]

_CHUNK = 2**26
_LARGEST = 0xFFFFFFFE  # that fields of 32 bits hold
_WIDE = 0xFFFFFFFF  # marks a field whose number is elsewhere, in 64 bits
_PADDING = 0x4246  # kind of the extra field that pads
_VERSION, _VERSION_WIDE = 20, 45
_UTF8 = 1 << 11
_DATE = (1 << 5) | 1  # the first day that zip archives can name: files depend on contents alone


class ArchiveWriter:
    """Writes records one behind the other, then their directory.

    Args:
        file: a binary file object.
        folder: of all records.
        alignment: of the records' bytes, relative to the archive's first byte.
    """

    def __init__(self, file: Any, folder: str, alignment: int = 64) -> None:
        self.file, self.folder, self.alignment = file, folder, alignment
        self.position = 0
        self.directory: list[bytes] = []
        self.checksums: list[int] = []

    def _write(self, data: Any) -> None:
        self.file.write(data)
        self.position += len(data)

    def write(self, name: str, data: Any, skip: bool = False, checksum: bool = True) -> None:
        """Adds a record.

        Args:
            name: below the archive's folder.
            data: a buffer of bytes.
            skip: leave zeros in place of the bytes.
            checksum: compute it; zero is written otherwise.
        """
        view = memoryview(data).cast("B")
        size = len(view)
        crc = 0
        if checksum and not skip:
            for begin in range(0, size, _CHUNK):
                crc = zlib.crc32(view[begin : begin + _CHUNK], crc)
        elif skip and checksum:
            crc = 0
        self.checksums.append(crc)
        text = f"{self.folder}/{name}".encode()
        self._header(text, size, crc)
        for begin in range(0, size, _CHUNK):
            part = view[begin : begin + _CHUNK]
            self._write(bytes(len(part)) if skip else part)

    def _header(self, name: bytes, size: int, crc: int) -> None:
        wide = size > _LARGEST
        offset = self.position
        extra = struct.pack("<HHQQ", 1, 16, size, size) if wide else b""
        version = _VERSION_WIDE if wide else _VERSION
        short = _WIDE if wide else size
        begin = offset + 30 + len(name) + len(extra) + 4
        padding = -begin % self.alignment
        extra += struct.pack("<HH", _PADDING, padding) + b"Z" * padding
        fields = (version, _UTF8, 0, 0, _DATE, crc, short, short, len(name))
        self._write(struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", *fields, len(extra)))
        self._write(name + extra)
        far = offset > _LARGEST
        numbers = [size, size] if wide else []
        numbers += [offset] if far else []
        extra = struct.pack(f"<HH{len(numbers)}Q", 1, 8 * len(numbers), *numbers)
        extra = extra if numbers else b""
        version = _VERSION_WIDE if numbers else _VERSION
        entry = struct.pack(
            "<4sHHHHHHIIIHHHHHII",
            *(b"PK\x01\x02", version, version, *fields[1:], len(extra), 0, 0, 0, 0),
            _WIDE if far else offset,
        )
        self.directory.append(entry + name + extra)

    def close(self) -> None:
        """Writes the directory."""
        begin, count = self.position, len(self.directory)
        for entry in self.directory:
            self._write(entry)
        size = self.position - begin
        if begin > _LARGEST or size > _LARGEST or count >= 0xFFFF:
            where = self.position
            numbers = (44, _VERSION_WIDE, _VERSION_WIDE, 0, 0, count, count, size, begin)
            self._write(struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", *numbers))
            self._write(struct.pack("<4sIQI", b"PK\x06\x07", 0, where, 1))
        short = min(count, 0xFFFF)
        sizes = (min(size, _WIDE), min(begin, _WIDE), 0)
        self._write(struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, short, short, *sizes))


def identity(names: Iterable[str], checksums: Iterable[int]) -> bytes:
    """40 digits that tell archives with different contents apart."""
    text = "\n".join(names).encode()
    first = zlib.crc32(text) * 2**32 + zlib.adler32(text)
    second = 0
    for number in checksums:
        second = (second * 1_000_003 + number) % 2**64
    return f"{first:020d}{second:020d}".encode()
