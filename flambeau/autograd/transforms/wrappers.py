"""Tensors inside of a transformation: one sample of a batch, or a value with its tangent.

A wrapper has the sizes of the sample (of the value) and no memory of its own; it holds the batch
(the value and its tangent). Every operator passes a call with a wrapper to `__torch_function__`
here, which calls the batched (the forward) operator on these, and wraps the results.
Wrappers may hold wrappers: the innermost transformation is outermost. So transformations nest as
the functions do, Python's control flow just runs, and the tape below sees ordinary operators.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core
from flambeau.autograd.transforms.programs import Program, program_of
from flambeau.runtime import boundaries

Tensor = Any


class Level:
    """One transformation that is being run.

    Attributes:
        depth: 1 for the outermost.
        extent: number of samples; None: the level of a forward derivative.
        randomness: of a batched level.
    """

    __slots__ = ("depth", "extent", "open", "randomness")

    def __init__(self, depth: int, extent: int | None, randomness: str) -> None:
        self.depth = depth
        self.extent = extent
        self.randomness = randomness
        self.open = True


class _Levels(threading.local):
    def __init__(self) -> None:
        self.stack: list[Level] = []


_levels = _Levels()


def levels() -> list[Level]:
    """The transformations this thread is in, the outermost first."""
    return _levels.stack


class entered:  # noqa: N801 - a context manager, used like a function
    """A new level for the time of a `with` block.

    Args:
        extent: number of samples; None: a forward derivative.
        randomness: see `vmap`.
    """

    def __init__(self, extent: int | None = None, randomness: str = "error") -> None:
        stack = _levels.stack
        self.level = Level(stack[-1].depth + 1 if stack else 1, extent, randomness)
        self._before: Any = None

    def __enter__(self) -> Level:
        boundaries.crossing("a transformation of torch.func")
        _levels.stack.append(self.level)
        if self.level.extent is not None:
            self._before = _core.set_function_mode(_watch_draws)
        return self.level

    def __exit__(self, *exception: object) -> None:
        self.level.open = False
        _levels.stack.remove(self.level)
        if self.level.extent is not None:
            _core.set_function_mode(self._before)


class reopened(entered):  # noqa: N801 - a context manager, used like a function
    """A batched level entered again, as the innermost one, with the samples that were saved."""

    def __init__(self, level: Level) -> None:
        super().__init__(level.extent, level.randomness)
        level.depth, level.open = self.level.depth, True
        self.level = level


class Wrapper(_core.Tensor):  # type: ignore[misc]
    """A tensor of some level; see the module.

    Attributes:
        level: whose it is.
        value: the batch, samples first; or the primal value.
        tangent: of a forward level.
    """

    level: Level
    value: Any
    tangent: Any
    _operators_only = True  # attributes and functions in Python are ordinary

    def viewed(self, view: Callable[[Any], Any]) -> Any:
        """A wrapper of views of what is inside, so that writes to it arrive there.

        Args:
            view: makes a view of a tensor; linear.
        """
        if self.level.extent is not None:
            return batched(self.level, view(self.value))
        return dual(self.level, view(self.value), view(self.tangent))

    def is_conj(self) -> bool:
        """Whether the wrapped value is a view of conjugates."""
        return bool(self.value.is_conj())

    def is_neg(self) -> bool:
        """Whether the wrapped value is a view of negatives."""
        return bool(self.value.is_neg())

    def resolve_conj(self) -> Any:
        """The tensor, or its conjugates computed where it is a view of them."""
        return self.viewed(lambda inner: inner.resolve_conj()) if self.is_conj() else self

    def resolve_neg(self) -> Any:
        """The tensor, or its negatives computed where it is a view of them."""
        return self.viewed(lambda inner: inner.resolve_neg()) if self.is_neg() else self

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operator on what the wrappers stand for."""
        return call(func, args, kwargs or {})


def _made(level: Level, value: Any, sizes: Any, strides: Any) -> Any:
    hollow = _core.tensor_empty_strided(sizes, strides, value.dtype, "meta")
    wrapper = hollow.as_subclass(Wrapper)
    wrapper.level = level
    wrapper.value = value
    return wrapper


