"""Calls that a dispatch mode or type answers, as nodes of the graph.

A call is one node, of PyTorch's class for the operator. Its backward calls the operator's formula
(`derivatives`), whose calls the mode sees in turn; without a formula it is one gradient operator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from flambeau import _core
from flambeau.autograd import Function
from flambeau.autograd.places import TENSOR
from flambeau.decompositions import names
from flambeau.decompositions.derivatives import Formula, Recorded, formula_of
from flambeau.decompositions.inner_gradients import gradients as differentiated
from flambeau.ir.lock import late
from flambeau.ops import aten
from flambeau.runtime.symbolic import lowered

__all__ = ["track"]

Tensor = Any
Ask = Callable[[Any, Any, Sequence[Any]], Any]


class _Call:
    """One call: what its backward needs beside saved tensors.

    Attributes:
        slots: per tensor the argument that it is (part of).
        saved_names: names of saved tensors, in order.
    """

    def __init__(self, program: Any, func: Any, values: Sequence[Any], ask: Ask) -> None:
        self.program, self.func, self.ask = program, func, ask
        self.operator, self.overload = func.overloadpacket.__name__, func._overloadname
        by_programs = late("flambeau.utils._python_dispatch")._modes.by_programs is not None
        formula = None if by_programs else formula_of(self.operator, self.overload)
        self.formula: Formula | None = formula
        self.names = [a.name for a in program.arguments]
        self.slots: list[str] = []
        self.tensors: list[Tensor] = []
        for number in program.tensors:
            for x in _flat(values[number]):
                if isinstance(x, _core.Tensor):
                    self.slots.append(self.names[number])
                    self.tensors.append(x)
        self.values = list(values)
        self.saved_names: list[tuple[str, int]] = []
        inputs = names.inputs_of(self.operator, self.overload, program.arguments, values)
        places = {id(x): k for k, x in enumerate(self.tensors)}
        self.order = [places.get(id(x)) for x in inputs]


def _flat(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else (value,)


def track(program: Any, func: Any, values: Sequence[Any], ask: Ask) -> tuple[Any, ...]:
    """Runs a call and makes its node.

    Args:
        program: of the operator.
        func: the overload that is called.
        values: the arguments in order.
        ask: (func, program, values) -> result.

    Returns:
        The results; of a call in place the tensor that it wrote.
    """
    call = _Call(program, func, values, ask)
    kind = _class(names.class_name(call.operator, call.overload))
    results: tuple[Any, ...] = kind.apply(call, *call.tensors)
    if not program.mutates:
        for result in results:
            if isinstance(result, _core.Tensor):
                _core.plain_view(result, not call.operator.startswith(("unsafe_", "_unsafe_")))
    return results


@functools.cache
def _class(name: str) -> Any:
    kind = type(name, (_Tracked,), {})
    node: Any = kind._backward_cls
    node.__name__ = name
    inherited = node.next_functions

    def next_functions(self: Any) -> tuple[Any, ...]:
        pairs = inherited.__get__(self)
        return tuple([(None, 0) if k is None else pairs[k] for k in self.call.order])

    node.next_functions = property(next_functions)
    return kind


class _Tracked(Function):
    """A call as one node of the tape."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Tensor) -> Any:
        """Runs the call, gradients off."""
        ctx.call, ctx.grad_shapes = call, [tuple(x.shape) for x in tensors]
        ctx.dtypes = {name: x.dtype for name, x in zip(call.slots, tensors, strict=True)}
        ctx.set_materialize_grads(False)
        before, written = dict[str, Any](), call.values[0]
        if call.program.mutates:
            first = call.names[0]
            if call.formula is not None and first in call.formula.saves:
                before[first] = aten.clone(written)
            ctx.mark_dirty(written)
        result = _flat(call.ask(call.func, call.program, call.values))
        saved = _saved(call, before, result)
        _show_detached(call, saved)
        ctx.save_for_backward(*saved)
        call.values = [_unbound(value) for value in call.values]
        call.tensors = []
        if call.program.mutates:  # whatever a type gives for it
            return (written,)
        return tuple([_own(x, tensors) for x in result])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        """Gradients of the tensors, by the formula or by the program."""
        call, needed = ctx.call, ctx.needs_input_grad[1:]
        mode = late("flambeau.utils._python_dispatch")._get_current_dispatch_mode()
        tensors = ctx.saved_tensors
        _show_detached(call, tensors)
        if mode is not None:
            tensors = [mode._restored(x) for x in tensors]
            gradients = tuple([g if g is None else mode._restored(g) for g in gradients])
        saved = dict(zip(call.saved_names, tensors, strict=True))
        if all(grad is None for grad in gradients):
            return (None,) * (1 + len(needed))
        results: Any = NotImplemented
        if call.formula is not None:
            results = _by_formula(ctx, saved, gradients)
        if results is NotImplemented:
            results = _by_program(ctx, saved, gradients)
        fitted = [
            None if grad is None or not need else _fitted(grad, shape)
            for grad, need, shape in zip(results, needed, ctx.grad_shapes, strict=True)
        ]
        return (None, *fitted)


# Operators whose results after the first have no gradient.
_STATISTICS = (
    "native_layer_norm", "native_batch_norm", "_native_batch_norm", "native_dropout", "nll_loss",
    "_scaled_dot_product", "_embedding_bag", "_ctc", "log_sigmoid",
)  # fmt: skip


