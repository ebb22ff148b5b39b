"""`linspace` and `logspace`: numbers at equal distances, counted from both ends.

PyTorch computes `start + i * step` in the first half and `end - i * step` in the second, with one
rounding in float32, float64 and complex dtypes, and with a rounding per operation in half types.
"""

from __future__ import annotations

from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size
from flambeau.language.dtypes import PUBLIC_NAMES, object_of
from flambeau.language.promotion import CATEGORY, default_complex
from flambeau.language.samples import sample
from flambeau.ops.common import dtype_or
from flambeau.ops.creation.creation import Samples, check_layout, creation

# Per result dtype: the dtype that bounds and step are rounded to, and the dtype of their product.
_STEP_DTYPES = {"f32": ("f32", "f64"), "f16": ("f16", "f16"), "bf16": ("bf16", "bf16")}
_UPPER_HALF = -(1 << 27)  # of the bits of a float64: its product with an index is exact


def _is_complex(bound: Any) -> bool:
    """Whether a bound is a complex number or a tensor of one."""
    kind = bound.dtype if isinstance(bound, Node) else ""
    return isinstance(bound, complex) or (bool(kind) and CATEGORY[kind] == 3)


def _target(start: Any, end: Any, dtype: Any, name: str) -> str:
    """The dtype of the result: of the argument, or the default one of the bounds' kind."""
    if not (_is_complex(start) or _is_complex(end)):
        return dtype_or(dtype)
    target = dtype_or(dtype, default_complex())
    if CATEGORY[target] < 3:
        problem = f"inferred dtype {object_of(default_complex())} can't be safely cast to passed "
        problem += f"dtype {PUBLIC_NAMES[target]}"
        raise failure(RuntimeError, name, problem, "choose a complex dtype")
    return target


def _check_bounds(start: Any, end: Any, steps: Size, name: str) -> None:
    ranks = [x.ndim if isinstance(x, Node) else 0 for x in (start, end)]
    if any(ranks):
        problem = f"{name} only supports 0-dimensional start and end tensors, but got start with "
        problem += f"{ranks[0]} dimension(s) and end with {ranks[1]} dimension(s)."
        raise failure(RuntimeError, name, problem, "numbers")
    if isinstance(steps, int) and steps < 0:
        raise failure(RuntimeError, name, "number of steps must be non-negative", "a count")


def _parts(bound: Any) -> tuple[Any, Any]:
    """The real and the imaginary part of a bound."""
    if not isinstance(bound, Node):
        return complex(bound).real, complex(bound).imag
    if CATEGORY[bound.dtype] == 3:
        return prims.real(bound), prims.imag(bound)
    return bound, 0.0


