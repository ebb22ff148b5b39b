"""From a Python function to scripted code: free names resolved, dead branches dropped.

The result is ordinary Python with a closed set of names (`names`), so the same text is run, shown
as `.code` and stored in archives. `torch.jit.is_scripting()` is True in it and branches that this
decides disappear before they are looked at, as programs written for TorchScript rely on.
"""

from __future__ import annotations

import ast
import enum
import inspect
import typing
from collections.abc import Callable
from typing import Any, Protocol

from flambeau import _core
from flambeau.jit import frontend, markers, names
from flambeau.jit.frontend import Source
from flambeau.jit.script_types import spelling
from flambeau.jit.signature import Schema


class Unit(Protocol):
    """Scripts the functions and classes that a function uses."""

    def name_of_function(self, function: Callable[..., Any]) -> str:
        """The name in scripted code of a function, scripted now if it was not yet."""

    def name_of_python(self, function: Callable[..., Any]) -> str:
        """The name in scripted code of a function that stays Python."""

    def name_of_class(self, cls: type) -> str:
        """The name in scripted code of a class."""


class Owner(Protocol):
    """The module whose method is scripted."""

    def use(self, attribute: str) -> None:
        """Scripts a method of this name. Raises AttributeError if there is no such name."""

    def fact(self, attribute: str) -> Any:
        """A constant attribute's value, else `UNKNOWN`."""

    def has(self, attribute: str) -> bool:
        """Whether the module has an attribute or method."""


UNKNOWN = object()
_FALSE_IN_SCRIPTS = ("is_tracing", "_get_tracing_state", "is_compiling", "is_dynamo_compiling",
                     "has_torch_function", "has_torch_function_unary",
                     "has_torch_function_variadic")  # fmt: skip


