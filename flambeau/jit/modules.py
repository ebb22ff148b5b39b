"""Scripted modules: a module's attributes with methods of scripted code.

`script` copies a module's parameters (shared), buffers, submodules (scripted) and those attributes
that have a type in TorchScript, and scripts `forward`, what it calls, and exported methods. Methods
of the library's own modules (`Linear.forward`) run as they are.
"""

from __future__ import annotations

import copy
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.ir.lock import late
from flambeau.jit import markers, names, script_types
from flambeau.jit.functions import Code, ScriptFunction, leave, no_graph, script_function, scripts
from flambeau.jit.rewriting import UNKNOWN, unused_stub
from flambeau.nn import Module

_STATE = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
_SETTINGS = ("training", "_is_full_backward_hook")


class ScriptModule(Module):
    """A module with scripted methods; subclasses mark theirs with `script_method`.

    A subclass's methods stay Python until an instance is made, then those marked are scripted.
    """

    def __init__(self) -> None:
        super().__init__()
        marked = {
            name: method.function
            for name, method in inspect.getmembers(type(self))
            if isinstance(method, _ScriptMethod)
        }
        self.__dict__["_script_codes"] = {}
        self.__dict__["_pending_methods"] = marked

    def __getattr__(self, name: str) -> Any:
        pending = self.__dict__.get("_pending_methods", {})
        if name in pending:
            owner = _Scripting(self, self.__dict__["_script_codes"])
            owner.method(name, pending[name])
        codes = self.__dict__.get("_script_codes", {})
        if name in codes:
            method = _bound(codes[name], self)
            return method() if name in self.__dict__.get("_script_properties", ()) else method
        return super().__getattr__(name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the scripted `forward`."""
        code = self.__dict__["_script_codes"].get("forward")
        if code is None:
            raise NotImplementedError(
                f'Module [{type(self).__name__}] is missing the required "forward" function'
            )
        return code.call_method(self, args, kwargs)

    @property
    def code(self) -> str:
        """The source of `forward`."""
        return _code_of(self, "forward").text

    @property
    def code_with_constants(self) -> tuple[str, Any]:
        """The source of `forward`; its constants stand in the text."""
        return self.code, types.SimpleNamespace(const_mapping={})

    @property
    def original_name(self) -> str:
        """The name of the class that was scripted."""
        return type(self).__name__

    @property
    def graph(self) -> Any:
        """PyTorch's graph of `forward`, which Flambeau does not have."""
        raise no_graph()

    inlined_graph = graph

    def save(self, f: Any, **kwargs: Any) -> None:
        """Writes the module as an archive (`torch.jit.save`)."""
        late("flambeau.jit.archive").save(self, f, **kwargs)

    def save_to_buffer(self, *args: Any, **kwargs: Any) -> bytes:
        """The archive as bytes."""
        return bytes(late("flambeau.jit.archive").to_bytes(self, *args, **kwargs))


def _code_of(module: Any, name: str) -> Code:
    getattr(module, name)
    code = module.__dict__["_script_codes"].get(name)
    if code is None:
        raise AttributeError(f"{module.original_name}.{name} has no scripted source")
    return typing.cast("Code", code)


class _ScriptMethod:
    """A method of a `ScriptModule` class that instances script."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        return instance.__getattr__(self.function.__name__)


def script_method(fn: Callable[..., Any]) -> Any:
    """Marks a method of a `ScriptModule` class that is scripted."""
    return _ScriptMethod(fn)


class RecursiveScriptModule(ScriptModule):
    """The result of `torch.jit.script` for a module.

    Those made of the library's layers derive from the layer's class, too: its methods run as they
    are.
    """

    def __init__(self, name: str) -> None:
        Module.__init__(self)
        state = self.__dict__
        state["_script_codes"], state["_pending_methods"] = {}, {}
        state["_original_name"] = name
        state["_failed_attributes"], state["_script_properties"] = {}, set()

    @property
    def original_name(self) -> str:
        """The name of the class that was scripted."""
        return str(self.__dict__["_original_name"])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the scripted `forward`, or the library's."""
        recorder = markers.current_recorder()
        if recorder is not None and (name := recorder.name_of(self)) is not None:
            call = functools.partial(_forward, self, *args, **kwargs)
            return recorder.call_scripted(name, call, args, kwargs)
        return _forward(self, *args, **kwargs)

    def extra_repr(self) -> str:
        """The name of the original class."""
        return f"original_name={self.original_name}"

    def define(self, src: str) -> None:
        """Adds a method from its source, in scripted code."""
        late("flambeau.jit.archive").define_method(self, src)

    def __copy__(self) -> RecursiveScriptModule:
        return typing.cast("RecursiveScriptModule", _copied(self, copy.copy, {}))

    def __deepcopy__(self, memo: dict[int, Any]) -> RecursiveScriptModule:
        def copier(value: Any) -> Any:
            return copy.deepcopy(value, memo)

        return typing.cast("RecursiveScriptModule", _copied(self, copier, memo))

    def __reduce_ex__(self, protocol: Any) -> Any:
        archive = late("flambeau.jit.archive")
        return archive.from_bytes, (archive.to_bytes(self),)


def _forward(module: Any, *args: Any, **kwargs: Any) -> Any:
    code = module.__dict__["_script_codes"].get("forward")
    if code is not None:
        return code.call_method(module, args, kwargs)
    layer = layer_of(type(module))
    if layer is None or layer.forward is Module.forward:
        raise NotImplementedError(
            f'Module [{module.original_name}] is missing the required "forward" function'
        )
    return layer.forward(module, *args, **kwargs)


def layer_of(cls: Any) -> Any:
    """The layer of the library that a class is or derives from, or None."""
    for base in cls.__mro__:
        if base is Module:
            return None
        if names.is_library(base) and issubclass(base, Module) and not _is_scripted_class(base):
            return base
    return None


def _is_scripted_class(cls: type) -> bool:
    return issubclass(cls, ScriptModule)


@functools.cache
def scripted_class(kind: type, layer: Any) -> Any:
    """The class of scripted modules of one layer."""
    if layer is None:
        return kind
    space = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    space["__doc__"] = kind.__doc__ or ""
    return type(kind.__name__, (kind, layer), space)


_SHARED = ("_script_codes", "_pending_methods", "_original_name")


def _copied(module: Any, copier: Callable[[Any], Any], memo: dict[int, Any]) -> Any:
    twin = memo[id(module)] = object.__new__(type(module))
    for name, value in module.__dict__.items():
        twin.__dict__[name] = value if name in _SHARED else copier(value)
    return twin


def _bound(code: Code, owner: Any) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        return code.call_method(owner, args, kwargs)

    method.__name__ = method.__qualname__ = code.name
    method.code, method.schema = code.text, code.schema  # type: ignore[attr-defined]
    return method


class _Scripting:
    """Scripts the methods of one module (`rewriting.Owner`)."""

    def __init__(self, original: Any, codes: dict[str, Code], target: Any = None) -> None:
        self.original, self.codes = original, codes
        self.target = original if target is None else target
        self._constants = _constant_names(type(original))

    def use(self, attribute: str) -> None:
        """Makes sure that a method or attribute is there."""
        if attribute in self.codes:
            return
        function = self._own_function(attribute)
        if function is not None:
            self._take(attribute, function)
            return
        failed = self.target.__dict__.get("_failed_attributes", {})
        if attribute in failed:
            raise AttributeError(
                f"Module '{type(self.original).__name__}' has no attribute '{attribute}' (This "
                "attribute exists on the Python module, but we failed to convert Python type: "
                f"'{failed[attribute]}' to a TorchScript type.)"
            )
        if not hasattr(self.original, attribute):
            raise AttributeError(
                f"Module '{type(self.original).__name__}' has no attribute '{attribute}'"
            )

    def _own_function(self, attribute: str) -> Any:
        value = inspect.getattr_static(type(self.original), attribute, None)
        if isinstance(value, (staticmethod, classmethod)):
            return value
        if isinstance(value, _ScriptMethod):
            return value.function
        function = value.fget if isinstance(value, property) else value
        if not isinstance(function, types.FunctionType) or names.is_library(function):
            return None
        return value

    def _take(self, attribute: str, function: Any) -> None:
        """Puts a function of the original class into the scripted module."""
        state, mark = self.target.__dict__, markers.mark_of(function)
        if isinstance(function, (staticmethod, classmethod)):
            plain = function.__get__(None, type(self.original))
            if isinstance(function, classmethod) or names.is_library(plain):
                state[attribute] = plain
            else:
                state[attribute] = script_any(plain)
        elif mark in (markers.IGNORE, markers.COPY_TO_SCRIPT):
            state[attribute] = types.MethodType(leave(function), self.target)
        elif mark == markers.UNUSED:
            state[attribute] = unused_stub(attribute)
        elif isinstance(function, property):
            assert function.fget is not None
            self.method(attribute, function.fget)
            state.setdefault("_script_properties", set()).add(attribute)
        else:
            self.method(attribute, function)

    def method(self, name: str, function: Callable[..., Any]) -> None:
        """Scripts a method."""
        self.codes[name] = _PENDING  # recursion finds it
        try:
            self.codes[name] = scripts.method(function, name, self)
        except BaseException:
            del self.codes[name]
            raise

    def fact(self, attribute: str) -> Any:
        """The value of a constant: a `Final` or `__constants__` attribute, None, a flag."""
        if attribute == "training":
            return UNKNOWN
        value = self.original.__dict__.get(attribute, UNKNOWN)
        for table in ("_parameters", "_buffers", "_modules"):
            inner = self.original.__dict__.get(table, {})
            if attribute in inner:
                return inner[attribute]
        constant = attribute in self._constants or value is None
        return value if constant else UNKNOWN

    def has(self, attribute: str) -> bool:
        """Whether the module has an attribute or method."""
        return hasattr(self.original, attribute)


_PENDING: Any = None


def _constant_names(cls: type) -> set[str]:
    constants = set(getattr(cls, "__constants__", ()))
    for base in cls.__mro__:
        for name, kind in inspect.get_annotations(base).items():
            if "Final" in str(kind):
                constants.add(name)
    return constants


def script_module(module: Module) -> RecursiveScriptModule:
    """Scripts a module and its submodules."""
    with scripts.lock:
        return typing.cast("RecursiveScriptModule", _script_module(module, {}))


def _script_module(module: Module, memo: dict[int, Any]) -> Any:
    if id(module) in memo:
        return memo[id(module)]
    if isinstance(module, ScriptModule):
        return module
    if not hasattr(module, "_parameters"):
        raise RuntimeError(
            f"'{type(module).__name__}' has not been initialized, did you forget to call 'super()'?"
        )
    cls = scripted_class(RecursiveScriptModule, layer_of(type(module)))
    target: RecursiveScriptModule = cls.__new__(cls)
    RecursiveScriptModule.__init__(target, type(module).__name__)
    memo[id(module)] = target
    _copy_state(module, target, memo)
    _script_methods(module, target)
    return target


def _copy_state(module: Module, target: RecursiveScriptModule, memo: dict[int, Any]) -> None:
    state = target.__dict__
    for table in _STATE:
        state[table] = copy.copy(module.__dict__[table])
    for name, inner in module._modules.items():
        if inner is not None:
            state["_modules"][name] = _script_module(inner, memo)
    library = names.is_library(type(module))
    own = Module().__dict__
    for name, value in module.__dict__.items():
        if name in _SETTINGS or (name.endswith("_hooks") and name in own):
            state[name] = value
        elif name not in own:
            _copy_attribute(state, name, value, library)
    for name, value in _class_constants(type(module)):
        state.setdefault(name, value)


def _class_constants(cls: type) -> Iterator[tuple[str, Any]]:
    """Values that the user's classes define beside methods."""
    for base in reversed(cls.__mro__):
        if names.is_library(base) or base is object:
            continue
        for name, value in base.__dict__.items():
            if not name.startswith("__") and names.is_constant(value):
                yield name, value


def _copy_attribute(state: dict[str, Any], name: str, value: Any, library: bool) -> None:
    if isinstance(value, markers.Attribute):
        state[name] = value.value
    elif library or isinstance(value, ScriptFunction):
        state[name] = value
    elif inspect.isfunction(value):
        state[name] = value if names.is_library(value) else script_any(value)
    elif names.public_name(value) is not None and callable(value):
        state[name] = value
    else:
        try:
            script_types.infer(value)
        except TypeError:
            state["_failed_attributes"][name] = type(value).__name__
            if getattr(value, "scripted", False) or not callable(value):
                state[name] = value
        else:
            state[name] = copy.copy(value) if isinstance(value, (list, dict)) else value


def script_any(function: Callable[..., Any]) -> Any:
    """A function as an attribute of a scripted module."""
    mark = markers.mark_of(function)
    if mark == markers.IGNORE:
        return leave(function)
    if mark == markers.UNUSED:
        return unused_stub(function.__name__)
    return script_function(function)


def _script_methods(module: Module, target: RecursiveScriptModule) -> None:
    """Scripts `forward` and exported methods; ignored ones stay Python."""
    scripting = _Scripting(module, target.__dict__["_script_codes"], target)
    members = inspect.getmembers_static(type(module))
    for name, value in members:
        mark = markers.mark_of(value) if callable(value) or isinstance(value, property) else None
        if mark in (markers.EXPORT, markers.IGNORE, markers.UNUSED, markers.COPY_TO_SCRIPT):
            scripting.use(name)
    forward = getattr(type(module), "forward", None)
    instance_forward = module.__dict__.get("forward")
    if instance_forward is not None:
        scripting.method("forward", getattr(instance_forward, "__func__", instance_forward))
    elif forward is not Module.forward and markers.mark_of(forward) is None:
        scripting.use("forward")
