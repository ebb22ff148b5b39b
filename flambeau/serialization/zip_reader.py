"""Reading of zip archives as PyTorch writes them: records by name, nothing trusted.

An archive ends with a directory of its records (APPNOTE.TXT of PKWARE, sections 4.3 and 4.4). All
of them have to be inside, one behind the other, under different names. Records are stored, so that
they can be mapped; compressed ones, of archives that were packed again, are read in memory and may
all together take no more than twice the file's size.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

from flambeau import _core
from flambeau.ir.failure import failure
from flambeau.serialization.sources import Source, damaged

__all__ = ["Archive", "MAGIC", "check_version"]

MAGIC = b"PK\x03\x04"
_END, _END64, _LOCATOR64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY = b"PK\x01\x02"
_LARGEST_COMMENT = 2**16
_STORED, _DEFLATED = 0, 8
_CHUNK = 2**20


@dataclass(frozen=True)
class _Record:
    """A record as the directory describes it; offsets count from the archive's first byte."""

    header: int
    limit: int
    packed: int
    size: int
    method: int


class Archive:
    """The records of a zip archive that begins at a source's start.

    Args:
        source: the bytes.

    Raises:
        RuntimeError: it is no archive, or one that breaks the rules.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.end, directory, count, begin = _find_directory(source)
        self.records = _read_directory(directory, count, begin)
        names = {name.split("/", 1)[0] for name in self.records}
        if len(names) != 1 or not all("/" in name for name in self.records):
            raise damaged("its records are not in one folder")
        self.folder = names.pop()
        self._budget = 2 * source.size

    def __contains__(self, name: str) -> bool:
        return f"{self.folder}/{name}" in self.records

    def size(self, name: str) -> int:
        """Number of bytes of a record."""
        return self._record(name).size

    def _record(self, name: str) -> _Record:
        record = self.records.get(f"{self.folder}/{name}")
        if record is None:
            raise damaged(f"it has no record {name[:80]!r}")
        return record

    def _data(self, record: _Record) -> int:
        """Where a record's bytes begin: behind its local header."""
        header = self.source.read(record.header, record.header + 30)
        if header[:4] != MAGIC:
            raise damaged("a record has no header")
        name, extra = struct.unpack("<HH", header[26:30])
        begin: int = record.header + 30 + name + extra
        if begin + record.packed > record.limit:
            raise damaged("a record overlaps with the next one")
        return begin

    def read(self, name: str, limit: int | None = None) -> bytes:
        """The bytes of a record.

        Args:
            limit: the most it may have.
        """
        record = self._record(name)
        if limit is not None and record.size > limit:
            raise damaged(f"record {name[:80]!r} is too long")
        begin = self._data(record)
        if record.method == _DEFLATED:
            return self._inflated(record, begin)
        return self.source.read(begin, begin + record.size)

    def storage(self, name: str, nbytes: int) -> Any:
        """A storage of the first bytes of a record."""
        record = self._record(name)
        if nbytes > record.size:
            raise damaged(f"record {name[:80]!r} has {record.size} bytes, not {nbytes}")
        begin = self._data(record)
        if record.method == _DEFLATED:
            return _core._storage_from_bytes(self._inflated(record, begin)[:nbytes])
        return self.source.storage(begin, begin + nbytes)

    def _inflated(self, record: _Record, begin: int) -> bytes:
        """The bytes of a compressed record, no more than the directory says and the file allows."""
        self._budget -= record.size
        if self._budget < 0:
            raise damaged("compressed records are more than twice as long as the file")
        unpack = zlib.decompressobj(-15)
        try:
            data = unpack.decompress(self.source.read(begin, begin + record.packed), record.size)
        except zlib.error as error:
            raise damaged(f"a compressed record cannot be read, {error}") from error
        if len(data) != record.size:
            raise damaged("a compressed record has another length than its directory says")
        return data


def _find_directory(source: Source) -> tuple[int, bytes, int, int]:
    """End of the archive, its directory, the number of records, where the directory begins."""
    tail = min(source.size, _LARGEST_COMMENT + 22)
    data = source.read(source.size - tail, source.size)
    position = data.rfind(_END)
    while position >= 0:
        parts = _directory_at(source, source.size - tail + position)
        if parts:
            return parts
        position = data.rfind(_END, 0, position)
    return _search_directory(source)


