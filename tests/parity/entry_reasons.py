"""Why entries of PyTorch's operator database fail a check: the reasons docs/coverage.md gives."""

from __future__ import annotations

TIES = (
    "another of several equal elements is named: PyTorch's algorithm is not stable, its "
    "documentation leaves open which; here it is the first"
)
HALVES = (
    "PyTorch rounds to the half type after each step, or accumulates in it; here it is computed in "
    "float32 and rounded once"
)
CANCELLATION = (
    "the result is what float32 leaves of a sum that cancels; both are equally far from the result "
    "in float64"
)
ORACLE_OUT = "PyTorch leaves `out=` unwritten for a single dimension"
ORACLE_TANGENT = "PyTorch's tangent is exact to 1e-5 only; here it agrees with the gradient"

REASONS: dict[str, str] = {
    "__rdiv__": "a method of the native type: another operand's type is refused with TypeError",
    "_foreach_add": "PyTorch drops the tangent of a scalar that is a tensor",
    "as_strided_scatter": (
        "PyTorch's gradient for the input keeps the elements that were overwritten and drops the "
        "others; here it agrees with finite differences"
    ),
    "cholesky_inverse": ORACLE_TANGENT,
    "cov": "PyTorch sums float32 weights of float64 observations in float32; here in float64",
    "fft.ihfft2": ORACLE_OUT,
    "fft.ihfftn": ORACLE_OUT,
    "linalg.lstsq": "PyTorch's solution is a part of a larger buffer; here it has no gaps",
    "linalg.norm.subgradients_at_zero": (
        "the second derivative of a norm at zero: NaN in PyTorch, 0 here, as the subgradient's"
    ),
    "logcumsumexp": f"{ORACLE_TANGENT}; gradient: {CANCELLATION}",
    "matrix_exp": f"{CANCELLATION}; in half types PyTorch's powers overflow to NaN",
    "max_pool2d_with_indices_backward": (
        "where the result is a single pixel, whose strides say nothing, the gradient is contiguous "
        "here; in PyTorch it is laid out as the image"
    ),
    "narrow_copy": "IndexError as for `narrow`; PyTorch fails an internal assertion",
    "sparse.sampled_addmm": (
        "started from a dense gradient, that of the sparse operand has the operand's layout here, "
        "and is dense in PyTorch"
    ),
}
REASONS |= dict.fromkeys("argsort sort topk mode kthvalue".split(), TIES)
REASONS |= dict.fromkeys("linalg.svd svd".split(), CANCELLATION)
REASONS |= {
    name: HALVES
    for name in (
        "gradient grid_sampler_3d nn.functional.conv_transpose2d nn.functional.conv_transpose3d"
    ).split()
}
REASONS |= {
    name: f"{HALVES}; gradient: {CANCELLATION}"
    for name in "grid_sampler_2d nn.functional.grid_sample".split()
}
REASONS["linalg.lstsq.grad_oriented"] = REASONS["linalg.lstsq"]


def reason(entry: str) -> str:
    """Why the entry fails; "not examined yet" where nobody has looked."""
    return REASONS.get(entry, "not examined yet")
