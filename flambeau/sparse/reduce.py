"""Sums and softmax of sparse tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.core.tensors import Tensor
from flambeau.sparse import convert
from flambeau.sparse import tensor as parts
from flambeau.sparse.tensor import SparseTensor, linear, make, refuse


def wrapped(dim: int, ndim: int) -> int:
    """A dimension as a number that is not negative.

    Raises:
        IndexError: there is no such dimension.
    """
    extent = max(ndim, 1)
    if not -extent <= dim < extent:
        raise IndexError(
            f"[sparse] Dimension out of range (expected to be in range of [{-extent}, "
            f"{extent - 1}], but got {dim})\nhint: count from 0, or from -1 backwards"
        )
    return dim % extent


def sum(  # noqa: A001 - PyTorch's name
    input: Tensor, dim: int | Sequence[int] | None = None, dtype: Any = None
) -> Tensor:
    """The sum of a `sparse_coo` tensor's elements, over all or some dimensions.

    Args:
        dim: dimensions to sum over; None: all.
        dtype: the values are converted first.

    Returns:
        A strided tensor where no sparse dimension is left, else a `sparse_coo` one.

    Raises:
        RuntimeError: the layout is another, or a dimension is given twice.

    Example:
        >>> s = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))
        >>> torch.sparse.sum(s)
        tensor(12.)
        >>> torch.sparse.sum(s, 0).to_dense()
        tensor([4., 0., 8.])
    """
    if input.layout is not torch.sparse_coo:
        raise RuntimeError(
            "[sparse.sum] expected sparse coordinate tensor layout but got "
            f"{parts.layout_name(input)}\nhint: convert it with to_sparse_coo()"
        )
    values = input._kept
    if dim is None:
        return values.sum(dtype=dtype)
    requested = (dim,) if isinstance(dim, int) else tuple(dim)
    dims = {wrapped(d, input.dim()) for d in requested}
    if len(dims) != len(requested):
        raise RuntimeError("[sparse.sum] a dimension is given twice\nhint: each once")
    if dtype is not None:
        input, values = input.to(dtype), values.to(dtype)  # noqa: A001
    return _summed(input, values, dims)


def _summed(tensor: Any, values: Any, dims: set[int]) -> Any:
    if not dims:
        return tensor
    leading = parts.sparse_dim(tensor)
    inner = [d - leading + 1 for d in dims if d >= leading]
    sums = values.sum(inner) if inner else values
    size = [extent for d, extent in enumerate(tensor.shape) if d not in dims]
    rows = [d for d in range(leading) if d not in dims]
    if not rows:
        return sums.sum(0)
    if len(rows) == leading and tensor._unique:
        return make(torch.sparse_coo, tensor._index, sums, size, tensor._unique)
    total = make(torch.sparse_coo, (tensor._index[0][rows],), sums, size)
    return convert.coalesce(total)


def sum_of(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """`torch.sum` of a sparse tensor."""
    if dim is None or (not isinstance(dim, int) and not tuple(dim)):
        return input._kept.sum(dtype=dtype)
    if input.layout is torch.sparse_coo:
        result = sum(input, dim, dtype)
        return _with_dims(result, input, dim) if keepdim else result
    if not keepdim:
        raise RuntimeError(
            "[sum] reduction operations on CSR tensors with keepdim=False is unsupported\n"
            "hint: keepdim=True, or to_sparse_coo() first"
        )
    result = _with_dims(sum(input.to_sparse_coo(), dim, dtype), input, dim)
    sparse = result if isinstance(result, SparseTensor) else result.to_sparse()
    return sparse.to_sparse(layout=input.layout)


def _with_dims(result: Any, input: Any, dim: Any) -> Any:
    requested = (dim,) if isinstance(dim, int) else tuple(dim)
    for d in sorted(wrapped(d, input.dim()) for d in requested):
        result = result.unsqueeze(d)
    return result


def norm(
    input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    """`torch.norm` of all elements of a `sparse_coo` tensor."""
    if dim is not None or keepdim:
        refuse(input, "norm(dim=...)")
    operand = convert.coalesce(input) if input.layout is torch.sparse_coo else input
    return torch.norm(operand._kept.reshape(-1), 2 if p in ("fro", None) else p, dtype=dtype)


def any_of(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """`torch.any` of all elements."""
    if dim is not None or keepdim:
        refuse(input, "any(dim=...)")
    operand = convert.coalesce(input) if input.layout is torch.sparse_coo else input
    return operand._kept.any()


# ------------------------------------------------------------------------------ softmax
def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Softmax along `dim` of a `sparse_coo` tensor: elements that are not stored count as -inf.

    Args:
        dim: sparse or dense.
        dtype: the values are converted first.

    Returns:
        A coalesced tensor at the same indices.

    Raises:
        IndexError: there is no such dimension.
        NotImplementedError: the layout is another.

    Example:
        >>> s = torch.tensor([[0.0, 1.0, 1.0], [5.0, 0.0, 0.0]]).to_sparse()
        >>> torch.sparse.softmax(s, 1).values()
        tensor([0.5000, 0.5000, 1.0000])
    """
    tensor, place = _prepared("softmax", input, dim, dtype)
    if place >= parts.sparse_dim(tensor):
        inner = place - parts.sparse_dim(tensor) + 1
        return parts.like(tensor, torch.softmax(tensor._kept, inner))
    shifted, group, number = _shifted(tensor, place)
    weights = shifted.exp()
    total = convert.ordered_sum(group, weights, number)
    return parts.like(tensor, weights / total[group])


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The logarithm of `torch.sparse.softmax`.

    Args:
        dim: sparse or dense.
        dtype: the values are converted first.

    Example:
        >>> s = torch.tensor([[0.0, 1.0], [5.0, 0.0]]).to_sparse()
        >>> torch.sparse.log_softmax(s, 1).values()
        tensor([0., 0.])
    """
    tensor, place = _prepared("log_softmax", input, dim, dtype)
    if place >= parts.sparse_dim(tensor):
        inner = place - parts.sparse_dim(tensor) + 1
        return parts.like(tensor, torch.log_softmax(tensor._kept, inner))
    shifted, group, number = _shifted(tensor, place)
    total = convert.ordered_sum(group, shifted.exp(), number)
    return parts.like(tensor, shifted - total.log()[group])


def _prepared(name: str, input: Any, dim: int, dtype: Any) -> tuple[Any, int]:
    if input.layout is not torch.sparse_coo:
        refuse(input, f"sparse.{name}", "convert it with to_sparse_coo()")
    tensor = convert.coalesce(input)
    tensor = tensor if dtype is None else tensor.to(dtype)
    return tensor, wrapped(dim, input.dim())


def _shifted(tensor: Any, place: int) -> tuple[Any, Any, int]:
    """Values minus the largest of their group; each one's group; how many groups there are."""
    sizes = parts.sparse_size(tensor)
    others = [d for d in range(len(sizes)) if d != place]
    values = tensor._kept
    if others:
        keys = linear(tensor._index[0][others], [sizes[d] for d in others])
        groups, group = torch.unique(keys, return_inverse=True)
        number = int(groups.shape[0])
    else:
        number, group = 1, torch.zeros(values.shape[0], dtype=torch.int64)
    with torch.no_grad():
        base = torch.zeros((number, *values.shape[1:]), dtype=values.dtype)
        largest = base.index_reduce(0, group, values.detach(), "amax", include_self=False)
    return values - largest[group], group, number
