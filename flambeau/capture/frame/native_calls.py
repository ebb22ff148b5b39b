"""Native functions that a dry run understands: their only effect is their result.

Native code must not call code of users, which would go unseen: `Machine.touch` lets it read
builtin values, tensors and containers of these alone, and notes what containers from outside hold.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from flambeau import _core
from flambeau._core import Tensor
from flambeau.capture.frame.evidence import MISSING, Raised, Unexplained, is_key
from flambeau.nn.parameter import Parameter

if TYPE_CHECKING:
    from flambeau.capture.frame.machine import Machine

TENSORS = frozenset({Tensor, Parameter})
ATOMS = frozenset(
    {
        types.NoneType, bool, int, float, complex, str, bytes, types.EllipsisType, range,
        types.NotImplementedType, _core.dtype, _core.device, _core.Size, _core.memory_format,
        _core.layout,
    }
)  # fmt: skip
CONTAINERS = frozenset({tuple, list, dict, OrderedDict, set, frozenset})
ITERATORS = frozenset(
    {
        type(iter(())), type(iter([])), type(iter({})), type(iter({}.values())),
        type(iter({}.items())), type(iter("")), type(iter("é")), type(iter(range(0))),
        type(iter(range(1 << 70))), type(iter(set())), type(reversed([])), enumerate, zip, reversed,
        type({}.keys()), type({}.values()), type({}.items()), type(OrderedDict().items()),
        type(OrderedDict().values()), type(OrderedDict().keys()),
    }
)  # fmt: skip
GUARDS = frozenset({_core.no_grad, _core.enable_grad, _core.set_grad_enabled, _core.inference_mode})
BY_IDENTITY = frozenset({type, types.FunctionType, types.ModuleType, _core.Op, *GUARDS})
NATIVE_ATTRIBUTES = ITERATORS | GUARDS | {slice}
TENSOR_FACTS = frozenset(
    "shape ndim itemsize nbytes dtype device layout is_cpu is_cuda is_mps is_xpu is_sparse "
    "is_sparse_csr is_quantized is_mkldnn is_meta requires_grad T H mT mH".split()
)
TENSOR_METHODS = frozenset(
    "size stride dim ndimension numel nelement element_size storage_offset is_contiguous "
    "is_floating_point is_complex is_signed is_conj is_neg get_device detach".split()
)
_PURE: frozenset[Any] = frozenset(
    {
        abs, divmod, pow, round, min, max, sum, int, float, complex, bool, str, slice, range, ord,
        chr, bin, hex, repr, sorted, math.sqrt, math.ceil, math.floor, math.log, math.log2,
        math.exp,
        math.pow, math.prod, math.sin, math.cos, math.tanh, math.gcd, math.isinf, math.isnan,
        math.log10, math.fabs, math.isclose, operator.index,
        _core.is_grad_enabled, _core.is_inference_mode_enabled,
        _core.is_recording, _core.Size, _core.device,
    }
)  # fmt: skip
_BUILDERS: dict[Any, Any] = {
    tuple: tuple, list: list, set: set, frozenset: frozenset, enumerate: enumerate, zip: zip,
}  # fmt: skip
_LIST_READS = frozenset({"index", "count", "copy", "__len__", "__getitem__", "__contains__"})
_LIST_WRITES = frozenset(
    {"append", "extend", "insert", "pop", "reverse", "clear", "__setitem__", "__delitem__"}
)
_DICT_WRITES = frozenset({"update", "setdefault", "pop", "clear", "popitem"})
_SET_METHODS = frozenset({"add", "update", "discard", "union", "copy", "pop"})


def hashes_plainly(value: Any) -> bool:
    """Whether hashing and comparing a value runs no code of users."""
    kind = type(value)
    if kind is tuple or kind is frozenset:
        return all(hashes_plainly(item) for item in value)
    return kind in ATOMS or kind in BY_IDENTITY


def compares_plainly(value: Any) -> bool:
    """Whether comparing a value with a like one runs no code of users, and no operators."""
    kind = type(value)
    if kind in (list, set):
        return all(compares_plainly(item) for item in value)
    if kind is dict:
        return all(hashes_plainly(k) and compares_plainly(v) for k, v in value.items())
    if kind is tuple:
        return all(compares_plainly(item) for item in value)
    return hashes_plainly(value)


def understands(function: Any) -> bool:
    """Whether a callable is a class or function of the tables above."""
    if isinstance(function, type):
        return function in _PURE or function in _BUILDERS or function in _SPECIAL or (
            function in GUARDS
        )  # fmt: skip
    return isinstance(function, (types.BuiltinFunctionType, types.MethodDescriptorType))


def call(machine: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a native function.

    Raises:
        Unexplained: it is not understood, with these arguments.
    """
    special = _SPECIAL.get(function) if _hashable(function) else None
    if special is not None:
        if kwargs and function not in _NAMED:
            raise Unexplained(f"it calls {function.__name__} with keywords")
        return special(machine, *args, **kwargs)
    if isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        if not args or type(args[0]) is not function.__objclass__:
            raise Unexplained(f"it calls {function.__qualname__}")
        return call(machine, function.__get__(args[0]), args[1:], kwargs)
    owner = getattr(function, "__self__", None)
    if not isinstance(function, type) and not isinstance(owner, (types.ModuleType, types.NoneType)):
        return _call_method(machine, owner, function, args, kwargs)
    if function in _BUILDERS:
        return _build(machine, function, args, kwargs)
    if function in GUARDS:
        machine.touch(args)
        if not all(type(value) is bool for value in args):
            raise Unexplained(f"it decorates by {function.__name__}")
        return machine.fresh(function(*args, **kwargs))
    if function not in _PURE:
        raise Unexplained(f"it calls {getattr(function, '__qualname__', function)}")
    return _call_pure(machine, function, args, kwargs)


