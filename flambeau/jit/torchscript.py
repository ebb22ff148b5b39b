"""Archives that PyTorch's own TorchScript wrote: weights, and the code of plain modules.

An archive's code is a subset of Python in which each operation is a call, `torch.add(x, 1)`. It is
never run unchanged: each function is rewritten from its syntax tree into calls of the closed list
in `torchscript_operators`. A function with unknown constructs raises NotImplementedError when it is
called, so that weights can be read in any case.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from flambeau import _core
from flambeau.ir.failure import failure
from flambeau.jit import torchscript_operators as operators
from flambeau.jit.functions import Code, Program
from flambeau.jit.modules import RecursiveScriptModule, ScriptModule
from flambeau.jit.script_types import Tensor
from flambeau.jit.signature import schema_of_tree
from flambeau.jit.verifier import refused
from flambeau.nn import Parameter
from flambeau.serialization.scripted_pickles import ScriptedObject

_VALUES = (int, float, bool, complex, str, type(None), _core.Tensor, _core.device, _core.dtype)
_NUMBERS = {"inf": float("inf"), "nan": float("nan"), "infj": complex(0, float("inf"))}
_SKIPPED = ("_is_full_backward_hook",)
_BUILTINS = {"range": range, "int": operators.to_int, "float": operators.to_float,
             "bool": operators.to_bool, "str": str, "complex": complex}  # fmt: skip


class _Unsupported(Exception):
    """Raised for code that this reader does not support."""


class _Class:
    """A class of the code: its attributes, constants and methods."""

    def __init__(self, name: str, tree: ast.ClassDef) -> None:
        self.name, self.bases = name, [ast.unparse(base) for base in tree.bases]
        self.attributes: set[str] = set()
        self.parameters: set[str] = set()
        self.buffers: set[str] = set()
        self.constants: dict[str, Any] = {}
        self.methods: dict[str, ast.FunctionDef] = {}
        self.fields: list[str] = []
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                self.methods[node.name] = node
            elif isinstance(node, ast.AnnAssign):
                self._declare(node)
            elif isinstance(node, ast.Assign):
                self._assign(node)

    def _declare(self, node: ast.AnnAssign) -> None:
        name = _declared_name(node.target)
        self.attributes.add(name)
        self.fields.append(name)
        if node.value is not None:
            self.constants[name] = ast.literal_eval(node.value)

    def _assign(self, node: ast.Assign) -> None:
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id in ("__parameters__", "__buffers__"):
            names = set(ast.literal_eval(node.value))
            if target.id == "__parameters__":
                self.parameters |= names
            else:
                self.buffers |= names

    @property
    def is_module(self) -> bool:
        """Whether its objects are modules."""
        return "Module" in self.bases


def _declared_name(target: ast.expr) -> str:
    if isinstance(target, ast.Name):
        return target.id
    if isinstance(target, ast.Subscript):  # __annotations__["0"]
        return str(ast.literal_eval(target.slice))
    raise refused("a declaration without a name")


def restored(content: ScriptedObject, records: Mapping[str, bytes]) -> Any:
    """The module that an archive of PyTorch's describes.

    Args:
        content: the pickled object.
        records: files of the archive by name.

    Raises:
        RuntimeError: the archive is damaged.
        NotImplementedError: an attribute is of a kind that is not known here.
    """
    constants = content.__dict__.get("constants", ())
    return _Archive(records, tuple(constants)).module(content)


class _Archive:
    """The classes and functions of one archive."""

    def __init__(self, records: Mapping[str, bytes], constants: tuple[Any, ...]) -> None:
        self.constants = constants
        self.program = Program()
        self.classes: dict[str, _Class] = {}
        self.functions: dict[str, ast.FunctionDef] = {}
        self.codes: dict[Any, Code] = {}
        self._modules: dict[int, RecursiveScriptModule] = {}
        self._numbers = itertools.count()
        self._tuples: dict[str, Any] = {}
        for path, text in records.items():
            if path.startswith("code/") and path.endswith(".py"):
                self._read(path[len("code/") : -len(".py")].replace("/", "."), text)

    def _read(self, home: str, text: bytes) -> None:
        try:
            tree = ast.parse(text.decode())
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise refused(f"{type(error).__name__}: {error}") from None
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                name = f"{home}.{node.name}"
                try:
                    self.classes[name] = _Class(name, node)
                except (ValueError, TypeError, RecursionError, MemoryError) as error:
                    raise refused(f"{type(error).__name__}: {error}") from None
            elif isinstance(node, ast.FunctionDef):
                self.functions[f"{home}.{node.name}"] = node

    # ------------------------------------------------------------------ modules
    def module(self, record: ScriptedObject) -> RecursiveScriptModule:
        """The module of a pickled object."""
        if id(record) in self._modules:
            return self._modules[id(record)]
        kind = self.classes.get(record.qualified_name)
        if kind is None or not kind.is_module:
            raise NotImplementedError(
                f"[jit.load] objects of the class {record.qualified_name} are not read\n"
                "hint: torch.load(..., weights_only=False) does not help: save the state_dict"
            )
        module = RecursiveScriptModule(kind.name.rpartition(".")[2])
        self._modules[id(record)] = module
        state = module.__dict__
        state["_archive_names"] = kind.attributes | kind.constants.keys()
        attributes = {**kind.constants, **record.__dict__.get("attributes", {})}
        for name, value in attributes.items():
            if name not in _SKIPPED:
                self._place(state, kind, name, value)
        for name, method in kind.methods.items():
            state["_script_codes"][name] = self._code((kind.name, name), method, True)
        return module

    def _place(self, state: dict[str, Any], kind: _Class, name: str, value: Any) -> None:
        if isinstance(value, ScriptedObject):
            state["_modules"][name] = self.module(value)
        elif name in kind.parameters:
            fits = isinstance(value, Tensor) and not isinstance(value, Parameter)
            grows = fits and (value.is_floating_point() or value.is_complex())
            if grows:
                value = Parameter(value.detach(), requires_grad=value.requires_grad)
            state["_parameters"][name] = value
        elif name in kind.buffers:
            state["_buffers"][name] = value
        elif name in RecursiveScriptModule.__dict__ or name in ("_modules", "_parameters"):
            raise refused(f"an attribute {name[:80]!r}")
        elif name == "training" or not hasattr(RecursiveScriptModule, name):
            state[name] = _plain(value)
        else:
            raise refused(f"an attribute {name[:80]!r}")

    # ------------------------------------------------------------------ code
    def _code(self, key: Any, tree: ast.FunctionDef, method: bool) -> Code:
        if key in self.codes:
            return self.codes[key]
        try:
            lowered = _Lowering(self, tree).result()
            run = self.program.compile(lowered, f"<{tree.name} of the archive>")
        except _Unsupported as reason:
            lowered = ast.FunctionDef(tree.name, tree.args, tree.body, [], None)
            run = _refusing(tree.name, str(reason))
        own = ast.FunctionDef(tree.name, _without_self(tree.args, method), tree.body, [], None)
        own.returns = tree.returns
        schema = schema_of_tree(own, run, self.program)
        code = self.codes[key] = Code(tree.name, schema, tree, run)
        return code

    def bind(self, value: Any) -> str:
        """A name under which lowered code finds a value."""
        name = f"__value_{next(self._numbers)}"
        self.program.globals[name] = value
        return name

    def function(self, name: str) -> Callable[..., Any]:
        """A function of the archive, compiled at its first call."""
        tree = self.functions.get(name)
        if tree is None:
            raise _Unsupported(f"the archive has no function {name}")

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._code(name, tree, False).run(*args, **kwargs)

        return call

    def tuple_class(self, name: str) -> Any:
        """A named tuple of the archive."""
        if name not in self._tuples:
            from collections import namedtuple

            kind = self.classes[name]
            tuple_type = namedtuple(name.rpartition(".")[2], kind.fields)  # noqa: PYI024
            self._tuples[name] = tuple_type
        return self._tuples[name]


def _without_self(arguments: ast.arguments, method: bool) -> ast.arguments:
    positional = arguments.args[1:] if method else arguments.args
    return ast.arguments([], positional, None, [], [], None, arguments.defaults)


def _refusing(name: str, reason: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"[jit.load] {name} of the archive cannot run: {reason}\n"
            "hint: the weights are there: load the module's state_dict() into its Python class"
        )

    return function


def _plain(value: Any) -> Any:
    """An attribute's value, if it is one that code may have."""
    if isinstance(value, _VALUES):
        return value
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    problem = f"attributes of type {type(value).__name__} are not read"
    raise failure(NotImplementedError, "jit.load", problem, "save weights")


