"""Products of many pairs of matrices of which one size varies: `grouped_mm` (mixtures of experts).

Where a group's rows end is data, so the function reads it and multiplies group by group; what it
reads nothing of, a batch of equal groups, is one batched product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from flambeau.core.devices import has_data
from flambeau.language.definition import function, op
from flambeau.language.dtypes import name_of
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import DType, Tensor
from flambeau.ops.cast_rules import untouched
from flambeau.ops.linear.matrix import bmm, mm
from flambeau.ops.shape.shape import cat, stack

_FLOATS = ("f32", "bf16", "f16")


def _refuse(text: str, hint: str) -> RuntimeError:
    return RuntimeError(f"[grouped_mm] {text}\nhint: {hint}")


def _check_operands(a: Any, b: Any, bias: Any, out_dtype: Any) -> None:
    for x, name in ((a, "mat_a"), (b, "mat_b")):
        if name_of(x.dtype) not in _FLOATS:
            raise _refuse(
                f"Expected {name} to be float32, bfloat16 or float16, got {x.dtype}", "convert it"
            )
        if x.ndim not in (2, 3):
            raise _refuse(f"{name} has to be 2 or 3d, got {list(x.shape)}", "matrices, or a batch")
    if a.dtype != b.dtype:
        raise _refuse(
            f"expected mat_a and mat_b to have the same dtype, got {a.dtype}, {b.dtype}", "convert"
        )
    if bias is not None:
        raise _refuse("Bias not supported yet", "add it to the result")
    if out_dtype not in (None, a.dtype):
        raise _refuse(f"output dtype must match mat_a's, got {out_dtype}", "convert the result")


def _check_sizes(a: Any, b: Any, offs: Any) -> None:
    flat = a.ndim == 2 or b.ndim == 2
    if flat != (offs is not None):
        raise _refuse(
            "Have to provide offsets if there is a 2d matrix, or no offset if both are 3d", "offs="
        )
    if a.shape[-1] != b.shape[-2]:
        raise _refuse(
            f"contraction dimension of mat_a and mat_b must match: {list(a.shape)}, "
            f"{list(b.shape)}",
            "(..., M, K) and (..., K, N)",
        )
    if offs is None:
        if a.shape[0] != b.shape[0]:
            raise _refuse(f"batched dimension has to match: {a.shape[0]}, {b.shape[0]}", "equal")
        return
    if offs.ndim != 1 or name_of(offs.dtype) != "i32":
        raise _refuse(f"Offsets have to be int32 and 1D, got {offs.dtype} {list(offs.shape)}", "1D")
    batch = next((x.shape[0] for x in (a, b) if x.ndim == 3), offs.shape[0])
    if batch != offs.shape[0]:
        raise _refuse(
            f"matrix batch sizes have to match: {batch} matrices, {offs.shape[0]} offsets",
            "an offset per matrix",
        )


def _bounds(offs: Any, extent: int) -> list[int]:
    """Where groups begin and end; without data anywhere, as no size depends on it.

    Raises:
        RuntimeError: offsets decrease, or leave the dimension.
    """
    bounds: list[int] = [0, *([0] * offs.shape[0] if not has_data(offs) else offs.tolist())]
    if any(end < begin for begin, end in pairwise(bounds)) or bounds[-1] > extent:
        raise _refuse(
            f"offsets must increase from 0 to at most {extent}: got {bounds[1:]}",
            "offs[i] is the end of group i",
        )
    return bounds


def _product(a: Any, b: Any, offs: Any) -> Any:
    if offs is None:
        return bmm.native(a, b)
    if a.ndim == b.ndim == 2:
        bounds = _bounds(offs, a.shape[1])
        return stack.native([mm.native(a[:, i:j], b[i:j]) for i, j in pairwise(bounds)])
    dim = 0 if a.ndim == 2 else 1
    extent = a.shape[0] if dim == 0 else b.shape[1]
    bounds = _bounds(offs, extent)
    groups = enumerate(pairwise(bounds))
    if dim == 0:
        parts = [mm.native(a[i:j], b[g]) for g, (i, j) in groups]
    else:
        parts = [mm.native(a[g], b[:, i:j]) for g, (i, j) in groups]
    remainder = extent - bounds[-1]
    tail = (remainder, b.shape[-1]) if dim == 0 else (a.shape[1], remainder)
    return cat.native([*parts, a.new_zeros(tail)], dim)


def _samples() -> Iterator[Sample]:
    # Rows of 16 bytes, the only ones that PyTorch takes.
    yield sample(T(3, 4, 8, dtype="f32"), T(3, 8, 4, dtype="f32"))
    ends = T(1, dtype="i32", low=6, high=7)
    yield sample(T(6, 8, dtype="f32"), T(1, 8, 4, dtype="f32"), offs=ends)


def _errors() -> Iterator[ErrorSample]:
    wide = sample(T(1, 4, 8, dtype="f64"), T(1, 8, 2, dtype="f64"))
    yield ErrorSample(wide, RuntimeError, "float32")
    yield ErrorSample(sample(T(1, 4, 8), T(2, 8, 2)), RuntimeError, "batched dimension")
    yield ErrorSample(sample(T(4, 8), T(2, 8, 2)), RuntimeError, "offsets")


@op(where="torch", host=True, autocast=untouched)
def _grouped_mm(
    self: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Any:
    """`nn.functional.grouped_mm` by its inner name."""
    _check_operands(self, mat2, bias, out_dtype)
    _check_sizes(self, mat2, offs)
    return _product(self, mat2, offs)


@function(where="nn.functional", samples=_samples, errors=_errors)
def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Any:
    """Products of groups: of a dimension that two-dimensional operands cut at *offs*.

    Shape: with G groups, `(G, M, K)`, `(G, K, N)` -> `(G, M, N)`; rows cut, `(M, K)`, `(G, K, N)`
    -> `(M, N)`; columns cut, `(G, M, K)`, `(K, N)` -> `(M, N)`; the common dimension cut, `(M, K)`,
    `(K, N)` -> `(G, M, N)`. float32, bfloat16 or float16, of any strides.

    Args:
        offs: `(G,)`, int32: where each group ends. Rows or columns after the last are zero, and of
            the common dimension left out.
        bias: not supported, as in PyTorch.
        out_dtype: the operands' dtype, or None.

    Raises:
        RuntimeError: sizes, dtypes or offsets that do not fit.

    Example:
        >>> tokens = torch.ones(3, 2)
        >>> experts = torch.tensor([1.0, 10.0]).reshape(2, 1, 1).expand(2, 2, 2)
        >>> F.grouped_mm(tokens, experts, offs=torch.tensor([2, 3], dtype=torch.int32))
        tensor([[ 2.,  2.],
                [ 2.,  2.],
                [20., 20.]])
    """
    return _grouped_mm(mat_a, mat_b, offs, bias, out_dtype)


@function(where="nn.functional", differentiable=False)
def scaled_grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Tensor | None = None,
    offs: Tensor | None = None,
    output_dtype: Any = None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Any:
    """Grouped products of scaled float8 matrices: no CPU kernel, neither here nor in PyTorch.

    Raises:
        NotImplementedError: always.

    Example:
        >>> a, one, whole = torch.ones(1, 2, 2), torch.ones(1), F.ScalingType.TensorWise
        >>> F.scaled_grouped_mm(a, a, one, whole, one, whole)
        Traceback (most recent call last):
        NotImplementedError: [scaled_grouped_mm] not implemented for tensors on the CPU...
    """
    raise NotImplementedError(
        f"[scaled_grouped_mm] not implemented for tensors on the CPU, of {mat_a.dtype} and "
        f"{mat_b.dtype}\nhint: scaled_mm group by group, or grouped_mm of bfloat16"
    )
