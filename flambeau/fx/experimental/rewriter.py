"""`RewritingTracer`: traces functions whose `assert` statements become calls."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any

import flambeau as torch
from flambeau.fx import Graph, Tracer


class AST_Rewriter(ast.NodeTransformer):
    """Turns `assert condition, text` into `torch._assert(condition, text)`."""

    def rewrite(self, fn: FunctionType) -> FunctionType:
        """A function with the same body, rewritten.

        Args:
            fn: the function; its source must be readable.
        """
        source = textwrap.dedent(inspect.getsource(fn))
        tree = ast.fix_missing_locations(self.visit(ast.parse(source)))
        code = compile(tree, "<torch.fx rewriter>", "exec")
        names: dict[str, Any] = {**fn.__globals__, "torch": torch}
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            names[name] = cell.cell_contents
        exec(code, names)
        new: Any = names[fn.__name__]
        plain = FunctionType(new.__code__, names, fn.__name__, fn.__defaults__, new.__closure__)
        plain.__kwdefaults__ = copy.copy(fn.__kwdefaults__)
        return functools.update_wrapper(plain, fn)  # type: ignore[return-value]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Drops decorators, which ran before."""
        node.decorator_list = []
        self.generic_visit(node)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """A call in place of the statement."""
        function = ast.parse("torch._assert", mode="eval").body
        message = node.msg if node.msg else ast.Constant(value="")
        call = ast.Call(func=function, args=[node.test, message], keywords=[])
        return ast.copy_location(ast.Expr(value=call), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """`x: T = y` as `x = torch.fx.annotate.annotate(y, T)`."""
        if node.value is None:
            return node
        function = ast.parse("torch.fx.annotate.annotate", mode="eval").body
        call = ast.Call(func=function, args=[node.value, node.annotation], keywords=[])
        return ast.copy_location(ast.Assign(targets=[node.target], value=call), node)


class RewritingTracer(Tracer):
    """A tracer of functions and modules whose `assert` statements are recorded."""

    def trace(
        self,
        root: torch.nn.Module | Callable[..., Any],
        concrete_args: dict[str, Any] | None = None,
    ) -> Graph:
        """Traces the rewritten function.

        Args:
            root: the module or function.
            concrete_args: see `Tracer.trace`.
        """
        return super().trace(_rewrite(root), concrete_args)


def _rewrite(fn: Any) -> Any:
    """A function rewritten, or a copy of a module whose methods `forward` are."""
    if isinstance(fn, FunctionType):
        return AST_Rewriter().rewrite(fn)

    def rewrite_module(module: torch.nn.Module) -> torch.nn.Module:
        kind = type(module)
        if kind.__module__.startswith(("flambeau.nn", "torch.nn")):
            return module

        class Rewritten(kind):  # type: ignore[misc,valid-type]
            """The module with another `forward`."""

        Rewritten.__name__, Rewritten.__module__ = kind.__name__, kind.__module__
        Rewritten.forward = AST_Rewriter().rewrite(kind.forward)
        duplicate = Rewritten.__new__(Rewritten)
        duplicate.__dict__.update(module.__dict__)
        children = {name: rewrite_module(child) for name, child in module._modules.items()}
        duplicate.__dict__["_modules"] = children
        return duplicate

    return rewrite_module(fn)
