"""Patterns of dotted names."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["GlobGroup"]

GlobPattern = str | Iterable[str]


class GlobGroup:
    """Names that match one of some patterns, and none of others.

    `*` matches characters of one part of a name, the part `**` any number of parts.

    Args:
        include: patterns.
        exclude: patterns of names that are left out.
        separator: of the parts.

    Example:
        >>> group = GlobGroup("torch.**", exclude="torch.nn.*")
        >>> group.matches("torch.optim.adam"), group.matches("torch.nn.init")
        (True, False)
    """

    def __init__(
        self, include: GlobPattern, *, exclude: GlobPattern = (), separator: str = "."
    ) -> None:
        self.separator = separator
        self.include = self._compiled(include)
        self.exclude = self._compiled(exclude)
        self._text = f"GlobGroup(include={include}, exclude={exclude})"

    def _compiled(self, patterns: GlobPattern) -> list[re.Pattern[str]]:
        texts = [patterns] if isinstance(patterns, str) else list(patterns)
        return [self._expression(text) for text in texts]

    def _expression(self, pattern: str) -> re.Pattern[str]:
        """A regular expression of names that begin with the separator."""
        separator = re.escape(self.separator)
        one = f"[^{separator}]"

        def part(text: str) -> str:
            if text == "**":
                return f"(?:{separator}{one}+)*"
            if "**" in text:
                raise ValueError("** can only appear as an entire path segment")
            return separator + f"{one}*".join(map(re.escape, text.split("*")))

        return re.compile("".join(map(part, pattern.split(self.separator))))

    def matches(self, candidate: str) -> bool:
        """Whether a name is one of them."""
        name = self.separator + candidate
        return any(p.fullmatch(name) for p in self.include) and not any(
            p.fullmatch(name) for p in self.exclude
        )

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__
