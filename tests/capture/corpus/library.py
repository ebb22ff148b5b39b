"""Cases of Python's standard library: expressions of tables/*.txt, in functions of several forms.

A table is a list of groups. `== name (parameters)` begins one; `> statement` is executed before;
`: arguments ;; arguments` are those of the lines that have none; every other line is an expression,
with `;;` and arguments of its own behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.capture.corpus.cases import Case, of_text

TABLES = Path(__file__).parent / "tables"

_FORMS = (
    """
def f(x, {parameters}):
    y = x * 2 + 1
    value = {expression}
    return combine(y, value), value
""",
    """
def f(x, {parameters}):
    return {expression}
""",
    """
def f(x, {parameters}):
    total = x
    for k in range(3):
        total = total + k
        value = {expression}
    return total, value
""",
    """
def f(x, {parameters}):
    def inner():
        return {expression}
    return inner(), x - 1
""",
    """
def f(x, {parameters}):
    try:
        value = {expression}
    except Exception as error:
        return x - 1, type(error).__name__, str(error)
    else:
        return {{"value": value, "x": combine(x, value)}}
""",
)


def cases() -> Iterator[Case]:
    """One case for each expression of the tables."""
    number = 0
    for path in sorted(TABLES.glob("*.txt")):
        for group in path.read_text().split("\n== "):
            for expression, text in _programs(group.removeprefix("== ").splitlines(), number):
                number += 1
                yield of_text(f"{path.stem}:{expression}", text)


def _programs(lines: list[str], number: int) -> Iterator[tuple[str, str]]:
    """The name and text of each line of a group."""
    head = re.fullmatch(r"(\S+) \((.*)\)", lines[0])
    assert head, lines[0]
    before = "\n".join(line[2:] for line in lines if line.startswith("> "))
    defaults = next((line[2:] for line in lines if line.startswith(": ")), "")
    for line in lines[1:]:
        if not line.strip() or line.startswith((": ", "> ")):
            continue
        expression, _, own = map(str.strip, line.partition(" ;; "))
        function = _FORMS[number % len(_FORMS)].format(parameters=head[2], expression=expression)
        calls = ", ".join(f"(t(4), {values},)" for values in (own or defaults).split(" ;; "))
        number += 1
        yield f"{head[1]} {expression}", f"{before}\n{function}\nsteps = [{calls}]"
