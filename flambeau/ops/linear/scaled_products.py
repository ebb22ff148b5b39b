"""Products of matrices of eight-bit floats, each with the scales it was divided by.

The numbers are exact in bfloat16, so the product is that of bfloat16 matrices with float32 sums;
scales, bias and the result's dtype follow at the product's own points.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from flambeau import prims
from flambeau.ir.dtypes import MINIFLOATS, TABLE
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import function, op
from flambeau.language.dtypes import DTYPE_OBJECTS, name_of
from flambeau.language.layout import same
from flambeau.language.schema import DType, Tensor
from flambeau.ops.common import shown

_RESULTS = ("f32", "bf16", "f16")


class ScalingType(IntEnum):
    """How a matrix was scaled: by one number, by one per row, or by blocks."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(IntEnum):
    """How scales of blocks lie in memory."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


def _check_shapes(a: Node, b: Node) -> None:
    for place, x in enumerate((a, b), 1):
        if x.ndim != 2:
            problem = f"mat{place} must be a matrix: got {shown(x.shape)}"
            raise failure(RuntimeError, "_scaled_mm", problem, "two dimensions")
    if not same(a.shape[1], b.shape[0]):
        problem = f"mat_a and mat_b shapes cannot be multiplied ({shown(a.shape)} and "
        problem += f"{shown(b.shape)})"
        raise failure(RuntimeError, "_scaled_mm", problem, "(M, K) and (K, N)")


def _is_single(x: Node) -> bool:
    return all(isinstance(n, int) and n == 1 for n in x.shape)


def _scales(a: Node, b: Node, scale_a: Node, scale_b: Node) -> tuple[Node, Node]:
    """Both scales as matrices that fit the result.

    Raises:
        ValueError: they are neither numbers nor one per row and column, or of another dtype.
    """
    small = all(x.dtype in MINIFLOATS and TABLE[x.dtype].signed for x in (a, b))
    if small and scale_a.dtype == scale_b.dtype == "f32":
        if _is_single(scale_a) and _is_single(scale_b):
            return prims.reshape(scale_a, (1, 1)), prims.reshape(scale_b, (1, 1))
        if scale_a.ndim == scale_b.ndim == 2 and all(
            same(n, expected)
            for n, expected in zip(
                (*scale_a.shape, *scale_b.shape), (a.shape[0], 1, 1, b.shape[1]), strict=True
            )
        ):
            return scale_a, scale_b
    raise ValueError(
        "[_scaled_mm] Invalid scaling configuration: got "
        f"{a.dtype} {shown(a.shape)}, {b.dtype} {shown(b.shape)} with scales "
        f"{scale_a.dtype} {shown(scale_a.shape)}, {scale_b.dtype} {shown(scale_b.shape)}\n"
        "hint: float8 matrices, and float32 scales: of one element, or (M, 1) and (1, N)"
    )


@op(kind="creation", out="exact")
def _scaled_mm(
    self: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: DType | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """(self * scale_a) @ (mat2 * scale_b) + bias, of float8 matrices.

    Shape: `(M, K)`, `(K, N)` -> `(M, N)`. Products are exact, sums are float32; one rounding ends
    it.

    Args:
        self, mat2: of float8_e4m3fn, float8_e5m2 or their variants without infinities.
        scale_a, scale_b: float32; one element each, or `(M, 1)` and `(1, N)`.
        bias: `(N,)`.
        scale_result, use_fast_accum: for other devices; they change nothing here.
        out_dtype: of the result; that of *self* by default.

    Raises:
        RuntimeError: the matrices do not fit.
        ValueError: the scales do not fit, or a matrix is not of eight-bit floats.

    Example:
        >>> a = torch.tensor([[1.0, 2.0]]).to(torch.float8_e4m3fn)
        >>> one = torch.ones(())
        >>> torch._scaled_mm(a, a.T, one, one * 0.5, out_dtype=torch.float32)
        tensor([[2.5000]])
    """
    _check_shapes(self, mat2)
    rows, columns = _scales(self, mat2, scale_a, scale_b)
    target = self.dtype if out_dtype is None else name_of(out_dtype)
    if target not in _RESULTS and target not in MINIFLOATS:
        problem = f"Invalid out_dtype: {target}"
        raise failure(ValueError, "_scaled_mm", problem, "float32, bfloat16 or float16")
    a, b = (prims.cast(prims.cast(x, "f32"), "bf16") for x in (self, mat2))
    product = prims.matmul(a, b, "f32") * rows * columns
    if bias is not None:
        product = product + prims.cast(bias, "f32")
    return prims.cast(product, target)


@function(where="nn.functional", out=True)
def scaled_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Tensor | None = None,
    output_dtype: Any = "bfloat16",
    contraction_dim: Any = (),
    use_fast_accum: bool = False,
) -> Any:
    """The product of scaled float8 matrices; recipes say how they were scaled.

    Args:
        mat_a, mat_b: `(M, K)` and `(K, N)`, of float8.
        scale_a, scale_b: the scales, or lists of one.
        scale_recipe_a, scale_recipe_b: `ScalingType.TensorWise` or `RowWise`, both the same.
        swizzle_a, swizzle_b: `SwizzleType.NO_SWIZZLE`.
        bias: `(N,)`.
        output_dtype: of the result: bfloat16 by default; None: that of *mat_a*.
        contraction_dim: kept for compatibility.
        use_fast_accum: for other devices.

    Raises:
        NotImplementedError: scales of blocks, or swizzled ones.
        ValueError, RuntimeError: as of `torch._scaled_mm`.

    Example:
        >>> a, one = torch.ones(2, 4).to(torch.float8_e4m3fn), torch.ones(())
        >>> whole = F.ScalingType.TensorWise
        >>> F.scaled_mm(a, a.T, one, whole, one, whole)
        tensor([[4., 4.],
                [4., 4.]], dtype=torch.bfloat16)
    """
    del contraction_dim
    recipes = [*_listed(scale_recipe_a), *_listed(scale_recipe_b)]
    if any(r not in (ScalingType.TensorWise, ScalingType.RowWise) for r in recipes):
        problem = f"scales of blocks are not supported: {recipes}"
        raise failure(
            NotImplementedError, "scaled_mm", problem, "ScalingType.TensorWise or RowWise"
        )
    if any(s != SwizzleType.NO_SWIZZLE for s in (*_listed(swizzle_a), *_listed(swizzle_b))):
        problem = "swizzled scales are not supported"
        raise failure(NotImplementedError, "scaled_mm", problem, "SwizzleType.NO_SWIZZLE")
    [one], [other] = _listed(scale_a), _listed(scale_b)
    if output_dtype == "bfloat16":
        output_dtype = DTYPE_OBJECTS["bf16"]
    return _scaled_mm(mat_a, mat_b, one, other, bias, None, output_dtype, use_fast_accum)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
