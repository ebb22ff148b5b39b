"""Spreads: variance and standard deviation, with their means.

Two passes (mean, then squared distances from it), as accurate as the data allow, of float32 in
float64, so that only the result is rounded; `correction` is taken from the number of elements: 1
gives the unbiased estimate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.ir.node import Node
from flambeau.language import layout
from flambeau.language.definition import OpDefinition, op
from flambeau.language.promotion import CATEGORY, PARTS, compute_dtype
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.ops.reduction.reduce import Dims, dropped, reduced_dims


def moments(
    name: str, self: Node, dim: Dims, correction: float, keepdim: bool, root: bool
) -> list[Node]:
    """Variance (or its root) and mean, in the dtype of the tensor."""
    if CATEGORY[self.dtype] < 2:
        problem = "std and var only support floating point and complex dtypes"
        raise failure(RuntimeError, name, problem, "convert to float first")
    computed = compute_dtype(self.dtype)
    if self.dtype == computed:  # not of half types, whose own rounding is far coarser
        computed = {"f32": "f64", "c64": "c128"}.get(computed, computed)
    x = prims.cast(self, computed)
    dims = reduced_dims(dim, x.ndim, name)
    count = layout.numel([x.shape[d] for d in dims])
    if isinstance(count, int) and count <= correction:
        late("flambeau.core.warned").warn_once(
            f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the "
            "reduction factor (input numel divided by output numel)."
        )
    mean = prims.reduce_dims("sum", x, dims, True) / count
    distance = x - mean
    if CATEGORY[x.dtype] == 3:
        square = prims.real(distance * prims.complex(prims.real(distance), -prims.imag(distance)))
    else:
        square = distance * distance
    total = prims.reduce_dims("sum", square, dims, True)
    spread = total / _degrees(count, correction, total.dtype)
    if root:
        spread = flat_root(spread)
    final = PARTS.get(self.dtype, self.dtype)
    return [
        prims.cast(dropped(spread, dims, keepdim), final),
        prims.cast(dropped(mean, dims, keepdim), self.dtype),
    ]


def _degrees(count: Any, correction: float, dtype: str) -> Node:
    """count - correction, not below zero: 0 / 0 is NaN where nothing is left."""
    number = prims.cast(prims.size(count), dtype)
    return prims.maximum(number - float(correction), prims.full(0, (), dtype))


def flat_root(square: Node) -> Node:
    """Square root whose gradient at 0 is 0."""
    zero = prims.eq(square, prims.zeros_like(square))
    safe = prims.where(zero, prims.full_like(1, square), square)
    return prims.where(zero, prims.zeros_like(square), prims.sqrt(safe))


def _samples() -> Iterator[Sample]:
    for shape in ((7,), (3, 4), (33, 17), (4200,)):
        yield sample(T(*shape))
    yield sample(T(3, 4), False)
    yield sample(T(3, 4), 1)
    yield sample(T(3, 4), 1, False)
    yield sample(T(2, 3, 5), (0, 2), True, True)
    yield sample(T(2, 3, 5), dim=-2, keepdim=True)
    yield sample(T(3, 4), dim=0, correction=0)
    yield sample(T(3, 4), correction=2, keepdim=True)
    yield sample(T(4, 6, layout="transposed"), 0)
    yield sample(T(3, values=[2.0, 2.0, 2.0]))
    yield sample(T(1))


def _errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3, dtype="i64")), RuntimeError, "only support floating point")
    yield ErrorSample(sample(T(3), 2), IndexError, "Dimension out of range")


_TEXT = """{text} of all elements, or over `dim`.

    `correction` (default 1) is taken from the number of elements; `unbiased=False` means 0. A
    standard deviation of 0 has gradient 0. Fewer elements than `correction` needs give NaN or inf.

    Raises:
        RuntimeError: an integer or bool tensor.
        IndexError: a dimension out of range.

    Example:
        >>> len(torch.{name}(torch.tensor([1.0, 3.0]), 0, keepdim=True))
        {results}
    """


def _spread(name: str, text: str, results: int, root: bool) -> OpDefinition:
    returns = "Tensor" if results == 1 else "(Tensor, Tensor)"

    def run(self: Node, dim: Dims, correction: float, keepdim: bool) -> Any:
        results_of_moments = moments(name, self, dim, correction, keepdim, root)
        return results_of_moments[0] if results == 1 else results_of_moments

    def body(self: Node, dim: Dims, correction: float | None, keepdim: bool) -> Any:
        return run(self, dim, 1 if correction is None else correction, keepdim)

    def unbiased_all(self: Node, unbiased: bool) -> Any:
        return run(self, None, int(unbiased), False)

    def unbiased_over(self: Node, dim: Dims, unbiased: bool, keepdim: bool) -> Any:
        return run(self, dim, int(unbiased), keepdim)

    unbiased_over.__doc__ = _TEXT.format(text=text, name=name, results=results)
    # In this order: a list of dims also takes numbers one by one, `var(0, False)` must not.
    definition = op(
        f"{name}.dim(Tensor self, int[]? dim, bool unbiased=True, bool keepdim=False) -> {returns}",
        where="torch method" if results == 1 else "torch",
        out=results == 1,
        samples=_samples,
        errors=_errors,
        dtypes="f16 bf16 f32 f64 c64 c128",
    )(unbiased_over)
    definition.overload(f"{name}.unbiased(Tensor self, bool unbiased=True) -> {returns}")(
        unbiased_all
    )
    return definition.overload(
        f"{name}.correction(Tensor self, int[]? dim=None, *, Scalar? correction=None, "
        f"bool keepdim=False) -> {returns}"
    )(body)


var = _spread("var", "The variance", 1, False)
std = _spread("std", "The standard deviation", 1, True)
var_mean = _spread("var_mean", "The variance and the mean", 2, False)
std_mean = _spread("std_mean", "The standard deviation and the mean", 2, True)
