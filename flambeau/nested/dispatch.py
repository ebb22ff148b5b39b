"""Dispatches calls of operators with nested tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

from flambeau.autograd.composition import Rule, Rules, larger, named
from flambeau.core.tensors import Tensor
from flambeau.nested import attention, geometry, pointwise, products, reduce, selection, several
from flambeau.nested.tensor import NestedTensor, StridedTensor

# Operators with a rule of their own; the others come in families.
FUNCTIONS: dict[str, Rule] = {
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
FAMILIES = (
    (named("layer_norm rms_norm"), products.normalised),
    (named("max min"), larger(pointwise.call, reduce.reduction)),
    (named(*reduce.REDUCTIONS), reduce.reduction),
    (named(*reduce.ALONG), reduce.along),
    (lambda operator: operator.is_pointwise, pointwise.call),
)


def refuse(name: str, tensor: Tensor) -> NoReturn:
    """Raises for an operator that nested tensors do not have."""
    raise NotImplementedError(
        f"[{name}] not implemented for nested tensors of layout {tensor.layout}, dtype "
        f"{tensor.dtype}\nhint: apply it to values(), to the samples of unbind(), or to "
        "to_padded_tensor(0.0)"
    )


RULES = Rules(NestedTensor, FUNCTIONS, FAMILIES, refuse)


def call(op: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """An operator with a nested operand.

    Raises:
        NotImplementedError: nested tensors do not have the operator.
    """
    operands = pointwise.nested_operands((*args, *kwargs.values()))
    rule = RULES.rule(op)
    if rule is None or not any(isinstance(x, StridedTensor) for x in operands):
        return RULES.call(op, args, kwargs)
    return RULES.apply(partial(several.call, rule, op), op.__name__, args, kwargs)
