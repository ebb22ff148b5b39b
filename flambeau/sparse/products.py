"""Matrix products with a sparse operand: rows gathered, scaled, and added in a fixed order.

The terms of a result are added in the order in which the sparse operand stores its elements (rows
from left to right where it is coalesced), so results do not depend on threads.
"""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.core.tensors import Tensor
from flambeau.sparse import blocks, convert
from flambeau.sparse import tensor as parts
from flambeau.sparse.tensor import SparseTensor, make, refuse


def _check_matrix(name: str, sparse: Tensor) -> None:
    if sparse.dim() != 2 or parts.dense_dim(sparse) or parts.batch_dim(sparse):
        raise RuntimeError(
            f"[{name}] expected a sparse matrix, got {sparse.dim()} dimensions of which "
            f"{parts.dense_dim(sparse)} are dense\nhint: select a matrix first"
        )


def _check_inner(name: str, one: Any, other: Any) -> None:
    if one.shape[-1] != other.shape[0]:
        raise RuntimeError(
            f"[{name}] mat1 and mat2 shapes cannot be multiplied ({_times(one)} and "
            f"{_times(other)})\nhint: transpose one, or check the order"
        )


def _times(tensor: Any) -> str:
    return "x".join(str(extent) for extent in tensor.shape)


def _check_dtypes(name: str, one: Any, other: Any) -> None:
    if one.dtype is not other.dtype:
        raise RuntimeError(
            f"[{name}] expected operands of one dtype, got {one.dtype} and {other.dtype}\n"
            "hint: convert one of them"
        )


def product(name: str, one: Any, other: Any) -> Any:
    """one @ other, matrices, at least one of them sparse.

    Raises:
        RuntimeError: shapes or dtypes do not fit.
    """
    for operand in (one, other):
        if isinstance(operand, SparseTensor):
            _check_matrix(name, operand)
        elif operand.dim() != 2:
            raise RuntimeError(
                f"[{name}] matrices expected, got {one.dim()}D and {other.dim()}D tensors\n"
                "hint: two dimensions each"
            )
    _check_inner(name, one, other)
    _check_dtypes(name, one, other)
    if isinstance(one, SparseTensor):
        if isinstance(other, SparseTensor):
            return _sparse_sparse(one, other)
        return _sparse_dense(one, other)
    row, column = convert.coordinates(other)
    terms = one[:, row] * convert.flat_values(other)
    base = torch.zeros((one.shape[0], other.shape[1]), dtype=one.dtype)
    return base.index_add(1, column, terms)


def _sparse_dense(one: Tensor, other: Any) -> Any:
    if one._kind in parts.BLOCKS:
        return blocks.product(one, other)
    row, column = convert.coordinates(one)
    return convert.ordered_sum(row, one._kept.unsqueeze(1) * other[column], one.shape[0])


def _sparse_sparse(one: Tensor, other: Any) -> Any:
    """Every stored element of `one` is multiplied by the row of `other` that its column names."""
    left = convert.coalesce(convert.to_coordinates(one))
    right = convert.coalesce(convert.to_coordinates(other))
    row, inner = left._index[0]
    counts = torch.bincount(right._index[0][0], minlength=right.shape[0])
    starts = counts.cumsum(0) - counts
    ends = counts[inner].cumsum(0)
    term = convert.groups(ends, int(ends[-1]) if ends.shape[0] else 0)
    within = torch.arange(term.shape[0]) - (ends - counts[inner])[term]
    partner = starts[inner[term]] + within
    values = left._kept[term] * right._kept[partner]
    indices = torch.stack([row[term], right._index[0][1][partner]])
    size = (one.shape[0], other.shape[1])
    total = convert.coalesce(make(torch.sparse_coo, (indices,), values, size))
    return total if one._kind is torch.sparse_coo else total.to_sparse(layout=one._kind)


def _reduced(one: Any, other: Any, reduce: str) -> Any:
    """Products reduced along rows of a CSR matrix by something else than their sum."""
    if one.layout is not torch.sparse_csr:
        refuse(one, "sparse.mm(reduce)", "convert it with to_sparse_csr()")
    if reduce not in ("mean", "amax", "amin"):
        raise RuntimeError(
            f"[sparse.mm] reduce argument must be either sum, mean, amax or amin, got {reduce}\n"
            "hint: choose one of them"
        )
    if reduce == "mean":
        counts = (one._index[0][1:] - one._index[0][:-1]).clamp(min=1)
        return _sparse_dense(one, other) / counts.unsqueeze(1).to(other.dtype)
    row, column = convert.coordinates(one)
    terms = one._kept.unsqueeze(1) * other[column]
    base = torch.zeros((one.shape[0], other.shape[1]), dtype=other.dtype)
    return base.index_reduce(0, row, terms, reduce, include_self=False)


