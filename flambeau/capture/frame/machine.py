"""Attributes, calls and operators of a dry run, on real values.

Each operation is either one of Python code, which is interpreted, or one of native code that is
understood (`native_calls`): its effects are its result. Values that the dry run makes are `fresh`:
they may be written. All else may only be read, and each read is noted.
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, TypeVar

from flambeau import _core
from flambeau._core import Tensor
from flambeau.capture.frame import native_calls as native
from flambeau.capture.frame.evidence import MISSING, Evidence, Raised, Unexplained, is_key
from flambeau.ir.lock import late
from flambeau.runtime import boundaries

Value = TypeVar("Value")

_MAX_CALLS = 80  # inside each other
_MAX_STEPS = 3_000_000
_GENERATORS = 0x20  # co_flags
_COROUTINES = 0x80 | 0x200
_NATIVE: tuple[Any, ...] = (  # functions and methods of native code
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)
_CALLED: tuple[Any, ...] = (_core.Op, _core.shield, types.FunctionType)


class Machine:
    """Interprets calls.

    Attributes:
        evidence: what they read.
        steps: instructions that may still be executed.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.steps = _MAX_STEPS
        self.codes: dict[int, Any] = {}  # decoded, by identity of the code objects
        self._fresh: dict[int, Any] = {}
        self._depth = 0

    def forget(self) -> None:
        """Drops the values that the dry run made."""
        self._fresh.clear()
        self.codes.clear()

    # ------------------------------------------------------------------ fresh values
    def fresh(self, value: Value) -> Value:
        """Notes that the dry run made a value."""
        self._fresh[id(value)] = value
        return value

    def is_fresh(self, value: Any) -> bool:
        """Whether the dry run made a value, so that it may be written."""
        return id(value) in self._fresh

    def writable(self, value: Any) -> None:
        """Raises where a value that outlives the frame would be written."""
        if id(value) not in self._fresh:
            raise Unexplained(f"it writes to a {type(value).__name__} from outside")

    def touch(self, value: Any) -> None:
        """All that a container holds is read, and native code may read it."""
        kind = type(value)
        if kind in native.ATOMS or kind in native.TENSORS:
            return
        if kind in native.CONTAINERS:
            self._touch_items(value, kind)
        elif kind in native.ITERATORS:
            self.writable(value)
        elif kind is slice:
            self.touch((value.start, value.stop, value.step))
        elif kind not in native.BY_IDENTITY and not self.is_fresh(value):
            raise Unexplained(f"native code reads a {kind.__name__}")

    def _touch_items(self, value: Any, kind: type) -> None:
        outside = id(value) not in self._fresh
        if kind is list and outside:
            self.evidence.elements(value)
        elif kind in (dict, OrderedDict):
            if outside:
                self.evidence.items(value)
            if kind is OrderedDict and outside and len(value) > 1:
                raise Unexplained("it iterates over an OrderedDict")  # whose order has no version
            value = value.values()
        elif kind is set and outside and value:
            raise Unexplained("it reads a set from outside")
        for item in tuple(value):
            if type(item) not in native.ATOMS:
                self.touch(item)

    # ------------------------------------------------------------------ attributes
    def getattr(self, value: Any, name: str) -> Any:
        """The attribute of a value."""
        kind = type(value)
        if kind in native.TENSORS:
            return self._tensor_attribute(value, kind, name)
        if kind in native.ATOMS or kind in native.CONTAINERS or kind in native.NATIVE_ATTRIBUTES:
            return getattr(value, name)
        if kind is types.ModuleType:
            return self._module_attribute(value, name)
        if isinstance(value, type):
            return self._class_attribute(value, name)
        if kind is super:
            return self._super_attribute(value, name)
        if kind is types.FunctionType and name in ("__name__", "__qualname__", "__module__"):
            raise Unexplained("it reads the name of a function")
        return self._object_attribute(value, kind, name)

    def _tensor_attribute(self, value: Any, kind: type, name: str) -> Any:
        defined = self.evidence.attribute(kind, name)
        if name in native.TENSOR_FACTS or name in native.TENSOR_METHODS:
            if not isinstance(defined, (types.GetSetDescriptorType, types.MethodDescriptorType)):
                raise Unexplained(f"somebody replaced {name} of tensors")
            if name in ("T", "H") and value.ndim != 2:
                raise Unexplained(f"{name} of a tensor that is no matrix warns")
            return getattr(value, name)
        if isinstance(defined, property) and defined.fget is not None:
            return self.call(defined.fget, (value,), {})
        if isinstance(defined, _CALLED):
            return types.MethodType(defined, value)
        if defined is MISSING and not value.__dict__:  # which is guarded with its geometry
            raise Raised(AttributeError(name))
        raise Unexplained(f"it reads {name} of a tensor")

    def _module_attribute(self, module: types.ModuleType, name: str) -> Any:
        value = self.evidence.item(module.__dict__, name, module.__name__)
        if value is MISSING:
            raise Unexplained(f"module {module.__name__} computes its attribute {name}")
        return value

    def _class_attribute(self, kind: type, name: str) -> Any:
        if name == "__name__" and type(kind) is type:
            return self.evidence.title(kind)
        if self.evidence.attribute(type(kind), name) is not MISSING and name != "__call__":
            raise Unexplained(f"it reads {name} of a class")
        value = self.evidence.attribute(kind, name)
        if value is MISSING:
            raise Raised(AttributeError(name))
        if isinstance(value, classmethod):
            return types.MethodType(value.__func__, kind)
        return self._unbound(value, f"{kind.__name__}.{name}")

    def _unbound(self, value: Any, name: str) -> Any:
        if isinstance(value, staticmethod):
            return value.__func__
        if isinstance(value, (*_CALLED, *_NATIVE)):
            return value
        if hasattr(type(value), "__get__"):
            raise Unexplained(f"it reads the descriptor {name}")
        return self.evidence.read(value)

    def _super_attribute(self, value: Any, name: str) -> Any:
        self.evidence.hierarchy(type(value.__self__))
        bound = getattr(value, name)
        if isinstance(bound, (types.MethodType, types.MethodWrapperType)):
            return bound
        if name == "__instancecheck__" and isinstance(bound, types.BuiltinFunctionType):
            return bound
        raise Unexplained(f"it reads super().{name}")

    def _object_attribute(self, value: Any, kind: type, name: str) -> Any:
        if value is boundaries.local and name == "recorder":
            return None  # it is a mode, and modes are compared
        if self.evidence.attribute(kind, "__getattribute__") is not object.__getattribute__:
            raise Unexplained(f"{kind.__name__} computes its attributes")
        by_type = self.evidence.attribute(kind, name)
        if isinstance(by_type, property) and by_type.fget is not None:
            self.holder(value)
            return self.call(by_type.fget, (value,), {})
        if by_type is not MISSING and hasattr(type(by_type), "__set__"):
            return self._slot(value, kind, name, by_type)
        table = self.holder(value)
        if table is not None:
            own = self.table_item(table, name)
            if own is not MISSING:
                return own
        if by_type is not MISSING:
            return self._bind(by_type, value, kind, name)
        computed = self.evidence.attribute(kind, "__getattr__")
        if isinstance(computed, types.FunctionType):
            return self.call(computed, (value, name), {})
        if computed is not MISSING:
            raise Unexplained(f"{kind.__name__} computes its attributes")
        raise Raised(AttributeError(name))

    def _slot(self, value: Any, kind: type, name: str, descriptor: Any) -> Any:
        if name == "__dict__" and isinstance(descriptor, types.GetSetDescriptorType):
            return self.holder(value)
        if name == "__class__":
            self.typed(value)
            return kind
        if isinstance(descriptor, types.MemberDescriptorType) and self.is_fresh(value):
            return getattr(value, name)
        raise Unexplained(f"it reads {kind.__name__}.{name}, a descriptor")

    def _bind(self, value: Any, owner: Any, kind: type, name: str) -> Any:
        called: tuple[Any, ...] = (*_CALLED, _core.CompiledFunction)
        if isinstance(value, called):
            return types.MethodType(value, owner)
        if isinstance(value, classmethod):
            return types.MethodType(value.__func__, kind)
        if isinstance(value, _NATIVE):
            return value.__get__(owner, kind)
        return self._unbound(value, f"{kind.__name__}.{name}")

    def typed(self, value: Any) -> type:
        """The type of a value, which must stay it."""
        kind = type(value)
        if kind.__flags__ & (1 << 9) and kind not in native.TENSORS and not self.is_fresh(value):
            self.evidence.holder(value, MISSING)
        return kind

    def holder(self, value: Any) -> Any:
        """The `__dict__` of an object, None where it has none; it must stay the same one."""
        descriptor = self.evidence.attribute(type(value), "__dict__")
        if descriptor is MISSING:
            self.typed(value)
            return None
        if not isinstance(descriptor, types.GetSetDescriptorType):
            raise Unexplained(f"{type(value).__name__} computes its __dict__")
        table = object.__getattribute__(value, "__dict__")
        if self.is_fresh(value):
            return self.fresh(table)
        if type(table) is not dict:
            raise Unexplained(f"the __dict__ of a {type(value).__name__} is no dict")
        self.evidence.holder(value, table)
        return table

    def table_item(self, table: Any, key: Any) -> Any:
        """The value that a dict has under a key, or MISSING."""
        if self.is_fresh(table):
            return dict.get(table, key, MISSING)
        return self.evidence.item(table, key)

    def setattr(self, value: Any, name: str, new: Any) -> None:
        """Sets an attribute of a fresh object."""
        self.writable(value)
        method = self.evidence.attribute(type(value), "__setattr__")
        if isinstance(method, types.FunctionType):
            self.call(method, (value, name, new), {})
            return
        descriptor = self.evidence.attribute(type(value), name)
        plain = descriptor is MISSING or not hasattr(type(descriptor), "__set__")
        if method is not object.__setattr__ or not (
            plain or isinstance(descriptor, types.MemberDescriptorType)
        ):
            raise Unexplained(f"{type(value).__name__} computes its attributes")
        object.__setattr__(value, name, new)

    def slots(self, values: tuple[Any, ...], *names: str) -> None:
        """The operators of tensors among the values are called, which are the package's own."""
        for value in values:
            if type(value) in native.TENSORS:
                for name in names:
                    defined = self.evidence.attribute(type(value), name)
                    if isinstance(defined, types.FunctionType):
                        raise Unexplained(f"somebody replaced {name} of tensors")

    # ------------------------------------------------------------------ calls
    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call."""
        kind = type(function)
        if kind is types.FunctionType:
            return self._enter(function, args, kwargs)
        if kind is types.MethodType:
            return self.call(function.__func__, (function.__self__, *args), kwargs)
        if kind is _core.Op:
            return self._call_operator(function, args, kwargs)
        if kind is _core.shield:
            if kwargs.get("out") is not None:
                raise Unexplained("it passes out=")
            return self.call(function.__wrapped__, args, kwargs)
        if kind is _core.CompiledFunction:
            return self.call(function._function, args, kwargs)
        if kind is functools.partial:
            if not self.is_fresh(function):
                self.evidence.read(function.args)
                self.evidence.items(function.keywords)
            named = {**function.keywords, **kwargs}
            return self.call(function.func, (*function.args, *args), named)
        if isinstance(function, type):
            return self._construct(function, args, kwargs)
        if kind in _NATIVE or native.understands(function):
            return self.fresh_result(native.call(self, function, args, kwargs))
        method = self.evidence.attribute(kind, "__call__")
        if isinstance(method, types.FunctionType):
            self.typed(function)
            return self.call(method, (function, *args), kwargs)
        raise Unexplained(f"it calls a {kind.__name__}")

    def fresh_result(self, value: Any) -> Any:
        """A result of native code; containers and iterators that it made may be written."""
        kind = type(value)
        if kind in native.ITERATORS:
            self.fresh(value)
        return value

    def _enter(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        code = function.__code__
        if not self.is_fresh(function):
            self.evidence.function(function)
        if code.co_flags & _COROUTINES:
            raise Unexplained("it calls a coroutine")
        self._depth += 1
        if self._depth > _MAX_CALLS:
            raise Unexplained("its calls are too deep")
        frame = bytecode().Frame(self, function, bind(self, function, args, kwargs))
        if code.co_flags & _GENERATORS:
            self._depth -= 1
            return self.fresh(Generator(frame))
        result = frame.run()
        self._depth -= 1
        return result

    def _call_operator(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if op.gate is not None:
            raise Unexplained(f"operator {op.__name__} has a gate")
        self.evidence.operator(op)
        if kwargs.get("out") is not None:
            raise Unexplained("it passes out=")
        self.touch(args)
        self.touch(tuple(kwargs.values()))
        if any("python" in flags for _, _, flags in op.overloads):
            index, values, _ = op.bind(args, kwargs)
            arguments, body, flags = op.overloads[index]
            if "python" in flags:
                return self._call_body(body, arguments, values)
        return self.collection(op(*args, **kwargs))

    def _call_body(self, body: Any, arguments: Any, values: tuple[Any, ...]) -> Any:
        positional, named = [], {}
        for argument, value in zip(arguments, values, strict=True):
            if argument.kind.rstrip("?").endswith("[]") and isinstance(value, int):
                value = (value,)
            if argument.keyword_only:
                named[argument.name] = value
            else:
                positional.append(value)
        return self.call(body, tuple(positional), named)

    def collection(self, value: Any) -> Any:
        """A container that native code made, and its items that are containers."""
        if type(value) in (list, dict, set):
            self.fresh(value)
        return value

    def _construct(self, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if native.understands(kind):
            return self.fresh_result(native.call(self, kind, args, kwargs))
        if kind.__module__ == "builtins" and issubclass(kind, Exception):
            return self.fresh(kind(*args, **kwargs))
        if type(kind) is not type or not kind.__flags__ & (1 << 9):
            raise Unexplained(f"it makes a {kind.__name__}")
        if self.evidence.attribute(kind, "__new__") is not object.__new__:
            raise Unexplained(f"it makes a {kind.__name__}, which has __new__")
        if self.evidence.attribute(kind, "__del__") is not MISSING:
            raise Unexplained(f"it makes a {kind.__name__}, which has __del__")
        value = self.fresh(object.__new__(kind))
        initialise = self.evidence.attribute(kind, "__init__")
        if isinstance(initialise, types.FunctionType):
            self.call(initialise, (value, *args), kwargs)
        elif args or kwargs or initialise is not object.__init__:
            raise Unexplained(f"it makes a {kind.__name__}")
        return value

    # ------------------------------------------------------------------ protocols
    def method(self, value: Any, name: str) -> Any:
        """A special method in Python that the type of a value defines, or None."""
        kind = self.typed(value)
        function = self.evidence.attribute(kind, name)
        return function if isinstance(function, types.FunctionType) else None

    def truth(self, value: Any) -> bool:
        """Whether a value counts as true."""
        if value is True or value is False or value is None:
            return bool(value)
        kind = type(value)
        if kind in native.ATOMS or kind in native.CONTAINERS or kind in native.TENSORS:
            if kind in native.CONTAINERS:
                self.length(value)
            return bool(value)
        for name in ("__bool__", "__len__"):
            function = self.method(value, name)
            if function is not None:
                return bool(self.call(function, (value,), {}))
            if self.evidence.attribute(kind, name) is not MISSING:
                raise Unexplained(f"it reads the truth of a {kind.__name__}")
        return True

    def length(self, value: Any) -> int:
        """The length of a value."""
        kind = type(value)
        if kind in native.CONTAINERS:
            if kind not in (tuple, frozenset) and not self.is_fresh(value):
                self.touch_length(value, kind)
            return len(value)
        if kind in native.ATOMS or kind in native.TENSORS:
            self.slots((value,), "__len__")
            return len(value)
        function = self.method(value, "__len__")
        if function is None:
            raise Unexplained(f"it reads the length of a {kind.__name__}")
        return int(self.call(function, (value,), {}))

    def touch_length(self, value: Any, kind: type) -> None:
        """A container's length is read: so are its items."""
        if kind is list:
            self.evidence.elements(value)
        elif kind in (dict, OrderedDict):
            self.evidence.items(value)
        else:
            raise Unexplained(f"it reads a {kind.__name__} from outside")

    def iterate(self, value: Any) -> Iterator[Any]:
        """An iterator over a value."""
        kind = type(value)
        if kind is Generator or kind in native.ITERATORS:
            self.writable(value)
            return self.fresh(iter(value))
        if kind in native.CONTAINERS or kind in (str, range, _core.Size):
            if kind is OrderedDict and len(value) > 1:
                raise Unexplained("it iterates over an OrderedDict")
            if kind in (list, dict, OrderedDict, set) and not self.is_fresh(value):
                self.touch_length(value, kind)
            return self.fresh(iter(value))
        if kind in native.TENSORS:
            self.slots((value,), "__iter__")
            rows = self.call(Tensor.unbind, (value,), {})
            return self.fresh(iter(rows))
        function = self.method(value, "__iter__")
        if function is None:
            raise Unexplained(f"it iterates over a {kind.__name__}")
        iterator = self.call(function, (value,), {})
        return self.iterate(iterator)

    def subscript(self, value: Any, key: Any) -> Any:
        """value[key]"""
        kind = type(value)
        if kind in (dict, OrderedDict):
            item = self.table_item(value, key) if is_key(key) else MISSING
            if item is MISSING:
                if self.is_fresh(value) and native.hashes_plainly(key) and key in value:
                    return value[key]
                raise Unexplained("a dict has no such key")
            return item
        if kind in (list, tuple, str, range, _core.Size, bytes):
            if kind is list and not self.is_fresh(value):
                self.evidence.elements(value)
            if type(key) is slice:
                return self.collection(value[key])
            return value[key] if kind is list or type(key) is int else self.index(value, key)
        if kind in native.TENSORS:
            self.slots((value,), "__getitem__")
            self.touch(key)
            return value[key]
        function = self.method(value, "__getitem__")
        if function is None:
            raise Unexplained(f"it subscripts a {kind.__name__}")
        return self.call(function, (value, key), {})

    def index(self, value: Any, key: Any) -> Any:
        """An element by a key that is no plain int."""
        if type(key) is not bool:
            raise Unexplained(f"an index is a {type(key).__name__}")
        return value[key]

    def check_result(self, value: Any) -> None:
        """Raises where a result cannot be built again."""
        kind = type(value)
        if kind in (list, dict):
            self.writable(value)
            del self._fresh[id(value)]  # a second time would be another object
        if kind in (tuple, list):
            for item in value:
                self.check_result(item)
        elif kind is dict:
            for key, item in value.items():
                if type(key) not in (str, int):
                    raise Unexplained("a result has keys that are no strings")
                self.check_result(item)
        elif kind not in native.ATOMS and kind not in native.TENSORS:
            raise Unexplained(f"its result has a {kind.__name__}")


