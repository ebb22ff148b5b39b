"""Modules of one function of `nn.functional`: pages and texts derive from the function's.

Activations, losses and pooling are documented once, by the operator. A class of this kind has a
constructor that stores the options and a `forward` that passes them on.
"""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.modules.module import Module


class Page:
    """The docstring of a class: its function's page, whose example calls the module.

    Computed when it is read: most programs read none.
    """

    __slots__ = ("function",)

    def __init__(self, function: str) -> None:
        self.function = function

    def __get__(self, instance: Any, owner: type | None = None) -> str:
        cls = type(instance) if owner is None else owner
        page = inspect.getdoc(getattr(F, self.function)) or ""
        calls = _Calls(self.function, cls)
        return re.sub(
            r"(?m)^( *(?:>>>|\.\.\.) )(.*)$", lambda m: m[1] + calls.rewritten(m[2]), page
        )


class _Calls(ast.NodeTransformer):
    """Rewrites calls of a function: `F.elu(x, 2.0)` becomes `nn.ELU(2.0)(x)`."""

    def __init__(self, function: str, cls: type) -> None:
        self.function = function
        self.cls = cls
        self.operands = len(inspect.signature(getattr(cls, "forward")).parameters) - 1  # noqa: B009

    def rewritten(self, line: str) -> str:
        """A line of an example."""
        tree = ast.parse(line)
        return ast.unparse(self.visit(tree)) if f"{self.function}(" in line else line

    def visit_Call(self, node: ast.Call) -> ast.Call:  # noqa: N802 - the protocol's name
        """The call of the module in the place of the function's."""
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name != self.function:
            return node
        operands, options = node.args[: self.operands], node.args[self.operands :]
        made = ast.Attribute(ast.Name("nn"), self.cls.__name__)
        return ast.Call(ast.Call(made, options, node.keywords), operands, [])


class FunctionModule(Module):
    """A module that is a function with options.

    A class states where it is defined the function, and which options its text shows:
    `class ELU(FunctionModule, function="elu", shown="alpha inplace")`.
    """

    _shown: tuple[str, ...] = ()

    def __init_subclass__(cls, function: str = "", shown: str | None = None) -> None:
        super().__init_subclass__()
        if shown is not None:
            cls._shown = tuple(shown.split())
        if function:
            if cls.__doc__ is None:
                cls.__doc__ = Page(function)  # type: ignore[assignment]  # computes the text
            forward = cls.__dict__.get("forward")
            if forward is not None:
                forward.__doc__ = f"`F.{function}`."

    def extra_repr(self) -> str:
        """The options that are shown; `inplace` where it is set."""
        return ", ".join(
            f"{name}={getattr(self, name)!r}"
            for name in self._shown
            if name != "inplace" or self.inplace
        )