def _exact_sum(a: Node, b: Node) -> tuple[Node, Node]:
    """`a + b` and its rounding error (Knuth, TAOCP 2, 4.2.2)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def _odd_sum(a: Node, b: Node) -> Node:
    """`a + b`, rounded to the neighbour whose last bit is 1 where it is not exact."""
    total, error = _exact_sum(a, b)
    bits = prims.bitcast(total, "i64")
    one = prims.full(1, total.shape, "i64")
    away = prims.eq(prims.signbit(error), prims.signbit(total))
    odd = prims.bitwise_or(prims.where(away, bits, bits - one), one)
    return prims.bitcast(prims.where(prims.eq(error, prims.zeros_like(error)), bits, odd), "f64")


def _fused(x: Node, y: Node, base: Node) -> Node:
    """`x * y + base` in float64 with one rounding; x is an index of at most 26 bits.

    The error of the product is exact (Dekker, Numer. Math. 18, 1971), and errors are added rounded
    to odd, so that the last sum rounds as the exact value does (Boldo and Melquiond, IEEE Trans.
    Comput. 57, 2008). They are left out where they are 0 or a value is not finite.
    """
    mask = prims.full(_UPPER_HALF, y.shape, "i64")
    high = prims.bitcast(prims.bitwise_and(prims.bitcast(y, "i64"), mask), "f64")
    product = x * y
    below = (x * high - product) + x * (y - high)
    total, error = _exact_sum(base, product)
    error = _odd_sum(error, below)
    return prims.where(prims.gt(prims.abs(error), prims.zeros_like(error)), total + error, total)


def _spaced(start: Any, end: Any, steps: Size, target: str) -> Node:
    """`steps` real numbers from start to end, in float64, rounded as `target`'s are.

    Bounds of integers are truncated; the values between them are not.
    """
    kind = "i64" if CATEGORY[target] == 1 else "f64"
    first, last = (
        prims.broadcast_to(prims.cast(prims.cast(x, kind), "f64"), (steps,))
        if isinstance(x, Node)
        else prims.full(int(x) if kind == "i64" else x, (steps,), "f64")
        for x in (start, end)
    )
    if isinstance(steps, int) and steps <= 1:
        return first
    index = prims.iota((steps,), 0)
    back = prims.constant(steps - 1, index) - index
    step_dtype, product_dtype = _STEP_DTYPES.get(target, ("f64", ""))

    def rounded_to(x: Node, dtype: str) -> Node:
        return prims.cast(prims.cast(x, dtype), "f64")

    first, last = rounded_to(first, step_dtype), rounded_to(last, step_dtype)
    width = rounded_to(prims.constant(steps - 1, first), step_dtype)
    step = rounded_to(prims.div(rounded_to(last - first, step_dtype), width), step_dtype)
    near = prims.lt(index, back)
    base, step = prims.where(near, first, last), prims.where(near, step, -step)
    count = rounded_to(prims.where(near, index, back), step_dtype)
    if target == "f64":
        return _fused(count, step, base)
    return base + rounded_to(count * step, product_dtype or "f64")


def _numbers(start: Any, end: Any, steps: Size, target: str, name: str) -> Node:
    """The values of `linspace` in float64 or complex128."""
    _check_bounds(start, end, steps, name)
    if CATEGORY[target] < 3:
        return _spaced(start, end, steps, target)
    part = "f32" if target == "c64" else "f64"
    pairs = zip(_parts(start), _parts(end), strict=True)
    return prims.complex(*(_spaced(first, last, steps, part) for first, last in pairs))


def _linspace_samples() -> Samples:
    yield sample(0, 1, 5)
    yield sample(3.0, -2.0, 4)
    yield sample(1, 2, 1)
    yield sample(1, 2, 0)
    yield sample(1 - 2j, 3j, 6)


@creation(
    "linspace(Tensor|Scalar start, Tensor|Scalar end, SymInt steps",
    fits="start end",
    runtime="start end",
    samples=_linspace_samples,
    reference="numpy.linspace",
)
def linspace(
    start: Any, end: Any, steps: Size, dtype: Any, layout: Any, device: Any, pin_memory: Any
) -> Node:
    """`steps` evenly spaced numbers from start to end, both included.

    Raises:
        RuntimeError: negative steps, bounds with dimensions, or complex bounds of a real dtype.

    Example:
        >>> torch.linspace(0, 1, 3)
        tensor([0.0000, 0.5000, 1.0000])
    """
    check_layout(layout, "linspace", pin_memory)
    target = _target(start, end, dtype, "linspace")
    return prims.cast(_numbers(start, end, steps, target, "linspace"), target)


@creation(
    "logspace(Tensor|Scalar start, Tensor|Scalar end, SymInt steps, Scalar base=10.0",
    fits="start end",
    runtime="start end base",
    samples=lambda: [sample(0, 2, 3), sample(0.0, 4.0, 5, 2.0), sample(0, 2j, 3)],
    reference="numpy.logspace",
)
def logspace(
    start: Any,
    end: Any,
    steps: Size,
    base: Any,
    dtype: Any,
    layout: Any,
    device: Any,
    pin_memory: Any,
) -> Node:
    """`base` to the power of `linspace(start, end, steps)`.

    Example:
        >>> torch.logspace(0, 2, 3)
        tensor([  1.,  10., 100.])
    """
    check_layout(layout, "logspace", pin_memory)
    target = _target(start, end, dtype, "logspace")
    wide = {"c64": "c128", "c128": "c128"}.get(target, "i64" if CATEGORY[target] == 1 else "f64")
    exponent = _numbers(start, end, steps, wide, "logspace")
    return prims.cast(prims.pow(prims.constant(base, exponent), exponent), target)
