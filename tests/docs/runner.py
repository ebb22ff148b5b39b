"""Executes the Python blocks of a Markdown page, in one namespace, and checks the shown output.

A fenced `python` block is executed; what it prints is compared with a `text` block that follows it
at once. In a `text` block, "..." stands for any text (also across lines), as in doctest.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n?^```text\n(?P<shown>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """One Python block: its code, the first line's number, and the output shown (or None)."""

    code: str
    line: int
    shown: str | None


def blocks(text: str) -> list[Block]:
    """The Python blocks of a page."""
    return [
        Block(found["code"], text.count("\n", 0, found.start()) + 2, found["shown"])
        for found in _BLOCK.finditer(text)
    ]


def execute(path: Path) -> int:
    """Runs a page's blocks in order; returns how many there were.

    Raises:
        AssertionError: a block printed something else than the page shows.
    """
    text = path.read_text()
    namespace: dict[str, object] = {"__name__": "__page__"}
    found = blocks(text)
    for block in found:
        printed = io.StringIO()
        padded = "\n" * (block.line - 1) + block.code  # tracebacks show the page's line
        with contextlib.redirect_stdout(printed):
            exec(compile(padded, str(path), "exec"), namespace)
        if block.shown is not None:
            _compare(path, block, printed.getvalue())
    return len(found)


def _compare(path: Path, block: Block, printed: str) -> None:
    checker = doctest.OutputChecker()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    shown = block.shown or ""
    assert checker.check_output(shown, printed, flags), (
        f"{path.name}:{block.line}: the block prints something else\n"
        f"--- shown\n{shown}--- printed\n{printed}"
    )