def mm(sparse: Tensor, dense: Tensor, reduce: str = "sum") -> Tensor:
    """The product of a sparse matrix with a strided or a sparse one.

    Shape: `(n, m) @ (m, p) -> (n, p)`; sparse times sparse is sparse, else strided.

    Args:
        sparse: `sparse_coo`, `sparse_csr` or `sparse_csc`; or `dense` is, and this is strided.
        dense: the other operand.
        reduce: "sum"; of a `sparse_csr` operand also "mean", "amax" and "amin" of stored elements.

    Raises:
        RuntimeError: shapes or dtypes do not fit.

    Example:
        >>> s = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse().requires_grad_()
        >>> d = torch.ones(2, 2, requires_grad=True)
        >>> y = torch.sparse.mm(s, d)
        >>> y
        tensor([[2., 2.],
                [3., 3.]], grad_fn=<IndexAddBackward0>)
        >>> y.sum().backward()
        >>> s.grad.values()
        tensor([2., 2.])
    """
    if not isinstance(sparse, SparseTensor) and not isinstance(dense, SparseTensor):
        return torch.mm(sparse, dense)
    if reduce == "sum":
        return product("sparse.mm", sparse, dense)
    _check_inner("sparse.mm", sparse, dense)
    _check_dtypes("sparse.mm", sparse, dense)
    return _reduced(sparse, dense, reduce)


def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2), `mat1` or `mat2` sparse.

    Raises:
        RuntimeError: shapes or dtypes do not fit.

    Example:
        >>> s = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
        >>> torch.sparse.addmm(torch.ones(2, 2), s, torch.ones(2, 2), alpha=2)
        tensor([[5., 5.],
                [7., 7.]])
    """
    result = product("addmm", mat1, mat2)
    scaled = result if _is_one(alpha) else result * alpha
    if not isinstance(input, SparseTensor) and tuple(input.shape) != tuple(result.shape):
        input = input.expand(result.shape)  # noqa: A001
    return (input if _is_one(beta) else input * beta) + scaled


def _is_one(factor: Any) -> bool:
    return isinstance(factor, (int, float)) and factor == 1


def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * (mat @ vec)."""
    return input * beta + mv(mat, vec) * alpha


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Products of matrices, vectors, and (see `bmm`) batches of matrices."""
    if input.dim() == 2 and other.dim() == 1:
        return mv(input, other)
    if input.dim() == 1 and other.dim() == 2:
        return product("matmul", input.unsqueeze(0), other).squeeze(0)
    if input.dim() == 3 and other.dim() == 3:
        return bmm(input, other)
    if input.dim() > 2 and other.dim() == 2 and not isinstance(input, SparseTensor):
        rows = product("matmul", input.reshape(-1, input.shape[-1]), other)
        return rows.reshape(*input.shape[:-1], other.shape[1])
    return product("matmul", input, other)


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """A sparse matrix times a strided vector."""
    if vec.dim() != 1:
        raise RuntimeError(f"[mv] vector expected, got {vec.dim()} dimensions\nhint: use mm")
    return product("mv", input, vec.unsqueeze(1)).squeeze(1)


def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """A batch of products: `sparse_coo` (b, n, m) with strided (b, m, p)."""
    if isinstance(mat2, SparseTensor) or not isinstance(input, SparseTensor):
        raise RuntimeError("[bmm] Tensor 'mat2' must be dense\nhint: mat2.to_dense()")
    if input.dim() != 3 or mat2.dim() != 3 or parts.dense_dim(input):
        raise RuntimeError("[bmm] batches of matrices expected\nhint: three dimensions each")
    if input.shape[0] != mat2.shape[0] or input.shape[2] != mat2.shape[1]:
        raise RuntimeError(
            f"[bmm] shapes {tuple(input.shape)} and {tuple(mat2.shape)} do not fit\n"
            "hint: (b, n, m) and (b, m, p)"
        )
    _check_dtypes("bmm", input, mat2)
    batch, row, column = convert.coordinates(input)
    terms = convert.flat_values(input).unsqueeze(1) * mat2[batch, column]
    rows = convert.ordered_sum(batch * input.shape[1] + row, terms, input.shape[0] * input.shape[1])
    return rows.reshape(input.shape[0], input.shape[1], mat2.shape[2])


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias with a sparse weight."""
    result = matmul(input, weight.t())
    return result if bias is None else result + bias


