"""The little Markdown that this project's pages use, as HTML: no dependency for a few tags.

Headings, paragraphs, bullet and numbered lists, tables, fenced and indented code, links, bold,
italics, inline code, comments. What is not in this list does not belong in a page.
"""

from __future__ import annotations

import html
import re

_INLINE = re.compile(
    r"(?P<code>`[^`]+`)|\*\*(?P<bold>.+?)\*\*|(?<!\w)\*(?P<italic>[^*\s][^*]*)\*(?!\w)"
    r"|\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)"
)
_ITEM = re.compile(r"^(?P<mark>[-*]|\d+\.) +(?P<text>.*)$")


def slug(text: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"[`*]", "", text).lower()).strip("-")


def inline(text: str) -> str:
    """One paragraph's text with its marks as tags."""
    parts, position = [], 0
    for found in _INLINE.finditer(text):
        parts.append(html.escape(text[position : found.start()], quote=False))
        parts.append(_mark(found))
        position = found.end()
    return "".join(parts) + html.escape(text[position:], quote=False)


def _mark(found: re.Match[str]) -> str:
    if found["code"]:
        return f"<code>{html.escape(found['code'][1:-1], quote=False)}</code>"
    if found["bold"]:
        return f"<b>{inline(found['bold'])}</b>"
    if found["italic"]:
        return f"<i>{inline(found['italic'])}</i>"
    target = re.sub(r"\.md(?=#|$)", ".html", found["target"])
    return f'<a href="{html.escape(target)}">{inline(found["text"])}</a>'


def code(lines: list[str]) -> str:
    """A block of code."""
    return f"<pre>{html.escape(chr(10).join(lines), quote=False)}</pre>"


def render(text: str) -> str:
    """A page as HTML."""
    return "\n".join(_Page(text).blocks())


class _Page:
    """Reads a page line by line."""

    def __init__(self, text: str) -> None:
        self.lines = re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL).splitlines()
        self.at = 0

    def blocks(self) -> list[str]:
        """The page's blocks, each as HTML."""
        found: list[str] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if not line.strip():
                self.at += 1
            elif line.startswith("```"):
                found.append(self._fenced())
            elif line.startswith("    "):
                found.append(self._indented())
            elif line.startswith("#"):
                found.append(self._heading(line))
            elif line.startswith("|"):
                found.append(self._table())
            elif _ITEM.match(line):
                found.append(self._list())
            else:
                found.append(f"<p>{inline(self._text())}</p>")
        return found

    def _fenced(self) -> str:
        stop = self.at + 1
        while stop < len(self.lines) and not self.lines[stop].startswith("```"):
            stop += 1
        inside = self.lines[self.at + 1 : stop]
        self.at = stop + 1
        return code(inside)

    def _indented(self) -> str:
        found = []
        while self.at < len(self.lines) and (
            self.lines[self.at].startswith("    ") or not self.lines[self.at].strip()
        ):
            found.append(self.lines[self.at][4:])
            self.at += 1
        while found and not found[-1].strip():
            found.pop()
        return code(found)

    def _heading(self, line: str) -> str:
        self.at += 1
        level = len(line) - len(line.lstrip("#"))
        text = line[level:].strip()
        return f'<h{level} id="{slug(text)}">{inline(text)}</h{level}>'

    def _text(self) -> str:
        """Lines of one paragraph or list item, joined."""
        found = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            ends = not line.strip() or line.startswith(("#", "|", "```"))
            if ends or (found and _ITEM.match(line)):
                break
            found.append(line.strip())
            self.at += 1
        return " ".join(found)

    def _list(self) -> str:
        first = _ITEM.match(self.lines[self.at])
        assert first is not None
        tag = "ul" if first["mark"] in "-*" else "ol"
        items = []
        while self.at < len(self.lines) and _ITEM.match(self.lines[self.at]):
            self.lines[self.at] = _ITEM.sub(r"\g<text>", self.lines[self.at])
            items.append(f"<li>{inline(self._text())}</li>")
        return f"<{tag}>{''.join(items)}</{tag}>"

    def _table(self) -> str:
        rows = []
        while self.at < len(self.lines) and self.lines[self.at].startswith("|"):
            cells = re.split(r"(?<!\\)\|", self.lines[self.at].strip().strip("|"))
            rows.append([cell.strip().replace("\\|", "|") for cell in cells])
            self.at += 1
        head, body = rows[0], rows[2:]
        lines = [_row(head, "th"), *(_row(row, "td") for row in body)]
        return f"<table>{''.join(lines)}</table>"


def _row(cells: list[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{inline(cell)}</{tag}>" for cell in cells) + "</tr>"