def attribute(owner: Any, name: str) -> Any:
    """An attribute of a module of an archive, or of a named tuple: for its code.

    Raises:
        RuntimeError: other objects, other names.
    """
    if isinstance(owner, ScriptModule):
        state = owner.__dict__
        for table in ("_parameters", "_buffers", "_modules"):
            if name in state[table]:
                return state[table][name]
        if name in state["_script_codes"]:
            return getattr(owner, name)
        if name in state.get("_archive_names", ()) and name in state:
            return state[name]
    elif isinstance(owner, tuple) and name in getattr(owner, "_fields", ()):
        return getattr(owner, name)
    raise RuntimeError(f"[jit] {type(owner).__name__} has no attribute {name!r}\nhint: save again")


def set_attribute(owner: Any, name: str, value: Any) -> None:
    """Sets an attribute of a module of an archive: for its code.

    Raises:
        RuntimeError: other objects, other names.
    """
    state = owner.__dict__ if isinstance(owner, ScriptModule) else {}
    for table in ("_parameters", "_buffers"):
        if name in state.get(table, ()):
            state[table][name] = value
            return
    if name not in state.get("_archive_names", ()):
        raise failure(RuntimeError, "jit", f"{name!r} cannot be set", "save the archive again")
    state[name] = value


class _Lowering(ast.NodeTransformer):
    """Rewrites one function; `_Unsupported` for what is not known."""

    def __init__(self, archive: _Archive, tree: ast.FunctionDef) -> None:
        self.archive, self.tree = archive, tree
        self.locals = {argument.arg for argument in tree.args.args} | {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        if any(name.startswith("__") for name in self.locals):
            raise _Unsupported("a reserved name")

    def result(self) -> ast.FunctionDef:
        """The rewritten function."""
        arguments = self.tree.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs:
            raise _Unsupported("variable arguments")
        defaults = [self.visit(default) for default in arguments.defaults]
        plain = [ast.arg(argument.arg, None) for argument in arguments.args]
        own = ast.arguments([], plain, None, [], [], None, defaults)
        try:
            body = [self.visit(node) for node in self.tree.body] or [ast.Pass()]
        except RecursionError:
            raise _Unsupported("it is nested too deeply") from None
        return ast.FunctionDef(self.tree.name, own, body, [], None)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visits the children of nodes that need no rewriting."""
        if not isinstance(node, _KEPT):
            raise _Unsupported(f"{type(node).__name__}: {ast.unparse(node)[:80]}")
        return super().generic_visit(node)

    # ------------------------------------------------------------------ statements
    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """An assignment; the type is not needed."""
        if node.value is None or not isinstance(node.target, ast.Name):
            raise _Unsupported(ast.unparse(node)[:80])
        return ast.Assign([node.target], self.visit(node.value))

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """An assignment to names, or to an attribute of a module."""
        target = node.targets[0]
        if isinstance(target, ast.Attribute):
            value = [self.visit(target.value), ast.Constant(target.attr), self.visit(node.value)]
            return ast.Expr(self._call(set_attribute, value))
        if isinstance(target, ast.Subscript):
            parts = [self.visit(part) for part in (target.value, target.slice, node.value)]
            return ast.Expr(self._call(operators.set_item, parts))
        return ast.Assign(node.targets, self.visit(node.value))

    def visit_For(self, node: ast.For) -> ast.AST:
        """A loop over numbers or a list."""
        if node.orelse:
            raise _Unsupported("a loop with else")
        body = [self.visit(each) for each in node.body]
        return ast.For(node.target, self.visit(node.iter), body, [])

    # ------------------------------------------------------------------ expressions
    def _name(self, value: Any) -> ast.Name:
        return ast.Name(self.archive.bind(value), ast.Load())

    def _call(self, function: Any, arguments: list[Any], keywords: Any = ()) -> ast.Call:
        return ast.Call(self._name(function), arguments, list(keywords))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A local name, or a number."""
        if node.id in self.locals:
            return node
        if node.id in _NUMBERS:
            return self._name(_NUMBERS[node.id])
        if node.id in _BUILTINS:
            return self._name(_BUILTINS[node.id])
        raise _Unsupported(f"an unknown name {node.id[:80]!r}")

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """An attribute of a value, a function of the archive, or a constant."""
        path = _path(node)
        root = path.partition(".")[0]
        if root == "CONSTANTS" and root not in self.locals:
            return self._name(self.archive.constants[int(node.attr[1:])])
        if root == "__torch__":
            return self._name(self._own(path))
        if root in ("torch", "ops") and root not in self.locals:
            return self._name(self._operator(path))
        if node.attr.startswith("__"):
            raise _Unsupported(f"an attribute {node.attr[:80]!r}")
        return self._call(attribute, [self.visit(node.value), ast.Constant(node.attr)])

    def _own(self, path: str) -> Any:
        kind = self.archive.classes.get(path)
        if kind is None:
            return self.archive.function(path)
        if "NamedTuple" in kind.bases:
            return self.archive.tuple_class(path)
        raise _Unsupported(f"objects of the class {path}")

    def _operator(self, path: str) -> Any:
        operator = operators.find(path)
        if operator is None:
            return _refusing(path, f"the operator {path} is not known")
        return operator

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """An element of a list, a tuple or a dict."""
        if isinstance(node.slice, ast.Slice):
            raise _Unsupported("a slice")
        return self._call(operators.item, [self.visit(node.value), self.visit(node.slice)])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A call; types that are arguments are not needed."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in self.locals:
            name = ""
        if name in ("annotate", "unchecked_cast"):
            return self.visit(node.args[1])
        if name == "uninitialized":
            return ast.Constant(None)
        if name == "getattr" and isinstance(node.args[1], ast.Constant):
            label = str(node.args[1].value)
            return self._call(attribute, [self.visit(node.args[0]), ast.Constant(label)])
        arguments = [self.visit(argument) for argument in node.args]
        if any(keyword.arg is None for keyword in node.keywords):
            raise _Unsupported("a call with **")
        keywords = [ast.keyword(each.arg, self.visit(each.value)) for each in node.keywords]
        return ast.Call(self.visit(node.func), arguments, keywords)


_KEPT = (
    ast.Return, ast.If, ast.While, ast.Expr, ast.Pass, ast.Break, ast.Continue, ast.Tuple, ast.List,
    ast.Dict, ast.Constant, ast.UnaryOp, ast.expr_context, ast.unaryop, ast.BoolOp, ast.boolop,
    ast.Compare, ast.cmpop,
)  # fmt: skip


def _path(node: ast.expr) -> str:
    """`torch.add` of such a chain, else an empty text."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
