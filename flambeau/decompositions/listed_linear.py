"""Inner operators of linear algebra, Fourier transforms and sparse tensors, of public ones."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.decompositions.listed import listed

__all__: list[str] = []

Tensor = Any
Value = Any


# ------------------------------------------------------------------------------ transforms
_FORWARD = ("backward", "ortho", "forward")  # by nothing, by the root of n, by n
_INVERSE = ("forward", "ortho", "backward")


@listed("_fft_c2c")
def _fft_c2c(self: Tensor, dim: Value, normalization: int, forward: bool) -> Tensor:
    if forward:
        return torch.fft.fftn(self, dim=tuple(dim), norm=_FORWARD[normalization])
    return torch.fft.ifftn(self, dim=tuple(dim), norm=_INVERSE[normalization])


@listed("_fft_r2c")
def _fft_r2c(self: Tensor, dim: Value, normalization: int, onesided: bool) -> Tensor:
    transform = torch.fft.rfftn if onesided else torch.fft.fftn
    return transform(self, dim=tuple(dim), norm=_FORWARD[normalization])


@listed("_fft_c2r")
def _fft_c2r(self: Tensor, dim: Value, normalization: int, last_dim_size: int) -> Tensor:
    sizes = [self.shape[d] for d in dim[:-1]]
    norm = _INVERSE[normalization]
    return torch.fft.irfftn(self, (*sizes, last_dim_size), tuple(dim), norm=norm)


# ------------------------------------------------------------------------------ matrices
def _factors(matrix: Tensor) -> Value:
    """The LU decomposition of the matrix, or of its transpose where that is dense by columns."""
    turned = matrix.is_contiguous() and not matrix.is_complex()
    factors, pivots, info = torch.linalg.lu_factor_ex(matrix.mT if turned else matrix)
    return factors, pivots, info


@listed("_linalg_det")
def _linalg_det(matrix: Tensor) -> Value:
    return torch.linalg.det(matrix), *_factors(matrix)[:2]


@listed("_linalg_slogdet")
def _linalg_slogdet(matrix: Tensor) -> Value:
    return *torch.linalg.slogdet(matrix), *_factors(matrix)[:2]


@listed("_linalg_solve_ex")
def _linalg_solve_ex(matrix: Tensor, other: Tensor, left: bool, check_errors: bool) -> Value:
    result, info = torch.linalg.solve_ex(matrix, other, left=left, check_errors=check_errors)
    return result, *torch.linalg.lu_factor(matrix), info


@listed("_linalg_eigh")
def _linalg_eigh(matrix: Tensor, triangle: str, vectors: bool) -> Value:
    if vectors:
        return tuple(torch.linalg.eigh(matrix, triangle))
    return torch.linalg.eigvalsh(matrix, triangle), matrix.new_empty((0,))


@listed("_linalg_eigvals")
def _linalg_eigvals(self: Tensor) -> Tensor:
    return torch.linalg.eigvals(self)


@listed("_linalg_svd")
def _linalg_svd(matrix: Tensor, full_matrices: bool, vectors: bool, driver: Value) -> Value:
    if vectors:
        return tuple(torch.linalg.svd(matrix, full_matrices))
    return matrix.new_empty((0,)), torch.linalg.svdvals(matrix), matrix.new_empty((0,))


@listed("_lu_with_info")
def _lu_with_info(self: Tensor, pivot: bool, check_errors: bool) -> Value:
    return tuple(torch.linalg.lu_factor_ex(self, pivot=pivot, check_errors=check_errors))


@listed("_cholesky_solve_helper")
def _cholesky_solve_helper(self: Tensor, matrix: Tensor, upper: bool) -> Tensor:
    return torch.cholesky_solve(self, matrix, upper)


@listed("linalg_diagonal")
def _linalg_diagonal(matrix: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    return torch.diagonal(matrix, offset, dim1, dim2)


@listed("_weight_int8pack_mm")
def _weight_int8pack_mm(self: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    product = self.float() @ weight.float().mT * scales.float()  # rounded once
    return product.to(self.dtype)


# ------------------------------------------------------------------------------ sparse tensors
def _options(values: Value) -> Value:
    dtype, _, device, _ = values[:4]
    return {"dtype": dtype, "device": device}


@listed("_sparse_coo_tensor_with_dims_and_tensors")
def _with_dims_and_tensors(
    sparse_dim: int, dense_dim: int, size: Value, indices: Tensor, values: Tensor, *options: Value
) -> Tensor:
    flag = {"is_coalesced": options[4]}
    return torch.sparse_coo_tensor(indices, values, tuple(size), **_options(options), **flag)


@listed("_sparse_coo_tensor_unsafe")
def _sparse_coo_tensor_unsafe(
    indices: Tensor, values: Tensor, size: Value, *options: Value
) -> Tensor:
    flag = {"is_coalesced": options[4]}
    return torch.sparse_coo_tensor(indices, values, tuple(size), **_options(options), **flag)


def _compressed(name: str) -> None:
    def run(first: Tensor, second: Tensor, values: Tensor, size: Value, *options: Value) -> Tensor:
        make = getattr(torch, f"sparse_{name}_tensor")
        return make(first, second, values, tuple(size), **_options(options))

    listed(f"_sparse_{name}_tensor_unsafe")(run)


for _name in ("csr", "csc", "bsr", "bsc"):
    _compressed(_name)


@listed("_dimI")
def _dim_i(self: Tensor) -> int:
    return int(self.sparse_dim())


@listed("_dimV")
def _dim_v(self: Tensor) -> int:
    return int(self.dense_dim())


@listed("_coalesce")
def _coalesce(self: Tensor) -> Tensor:
    return self.coalesce()


@listed("_indices_copy")
def _indices_copy(self: Tensor) -> Tensor:
    return self._indices().clone()


@listed("_values_copy")
def _values_copy(self: Tensor) -> Tensor:
    return self._values().clone()


def _converted(name: str) -> None:
    def run(self: Tensor, *values: Value) -> Tensor:
        return getattr(self, name)(*[x for x in values if x is not None])

    listed(f"_{name}")(run)


for _name in ("to_sparse_csr", "to_sparse_csc", "to_sparse_bsr", "to_sparse_bsc"):
    _converted(_name)


@listed("_to_sparse.sparse_dim")
def _to_sparse_dim(self: Tensor, sparse_dim: int) -> Tensor:
    return self.to_sparse(sparse_dim)


@listed("_to_sparse")
def _to_sparse(self: Tensor, layout: Value, blocksize: Value, dense_dim: Value) -> Tensor:
    return self.to_sparse(layout=layout, blocksize=blocksize, dense_dim=dense_dim)


@listed("_to_dense")
def _to_dense(self: Tensor, dtype: Value, masked_grad: Value) -> Tensor:
    return self.to_dense(dtype, masked_grad=masked_grad)


@listed("to_dense_backward")
def _to_dense_backward(grad: Tensor, input: Tensor, masked_grad: Value) -> Tensor:  # noqa: A002
    if masked_grad is False or input.layout is torch.strided:
        return grad
    return grad.sparse_mask(input.coalesce() if input.layout is torch.sparse_coo else input)


@listed("_sparse_mm", "_sparse_mm.reduce", "_sparse_sparse_matmul")
def _sparse_mm(sparse: Tensor, dense: Tensor, *reduce: str) -> Tensor:
    return torch.sparse.mm(sparse, dense, *reduce)


@listed("_sparse_sum")
def _sparse_sum(self: Tensor) -> Tensor:
    return torch.sparse.sum(self)


@listed("_sparse_sum.dim")
def _sparse_sum_dim(self: Tensor, dim: Value) -> Tensor:
    return torch.sparse.sum(self, dim)


@listed("_sparse_sum.dtype")
def _sparse_sum_dtype(self: Tensor, dtype: Value) -> Tensor:
    return torch.sparse.sum(self, dtype=dtype)


@listed("_sparse_sum.dim_dtype")
def _sparse_sum_dim_dtype(self: Tensor, dim: Value, dtype: Value) -> Tensor:
    return torch.sparse.sum(self, dim, dtype)


@listed("_sparse_softmax.int")
def _sparse_softmax_int(self: Tensor, dim: int, dtype: Value) -> Tensor:
    return torch.sparse.softmax(self, dim, dtype=dtype)


@listed("_sparse_softmax")
def _sparse_softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return torch.sparse.softmax(self, dim)


@listed("_sparse_log_softmax.int")
def _sparse_log_softmax_int(self: Tensor, dim: int, dtype: Value) -> Tensor:
    return torch.sparse.log_softmax(self, dim, dtype=dtype)


@listed("_sparse_log_softmax")
def _sparse_log_softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return torch.sparse.log_softmax(self, dim)


@listed("_spdiags")
def _spdiags(diagonals: Tensor, offsets: Tensor, shape: Value, layout: Value) -> Tensor:
    return torch.sparse.spdiags(diagonals, offsets, tuple(shape), layout)


@listed("sparse_sampled_addmm")
def _sparse_sampled_addmm(
    self: Tensor, mat1: Tensor, mat2: Tensor, beta: Value, alpha: Value
) -> Tensor:
    return torch.sparse.sampled_addmm(self, mat1, mat2, beta=beta, alpha=alpha)
