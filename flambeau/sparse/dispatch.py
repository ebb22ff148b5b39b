"""Dispatches calls of operators with sparse tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from flambeau.autograd.composition import Operator, Rule, Rules, described, operands
from flambeau.core.tensors import Tensor
from flambeau.sparse import blocks, convert, geometry, pointwise, products, reduce
from flambeau.sparse.tensor import BLOCKS, SparseTensor, layout_name

FUNCTIONS: dict[str, Rule] = {
    "add": pointwise.add, "sub": pointwise.sub, "subtract": pointwise.sub, "rsub": pointwise.rsub,
    "add_": pointwise.add_, "sub_": pointwise.sub_, "subtract_": pointwise.sub_,
    "mul": pointwise.mul, "multiply": pointwise.mul, "mul_": pointwise.mul_,
    "multiply_": pointwise.mul_, "div": pointwise.div, "divide": pointwise.div,
    "true_divide": pointwise.div, "floor_divide": pointwise.floor_divide, "pow": pointwise.power,
    "to": pointwise.to, "type": pointwise.to, "clone": pointwise.clone, "copy_": pointwise.copy_,
    "zero_": pointwise.zero_, "zeros_like": pointwise.zeros_like,
    "empty_like": pointwise.zeros_like, "new_zeros": pointwise.new_zeros,
    "new_empty": pointwise.new_zeros,
    "mm": products.mm, "matmul": products.matmul, "mv": products.mv, "bmm": products.bmm,
    "addmm": products.addmm, "addmv": products.addmv, "linear": products.linear,
    "_rmatmul": lambda input, other: products.matmul(other, input),
    "sum": reduce.sum_of, "norm": reduce.norm, "any": reduce.any_of,
    "transpose": geometry.transpose, "swapaxes": geometry.transpose, "t": geometry.t,
    "swapdims": geometry.transpose, "numpy_T": geometry.reversed_dims, "adjoint": geometry.adjoint,
    "_matrix_transpose": geometry.last_two, "matrix_H": geometry.adjoint,
    "permute": geometry.permute, "select": geometry.select, "narrow": geometry.narrow,
    "narrow_copy": geometry.narrow, "index_select": geometry.index_select,
    "unbind": geometry.unbind, "unsqueeze": geometry.unsqueeze, "cat": geometry.cat,
    "concat": geometry.cat, "concatenate": geometry.cat, "stack": geometry.stack,
    "vstack": geometry.vstack, "hstack": geometry.hstack,
}  # fmt: skip


def _on_values(operator: Operator) -> bool:
    """Whether it is the operator on the values: of one operand, whose zeros stay."""
    if operator.definition is None or operator.in_place or operator.operands != 1:
        return False
    return operator.is_pointwise and operator.definition.options.preserves_zeros


def _refuse(name: str, tensor: Tensor) -> NoReturn:
    raise NotImplementedError(
        f"[{name}] not implemented for sparse tensors ({layout_name(tensor)})\n"
        "hint: convert with to_dense(), or apply it to values()"
    )


RULES = Rules(
    SparseTensor, FUNCTIONS, ((_on_values, pointwise.on_values),), _refuse, derives_in_place=True
)


def strided(value: Any) -> Any:
    """A value with every sparse tensor made dense."""
    if isinstance(value, SparseTensor):
        return convert.dense(value)
    if isinstance(value, (list, tuple)):
        return type(value)(strided(item) for item in value)
    return value


def call(op: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """An operator with a sparse operand.

    Raises:
        NotImplementedError: sparse tensors do not have the operator.
    """
    if described(op).definition is None and RULES.rule(op) is None:  # a derivative, so linear
        return op(*strided(tuple(args)), **{k: strided(v) for k, v in kwargs.items()})
    sparse = operands(SparseTensor, (*args, *kwargs.values()))
    of_blocks = any(x._kind in BLOCKS for x in sparse)
    if of_blocks and op.__name__ in FUNCTIONS and not blocks.answers(op.__name__):
        _refuse(op.__name__, sparse[0])
    return RULES.call(op, args, kwargs)
