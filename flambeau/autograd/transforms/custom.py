"""`autograd.Function` inside of transformations: its own rules compute batches and tangents.

A class with `generate_vmap_rule` is run on samples, forward and backward; one with a `vmap` method
gets the batches. Tangents are its `jvp`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flambeau import _core
from flambeau.autograd.function import Function, FunctionCtx
from flambeau.autograd.transforms.vmap import broadcast_prefix
from flambeau.autograd.transforms.wrappers import (
    Level,
    batched,
    dual,
    entered,
    highest,
    is_at,
    reopened,
    spread,
)
from flambeau.ir.lock import importing


class VmapInfo(NamedTuple):
    """The argument `info` of `Function.vmap`."""

    batch_size: int
    randomness: str


def apply(cls: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`cls.apply` on arguments of which some are wrappers."""
    level = highest(args)
    assert level is not None
    if level.extent is None:
        return _apply_forward(cls, level, args, kwargs)
    has_own = cls.vmap is not Function.vmap
    if cls.generate_vmap_rule and has_own:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and "
            "an overriden vmap staticmethod. Please set generate_vmap_rule=False or delete the "
            "overriden vmap staticmethod to avoid ambiguity.\nhint: keep one of them"
        )
    if has_own:
        return _apply_own(cls, level, args)
    if not cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please "
            "override and implement the vmap staticmethod or set generate_vmap_rule=True.\n"
            "hint: generate_vmap_rule = True in the class"
        )
    return _apply_generated(cls, level, args, kwargs)


def _sequence(output: Any) -> tuple[bool, list[Any]]:
    single = not isinstance(output, (tuple, list))
    return single, [output] if single else list(output)


def _apply_own(cls: Any, level: Level, args: Sequence[Any]) -> Any:
    in_dims = tuple(0 if is_at(x, level) else None for x in args)
    inner = [x.value if is_at(x, level) else x for x in args]
    assert level.extent is not None
    result = cls.vmap(VmapInfo(level.extent, level.randomness), in_dims, *inner)
    if not isinstance(result, tuple) or len(result) != 2:
        raise RuntimeError(
            f"Expected the vmap staticmethod to have two returns, an output and out_dims with "
            f"pytree structure compatible with the output. Got a {type(result)}\n"
            "hint: return output, out_dims"
        )
    output, out_dims = result
    single, values = _sequence(output)
    dims = broadcast_prefix(out_dims, output) or [0] * len(values)
    results = [
        x if d is None or not isinstance(x, _core.Tensor) else batched(level, x.movedim(d, 0))
        for x, d in zip(values, dims, strict=True)
    ]
    return results[0] if single else tuple(results)


def _apply_generated(cls: Any, level: Level, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    flags = [is_at(x, level) for x in args]
    inner = [x.value if flag else x for x, flag in zip(args, flags, strict=True)]
    result = _Samples.apply((cls, level.extent, level.randomness, flags, kwargs), *inner)
    single, values = _sequence(result)
    out = [batched(level, x) if isinstance(x, _core.Tensor) else x for x in values]
    return out[0] if single else tuple(out)


class _Samples(Function):
    """A function run on every sample of batches.

    Its context saves samples of one level, which its backward enters again.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(ctx: Any, how: Any, *args: Any) -> Any:
        cls, extent, randomness, flags, kwargs = how
        inner = FunctionCtx()
        inner.needs_input_grad = ctx.needs_input_grad[1:]
        with entered(extent, randomness) as level:
            samples = [
                batched(level, x) if flag else x for x, flag in zip(args, flags, strict=True)
            ]
            output = _forward(cls, inner, samples, kwargs)
            single, values = _sequence(output)
            saved = list(inner.to_save)
            ctx.saved_flags = [is_at(x, level) for x in saved]
            ctx.save_for_backward(*[x.value if is_at(x, level) else x for x in saved])
            results = [spread(level, x) if isinstance(x, _core.Tensor) else x for x in values]
        ctx.how, ctx.inner, ctx.level = how, inner, level
        return results[0] if single else tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        cls, _, _, flags, _ = ctx.how
        inner = ctx.inner
        with reopened(ctx.level) as level:
            saved = zip(ctx.saved_tensors, ctx.saved_flags, strict=True)
            inner.to_save = tuple(batched(level, x) if flag else x for x, flag in saved)
            cotangents = [None if g is None else batched(level, g) for g in grads]
            rule = cls.vjp if cls.vjp is not Function.vjp else cls.backward
            gradients = rule(inner, *cotangents)
            _, parts = _sequence(gradients)
            results = [
                None if g is None else spread(level, g) if flag else spread(level, g).sum(0)
                for g, flag in zip(parts, flags, strict=False)
            ]
        return (None, *results)


def _forward(cls: Any, ctx: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if cls.setup_context is Function.setup_context:
        return cls.forward(ctx, *args, **kwargs)
    output = cls.forward(*args, **kwargs)
    cls.setup_context(ctx, tuple(args), output)
    return output


def _apply_forward(cls: Any, level: Level, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    values = [x.value if is_at(x, level) else x for x in args]
    tangents = [x.tangent if is_at(x, level) else None for x in args]
    output = cls.apply(*values, **kwargs)
    single, outputs = _sequence(output)
    if cls.jvp is Function.jvp:
        moved = _transposed(cls, values, tangents, kwargs)
    else:
        ctx = FunctionCtx()
        ctx.needs_input_grad = tuple(t is not None for t in tangents)
        if cls.setup_context is Function.setup_context:
            with _core.no_grad():
                cls.forward(ctx, *values, **kwargs)
        else:
            cls.setup_context(ctx, tuple(values), output)
        _, moved = _sequence(cls.jvp(ctx, *tangents))
    results = [x if t is None else dual(level, x, t) for x, t in zip(outputs, moved, strict=True)]
    return results[0] if single else tuple(results)


def _transposed(
    cls: Any, values: Sequence[Any], tangents: Sequence[Any], kwargs: dict[str, Any]
) -> list[Any]:
    """Tangents of a function without a rule for them: its backward is linear, and transposed."""
    with importing:
        from flambeau.autograd.transforms.reverse import Recording
        from flambeau.autograd.transforms.tangents import transposed

    chosen = [i for i, t in enumerate(tangents) if t is not None]
    recording = Recording("jvp", cls.apply, values, chosen, False, kwargs)
    return transposed(recording, [tangents[i] for i in chosen])
