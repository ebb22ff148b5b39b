"""Native functions that a dry run understands: their only effect is their result.

Native code must not call code of users, which would go unseen: `Machine.touch` lets it read
builtin values, tensors and containers of these alone, and notes what containers from outside hold.
"""

from __future__ import annotations

import bisect
import builtins
import functools
import heapq
import itertools
import math
import operator
import sys
import types
import weakref
from abc import ABCMeta
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from flambeau import _core
from flambeau.capture.frame import iteration, operators, plain, tape, texts
from flambeau.capture.frame.evidence import MISSING, Raised, Unexplained
from flambeau.capture.frame.generators import Generator, Trace
from flambeau.capture.frame.numbers import Number

if TYPE_CHECKING:
    from flambeau.capture.frame.machine import Machine

_PURE: frozenset[Any] = frozenset(
    {
        abs, divmod, pow, round, min, max, sum, int, float, complex, bool, str, slice, range, ord,
        chr, bin, hex, oct, ascii, repr, sorted,
        math.sqrt, math.ceil, math.floor, math.log, math.log2,
        math.exp,
        math.pow, math.prod, math.sin, math.cos, math.tanh, math.gcd, math.isinf, math.isnan,
        math.log10, math.fabs, math.isclose, operator.index, math.tan, math.asin, math.acos,
        math.atan, math.atan2, math.hypot, math.sinh, math.cosh, math.trunc, math.copysign,
        math.factorial, math.lcm, math.fmod, math.remainder, math.frexp, math.ldexp, math.modf,
        math.isfinite, math.degrees, math.radians, math.gamma, math.lgamma, math.erf, math.erfc,
        math.comb, math.perm, math.isqrt, math.fsum, math.dist, math.nextafter, math.ulp,
        math.cbrt, math.exp2, math.expm1, math.log1p,
        _core.is_grad_enabled, _core.is_inference_mode_enabled,
        _core.is_recording, _core.Size, _core.device, _core.is_autocast_enabled,
        _core.get_autocast_dtype, _core.is_autocast_cache_enabled, _core.checkpoint_group,
    }
)  # fmt: skip
_BUILDERS: dict[Any, Any] = {
    tuple: tuple, list: list, set: set, frozenset: frozenset, enumerate: enumerate, zip: zip,
    deque: deque,
}  # fmt: skip
_LIST_READS = frozenset({"index", "count", "copy", "__len__", "__getitem__", "__contains__"})
_LIST_WRITES = frozenset(
    {
        "append", "extend", "insert", "pop", "reverse", "clear", "__setitem__", "__delitem__",
        "appendleft", "popleft", "rotate", "remove",
    }
)  # fmt: skip
_DICT_WRITES = frozenset({"update", "setdefault", "pop", "clear", "popitem"})
_STATES: dict[str, Callable[..., object]] = {
    "get_state": tape.get_state,
    "set_state": tape.set_state,
}
_SET_METHODS = frozenset({"add", "update", "discard", "union", "copy", "pop"})


def understands(function: object) -> bool:
    """Whether a callable is a class or function of the tables above."""
    if isinstance(function, type):
        tables: tuple[Any, ...] = (_PURE, _BUILDERS, _SPECIAL, plain.GUARDS, iteration.FUNCTIONS)
        return any(function in table for table in tables)
    return isinstance(function, (types.BuiltinFunctionType, types.MethodDescriptorType))


