"""Parts of complex numbers: real, imaginary, conjugate, angle; adjoint matrices."""

from __future__ import annotations

import math
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import op
from flambeau.language.promotion import compute_dtype, default_dtype
from flambeau.language.samples import ErrorSample, T, sample, unary_samples
from flambeau.language.schema import Tensor
from flambeau.ops.broadcasting import is_complex, is_float, unsupported
from flambeau.ops.indexing.pending import CONJUGATE, NEGATIVE, bits_of, set_operators, toggled
from flambeau.ops.indexing.slices import select
from flambeau.ops.shape.views import view_as_real, viewed


@op(
    kind="pointwise",
    promote="keep",
    out="exact",
    samples=lambda: [sample(T(2, 3)), sample(T(2, 3, dtype="c64"))],
    linear=True,
)
def conj_physical(self: Tensor) -> Tensor:
    """The complex conjugate of each element; real tensors are copied.

    Example:
        >>> torch.conj_physical(torch.tensor([1.0]))
        tensor([1.])
    """
    return prims.complex(prims.real(self), -prims.imag(self)) if is_complex(self) else self


# Views of conjugates and negatives share memory: the value of the node is what memory holds, and
# `ops.indexing.pending` sets the bit. The rules are those of the value that users see.
prims.register_rule(
    "conj_alias",
    lambda g, y, x: [prims.complex(prims.real(g), -prims.imag(g)) if is_complex(g) else g],
)
prims.register_rule("neg_alias", lambda g, y, x: [-g])


def _alias(name: str) -> Any:
    def body(self: Node) -> Any:
        value = prims.with_derivative(self, self, rule=name)
        return viewed(self, value, lambda sizes, strides, offset: (strides, offset))

    body.__doc__ = "The same memory, of which the caller changes what the elements are."
    return op(f"_{name}(Tensor self) -> Tensor", where="private", view=True)(body)


conj_alias = _alias("conj_alias")
neg_alias = _alias("neg_alias")
set_operators(conj_alias=conj_alias, neg_alias=neg_alias, conj_physical=conj_physical)


# Where the classes say they are that share memory as plain tensors do, under the alias as well.
_PLAIN = frozenset(
    f"{package}{module}"
    for package in ("flambeau", "torch")
    for module in ("", ".nn.parameter", "._subclasses.fake_tensor")
)
_PACKAGES = ("flambeau.", "torch.")


def _physical(x: Any) -> bool:
    """Whether a tensor's conjugate is computed: samples of a batch, tensors made of others."""
    kind = type(x)
    if kind.__module__ in _PLAIN:
        return False
    return kind.__module__.startswith(_PACKAGES) or hasattr(kind, "__torch_dispatch__")


@op(host=True, aliases="_conj", samples=lambda: [sample(T(3))])
def conj(self: Tensor) -> Any:
    """A view of the complex conjugates of the elements; a real tensor is returned itself.

    Writes through it reach the tensor, conjugated. `resolve_conj` makes a copy of it.

    Example:
        >>> torch.conj(torch.tensor([1 + 2j]))
        tensor([1.-2.j])
    """
    if not self.is_complex():
        return self
    if hasattr(self, "viewed"):
        return self.viewed(conj)
    return conj_physical(self) if _physical(self) else toggled(self, CONJUGATE)


@op(host=True, samples=lambda: [sample(T(3))])
def _neg_view(self: Tensor) -> Any:
    """A view of the negatives of the elements.

    Example:
        >>> torch._neg_view(torch.tensor([1.0, -2.0]))
        tensor([-1.,  2.])
    """
    if hasattr(self, "viewed"):
        return self.viewed(_neg_view)
    return -self if _physical(self) else toggled(self, NEGATIVE)


