"""Equations between sizes."""

from __future__ import annotations

from typing import Any


class Equality:
    """Two values that are to be equal.

    Args:
        lhs: one.
        rhs: the other.
    """

    def __init__(self, lhs: Any, rhs: Any) -> None:
        self.lhs = lhs
        self.rhs = rhs

    def __str__(self) -> str:
        return f"{self.lhs} = {self.rhs}"

    def __repr__(self) -> str:
        return f"{self.lhs} = {self.rhs}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equality) and (self.lhs, self.rhs) == (other.lhs, other.rhs)

    def __hash__(self) -> int:
        return hash((str(self.lhs), str(self.rhs)))