def _search_directory(source: Source) -> tuple[int, bytes, int, int]:
    """The same for an archive that something follows: its end is looked for from the front."""
    overlap = b""
    for begin in range(0, source.size, _CHUNK):
        data = overlap + source.read(begin, min(begin + _CHUNK, source.size))
        position = data.find(_END)
        while position >= 0:
            parts = _directory_at(source, begin - len(overlap) + position)
            if parts:
                return parts
            position = data.find(_END, position + 1)
        overlap = data[-3:]
    raise damaged("failed finding central directory of the zip archive")


def _directory_at(source: Source, position: int) -> tuple[int, bytes, int, int] | None:
    """Reads an end record, if a directory of this archive precedes it."""
    if position + 22 > source.size:
        return None
    fields = struct.unpack("<4sHHHHIIH", source.read(position, position + 22))
    count, size, begin, comment = fields[4:8]
    last = position
    wide = _wide_end(source, position)
    if wide:
        count, size, begin, last = wide
    if count == 0 or begin + size != last or position + 22 + comment > source.size:
        return None
    directory = source.read(begin, last)
    if directory[:4] != _ENTRY or count * 46 > size:
        return None
    return position + 22 + comment, directory, count, begin


def _wide_end(source: Source, position: int) -> tuple[int, int, int, int] | None:
    """Number of records, size and begin of the directory, its end: of an archive over 4 GiB."""
    if position < 76:
        return None
    mark, _, where, _ = struct.unpack("<4sIQI", source.read(position - 20, position))
    if mark != _LOCATOR64 or where + 56 > position:
        return None
    fields = struct.unpack("<4sQHHIIQQQQ", source.read(where, where + 56))
    if fields[0] != _END64:
        return None
    return fields[7], fields[8], fields[9], where


def _read_directory(directory: bytes, count: int, end: int) -> dict[str, _Record]:
    """The records by name, checked to lie one behind the other before the directory."""
    entries: list[tuple[str, int, int, int, int]] = []
    position = 0
    for _ in range(count):
        entry, position = _read_entry(directory, position)
        entries.append(entry)
    entries.sort(key=lambda entry: entry[1])
    records: dict[str, _Record] = {}
    limits = [entry[1] for entry in entries[1:]] + [end]
    for (name, header, packed, size, method), limit in zip(entries, limits, strict=True):
        if name in records:
            raise damaged(f"two records have the name {name[:80]!r}")
        if header + 30 + packed > limit:
            raise damaged(f"record {name[:80]!r} overlaps with another")
        if method == _STORED and packed != size:
            raise damaged(f"record {name[:80]!r} has two lengths")
        records[name] = _Record(header, limit, packed, size, method)
    return records


def _read_entry(directory: bytes, position: int) -> tuple[tuple[str, int, int, int, int], int]:
    """Name, offset, packed size, size and method of an entry; where the next one begins."""
    if directory[position : position + 4] != _ENTRY or position + 46 > len(directory):
        raise damaged("the directory of the archive is cut off")
    fields = struct.unpack("<4sHHHHHHIIIHHHHHII", directory[position : position + 46])
    flags, method, packed, size = fields[3], fields[4], fields[8], fields[9]
    name_length, extra_length, comment, header = fields[10], fields[11], fields[12], fields[16]
    begin = position + 46
    extra_begin, end = begin + name_length, begin + name_length + extra_length + comment
    if end > len(directory):
        raise damaged("the directory of the archive is cut off")
    if flags & 1 or method not in (_STORED, _DEFLATED):
        raise damaged(f"a record is encrypted or packed by method {method}")
    name = directory[begin:extra_begin].decode("utf-8", "surrogateescape")
    extra = directory[extra_begin : extra_begin + extra_length]
    size, packed, header = _wide_fields(extra, [size, packed, header])
    return (name, header, packed, size, method), end


def _wide_fields(extra: bytes, fields: list[int]) -> list[int]:
    """Sizes and offset, taken from the extra field of 64-bit archives where they do not fit."""
    if 0xFFFFFFFF not in fields:
        return fields
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack("<HH", extra[position : position + 4])
        data = extra[position + 4 : position + 4 + length]
        if kind == 1:
            numbers = iter(struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8]))
            return [next(numbers, n) if n == 0xFFFFFFFF else n for n in fields]
        position += 4 + length
    return fields


def check_version(archive: Archive, version: int, caller: str) -> None:
    """Refuses an archive whose record `archive_version` states another version.

    Raises:
        RuntimeError: it does.
    """
    if archive.read("archive_version", 100) != str(version).encode():
        problem = "the file has another version than this reader knows"
        raise failure(RuntimeError, caller, problem, "load it with the release that wrote it")
