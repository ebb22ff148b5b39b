"""Custom operators in the graph of gradients and under transformations: as `autograd.Function`s.

Every operator becomes one Function, whose arguments are the tensors of the call, lists flattened.
So gradients, `vmap` and `jvp` of custom operators are those of Functions; here arguments, contexts
and gradients only change their form, between what users write and what a Function takes.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.autograd.function import Function, FunctionMeta
from flambeau.autograd.places import TENSOR, with_tensors, without_tensors
from flambeau.library.operators import OpOverload, flat_tensors, invoke

Tensor = Any


class Form:
    """Arguments without their tensors, and the form of the results, once these are known."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = without_tensors(values)
        self.results: list[Any] = []
        self.single = True

    def filled(self, tensors: Sequence[Any]) -> list[Any]:
        """The arguments with something in the place of each tensor."""
        remaining = iter(tensors)
        return [with_tensors(v, remaining) for v in self.values]

    def spread(self, parts_of_arguments: Sequence[Any]) -> list[Any]:
        """Per tensor what was given for the arguments."""
        spread: list[Any] = []
        for slot, value in zip(self.values, parts_of_arguments, strict=True):
            if slot is TENSOR:
                spread.append(value)
            elif isinstance(slot, list) and TENSOR in slot:
                parts = [None] * len(slot) if value is None else value
                spread += [part for s, part in zip(slot, parts, strict=True) if s is TENSOR]
        return spread

    def take_results(self, output: Any) -> list[Tensor]:
        """Notes the form of the results; returns their tensors."""
        self.single = not isinstance(output, tuple)
        values = [output] if self.single else list(output)
        self.results = without_tensors(values)
        return flat_tensors(values)

    def wrapped(self, tensors: Sequence[Any]) -> Any:
        """The results as the operator gives them."""
        remaining = iter(tensors)
        values = [with_tensors(v, remaining) for v in self.results]
        return values[0] if self.single and values else tuple(values) if values else None


def apply(op: OpOverload, values: Sequence[Any]) -> Any:
    """Runs an operator by its Function."""
    if op.function is None:
        op.function = _function_of(op)
    form = Form(values)
    results = op.function.apply(form, *flat_tensors(values))
    return form.wrapped(results if isinstance(results, (tuple, list)) else (results,))


def _function_of(op: OpOverload) -> Any:
    members: dict[str, Any] = {
        "forward": staticmethod(_forward(op)),
        "setup_context": staticmethod(_setup_context(op)),
        "backward": staticmethod(_backward(op)),
        "vmap": staticmethod(_vmap(op)),
    }
    name = f"GeneratedBackwardFor_{op.namespace}_{op._opname}_{op._overloadname}"
    return FunctionMeta(name, (Function,), members)


def _forward(op: OpOverload) -> Callable[..., Any]:
    def forward(form: Form, *tensors: Tensor) -> Any:
        results = form.take_results(op.compute(form.filled(tensors)))
        return results[0] if len(results) == 1 else tuple(results)

    return forward


def _needs(ctx: Any, form: Form) -> tuple[Any, ...]:
    """`needs_input_grad` per argument of the operator."""
    flags = iter(ctx.needs_input_grad[1:])
    return tuple(
        next(flags)
        if slot is TENSOR
        else [next(flags) if s is TENSOR else False for s in slot]
        if isinstance(slot, list) and TENSOR in slot
        else False
        for slot in form.values
    )


class _seen_by_user:  # noqa: N801 - a context manager, used like a function
    """The context as formulas expect it: needs_input_grad per argument of the operator."""

    def __init__(self, ctx: Any, form: Form) -> None:
        self.ctx = ctx
        self.flat = ctx.needs_input_grad
        ctx.needs_input_grad = _needs(ctx, form)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        self.ctx.needs_input_grad = self.flat