def call(
    machine: Machine, function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The result of a native function.

    Raises:
        Unexplained: it is not understood, with these arguments.
    """
    if any(type(value) is Number for value in args):
        return _call_with_numbers(machine, function, args, kwargs)
    special = _SPECIAL.get(function) if _hashable(function) else None
    if special is not None:
        if kwargs and function not in _NAMED:
            raise Unexplained(f"it calls {function.__name__} with keywords")
        return special(machine, *args, **kwargs)
    if _hashable(function) and function in iteration.FUNCTIONS:
        return iteration.call(machine, function, args, kwargs)
    if isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        if not args or type(args[0]) is not function.__objclass__:
            raise Unexplained(f"it calls {function.__qualname__}")
        return call(machine, function.__get__(args[0]), args[1:], kwargs)
    owner = getattr(function, "__self__", None)
    if not isinstance(function, type) and not isinstance(owner, (types.ModuleType, types.NoneType)):
        return _call_method(machine, owner, function, args, kwargs)
    if function in _BUILDERS:
        return _build(machine, function, args, kwargs)
    if function in plain.GUARDS:
        machine.touch(args)
        if not all(type(value) is bool for value in args):
            raise Unexplained(f"it decorates by {function.__name__}")
        return machine.fresh(function(*args, **kwargs))
    if function not in _PURE:
        raise Unexplained(f"it calls {getattr(function, '__qualname__', function)}")
    return _call_pure(machine, function, args, kwargs)


def _call_with_numbers(
    machine: Machine, function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if function in _STORES and not kwargs:
        return _SPECIAL[function](machine, *args)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type) and function == type.__instancecheck__.__get__(owner):
        return _call_method(machine, owner, function, args, kwargs)
    if type(owner) is list and function.__name__ == "append":  # which does not look at it
        return _call_list(machine, owner, function, args)
    if kwargs:
        raise Unexplained("it passes a counter by name")
    if function is bool:
        return machine.truth(args[0])
    return machine.numbers.call(function, args)


def _hashable(function: object) -> bool:
    owner = getattr(function, "__self__", None)
    return (
        isinstance(function, type)
        or owner is None
        or owner is object
        or isinstance(owner, types.ModuleType)
    )


def _call_pure(
    machine: Machine, function: Callable[..., object], args: Any, kwargs: dict[str, Any]
) -> Any:
    if function in (str, repr, ascii) and len(args) == 1 and not kwargs:
        return texts.text(machine, args[0], function)
    if function is abs and len(args) == 1:
        return operators.unary(machine, "__abs__", args[0])
    if function is bool and len(args) == 1:
        return machine.truth(args[0])
    if len(args) == 1 and function in (sum, min, max, sorted) or (function is sum and args):
        args = (machine.fresh(list(machine.iterate(args[0]))), *args[1:])
    if kwargs.get("key") is not None:
        return iteration.ordered(machine, function, args, kwargs)
    for value in (*args, *kwargs.values()):
        machine.touch(value)
        if type(value) is list:
            machine.slots(tuple(value), "__add__", "__radd__")
        if function in (sorted, min, max) and not plain.compares(value):
            raise Unexplained(f"it calls {function.__name__} of no numbers")
    return machine.collection(machine.native(function, *args, **kwargs))


def _build(machine: Machine, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kind is zip:
        return machine.fresh(zip(*(machine.iterate(value) for value in args), **kwargs))
    if not args:
        return machine.fresh(kind())
    iterator = machine.iterate(args[0])
    if kind in (set, frozenset):
        values = list(iterator)
        if not all(machine.hashes(value) for value in values):
            raise Unexplained("it makes a set of objects")
        return machine.fresh(kind(values))
    return machine.fresh(kind(iterator, *args[1:], **kwargs))


def _call_method(
    machine: Machine,
    owner: Any,
    function: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    kind, name = type(owner), function.__name__
    if owner is tuple and name == "__new__" and len(args) == 2 and not kwargs:
        return _new_tuple(machine, *args)
    if isinstance(owner, type) and (owner, name) in _CLASS_METHODS and not kwargs:
        return _CLASS_METHODS[owner, name](machine, *args)
    if owner is _core.default_generator and name in _STATES and not kwargs:
        return _STATES[name](machine, *args)
    if kind in plain.GUARDS and name in ("__enter__", "__exit__", "clone"):
        if not machine.is_fresh(owner):
            return machine.guard_from_outside(owner, name)
        return machine.fresh(function(*args)) if name == "clone" else function(*args)
    if isinstance(owner, type) and function == type.__instancecheck__.__get__(owner):
        machine.evidence.bases(machine.typed(args[0]))
        return issubclass(type(args[0]), owner)
    if kind in plain.TENSORS and name in plain.TENSOR_METHODS:
        machine.touch(args)
        return function(*args, **kwargs)
    if kind in plain.TENSORS and name == "requires_grad_" and not kwargs:
        flag = (*args, True)[0]
        own = _core.record_pending(owner) or machine.is_fresh(owner)
        if type(flag) is bool and (own or flag == owner.requires_grad):
            return machine.native(function, *args)
    if kind in (list, deque) and (name in _LIST_READS or name in _LIST_WRITES) and not kwargs:
        return _call_list(machine, owner, function, args)
    if kind is list and name == "sort" and not args:
        machine.writable(owner)
        owner[:] = machine.call(sorted, (owner,), kwargs)
        return None
    if kind in plain.DICTS:
        return _call_dict(machine, owner, function, args, kwargs)
    if kind is set and name in _SET_METHODS and all(machine.hashes(value) for value in args):
        machine.writable(owner)
        return machine.collection(machine.native(function, *args))
    if kind is tuple and name in ("index", "count") and plain.compares((owner, args)):
        return machine.native(function, *args)
    if kind in plain.ATOMS:
        return _call_atom(machine, function, args, kwargs)
    if machine.is_fresh(owner) and name == "__init__":
        if isinstance(owner, BaseException) or not (args or kwargs):
            return machine.native(function, *args, **kwargs)
    if machine.is_fresh(owner) and name == "__setattr__" and len(args) == 2:
        return machine.native(function, *args)
    raise Unexplained(f"it calls {kind.__name__}.{name}")


def _call_list(
    machine: Machine, owner: Any, function: Callable[..., object], args: tuple[Any, ...]
) -> Any:
    name = function.__name__
    if name == "append" and type(owner) is list and not machine.is_fresh(owner) and len(args) == 1:
        machine.evidence.append(owner, args[0])
        return None
    if name in _LIST_WRITES:
        machine.writable(owner)
        if name == "remove" and not plain.compares((owner, args)):
            raise Unexplained(f"it calls list.{name} of objects")
        if name == "extend" and type(args[0]) not in (list, tuple):
            for value in machine.iterate(args[0]):  # up to an error
                owner.append(value)
            return None
        if name == "extend":
            machine.iterate(args[0])
        return machine.native(function, *args)
    machine.touch(owner)
    if name in ("index", "count", "__contains__") and not plain.compares((owner, args)):
        raise Unexplained(f"it calls list.{name} of objects")
    return machine.collection(machine.native(function, *args))


def _call_dict(
    machine: Machine,
    owner: object,
    function: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    name = function.__name__
    if name == "get" and machine.is_key(args[0]):
        value = machine.table_item(owner, args[0])
        return (args[1] if len(args) > 1 else None) if value is MISSING else value
    if name in ("keys", "values", "items", "copy"):
        if not machine.is_fresh(owner):
            machine.evidence.items(owner)
        if type(owner) is OrderedDict and len(owner) > 1:
            raise Unexplained("it iterates over an OrderedDict")
        return machine.fresh(function())
    if name in _DICT_WRITES and all(map(_is_plain_key, args[:1])):
        machine.writable(owner)
        for value in args[:1]:
            if type(value) is dict:
                machine.touch(value)
        return machine.native(function, *args, **kwargs)
    raise Unexplained(f"it calls dict.{name}")


def _empty(machine: Machine, *args: Any) -> Any:
    """`tensor_empty`: memory that no operator may read."""
    machine.touch(args)
    return machine.fresh(machine.native(_core.tensor_empty, *args))


def _is_plain_key(value: object) -> bool:
    return type(value) in (dict, tape.Serial) or plain.hashes(value)


def _call_atom(
    machine: Machine, function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    name = function.__name__
    if type(getattr(function, "__self__", None)) is str and name == "join":
        args = (list(machine.iterate(args[0])),)
    for value in (*args, *kwargs.values()):
        machine.touch(value)
        if not plain.compares(value) or (
            name in ("format", "format_map", "__mod__") and not plain.shows(value)
        ):
            raise Unexplained(f"it calls {function.__qualname__} of objects")
    return machine.collection(machine.native(function, *args, **kwargs))


# ---------------------------------------------------------------------- builtins by themselves
def _isinstance(machine: Machine, value: object, kinds: object) -> bool:
    if type(kinds) is tuple:
        return any(_isinstance(machine, value, kind) for kind in kinds)
    if type(kinds) is types.UnionType:
        return any(_isinstance(machine, value, kind) for kind in kinds.__args__)
    if not isinstance(kinds, type):
        raise Unexplained(f"isinstance of a {type(kinds).__name__}")
    if type(value) is Generator and type(kinds) is type:
        return issubclass(types.GeneratorType, kinds)
    kind = machine.typed(value)
    if type(kinds) is type:
        bases = [base for base in kind.__mro__ if base is not object]
        if any("__class__" in base.__dict__ for base in bases) and kind not in plain.TENSORS:
            raise Unexplained(f"a {kind.__name__} computes its class")
        machine.evidence.bases(kind)
        return issubclass(kind, kinds)
    if kind is kinds:
        return True
    check = machine.evidence.attribute(type(kinds), "__instancecheck__")
    if isinstance(check, types.FunctionType) and type(kinds).__module__.startswith("flambeau."):
        return bool(machine.call(check, (kinds, value), {}))
    if type(kinds) is ABCMeta and kinds.__module__ in ("collections.abc", "numbers"):
        if kind in plain.ATOMS | plain.CONTAINERS | plain.TENSORS:
            return isinstance(value, kinds)
    raise Unexplained(f"isinstance of {kinds.__name__}, whose class decides")


def _id(machine: Machine, value: object) -> int:
    if not machine.is_constant(value):
        raise Unexplained(f"it reads the id of a {type(value).__name__}")
    return id(value)


def _issubclass(machine: Machine, kind: Any, kinds: Any) -> bool:
    if type(kind) is not type or not all(
        type(k) is type for k in (kinds if type(kinds) is tuple else (kinds,))
    ):
        raise Unexplained("issubclass of a class that decides")
    machine.evidence.bases(kind)
    return issubclass(kind, kinds)


def attribute_or(machine: Machine, value: object, name: object, *default: object) -> Any:
    """getattr(value, name, default)"""
    if type(name) is not str:
        raise Unexplained("getattr of no string")
    try:
        return machine.getattr(value, name)
    except (Raised, AttributeError) as error:
        cause = error.error if isinstance(error, Raised) else error
        if default and isinstance(cause, AttributeError):
            return default[0]
        raise


def _hasattr(machine: Machine, value: object, name: object) -> bool:
    return attribute_or(machine, value, name, MISSING) is not MISSING


def _setattr(machine: Machine, value: Any, name: Any, new: Any) -> None:
    machine.setattr(value, name, new)


def _len(machine: Machine, value: object) -> int:
    return int(machine.length(value))


def _type(machine: Machine, value: object) -> type:
    kind: type = machine.typed(value)
    return kind


def _any(machine: Machine, values: object) -> bool:
    return any(machine.truth(value) for value in machine.iterate(values))


def _all(machine: Machine, values: object) -> bool:
    return all(machine.truth(value) for value in machine.iterate(values))


def _iter(machine: Machine, value: object) -> Any:
    return machine.iterate(value)


def _next(machine: Machine, iterator: object, *default: object) -> Any:
    if not hasattr(type(iterator), "__next__"):
        raise Unexplained("next of no iterator")
    function = machine.method(iterator, "__next__") if _has_methods(iterator) else None
    try:
        if function is not None:
            return machine.call(function, (iterator,), {})
        return machine.send(iterator, None)
    except Raised as raised:
        if default and isinstance(raised.error, StopIteration):
            return default[0]
        raise


def _has_methods(value: object) -> bool:
    kind = type(value)
    return kind not in plain.ITERATORS and kind not in (types.GeneratorType, Generator)


def _partial(machine: Machine, function: Callable[..., object], *args: Any, **kwargs: Any) -> Any:
    return machine.fresh(functools.partial(function, *args, **kwargs))


def _method(machine: Machine, function: object, owner: object) -> object:
    return machine.fresh(machine.native(types.MethodType, function, owner))


def _exc_info(machine: Machine) -> tuple[object, ...]:
    error = machine.handled
    return (None, None, None) if error is None else (type(error), error, machine.fresh(Trace()))


def _reference(machine: Machine, value: object) -> object:
    """`weakref.ref`, which nothing follows."""
    machine.writable(value)
    return machine.fresh(machine.native(weakref.ref, value))


def _format(machine: Machine, value: Any, spec: Any = "") -> str:
    return str(texts.formatted(machine, value, spec))


def _fromkeys(machine: Machine, keys: object, value: object = None) -> Any:
    names = list(machine.iterate(keys))
    if not all(map(plain.hashes, names)):
        raise Unexplained("a dict has keys that are objects")
    return machine.fresh(dict.fromkeys(names, value))


def _from_iterable(machine: Machine, columns: object) -> Any:
    return machine.fresh(iteration.chained(machine, machine.iterate(columns)))


def _overrides(machine: Machine, values: object) -> bool:
    """`has_torch_function`: modes are guarded, and types of the package override nothing."""
    for value in machine.iterate(values):
        if type(value) not in plain.TENSORS and type(value) not in plain.ATOMS:
            raise Unexplained(f"it looks for overrides of a {type(value).__name__}")
    return False


def _count_true(machine: Machine, mask: object) -> Any:
    """The true elements of a mask from outside; the core compares the number in each call."""
    machine.touch(mask)
    return machine.native(_core.count_true, mask)


def _call_each(
    machine: Machine, function: object, count: int, columns: Any, names: tuple[str, ...]
) -> Any:
    results: list[Any] = machine.fresh([])
    for column in columns:
        if type(column) is list:
            machine.length(column)
    positional = len(columns) - len(names)
    for index in range(count):
        row = [column[index] if type(column) is list else column for column in columns]
        named = dict(zip(names, row[positional:], strict=True))
        results.append(machine.call(function, tuple(row[:positional]), named))
    return results


def _range(machine: Machine, name: object) -> None:
    """`profile_enter`, where no profile runs: a call while one runs is recorded."""
    if _core.profile_running():
        raise Unexplained("a profile runs")
    machine.ranged = True


def _ignore(machine: Machine, *args: object) -> None:
    """A call without effect in a dry run."""


def _set_mode(function: Callable[..., object]) -> Callable[..., object]:
    """A function that changes a mode of the thread, which the core restores at the end."""

    def change(machine: Machine, *args: Any) -> Any:
        machine.touch(args)
        return machine.native(function, *args)

    return change


def _push_region(machine: Machine, region: object, before: object) -> None:
    machine.native(_core.autocast_push, region, before)


def _pop_region(machine: Machine, region: object) -> Any:
    return machine.native(_core.autocast_pop, region)


def _autocast_call(machine: Machine, rule: object, function: object, args: Any, named: Any) -> Any:
    """A call on operands that are cast by a rule."""

    def call(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if type(value) is list:  # of casts
                machine.fresh(value)
        return machine.call(function, args, kwargs)

    for value in (args, *args, *named.values()):
        if type(value) in (list, tuple):
            machine.length(value)
    return machine.native(_core.autocast_call, rule, call, args, named)


_CLASS_METHODS: dict[tuple[type, str], Callable[..., object]] = {
    (dict, "fromkeys"): _fromkeys,
    (itertools.chain, "from_iterable"): _from_iterable,
}


def _reversed(machine: Machine, value: Any) -> Any:
    function = (
        machine.method(value, "__reversed__") if type(value) not in plain.CONTAINERS else None
    )
    if function is not None:
        return machine.call(function, (value,), {})
    if type(value) not in (list, tuple, dict, str, range):
        raise Unexplained(f"it reverses a {type(value).__name__}")
    machine.iterate(value)
    return machine.fresh(reversed(value))


def _dict(machine: Machine, *args: object, **kwargs: object) -> Any:
    if len(args) == 1 and type(args[0]) not in plain.DICTS:
        pairs = [tuple(machine.iterate(pair)) for pair in machine.iterate(args[0])]
        if not all(len(pair) == 2 and plain.hashes(pair[0]) for pair in pairs):
            raise Unexplained("dict of no pairs")
        return machine.fresh(dict(pairs, **kwargs))
    for value in args:
        if type(value) is not dict:
            raise Unexplained("dict of no dict")
        machine.touch(value)
    return machine.fresh(dict(*args, **kwargs))


def _ordered_dict(machine: Machine, *args: object, **kwargs: object) -> Any:
    return machine.fresh(OrderedDict(_dict(machine, *args, **kwargs)))


def _default_dict(machine: Machine, factory: object = None, *args: object, **kwargs: object) -> Any:
    if factory is not None and not callable(factory):
        raise Unexplained("a defaultdict has no factory")
    return machine.fresh(defaultdict(factory, _dict(machine, *args, **kwargs)))


def _vars(machine: Machine, value: object) -> Any:
    if isinstance(value, (type, types.ModuleType)) or type(value) in plain.TENSORS:
        raise Unexplained(f"it calls vars of a {type(value).__name__}")
    table = machine.holder(value)
    if table is None:
        raise Unexplained(f"it calls vars of a {type(value).__name__}")
    return table


def _hash(machine: Machine, value: object) -> Any:
    function = machine.method(value, "__hash__") if type(value) not in plain.ATOMS else None
    if function is not None:
        result = machine.call(function, (value,), {})
        if type(result) is int and -(2**60) < result < 2**60 and result != -1:
            return result
    elif type(value) in plain.ATOMS or (type(value) is tuple and plain.shows(value)):
        if plain.hashes(value):
            return machine.native(hash, value)
    raise Unexplained(f"it hashes a {type(value).__name__}")


def _heap(function: Callable[..., object]) -> Callable[..., object]:
    def change(machine: Machine, values: Any, *item: Any) -> Any:
        machine.writable(values)
        if type(values) is not list or not plain.compares((values, item)):
            raise Unexplained(f"it calls {function.__name__} of objects")
        return machine.native(function, values, *item)

    return change


def _bisect(function: Callable[..., object]) -> Callable[..., object]:
    def search(machine: Machine, values: Any, *args: Any) -> Any:
        machine.touch((values, args))
        if function in (bisect.insort_left, bisect.insort_right):
            machine.writable(values)
        if type(values) is not list or not plain.compares((values, args)):
            raise Unexplained(f"it calls {function.__name__} of objects")
        return machine.native(function, values, *args)

    return search


def _new(machine: Machine, kind: Any, *args: object, **kwargs: object) -> Any:
    created = machine.evidence.attribute(kind, "__del__")
    if not kind.__flags__ & (1 << 9) or created is not MISSING:
        raise Unexplained(f"it makes a {kind.__name__}")
    return machine.fresh(machine.native(object.__new__, kind, *args, **kwargs))


def _new_tuple(machine: Machine, kind: Any, values: Any) -> Any:
    if not machine.is_named_tuple(kind):
        raise Unexplained(f"it makes a {kind.__name__}")
    return machine.fresh(tuple.__new__(kind, list(machine.iterate(values))))


def _plain_setattr(machine: Machine, value: object, name: object, new: object) -> None:
    if type(name) is not str:
        raise Unexplained("setattr of no string")
    machine.set_plainly(value, name, new)


def _callable(machine: Machine, value: Any) -> bool:
    machine.typed(value)
    if isinstance(value, (types.FunctionType, types.MethodType, type)):
        return True
    if type(value) in (_core.Op, _core.shield):
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


_SPECIAL: dict[Any, Callable[..., object]] = {
    isinstance: _isinstance,
    issubclass: _issubclass,
    getattr: attribute_or,
    hasattr: _hasattr,
    setattr: _setattr,
    len: _len,
    type: _type,
    any: _any,
    all: _all,
    iter: _iter,
    next: _next,
    builtins.reversed: _reversed,
    dict: _dict,
    callable: _callable,
    functools.reduce: _reduce,
    functools.partial: _partial,
    weakref.ref: _reference,
    types.MethodType: _method,
    sys.exc_info: _exc_info,
    sys.exception: lambda machine: machine.handled,
    format: _format,
    OrderedDict: _ordered_dict,
    defaultdict: _default_dict,
    vars: _vars,
    id: _id,
    _core.run_backward: tape.backward,
    _core.function_begin: tape.begin,
    _core.function_finish: tape.finish,
    _core.node_zeros: tape.zeros,
    _core.tensor_hooks: tape.hooks,
    _core.hook_number: tape.number,
    _core.tensor_empty: _empty,
    _core.push_saved_hooks: tape.push_hooks,
    _core.pop_saved_hooks: _set_mode(_core.pop_saved_hooks),
    _core.is_referenced: tape.is_referenced,
    _core.backward_key: tape.backward_key,
    _core.queue_callback: tape.queue_callback,
    _core.has_torch_function: _overrides,
    _core.count_true: _count_true,
    _core.call_each: _call_each,
    _core.profile_enter: _range,
    _core.profile_exit: _ignore,
    _core.record_begin_sealed: _ignore,
    _core.record_end: _ignore,
    _core.set_autocast_enabled: _set_mode(_core.set_autocast_enabled),
    _core.set_autocast_dtype: _set_mode(_core.set_autocast_dtype),
    _core.set_autocast_cache_enabled: _set_mode(_core.set_autocast_cache_enabled),
    _core.clear_autocast_cache: _set_mode(_core.clear_autocast_cache),
    _core.autocast_nesting: _set_mode(_core.autocast_nesting),
    _core.autocast_push: _push_region,
    _core.autocast_pop: _pop_region,
    _core.autocast_call: _autocast_call,
    hash: _hash,
    object.__new__: _new,
    object.__setattr__: _plain_setattr,
    **{f: _heap(f) for f in (heapq.heappush, heapq.heappop, heapq.heapify, heapq.heappushpop)},
    heapq.heapreplace: _heap(heapq.heapreplace),
    **{f: _bisect(f) for f in (bisect.bisect_left, bisect.bisect_right)},
    **{f: _bisect(f) for f in (bisect.insort_left, bisect.insort_right)},
}
_STORES: frozenset[Any] = frozenset(
    {isinstance, type, getattr, hasattr, setattr, object.__setattr__}
)
_NAMED: frozenset[Any] = frozenset({dict, functools.partial, OrderedDict, defaultdict})
