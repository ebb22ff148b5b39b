"""Sections of a page in Markdown that are computed apart: each can be replaced on its own.

docs/coverage.md has one section that takes hours and two that take seconds; a change of names
should not cost hours, and a run of the database should not drop what others computed.
"""

from __future__ import annotations


def _parts(text: str, title: str) -> tuple[str, str, str]:
    """What is before a section, the section, and what is after it; the last two may be empty."""
    before, heading, rest = text.partition(f"{title}\n")
    end = rest.find("\n## ")
    if end < 0:
        return before, heading + rest, ""
    return before, heading + rest[: end + 1], rest[end + 1 :]


def section(text: str, title: str) -> list[str]:
    """The lines of a section, its title first; none if the page has no such section."""
    return _parts(text, title)[1].rstrip("\n").splitlines()


def replaced(text: str, lines: list[str]) -> str:
    """The page with these lines as the section of the same title, at its old place or the end."""
    if not lines:
        return text
    before, _, after = _parts(text, lines[0])
    body = "\n".join(lines).rstrip("\n") + "\n"
    return before.rstrip("\n") + "\n\n" + body + ("\n" + after if after else "")
