"""The template engine of the kernels' C: `render` fills in a file `kernels/<name>.c.in`.

A file is C that clang-format can format, with

    $name                   the value of a name, also inside an identifier: `fb_fma_$V`. The name
                            ends at the first character that is no letter, digit or underscore; a
                            `$` there closes it: `fb_from$half$_u16x$lanes`.
    //$ for a, b in items   the lines up to `//$ end`, once for each item of a sequence
    //$ if name             the lines up to `//$ else` or `//$ end`, if the value is true
    //$ end

There is nothing else: values are computed in Python. A name that a file uses and nobody passes, and
a name that is passed and never used, raise `TemplateError`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

FOLDER = Path(__file__).parent / "kernels"
SUFFIX = ".c.in"

Value: TypeAlias = "str | int | Sequence[Value]"

_NAME = re.compile(r"\$([A-Za-z_]\w*)\$?")
_DIRECTIVE = re.compile(r"\s*//\$\s*(?P<words>.*?)\s*$")
_FOR = re.compile(r"for (?P<targets>\w+(?:, \w+)*) in (?P<items>\w+)$")
_IF = re.compile(r"if (?P<name>\w+)$")


class TemplateError(ValueError):
    """A mistake in a template or in the names it is rendered with; names file and line."""

    def __init__(self, file: str, line: int, text: str) -> None:
        """Message with the place in front."""
        super().__init__(f"[template] {file}:{line}: {text}")


@dataclass
class _Line:
    number: int
    text: str


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
    """

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.parts: list[_Part] = []
        self._parse(text)
        self._uses: dict[str, int] = {}  # name -> the line that first uses it
        for name, number in self._names(self.parts, frozenset()):
            self._uses.setdefault(name, number)

    def render(self, names: Mapping[str, Value], common: Mapping[str, Value] | None = None) -> str:
        """The text with all names filled in; those of `common` may stay unused.

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
        return "".join(self._rendered(self.parts, values))

    def _error(self, number: int, text: str) -> TemplateError:
        return TemplateError(self.file, number, text)

    # ----------------------------------------------------------------------------- parsing

    def _parse(self, text: str) -> None:
        blocks: list[_For | _If] = []
        parts = self.parts
        for number, line in enumerate(text.splitlines(), 1):
            directive = _DIRECTIVE.match(line)
            if directive is None:
                parts.append(_Line(number, line + "\n"))
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

    def _rendered(self, parts: list[_Part], names: Mapping[str, Value]) -> Iterator[str]:
        for part in parts:
            if isinstance(part, _Line):
                yield self._filled(part, names)
            elif isinstance(part, _If):
                yield from self._rendered(part.body if names[part.name] else part.other, names)
            else:
                for item in self._items(part, names[part.items]):
                    yield from self._rendered(part.body, {**names, **item})

    def _items(self, loop: _For, items: Value) -> Iterator[dict[str, Value]]:
        if isinstance(items, (str, int)):
            raise self._error(loop.number, f"{loop.items!r} is {items!r}, which is no sequence")
        for item in items:
            values: Sequence[Value] = [item]
            if len(loop.targets) > 1 and not isinstance(item, (str, int)):
                values = item
            if len(values) != len(loop.targets):
                raise self._error(loop.number, f"an item of {loop.items!r} does not fit: {item!r}")
            yield dict(zip(loop.targets, values))

    def _filled(self, line: _Line, names: Mapping[str, Value]) -> str:
        def value(name: re.Match[str]) -> str:
            given_value = names[name[1]]
            if isinstance(given_value, bool) or not isinstance(given_value, (str, int)):
                raise self._error(line.number, f"{name[1]!r} is {given_value!r}, which is no text")
            return str(given_value)

        return _NAME.sub(value, line.text)


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


__all__ = ["FOLDER", "SUFFIX", "Template", "TemplateError", "Value", "load", "render"]
