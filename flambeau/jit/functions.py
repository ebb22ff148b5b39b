"""Scripted functions: one unit of code for the process, compiled when a function is scripted.

A scripted function is called through its border (`Border`): arguments are converted to the
declared types, lists and dictionaries copied, and an exception inside becomes `torch.jit.Error`.
Scripted code that calls scripted code does not cross a border.
"""

from __future__ import annotations
import __future__

import ast
import functools
import inspect
import threading
import traceback
import typing
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flambeau.ir.lock import fork_safe_lock, late
from flambeau.jit import frontend, markers, names, script_types
from flambeau.jit.rewriting import Owner, Rewriter, unused_stub
from flambeau.jit.signature import Schema, schema_of


class Error(RuntimeError):
    """An exception that scripted code raised."""


class ScriptWarning(Warning):
    """A warning about scripted code."""


class _Inside(threading.local):
    """Whether this thread runs scripted code."""

    depth = 0


_inside = _Inside()


@dataclass(frozen=True)
class Code:
    """One function of scripted code: what it is called, its text and the function that runs."""

    name: str
    schema: Schema
    tree: ast.FunctionDef
    run: Callable[..., Any]
    python_calls: tuple[str, ...] = ()
    passes: bool = False  # arguments are not looked at

    @property
    def text(self) -> str:
        """The source, with resolved names."""
        return ast.unparse(ast.fix_missing_locations(self.tree)) + "\n"

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function; from Python through its border."""
        if _inside.depth or self.passes:
            return self.run(*args, **kwargs)
        values = self.schema.bind(args, kwargs)
        return self._run_inside(values)

    def call_method(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a method of `owner`."""
        if _inside.depth:
            return self.run(owner, *args, **kwargs)
        return self._run_inside([owner, *self.schema.bind(args, kwargs)])

    def _run_inside(self, values: list[Any]) -> Any:
        _inside.depth += 1
        try:
            return self.schema.result(self.run(*values))
        except Error:
            raise
        except Exception as error:
            raise Error(_report(error)) from error
        finally:
            _inside.depth -= 1


def _report(error: Exception) -> str:
    """The text of `torch.jit.Error`: the scripted lines on the way, then the exception."""
    lines = traceback.extract_tb(error.__traceback__)
    shown = [f'  File "{line.filename}", line {line.lineno}, in {line.name}\n    {line.line}'
             for line in lines if "/jit/functions.py" not in line.filename]  # fmt: skip
    kind = type(error)
    name = kind.__name__ if kind is RuntimeError else f"{kind.__module__}.{kind.__qualname__}"
    return (
        "The following operation failed in the TorchScript interpreter.\n"
        "Traceback of TorchScript (most recent call last):\n"
        + "\n".join(shown)
        + f"\n{name}: {error}\n"
    )


def leave(function: Callable[..., Any]) -> Callable[..., Any]:
    """A Python function as scripted code calls it: outside of scripted code again."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        before, _inside.depth = _inside.depth, 0
        try:
            return function(*args, **kwargs)
        finally:
            _inside.depth = before

    return call


class Namespace:
    """A dotted name in scripted code: `__torch__.package.module.function`."""

    def __init__(self, path: str) -> None:
        self.__dict__["_path"] = path

    def place(self, name: str, value: Any) -> None:
        """Puts a value at a dotted name below this one."""
        head, _, tail = name.partition(".")
        if not tail:
            setattr(self, head, value)
            return
        inner = self.__dict__.setdefault(head, Namespace(f"{self.__dict__['_path']}.{head}"))
        if isinstance(inner, Namespace):
            inner.place(tail, value)
        else:  # a function or class has this name too
            setattr(self, name.replace(".", "_"), value)


@dataclass
class Program:
    """The functions and classes that pieces of scripted code share, and the names they see."""

    codes: dict[str, Code] = field(default_factory=dict)
    classes: dict[str, type] = field(default_factory=dict)
    root: Namespace = field(default_factory=lambda: Namespace("__torch__"))
    python: Namespace = field(default_factory=lambda: Namespace("__python__"))

    @functools.cached_property
    def globals(self) -> dict[str, Any]:
        """The names that scripted code sees beside builtins."""
        import math

        scope: dict[str, Any] = {"torch": late("flambeau"), "math": math}
        scope["__torch__"], scope["__python__"] = self.root, self.python
        scope["__unused__"] = unused_stub
        scope["Tensor"] = script_types.Tensor
        scope["NoneType"] = script_types.NoneType
        for name in ("List", "Dict", "Tuple", "Optional", "Union", "Any"):
            scope[name] = getattr(typing, name)
        return scope

    def free_name(self, wished: str) -> str:
        """A name that nothing has yet."""
        name, count = wished, 0
        while name in self.codes or name in self.classes:
            head, _, last = wished.rpartition(".")
            name, count = f"{head}.___torch_mangle_{count}.{last}", count + 1
        return name

    def compile(self, tree: ast.FunctionDef, file: str) -> Callable[..., Any]:
        """The function that a syntax tree defines."""
        module = ast.fix_missing_locations(ast.Module([tree], []))
        flags = __future__.annotations.compiler_flag
        scope: dict[str, Any] = {}
        exec(compile(module, file, "exec", flags, dont_inherit=True), self.globals, scope)
        return typing.cast("Callable[..., Any]", scope[tree.name])


class Scripts:
    """The process's unit: what was scripted from Python functions and classes."""

    def __init__(self) -> None:
        self.program = Program()
        self.lock = fork_safe_lock(level=0)
        self._functions: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._python: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._classes: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()

    def name_of_function(self, function: Callable[..., Any]) -> str:
        """The name of a function in scripted code; scripts it if it was not yet."""
        if isinstance(function, ScriptFunction):
            return function.qualified_name
        function = getattr(function, "__original_fn", None) or inspect.unwrap(function)
        known_name = self._functions.get(function)
        if known_name is not None:
            return known_name
        name = self.program.free_name(script_types.qualified_name(function))
        self._functions[function] = name  # recursion finds it
        try:
            self.define(function, name)
        except BaseException:
            del self._functions[function]
            raise
        return name

    def name_of_python(self, function: Callable[..., Any]) -> str:
        """The name of a function that stays Python."""
        name = self._python.get(function)
        if name is None:
            name = f"{script_types.identifier(function.__name__)}_{len(self._python)}"
            self._python[function] = name
            self.program.python.place(name, leave(function))
        return f"__python__.{name}"

    def name_of_class(self, cls: type) -> str:
        """The name of a class: a named tuple, an enumeration, a class of methods."""
        name = self._classes.get(cls)
        if name is None:
            name = self.program.free_name(script_types.qualified_name(cls))
            self._classes[cls] = name
            self.program.classes[name] = cls
            self.program.root.place(name.removeprefix("__torch__."), cls)
        return name

    def define(self, function: Callable[..., Any], name: str) -> Code:
        """Scripts a function under a name."""
        code = self.method(function, name.rpartition(".")[2], None)
        self.program.codes[name] = code
        self.program.root.place(name.removeprefix("__torch__."), code.run)
        return code

    def method(self, function: Callable[..., Any], name: str, owner: Owner | None) -> Code:
        """The scripted code of a function or method."""
        source = frontend.read(function)
        schema = schema_of(name, source.function, source.names, owner is not None)
        rewriter = Rewriter(source, schema, self, owner)
        tree = rewriter.run(name)
        run = self.program.compile(tree, source.file)
        return Code(name, schema, tree, run, tuple(rewriter.python_calls))


