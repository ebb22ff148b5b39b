"""Parts of complex numbers: real, imaginary, conjugate, angle; adjoint matrices.

Conjugates are computed, not remembered by a flag: `resolve_conj` has nothing to do.
"""

from __future__ import annotations

import math
from typing import Any

from flambeau import prims
from flambeau.core.definition import Dense, op
from flambeau.core.promotion import compute_dtype, default_dtype
from flambeau.core.samples import ErrorSample, T, sample, unary_samples
from flambeau.ir.node import Node
from flambeau.ops.broadcasting import is_complex, is_float, unsupported
from flambeau.ops.common import turned_copy
from flambeau.ops.slices import select
from flambeau.ops.views import matrix_transposed, view_as_real


@op(
    "conj_physical(Tensor self) -> Tensor",
    out="exact",
    promote="keep",
    layout="follow",
    inplace=True,
    samples=lambda: iter([sample(T(2, 3)), sample(T(2, 3, dtype="c64"))]),
)
def conj_physical(self: Node) -> Node:
    """The complex conjugate of each element; real tensors are copied.

    Example:
        >>> torch.conj_physical(torch.tensor([1.0]))
        tensor([1.])
    """
    return prims.complex(prims.real(self), -prims.imag(self)) if is_complex(self) else self


@op(
    "adjoint(Tensor self) -> Tensor",
    view=True,
    samples=lambda: iter([sample(T(2, 3, 4)), sample(T())]),
)
def adjoint(self: Node) -> Node | Dense:
    """Matrices transposed and conjugated: the attribute `mH`; a view of real ones.

    Example:
        >>> torch.zeros(2, 3, 4).adjoint().shape
        torch.Size([2, 4, 3])
    """
    turned = matrix_transposed(self, "mH")
    if self.ndim == 0:
        return prims.conj(turned) if is_complex(self) else turned
    return turned_copy(prims.conj(turned), self, -2, -1) if is_complex(self) else turned


@op(
    "matrix_H(Tensor self) -> Tensor",
    where="torch",
    view=True,
    samples=lambda: iter([sample(T(2, 3)), sample(T(2, 3, dtype="c64"))]),
)
def matrix_h(self: Node) -> Node | Dense:
    """A matrix transposed and conjugated: the attribute `H`.

    Raises:
        RuntimeError: a tensor of more than two dimensions, or of one.

    Example:
        >>> torch.tensor([[1.0, 2.0j]]).H
        tensor([[1.-0.j],
                [0.-2.j]])
    """
    if self.ndim not in (0, 2):
        raise RuntimeError(
            "[H] tensor.H is only supported on matrices (2-D tensors). Got "
            f"{self.ndim}-D tensor. For batches of matrices, consider using tensor.mH\n"
            "hint: mH transposes batches"
        )
    if self.ndim == 0 or not is_complex(self):
        return prims.conj(prims.transpose(self, 0, 1) if self.ndim else self)
    return turned_copy(prims.conj(prims.transpose(self, 0, 1)), self, 0, 1)


@op("conj(Tensor self) -> Tensor", host=True, out=False, samples=lambda: iter([sample(T(3))]))
def conj(self: Any) -> Any:
    """The complex conjugate of each element; a real tensor is returned itself.

    Example:
        >>> torch.conj(torch.tensor([1.0]))
        tensor([1.])
    """
    return conj_physical(self) if self.is_complex() else self


@op(
    "real(Tensor input) -> Tensor",
    where="torch",
    host=True,
    out=False,
    samples=lambda: iter([sample(T(3)), sample(T(2, 3, dtype="c64"))]),
)
def real(input: Any) -> Any:  # noqa: A002 - PyTorch's name
    """The real parts, as a view; a real tensor is returned itself.

    Example:
        >>> torch.real(torch.tensor([1.0]))
        tensor([1.])
    """
    return select(view_as_real(input), -1, 0) if input.is_complex() else input


@op(
    "imag(Tensor input) -> Tensor",
    where="torch",
    host=True,
    out=False,
    samples=lambda: iter([sample(T(2, 3, dtype="c64"))]),
)
def imag(input: Any) -> Any:  # noqa: A002 - PyTorch's name
    """The imaginary parts of a complex tensor, as a view.

    Raises:
        RuntimeError: a real tensor.

    Example:
        >>> torch.imag(torch.tensor([1.0 + 2.0j]))
        tensor([2.])
    """
    if not input.is_complex():
        raise RuntimeError(
            "[imag] imag is not implemented for tensors with non-complex dtypes.\n"
            "hint: real numbers have no imaginary part"
        )
    return select(view_as_real(input), -1, 1)


@op(
    "angle(Tensor self) -> Tensor",
    layout="follow",
    samples=unary_samples(),
    reference="numpy.angle",
)
def angle(self: Node) -> Node:
    """The angle of each complex number; pi for negative real numbers, NaN for NaN.

    Example:
        >>> torch.angle(torch.tensor([-1.0, 1.0]))
        tensor([3.1416, 0.0000])
    """
    if is_complex(self):
        return prims.atan2(prims.imag(self), prims.real(self))
    target = self.dtype if is_float(self) else default_dtype()
    x = prims.cast(prims.cast(self, target), compute_dtype(target))
    value = prims.where(x < 0, prims.full_like(math.pi, x), prims.zeros_like(x))
    value = prims.where(prims.isnan(x), x, value)
    return prims.cast(prims.with_derivative(value, x, rule="flat"), target)


@op(
    "polar(Tensor abs, Tensor angle) -> Tensor",
    out="exact",
    where="torch",
    layout="follow",
    samples=lambda: iter([sample(T(2, 3), T(3)), sample(T(4, 6, layout="transposed"), T(4, 6))]),
    errors=lambda: iter(
        [ErrorSample(sample(T(2), T(2, dtype="f64")), RuntimeError, "scalar type")]
    ),
    dtypes="f32 f64",
)
def polar(abs: Node, angle: Node) -> Node:  # noqa: A002 - PyTorch's name
    """Complex numbers from lengths and angles: abs cos(angle) + i abs sin(angle).

    The operands broadcast and have one dtype, float32 or float64.

    Raises:
        RuntimeError: dtypes differ or are not floating-point.
        NotImplementedError: half types, whose complex type has no arithmetic.

    Example:
        >>> torch.polar(torch.tensor(2.0), torch.tensor(0.0))
        tensor(2.+0.j)
    """
    if not (is_float(abs) and is_float(angle)) or "bf16" in (abs.dtype, angle.dtype):
        raise RuntimeError(
            "[polar] Expected both inputs to be Half, Float or Double tensors but got "
            f"{abs.dtype} and {angle.dtype}\nhint: convert them first"
        )
    if abs.dtype != angle.dtype:
        raise RuntimeError(
            f"[polar] Expected object of scalar type {abs.dtype} but got scalar type "
            f"{angle.dtype} for second argument\nhint: convert one of them"
        )
    if abs.dtype == "f16":
        raise unsupported("polar", abs, "compute in float32")
    size, turn = prims.broadcast_all(abs, angle)
    return prims.complex(size * prims.cos(turn), size * prims.sin(turn))
