"""Attributes, calls and operators of a dry run, on real values.

Each operation is either one of Python code, which is interpreted, or one of native code that is
understood (`native_calls`): its effects are its result. `values` says which may be written.
"""

from __future__ import annotations

import enum
import functools
import itertools
import operator
import sys
import types
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

from flambeau import _core
from flambeau._core import Tensor
from flambeau.capture.frame import native_calls as native
from flambeau.capture.frame import plain, tape, tensors
from flambeau.capture.frame.binding import bind, joined
from flambeau.capture.frame.evidence import MISSING, Evidence, Raised, Unexplained
from flambeau.capture.frame.generators import GENERATOR_METHODS, Generator, Opaque, Trace
from flambeau.capture.frame.numbers import Number, Rates
from flambeau.capture.frame.tensors import CALLED
from flambeau.capture.frame.values import Value, Values
from flambeau.ir.lock import late
from flambeau.runtime import boundaries

_HEAP_TYPE = 1 << 9  # of `type.__flags__`
_NEW_NODE = _core.Node.__dict__["__new__"]  # of contexts of custom functions
_FIELDS: tuple[type, ...] = (  # descriptors of the items of named tuples
    types.MemberDescriptorType,
    type(namedtuple("_Named", "field").field),  # type: ignore[attr-defined]
)
_TRACEBACK = BaseException.__dict__["__traceback__"]
_FUNCTION_DOC = types.FunctionType.__dict__["__doc__"]
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
_GENERIC = frozenset(  # ways to read and write attributes that look them up plainly
    kind.__dict__[name]
    for kind in (object, BaseException, dict, list, tuple, set, int, float, str)
    for name in ("__getattribute__", "__setattr__")
    if name in kind.__dict__
)