scripts = Scripts()


class ScriptFunction:
    """A scripted function; call it like the Python function that it was made from."""

    scripted = True

    def __init__(self, code: Code, qualified_name: str, program: Program, doc: str | None) -> None:
        self._code, self._program = code, program
        self.qualified_name = qualified_name
        self.__name__ = self.__qualname__ = code.name
        self.__doc__ = doc
        self.__original_fn: Any = None

    @property
    def name(self) -> str:
        """The function's name."""
        return self._code.name

    @property
    def code(self) -> str:
        """The scripted source."""
        return self._code.text

    @property
    def schema(self) -> Schema:
        """Parameters and result."""
        return self._code.schema

    @property
    def graph(self) -> Any:
        """PyTorch's graph of the function, which Flambeau does not have."""
        raise no_graph()

    inlined_graph = graph

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function; a trace records the call."""
        recorder = markers.current_recorder()
        if recorder is None:
            return self._code.call(*args, **kwargs)
        call = functools.partial(self._code.call, *args, **kwargs)
        return recorder.call_scripted(self.qualified_name, call, args, kwargs)

    def __repr__(self) -> str:
        return f"<torch.jit.ScriptFunction {self.qualified_name}>"

    def save(self, f: Any, **kwargs: Any) -> None:
        """Writes the function as an archive (`torch.jit.save`)."""
        late("flambeau.jit.archive").save(self, f, **kwargs)

    def save_to_buffer(self, **kwargs: Any) -> bytes:
        """The archive as bytes."""
        return bytes(late("flambeau.jit.archive").to_bytes(self, **kwargs))

    def get_debug_state(self) -> Any:
        """State of PyTorch's executor, which Flambeau does not have."""
        raise no_graph()


def no_graph() -> NotImplementedError:
    """The error of what shows or changes TorchScript's graph."""
    return NotImplementedError(
        "[jit] TorchScript graphs are not in Flambeau: scripted code runs as Python\n"
        "hint: read `.code`, or use torch.fx.symbolic_trace for a graph"
    )


def script_function(function: Callable[..., Any]) -> ScriptFunction:
    """Scripts a Python function."""
    with scripts.lock:
        name = scripts.name_of_function(function)
    scripted = ScriptFunction(
        scripts.program.codes[name], name, scripts.program, getattr(function, "__doc__", None)
    )
    for attribute in ("__module__", "__qualname__", "__doc__"):
        setattr(scripted, attribute, getattr(function, attribute, None))
    scripted._torchdynamo_inline = function  # type: ignore[attr-defined]
    return scripted


def library_function(function: Callable[..., Any]) -> ScriptFunction:
    """A function of the library as a scripted one: it runs as it is."""
    name = names.public_name(function)
    plain = name.rpartition(".")[2] if name else "function"
    text = f"def {plain}(*args, **kwargs):\n    return {name}(*args, **kwargs)"
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.FunctionDef)
    code = Code(plain, Schema(plain, ()), tree, function, passes=True)
    return ScriptFunction(code, f"__torch__.{plain}", scripts.program, function.__doc__)


__all__ = [
    "Code",
    "Error",
    "Program",
    "ScriptFunction",
    "ScriptWarning",
    "leave",
    "library_function",
    "no_graph",
    "script_function",
    "scripts",
]