@op(host=True, samples=lambda: [sample(T(2, 3, 4)), sample(T())])
def adjoint(self: Tensor) -> Any:
    """Matrices transposed and conjugated, as a view: the attribute `mH`.

    Example:
        >>> torch.zeros(2, 3, 4).adjoint().shape
        torch.Size([2, 4, 3])
    """
    if self.ndim == 1:
        problem = "tensor.mH is only supported on matrices or batches of matrices. Got 1-D tensor"
        raise failure(RuntimeError, "mH", problem, "unsqueeze it first")
    return conj(self.transpose(-2, -1) if self.ndim else self)


@op(
    name="matrix_H",
    where="torch",
    host=True,
    samples=lambda: [sample(T(2, 3)), sample(T(2, 3, dtype="c64"))],
)
def matrix_h(self: Tensor) -> Any:
    """A matrix transposed and conjugated, as a view: the attribute `H`.

    Raises:
        RuntimeError: a tensor of more than two dimensions, or of one.

    Example:
        >>> torch.tensor([[1.0, 2.0j]]).H
        tensor([[1.-0.j],
                [0.-2.j]])
    """
    if self.ndim not in (0, 2):
        problem = f"tensor.H is only supported on matrices (2-D tensors). Got {self.ndim}-D "
        problem += "tensor. For batches of matrices, consider using tensor.mH"
        raise failure(RuntimeError, "H", problem, "mH transposes batches")
    return conj(self.transpose(0, 1) if self.ndim else self)


def _part(x: Any, index: int) -> Any:
    """Real (0) or imaginary (1) parts, as a view of negatives where conjugates are viewed."""
    if hasattr(x, "viewed"):  # a sample of a batch, a value with its tangent
        return x.viewed(lambda inner: _part(inner, index))
    bits = bits_of(x)
    part = select(view_as_real(toggled(x, bits) if bits else x), -1, index)
    negative = bool(bits & NEGATIVE) != bool(bits & CONJUGATE and index)
    return toggled(part, NEGATIVE) if negative else part


@op(where="torch", host=True, samples=lambda: [sample(T(3)), sample(T(2, 3, dtype="c64"))])
def real(input: Tensor) -> Any:
    """The real parts, as a view; a real tensor is returned itself.

    Example:
        >>> torch.real(torch.tensor([1.0]))
        tensor([1.])
    """
    return _part(input, 0) if input.is_complex() else input


@op(where="torch", host=True, samples=lambda: [sample(T(2, 3, dtype="c64"))])
def imag(input: Tensor) -> Any:
    """The imaginary parts of a complex tensor, as a view.

    Raises:
        RuntimeError: a real tensor.

    Example:
        >>> torch.imag(torch.tensor([1.0 + 2.0j]))
        tensor([2.])
    """
    if not input.is_complex():
        problem = "imag is not implemented for tensors with non-complex dtypes."
        raise failure(RuntimeError, "imag", problem, "real numbers have no imaginary part")
    return _part(input, 1)


@op(
    layout="follow",
    out=True,
    samples=unary_samples(),
    reference="numpy.angle",
    zero_preserving=True,
)
def angle(self: Tensor) -> Tensor:
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
    where="torch",
    layout="follow",
    out="exact",
    unsaved="abs angle",
    samples=lambda: [sample(T(2, 3), T(3)), sample(T(4, 6, layout="transposed"), T(4, 6))],
    errors=lambda: [ErrorSample(sample(T(2), T(2, dtype="f64")), RuntimeError, "scalar type")],
    dtypes="f32 f64",
    autocast="float32",
)
def polar(abs: Tensor, angle: Tensor) -> Tensor:
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
        problem = f"Expected both inputs to be Half, Float or Double tensors but got {abs.dtype} "
        problem += f"and {angle.dtype}"
        raise failure(RuntimeError, "polar", problem, "convert them first")
    if abs.dtype != angle.dtype:
        problem = f"Expected object of scalar type {abs.dtype} but got scalar type {angle.dtype} "
        problem += "for second argument"
        raise failure(RuntimeError, "polar", problem, "convert one of them")
    if abs.dtype == "f16":
        raise unsupported("polar", abs, "compute in float32")
    size, turn = prims.broadcast_all(abs, angle)
    return prims.complex(size * prims.cos(turn), size * prims.sin(turn))