class Machine(Values):
    """Interprets calls.

    Attributes:
        ranged: whether they name a part of themselves for profiles.
        steps: instructions that may still be executed.
        handled: the error whose handler runs.
    """

    def __init__(self, evidence: Evidence, rates: Rates) -> None:
        super().__init__(evidence, rates)
        self.ranged = False
        self.steps = _MAX_STEPS
        self.handled: BaseException | None = None
        self._generators: list[Generator] = []
        self._entered: dict[int, list[Any]] = {}  # copies of gradient modes from outside
        self._depth = 0

    def forget(self) -> None:
        """Drops the values that the dry run made."""
        self._fresh.clear()
        for generator in self._generators:
            generator.ended = True
        self._generators.clear()
        self.handled = None

    # ------------------------------------------------------------------ fresh values
    # ------------------------------------------------------------------ attributes
    def getattr(self, value: Any, name: str) -> Any:
        """The attribute of a value."""
        kind = type(value)
        if kind is Number:
            if hasattr(self.typed(value), name):
                raise self.numbers.refuse(value, f"it reads {name} of a counter")
            raise Raised(AttributeError(name), exact=False)
        if kind in plain.TENSORS:
            return tensors.attribute(self, value, kind, name)
        if kind in plain.ATOMS or kind in plain.CONTAINERS or kind in plain.NATIVE_ATTRIBUTES:
            return getattr(value, name)
        if kind is types.ModuleType:
            return self._module_attribute(value, name)
        if isinstance(value, type):
            return self._class_attribute(value, name)
        if kind is Generator and name in GENERATOR_METHODS:
            return getattr(value, name)
        if kind is super:
            return self._super_attribute(value, name)
        if issubclass(kind, Opaque):
            raise Unexplained(f"it reads {name} of a value of this call alone")
        if kind is types.FunctionType and name in ("__name__", "__qualname__", "__module__"):
            raise Unexplained("it reads the name of a function")
        return self._object_attribute(value, kind, name)

    def _module_attribute(self, module: types.ModuleType, name: str) -> Any:
        value = self.evidence.item(module.__dict__, name, module.__name__)
        if value is MISSING:
            raise Unexplained(f"module {module.__name__} computes its attribute {name}")
        return value

    def _class_attribute(self, kind: type, name: str) -> Any:
        if name == "__name__" and type(kind) is type:
            return self.evidence.title(kind)
        if name == "__module__" and type(kind) is type and not kind.__flags__ & _HEAP_TYPE:
            return kind.__module__
        by_class = self.evidence.attribute(type(kind), name)
        if by_class is not MISSING and _is_data(by_class):
            raise Unexplained(f"it reads {name} of a class")
        if isinstance(kind, enum.EnumMeta):
            return self._member(kind, name)
        reads = self.evidence.attribute(type(kind), "__getattribute__")
        if reads is not type.__getattribute__:
            raise Unexplained(f"the class of {kind.__name__} computes attributes")
        value = self.evidence.attribute(kind, name)
        if value is MISSING:
            return self._class_attribute_by_class(kind, name, by_class)
        if isinstance(value, classmethod):
            return types.MethodType(value.__func__, kind)
        read = self.evidence.attribute(type(value), "__get__")
        if isinstance(read, types.FunctionType):
            return self.call(read, (value, None, kind), {})
        return self._unbound(value, f"{kind.__name__}.{name}")

    def _class_attribute_by_class(self, kind: type, name: str, by_class: object) -> Any:
        if by_class is not MISSING:
            return self._bind(by_class, kind, type(kind), name)
        computed = self.evidence.attribute(type(kind), "__getattr__")
        if isinstance(computed, types.FunctionType):
            return self.call(computed, (kind, name), {})
        if computed is not MISSING:
            raise Unexplained(f"the class of {kind.__name__} computes attributes")
        text = f"type object '{self.evidence.title(kind)}' has no attribute '{name}'"
        raise Raised(AttributeError(text, name=name, obj=kind))

    def _member(self, kind: enum.EnumMeta, name: str) -> Any:
        members = kind._member_map_
        if name not in members or type(kind) is not enum.EnumMeta:
            value = self.evidence.attribute(kind, name)
            if isinstance(value, classmethod):
                return types.MethodType(value.__func__, kind)
            raise Unexplained(f"it reads {name} of an Enum")
        self.evidence.hierarchy(kind)
        return self.evidence.item(members, name, f"{kind.__qualname__}._member_map_")

    def _unbound(self, value: object, name: str) -> Any:
        if isinstance(value, staticmethod):
            return value.__func__
        if isinstance(value, (*CALLED, *_NATIVE)):
            return value
        if isinstance(value, types.ClassMethodDescriptorType):
            return value.__get__(None, value.__objclass__)
        if hasattr(type(value), "__get__"):
            raise Unexplained(f"it reads the descriptor {name}")
        return self.evidence.read(value)

    def _super_attribute(self, value: Any, name: str) -> Any:
        self.evidence.hierarchy(value.__self_class__)
        bound = getattr(value, name)
        if isinstance(bound, (types.MethodType, types.MethodWrapperType)):
            return bound
        if name in ("__instancecheck__", "__new__") and isinstance(
            bound, types.BuiltinFunctionType
        ):
            return bound
        raise Unexplained(f"it reads super().{name}")

    def _object_attribute(self, value: object, kind: type, name: str) -> Any:
        if value is boundaries.local and name == "recorder":
            return None  # it is a mode, and modes are compared
        reads = self.evidence.attribute(kind, "__getattribute__")
        if reads not in _GENERIC and not (reads is tape.READS and self.is_fresh(value)):
            raise Unexplained(f"{kind.__name__} computes its attributes")
        try:
            return self._found_attribute(value, kind, name)
        except Raised as raised:
            computed = self.evidence.attribute(kind, "__getattr__")
            if computed is MISSING or not isinstance(raised.error, AttributeError):
                raise
        if isinstance(computed, types.FunctionType):
            return self.call(computed, (value, name), {})
        raise Unexplained(f"{kind.__name__} computes its attributes")

    def _found_attribute(self, value: object, kind: type, name: str) -> Any:
        by_type = self.evidence.attribute(kind, name)
        if isinstance(by_type, property) and by_type.fget is not None:
            self.holder(value)
            return self.call(by_type.fget, (value,), {})
        if by_type is not MISSING and _is_data(by_type):
            return self._slot(value, kind, name, by_type)
        table = self.holder(value)
        if table is not None:
            own = self.table_item(table, name)
            if own is not MISSING:
                return own
        if by_type is not MISSING:
            return self._bind(by_type, value, kind, name)
        text = f"'{self.evidence.title(kind)}' object has no attribute '{name}'"
        raise Raised(AttributeError(text, name=name, obj=value))

    def _slot(self, value: object, kind: type, name: str, descriptor: object) -> Any:
        if name == "__dict__" and isinstance(descriptor, types.GetSetDescriptorType):
            return self.holder(value)
        if name == "__class__":
            self.typed(value)
            return kind
        if self.is_named_tuple(kind) and isinstance(descriptor, _FIELDS):
            self.typed(value)
            item = getattr(value, name)
            return item if self.is_fresh(value) else self.evidence.read(item)
        if isinstance(descriptor, types.MemberDescriptorType) and not self.is_fresh(value):
            return self._outside_slot(value, kind, name, descriptor)
        if descriptor is _TRACEBACK and value is self.handled:
            return self.fresh(Trace())
        error = isinstance(value, BaseException) and name == "args"
        member = isinstance(descriptor, types.MemberDescriptorType)
        if self.is_fresh(value) and (error or member or descriptor in tape.SHOWN):
            return self.native(getattr, value, name)
        read = self.evidence.attribute(type(descriptor), "__get__")
        if isinstance(read, types.FunctionType):
            self.typed(value)
            return self.call(read, (descriptor, value, kind), {})
        raise Unexplained(f"it reads {kind.__name__}.{name}, a descriptor")

    def _outside_slot(self, value: object, kind: type, name: str, descriptor: Any) -> Any:
        readable = descriptor.__objclass__.__flags__ & _HEAP_TYPE or descriptor is _FUNCTION_DOC
        if not readable or name in ("__dict__", "__weakref__"):
            raise Unexplained(f"it reads {kind.__name__}.{name}, a descriptor")
        item = self.evidence.slot(value, descriptor)
        if item is MISSING:
            raise Raised(AttributeError(name), exact=False)
        return item

    def _bind(self, value: object, owner: object, kind: type, name: str) -> Any:
        called: tuple[Any, ...] = (*CALLED, _core.CompiledFunction)
        if isinstance(value, called):
            return types.MethodType(value, owner)
        if isinstance(value, classmethod):
            return types.MethodType(value.__func__, kind)
        if isinstance(value, _NATIVE):
            return value.__get__(owner, kind)
        read = self.evidence.attribute(type(value), "__get__")
        if isinstance(read, types.FunctionType):
            self.typed(owner)
            return self.call(read, (value, owner, kind), {})
        return self._unbound(value, f"{kind.__name__}.{name}")

    def setattr(self, value: object, name: str, new: object) -> None:
        """Sets an attribute of an object, or the gradient of a tensor."""
        if type(value) in plain.TENSORS and name == "grad":
            tensors.set_gradient(self, value, new)
            return
        method = self.evidence.attribute(type(value), "__setattr__")
        if isinstance(method, types.FunctionType):
            self.call(method, (value, name, new), {})
            return
        if method not in _GENERIC:
            raise Unexplained(f"{type(value).__name__} computes its attributes")
        self.set_plainly(value, name, new)

    def set_plainly(self, value: object, name: str, new: object) -> None:
        """Sets an attribute as `object.__setattr__` does."""
        descriptor = self.evidence.attribute(type(value), name)
        if descriptor is _TRACEBACK and self.is_fresh(value) and type(new) is Trace:
            return  # nothing reads it
        if isinstance(descriptor, property) and descriptor.fset is not None:
            self.call(descriptor.fset, (value, new), {})
            return
        if descriptor is not MISSING:
            write = self.evidence.attribute(type(descriptor), "__set__")
            if isinstance(write, types.FunctionType):
                self.call(write, (descriptor, value, new), {})
                return
            if _is_data(descriptor) and not isinstance(descriptor, types.MemberDescriptorType):
                raise Unexplained(f"{type(value).__name__} computes its attributes")
        bare = isinstance(descriptor, types.MemberDescriptorType) or isinstance(value, Tensor)
        table = None if bare or self.is_fresh(value) else self.holder(value)
        if table is not None:
            self.write(table, name, new)
            return
        self.writable(value)
        self.native(object.__setattr__, value, name, new)

    def delattr(self, value: object, name: str) -> None:
        """Removes an attribute of a fresh object."""
        kind = type(value)
        self.writable(value)
        removes = self.evidence.attribute(kind, "__delattr__")
        descriptor = self.evidence.attribute(kind, name)
        if removes is not object.__delattr__ or _is_data(descriptor):
            raise Unexplained(f"it removes {name} of a {kind.__name__}")
        self.native(object.__delattr__, value, name)

    def set_item(self, table: Any, key: Any, new: object) -> None:
        """table[key] = new, for a list, a deque or a dict."""
        kind = type(table)
        if kind in plain.DICTS and not self.is_fresh(table) and self.is_key(key):
            self.write(table, key, new)
            return
        if kind is list and not self.is_fresh(table):
            self.write_element(table, key, new)
            return
        self.writable(table)
        if not plain.compares(key) and type(key) is not tape.Serial:
            raise Unexplained(f"it writes items of a {kind.__name__}")
        self.native(operator.setitem, table, key, new)

    # ------------------------------------------------------------------ calls
    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call."""
        kind = type(function)
        if kind is types.FunctionType:
            return self._enter(function, args, kwargs)
        if kind is types.MethodType:
            if type(function.__self__) is Generator:
                return self._call_generator(function, args, kwargs)
            return self.call(function.__func__, (function.__self__, *args), kwargs)
        if kind is _core.Op or kind is _core.shield:
            if kwargs.get("out") is not None:
                raise Unexplained("it passes out=")
            if function.autocast is not None and _core.is_autocast_enabled():
                return self._call_autocast(function, args, kwargs)
        if kind is _core.Op:
            return self._call_operator(function, args, kwargs)
        if kind is _core.shield:
            return self.call(function.__wrapped__, args, kwargs)
        if kind is _core.CompiledFunction:
            return self.call(function._function, args, kwargs)
        if kind is functools.partial:
            if not self.is_fresh(function):
                self.evidence.read(function.args)
                self.evidence.items(function.keywords)
            named = {**function.keywords, **kwargs}
            return self.call(function.func, joined(function.args, args), named)
        if function is super and len(args) == 2 and not kwargs:
            return super(*args)
        if isinstance(function, type):
            return self._construct(function, args, kwargs)
        if kind in _NATIVE or native.understands(function):
            return self.fresh_result(native.call(self, function, args, kwargs))
        method = self.evidence.attribute(kind, "__call__")
        if isinstance(method, types.FunctionType):
            self.typed(function)
            return self.call(method, (function, *args), kwargs)
        raise Unexplained(f"it calls a {kind.__name__}")

    def _enter(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        code = function.__code__
        if not self.is_fresh(function):
            self.evidence.function(function)
            if "_counts_in_tensors" in function.__dict__ and not kwargs:
                return self._count(*args)
        if code.co_flags & _COROUTINES:
            raise Unexplained("it calls a coroutine")
        frame = bytecode().Frame(self, function, bind(self, function, args, kwargs))
        if code.co_flags & _GENERATORS:
            self._generators.append(Generator(self, frame))
            return self.fresh(self._generators[-1])
        return self.run(frame.run)

    def _count(self, tensors: Any) -> Any:
        values = list(self.iterate(tensors))
        return self.fresh(list(self.numbers.count(values, self.evidence.constants)))

    def run(self, execute: Callable[..., Value], *args: Any) -> Value:
        """Executes a frame, or a part of it, inside of those that run."""
        handled = self.handled
        self._depth += 1
        if self._depth > _MAX_CALLS:
            raise Unexplained("its calls are too deep")
        try:
            return execute(*args)
        finally:
            self._depth -= 1
            self.handled = handled

    def send(self, iterator: object, value: object) -> Any:
        """The next value of an iterator, to which a value is sent.

        Raises:
            Raised: a StopIteration at its end, or an error of its code.
        """
        if type(iterator) is Generator:
            return iterator.advance(value)
        if value is not None:
            raise Unexplained(f"it sends to a {type(iterator).__name__}")
        try:
            return next(self.iterate(iterator))
        except StopIteration as error:
            raise Raised(error.with_traceback(None)) from None

    def guard_from_outside(self, guard: Any, name: str) -> Any:
        """Enters, leaves or copies a gradient mode, by means of a copy."""
        if name == "clone":
            return self.fresh(guard.clone())
        copies = self._entered.setdefault(id(guard), [])
        if type(guard) is _core.set_grad_enabled or (name == "__exit__" and not copies):
            raise Unexplained(f"it writes to a {type(guard).__name__} from outside")
        if name == "__exit__":
            return copies.pop().__exit__(None, None, None)
        copies.append(guard.clone())
        return copies[-1].__enter__()

    def check_generators(self) -> None:
        """Raises where a generator or a mode is left in a block that it would end."""
        if any(self._entered.values()):
            raise Unexplained("it leaves a gradient mode entered")
        if any(generator.guarded for generator in self._generators):
            raise Unexplained("a generator is left in a block that cleans up")

    def _call_operator(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if op.gate is not None:
            raise Unexplained(f"operator {op.__name__} has a gate")
        self.evidence.operator(op)
        composed = any("python" in flags for _, _, flags in op.overloads)
        if not composed and any(type(v) is Number for v in (*args, *kwargs.values())):
            return self._call_with_numbers(op, args, kwargs)
        self.touch(args)
        self.touch(tuple(kwargs.values()))
        if composed:
            index, values, _ = op.bind(args, kwargs)
            arguments, body, flags = op.overloads[index]
            if "python" in flags:
                return self._call_body(body, arguments, values)
        return self.collection(self.native(op, *args, **kwargs))

    def _call_autocast(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rule = function.autocast
        if callable(rule):
            return self.call(rule, args, kwargs)
        return native.call(self, _core.autocast_call, (rule, function, args, kwargs), {})

    def _call_with_numbers(self, op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        names = {key: self.numbers.argument(value, op.__name__) for key, value in kwargs.items()}
        return self.native_with_numbers(op, op.__name__, args, names)

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

    def _construct(self, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if native.understands(kind):
            return self.fresh_result(native.call(self, kind, args, kwargs))
        if issubclass(kind, BaseException):
            return self._construct_error(kind, args, kwargs)
        if not kind.__flags__ & _HEAP_TYPE or (
            self.evidence.attribute(type(kind), "__call__") is not type.__call__
        ):
            raise Unexplained(f"it makes a {kind.__name__}")
        create = self.evidence.attribute(kind, "__new__")
        if self.evidence.attribute(kind, "__del__") is not MISSING:
            raise Unexplained(f"it makes a {kind.__name__}, which has __del__")
        if isinstance(create, staticmethod) and isinstance(create.__func__, types.FunctionType):
            value = self.call(create.__func__, (kind, *args), kwargs)
        elif create is object.__new__ or (create is _NEW_NODE and not (args or kwargs)):
            value = self.fresh(self.native(create, kind))
        else:
            raise Unexplained(f"it makes a {kind.__name__}, which has __new__")
        if not isinstance(value, kind):
            return value
        initialise = self.evidence.attribute(kind, "__init__")
        if isinstance(initialise, types.FunctionType):
            self._initialise(initialise, value, args, kwargs)
        elif initialise is not object.__init__ or ((args or kwargs) and create is object.__new__):
            raise Unexplained(f"it makes a {kind.__name__}")
        return value

    def _initialise(
        self, function: object, value: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if self.call(function, (value, *args), kwargs) is not None:
            raise Unexplained("__init__ has a result")

    def _construct_error(
        self, kind: type[BaseException], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        create = self.evidence.attribute(kind, "__new__")
        if type(kind) is not type or not isinstance(create, types.BuiltinFunctionType):
            raise Unexplained(f"it makes a {kind.__name__}, which has __new__")
        if not kind.__flags__ & _HEAP_TYPE:
            return self.fresh(self.native(kind, *args, **kwargs))
        value = self.fresh(self.native(create, kind, *args, **kwargs))
        initialise = self.evidence.attribute(kind, "__init__")
        if isinstance(initialise, types.FunctionType):
            self._initialise(initialise, value, args, kwargs)
        else:
            self.native(initialise, value, *args, **kwargs)
        return value

    def _call_generator(
        self, method: types.MethodType, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        generator: Generator = method.__self__  # type: ignore[assignment]
        name = method.__func__.__name__
        if name == "throw" and len(args) == 3 and type(args[2]) is Trace:
            args = args[1:2] if type(args[1]) is args[0] else args
        if kwargs or len(args) > 1:
            raise Unexplained(f"it calls {name} of a generator in an old form")
        if name == "send":
            return generator.advance(*args)
        if name == "throw" and isinstance(args[0], BaseException) and self.is_fresh(args[0]):
            return generator.advance(None, args[0])
        if name == "close" and not args:
            return generator.close()
        if name == "__next__" and not args:
            return generator.advance(None)
        if name == "__iter__" and not args:
            return generator
        raise Unexplained(f"it calls {name} of a generator")

    # ------------------------------------------------------------------ protocols
    def method(self, value: object, name: str) -> Any:
        """A special method in Python that the type of a value defines, or None."""
        kind = self.typed(value)
        function = self.evidence.attribute(kind, name)
        return function if isinstance(function, types.FunctionType) else None

    def truth(self, value: object) -> bool:
        """Whether a value counts as true."""
        if value is True or value is False or value is None:
            return bool(value)
        kind = type(value)
        if kind is Number:
            return self.numbers.compare("!=", value, 0)
        if kind in plain.ATOMS or kind in plain.CONTAINERS or kind in plain.TENSORS:
            if kind in plain.CONTAINERS:
                self.length(value)
            return bool(value)
        for name in ("__bool__", "__len__"):
            function = self.method(value, name)
            if function is not None:
                result = self.call(function, (value,), {})
                if type(result) is not (bool if name == "__bool__" else int) or result < 0:
                    raise Unexplained(f"{name} has another result")
                return bool(result)
            if self.evidence.attribute(kind, name) is not MISSING:
                raise Unexplained(f"it reads the truth of a {kind.__name__}")
        return True

    def length(self, value: Any) -> int:
        """The length of a value."""
        value = self.as_tuple(value)
        kind = type(value)
        if kind in plain.CONTAINERS:
            if kind not in (tuple, frozenset) and not self.is_fresh(value):
                self.touch_length(value, kind)
            return len(value)
        if kind in plain.ATOMS or kind in plain.TENSORS:
            self.slots((value,), "__len__")
            return len(value)
        function = self.method(value, "__len__")
        if function is None:
            raise Unexplained(f"it reads the length of a {kind.__name__}")
        result = self.call(function, (value,), {})
        if type(result) is not int or result < 0:
            raise Unexplained("__len__ has another result")
        return result

    def iterate(self, value: Any) -> Iterator[Any]:
        """An iterator over a value."""
        value = self.as_tuple(value)
        kind = type(value)
        if kind in (Generator, types.GeneratorType) or kind in plain.ITERATORS:
            self.writable(value)
            return self.fresh(iter(value))
        if kind in plain.CONTAINERS or kind in (str, range, _core.Size):
            outside = not self.is_fresh(value)
            if kind is OrderedDict and outside and len(value) > 1:
                raise Unexplained("it iterates over an OrderedDict")
            if kind in (list, deque, set, *plain.DICTS) and outside:
                self.touch_length(value, kind)
            return self.fresh(iter(value))
        if kind in plain.TENSORS:
            self.slots((value,), "__iter__")
            rows = self.call(Tensor.unbind, (value,), {})
            return self.fresh(iter(rows))
        function = self.method(value, "__iter__")
        if function is None:
            return self._iterate_items(value, kind)
        iterator = self.call(function, (value,), {})
        if not hasattr(type(iterator), "__next__"):
            raise Unexplained(f"__iter__ of a {kind.__name__} has another result")
        following = self.evidence.attribute(type(iterator), "__next__")
        if type(iterator) is not Generator and isinstance(following, types.FunctionType):
            self.typed(iterator)
            return self.fresh(self._following(iterator, following))
        return self.iterate(iterator)

    def _following(self, iterator: object, function: object) -> Iterator[Any]:
        """The values of an object with `__next__`."""
        while True:
            try:
                item = self.call(function, (iterator,), {})
            except Raised as raised:
                if isinstance(raised.error, StopIteration):
                    return
                raise
            yield item

    def _iterate_items(self, value: object, kind: type) -> Iterator[Any]:
        function = self.method(value, "__getitem__")
        if function is None or self.evidence.attribute(kind, "__iter__") is not MISSING:
            raise Unexplained(f"it iterates over a {kind.__name__}")
        return self.fresh(self._items(value, function))

    def _items(self, value: object, function: object) -> Iterator[Any]:
        """The values of an object with `__getitem__` alone."""
        for index in itertools.count():
            try:
                item = self.call(function, (value, index), {})
            except Raised as raised:
                if isinstance(raised.error, (IndexError, StopIteration)):
                    return
                raise
            yield item

    def subscript(self, value: Any, key: Any) -> Any:
        """value[key]"""
        value = self.as_tuple(value)
        kind = type(value)
        if kind in plain.DICTS:
            item = self.table_item(value, key) if self.is_key(key) else MISSING
            if item is MISSING:
                if kind is defaultdict and value.default_factory is not None:
                    return self._default_item(value, key)
                if self.is_fresh(value) and plain.hashes(key) and key in value:
                    return value[key]
                if self.is_key(key):
                    raise Raised(KeyError(key))
                raise Unexplained("a dict is read by another key")
            return item
        if kind in (list, tuple, str, range, _core.Size, bytes, deque):
            if kind is list and type(key) is int and not self.is_fresh(value):
                return self.element(value, key)
            if kind in (list, deque) and not self.is_fresh(value):
                self.evidence.elements(value)
            if type(key) is slice:
                self.touch(key)
                return self.collection(self.native(operator.getitem, value, key))
            if type(key) not in (int, bool):
                self.touch(key)
                raise Unexplained(f"an index is a {type(key).__name__}")
            return self.native(operator.getitem, value, key)
        if kind in plain.TENSORS:
            self.slots((value,), "__getitem__")
            self.touch(key)
            return self.native(operator.getitem, value, key)
        function = self.method(value, "__getitem__")
        if function is None:
            raise Unexplained(f"it subscripts a {kind.__name__}")
        return self.call(function, (value, key), {})

    def _default_item(self, table: Any, key: Any) -> Any:
        """An item of a defaultdict that was not there."""
        self.writable(table)
        if not plain.hashes(key):
            raise Unexplained("a dict has keys that are objects")
        if key not in table:
            table[key] = self.call(table.default_factory, (), {})
        return table[key]


def _is_data(descriptor: object) -> bool:
    """Whether a descriptor comes before an object's own attributes."""
    kind = type(descriptor)
    return hasattr(kind, "__set__") or hasattr(kind, "__delete__")


def bytecode() -> Any:
    """The module for this version of CPython."""
    return late("flambeau.capture.frame.bytecode_{}{}".format(*sys.version_info))
