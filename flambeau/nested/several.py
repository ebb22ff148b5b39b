"""Nested tensors of layout `torch.strided`: samples may differ in several dimensions.

Where they differ in the first dimension alone, the elements are the values of a jagged tensor as
they stand: operators are the jagged ones, and the result is a nested tensor of this layout again.
Otherwise operators element by element run on all elements at once, and a few others on every
sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from flambeau.autograd.composite import mapped
from flambeau.autograd.composition import Rule, described
from flambeau.core.tensors import Tensor
from flambeau.ir.lock import importing
from flambeau.nested import pointwise
from flambeau.nested.attention import attention
from flambeau.nested.construct import strided_of
from flambeau.nested.ragged import Ragged, ragged_from_lengths
from flambeau.nested.tensor import (
    JaggedTensor,
    NestedTensor,
    StridedTensor,
    jagged,
    refuse,
    strided,
)

# Per sample: the arguments of these that are dimensions count the batch.
DIMS = {
    "transpose": (1, 2), "swapaxes": (1, 2), "swapdims": (1, 2), "unsqueeze": (1,),
    "squeeze": (1,), "softmax": (1,), "log_softmax": (1,), "sum": (1,), "mean": (1,),
    "amax": (1,), "amin": (1,), "flatten": (1, 2), "cumsum": (1,), "flip": (1,),
}  # fmt: skip
PER_SAMPLE = frozenset({
    *DIMS, "linear", "matmul", "bmm", "layer_norm", "rms_norm", "embedding", "_matrix_transpose",
    "clone", "contiguous",
})  # fmt: skip


def call(function: Rule, op: Rule, *args: Any, **kwargs: Any) -> Any:
    """An operator of which an operand is nested and strided."""
    name = op.__name__
    own = _OWN.get(name)
    if own is not None:
        return own(*args, **kwargs)
    operands = pointwise.nested_operands((*args, *kwargs.values()))
    if any(not isinstance(x, StridedTensor) for x in operands):
        refuse(name, "operands are nested tensors of different layouts",
               "as_nested_tensor(x, layout=torch.jagged)")  # fmt: skip
    if described(op).is_pointwise and not _has_dense((*args, *kwargs.values())):
        return _elementwise(op, name, operands, args, kwargs)
    if name in ("bmm", "matmul") and len(operands) == 2:
        return _products(op, operands)
    if all(_is_rows(x) for x in operands) and not _joins_first(name, operands[0], args, kwargs):
        return _as_jagged(function, args, kwargs)
    if name in PER_SAMPLE and len(operands) == 1:
        return _per_sample(op, name, operands[0], args, kwargs)
    raise NotImplementedError(
        f"[{name}] not implemented for nested tensors of layout torch.strided whose samples differ "
        "in this way\nhint: apply it to the samples of unbind(), or to to_padded_tensor(0.0)"
    )


def _joins_first(name: str, tensor: Tensor, args: Any, kwargs: Any) -> bool:
    """Whether `flatten` joins the first dimension of samples, which a jagged tensor cannot."""
    start = kwargs.get("start_dim", args[1] if len(args) > 1 else 0)
    return name == "flatten" and start % tensor.dim() < 2


def _has_dense(values: Any) -> bool:
    return any(
        isinstance(x, torch.Tensor) and not isinstance(x, NestedTensor) and x.dim() for x in values
    )


def _elementwise(op: Any, name: str, operands: Any, args: Any, kwargs: Any) -> Any:
    pattern = operands[0]
    if any(x._shapes != pattern._shapes for x in operands):
        refuse(name, "samples of the operands have different shapes", "their shapes are equal")

    def inner(x: Any) -> Any:
        return x._kept if isinstance(x, StridedTensor) else x

    result = op(*map(inner, args), **{k: inner(v) for k, v in kwargs.items()})
    if name.endswith("_") and isinstance(args[0], NestedTensor):
        return args[0]
    return pointwise.wrapped(pattern, result)


def _products(op: Any, operands: Any) -> Tensor:
    a, b = operands
    if len(a._shapes) != len(b._shapes):
        refuse(op.__name__, "batches of different sizes", "one matrix per matrix")
    pairs = zip(a._parts(), b._parts(), strict=True)
    return strided_of([torch.matmul(x, y) for x, y in pairs])


# ------------------------------------------------------------------------------ as jagged
def _varying(x: Tensor) -> list[int]:
    """The dimensions of samples in which they differ."""
    return [d for d, sizes in enumerate(zip(*x._shapes, strict=True)) if len(set(sizes)) > 1]


def _is_rows(x: Tensor) -> bool:
    """Whether samples differ in at most one dimension: then they are a jagged tensor's."""
    return bool(x._shapes) and bool(x._shapes[0]) and len(_varying(x)) <= 1


