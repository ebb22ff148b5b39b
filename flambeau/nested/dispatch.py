"""Which function answers a call of an operator with a nested tensor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from flambeau.nested import attention, geometry, pointwise, products, reduce, selection, several
from flambeau.nested.tensor import StridedTensor

# Operators with a rule of their own; families are in `pointwise.NAMES`, `reduce.REDUCTIONS`,
# `reduce.ALONG`.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "transpose": geometry.transpose, "swapaxes": geometry.transpose,
    "swapdims": geometry.transpose, "_matrix_transpose": geometry.last_two,
    "numpy_T": geometry.reversed_dims, "permute": geometry.permute,
    "movedim": geometry.movedim,
    "unsqueeze": geometry.unsqueeze, "squeeze": geometry.squeeze, "reshape": geometry.reshape,
    "view": geometry.view, "view_as": geometry.view_as, "reshape_as": geometry.reshape_as,
    "flatten": geometry.flatten, "unflatten": geometry.unflatten, "expand": geometry.expand,
    "expand_as": geometry.expand_as, "unbind": geometry.unbind, "select": geometry.select,
    "narrow": geometry.narrow, "slice": geometry.slice_of, "chunk": geometry.chunk,
    "split": geometry.split, "split_with_sizes": geometry.sections,
    "cat": geometry.cat, "stack": geometry.stack,
    "contiguous": geometry.contiguous, "index_put": selection.index_put,
    "index_put_": selection.index_put_,
    "copy_": geometry.copy_, "linear": products.linear, "prelu": products.prelu,
    "matmul": products.matmul, "bmm": products.bmm,
    "_rmatmul": lambda input, other: products.matmul(other, input),
    "embedding": products.embedding, "scaled_dot_product_attention": attention.attention,
}  # fmt: skip


@functools.cache
def _answer(op: Any) -> Callable[..., Any] | None:
    name = op.__name__
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name in ("layer_norm", "rms_norm"):
        return products.normalised(op, name)
    if name in pointwise.BINARY:
        return _larger(op, name)
    families = ((reduce.REDUCTIONS, reduce.reduction), (reduce.ALONG, reduce.along))
    for names, function in families:
        if name in names:
            return _of(function, op, name)
    if name in pointwise.NAMES or name.removesuffix("_") in pointwise.NAMES:
        return _of(pointwise.call, op, name)
    return None


def _of(function: Callable[..., Any], op: Any, name: str) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(op, name, args, kwargs)


def _larger(op: Any, name: str) -> Callable[..., Any]:
    """`max(x, y)` compares tensors, `max(x, 1)` reduces."""

    def call(*args: Any, **kwargs: Any) -> Any:
        from flambeau.core.tensors import is_tensor

        second = args[1] if len(args) > 1 else kwargs.get("other")
        function = pointwise.call if is_tensor(second) else reduce.reduction
        return function(op, name, args, kwargs)

    return call


def refuse(name: str, tensor: Any) -> NoReturn:
    """Raises for an operator that nested tensors do not have."""
    raise NotImplementedError(
        f"[{name}] not implemented for nested tensors of layout {tensor.layout}, dtype "
        f"{tensor.dtype}\nhint: apply it to values(), to the samples of unbind(), or to "
        "to_padded_tensor(0.0)"
    )


def call(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """An operator with a nested operand.

    Raises:
        NotImplementedError: nested tensors do not have the operator.
    """
    operands = pointwise.nested_operands((*args, *kwargs.values()))
    function = _answer(op)
    if function is None:
        refuse(op.__name__, operands[0])
    if "self" in kwargs:
        kwargs["input"] = kwargs.pop("self")
    out = kwargs.pop("out", None)
    if any(isinstance(x, StridedTensor) for x in operands):
        result = several.call(function, op, args, kwargs)
    else:
        result = function(*args, **kwargs)
    return result if out is None else _into(op.__name__, out, result)


def _into(name: str, out: Any, result: Any) -> Any:
    from flambeau.nested.tensor import NestedTensor

    if isinstance(out, NestedTensor) != isinstance(result, NestedTensor):
        raise RuntimeError(
            f"[{name}] out= does not fit the result: one is nested, the other is not\n"
            "hint: leave out= away"
        )
    if not isinstance(out, NestedTensor) and tuple(out.shape) != tuple(result.shape):
        out.resize_(tuple(result.shape))
    return out.copy_(result)
