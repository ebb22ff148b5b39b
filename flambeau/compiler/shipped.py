"""The plans that come with the package: the usual operators are not traced on their first call.

`tools/ship_plans.py` writes them when the package is built, to one file:

    length in 8 bytes | marshalled Header | groups

A group is a marshalled list of contents, compressed: of plans, as `stored.written` makes them, of
block programs, or of kernels, each once. Nobody reads kernels before a plan is hot.

A plan's name is the digest of what it is of. Plans without templates are the same for all targets.
They are valid for the sources that planned them: the header has a digest of these files. To read
them takes some 20 ms, so that the result is in the user's cache, under their sizes and times.
"""

from __future__ import annotations

import functools
import marshal
import os
import sys
from typing import NamedTuple

from flambeau.compiler import cache, machine, targets
from flambeau.compiler.cache import blake2b
from flambeau.ir.lock import importing
from flambeau.runtime import settings

_PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
FILE = os.path.join(_PACKAGE, "_plans", "plans")
LENGTH, NAME, DIGEST, NUMBER = 8, 10, 16, 3  # bytes

# Digests of names' texts, and in their order the numbers of the contents. Bytes are searched in
# some microseconds, to make a dict of them takes a millisecond.
Names = tuple[bytes, bytes]


class Section(NamedTuple):
    """Contents of one kind, with numbers in a row.

    Attributes:
        first: the number of the first one.
        group: how many are compressed together: more take less room, and longer to read.
        dictionary: the zlib dictionary of its groups.
        bounds: where each group begins, and the end of the last one.
    """

    first: int
    group: int
    dictionary: bytes
    bounds: tuple[int, ...]


class Header(NamedTuple):
    """The head of the file.

    Attributes:
        sources: digest of the sources that planned them.
        machine: where that was.
        sections: of plans, block programs and kernels.
        all: the plans for every target.
        targets: those for one, by its name.
        kernels: the digests of kernels, by number.
    """

    sources: str
    machine: tuple[int, ...]
    sections: tuple[Section, ...]
    all: Names
    targets: dict[str, Names]
    kernels: bytes


def digest_of(text: str) -> bytes:
    """The name of a plan in the file."""
    return blake2b(text.encode(), digest_size=NAME).digest()


def find(text: str) -> tuple[bytes, bool] | None:
    """The plans of a name, and whether every machine would plan the same: blocks of products fit
    the caches of the machine that built the package. None: there are none, or of other sources."""
    shelf = _shelf(FILE)
    if shelf is None or " " in (settings.get("CC") or "").strip():
        return None  # flags of the user's are for all kernels, also of templates' variants
    header, name = shelf[0], digest_of(text)
    number = _number(header.all, name)
    everywhere = number is not None or header.machine == tuple(machine.current())
    if number is None:
        number = _number(header.targets.get(targets.current().name, (b"", b"")), name)
    return None if number is None else (content(number), everywhere)


def _number(names: Names, digest: bytes) -> int | None:
    place = names[0].find(digest)
    while place >= 0 and place % NAME:  # the end of one and the begin of another
        place = names[0].find(digest, place + 1)
    begin = place // NAME * NUMBER
    return None if place < 0 else int.from_bytes(names[1][begin : begin + NUMBER], "little")


def content(number: int) -> bytes:
    """The plans of a name, a block program or a kernel, by number."""
    shelf = _shelf(FILE)
    assert shelf is not None
    kind = sum(number >= section.first for section in shelf[0].sections) - 1
    section = shelf[0].sections[kind]
    group, place = divmod(number - section.first, section.group)
    return _group(FILE, kind, group)[place]


def block_program(number: int) -> object:
    """The packed block program of a number."""
    return marshal.loads(content(number))


def digest_at(number: int) -> str:
    """The digest of a kernel, by its number among them."""
    shelf = _shelf(FILE)
    digests = b"" if shelf is None else shelf[0].kernels
    return digests[number * DIGEST : (number + 1) * DIGEST].hex()


