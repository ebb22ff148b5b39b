"""The source of a function, the part of Python that can be scripted, and errors that show a line.

TorchScript is a subset of Python: no generators, closures, exceptions handlers, `lambda`, variable
numbers of arguments. Code outside of it is refused when it is scripted, with the line at fault.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flambeau.ir.lock import late


@dataclass(frozen=True)
class SourceRange:
    """Lines of a file with a part of one marked."""

    file: str
    first_line: int
    lines: tuple[str, ...]
    line: int
    start: int
    end: int

    def highlight(self) -> str:
        """The lines around the part, with a mark under it."""
        shown = [f'  File "{self.file}", line {self.line}']
        for number, text in enumerate(self.lines, self.first_line):
            if abs(number - self.line) > 3:
                continue
            shown.append(text)
            if number == self.line:
                length = max(1, min(self.end, len(text)) - self.start)
                shown.append(" " * self.start + "~" * length + " <--- HERE")
        return "\n".join(shown) + "\n"


class FrontendError(Exception):
    """Source that cannot be scripted; its text shows where."""

    def __init__(self, source_range: SourceRange, msg: str) -> None:
        super().__init__(source_range, msg)
        self.source_range = source_range
        self.msg = msg

    def __str__(self) -> str:
        return f"{self.msg}:\n{self.source_range.highlight()}"


class NotSupportedError(FrontendError):
    """A feature of Python that TorchScript does not have."""


class UnsupportedNodeError(NotSupportedError):
    """A kind of statement or expression that TorchScript does not have."""


class FrontendTypeError(FrontendError):
    """A type that TorchScript does not have."""


_UNSUPPORTED: dict[type[ast.AST], str] = {
    ast.AsyncFunctionDef: "async function definitions",
    ast.FunctionDef: "function definitions",
    ast.ClassDef: "class definitions",
    ast.Try: "try blocks",
    ast.Import: "import statements",
    ast.ImportFrom: "import statements",
    ast.Global: "global variables",
    ast.Nonlocal: "nonlocal variables",
    ast.AsyncFor: "async for loops",
    ast.AsyncWith: "async with statements",
    ast.Match: "match statements",
    ast.Lambda: "Lambda",
    ast.Yield: "Yield",
    ast.YieldFrom: "YieldFrom",
    ast.Await: "Await",
    ast.GeneratorExp: "GeneratorExp",
    ast.SetComp: "SetComp",
    ast.Set: "Set",
    ast.NamedExpr: "NamedExpr",
}
_UNSUPPORTED[ast.TryStar] = "try blocks"


@dataclass
class Source:
    """A function's syntax tree, with the names that its body reads."""

    function: Callable[..., Any]
    tree: ast.FunctionDef
    file: str
    first_line: int
    lines: tuple[str, ...]
    column: int
    names: dict[str, Any] = field(default_factory=dict)

    def range_of(self, node: ast.AST) -> SourceRange:
        """The range of a node in the file."""
        line = getattr(node, "lineno", self.first_line)
        start = getattr(node, "col_offset", 0) + self.column
        end = getattr(node, "end_col_offset", None) or start + 1
        if getattr(node, "end_lineno", line) != line:
            end = start + 10_000
        return SourceRange(self.file, self.first_line, self.lines, line, start, end + self.column)

    def error(self, node: ast.AST, message: str) -> RuntimeError:
        """A RuntimeError that shows a node's line."""
        return RuntimeError(f"\n{message}:\n{self.range_of(node).highlight()}")


def read(function: Callable[..., Any]) -> Source:
    """The source of a Python function. Raises OSError where there is none."""
    function = inspect.unwrap(function)
    linecache.checkcache(function.__code__.co_filename)
    try:
        lines, first_line = inspect.getsourcelines(function)
    except OSError as error:
        raise OSError(
            f"Can't get source for {function}. TorchScript requires source access in order to "
            "carry out compilation, make sure original .py files are available."
        ) from error
    text = "".join(lines)
    column = len(lines[0]) - len(lines[0].lstrip())
    tree = ast.parse(textwrap.dedent(text)).body[0]
    if not isinstance(tree, ast.FunctionDef):
        source = Source(function, None, function.__code__.co_filename, 0, (), 0)  # type: ignore[arg-type]
        raise UnsupportedNodeError(source.range_of(tree), "Expected a single top-level function")
    ast.increment_lineno(tree, first_line - 1)
    shown = tuple(line.rstrip("\n") for line in lines)
    names = _names(function)
    return Source(function, tree, function.__code__.co_filename, first_line, shown, column, names)


def _names(function: Callable[..., Any]) -> dict[str, Any]:
    """Resolves a function's free names: builtins, globals, closed-over variables."""
    names = {**vars(builtins), **function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            names.pop(name, None)
    return names


def refuse(source: Source, node: ast.AST) -> None:
    """Raises for a node that TorchScript does not have."""
    reason = _UNSUPPORTED.get(type(node))
    if reason is not None:
        raise UnsupportedNodeError(source.range_of(node), f"{reason} aren't supported")
    if isinstance(node, (ast.For, ast.While)) and node.orelse:
        message = "else branches of loops aren't supported"
        raise NotSupportedError(source.range_of(node.orelse[0]), message)


def refuse_arguments(source: Source) -> None:
    """Raises for a function that takes a variable number of arguments."""
    arguments = source.tree.args
    variable = arguments.vararg or arguments.kwarg
    if variable is not None:
        raise NotSupportedError(
            source.range_of(variable),
            "Compiled functions can't take variable number of arguments or use keyword-only "
            "arguments with defaults",
        )


def local_names(tree: ast.FunctionDef) -> set[str]:
    """Names that a function binds: arguments, assignments, loop variables."""
    arguments = tree.args
    names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
    return names


def __getattr__(name: str) -> Any:
    """PyTorch's other names of this module."""
    from flambeau.runtime import missing

    if not name.startswith("__") and hasattr(late("flambeau.jit.frontend_names"), name):
        return getattr(late("flambeau.jit.frontend_names"), name)
    missing.refuse(__name__, name)