def sampled_addmm(
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: float = 1.0,
    alpha: float = 1.0,
    out: Tensor | None = None,
) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2), only at the indices that `input` stores.

    Shape: `input` (n, p) `sparse_csr`, `mat1` (n, m), `mat2` (m, p); the result like `input`.

    Raises:
        RuntimeError: shapes do not fit.
        NotImplementedError: `input` is no CSR tensor.

    Example:
        >>> pattern = torch.eye(2).to_sparse_csr()
        >>> torch.sparse.sampled_addmm(pattern, torch.ones(2, 3), torch.ones(3, 2)).values()
        tensor([4., 4.])
    """
    if input.layout is not torch.sparse_csr:
        refuse(input, "sampled_addmm", "convert it with to_sparse_csr()")
    if mat1.shape[-1] != mat2.shape[-2]:
        raise RuntimeError(
            f"[sampled_addmm] mat1 and mat2 shapes cannot be multiplied ({_times(mat1)} and "
            f"{_times(mat2)})\nhint: (n, m) and (m, p)"
        )
    shape = (*mat1.shape[:-1], mat2.shape[-1])
    if tuple(input.shape) != tuple(shape):
        raise RuntimeError(
            f"[sampled_addmm] self.shape {list(input.shape)} does not match the product's "
            f"{list(shape)}\nhint: (n, p)"
        )
    *batch, row, column = convert.coordinates(input)
    rows, columns = mat1[(*batch, row)], mat2.transpose(-1, -2)[(*batch, column)]
    sums = (rows * columns).sum(-1).reshape(input._kept.shape)
    result = parts.like(input, input._kept * beta + sums * alpha)
    return result if out is None else out.copy_(result)


# ------------------------------------------------------------------------------ sparse results
def smm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of a sparse and a strided matrix as a `sparse_coo` matrix.

    Raises:
        RuntimeError: `input` is strided, or shapes and dtypes that do not fit.

    Example:
        >>> s = torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse()
        >>> torch.smm(s, torch.ones(2, 2))._nnz()
        2
    """
    if not isinstance(input, SparseTensor):
        raise RuntimeError(
            "[smm] can only be called on sparse tensors, got a strided one\n"
            "hint: x.to_sparse(), or mm"
        )
    return _kept_rows(product("smm", input, mat2), input)


def _kept_rows(result: Any, sparse: Any) -> Any:
    """A product as a sparse matrix: the rows in which the sparse factor has something."""
    rows = torch.unique(convert.coordinates(sparse)[0])
    width = result.shape[1]
    places = torch.stack([rows.repeat_interleave(width), torch.arange(width).repeat(len(rows))])
    return make(torch.sparse_coo, (places,), result[rows].reshape(-1), result.shape, True)


def hspmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """The product of a sparse and a strided matrix as a hybrid: one dense row per stored row.

    Example:
        >>> s = torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse()
        >>> torch.hspmm(s, torch.ones(2, 2)).values()
        tensor([[2., 2.]])
    """
    result = product("hspmm", mat1, mat2)
    rows = torch.unique(convert.coordinates(mat1)[0])
    return make(torch.sparse_coo, (rows.unsqueeze(0),), result[rows], result.shape, True)


def sspaddmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2): sparse, of sparse `input` and `mat1`.

    Example:
        >>> s = torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse()
        >>> torch.sspaddmm(s, s, torch.ones(2, 2)).to_dense()
        tensor([[2., 4.],
                [0., 0.]])
    """
    scaled = smm(mat1, mat2) * alpha
    one = input * beta
    indices = torch.cat([one._index[0], scaled._index[0]], 1)
    values = torch.cat([one._kept, scaled._kept])
    return make(torch.sparse_coo, (indices,), values, input.shape)


# Names under which `torch` has these products, too.
spmm = dsmm = mm
hsmm = hspmm
saddmm = sspaddmm
