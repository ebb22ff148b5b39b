"""Products, linear algebra and Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau as torch
from flambeau._numpy.arrays import asarray, ndarray, register, tensor_of
from flambeau._numpy.dtypes import Untranslated, cast, torch_dtype
from flambeau._numpy.manipulation import together

Value = Any  # an array, a number, what NumPy's functions take and give


def _floats(*arrays: Value) -> list[Value]:
    """Tensors of the type in which NumPy's linear algebra computes."""
    items = [asarray(x) for x in arrays]
    kind = np.result_type(*[x.dtype for x in items])
    if kind.kind not in "fc":
        kind = np.dtype(np.float64)
    if kind.itemsize < 4:
        raise Untranslated("linear algebra in half precision")
    return [cast(x.tensor, torch_dtype(kind)) for x in items]


@register("dot")
def dot(a: Value, b: Value) -> Value:
    """Products over the last dimension of one array and the last but one of the other."""
    x, y = together((a, b))
    if x.ndim == 0 or y.ndim == 0:
        return ndarray(x * y)
    if y.ndim <= 2:
        return ndarray(torch.matmul(x, y))
    return ndarray(torch.tensordot(x, y, ([x.ndim - 1], [y.ndim - 2])))


@register("vdot")
def vdot(a: Value, b: Value, /) -> ndarray:
    """The product of all elements, of which the first are conjugated."""
    x, y = together((a, b))
    return ndarray(torch.vdot(x.reshape(-1), y.reshape(-1)))


@register("inner")
def inner(a: Value, b: Value, /) -> ndarray:
    """Products over the last dimensions."""
    return ndarray(torch.inner(*together((a, b))))


@register("outer")
def outer(a: Value, b: Value) -> ndarray:
    """Products of all pairs of elements."""
    x, y = together((a, b))
    return ndarray(torch.outer(x.reshape(-1), y.reshape(-1)))


@register("tensordot")
def tensordot(a: Value, b: Value, axes: Value = 2) -> ndarray:
    """Products over several dimensions."""
    x, y = together((a, b))
    if not isinstance(axes, int):
        axes = tuple([[n] if isinstance(n, int) else list(n) for n in axes])
    return ndarray(torch.tensordot(x, y, axes))


@register("einsum")
def einsum(subscripts: Value, *operands: Value, optimize: Value = False) -> ndarray:
    """Products and sums that a text says."""
    if not isinstance(subscripts, str):
        raise Untranslated("operands and lists")
    return ndarray(torch.einsum(subscripts, *together(operands)))


@register("kron")
def kron(a: Value, b: Value) -> ndarray:
    """The Kronecker product."""
    return ndarray(torch.kron(*together((a, b))))


@register("cross")
def cross(a: Value, b: Value, *, axis: int = -1) -> ndarray:
    """Vector products."""
    x, y = together((a, b))
    if x.shape[axis] != 3 or y.shape[axis] != 3:
        raise Untranslated("vectors of two elements")
    return ndarray(torch.linalg.cross(x, y, dim=axis))


