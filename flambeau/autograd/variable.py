"""`autograd.variable.Variable`: the old home of Variable, for code that imports it from there."""

from __future__ import annotations

from flambeau.autograd import Variable

__all__ = ["Variable"]
