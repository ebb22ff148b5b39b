"""Which function answers a call of an operator with a sparse tensor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.language.definition import REGISTRY
from flambeau.sparse import blocks, convert, geometry, pointwise, products, reduce
from flambeau.sparse.tensor import BLOCKS, SparseTensor, layout_name, take_over

FUNCTIONS: dict[str, Callable[..., Any]] = {
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
CONVERSIONS = ("double", "float", "half", "bfloat16", "int", "long", "short", "char", "byte",
               "bool", "cdouble", "cfloat")  # fmt: skip


@functools.cache
def _names() -> frozenset[str]:
    return frozenset(definition.name for definition in REGISTRY.values())


def _of_engine(op: Any) -> bool:
    """Whether an op is nobody's definition: then it is the backward of one."""
    return op.__name__ not in _names() and op.__name__.removesuffix("_") not in _names()


@functools.cache
def _answer(op: Any) -> Callable[..., Any] | None:
    name = op.__name__
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name in pointwise.ZERO_TO_ZERO or name in pointwise.LINEAR:
        return pointwise.unary(op, name)
    if name in CONVERSIONS:
        return pointwise.converted(op, name)
    if name.endswith("_") and not name.endswith("__"):
        functional = REGISTRY.get(name[:-1])
        inner = None if functional is None else _answer(functional.native)
        return None if inner is None else _in_place(inner)
    return None


def _in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    def write(target: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(target, SparseTensor):
            return target.copy_(strided(function(target, *args, **kwargs)))
        return take_over(target, function(target, *args, **kwargs))

    return write


def strided(value: Any) -> Any:
    """A value with every sparse tensor made dense."""
    if isinstance(value, SparseTensor):
        return convert.dense(value)
    if isinstance(value, (list, tuple)):
        return type(value)(strided(item) for item in value)
    return value


def call(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """An operator with a sparse operand.

    Raises:
        NotImplementedError: sparse tensors do not have the operator.
    """
    function = _answer(op)
    if function is not None and not _knows_layout(op.__name__, (*args, *kwargs.values())):
        function = None
    if function is None:
        if _of_engine(op):  # derivatives are linear: a sparse gradient is a gradient
            return op(*strided(tuple(args)), **{k: strided(v) for k, v in kwargs.items()})
        found = _first_sparse((*args, *kwargs.values()))
        raise NotImplementedError(
            f"[{op.__name__}] not implemented for sparse tensors ({layout_name(found)})\n"
            "hint: convert with to_dense(), or apply it to values()"
        )
    out = kwargs.pop("out", None)
    if "self" in kwargs:
        kwargs["input"] = kwargs.pop("self")
    result = function(*args, **kwargs)
    return result if out is None else _into(out, result)


def _knows_layout(name: str, values: Sequence[Any]) -> bool:
    """Whether an operator with operands in blocks is one of those that know them."""
    if not any(isinstance(x, SparseTensor) and x._kind in BLOCKS for x in values):
        return True
    return blocks.answers(name) or name not in FUNCTIONS


def _first_sparse(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return next((item for item in map(_first_sparse, value) if item is not None), None)
    return value if isinstance(value, SparseTensor) else None


def _into(out: Any, result: Any) -> Any:
    """`out=`: a strided or sparse tensor that takes the result."""
    if isinstance(out, SparseTensor):
        return take_over(out, result.to(out.dtype))
    if isinstance(result, SparseTensor):
        raise RuntimeError(
            "[out] a sparse result does not fit a strided tensor\nhint: leave out= away"
        )
    if tuple(out.shape) != tuple(result.shape):
        out.resize_(tuple(result.shape))
    return out.copy_(result)
