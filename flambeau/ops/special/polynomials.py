"""Orthogonal polynomials, by their recurrences (NIST DLMF 18.9.1).

One primitive computes all families (`codegen/c/math/special.c.in`), in double whatever the
dtype, so float32 results are rounded once. Inside of [-1, 1] Chebyshev's polynomials of a high
degree are cosines and sines of a multiple of acos(x), as accurate as those functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.node import Node
from flambeau.language.definition import op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.ops.broadcasting import check_any_tensor, is_float, together, unsupported

Value = Any  # a Node or a Python number
_DEGREES = T(2, 4, dtype="i64", values=[[0, 1, 2, 3], [5, 7, 10, 13]], grad=False)


def _samples(low: float, high: float) -> Callable[[], Iterator[Sample]]:
    def make() -> Iterator[Sample]:
        yield sample(T(2, 4, low=low, high=high), _DEGREES)
        yield sample(T(3, 1, 4, low=low, high=high), _DEGREES)
        yield sample(T(0, 4, low=low, high=high), 3)
        yield sample(T(4, 3, low=low, high=high, layout="transposed"), 4)
        yield sample(0.5, _DEGREES)

    return make


def _errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3, dtype="c64"), 2), RuntimeError, "not implemented")


def _define(
    name: str, family: int, text: str, reference: str, error: str, high: float = 1.0
) -> None:
    shifted = family >= 8

    def body(x: Value, n: Value) -> Node:
        check_any_tensor(name, x, n)
        points, degrees = together(name, x, n)
        if not is_float(points):
            raise unsupported(name, points, "pass real numbers")
        return prims.orthogonal_polynomial(points, degrees, family)

    def expected(x: Any, n: Any) -> Any:
        import importlib

        scipy_special = importlib.import_module("scipy.special")
        x = 2.0 * x - 1.0 if shifted else x
        if reference in ("jacobi_v", "jacobi_w"):  # U_n - U_(n-1) and U_n + U_(n-1)
            sign = -1 if reference == "jacobi_v" else 1
            return scipy_special.eval_chebyu(n, x) + sign * scipy_special.eval_chebyu(n - 1, x)
        return getattr(scipy_special, "eval_" + reference)(n, x)

    body.__doc__ = f"""{text}.

    `n` is the degree, cut to a whole number; negative ones give 0. Operands broadcast, and either
    may be a number. There is no gradient, as in PyTorch.

    Integers compute in the default float dtype. Errors against mpmath, relative to the greater of 1
    and the value, for n < 30: float32 half a unit of the last place; float64 {error}, on average
    less than PyTorch's except for Hermite's He (0.520 units of the last place, PyTorch's 0.513).

    Raises:
        NotImplementedError: complex numbers.
        TypeError: neither operand is a tensor.

    Example:
        >>> torch.special.{name}(torch.tensor([1.0]), 0)
        tensor([1.])
    """
    op(
        f"{name}(Tensor|Scalar x, Tensor|Scalar n) -> Tensor",
        kind="elementary",
        where="special",
        runtime="x n",
        differentiable=False,
        samples=_samples(0.0 if shifted else -high, high),
        errors=_errors,
        reference=expected,
        dtypes="f32 f64",
    )(body)


_ANGLE = "1.3 (n + 2) units, x being exact"
_SUMS = "1 unit of the greatest term of its sum"
_STEPS = "3 units"

for _kind, _letter, _reference in (
    (0, "t", "chebyt"), (1, "u", "chebyu"), (2, "v", "jacobi_v"), (3, "w", "jacobi_w"),
):  # fmt: skip
    _upper, _ordinal = _letter.upper(), ("first", "second", "third", "fourth")[_kind]
    _define(
        f"chebyshev_polynomial_{_letter}", _kind,
        f"Chebyshev's polynomial {_upper}_n(x) of the {_ordinal} kind", _reference, _ANGLE, 2.0,
    )  # fmt: skip
    _define(
        f"shifted_chebyshev_polynomial_{_letter}", 8 + _kind,
        f"Chebyshev's polynomial {_upper}_n(2x - 1) of the {_ordinal} kind, moved to [0, 1]",
        _reference, _ANGLE,
    )  # fmt: skip
_define(
    "hermite_polynomial_h",
    4,
    "Hermite's polynomial H_n(x), orthogonal under exp(-x^2)",
    "hermite",
    _SUMS,
)
_define(
    "hermite_polynomial_he", 5, "Hermite's polynomial He_n(x), orthogonal under exp(-x^2 / 2)",
    "hermitenorm", _SUMS,
)  # fmt: skip
_define(
    "laguerre_polynomial_l",
    6,
    "Laguerre's polynomial L_n(x), orthogonal under exp(-x)",
    "laguerre",
    _STEPS,
)
_define("legendre_polynomial_p", 7, "Legendre's polynomial P_n(x)", "legendre", _STEPS)
