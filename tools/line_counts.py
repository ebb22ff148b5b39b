"""Counts the lines of the project's parts: `python -m tools.line_counts [--write]`.

The table in docs/design.md is printed by this module; `--write` updates it. A test compares the
page with the tree, and holds the size of the core (tests/test_line_counts.py).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "design.md"
CORE = tuple(
    f"flambeau/{package}"
    for package in (
        "ir", "prims", "language", "core", "derivation", "compiler", "driver", "capture",
        "autograd/transforms",
    )
)  # fmt: skip
# Parts of their own, counted apart from the core.
BASELINE, FRAMES = ("flambeau/compiler/baseline",), ("flambeau/capture/frame",)
MARKED = re.compile(r"(<!-- lines:begin -->\n).*?(<!-- lines:end -->)", re.DOTALL)
PARTS: dict[str, tuple[tuple[str, ...], ...]] = {  # name: folders, endings, what is left out
    "core: from the call of an operator to its kernels": (
        CORE,
        (".py",),
        BASELINE + FRAMES,
    ),
    "baseline tier: kernels as block programs": (BASELINE, (".py",)),
    "compile tier 2: frames that are skipped": (FRAMES, (".py",)),
    "operators (`ops`)": (("flambeau/ops",), (".py",)),
    "layers (`nn`)": (("flambeau/nn",), (".py",)),
    "the whole package": (("flambeau",), (".py",)),
    "C text of kernels": (("flambeau",), (".c.in",)),
    "native core": (("native",), (".cpp", ".h")),
    "tests": (("tests",), (".py",)),
}


def lines(folders: Iterable[str], endings: tuple[str, ...], without: Iterable[str] = ()) -> int:
    """Returns the lines of the files below some folders, comments and blank lines included.

    Args:
        folders: the folders, from the root of the repository.
        endings: of the files' names.
        without: folders below those that do not count.
    """
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    sources = [x for x in files if x.name.endswith(endings) and "_kernels" not in x.parts]
    count = sum(path.read_bytes().count(b"\n") for path in sources)
    return count - sum(lines((folder,), endings) for folder in without)


def counts() -> dict[str, int]:
    """Returns the lines of each part."""
    return {name: lines(*part) for name, part in PARTS.items()}


def table() -> str:
    """Returns the table of docs/design.md, rounded to hundreds."""
    rows = [f"| {name} | {round(count, -2):,} |" for name, count in counts().items()]
    return "\n".join(["| part | lines |", "| --- | --: |", *rows, ""])


def stated() -> dict[str, int]:
    """Returns the numbers that the page states."""
    match = MARKED.search(PAGE.read_text())
    rows = re.findall(r"^\| (.+?) \| ([\d,]+) \|$", match[0] if match else "", re.MULTILINE)
    return {name: int(number.replace(",", "")) for name, number in rows}


def main(arguments: list[str]) -> int:
    """Prints the table, or writes it to the page."""
    if "--write" in arguments:
        PAGE.write_text(MARKED.sub(lambda m: m[1] + table() + m[2], PAGE.read_text()))
    else:
        print(table(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