def batched(level: Level, value: Any) -> Any:
    """One sample of a batch whose first dimension counts the samples."""
    return _made(level, value, tuple(value.shape)[1:], value.stride()[1:])


def dual(level: Level, value: Any, tangent: Any) -> Any:
    """A value with its tangent."""
    wrapper = _made(level, value, tuple(value.shape), value.stride())
    wrapper.tangent = tangent
    return wrapper


def inside(x: Any) -> Any:
    """The tensor inside all wrappers: all samples (batch dimensions first), the primal values."""
    while isinstance(x, Wrapper):
        x = x.value
    return x


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """The tensor that a value inside of a transformation wraps, to print it, say.

    Args:
        tensor: any tensor; one without transformation is returned as it is.
        recurse: False takes away the innermost transformation only.

    Example:
        >>> def show(x):
        ...     print(torch.func.debug_unwrap(x))
        ...     return x
        >>> _ = torch.vmap(show)(torch.ones(2))
        tensor([1., 1.])
    """
    if not isinstance(tensor, _core.Tensor):
        raise TypeError(
            f"[debug_unwrap] expected a tensor, got {type(tensor).__name__}\nhint: a leaf of it"
        )
    if recurse:
        return inside(tensor)
    return tensor.value if isinstance(tensor, Wrapper) else tensor


def is_at(x: Any, level: Level) -> bool:
    """Whether a value is a wrapper of this level."""
    return isinstance(x, Wrapper) and x.level is level


def spread(level: Level, x: Any) -> Any:
    """The batch of a value at a level: samples first, expanded if it has none."""
    return x.value if is_at(x, level) else x.expand(level.extent, *x.shape)


# ------------------------------------------------------------------------------------ calls


def highest(*groups: Any) -> Level | None:
    """The innermost level among (nested) values."""
    innermost: Level | None = None
    for group in groups:
        for x in group:
            if isinstance(x, Wrapper):
                level = x.level
            elif isinstance(x, (tuple, list)):
                inner = highest(x)
                if inner is None:
                    continue
                level = inner
            else:
                continue
            if innermost is None or level.depth > innermost.depth:
                innermost = level
    return innermost


