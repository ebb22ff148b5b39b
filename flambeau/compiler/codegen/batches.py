"""Kernels on their way through the C compiler, in batches, while more of them are planned.

A batch is a translation unit. Functions that many kernels share (`c_unit`, FB_SHARED) take the
compiler longer than all that is a kernel's own: they are compiled once, apart, and their object is
stored in the cache; kernels are linked with it. Where batches end depends on the kernels alone, not
on how fast the compiler is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau.compiler import cache, machine, toolchain
from flambeau.compiler.codegen.progress import Announcement
from flambeau.ir.lock import importing
from flambeau.runtime import settings

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from flambeau.compiler.targets import Target

BATCH = 20_000  # characters of kernels' own text: they compile in 0.2 s or less


class Part(NamedTuple):
    """A kernel's C text.

    Attributes:
        key: of the kernel.
        symbol: of its function.
        body: its own text.
        functions: definitions of those that it shares with others, by name.
        objects: what holds them, see `c_unit.objects_of`.
    """

    key: str
    symbol: str
    body: str
    functions: dict[str, str]
    objects: list[str]


def part_of(key: str, symbol: str, text: str) -> Part:
    """The text of a kernel, and what it shares with others."""
    with importing:
        from flambeau.compiler.codegen.c.printer import c_unit

    body, functions = c_unit.separate(text)
    return Part(key, symbol, body, functions, c_unit.objects_of(functions))


class Library(NamedTuple):
    """A shared library.

    Attributes:
        symbols: of its kernels, by key.
        content: the file.
    """

    symbols: dict[str, str]
    content: bytes


class Batches:
    """Kernels that are compiled, some of them before the last is added.

    Args:
        target: what they are compiled for.
        key_of_functions: names the object of shared functions in the cache.
        together: whether all of them become one library, by `finish_as_one`.
    """

    def __init__(
        self, target: Target, key_of_functions: Callable[[str], str], together: bool = False
    ) -> None:
        self.target = target
        self.together = together
        self._key_of_functions = key_of_functions
        self._pending: list[Part] = []
        self._length = 0
        self._objects: dict[str, Future[str] | str] = {}  # paths
        self._libraries: list[tuple[list[Part], Future[bytes]]] = []
        self._units: list[tuple[list[Part], Future[str]]] = []  # to be linked in the end
        self._pool: ThreadPoolExecutor | None = None
        self._folder: Any = None  # with temporary files
        self._announcement = Announcement(0)

    def add(self, key: str, symbol: str, text: str) -> None:
        """Takes the text of `print_kernel` of one more kernel."""
        if self._folder is None:
            self._open_folder()
        part = part_of(key, symbol, text)
        self._pending.append(part)
        self._announcement.kernels += 1
        for name in part.objects:
            if name not in self._objects:
                self._objects[name] = self._object_of(name, part.functions)
        self._length += len(part.body)
        if self._length >= BATCH:
            self._submit(self._pending)
            self._pending, self._length = [], 0

    def finish(self) -> list[Library]:
        """Compiles what is left, and waits for everything.

        Raises:
            flambeau.compiler.toolchain.CompileError: if the compiler fails.
        """
        try:
            self._announcement.begin()
            units = deal(self._pending, jobs())
            if self._pool is None and len(units) == 1:
                return [Library(_symbols(units[0]), self._library(units[0]))]
            for unit in units:
                self._submit(unit)
            built = [Library(_symbols(u), future.result()) for u, future in self._libraries]
            if self._units:
                built.append(self._linked())
            return built
        finally:
            self.close()

    def finish_as_one(self, name: str, source: str) -> bytes:
        """One library of all kernels and of the C text that calls them.

        Args:
            name: of the text's object file.
            source: the text.

        Raises:
            flambeau.compiler.toolchain.CompileError: if the compiler fails.
        """
        try:
            self._announcement.begin()
            if self._folder is None:
                self._open_folder()
            path = self._path(f"{name}.o")
            self._units.append(([], self._run(self._compiled, source, path)))
            for unit in deal(self._pending, jobs()):
                self._submit(unit)
            return self._linked().content
        finally:
            self.close()

    def close(self) -> None:
        """Drops what nobody waits for."""
        self._announcement.end()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        if self._folder is not None:
            self._folder.cleanup()

    # ----------------------------------------------------------------------------- work

    def _open_folder(self) -> None:
        import tempfile

        self._folder = tempfile.TemporaryDirectory(prefix="flambeau", ignore_cleanup_errors=True)

    def _object_of(self, names: str, functions: dict[str, str]) -> Future[str] | str:
        """The object of some shared functions: from the cache, or soon."""
        key = self._key_of_functions(names)
        path = self._path(f"{key}.o")
        content = cache.prefilled_blob(key) or cache.get_blob(key)
        if content is None:
            future: Future[str] = self._run(self._compile_functions, key, path, names, functions)
            return future
        with open(path, "wb") as file:
            file.write(content)
        return path

    def _submit(self, unit: list[Part]) -> None:
        waits = any(not isinstance(self._objects[name], str) for name in objects_of(unit))
        if self.together or waits:
            path = self._path(f"{len(self._units)}.o")
            self._units.append((unit, self._run(self._object, path, unit)))
        else:
            self._libraries.append((unit, self._run(self._library, unit)))

    def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(jobs())
            self._announcement.begin()
        return self._pool.submit(function, *args)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder.name, name)

    # ----------------------------------------------------------------------------- the compiler

    def _compile_functions(self, key: str, path: str, names: str, functions: dict[str, str]) -> str:
        """Compiles shared functions to an object, which is stored."""
        cache.put_blob(key, compile_functions(names, functions, self.target, path))
        return path

    def _object(self, path: str, unit: list[Part]) -> str:
        self._compiled(source_of(unit, self.target), path)
        self._announcement.count(len(unit))
        return path

    def _compiled(self, source: str, path: str) -> str:
        toolchain.find().compile(source, self.target, path, link=False)
        return path

    def _library(self, unit: list[Part]) -> bytes:
        objects = [str(self._objects[name]) for name in objects_of(unit)]
        path = self._path(f"{unit[0].symbol}.so")
        toolchain.find().compile(source_of(unit, self.target), self.target, path, objects)
        self._announcement.count(len(unit))
        with open(path, "rb") as file:
            return file.read()

    def _linked(self) -> Library:
        """One library of the units that waited for objects."""
        paths = [future.result() for _, future in self._units]
        parts = [part for unit, _ in self._units for part in unit]
        for name in objects_of(parts):
            object_file = self._objects[name]
            paths.append(object_file if isinstance(object_file, str) else object_file.result())
        path = self._path("linked.so")
        toolchain.find().link(paths, self.target, path)
        with open(path, "rb") as file:
            return Library(_symbols(parts), file.read())


def compile_functions(names: str, functions: dict[str, str], target: Target, path: str) -> bytes:
    """The object of some shared functions, which is written to a file, too."""
    with importing:
        from flambeau.compiler.codegen.c.printer import c_unit

    source = c_unit.render_functions(functions, names.split(), target)
    toolchain.find().compile(source, target, path, link=False)
    with open(path, "rb") as file:
        return file.read()


def jobs() -> int:
    """How many compilers run side by side."""
    chosen: int = settings.get("COMPILE_JOBS")
    return chosen or machine.current().cores


def deal(parts: Sequence[Part], count: int) -> list[list[Part]]:
    """Deals kernels out to at most `count` units of about equal length."""
    units: list[list[Part]] = [[] for _ in range(min(count, len(parts)))]
    lengths = [0] * len(units)
    for part in sorted(parts, key=lambda part: (-len(part.body), part.key)):
        smallest = lengths.index(min(lengths))
        units[smallest].append(part)
        lengths[smallest] += len(part.body)
    return units


def _symbols(unit: Sequence[Part]) -> dict[str, str]:
    return {part.key: part.symbol for part in unit}


def objects_of(unit: Sequence[Part]) -> list[str]:
    """The objects that kernels are linked with."""
    return list(dict.fromkeys(name for part in unit for name in part.objects))


def source_of(unit: Sequence[Part], target: Target) -> str:
    """C text of kernels, less the functions that they share."""
    with importing:
        from flambeau.compiler.codegen.c.printer import c_unit

    functions = {name: text for part in unit for name, text in part.functions.items()}
    return c_unit.render_linked([(part.symbol, part.body) for part in unit], functions, target)
