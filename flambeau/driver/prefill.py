"""Fills `flambeau/_kernels`, the cache level that is installed with the package.

    python -m flambeau.driver.prefill [--directory D] [--jobs N]

Compiles the templates' variants (`compiler/baseline/variants.py`) for every target of the
architecture. Functions that many kernels share are filled in as objects, too: a new product takes
the compiler a tenth of the time. All else runs on the baseline until it is compiled.

Which kernels these are depends on the sources alone, never on how fast the machine is: a checkout,
`pip install .` and a wheel bring the same ones.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from flambeau.compiler import cache, toolchain
from flambeau.driver import prebuilt


class Progress:
    """One line that says how far it is; tqdm's where that is installed."""

    def __init__(self) -> None:
        """Starts at 0 of a number that is not known yet."""
        self.done = 0
        self.bar: Any = None
        with suppress(ImportError):
            bar = importlib.import_module("tqdm").tqdm
            self.bar = bar(desc="kernels", unit="kernel")

    def advance(self, count: int) -> None:
        """Counts finished kernels."""
        self.done += count
        if self.bar is not None:
            self.bar.update(count)
        elif sys.stderr.isatty():
            print(f"\r[prefill] {self.done} kernels", end="", file=sys.stderr)

    def close(self) -> None:
        """Ends the line."""
        if self.bar is not None:
            self.bar.close()
        elif sys.stderr.isatty():
            print(file=sys.stderr)


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


def fill(root: Path, jobs: int) -> tuple[int, int]:
    """Brings a level up to date; returns (kernels in it, kernels that were compiled now)."""
    present = prepare_level(root)
    progress = Progress()
    with ThreadPoolExecutor(jobs) as pool:
        entries, objects = prebuilt.fill(root, present, pool, progress.advance)
    progress.close()
    drop_objects(root, objects)
    write_level(root, entries)
    return len(entries), len(entries.keys() - present.keys())


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


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Fill the cache of compiled kernels.")
    parser.add_argument("--directory", type=Path, default=cache.PREFILLED)
    parser.add_argument("--jobs", type=int, default=max(2, os.cpu_count() or 2))
    options = parser.parse_args()
    began = time.monotonic()
    total, new = fill(options.directory, options.jobs)
    took = time.monotonic() - began
    print(f"[prefill] {total} kernels ({new} new) in {options.directory}, {took:.1f} s")


if __name__ == "__main__":
    main()
