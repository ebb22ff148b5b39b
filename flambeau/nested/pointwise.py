"""Operators element by element: they are applied to the values.

Dense operands are broadcast as if a sample's rows were a dimension; what differs from sample to
sample is repeated for each of its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.nested import padded
from flambeau.nested.tensor import JaggedTensor, NestedTensor, refuse, rewrapped

NAMES = frozenset(
    """
_alpha_dropout _div_floor _div_trunc _dropout _native_dropout _rdiv _rfloordiv _rlshift _rmod _rpow
_rrshift abs acos acosh add addcdiv addcmul airy_ai angle asin asinh atan atan2 atanh bernoulli
bessel_j0 bessel_j1 bessel_y0 bessel_y1 bfloat16 bitwise_and bitwise_left_shift bitwise_not
bitwise_or bitwise_right_shift bitwise_xor bool byte cauchy_ cdouble ceil celu cfloat chalf char
chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w clamp
clamp_max clamp_min clone conj_physical copysign cos cosh deg2rad digamma div double elu empty_like
entr eq erf erfc erfcx erfinv exp exp2 expm1 exponential_ fill float float_power floor floor_divide
fmax fmin fmod frac frexp full_like gcd ge gelu geometric_ gt half hardshrink hardsigmoid hardswish
hardtanh heaviside hermite_polynomial_h hermite_polynomial_he hypot i0 i0e i1 i1e igamma igammac
int isclose isfinite isinf isnan isneginf isposinf isreal laguerre_polynomial_l lcm ldexp le
leaky_relu legendre_polynomial_p lerp lgamma log log10 log1p log2 log_ndtr log_normal_ logaddexp
logaddexp2 logical_and logical_not logical_or logical_xor logit logsigmoid long lt masked_fill
maximum minimum mish modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1
mul multigammaln mvlgamma nan_to_num ndtr ndtri ne neg nextafter normal_ ones_like polar polygamma
positive pow rad2deg rand_like randint_like randn_like random_ reciprocal relu relu6 remainder
round rsqrt rsub scaled_modified_bessel_k0 scaled_modified_bessel_k1 selu sgn
shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v
shifted_chebyshev_polynomial_w short sigmoid sign signbit silu sin sinc sinh softplus softshrink
softsign spherical_bessel_j0 sqrt square sub tan tanh tanhshrink threshold to trunc type_as
uniform_ where xlog1py xlogy zero_ zeros_like zeta
""".split()
)
# One name for a reduction and for the larger of two.
BINARY = frozenset({"max", "min"})


def nested_operands(values: Any) -> list[Any]:
    """The nested tensors among arguments."""
    found: list[Any] = []
    for x in values:
        if isinstance(x, NestedTensor):
            found.append(x)
        elif isinstance(x, (list, tuple)):
            found += nested_operands(x)
    return found


def call(op: Callable[..., Any], name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operator element by element, of which an operand is jagged.

    Raises:
        RuntimeError: operands do not have the same offsets, or cannot be broadcast.
    """
    pattern = nested_operands((*args, *kwargs.values()))[0]
    if name.endswith("_") and not isinstance(args[0], NestedTensor):
        refuse(name, "a dense tensor cannot take a nested result", "use the operator without _")

    def inner(x: Any) -> Any:
        if isinstance(x, NestedTensor):
            return _aligned(name, pattern, x)
        if isinstance(x, torch.Tensor) and x.dim():
            return broadcast(name, pattern, x)
        return x

    result = op(*map(inner, args), **{k: inner(v) for k, v in kwargs.items()})
    if name.endswith("_") and not name.startswith("__"):
        return args[0]
    return wrapped(pattern, result)


def wrapped(pattern: Any, result: Any) -> Any:
    """Values (or several) as nested tensors like a pattern."""
    return rewrapped(lambda x: pattern if x is pattern._kept else pattern._like(x), result)


def _aligned(name: str, pattern: Any, x: Any) -> Any:
    """The values of a nested operand, which has the offsets of the first."""
    same = (
        isinstance(x, JaggedTensor)
        and x._ragged is pattern._ragged
        and x.dim() - x._ragged_idx == pattern.dim() - pattern._ragged_idx
    )
    if not same:
        unfit(name, pattern, x)
    return x._kept


def unfit(name: str, pattern: Any, x: Any) -> None:
    """Raises for operands that do not fit each other."""
    shapes = " and ".join(_shape_text(t) for t in (pattern, x))
    refuse(
        name,
        f"cannot call binary pointwise function {name} with inputs of shapes {shapes}",
        "nested operands share offsets (nested_tensor_from_jagged(values, x.offsets())); dense "
        "ones are broadcast where their size is 1 in the ragged dimension",
    )


def _shape_text(x: Any) -> str:
    return "a strided nested tensor" if isinstance(x, NestedTensor) and not isinstance(
        x, JaggedTensor) else f"{tuple(x.shape)}"  # fmt: skip


def broadcast(name: str, pattern: Any, x: Any) -> Any:
    """A dense operand as one that is broadcast against the values."""
    r, ndim = pattern._ragged_idx, pattern.dim()
    if x.dim() > ndim:
        unfit(name, pattern, x)
    if x.dim() < ndim - r:
        return x
    full = x.reshape((1,) * (ndim - x.dim()) + tuple(x.shape))
    batch, rows = full.shape[0], full.shape[r]
    ragged = pattern._ragged
    if batch not in (1, ragged.batch) or rows not in (1, ragged.longest):
        unfit(name, pattern, x)
    count = pattern._kept.shape[r - 1]
    if rows != 1:
        dense = full if batch == ragged.batch else full.expand(ragged.batch, *full.shape[1:])
        return padded.to_values(dense, ragged, r, count)
    if batch == 1:
        return full.squeeze(0)
    spread = full.squeeze(r).index_select(0, ragged.owners(count))
    return spread if r == 1 else spread.movedim(0, r - 1)
