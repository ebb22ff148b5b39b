"""The template engine of C text: `render` fills in a file `kernels/<name>.c.in`.

A file is C that clang-format can format, with

    $name                   the value of a name, also inside an identifier: `fb_fma_$V`. The name
                            ends at the first character that is no letter, digit or underscore; a
                            `$` there closes it: `fb_from$half$_u16x$lanes`.
    //$ for a, b in items   the lines up to `//$ end`, once for each item of a sequence
    //$ if name             the lines up to `//$ else` or `//$ end`, if the value is true; both
                            parts, if it is a `Condition`, which the C preprocessor decides
    //$ end
    //$ helper name         begins a template of its own (`helpers`), in files of helper functions

There is nothing else: values are computed in Python. A name that a file uses and nobody passes, and
a name that is passed and never used, raise `TemplateError`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

FOLDER = Path(__file__).parent / "kernels"
SUFFIX = ".c.in"

Value: TypeAlias = "str | int | Condition | Sequence[Value]"

_NAME = re.compile(r"\$([A-Za-z_]\w*)\$?")
_CALL = re.compile(r"\bfb_[a-z$][\w$]*")
_IDLE = re.compile(r"\s*(//(?!\$)|$)")
_GAP = re.compile(r"(?<=\S)  +")
_HELPER = re.compile(r"//\$ helper (?P<name>\w+)(?: for (?P<kinds>[\w ]+))?$")
_DIRECTIVE = re.compile(r"\s*//\$\s*(?P<words>.*?)\s*$")
_FOR = re.compile(r"for (?P<targets>\w+(?:, \w+)*) in (?P<items>\w+)$")
_IF = re.compile(r"if (?P<name>\w+)$")


class TemplateError(ValueError):
    """A mistake in a template or in the names it is rendered with; names file and line."""

    def __init__(self, file: str, line: int, text: str) -> None:
        """Message with the place in front."""
        super().__init__(f"[template] {file}:{line}: {text}")


@dataclass(frozen=True)
class Condition:
    """A condition that is known when C is compiled: a line like `#ifndef __clang__`."""

    line: str


@dataclass
class _Line:
    number: int
    text: str
    calls: tuple[str, ...]  # names `fb_...`, not filled in


@dataclass
class _For:
    number: int
    targets: tuple[str, ...]
    items: str
    body: list[_Part] = field(default_factory=list)


@dataclass
class _If:
    number: int
    name: str
    body: list[_Part] = field(default_factory=list)
    other: list[_Part] = field(default_factory=list)


_Part: TypeAlias = "_Line | _For | _If"


class Template:
    """A parsed template.

    Args:
        file: its name, for messages.
        text: its text.
        first: the number of its first line in the file.
        compact: leaves out what compilers need not read: comments and blank lines, alignment.
    """

    def __init__(self, file: str, text: str, first: int = 1, compact: bool = False) -> None:
        self.file = file
        self.parts: list[_Part] = []
        lines: Iterable[tuple[int, str]] = enumerate(text.splitlines(), first)
        if compact:
            lines = ((n, _GAP.sub(" ", line)) for n, line in lines if not _IDLE.match(line))
        self._parse(lines)
        self._uses: dict[str, int] = {}  # name -> the line that first uses it
        for name, number in self._names(self.parts, frozenset()):
            self._uses.setdefault(name, number)

    def render(
        self,
        names: Mapping[str, Value],
        common: Mapping[str, Value] | None = None,
        calls: dict[str, None] | None = None,
    ) -> str:
        """The text with all names filled in.

        Args:
            names: all are used.
            common: names that may stay unused.
            calls: takes the names `fb_...` in the text, in order.

        Raises:
            TemplateError: a name is unknown, is never used, or has an unsuitable value.
        """
        values = {**(common or {}), **names}
        for name, number in self._uses.items():
            if name not in values:
                raise self._error(number, f"unknown name {name!r}")
        for name in names:
            if name not in self._uses:
                raise self._error(1, f"the name {name!r} is passed and never used")
        return "".join(self._rendered(self.parts, values, {} if calls is None else calls))

    def _error(self, number: int, text: str) -> TemplateError:
        return TemplateError(self.file, number, text)

    # ----------------------------------------------------------------------------- parsing

    def _parse(self, lines: Iterable[tuple[int, str]]) -> None:
        blocks: list[_For | _If] = []
        parts = self.parts
        for number, line in lines:
            directive = _DIRECTIVE.match(line)
            if directive is None:
                parts.append(_Line(number, line + "\n", tuple(_CALL.findall(line))))
                continue
            words = directive["words"]
            block = blocks[-1] if blocks else None
            if words == "else" and isinstance(block, _If) and parts is block.body:
                parts = block.other
            elif words == "end" and block is not None:
                blocks.pop()
                parts = self._innermost(blocks)
            else:
                opened = self._opened(number, words)
                parts.append(opened)
                blocks.append(opened)
                parts = opened.body
        if blocks:
            raise self._error(blocks[-1].number, "the block has no `//$ end`")

    def _innermost(self, blocks: list[_For | _If]) -> list[_Part]:
        """The list that the lines behind a closed block belong to."""
        if not blocks:
            return self.parts
        block = blocks[-1]
        return block.other if isinstance(block, _If) and block.other else block.body

    def _opened(self, number: int, words: str) -> _For | _If:
        loop, choice = _FOR.match(words), _IF.match(words)
        if loop is not None:
            return _For(number, tuple(loop["targets"].split(", ")), loop["items"])
        if choice is not None:
            return _If(number, choice["name"])
        raise self._error(number, f"`//$ {words}` is no directive that can stand here")

    def _names(self, parts: list[_Part], bound: frozenset[str]) -> Iterator[tuple[str, int]]:
        """Names that are not loop variables, with their lines."""
        for part in parts:
            if isinstance(part, _Line):
                used = _NAME.findall(part.text)
                if "$" in _NAME.sub("", part.text):
                    raise self._error(part.number, "a `$` without a name")
            else:
                used = [part.items if isinstance(part, _For) else part.name]
            yield from ((name, part.number) for name in used if name not in bound)
            if isinstance(part, _For):
                yield from self._names(part.body, bound.union(part.targets))
            elif isinstance(part, _If):
                yield from self._names([*part.body, *part.other], bound)

    # ----------------------------------------------------------------------------- rendering

    def _rendered(
        self, parts: list[_Part], names: Mapping[str, Value], calls: dict[str, None]
    ) -> Iterator[str]:
        for part in parts:
            if isinstance(part, _Line):
                yield self._filled(part.text, part.number, names)
                for call in part.calls:
                    calls[self._filled(call, part.number, names)] = None
            elif isinstance(part, _If):
                yield from self._chosen(part, names, calls)
            else:
                for item in self._items(part, names[part.items]):
                    yield from self._rendered(part.body, {**names, **item}, calls)

    def _chosen(
        self, part: _If, names: Mapping[str, Value], calls: dict[str, None]
    ) -> Iterator[str]:
        value = names[part.name]
        if not isinstance(value, Condition):
            yield from self._rendered(part.body if value else part.other, names, calls)
            return
        yield f"{value.line}\n"
        yield from self._rendered(part.body, names, calls)
        if part.other:
            yield "#else\n"
            yield from self._rendered(part.other, names, calls)
        yield "#endif\n"

    def _items(self, loop: _For, items: Value) -> Iterator[dict[str, Value]]:
        if isinstance(items, (str, int, Condition)):
            raise self._error(loop.number, f"{loop.items!r} is {items!r}, which is no sequence")
        for item in items:
            values: Sequence[Value] = [item]
            if len(loop.targets) > 1 and not isinstance(item, (str, int, Condition)):
                values = item
            if len(values) != len(loop.targets):
                raise self._error(loop.number, f"an item of {loop.items!r} does not fit: {item!r}")
            yield dict(zip(loop.targets, values))

    def _filled(self, text: str, number: int, names: Mapping[str, Value]) -> str:
        def value(name: re.Match[str]) -> str:
            given_value = names[name[1]]
            if isinstance(given_value, bool) or not isinstance(given_value, (str, int)):
                raise self._error(number, f"{name[1]!r} is {given_value!r}, which is no text")
            return str(given_value)

        return _NAME.sub(value, text) if "$" in text else text


def helpers(file: str, text: str) -> dict[str, Template]:
    """The templates of a file of helper functions, by name; comments are left out.

    Raises:
        TemplateError: a mistake in a template, or two of one name.
    """
    parts: dict[str, tuple[int, list[str]]] = {}
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        helper = _HELPER.match(line)
        if helper is None:
            lines.append(line)
            continue
        if helper["name"] in parts:
            raise TemplateError(file, number, f"a second helper {helper['name']!r}")
        lines = []
        parts[helper["name"]] = number + 1, lines
    return {
        name: Template(file, "\n".join(text), first, compact=True)
        for name, (first, text) in parts.items()
    }


def declared(text: str) -> dict[str, tuple[str, ...]]:
    """The helpers of a file that state their kinds themselves: `//$ helper name for f32 f64`."""
    headers = filter(None, map(_HELPER.match, text.splitlines()))
    return {each["name"]: tuple(each["kinds"].split()) for each in headers if each["kinds"]}


@functools.cache
def load(name: str) -> Template:
    """The template of the file `kernels/<name>.c.in`."""
    path = FOLDER / f"{name}{SUFFIX}"
    return Template(path.name, path.read_text())


def render(name: str, names: Mapping[str, Value], common: Mapping[str, Value] | None = None) -> str:
    """The C text of `kernels/<name>.c.in` with names filled in.

    Args:
        name: of the file.
        names: all are used.
        common: names that several files share; a file may use some of them.

    Raises:
        TemplateError: a name is unknown, is never used, or has an unsuitable value.
    """
    return load(name).render(names, common)


__all__ = [
    "FOLDER",
    "SUFFIX",
    "Condition",
    "Template",
    "TemplateError",
    "Value",
    "helpers",
    "load",
    "render",
]