class Rewriter(ast.NodeTransformer):
    """Rewrites one function's body."""

    def __init__(self, source: Source, schema: Schema, unit: Unit, owner: Owner | None) -> None:
        self.source, self.schema, self.unit, self.owner = source, schema, unit, owner
        self.locals = frontend.local_names(source.tree)
        self.python_calls: list[str] = []
        first = source.tree.args.args[:1] if owner is not None else []
        self.own_name = first[0].arg if first else None  # "self" in scripted code

    def run(self, name: str) -> ast.FunctionDef:
        """The function under its new name, with TorchScript's types as annotations."""
        frontend.refuse_arguments(self.source)
        tree = self.source.tree
        body = self._block(tree.body)
        docstring = body and isinstance(body[0], ast.Expr) and _is_text(body[0].value)
        arguments = self._arguments()
        returns = self.schema.returns
        return ast.FunctionDef(
            name=name,
            args=arguments,
            body=(body[1:] if docstring else body) or [ast.Pass()],
            decorator_list=[],
            returns=None if returns is inspect.Parameter.empty else _annotation(returns),
            type_comment=None,
            lineno=tree.lineno,
            col_offset=0,
            end_lineno=tree.end_lineno,
            end_col_offset=0,
        )

    def _arguments(self) -> ast.arguments:
        own = self.source.tree.args
        all_names = [a.arg for a in (*own.posonlyargs, *own.args, *own.kwonlyargs)]
        kinds = {argument.name: argument for argument in self.schema.arguments}
        if self.own_name is not None:
            all_names[0] = "self"
        arguments = [ast.arg(name, _annotation(kinds[name].type) if name in kinds else None)
                     for name in all_names]  # fmt: skip
        empty = inspect.Parameter.empty
        defaults = [
            self._default(kinds[name].default)
            for name in all_names
            if name in kinds and kinds[name].default is not empty
        ]
        return ast.arguments([], arguments, None, [], [], None, defaults)

    def _default(self, value: Any) -> ast.expr:
        if names.is_constant(value):
            return names.constant(value)
        return self._reference(value, self.source.tree)

    def _block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        body: list[ast.stmt] = []
        for statement in statements:
            rewritten = self.visit(statement)
            body.extend(rewritten if isinstance(rewritten, list) else [rewritten])
            if isinstance(statement, (ast.Return, ast.Raise)) or _ends(rewritten):
                break  # what follows never runs and need not be in the subset
        return body

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Rewrites what a node holds. Raises for nodes outside of the subset."""
        frontend.refuse(self.source, node)
        return super().generic_visit(node)

    # Branches that are decided while scripting.

    def visit_If(self, node: ast.If) -> Any:
        """An `if`; only the branch that runs where the test is known."""
        truth = self._truth(node.test)
        if truth is not None:
            chosen = node.body if truth else node.orelse
            return self._block(chosen) or [ast.copy_location(ast.Pass(), node)]
        test = self.visit(node.test)
        body = self._block(node.body) or [ast.Pass()]
        return ast.copy_location(ast.If(test, body, self._block(node.orelse)), node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        """`a if test else b`; one of them where the test is known."""
        truth = self._truth(node.test)
        if truth is not None:
            return self.visit(node.body if truth else node.orelse)
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> Any:
        """An assertion; nothing where it is known to hold."""
        if self._truth(node.test):
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def _truth(self, node: ast.expr) -> bool | None:
        """The value of a test that does not depend on the run, or None."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            truth = self._truth(node.operand)
            return None if truth is None else not truth
        if isinstance(node, ast.BoolOp):
            return self._truth_of_several(node)
        if isinstance(node, ast.Constant):
            return bool(node.value)
        if isinstance(node, ast.Call):
            return self._truth_of_call(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._truth_of_none(node)
        value = self._fact(node)
        return value if isinstance(value, bool) else None

    def _truth_of_several(self, node: ast.BoolOp) -> bool | None:
        decisive = isinstance(node.op, ast.Or)
        truths = [self._truth(value) for value in node.values]
        for truth in truths:
            if truth is decisive:
                return decisive
            if truth is None:
                return None
        return not decisive

    def _truth_of_call(self, node: ast.Call) -> bool | None:
        function = self._value(node.func)
        name = getattr(function, "__name__", "")
        if name == "is_scripting" and names.is_library(function):
            return True
        if name in _FALSE_IN_SCRIPTS and names.is_library(function):
            return False
        if function is hasattr and len(node.args) == 2 and self._is_self(node.args[0]):
            attribute = node.args[1]
            if self.owner is not None and isinstance(attribute, ast.Constant):
                return self.owner.has(str(attribute.value))
        return None

    def _truth_of_none(self, node: ast.Compare) -> bool | None:
        """`self.x is None`, where the attribute is a constant."""
        value, operator = self._fact(node.left), node.ops[0]
        right = node.comparators[0]
        if value is UNKNOWN or not (isinstance(right, ast.Constant) and right.value is None):
            return None
        if isinstance(operator, ast.Is):
            return value is None
        return value is not None if isinstance(operator, ast.IsNot) else None

    def _fact(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Attribute) and self._is_self(node.value) and self.owner:
            return self.owner.fact(node.attr)
        return UNKNOWN

    def _is_self(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id == self.own_name

    # Names.

    def _value(self, node: ast.expr) -> Any:
        """Resolves an expression of free names (`torch.nn.functional.relu`) or `UNKNOWN`."""
        if isinstance(node, ast.Name):
            return UNKNOWN if node.id in self.locals else self.source.names.get(node.id, UNKNOWN)
        if isinstance(node, ast.Attribute):
            holder = self._value(node.value)
            if holder is UNKNOWN or names.is_constant(holder) or isinstance(holder, _core.Tensor):
                return UNKNOWN
            return getattr(holder, node.attr, UNKNOWN)
        return UNKNOWN

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A name: a local one stays, a free one is resolved."""
        if node.id == self.own_name:
            return ast.copy_location(ast.Name("self", node.ctx), node)
        if node.id in self.locals or not isinstance(node.ctx, ast.Load):
            return node
        if node.id not in self.source.names:
            raise self.source.error(node, f"undefined value {node.id}")
        return ast.copy_location(self._reference(self.source.names[node.id], node), node)

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        """An attribute of a module of the library, of `self`, or of a value."""
        value = self._value(node)
        if value is not UNKNOWN:
            return ast.copy_location(self._reference(value, node), node)
        if self._is_self(node.value) and isinstance(node.ctx, ast.Load):
            assert self.owner is not None
            try:
                self.owner.use(node.attr)
            except AttributeError as error:
                raise self.source.error(node, str(error)) from None
        base = self.visit(node.value)
        return ast.copy_location(ast.Attribute(base, node.attr, node.ctx), node)

    def visit_Call(self, node: ast.Call) -> Any:
        """A call; what only declares a type disappears."""
        function = self._value(node.func)
        if function in (markers.annotate, typing.cast) and len(node.args) == 2:
            return self.visit(node.args[1])
        truth = self._truth_of_call(node)
        if truth is not None:
            return ast.copy_location(ast.Constant(truth), node)
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            message = "super() is not supported in scripted methods other than __init__"
            raise frontend.NotSupportedError(self.source.range_of(node), message)
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """`x: int = 1`: the type says nothing to a run."""
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        target, value = self.visit(node.target), self.visit(node.value)
        return ast.copy_location(ast.Assign([target], value), node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """An element, or a type such as `List[int]`."""
        kind = self._value(node.value)
        if kind is not UNKNOWN and (isinstance(kind, type) or _is_typing(kind)):
            element = eval(ast.unparse(node), dict(self.source.names))  # noqa: S307 - own source
            return ast.copy_location(_annotation(element), node)
        return self.generic_visit(node)

    def _reference(self, value: Any, node: ast.AST) -> ast.expr:
        """The expression for a value that a free name means."""
        if isinstance(value, enum.Enum):
            text = f"{self.unit.name_of_class(type(value))}.{value.name}"
        elif names.is_constant(value):
            return names.constant(value)
        elif names.is_builtin(value):
            text = value.__name__
        elif _is_typing(value):
            text = spelling(value)
        elif (library := names.public_name(value)) is not None and not _is_scripted(value):
            text = library
        elif isinstance(value, type):
            text = self.unit.name_of_class(value)
        elif callable(value) and not isinstance(value, _core.Tensor):
            text = self._function(value, node)
        else:
            raise self.source.error(
                node,
                f"python value of type '{type(value).__name__}' cannot be used as a value. Perhaps "
                "it is a closed over global variable? If so, please consider passing it in as an "
                "argument or use a local variable instead.",
            )
        return names.expression(text)

    def _function(self, function: Any, node: ast.AST) -> str:
        mark = markers.mark_of(function)
        if mark == markers.IGNORE:
            name = self.unit.name_of_python(function)
            self.python_calls.append(getattr(function, "__name__", name))
            return name
        if mark == markers.UNUSED:
            return f"__unused__({getattr(function, '__name__', 'function')!r})"
        if not inspect.isfunction(function) and not _is_scripted(function):
            kind = type(function).__name__
            raise self.source.error(node, f"Python value of type '{kind}' cannot be called")
        return self.unit.name_of_function(function)


def unused_stub(name: str) -> Callable[..., Any]:
    """The function that scripted code calls instead of one marked as unused."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"{name} is marked with @torch.jit.unused: scripted code cannot run it")

    refuse.unused = True  # type: ignore[attr-defined]
    return refuse


def _is_scripted(value: Any) -> bool:
    return getattr(value, "scripted", False) is True


def _is_typing(value: Any) -> bool:
    return getattr(value, "__module__", None) == "typing" or typing.get_origin(value) is not None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _ends(statements: Any) -> bool:
    last = statements[-1] if isinstance(statements, list) and statements else None
    return isinstance(last, (ast.Return, ast.Raise))


def _annotation(kind: Any) -> ast.expr:
    return names.expression(spelling(kind))
