"""Matrix products, layers and look-ups of jagged tensors.

A product that does not sum over the ragged dimension runs on the values: all samples are rows of
one product. Sums over it run on samples padded with zeros, which change no bit of a product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.autograd.composition import Rule
from flambeau.nested import padded
from flambeau.nested.tensor import JaggedTensor, jagged, refuse

Tensor = Any


def _is_last(tensor: Tensor) -> bool:
    return bool(tensor._ragged_idx == tensor.dim() - 1)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b on the last dimension."""
    _only_input("linear", input, weight, bias)
    if _is_last(input):
        refuse("linear", "linear(): not supported for NestedTensor on ragged dim", "transpose()")
    return input._like(torch.nn.functional.linear(input._kept, weight, bias))


def _only_input(name: str, first: Tensor, *others: Any) -> None:
    if not isinstance(first, JaggedTensor) or any(isinstance(x, JaggedTensor) for x in others):
        refuse(name, f"{name}(): weights of nested tensors are dense", "unbind() nested weights")


def normalised(op: Rule, name: str, args: Any, kwargs: Any) -> Tensor:
    """`layer_norm` and `rms_norm` over the last dimensions, for `layer_norm` ragged ones too."""
    arguments, options = list(args), dict(kwargs)
    tensor = arguments.pop(0)
    sizes = arguments.pop(0) if arguments else options.pop("normalized_shape")
    _only_input(name, tensor)
    shape = (sizes,) if isinstance(sizes, int) else sizes
    if len(shape) >= tensor.dim() - tensor._ragged_idx:
        return _normalised_samples(op, name, tensor, tuple(shape), arguments, options)
    return tensor._like(op(tensor._kept, sizes, *arguments, **options))


def _normalised_samples(
    op: Callable[..., Any], name: str, tensor: Tensor, shape: Any, args: Any, kwargs: Any
) -> Any:
    """`layer_norm` over the ragged dimension: sample by sample, so that they have their own bits.

    Raises:
        ValueError: it is `rms_norm`.
        RuntimeError: the shape does not fit, or there are holes.
    """
    if name != "layer_norm":
        raise ValueError(
            f"[{name}] Normalization over the ragged dim not supported for nested tensors\n"
            "hint: normalise the dimensions behind it, or each sample of x.unbind()"
        )
    if tensor._ragged.lengths is not None:
        refuse(name, "not supported over the ragged dimension where lengths is not None")
    if len(shape) >= tensor.dim() or tuple(tensor.shape[-len(shape) :]) != shape:
        refuse(
            name,
            f"normalized_shape is {shape}, the last dimensions are {tuple(tensor.shape[1:])}",
            "take its sizes, the symbol of the ragged one too, from x.shape",
        )
    options = {**dict(zip(("weight", "bias", "eps"), args, strict=False)), **kwargs}
    weight, bias = options.pop("weight", None), options.pop("bias", None)
    parts = [op(x, tuple(x.shape[-len(shape) :]), **options) for x in tensor._parts()]
    result = tensor._like(torch.cat(parts, tensor._ragged_idx - 1))
    result = result if weight is None else result * weight
    return result if bias is None else result + bias


def embedding(input: Tensor, weight: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Rows of a dense table at nested indices."""
    _only_input("embedding", input, weight)
    return input._like(torch.nn.functional.embedding(input._kept, weight, *args, **kwargs))


def prelu(input: Any, weight: Any) -> Any:
    """`max(0, x) + weight * min(0, x)`, of one weight for all."""
    _only_input("prelu", input, weight)
    if weight.numel() != 1:
        raise NotImplementedError(
            "[prelu] not implemented for nested tensors with a weight per channel\n"
            "hint: prelu(x.values(), weight) and nested_tensor_from_jagged(..., x.offsets())"
        )
    return input._like(torch.nn.functional.prelu(input._kept, weight))


# ------------------------------------------------------------------------------ products
def bmm(input: Tensor, mat2: Any) -> Tensor:
    """`matmul` of two batches of matrices."""
    if input.dim() != 3 or mat2.dim() != 3:
        refuse("bmm", "batch1 and batch2 must be 3D tensors", "matmul broadcasts")
    return matmul(input, mat2)


def matmul(input: Any, other: Any) -> Any:
    """Matrix products of which an operand is jagged.

    Raises:
        RuntimeError: both dimensions of the result would be ragged, or sizes do not fit.
    """
    if isinstance(input, JaggedTensor):
        if isinstance(other, JaggedTensor):
            return _both(input, other)
        return _with_dense(input, other)
    return _dense_first(input, other)


def _unfit(a: Tensor, b: Tensor) -> None:
    refuse("matmul", "matmul(): not supported between inputs of shapes "
           f"{tuple(a.shape)} and {tuple(b.shape)}",
           "at most one of the result's dimensions is ragged: to_padded_tensor(0.0)")  # fmt: skip


def _with_dense(input: Tensor, other: Any) -> Tensor:
    r, ndim = input._ragged_idx, input.dim()
    if _is_last(input):  # a dense matrix has no ragged rows
        _unfit(input, other)
    if other.dim() <= 2:
        if other.dim() == 1:
            return jagged(input._kept.matmul(other), input._ragged, r)
        return input._like(input._kept.matmul(other))
    if other.dim() > ndim:
        _unfit(input, other)
    full = other.reshape((1,) * (ndim - other.dim()) + tuple(other.shape))
    if r == ndim - 2:
        dense = padded.to_dense(input, 0).matmul(full)
        return _ragged_again(dense, input, r)
    if full.shape[r] != 1 or full.shape[0] not in (1, input._ragged.batch):
        _unfit(input, other)
    if full.shape[0] == 1:
        return input._like(input._kept.matmul(full.squeeze(0)))
    rows = full.squeeze(r).index_select(0, input._ragged.owners(input._kept.shape[r - 1]))
    return input._like(input._kept.matmul(rows if r == 1 else rows.movedim(0, r - 1)))


def _ragged_again(dense: Any, pattern: Tensor, r: int) -> Tensor:
    rows = pattern._kept.shape[pattern._ragged_idx - 1]
    return jagged(padded.to_values(dense, pattern._ragged, r, rows), pattern._ragged, r)


def _both(input: Tensor, other: Any) -> Any:
    if input._ragged is not other._ragged or input.dim() != other.dim():
        _unfit(input, other)
    ndim, a, b = input.dim(), input._ragged_idx, other._ragged_idx
    if a == b < ndim - 2:
        return input._like(input._kept.matmul(other._kept))
    if a == ndim - 1 and b == ndim - 2:  # the sum runs over the ragged dimension
        return padded.to_dense(input, 0).matmul(padded.to_dense(other, 0))
    return _unfit(input, other)


def _dense_first(input: Any, other: Any) -> Tensor:
    """(B, N, D) x (B, D, n) -> (B, N, n), and matrices in front of regular ones."""
    ndim, r = other.dim(), other._ragged_idx
    if r == ndim - 2 or input.dim() > ndim or input.dim() < 2:
        _unfit(input, other)
    if r < ndim - 2:
        if input.dim() > 2:
            _unfit(input, other)
        return other._like(torch.matmul(input, other._kept))
    return _ragged_again(torch.matmul(input, padded.to_dense(other, 0)), other, ndim - 1)