def _show_detached(call: _Call, saved: Sequence[Tensor]) -> None:
    """Shows what PyTorch calls when it saves a result, and when it reads one that it saved."""
    shown = ("result", "results0") if call.operator.startswith(_STATISTICS) else ("result",)
    for (name, _), tensor in zip(call.saved_names, saved, strict=True):
        if (name if len(shown) > 1 else name[:6]) in shown and tensor.is_floating_point():
            late("flambeau.utils._python_dispatch")._detach(tensor)


def _unbound(value: Any) -> Any:
    """A value without its tensors; of these what a formula may ask."""
    if isinstance(value, _core.Tensor):
        return TENSOR
    if isinstance(value, (tuple, list)) and any(isinstance(x, _core.Tensor) for x in value):
        return [_unbound(x) for x in value]
    return value


def _saved(call: _Call, before: dict[str, Any], result: Sequence[Any]) -> list[Tensor]:
    """Tensors that backward reads; `call.saved_names` says which they are."""
    named: dict[str, Any] = dict(zip(call.names, call.values, strict=True)) | before
    named |= {"result": result[0]} | {f"results{k}": x for k, x in enumerate(result)}
    chosen = call.names if call.formula is None else call.formula.saves
    saved: list[Tensor] = []
    for name in chosen:
        for k, x in enumerate(_flat(named.get(name))):
            if isinstance(x, _core.Tensor):
                call.saved_names.append((name, k))
                saved.append(x)
    return saved


def _rebuilt(call: _Call, saved: dict[tuple[str, int], Tensor]) -> dict[str, Any]:
    """The arguments by name, with the saved tensors inserted."""
    values: dict[str, Any] = {}
    for name, value in zip(call.names, call.values, strict=True):
        if isinstance(value, list):
            values[name] = [
                saved.get((name, k), x) if x is TENSOR else x for k, x in enumerate(value)
            ]
        else:
            values[name] = saved.get((name, 0), value) if value is TENSOR else value
    values |= {name: x for (name, _), x in saved.items() if name.startswith("result")}
    return values


def _by_formula(ctx: Any, saved: Any, gradients: Sequence[Tensor | None]) -> Any:
    call, needed = ctx.call, ctx.needs_input_grad[1:]
    targets = {name for name, need in zip(call.slots, needed, strict=True) if need}
    values = _rebuilt(call, saved)
    shapes: dict[str, Any] = {}
    each: dict[str, list[bool]] = {}
    for name, shape, need in zip(call.slots, ctx.grad_shapes, needed, strict=True):
        many = isinstance(values[name], list)
        shapes[name] = [*shapes.get(name, ()), shape] if many else shape
        each.setdefault(name, []).append(need)
    values |= {"shapes": shapes, "dtypes": ctx.dtypes}
    values |= {"operator": call.operator, "overload": call.overload}
    recorded = Recorded(values, targets, each, tuple(gradients))
    first = next((g for g in gradients if g is not None), None)
    assert call.formula is not None
    results = call.formula.run(recorded, gradients[0] if gradients[0] is not None else first)
    if results is NotImplemented:
        return NotImplemented
    lists = {name: iter(value) for name, value in results.items() if isinstance(value, list)}
    return [next(lists[name]) if name in lists else results.get(name) for name in call.slots]


def _by_program(ctx: Any, saved: Any, gradients: Sequence[Tensor | None]) -> Any:
    """One gradient operator; of an operator without a program what Python's autograd says."""
    call, needed = ctx.call, ctx.needs_input_grad[1:]
    if any((name, 0) not in saved for name in call.slots):
        raise NotImplementedError(
            f"[{call.func}] has no gradient under __torch_dispatch__ for these arguments\n"
            "hint: another form of the operator, or no_grad()"
        )
    values = list(_rebuilt(call, saved).values())[: len(call.names)]
    targets = [k for k, need in enumerate(needed) if need]
    if hasattr(call.program, "gradient"):
        if call.program.mutates:
            raise NotImplementedError(
                f"[{call.func}] an operator that writes has no gradient under "
                "__torch_dispatch__\nhint: the out-of-place operator, or no_grad()"
            )
        results = iter(_flat(call.program.gradient(*values, targets, list(gradients))))
        return [next(results) if need else None for need in needed]
    chosen = [k for k, value in enumerate(values) if isinstance(value, _core.Tensor)]
    operands = [values[k] if need else None for k, need in zip(chosen, needed, strict=True)]

    def run(*leaves: Any) -> Any:
        operands = list(values)
        for k, leaf in zip(chosen, leaves, strict=True):
            operands[k] = values[k] if leaf is None else leaf
        return _flat(call.program.run(*operands))[0]

    return differentiated(run, operands, gradients[0])


def _fitted(grad: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A gradient summed to the shape of what was broadcast."""
    if lowered(tuple(grad.shape)) == lowered(shape):  # numbers of the example: no guard
        return grad
    lead = grad.ndim - len(shape)
    spread = [lead + d for d, n in enumerate(shape) if n == 1 != grad.shape[lead + d]]
    dims = [*range(lead), *spread]
    if dims:
        grad = aten.sum(grad, dims, True)
    return aten.view(grad, shape) if lead > 0 else grad


def _own(result: Any, tensors: Sequence[Tensor]) -> Any:
    """A result that gets a history: not one of the operands, nor what was tracked before."""
    if isinstance(result, _core.Tensor) and any(result is x for x in tensors):
        with late("flambeau.utils._python_dispatch")._disable_current_modes():
            return result.detach()
    return result
