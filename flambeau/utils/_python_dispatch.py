"""`__torch_dispatch__`: modes and tensor types that answer operators below gradients.

The native core passes a call here when a dispatch mode is active, or a tensor's type defines
`__torch_dispatch__`, after every `__torch_function__`. An operator that is composed in Python runs
unchanged, so the operators that it calls come here. One with a program is dispatched without
gradients, because the tape records the call as a whole. Its derivative is an operator too
(`transforms/programs.py`), which comes here when a backward calls it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau import _core
from flambeau.autograd.transforms.programs import Program, program_of
from flambeau.decompositions import inner, names, tape
from flambeau.decompositions.composites import CREATIONS, TABLE, composite_of
from flambeau.ir.failure import failure
from flambeau.ops import aten
from flambeau.runtime import boundaries
from flambeau.runtime.symbolic import SymInt, has_symbols, lowered, raised

__all__ = [
    "BaseTorchDispatchMode",
    "TorchDispatchMode",
    "is_traceable_wrapper_subclass",
    "is_traceable_wrapper_subclass_type",
    "return_and_correct_aliasing",
]

Tensor = Any
Value = Any  # an argument or a result of an operator


class _Modes(threading.local):
    def __init__(self) -> None:
        self.stack: list[TorchDispatchMode] = []
        self.chosen: Any = None  # the overload that is being called by itself
        self.composing: list[Any] = []
        self.by_programs: Any = None  # the dialect in which an inner operator is being decomposed


_modes = _Modes()


# ------------------------------------------------------------------------------ modes
class TorchDispatchMode:
    """A `with` block in which every operator calls this object first, below gradients.

    Derive a class and define `__torch_dispatch__(self, func, types, args=(), kwargs=None)`; *func*
    is an overload such as `torch.ops.aten.add.Tensor`. While it runs the mode is off: what it
    calls goes to the mode that was entered before, if any.

    Example:
        >>> from torch.utils._python_dispatch import TorchDispatchMode
        >>> class Names(TorchDispatchMode):
        ...     def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        ...         print(func)
        ...         return func(*args, **(kwargs or {}))
        >>> with Names():
        ...     y = torch.ones(2) + 1
        aten.ones.default
        aten.add.Tensor
    """

    _tracks = True  # whether calls get nodes of the graph

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Computes an operator in this mode; NotImplemented defers to the types of the tensors."""
        raise NotImplementedError(
            f"[{type(self).__name__}] a mode defines __torch_dispatch__\n"
            "hint: return func(*args, **(kwargs or {})) where nothing changes"
        )

    def __init__(self, _dispatch_key: Any = None) -> None:
        pass

    def _steps_aside(self, func: Value, args: tuple[Value, ...], kwargs: dict[str, Value]) -> bool:
        """Whether a call runs as it does without this mode, its own node of the tape included."""
        return False

    def _called(self, op: Value, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
        """Answers a call before its operator calls others; NotImplemented: let it call them."""
        return NotImplemented

    def _restored(self, tensor: Tensor) -> Tensor:
        """The tensor that a backward reads again, as the object that it was."""
        return tensor

    def _detached(self, tensor: Tensor) -> Tensor:
        """A new tensor of a program's data, as users get it."""
        return tensor

    def _replaces(self, target: Tensor, value: Tensor) -> bool:
        """Makes a new value that of a tensor given as `out=`; False: it has to be copied."""
        return False

    def __enter__(self) -> Any:
        boundaries.crossing("a dispatch mode")
        _modes.stack.append(self)
        _core.set_dispatch_modes_enabled(True)
        return self

    def __exit__(self, *exception: object) -> None:
        boundaries.crossing("a dispatch mode")
        _modes.stack.pop()
        _core.set_dispatch_modes_enabled(bool(_modes.stack))

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """The old name of calling the class."""
        return cls(*args, **kwargs)


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that changes nothing."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Calls *func*."""
        return func(*args, **(kwargs or {}))


def _get_current_dispatch_mode() -> TorchDispatchMode | None:
    """The newest mode of this thread."""
    return _modes.stack[-1] if _modes.stack else None


def _get_current_dispatch_mode_stack() -> list[TorchDispatchMode]:
    """The modes of this thread, the oldest first."""
    return list(_modes.stack)


def _set_modes(stack: list[TorchDispatchMode]) -> None:
    """Makes these the modes of this thread."""
    _modes.stack = stack
    _core.set_dispatch_modes_enabled(bool(stack))


@contextmanager
def _disable_current_modes() -> Iterator[list[TorchDispatchMode]]:
    """A `with` block without dispatch modes."""
    before = _modes.stack
    _set_modes([])
    try:
        yield before
    finally:
        _set_modes(before)


@contextmanager
def _only(mode: TorchDispatchMode) -> Iterator[None]:
    """A `with` block in which this is the only dispatch mode."""
    before = _modes.stack
    _set_modes([mode])
    try:
        yield
    finally:
        _set_modes(before)


@contextmanager
def _pop_mode_temporarily() -> Iterator[TorchDispatchMode]:
    """A `with` block without the newest mode."""
    mode = _modes.stack.pop()
    _core.set_dispatch_modes_enabled(bool(_modes.stack))
    try:
        yield mode
    finally:
        _modes.stack.append(mode)
        _core.set_dispatch_modes_enabled(True)


# ------------------------------------------------------------------------------ asking
def _ask(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the newest mode, then the tensors' types."""
    kinds = _kinds((*args, *kwargs.values()))
    if not _modes.stack and not kinds:
        return func(*args, **kwargs)
    if _modes.stack:
        with _pop_mode_temporarily() as mode:
            result = mode.__torch_dispatch__(func, kinds, args, kwargs)
        if result is not NotImplemented:
            return result
    for kind in kinds:
        result = kind.__torch_dispatch__(func, kinds, args, kwargs)
        if result is not NotImplemented:
            return result
    problem = "Multiple dispatch failed: all __torch_dispatch__ handlers returned NotImplemented, "
    problem += f"of the types {kinds}"
    raise failure(TypeError, func, problem, "handle the operator there")


def _kinds(values: Sequence[Any]) -> tuple[Any, ...]:
    """The types with `__torch_dispatch__`, subclasses before their bases."""
    kinds: list[Any] = []
    for x in _tensors(values):
        kind: Any = type(x)
        if kind in kinds or not _dispatches(kind):
            continue
        place = next((i for i, k in enumerate(kinds) if issubclass(kind, k)), len(kinds))
        kinds.insert(place, kind)
    return tuple(kinds)


def _dispatches(kind: Any) -> bool:
    handler = getattr(kind, "__torch_dispatch__", None)
    return handler is not None and handler is not _core._disabled_torch_function


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    tensors: list[Tensor] = []
    for x in values:
        if isinstance(x, _core.Tensor):
            tensors.append(x)
        elif isinstance(x, (list, tuple)):
            tensors += _tensors(x)
    return tensors


# ------------------------------------------------------------------------------ one call
def _call(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a native op: what the core does for plain tensors without modes."""
    if _modes.stack and _modes.chosen is None:
        result = _modes.stack[-1]._called(op, args, kwargs)
        if result is not NotImplemented:
            return result
    if not isinstance(op, _core.Op):
        return _call_hosted(op, args, kwargs)
    number, values, out = bound(op, args, kwargs)
    program = program_of(op, number)
    func, _modes.chosen = _modes.chosen, None
    result = NotImplemented if func is not None else _composed(program, values)
    if result is not NotImplemented:
        pass
    elif program.host:
        positional, named = _arguments(program, values, every=True)
        result = program.build(*positional, **named)
    else:
        result = _run(program, values, func)
    return result if out is None else _into(out, result)


def bound(op: Value, args: tuple[Value, ...], kwargs: dict[str, Value]) -> tuple[int, Value, Value]:
    """`op.bind` of arguments among which symbolic numbers may be."""
    if not has_symbols(args) and not has_symbols(kwargs.values()):
        number, values, out = op.bind(args, kwargs)
        return number, values, out
    number, values, out = op.bind(lowered(args), lowered(kwargs))
    return number, tuple(map(raised, values)), out


def _call_hosted(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of an operator that is a Python function: what that calls comes here, too."""
    definition = aten.definition_of(function)
    body = definition.overloads[0].body
    operator = inner.TABLE.get(definition.name)
    if operator is not None and (operator.hosted or operator.run is body):
        return operator(*args, **kwargs)
    if _modes.by_programs is not None:
        return body(*args, **kwargs)
    compose = composite_of(definition.overloads[0])
    if compose is not None and compose not in _modes.composing:
        if definition.name in CREATIONS:
            return compose(body, *args, **kwargs)
        try:
            values = inner.bound(definition.overloads[0].schema, args, kwargs)
        except TypeError:
            return body(*args, **kwargs)
        result = _compose(compose, values)
        if result is not NotImplemented:
            return result
    return body(*args, **kwargs)


def _compose(compose: Any, named: dict[str, Any]) -> Any:
    _modes.composing.append(compose)
    try:
        return compose(**named)
    finally:
        _modes.composing.pop()


def composition_of(program: Program) -> Any:
    """Returns the decomposition of an operator, or None."""
    if program.mutates:
        return TABLE.get(program.op.__name__.rpartition(".")[2])
    definition = aten.definition_of(program.op)
    return None if definition is None else composite_of(definition.overloads[program.number])


def _composed(program: Program, values: Sequence[Value]) -> Value:
    """The result of what an operator is made of; NotImplemented: it is made of nothing."""
    compose = composition_of(program)
    if compose is None or compose in _modes.composing or _modes.by_programs is not None:
        return NotImplemented
    named = {a.name: value for a, value in zip(program.arguments, values, strict=True)}
    return _compose(compose, named)


def _call_overload(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of one overload, which is not taken apart."""
    function = func._function
    if isinstance(function, _core.Op):
        _modes.chosen = func
    try:
        return function(*args, **kwargs)
    finally:
        _modes.chosen = None


def _call_inner(op: Any, values: Sequence[Any]) -> Any:
    """A call of an operator that is none of the public ones."""
    if not _modes.stack and not _kinds(values):
        return op.run(*values)
    return _run(op, values)


def _into(out: Any, result: Any) -> Any:
    targets = out if isinstance(out, (tuple, list)) else (out,)
    for target, value in zip(targets, _flat(result), strict=True):
        if not _modes.stack or not _modes.stack[-1]._replaces(target, value):
            target.copy_(value)
    return out


def _flat(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _arguments(
    program: Program, values: Sequence[Any], every: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments as `__torch_dispatch__` gets them: without those that are the default."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    count = 0
    for (name, kind, default, keyword_only, *_), value in zip(
        program.arguments, values, strict=True
    ):
        left = not every and default and (value is default[0] or _same(value, default[0]))
        if not every and kind.endswith(("[]", "[]?")):
            value = _listed(value)
        if not keyword_only:
            positional.append(value)
            count = count if left else len(positional)
        elif not left:
            named[name] = value
    return tuple(positional[:count]), named


def _listed(value: Any) -> Any:
    """An argument that is a list in PyTorch's schemas: of sizes, or of tensors."""
    if isinstance(value, (int, SymInt)):
        return [value]
    return list(value) if isinstance(value, tuple) else value


def _same(value: Any, default: Any) -> bool:
    plain = (bool, int, float, str, tuple)
    return type(value) is type(default) and isinstance(value, plain) and value == default


def _run(program: Program, values: Sequence[Any], func: Any = None) -> Any:
    func = func or aten.overload_of(program.op, program.arguments, values)
    args, kwargs = _arguments(program, values)
    if _modes.stack and _modes.stack[-1]._steps_aside(func, args, kwargs):
        with _pop_mode_temporarily():
            positional, named = _arguments(program, values, every=True)
            return program.op(*positional, **named)
    tensors = _tensors([values[i] for i in program.tensors])
    if _modes.stack and not _modes.stack[-1]._tracks:
        return _ask(func, args, kwargs)
    constant = names.is_constant(func.overloadpacket.__name__)
    if constant or not (_core.is_grad_enabled() and any(x.requires_grad for x in tensors)):
        return _written(program, values, _ask(func, args, kwargs))
    overload = program.source.overload if isinstance(program, Program) else None
    if overload is not None and not overload.options.differentiable:
        with _core.no_grad():
            return _ask(func, args, kwargs)
    if program.random and not program.mutates and not _has_no_dropout(program, values):
        problem = "an operator that draws has no gradient under __torch_dispatch__"
        raise failure(NotImplementedError, func, problem, "draw without gradients, or no_grad()")
    results = tape.track(program, func, values, _asked)
    if program.mutates:
        return _written(program, values, results[0])
    return results[0] if len(results) == 1 and not _is_many(program) else program.results(results)


def _has_no_dropout(program: Program, values: Sequence[Any]) -> bool:
    """Whether a call draws nothing because its probability of dropout is 0."""
    pairs = zip(program.arguments, values, strict=True)
    return any(argument[0] == "dropout_p" and value == 0 for argument, value in pairs)


def _asked(func: Any, program: Program, values: Sequence[Any]) -> Any:
    """The result of a call without gradients."""
    args, kwargs = _arguments(program, values)
    return _ask(func, args, kwargs)


def _is_many(program: Program | Any) -> bool:
    if not isinstance(program, Program):
        return bool(program.many)
    overload = program.source.overload
    return overload is None or overload.schema.returns_kind != "single"


def _written(program: Program, values: Sequence[Any], result: Any) -> Any:
    """Versions of tensors that an operator wrote and whose types store their data elsewhere."""
    if program.mutates:
        for argument, value in zip(program.arguments, values, strict=True):
            if argument[5] and isinstance(value, _core.Tensor) and _dispatches(type(value)):
                value._bump_version()
    return result


# ------------------------------------------------------------------------------ wrappers
def _detach(tensor: Tensor) -> Tensor:
    """The same data outside the graph, of a tensor whose type answers itself.

    Raises:
        TypeError: the type gives no tensor.
    """
    with _core.no_grad():
        result = _ask(aten.__getattr__("detach").default, (tensor,), {})
    if not isinstance(result, _core.Tensor):
        problem = f"{type(tensor).__name__}.__torch_dispatch__ gave {type(result).__name__} for "
        problem += "aten.detach.default"
        raise failure(TypeError, "detach", problem, "return a tensor of the same type")
    return result


def _item(tensor: Tensor) -> Any:
    """The only element of a tensor, as a dispatch mode gives it."""
    with _core.no_grad():
        return _ask(aten.__getattr__("_local_scalar_dense").default, (tensor,), {})


def lifted(tensor: Tensor) -> Tensor:
    """A new tensor of a program's data, as dispatch modes give it."""
    if not _modes.stack:
        return tensor
    return _modes.stack[-1]._detached(constant(tensor))


def constant(tensor: Tensor) -> Tensor:
    """A number of a program as a tensor, as dispatch modes give it."""
    return _ask(aten.__getattr__("lift_fresh").default, (tensor,), {})


def _make_wrapper_subclass(
    cls: type,
    size: Sequence[int],
    strides: Sequence[int] | None = None,
    storage_offset: int | None = None,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Any = _core.strided,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    **options: Any,
) -> Tensor:
    """A tensor of a subclass that has sizes and a dtype, but no memory of its own.

    Args:
        cls: a subclass of Tensor with `__torch_dispatch__`.
        size, strides, storage_offset: its geometry; row-major without strides.
        dtype, device: what it says of itself.
        requires_grad: whether it is a leaf that requires a gradient.

    Raises:
        RuntimeError: the class has no `__torch_dispatch__`.
    """
    del memory_format, layout, pin_memory, storage_offset, options
    if not _dispatches(cls):
        raise RuntimeError(
            "[_make_wrapper_subclass] You must define __torch_dispatch__ on the subclass: "
            f"{cls.__name__}\nhint: without one its tensors could not be computed with"
        )
    with _disable_current_modes():
        steps = tuple(strides) if strides is not None else _rows(size)
        kind = dtype or _core.get_default_dtype()
        hollow = _core.tensor_empty_strided(tuple(size), steps, kind, "meta")
        wrapper = hollow.as_subclass(cls)
        wrapper.__dict__["_claimed_device"] = _core.device(device or "cpu")
    if requires_grad:
        _core._disabled_torch_function(_core.Tensor.requires_grad_, (), (wrapper,))
    return wrapper


def _rows(size: Sequence[int]) -> tuple[int, ...]:
    steps, step = [], 1
    for extent in reversed(size):
        steps.append(step)
        step *= max(int(extent), 1)
    return tuple(reversed(steps))


def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether a value is a wrapper that can be taken apart: it has `__tensor_flatten__`."""
    return isinstance(t, _core.Tensor) and is_traceable_wrapper_subclass_type(type(t))


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """Whether tensors of this type can be taken apart and put together again."""
    plain = t is not _core.Tensor and issubclass(t, _core.Tensor)
    return plain and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """Returns a handler's result for *func*: the argument itself where it was written in place.

    Args:
        func: the overload.
        args, kwargs: as `__torch_dispatch__` got them.
        out: the handler's result.
    """
    name = func.overloadpacket.__name__
    if name.endswith("_") and not name.endswith("__") and args:
        return args[0]
    return (kwargs or {}).get("out", out)
