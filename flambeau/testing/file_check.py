"""`FileCheck`: what a text contains, and in which order."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["FileCheck"]


class FileCheck:
    """Checks of a text that are made when `run` is called; each looks behind the one before.

    Example:
        >>> FileCheck().check("add").check_not("mul").check("sub").run("add x; sub y")
    """

    def __init__(self) -> None:
        self._checks: list[tuple[str, str, int]] = []

    def _added(self, kind: str, text: str, count: int = 0) -> FileCheck:
        self._checks.append((kind, text, count))
        return self

    def check(self, test_string: str) -> FileCheck:
        """The text occurs."""
        return self._added("check", test_string)

    def check_not(self, test_string: str) -> FileCheck:
        """The text does not occur before what the next check finds."""
        return self._added("not", test_string)

    def check_same(self, test_string: str) -> FileCheck:
        """The text occurs in the same line."""
        return self._added("same", test_string)

    def check_next(self, test_string: str) -> FileCheck:
        """The text occurs in the next line."""
        return self._added("next", test_string)

    def check_count(self, test_string: str, count: int, exactly: bool = False) -> FileCheck:
        """The text occurs so many times; no more often, if `exactly`."""
        self._added("count", test_string, count)
        return self._added("not", test_string) if exactly else self

    def check_dag(self, test_string: str) -> FileCheck:
        """The text occurs; checks of this kind in a row may be met in any order."""
        return self._added("dag", test_string)

    def check_source_highlighted(self, test_string: str) -> FileCheck:
        """The text occurs, and the line below marks it."""
        return self._added("highlighted", test_string)

    def check_regex(self, pattern: str) -> FileCheck:
        """A regular expression matches."""
        return self._added("regex", pattern)

    def run(self, test_file: Any) -> None:
        """Makes all checks.

        Raises:
            RuntimeError: one of them fails.
        """
        text, position, forbidden = str(test_file), 0, []  # type: ignore[var-annotated]
        begin = 0  # of a row of checks in any order
        for kind, pattern, count in self._checks:
            if kind == "not":
                forbidden.append(pattern)
                continue
            begin = begin if kind == "dag" else position
            start, end = self._find(
                kind, pattern, count, text, begin if kind == "dag" else position
            )
            self._check_absent(forbidden, text[position:start])
            forbidden = []
            position = max(position, end) if kind == "dag" else end
        self._check_absent(forbidden, text[position:])

    def _find(self, kind: str, pattern: str, count: int, text: str, start: int) -> tuple[int, int]:
        """Where a check is met: the first and the last position."""
        first = None
        for _ in range(count if kind == "count" else 1):
            match = re.compile(pattern if kind == "regex" else re.escape(pattern)).search(
                text, start
            )
            between = text[start : match.start()] if match else ""
            lines = {"same": 0, "next": 1}.get(kind)
            if match is None or (lines is not None and between.count("\n") != lines):
                raise RuntimeError(
                    f'Expected to find "{pattern}" but did not find it\nSearched string:\n'
                    f"{text[start:]}\nFrom {kind.upper()}: {pattern}\n"
                )
            first = match.start() if first is None else first
            start = match.end()
        if kind == "highlighted":
            line = text[start:].split("\n")[1:2]
            if not line or not set(line[0].strip()) <= {"~", "^", "-", "<", " ", "H", "E", "R"}:
                raise RuntimeError(f'Expected to find "{pattern}" highlighted but it is not.')
        return first if first is not None else start, start

    @staticmethod
    def _check_absent(forbidden: list[str], text: str) -> None:
        for pattern in forbidden:
            if pattern in text:
                raise RuntimeError(
                    f'Expected to not find "{pattern}" but found it\nSearched string:\n{text}\n'
                    f"From CHECK-NOT: {pattern}\n"
                )
