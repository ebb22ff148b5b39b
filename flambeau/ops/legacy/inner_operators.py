"""Operators that PyTorch's public ones are made of, for programs that call them by name.

What they compute is defined with the public operators; here are only their signatures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.ops.common import dtype_or, normalise_dim
from flambeau.ops.neural.resample import resize

_ATEN = "ops.aten"
_BACKWARD = "(Tensor grad_output, Tensor output, int dim, dtype input_dtype) -> Tensor"


def _row_samples() -> Iterator[Sample]:
    from flambeau.language.dtypes import object_of

    yield sample(T(3, 5, dtype="f32"), T(3, 5, dtype="f32"), 1, object_of("f32"))


def _row_errors() -> Iterator[ErrorSample]:
    from flambeau.language.dtypes import object_of

    mixed = sample(T(3, 5), T(3, 5, dtype="f64"), 1, object_of("f32"))
    yield ErrorSample(mixed, RuntimeError, "expected scalar type")


def _backward(name: str, grad: Node, output: Node, dim: int, input_dtype: Any) -> tuple[Node, ...]:
    """Gradient and result in the dtype of the arithmetic, and the gradient's dtype.

    Raises:
        RuntimeError: the three dtypes differ.
    """
    for dtype in (output.dtype, dtype_or(input_dtype)):
        if dtype != grad.dtype:
            problem = f"expected scalar type {grad.dtype} but found {dtype}"
            raise failure(RuntimeError, name, problem, "gradient, result and input have one dtype")
    inner = "f32" if grad.dtype in ("f16", "bf16") else grad.dtype
    return prims.cast(grad, inner), prims.cast(output, inner)


def _row_sum(x: Node, dim: int, name: str) -> Node:
    if x.ndim == 0:
        return x
    return prims.reduce_dims("sum", x, (normalise_dim(dim, x.ndim, name),), True)


@op(
    f"_softmax_backward_data{_BACKWARD}",
    where=f"torch {_ATEN}",
    out=True,
    samples=_row_samples,
    errors=_row_errors,
)
def softmax_backward_data(grad_output: Node, output: Node, dim: int, input_dtype: Any) -> Node:
    """(g - sum of g y) y: the gradient of softmax from its result y.

    Raises:
        RuntimeError: dtypes differ.
    """
    g, y = _backward("_softmax_backward_data", grad_output, output, dim, input_dtype)
    gradient = (g - _row_sum(g * y, dim, "_softmax_backward_data")) * y
    return prims.cast(gradient, grad_output.dtype)


@op(
    f"_log_softmax_backward_data{_BACKWARD}",
    where=f"torch {_ATEN}",
    out=True,
    samples=_row_samples,
    errors=_row_errors,
)
def log_softmax_backward_data(grad_output: Node, output: Node, dim: int, input_dtype: Any) -> Node:
    """g - exp(y) sum of g: the gradient of log_softmax from its result y.

    Raises:
        RuntimeError: dtypes differ.
    """
    g, y = _backward("_log_softmax_backward_data", grad_output, output, dim, input_dtype)
    gradient = g - prims.exp(y) * _row_sum(g, dim, "_log_softmax_backward_data")
    return prims.cast(gradient, grad_output.dtype)


# ------------------------------------------------------------------------------ antialiased images


def _define_antialiased(mode: str) -> None:
    name = f"_upsample_{mode}2d_aa"

    def body(
        input: Any,
        output_size: Sequence[int] | None = None,
        align_corners: bool = False,
        scale_factors: Any = None,
        scales_w: float | None = None,
        *,
        scales_h: float | None = None,
    ) -> Any:
        if isinstance(scale_factors, (int, float)):  # the overload with one scale after another
            scales_h, scale_factors = float(scale_factors), None
        factors = scale_factors or (scales_h, scales_w)
        scales = tuple(0.0 if scale is None else float(scale) for scale in factors)
        if output_size is None:
            if not scale_factors:
                problem = "Must specify exactly one of output_size and scale_factors"
                raise failure(RuntimeError, name, problem, "give one of them")
            pairs = zip(input.shape[-2:], scale_factors, strict=True)
            output_size = tuple(math.floor(size * factor) for size, factor in pairs)
        if input.ndim != 4 or min(output_size) <= 0 or 0 in tuple(input.shape[1:]):
            problem = "Input and output sizes should be greater than 0, but got input "
            problem += f"{list(input.shape)} output {list(output_size)}"
            raise failure(RuntimeError, name, problem, "(N, C, H, W)")
        return resize(input, tuple(output_size), scales, mode, align_corners, True)

    body.__name__ = name
    body.__doc__ = f"""`interpolate(mode="{mode}", antialias=True)` of (N, C, H, W).

    Args:
        output_size: (H, W) of the result.
        scale_factors: instead of the size; or the height's, then `scales_w`.

    Raises:
        RuntimeError: another rank, or an empty size.
    """
    op(
        f"{name}(Tensor input, SymInt[]? output_size=None, bool align_corners=False, "
        "object scale_factors=None, float? scales_w=None, *, float? scales_h=None) -> Tensor",
        where=_ATEN,
        out=True,
        host=True,
        samples=lambda: [sample(T(1, 2, 9, 8), (4, 9), False)],
    )(body)


for _mode in ("bilinear", "bicubic", "lanczos"):
    _define_antialiased(_mode)