def to_jagged(x: Tensor, raggeds: dict[tuple[int, ...], Ragged], dim: int = 0) -> Tensor:
    """The same samples as a jagged tensor: a view, where they differ in their first dimension.

    Args:
        x: of layout strided.
        raggeds: the `Ragged` of other operands by lengths; enlarged.
        dim: the ragged dimension of samples that do not differ.
    """
    d = next(iter(_varying(x)), dim)
    counts = tuple(shape[d] for shape in x._shapes)
    if counts not in raggeds:
        raggeds[counts] = ragged_from_lengths(counts, x._kept.device)
    if d:
        return jagged(torch.cat(x._parts(), d), raggeds[counts], d + 1)
    return jagged(x._kept.view(sum(counts), *x._shapes[0][1:]), raggeds[counts])


def from_jagged(x: Tensor) -> Tensor:
    """A jagged tensor in the layout `torch.strided`; a view where samples are contiguous."""
    if x._ragged_idx == 1 and x.is_contiguous():
        return strided(x._kept.reshape(-1), x._shapes_of_parts())
    return strided_of(x._parts())


def _as_jagged(function: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Any:
    raggeds: dict[tuple[int, ...], Ragged] = {}
    written = args[0] if args else None
    dim = written.dim() - 3 if function is attention else 0

    def inner(x: Any) -> Any:
        if isinstance(x, StridedTensor):
            return to_jagged(x, raggeds, dim)
        if isinstance(x, (list, tuple)) and pointwise.nested_operands(x):
            return type(x)(inner(item) for item in x)
        return x

    first = inner(written)
    result = function(first, *map(inner, args[1:]), **{k: inner(v) for k, v in kwargs.items()})
    return written if result is first and first is not written else _again(result)


def _again(result: Any) -> Any:
    return mapped(lambda x: from_jagged(x) if isinstance(x, JaggedTensor) else x, result)


# ------------------------------------------------------------------------------ per sample
def _per_sample(op: Any, name: str, tensor: Tensor, args: Any, kwargs: Any) -> Tensor:
    """An operator on every sample; its dimensions count the batch."""
    ndim, arguments, options = tensor.dim(), list(args), dict(kwargs)
    for at in DIMS.get(name, ()):
        if at < len(arguments) and isinstance(arguments[at], int):
            arguments[at] = _shifted(name, arguments[at], ndim + (name == "unsqueeze"))
    for key in ("dim", "dim0", "dim1", "start_dim", "end_dim"):
        if isinstance(options.get(key), int):
            options[key] = _shifted(name, options[key], ndim + (name == "unsqueeze"))
    if name in ("sum", "mean", "amax", "amin") and len(arguments) == 1 and "dim" not in options:
        return op(tensor._kept, **options)
    return strided_of([
        op(*[part if x is tensor else x for x in arguments], **options)
        for part in tensor._parts()
    ])  # fmt: skip


def _shifted(name: str, dim: int, ndim: int) -> int:
    if not -ndim <= dim < ndim:
        raise IndexError(
            f"[{name}] Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], "
            f"but got {dim})\nhint: the batch is dimension 0"
        )
    if dim % ndim == 0:
        refuse(name, f"{name}(): not supported for NestedTensor on dim=0", "unbind()")
    return dim % ndim - 1


def _cat(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    if dim == 0 and all(isinstance(x, NestedTensor) for x in tensors):
        return strided_of([part for x in tensors for part in x._parts()])
    if all(isinstance(x, StridedTensor) and _is_rows(x) for x in tensors):
        with importing:
            from flambeau.nested.geometry import cat

        raggeds: dict[tuple[int, ...], Ragged] = {}
        return from_jagged(cat([to_jagged(x, raggeds) for x in tensors], dim))
    return refuse("cat", "nested tensors of layout torch.strided are joined along dim 0", "cat(0)")


def _unbind(input: Tensor, dim: int = 0) -> Any:
    if dim % input.dim() != 0:
        refuse("unbind", "unbind(): only supported for NestedTensor on dim=0", "unbind()")
    return input._parts()


def _select(input: Tensor, dim: int, index: int) -> Tensor:
    d = dim % input.dim()
    if d == 0:
        return input._parts()[index]
    return strided_of([part.select(d - 1, index) for part in input._parts()])


def _copy(self: Any, src: Any, non_blocking: bool = False) -> Any:
    with importing:
        from flambeau.nested.geometry import copy_

    return copy_(self, src, non_blocking)


_OWN: dict[str, Callable[..., Any]] = {
    "cat": _cat, "unbind": _unbind, "select": _select, "copy_": _copy,
    "contiguous": lambda self, memory_format=None: self,
}  # fmt: skip