@register("trace")
def trace(a: Value, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """Sums of diagonals."""
    return np.sum(diagonal(a, offset, axis1, axis2), -1)


@register("diagonal")
def diagonal(a: Value, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ndarray:
    """Diagonals."""
    return ndarray(torch.diagonal(tensor_of(a), offset, axis1, axis2))


@register("cov")
def cov(m: Value, *, ddof: int = 1) -> ndarray:
    """Covariances of rows."""
    return ndarray(torch.cov(_floats(m)[0], correction=ddof))


@register("corrcoef")
def corrcoef(x: Value) -> ndarray:
    """Correlations of rows."""
    return ndarray(torch.corrcoef(_floats(x)[0]))


# ------------------------------------------------------------------------------ linear algebra
@register("norm", module=np.linalg)
def norm(x: Value, ord: Value = None, axis: Value = None, keepdims: bool = False) -> ndarray:  # noqa: A002
    """Norms of vectors or matrices."""
    tensor = _floats(x)[0]
    if ord is None and axis is None:
        result = torch.linalg.vector_norm(tensor)
        return ndarray(result.reshape((1,) * tensor.ndim) if keepdims else result)
    return ndarray(torch.linalg.norm(tensor, ord, axis, keepdims))


def _linear(name: str) -> Callable[..., Value]:
    def compute(a: Value) -> ndarray:
        return ndarray(getattr(torch.linalg, name)(_floats(a)[0]))

    return compute


for _name in ("inv", "det", "cholesky", "eigvalsh"):
    register(_name, module=np.linalg)(_linear(_name))


@register("matrix_power", module=np.linalg)
def matrix_power(a: Value, n: int) -> ndarray:
    """A power of a matrix."""
    tensor = tensor_of(a)
    tensor = tensor if n >= 0 and tensor.is_floating_point() else _floats(a)[0]
    return ndarray(torch.linalg.matrix_power(tensor, n))


@register("solve", module=np.linalg)
def solve(a: Value, b: Value) -> ndarray:
    """The solution of linear equations."""
    x, y = _floats(a, b)
    if y.ndim == 1:
        return ndarray(torch.linalg.solve(x, y[:, None])[..., 0])
    return ndarray(torch.linalg.solve(x, y))


def _tuple(kind: Value, values: Value) -> Value:
    return kind(*map(ndarray, values))


@register("eigh", module=np.linalg)
def eigh(a: Value, UPLO: str = "L") -> Value:  # noqa: N803 - NumPy's name
    """Eigenvalues and eigenvectors of symmetric matrices."""
    return _tuple(np.linalg._linalg.EighResult, torch.linalg.eigh(_floats(a)[0], UPLO))


@register("slogdet", module=np.linalg)
def slogdet(a: Value) -> Value:
    """Signs and logarithms of determinants."""
    return _tuple(np.linalg._linalg.SlogdetResult, torch.linalg.slogdet(_floats(a)[0]))


@register("svd", module=np.linalg)
def svd(a: Value, full_matrices: bool = True, compute_uv: bool = True) -> Value:
    """Singular values and vectors."""
    tensor = _floats(a)[0]
    if not compute_uv:
        return ndarray(torch.linalg.svdvals(tensor))
    return _tuple(np.linalg._linalg.SVDResult, torch.linalg.svd(tensor, full_matrices))


@register("qr", module=np.linalg)
def qr(a: Value, mode: str = "reduced") -> Value:
    """An orthogonal and a triangular factor."""
    if mode not in ("reduced", "complete"):
        raise Untranslated(f"mode {mode}")
    return _tuple(np.linalg._linalg.QRResult, torch.linalg.qr(_floats(a)[0], mode))


@register("pinv", module=np.linalg)
def pinv(a: Value) -> ndarray:
    """Pseudo-inverses."""
    return ndarray(torch.linalg.pinv(_floats(a)[0], rcond=1e-15))


# ------------------------------------------------------------------------------ Fourier
def _transform(name: str) -> Callable[..., Value]:
    def transform(a: Value, n: int | None = None, axis: int = -1, norm: str | None = None) -> Value:
        return ndarray(getattr(torch.fft, name)(_floats(a)[0], n, axis, norm))

    return transform


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    register(_name, module=np.fft)(_transform(_name))


def _transform_2(name: str) -> Callable[..., Value]:
    def transform(
        a: Value, s: Value = None, axes: Value = (-2, -1), norm: str | None = None
    ) -> Value:
        return ndarray(getattr(torch.fft, name)(_floats(a)[0], s, axes, norm))

    return transform


for _name in ("fft2", "ifft2", "rfft2", "irfft2"):
    register(_name, module=np.fft)(_transform_2(_name))


@register("fftshift", module=np.fft)
def fftshift(x: Value, axes: Value = None) -> ndarray:
    """Zero frequency in the middle."""
    return ndarray(torch.fft.fftshift(tensor_of(x), axes))


@register("ifftshift", module=np.fft)
def ifftshift(x: Value, axes: Value = None) -> ndarray:
    """The reverse of `fftshift`."""
    return ndarray(torch.fft.ifftshift(tensor_of(x), axes))
