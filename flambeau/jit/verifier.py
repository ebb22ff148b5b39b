"""The check of scripted code that comes from a file: it can only compute.

An archive's code runs as Python, so before it is compiled every node is of TorchScript's subset,
every free name is one of a closed list, and every attribute is an operator of tensors, a method of
lists, dictionaries and strings, or one that the archive's own modules have. Nothing of that reaches
files, other modules, or Python's internals; a damaged or hostile archive raises `RuntimeError`.
"""

from __future__ import annotations

import ast
import functools
import typing
from collections.abc import Collection
from typing import Any

from flambeau import _core
from flambeau.ir.lock import late
from flambeau.jit import names

_NODES = (
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign,
    ast.For, ast.While, ast.If, ast.Raise, ast.Assert, ast.Expr, ast.Pass, ast.Break, ast.Continue,
    ast.Delete, ast.With, ast.withitem, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Dict,
    ast.ListComp, ast.DictComp, ast.comprehension, ast.Compare, ast.Call, ast.keyword,
    ast.FormattedValue, ast.JoinedStr, ast.Constant, ast.Attribute, ast.Subscript, ast.Starred,
    ast.Name, ast.List, ast.Tuple, ast.Slice, ast.expr_context, ast.boolop, ast.operator,
    ast.unaryop, ast.cmpop,
)  # fmt: skip
_BUILTINS = names.BUILTINS - {"type", "iter", "next"}
_TYPES = {"Tensor", "NoneType", "List", "Dict", "Tuple", "Optional", "Union", "Any"}
_ROOTS = {"torch", "math", "__torch__", "__unused__", "self"}
_REFUSED_METHODS = frozenset(
    "numpy tofile storage untyped_storage _typed_storage data_ptr share_memory_ module_load "
    "register_hook register_post_accumulate_grad_hook backward grad_fn set_ __array__ "
    "__array_wrap__ __reduce_ex__ __deepcopy__ __torch_function__ __torch_dispatch__ map_ map2_ "
    "apply_ resize_ __dlpack__ __setstate__ retain_grad as_subclass".split()
)
_BEYOND_OPERATORS = frozenset(
    "torch.no_grad torch.enable_grad torch.inference_mode torch.device torch.Size torch.Tensor "
    "torch.jit.isinstance torch.tensor torch.as_tensor torch.nn.functional torch.autocast "
    "torch.autograd.profiler.record_function torch.finfo torch.iinfo torch._assert "
    "torch.is_grad_enabled torch.jit.fork torch.jit.wait torch.get_default_dtype".split()
)
_ALLOWED_DUNDERS = {"__getitem__", "__setitem__", "__len__", "__contains__", "__iter__"}


def refused(reason: str) -> RuntimeError:
    """The error of code that an archive may not hold."""
    return RuntimeError(
        f"[jit.load] the archive's code is not scripted code: {reason}\n"
        "hint: the file is damaged or hostile, save it again from its source"
    )


@functools.cache
def _methods() -> frozenset[str]:
    """Attributes that may be read on every value."""
    plain = {name for kind in (list, dict, str, tuple) for name in vars(kind)}
    tensors = {name for name in dir(_core.Tensor) if not name.startswith("__")}
    allowed = {name for name in plain | tensors if not name.startswith("__")} | _ALLOWED_DUNDERS
    return frozenset(allowed - _REFUSED_METHODS)


@functools.cache
def _own_of_modules() -> frozenset[str]:
    """Names of Python methods that scripted modules have: not for code from files."""
    from flambeau.jit.modules import RecursiveScriptModule

    held = set(dir(RecursiveScriptModule)) | set(vars(RecursiveScriptModule("")))
    return frozenset(held - {"forward", "training"})


def check_attribute_name(name: str) -> None:
    """Raises for an attribute that a module of an archive may not have."""
    if not isinstance(name, str) or name.startswith("__") or name in _own_of_modules():
        raise refused(f"an attribute {str(name)[:80]!r}")
    if name in _REFUSED_METHODS or (hasattr(_core.Tensor, name) and name not in _methods()):
        raise refused(f"an attribute {name[:80]!r}")


