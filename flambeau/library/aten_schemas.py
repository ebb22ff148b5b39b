"""Schemas and tags of all operators of PyTorch's inner library, from a table (`aten_schemas.bin`).

`tools/aten_schemas.py` writes it. Nothing here says whether an operator can be computed: that is
`ops/aten.py`. The table is read when a name, a schema or a tag is first needed that only it has.
"""

from __future__ import annotations

import functools
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from flambeau.ir.failure import failure
from flambeau.library.schemas import Argument, FunctionSchema, parse, split
from flambeau.runtime.tags import Tag

__all__ = ["Entry", "absent", "entries", "entry", "is_listed", "names", "read", "signatures"]

_FILE = Path(__file__).with_name("aten_schemas.bin")
_HEAD = re.compile(r"(\w*)(?:\.(\w+))?\(")


class Entry(NamedTuple):
    """One overload.

    Attributes:
        name: of its operator.
        overload: its name; "default" where PyTorch's schema has none.
        short: its arguments and results, without spaces behind commas.
        letters: what else is in the table (`tools/aten_schemas.py`).
    """

    name: str
    overload: str
    short: str
    letters: str

    @property
    def tags(self) -> tuple[Tag, ...]:
        """The operator's tags, in the order of their names."""
        by_value = _tags()
        return tuple([by_value[ord(c) - ord("a")] for c in self.letters if c.islower()])

    @property
    def scripted(self) -> bool:
        """Whether only TorchScript's interpreter has it."""
        return "Z" in self.letters

    @property
    def composed(self) -> bool:
        """Whether PyTorch makes it of others before a dispatch mode sees it."""
        return "Y" in self.letters

    def is_decomposed(self, core: bool) -> bool:
        """Whether PyTorch has a decomposition, to core ATen or in its global table."""
        return ("X" if core else "W") in self.letters

    @property
    def text(self) -> str:
        """The schema as PyTorch prints it."""
        overload = "" if self.overload == "default" else f".{self.overload}"
        inside = self.short.replace(",", ", ").replace(">", " -> ")
        return f"aten::{self.name}{overload}{inside}"

    @property
    def is_out(self) -> bool:
        """Whether it returns its results in arguments that exist for that."""
        return Tag.out in self.tags


@functools.cache
def _tags() -> dict[int, Tag]:
    return {tag.value: tag for tag in Tag}


@functools.cache
def _table() -> dict[str, dict[str, Entry]]:
    table: dict[str, dict[str, Entry]] = {}
    name = ""
    for line in zlib.decompress(_FILE.read_bytes()).decode().split("\n"):
        head = _HEAD.match(line)
        assert head is not None
        name, overload = head[1] or name, head[2] or "default"
        short, _, letters = line[head.end() - 1 :].rpartition(" ")
        table.setdefault(name, {})[overload] = Entry(name, overload, short, letters)
    return table


def names() -> list[str]:
    """All operators, sorted."""
    return list(_table())


def is_listed(name: str) -> bool:
    """Whether PyTorch has an operator of this name."""
    return name in _table()


def entries(name: str) -> dict[str, Entry]:
    """Overloads of an operator by name, in PyTorch's order; empty if there is none."""
    return _table().get(name, {})


def entry(name: str, overload: str) -> Entry | None:
    """One overload, or None.

    Args:
        name: of the operator.
        overload: "default" or its name.
    """
    return entries(name).get(overload)


def signatures(name: str) -> dict[str, tuple[str, ...]]:
    """Overloads that calls may mean: their arguments, `#` behind those that are numbers.

    Args:
        name: of the operator.
    """
    callables = [each for each in entries(name).values() if not (each.is_out or each.scripted)]
    return {each.overload: _keys(each) for each in callables}


def _keys(entry: Entry) -> tuple[str, ...]:
    arguments = read(entry).arguments
    return tuple([f"{a.name}#" if a.type.startswith("Scalar") and "Type" not in a.type else a.name
                  for a in arguments])  # fmt: skip


def absent(name: str) -> NotImplementedError:
    """The error of a call of an operator that is not computed here.

    Args:
        name: of the operator.
    """
    scripted = all(each.scripted for each in entries(name).values())
    where = "TorchScript's interpreter" if scripted else "another device or back end"
    hint = "Python's own operator" if scripted else "the public functions of torch and torch.nn"
    problem = f"torch.ops.aten.{name} is an operator of {where}"
    return failure(NotImplementedError, f"aten.{name}", problem, hint)


# ------------------------------------------------------------------------------------ reading
@dataclass(frozen=True)
class _Listed(FunctionSchema):
    text: str = ""

    def __str__(self) -> str:
        return self.text


@functools.cache
def read(entry: Entry) -> FunctionSchema:
    """The schema of an overload.

    Args:
        entry: of the table.
    """
    text = entry.text
    try:
        schema = parse(text)
    except RuntimeError:  # types of TorchScript
        schema = _loose(text)
    fields = (schema.name, schema.overload_name, schema.arguments, schema.returns)
    return _Listed(*fields, schema.returns_tuple, text)


def _loose(text: str) -> FunctionSchema:
    """A schema whose types are no more than text."""
    head, _, inside = text.partition("(")
    arguments, _, results = inside.rpartition(") -> ")
    name, _, overload = head.partition(".")
    starred, parts = False, []
    for part in split(arguments):
        starred = starred or part == "*"
        if part not in ("*", "..."):
            declared, equals, default = part.partition("=")
            kind, _, word = declared.rpartition(" ")
            parts.append(Argument(word, kind, None, starred, None, default if equals else None))
    many = results.startswith("(") and results.endswith(")")
    returned = split(results[1:-1]) if many else [results]
    outputs = tuple([Argument("", kind) for kind in returned])
    return FunctionSchema(name, overload, tuple(parts), outputs, many)