class Generator:
    """A generator whose code is interpreted."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __iter__(self) -> Generator:
        return self

    def __next__(self) -> Any:
        yields, value = self._frame.resume()
        if not yields:
            raise StopIteration(value)
        return value


def bytecode() -> Any:
    """The module for this version of CPython."""
    return late("flambeau.capture.frame.bytecode_311")


def bind(
    machine: Machine, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """The values of a function's parameters, in the order of its local variables."""
    code = function.__code__
    count, named = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    values: list[Any] = list(args[:count])
    if len(args) > count and not code.co_flags & 0x04:
        raise Raised(TypeError(f"{function.__name__}() got too many arguments"))
    free = dict(kwargs)
    defaults = function.__defaults__ or ()
    for i in range(len(values), count):
        position = i - (count - len(defaults))
        default = defaults[position] if position >= 0 else MISSING
        values.append(_value(function, names[i], i >= code.co_posonlyargcount, free, default))
    for name in names[: min(len(args), count)]:
        if name in free and not code.co_flags & 0x08:
            raise Raised(TypeError(f"{function.__name__}() got several values of {name}"))
    only = function.__kwdefaults__ or {}
    for name in names[count : count + named]:
        values.append(_value(function, name, True, free, only.get(name, MISSING)))
    if code.co_flags & 0x04:
        values.append(tuple(args[count:]))
    if code.co_flags & 0x08:
        values.append(machine.fresh(free))
    elif free:
        raise Raised(TypeError(f"{function.__name__}() got unexpected keyword arguments"))
    return values


def _value(function: Any, name: str, by_name: bool, named: dict[str, Any], default: Any) -> Any:
    if by_name and name in named:
        return named.pop(name)
    if default is MISSING:
        raise Raised(TypeError(f"{function.__name__}() lacks {name}"))
    return default