@functools.lru_cache(maxsize=32)
def _group(path: str, kind: int, number: int) -> list[bytes]:
    """The contents of a group of a section."""
    with importing:
        import zlib

    shelf = _shelf(path)
    assert shelf is not None
    section = shelf[0].sections[kind]
    begin, end = section.bounds[number : number + 2]
    reader = zlib.decompressobj(zdict=section.dictionary)
    contents: list[bytes] = marshal.loads(reader.decompress(shelf[1][begin:end]))
    return contents


@functools.cache
def _shelf(path: str) -> tuple[Header, memoryview] | None:
    """The header and groups of the file, if its plans are of these sources."""
    try:
        with open(path, "rb") as file:
            state = os.fstat(file.fileno())
            content = memoryview(_mapped(file.fileno()))
        length = int.from_bytes(content[:LENGTH], "little")
        header = _header(content[LENGTH : LENGTH + length])
    except (OSError, ValueError, TypeError, EOFError):
        return None
    stamp = package_stamp()
    if stamp is None:
        return None
    name = f"plans {stamp} {header.sources} {_state(path, state)}"
    key = blake2b(name.encode(), digest_size=16).hexdigest()
    verdict = cache.get_blob(key)
    if verdict is None:
        verdict = b"valid" if sources_digest() == header.sources else b"stale"
        cache.put_blob(key, verdict)
    return (header, content[LENGTH + length :]) if verdict == b"valid" else None


def sources_of(path: str | os.PathLike[str]) -> str:
    """Digest of the sources of a file's plans; "" where there is no such file."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(LENGTH), "little")
            return _header(file.read(length)).sources
    except (OSError, ValueError, TypeError, EOFError):
        return ""


def _header(content: bytes | memoryview) -> Header:
    header = Header(*marshal.loads(content))
    return header._replace(sections=tuple([Section(*fields) for fields in header.sections]))


def _mapped(descriptor: int) -> bytes:
    """The file's content, read where it is needed."""
    import mmap

    mapped: bytes = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)  # type: ignore[assignment]
    return mapped


# ------------------------------------------------------------------------------- sources


# Every module that may run while a plan is made, the texts of kernels, and the core.
PLANNING = (
    "autograd/transforms", "capture", "compiler", "core", "decompositions", "derivation", "driver",
    "ir", "language", "ops", "prims", "runtime",
)  # fmt: skip
_State = tuple[str, int, int, int]  # path, size, times of modification and change


@functools.cache
def package_stamp() -> str | None:
    """Names, sizes and times of the sources of plans: cheaper than reading them.

    None where a file came here later than this process's copy of it may have been read.
    """
    files = _files()
    began = vars(sys.modules["flambeau"])["_began"]
    if max([changed for *_, changed in files]) > began:
        return None
    return blake2b(repr(files).encode(), digest_size=16).hexdigest()


def sources_digest() -> str:
    """Digest of the content of these files."""
    digest = blake2b(digest_size=16)
    for path, *_ in _files():
        with open(path, "rb") as file:
            content = file.read()
        digest.update(f"{os.path.relpath(path, _PACKAGE)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _files() -> list[_State]:
    core = str(sys.modules["flambeau._core"].__file__)
    files = [_state(core, os.stat(core))]
    for folder in PLANNING:
        _add_sources(f"{_PACKAGE}/{folder}", files)
    return sorted(files)


def _add_sources(folder: str, files: list[_State]) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if name.endswith((".py", ".c.in")):
                files.append(_state(entry.path, entry.stat()))
            elif name[0] != "_" and entry.is_dir():
                _add_sources(entry.path, files)


def _state(path: str, state: os.stat_result) -> _State:
    # Installers may give files any time of modification, but not of change.
    return path, state.st_size, state.st_mtime_ns, state.st_ctime_ns