def _setup_context(op: OpOverload) -> Callable[..., Any]:
    def setup_context(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        form = ctx.form = inputs[0]
        if op.setup_context is None:
            return
        values = form.filled(inputs[1:])
        result = form.wrapped(output if isinstance(output, tuple) else (output,))
        named = {
            a.name: v for a, v in zip(op._schema.arguments, values, strict=True) if a.kwarg_only
        }
        positional = tuple(values[: len(values) - len(named)])
        with _seen_by_user(ctx, form):
            if named:
                op.setup_context(
                    ctx=ctx, inputs=positional, keyword_only_inputs=named, output=result
                )
            else:
                op.setup_context(ctx=ctx, inputs=positional, output=result)

    return setup_context


def _backward(op: OpOverload) -> Callable[..., Any]:
    def backward(ctx: Any, *grads: Tensor) -> Any:
        if op.backward is None:
            raise RuntimeError(
                f"Trying to backward through {op} but no autograd formula was registered. Please "
                "use register_autograd to add one."
            )
        form = ctx.form
        remaining = iter(grads)
        cotangents = [with_tensors(v, remaining) for v in form.results]
        with _seen_by_user(ctx, form):
            gradients = op.backward(
                ctx, *[None if _plain(s) else g for s, g in zip(form.results, cotangents)]
            )
        parts = list(gradients) if isinstance(gradients, (tuple, list)) else [gradients]
        count = sum(not a.kwarg_only for a in op._schema.arguments)
        if (
            len(form.values) == 1
            and isinstance(form.values[0], list)
            and _is_list_of(gradients, form)
        ):
            parts = [gradients]
        if len(parts) != count:
            raise RuntimeError(
                f"[{op}] Expected the return from backward to be of the same structure as the "
                f"inputs: got {len(parts)} gradients, expected {count}\n"
                "hint: one per argument, None for those without a gradient"
            )
        parts += [None] * (len(form.values) - count)
        return (None, *form.spread(parts))

    return backward


def _plain(slot: Any) -> bool:
    """Whether a result is no tensor, so that it has no gradient."""
    return slot is not TENSOR and not isinstance(slot, list)


def _is_list_of(gradients: Any, form: Form) -> bool:
    """Whether the only gradient, that of a list, came without a tuple around it."""
    return isinstance(gradients, list) and len(gradients) == len(form.values[0])


# ------------------------------------------------------------------------------------ batches


def _vmap(op: OpOverload) -> Callable[..., Any]:
    def vmap(info: Any, in_dims: Sequence[Any], form: Form, *tensors: Tensor) -> Any:
        if op.vmap_rule is None:
            return _one_by_one(op, info, in_dims[1:], form, tensors)
        values, dims = form.filled(tensors), form.filled(in_dims[1:])
        dims = [
            d if s is TENSOR or (isinstance(s, list) and TENSOR in s) else None
            for s, d in zip(form.values, dims, strict=True)
        ]
        positional = sum(not a.kwarg_only for a in op._schema.arguments)
        rule = functools.partial(op.vmap_rule, info, tuple(dims[:positional]))
        result = invoke(rule, op._schema, values)
        if not isinstance(result, tuple) or len(result) != 2:
            raise RuntimeError(
                f"[{op}] Expected the vmap function to have two returns, an output and out_dims, "
                f"got {type(result).__name__}\nhint: return output, out_dims"
            )
        output, out_dims = result
        results = form.take_results(output)
        return tuple(results), tuple(_dims_of(form, output, out_dims))

    return vmap


def _dims_of(form: Form, output: Any, out_dims: Any) -> list[Any]:
    """A dimension per tensor of the results; one number applies to all of them."""
    if out_dims is None or isinstance(out_dims, int):
        return [out_dims] * len(flat_tensors([output]))
    dims: list[Any] = []
    for slot, dim in zip(form.results, out_dims, strict=True):
        if slot is TENSOR:
            dims.append(dim)
        elif isinstance(slot, list):
            dims += list(dim) if isinstance(dim, (list, tuple)) else [dim] * len(slot)
    return dims


def _one_by_one(
    op: OpOverload, info: Any, dims: Sequence[Any], form: Form, tensors: Sequence[Tensor]
) -> Any:
    """Without a rule: the operator on each sample, the results stacked."""
    from flambeau.core.install import namespace

    if not op._schema.is_functional:
        raise RuntimeError(
            f"Batching rule not implemented for {op._schema.name}; the fallback path doesn't work "
            "on out= or view ops.\nhint: register_vmap"
        )
    if info.batch_size == 0:
        raise RuntimeError(
            f"[{op}] vmap over no samples needs a rule: nothing tells the results' sizes\n"
            "hint: register_vmap"
        )
    warnings.warn(
        f"There is a performance drop because we have not yet implemented the batching rule for "
        f"{op._schema.name}. It is called for every sample: register_vmap adds a rule.",
        stacklevel=2,
    )
    samples = []
    for number in range(info.batch_size):
        sample = [
            t if d is None else t.select(d, number) for t, d in zip(tensors, dims, strict=True)
        ]
        samples.append(form.take_results(op.native(*form.filled(sample))))
    stack = namespace("torch")["stack"]
    stacked = [stack(parts) for parts in zip(*samples, strict=True)]
    return tuple(stacked), tuple([0] * len(stacked))
