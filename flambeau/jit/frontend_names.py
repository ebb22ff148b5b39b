"""Names of `torch.jit.frontend` beside the ones that this package uses itself.

PyTorch's functions there build its own syntax trees, which do not exist here: scripted code is
Python's syntax tree with names resolved. Those raise; the ones about Python's own trees work.
"""

from __future__ import annotations

import ast
import inspect
from typing import Any, NoReturn

_TREES = (
    "Builder ExprBuilder StmtBuilder WithItemBuilder build_class_def build_def build_expr "
    "build_ignore_context_manager build_param build_param_list build_stmt build_stmts "
    "build_withitem build_withitems get_class_assigns get_class_properties get_jit_class_def "
    "get_jit_def"
)
_RESERVED = "__jit"

pretty_node_names = {
    ast.FunctionDef: "function definitions",
    ast.For: "for loops",
    ast.Delete: "del statements",
    ast.ClassDef: "class definitions",
    ast.With: "with statements",
    ast.Raise: "raise statements",
    ast.Assert: "assertions",
    ast.Import: "import statements",
    ast.ImportFrom: "import statements",
    ast.Global: "global variables",
    ast.Break: "break statements",
    ast.Continue: "continue statements",
    ast.AsyncFunctionDef: "async function definitions",
    ast.AsyncFor: "async for loops",
    ast.AsyncWith: "async with statements",
    ast.Try: "try blocks",
    ast.Nonlocal: "nonlocal variables",
}
node_start_tokens = {
    ast.FunctionDef: "def",
    ast.For: "for",
    ast.Delete: "del",
    ast.ClassDef: "class",
    ast.With: "with",
    ast.Raise: "raise",
    ast.Assert: "assert",
    ast.Import: "import",
    ast.ImportFrom: "from",
    ast.Global: "global",
    ast.Break: "break",
    ast.Continue: "continue",
    ast.AsyncFunctionDef: "async def",
    ast.AsyncFor: "async for",
    ast.AsyncWith: "async with",
    ast.Try: "try",
    ast.Nonlocal: "nonlocal",
}


def _refuse(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"[jit.frontend.{name}] TorchScript's syntax trees are not in Flambeau\n"
            "hint: torch.jit.script(fn).code is the scripted source"
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Raises NotImplementedError."
    return function


def _refusing_class(name: str) -> type:
    return type(name, (), {"__init__": _refuse(name), "__doc__": "Making one raises.",
                           "__module__": __name__})  # fmt: skip


NAMES = {name: _refusing_class(name) if name[0].isupper() else _refuse(name)
         for name in _TREES.split()}  # fmt: skip
globals().update(NAMES)


def get_default_args(fn: Any) -> dict[str, Any]:
    """Names and default values of a function's parameters.

    Example:
        >>> from flambeau.jit.frontend import get_default_args
        >>> get_default_args(lambda x, y=2: x)
        {'y': 2}
    """
    if fn is None:
        return {}
    parameters = inspect.signature(fn).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def get_default_args_for_class(cls: type) -> dict[str, dict[str, Any]]:
    """`get_default_args` of a class's methods, by name."""
    methods = inspect.getmembers(cls, predicate=inspect.isfunction)
    return {name: get_default_args(method) for name, method in methods}


def is_reserved_name(name: str) -> bool:
    """Whether scripted code uses a name for itself."""
    return name.startswith(_RESERVED)


def is_torch_jit_ignore_context_manager(stmt: Any) -> bool:
    """Whether a statement is `with torch.jit._IgnoreContextManager(...)`."""
    call = stmt.items[0].context_expr if isinstance(stmt, ast.With) else None
    if not isinstance(call, ast.Call):
        return False
    return ast.unparse(call.func).endswith("jit._IgnoreContextManager")


def find_before(ctx: Any, pos: int, substr: str, offsets: tuple[int, int] = (0, 0)) -> Any:
    """The range of the last occurrence of a text before a position: two positions.

    Args:
        ctx: an object with `source`, the text.
        pos: the position.
        substr: what to find.
        offsets: added to its beginning and end.
    """
    start = ctx.source[:pos].rindex(substr)
    return start + offsets[0], start + len(substr) + offsets[1]
