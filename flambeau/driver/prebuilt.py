"""Compiles the templates' variants (`compiler/baseline/variants.py`) for a level of the cache.

`flambeau/_kernels`, the level that is installed with the package, has one library per target.
Functions that many kernels share are in it as objects, too: a new product takes the compiler a
tenth of the time. All else runs on the baseline until it is compiled. Which kernels these are
depends on the sources alone, never on how fast the machine is.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path

from flambeau.compiler import cache, codegen, toolchain
from flambeau.compiler.baseline.variants import variants
from flambeau.compiler.codegen import batches
from flambeau.compiler.codegen.batches import Part
from flambeau.compiler.targets import Target

UNIT = 8  # kernels in one translation unit

Entries = dict[str, tuple[str, str]]  # key: digest of the library, symbol


def parts_of(target: Target) -> Iterator[Part]:
    """The variants' texts. Those of one dtype follow each other: they share helper functions."""
    identity = toolchain.find().identity
    for kernel in sorted(variants(target), key=lambda kernel: kernel.parameters[0][0]):
        key = codegen.key_of(kernel, target, identity)
        text = codegen.print_kernel(kernel, target)
        yield batches.part_of(key, codegen.symbol_of(key), text)


class _Library:
    """The variants of one target on their way to a library.

    Args:
        root: of the level.
        target: what they are compiled for.
        present: entries of the level before.
    """

    def __init__(self, root: Path, target: Target, present: Entries) -> None:
        self.root, self.target = root, target
        parts = list(parts_of(target))
        self.missing = [part for part in parts if part.key not in present]
        self.entries = {part.key: present[part.key] for part in parts if part.key in present}
        self.functions = {name: part.functions for part in parts for name in part.objects}
        self.objects: dict[str, Future[str]] = {}
        self.units: list[Future[str]] = []

    def submit(self, pool: Executor, folder: str, advance: Callable[[int], None]) -> None:
        """Begins to compile."""
        for number, name in enumerate(self.functions):
            path = os.path.join(folder, f"{self.target.name}_{number}_functions.o")
            self.objects[name] = pool.submit(self._object, name, path)
        for start in range(0, len(self.missing), UNIT):
            unit = self.missing[start : start + UNIT]
            path = os.path.join(folder, f"{self.target.name}_{start}.o")
            self.units.append(pool.submit(self._unit, unit, path, advance))

    def finish(self, folder: str) -> None:
        """Writes the library."""
        for done in self.objects.values():
            done.result()
        if not self.missing:
            return
        paths = [unit.result() for unit in self.units]
        paths += [self.objects[name].result() for name in batches.objects_of(self.missing)]
        output = Path(folder, f"{self.target.name}.so")
        toolchain.find().link([*paths, "-s"], self.target, output)
        content = output.read_bytes()
        digest = cache.digest_of(content)
        cache.write(self.root / "bundles" / f"{digest}.so", content)
        self.entries.update({part.key: (digest, part.symbol) for part in self.missing})

    @property
    def blobs(self) -> set[str]:
        """Keys of the objects."""
        return {codegen.key_of_functions(self.target, names) for names in self.functions}

    def _object(self, names: str, path: str) -> str:
        """Takes an object of shared functions from the level, or adds it."""
        key = codegen.key_of_functions(self.target, names)
        content = cache.read_blob(self.root, key)
        if content is None:
            functions = self.functions[names]
            content = batches.compile_functions(names, functions, self.target, path)
            cache.write_blob(self.root, key, content)
        else:
            Path(path).write_bytes(content)
        return path

    def _unit(self, unit: Sequence[Part], path: str, advance: Callable[[int], None]) -> str:
        source = batches.source_of(unit, self.target)
        toolchain.find().compile(source, self.target, path, link=False)
        advance(len(unit))
        return path


def fill(
    root: Path,
    chosen: Sequence[Target],
    present: Entries,
    pool: Executor,
    advance: Callable[[int], None],
) -> tuple[Entries, set[str]]:
    """Writes the variants for some targets to a level.

    Args:
        root: of the level.
        chosen: the targets.
        present: its entries, whose libraries stay.
        pool: what the compilers run in.
        advance: called with the number of kernels that were just compiled.

    Returns:
        The variants' entries, and the keys of the objects of shared functions.
    """
    entries: Entries = {}
    blobs: set[str] = set()
    libraries = [_Library(root, each, present) for each in chosen]
    with tempfile.TemporaryDirectory(prefix="flambeau") as folder:
        for library in libraries:
            library.submit(pool, folder, advance)
        for library in libraries:
            library.finish(folder)
            entries |= library.entries
            blobs |= library.blobs
    return entries, blobs


def prepare_level(root: Path) -> dict[str, tuple[str, str]]:
    """Empties a level that another compiler filled; returns the entries of one that stays."""
    identity = toolchain.find().identity
    level = cache.Level(root, writable=True)
    if level.compiler() != identity:
        for name in ("bundles", "blobs", "packed"):
            path = root / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        cache.write(root / "compiler", identity.encode())
    return {key: (digest, symbol) for key, digest, symbol in level.all_entries()}


def write_level(root: Path, entries: dict[str, tuple[str, str]]) -> None:
    """Writes the index of a level and removes bundles that nothing refers to."""
    lines = [f"{key} {digest} {symbol}\n" for key, (digest, symbol) in sorted(entries.items())]
    cache.write(root / "packed", "".join(lines).encode())
    used = {digest for digest, _ in entries.values()}
    for path in (root / "bundles").glob("*.so"):
        if path.stem not in used:
            path.unlink()


def drop_objects(root: Path, used: set[str]) -> None:
    """Removes the objects that are not in use."""
    for path in (root / "blobs").glob("*/*"):
        if path.name not in used:
            path.unlink()