class Verifier(ast.NodeVisitor):
    """Checks the functions of one archive.

    Args:
        attributes: names of attributes and methods of the archive's modules and classes.
        functions: names of functions that the code may call without a prefix.
    """

    def __init__(self, attributes: Collection[str], functions: Collection[str] = ()) -> None:
        for name in attributes:
            check_attribute_name(name)
        self.functions = frozenset(functions)
        self.attributes = frozenset(attributes)
        self.locals: set[str] = set()

    def parse(self, text: str) -> ast.FunctionDef:
        """The function that a source text defines."""
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise refused(f"{type(error).__name__}: {error}") from None
        if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
            raise refused("it is not one function")
        function = tree.body[0]
        self.locals = _bound_names(function)
        if function.decorator_list or self.locals & _ROOTS - {"self"}:
            raise refused("it has a decorator or hides a name")
        try:
            self.visit(function)
        except RecursionError:
            raise refused("it is nested too deeply") from None
        return function

    def generic_visit(self, node: ast.AST) -> None:
        """Checks what a node holds; annotations are never evaluated."""
        if not isinstance(node, _NODES):
            raise refused(f"{type(node).__name__} is not supported")
        if isinstance(node, ast.FunctionDef) and node.name.startswith("__"):
            raise refused(f"a function {node.name[:80]!r}")
        for field, value in ast.iter_fields(node):
            if field not in ("annotation", "returns", "type_comment"):  # never evaluated
                self._visit_field(value)

    def _visit_field(self, value: Any) -> None:
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                self.visit(item)

    def visit_Name(self, node: ast.Name) -> None:
        """A local name, or one of the closed list."""
        if not isinstance(node.ctx, ast.Load) or node.id in self.locals:
            return
        allowed = node.id in _ROOTS | _BUILTINS | _TYPES | self.functions
        if not allowed and not _is_exception(node.id):
            raise refused(f"an unknown name {node.id[:80]!r}")
        if node.id in ("getattr", "hasattr"):
            raise refused("a computed attribute")

    def visit_Call(self, node: ast.Call) -> None:
        """A call; `getattr` and `hasattr` take the name of a known attribute."""
        function = node.func
        if isinstance(function, ast.Name) and function.id in ("getattr", "hasattr"):
            named = len(node.args) in (2, 3) and isinstance(node.args[1], ast.Constant)
            if not named or node.keywords:
                raise refused("a computed attribute")
            constant = typing.cast("ast.Constant", node.args[1])
            self._check_attribute(str(constant.value))
            for argument in node.args:
                self.visit(argument)
            return
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """An attribute of the library, of `math`, of the archive, or of a value."""
        path = _path(node)
        root = path.partition(".")[0]
        if root in ("torch", "math") and root not in self.locals:
            if not _is_public(path):
                raise refused(f"{path[:120]} is no operator")
            return
        if root == "__torch__":
            if any(part.startswith("__") for part in path.split(".")[1:] if part != "__main__"):
                raise refused(f"a name {path[:120]!r}")
            return
        self._check_attribute(node.attr)
        self.visit(node.value)

    def _check_attribute(self, name: str) -> None:
        if name not in self.attributes and name not in _methods():
            raise refused(f"an attribute {name[:80]!r}")


def _bound_names(function: ast.FunctionDef) -> set[str]:
    bound = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    return bound | {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }


def _path(node: ast.expr) -> str:
    """`torch.nn.functional.relu` of such a chain, else an empty text."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _is_exception(name: str) -> bool:
    import builtins

    value = getattr(builtins, name, None)
    return isinstance(value, type) and issubclass(value, Exception)


@functools.cache
def _is_public(path: str) -> bool:
    """Whether a dotted name is an operator, a dtype or one of a few helpers."""
    root, _, tail = path.partition(".")
    if root == "math":
        return "." not in tail and hasattr(late("math"), tail) and not tail.startswith("_")
    if path in _BEYOND_OPERATORS or _is_submodule_path(path):
        return True
    value: Any = late("flambeau")
    for part in tail.split("."):
        if part.startswith("__"):
            return False
        value = getattr(value, part, None)
    if isinstance(value, (_core.dtype, _core.layout, _core.memory_format, float)):
        return True
    name = path.rpartition(".")[2]
    if path.startswith("torch.Tensor.") and name in _REFUSED_METHODS:
        return False
    return value is not None and late("flambeau.overrides").resolve_name(value) is not None


def _is_submodule_path(path: str) -> bool:
    return path in ("torch.nn", "torch.linalg", "torch.fft", "torch.special", "torch.jit")