def _hashable(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    return isinstance(function, type) or owner is None or isinstance(owner, types.ModuleType)


def _call_pure(machine: Any, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if len(args) == 1 and function in (sum, min, max, sorted) or (function is sum and args):
        args = (machine.fresh(list(machine.iterate(args[0]))), *args[1:])
    if "key" in kwargs and kwargs["key"] is not None:
        raise Unexplained(f"it calls {function.__name__} with a key")
    for value in (*args, *kwargs.values()):
        machine.touch(value)
        if type(value) is list:
            machine.slots(tuple(value), "__add__", "__radd__")
        if function in (sorted, min, max) and not compares_plainly(value):
            raise Unexplained(f"it calls {function.__name__} of no numbers")
        if function in (str, repr) and type(value) not in ATOMS:
            raise Unexplained(f"it prints a {type(value).__name__}")
    return machine.collection(function(*args, **kwargs))


def _build(machine: Any, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kind is zip:
        return machine.fresh(zip(*(machine.iterate(value) for value in args), **kwargs))
    if not args:
        return machine.fresh(kind())
    iterator = machine.iterate(args[0])
    if kind in (set, frozenset):
        values = list(iterator)
        if not all(hashes_plainly(value) for value in values):
            raise Unexplained("it makes a set of objects")
        return machine.fresh(kind(values))
    return machine.fresh(kind(iterator, *args[1:], **kwargs))


def _call_method(
    machine: Any, owner: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    kind, name = type(owner), function.__name__
    if kind in GUARDS and name in ("__enter__", "__exit__", "clone"):
        machine.writable(owner)
        return machine.fresh(function(*args)) if name == "clone" else function(*args)
    if isinstance(owner, type) and function == type.__instancecheck__.__get__(owner):
        machine.evidence.bases(machine.typed(args[0]))
        return issubclass(type(args[0]), owner)
    if kind in TENSORS and name in TENSOR_METHODS:
        machine.touch(args)
        return function(*args, **kwargs)
    if kind is list and (name in _LIST_READS or name in _LIST_WRITES):
        return _call_list(machine, owner, function, args)
    if kind in (dict, OrderedDict):
        return _call_dict(machine, owner, function, args, kwargs)
    if kind is set and name in _SET_METHODS and all(hashes_plainly(value) for value in args):
        machine.writable(owner)
        return machine.collection(function(*args))
    if kind is tuple and name in ("index", "count") and compares_plainly((owner, args)):
        return function(*args)
    if kind in ATOMS:
        return _call_atom(machine, function, args, kwargs)
    if machine.is_fresh(owner) and name == "__init__" and not args and not kwargs:
        return function()
    if machine.is_fresh(owner) and name == "__setattr__" and len(args) == 2:
        return function(*args)
    raise Unexplained(f"it calls {kind.__name__}.{name}")


def _call_list(machine: Any, owner: Any, function: Any, args: tuple[Any, ...]) -> Any:
    name = function.__name__
    if name in _LIST_WRITES:
        machine.writable(owner)
        if name == "extend":
            args = (list(machine.iterate(args[0])),)
        return function(*args)
    machine.touch(owner)
    if name in ("index", "count", "__contains__") and not compares_plainly((owner, args)):
        raise Unexplained(f"it calls list.{name} of objects")
    return machine.collection(function(*args))


def _call_dict(
    machine: Any, owner: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    name = function.__name__
    if name == "get" and is_key(args[0]):
        value = machine.table_item(owner, args[0])
        return (args[1] if len(args) > 1 else None) if value is MISSING else value
    if name in ("keys", "values", "items", "copy"):
        if not machine.is_fresh(owner):
            machine.evidence.items(owner)
        if type(owner) is OrderedDict and len(owner) > 1:
            raise Unexplained("it iterates over an OrderedDict")
        return machine.fresh(function())
    if name in _DICT_WRITES and all(type(a) is dict or hashes_plainly(a) for a in args[:1]):
        machine.writable(owner)
        for value in args[:1]:
            if type(value) is dict:
                machine.touch(value)
        return function(*args, **kwargs)
    raise Unexplained(f"it calls dict.{name}")


def _call_atom(machine: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if type(function.__self__) is str and function.__name__ == "join":
        args = (list(machine.iterate(args[0])),)
    for value in (*args, *kwargs.values()):
        machine.touch(value)
        if not compares_plainly(value):
            raise Unexplained(f"it calls {function.__qualname__} of objects")
    return machine.collection(function(*args, **kwargs))


# ---------------------------------------------------------------------- builtins by themselves
def _isinstance(machine: Any, value: Any, kinds: Any) -> bool:
    if type(kinds) is tuple:
        return any(_isinstance(machine, value, kind) for kind in kinds)
    if type(kinds) is types.UnionType:
        return any(_isinstance(machine, value, kind) for kind in kinds.__args__)
    if not isinstance(kinds, type):
        raise Unexplained(f"isinstance of a {type(kinds).__name__}")
    kind = machine.typed(value)
    if type(kinds) is type:
        if "__class__" in kind.__dict__ and kind not in TENSORS:
            raise Unexplained(f"a {kind.__name__} computes its class")
        machine.evidence.bases(kind)
        return issubclass(kind, kinds)
    if kind is kinds:
        return True
    check = machine.evidence.attribute(type(kinds), "__instancecheck__")
    if isinstance(check, types.FunctionType) and type(kinds).__module__.startswith("flambeau."):
        return bool(machine.call(check, (kinds, value), {}))
    if type(kinds).__name__ == "ABCMeta" and kind in ATOMS | CONTAINERS | TENSORS:
        return isinstance(value, kinds)
    raise Unexplained(f"isinstance of {kinds.__name__}, whose class decides")


def _issubclass(machine: Any, kind: Any, kinds: Any) -> bool:
    if type(kind) is not type or not all(
        type(k) is type for k in (kinds if type(kinds) is tuple else (kinds,))
    ):
        raise Unexplained("issubclass of a class that decides")
    machine.evidence.bases(kind)
    return issubclass(kind, kinds)


def _getattr(machine: Any, value: Any, name: Any, *default: Any) -> Any:
    if type(name) is not str:
        raise Unexplained("getattr of no string")
    try:
        return machine.getattr(value, name)
    except (Raised, AttributeError) as error:
        cause = error.error if isinstance(error, Raised) else error
        if default and isinstance(cause, AttributeError):
            return default[0]
        raise


def _hasattr(machine: Any, value: Any, name: Any) -> bool:
    return _getattr(machine, value, name, MISSING) is not MISSING


def _setattr(machine: Any, value: Any, name: Any, new: Any) -> None:
    machine.setattr(value, name, new)


def _len(machine: Any, value: Any) -> int:
    return int(machine.length(value))


def _type(machine: Any, value: Any) -> type:
    kind: type = machine.typed(value)
    return kind


def _any(machine: Any, values: Any) -> bool:
    return any(machine.truth(value) for value in machine.iterate(values))


def _all(machine: Any, values: Any) -> bool:
    return all(machine.truth(value) for value in machine.iterate(values))


def _iter(machine: Any, value: Any) -> Any:
    return machine.iterate(value)


def _next(machine: Any, iterator: Any, *default: Any) -> Any:
    try:
        return next(machine.iterate(iterator), *default)
    except StopIteration as error:
        raise Raised(error) from None


def _reversed(machine: Any, value: Any) -> Any:
    return machine.fresh(iter(list(machine.iterate(value))[::-1]))


def _map(machine: Any, function: Any, *values: Any) -> Any:
    columns = zip(*(list(machine.iterate(value)) for value in values), strict=False)
    return machine.fresh(iter([machine.call(function, row, {}) for row in columns]))


def _dict(machine: Any, *args: Any, **kwargs: Any) -> Any:
    for value in args:
        if type(value) is not dict:
            raise Unexplained("dict of no dict")
        machine.touch(value)
    return machine.fresh(dict(*args, **kwargs))


def _callable(machine: Any, value: Any) -> bool:
    machine.typed(value)
    kinds: Any = (types.FunctionType, types.MethodType, type, _core.Op, _core.shield)
    if isinstance(value, kinds):
        return True
    return machine.evidence.attribute(type(value), "__call__") is not MISSING


def _reduce(
    machine: Machine, function: Callable[..., object], values: Iterable[object], *initial: object
) -> object:
    items = [*initial, *machine.iterate(values)]
    if not items:
        raise Unexplained("it reduces nothing")
    total = items[0]
    for value in items[1:]:
        total = machine.call(function, (total, value), {})
    return total


_SPECIAL: dict[Any, Callable[..., Any]] = {
    isinstance: _isinstance,
    issubclass: _issubclass,
    getattr: _getattr,
    hasattr: _hasattr,
    setattr: _setattr,
    len: _len,
    type: _type,
    any: _any,
    all: _all,
    iter: _iter,
    next: _next,
    builtins.reversed: _reversed,
    map: _map,
    dict: _dict,
    callable: _callable,
    functools.reduce: _reduce,
}
_NAMED = frozenset({dict})
