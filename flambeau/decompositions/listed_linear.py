"""Inner operators of linear algebra and Fourier transforms, made of public ones."""

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


@listed("_scaled_mm_v2")
def _scaled_mm(
    self: Tensor, mat2: Tensor, scale_a: Value, recipe_a: Value, swizzle_a: Value, scale_b: Value,
    recipe_b: Value, swizzle_b: Value, bias: Value, out_dtype: Value, dims: Value, fast: bool,
) -> Tensor:  # fmt: skip
    return torch.nn.functional.scaled_mm(
        self, mat2, list(scale_a), list(recipe_a), list(scale_b), list(recipe_b), list(swizzle_a),
        list(swizzle_b), bias, out_dtype, tuple(dims), fast,
    )  # fmt: skip