def call(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """An operator on wrappers."""
    if not isinstance(func, _core.Op):
        return func(*args, **kwargs)
    number, values, out = func.bind(tuple(args), kwargs)
    program = program_of(func, number)
    if program.host:
        return _call_host(program, values)
    level = highest(values)
    if level is None:  # only `out` is a wrapper
        result = _call_host(program, values, func)
    elif not level.open and level.extent is None:  # its level is closed: the tangent is gone
        plain = _unwrapped(program, values, lambda x: x.value if is_at(x, level) else x)
        result = _call_host(program, plain, func)
    elif level.extent is None:
        result = _call_forward(program, level, values)
    else:
        result = _call_batched(program, level, values)
    return result if out is None else _into(out, result)


def _into(out: Any, result: Any) -> Any:
    if isinstance(out, (tuple, list)):
        for target, value in zip(out, result, strict=True):
            target.copy_(value)
    else:
        out.copy_(result)
    return out


def _call_host(program: Program, values: Sequence[Any], func: Any = None) -> Any:
    named = {a.name: v for a, v in zip(program.arguments, values, strict=True) if a.keyword_only}
    return (func or program.build)(
        *[v for a, v in zip(program.arguments, values, strict=True) if not a.keyword_only], **named
    )


def _unwrapped(program: Program, values: Sequence[Any], take: Callable[[Any], Any]) -> list[Any]:
    """Arguments with `take` applied to every tensor, in the order of the slots."""
    result = list(values)
    for position in program.tensors:
        value = values[position]
        if isinstance(value, _core.Tensor):
            result[position] = take(value)
        elif isinstance(value, (tuple, list)):
            result[position] = [take(v) if v is not None else None for v in value]
    return result


def _call_batched(program: Program, level: Level, values: Sequence[Any]) -> Any:
    slots: list[int] = []
    wrappers: dict[int, Any] = {}
    count = 0

    def take(x: Any) -> Any:
        nonlocal count
        count += 1
        if not is_at(x, level):
            return x
        slots.append(count - 1)
        wrappers[id(x.value)] = x
        return x.value

    inner = _unwrapped(program, values, take)
    if program.random and program.mutates and level.randomness == "different" and not slots:
        raise RuntimeError(
            "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will "
            "appear like same randomness. \nhint: make it with new_zeros of a batched tensor"
        )
    outputs = program.batched(*inner, tuple(slots), level.randomness, level.extent)
    results = []
    for over, same in zip(outputs[::2], outputs[1::2], strict=True):
        if over is None:
            results.append(same)
            continue
        wrapper = wrappers.get(id(over))
        if wrapper is None:
            results.append(batched(level, over))
        else:
            results.append(_refreshed(wrapper, tuple(over.shape)[1:], over.stride()[1:]))
    return program.results(results)


def _refreshed(wrapper: Any, sizes: Any, strides: Any) -> Any:
    """A wrapper whose inside may have got another geometry in place."""
    if tuple(wrapper.shape) != sizes or wrapper.stride() != strides:
        hollow = _core.tensor_empty_strided(sizes, strides, wrapper.dtype, "meta")
        _core.tensor_set(wrapper, hollow.untyped_storage(), sizes, strides, 0)
    return wrapper


def _call_forward(program: Program, level: Level, values: Sequence[Any]) -> Any:
    tangents: list[Any] = []

    def take(x: Any) -> Any:
        if not is_at(x, level):
            tangents.append(None)
            return x
        tangents.append(x.tangent)
        return x.value

    if program.op.__name__ in _OTHER_ELEMENTS and _alike(values[0]):
        return _views_of_both(program.op, level, *values)
    inner = _unwrapped(program, values, take)
    outputs = program.forward(*inner, tangents)
    half = len(outputs) // 2
    values_out, moved = outputs[:half], outputs[half:]
    if program.mutates:
        return _written(program, level, values, values_out, moved)
    operands_by_value = {id(v.value): v for v in _flat(values) if is_at(v, level)}
    results = []
    for value, tangent in zip(values_out, moved, strict=True):
        if value is None or tangent is None:
            results.append(value)
        elif id(value) in operands_by_value:
            results.append(operands_by_value[id(value)])
        else:
            results.append(dual(level, value, tangent))
    return program.results(results)


# Views of other elements, which no program of a forward operator covers.
_OTHER_ELEMENTS = ("view_as_real", "view_as_complex")


def _alike(x: Any) -> bool:
    """Whether a tangent has the strides of its value."""
    own = x.value.stride() == x.tangent.stride()
    return own and x.value.storage_offset() % 2 == x.tangent.storage_offset() % 2


def _views_of_both(op: Any, level: Level, x: Any, *arguments: Any) -> Any:
    """A view of a value with the view of its tangent."""
    value, tangent = op(x.value, *arguments), op(x.tangent, *arguments)
    if isinstance(value, _core.Tensor):
        return dual(level, value, tangent)
    pairs = zip(value, tangent, strict=True)  # of a derived op
    return tuple(v if t is None else dual(level, v, t) for v, t in pairs)


def _flat(values: Any) -> list[Any]:
    out: list[Any] = []
    for value in values:
        out += _flat(value) if isinstance(value, (tuple, list)) else [value]
    return out


def _written(
    program: Program,
    level: Level,
    values: Sequence[Any],
    results: Sequence[Any],
    tangents: Sequence[Any],
) -> Any:
    """Writes what an in-place operator's program computed, and its tangents."""
    targets = _flat(v for a, v in zip(program.arguments, values, strict=True) if a.mutated)
    done = []
    for target, value, tangent in zip(targets, results, tangents, strict=False):
        if is_at(target, level):
            target.value.copy_(value)
            fresh = tangent if tangent is not None else value.new_zeros(value.shape)
            target.tangent = _overwritten(target.tangent, fresh)
        elif tangent is not None:
            raise RuntimeError(
                f"[{program.op.__name__}] a tensor without a tangent cannot be written with one "
                "in place\nhint: use the out-of-place operator"
            )
        else:
            target.copy_(value)
        done.append(target)
    return program.results([*done, *results[len(done) :]])


def _overwritten(old: Any, new: Any) -> Any:
    inside = highest([new])
    mine = highest([old])
    if inside is not None and (mine is None or mine.depth < inside.depth):
        return new  # the old one is the same for all samples
    return old.copy_(new)


def _watch_draws(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Mode of a batched level: draws that no wrapper takes part in are drawn per sample, too."""
    stack = _levels.stack
    if not stack or highest(args, kwargs.values()) is not None:
        return func(*args, **kwargs)
    level = next((x for x in reversed(stack) if x.extent is not None), None)
    if level is None or not _is_random(func):
        return func(*args, **kwargs)
    number, values, out = func.bind(args, kwargs)
    program = program_of(func, number)
    if program.host or not program.random:
        return func(*args, **kwargs)
    result = _call_batched(program, level, values)
    return result if out is None else _into(out, result)


def _is_random(func: Any) -> bool:
    draws = func.__dict__.get("_draws")
    if draws is None:
        kinds = [a.kind for arguments, *_ in func.overloads for a in arguments]
        draws = func.__dict__["_draws"] = any(k.startswith("generator") for k in kinds)
    return bool(draws)


# ------------------------------------------------------------------------------------ attributes


def _of_value(name: str, write: Callable[[Any, Any], Any] | None = None) -> property:
    """An attribute that reads the wrapped value."""
    return property(
        lambda self: getattr(self.value, name), write, doc=f"`{name}` of what the wrapper holds."
    )


def _refused(name: str, text: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.level.extent is None:
            return getattr(self.value, name)(*args, **kwargs)
        raise RuntimeError(
            f"vmap: It looks like you're {text}. We don't support vmap over it: a sample is no "
            "tensor of its own\nhint: compute it outside of vmap"
        )

    method.__doc__ = f"`{name}` of the primal value; a sample has none."
    return method


def _number(name: str, text: str) -> Callable[..., Any]:
    """A conversion to a Python number: of the primal value; a batch has none."""

    def method(self: Any) -> Any:
        if self.level.extent is None:
            return getattr(self.value, name)()
        raise RuntimeError(text)

    method.__name__ = name
    method.__doc__ = "The primal value as a Python number; a sample has none."
    return method


_ITEM = (
    "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling "
    ".item() on a Tensor, please try to rewrite what you're doing with other operations.\n"
    "hint: use torch.where for choices that depend on data"
)
_BRANCH = (
    "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. "
    "We don't support that yet: the samples may go different ways.\nhint: use torch.where"
)


def _backward(self: Any, *args: Any, **kwargs: Any) -> Any:
    """`backward` of the primal value; a sample has none."""
    if self.level.extent is not None:
        raise RuntimeError(
            "backward() called inside a functorch transform. This is not supported, please use "
            "torch.func.grad or torch.func.vjp instead\nhint: vmap(grad(f))"
        )
    return self.value.backward(*args, **kwargs)


def _detach(self: Any) -> Any:
    """The same values without history (and without a tangent)."""
    if self.level.extent is None:
        return self.value.detach()
    return batched(self.level, self.value.detach())


def _set_requires_grad(self: Any, requires_grad: bool = True) -> Any:
    """`requires_grad_` of what is inside."""
    self.value.requires_grad_(requires_grad)
    return self


def _repr(self: Any, **options: Any) -> str:
    if self.level.extent is None:
        return f"DualTensor(level={self.level.depth}, primal={self.value}, tangent={self.tangent})"
    return f"BatchedTensor(level={self.level.depth}, value={self.value})"


def _install() -> None:
    for name in ("device", "is_leaf", "grad_fn", "is_cpu", "is_meta"):
        setattr(Wrapper, name, _of_value(name))
    Wrapper.requires_grad = _of_value("requires_grad", _set_requires_grad)
    for name in ("__float__", "__int__", "__index__", "__complex__", "item"):
        setattr(Wrapper, name, _number(name, _ITEM))
    Wrapper.__bool__ = _number("__bool__", _BRANCH)
    for name in ("tolist", "numpy", "__array__", "data_ptr", "untyped_storage"):
        setattr(Wrapper, name, _refused(name, f"calling .{name}() on a Tensor"))
    Wrapper.detach = _detach
    Wrapper.backward = _backward
    Wrapper.requires_grad_ = _set_requires_grad
    setattr(Wrapper, "__repr__", _repr)  # noqa: B010 - a method, to the type checker
    Wrapper.data = property(_detach)


_install()
