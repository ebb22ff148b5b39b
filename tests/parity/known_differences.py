"""Where Flambeau is known to differ from PyTorch 2.13, and why: each is an expected failure.

`conftest.py` marks these tests, so that the list is honest in both directions: a difference that is
not listed fails the run, and one that is gone shows up as "xpassed" and should be taken out.
"""

from __future__ import annotations

COMPLEX = "complex arithmetic of this operator is not there yet"
INTEGERS = (
    "PyTorch computes this on integers or bools; here it raises and names the dtypes it takes"
)
ORACLE_GRADIENT = "PyTorch itself has no derivative here, or a wrong one"
HALVES = "not implemented for half types"
ORACLE_VALUES = "PyTorch's own values are inexact: Bessel functions to 1e-8, halves overflow"
SIGNS = "singular and eigenvectors are unique up to a phase, which LAPACK chooses otherwise"

_NAMES = {
    COMPLEX: """
        nan_to_num-c64 masked.median-c64
        native_dropout-c64 normal-c64
    """,
    INTEGERS: """
        mm-bool bmm-bool mv-bool lu_unpack-bool affine_grid_generator-i64
        nn.functional.lp_pool1d-i64 nn.functional.lp_pool1d-bool
        nn.functional.lp_pool2d-i64 nn.functional.lp_pool2d-bool
        nn.functional.lp_pool3d-i64 nn.functional.lp_pool3d-bool nn.functional.fold-bool
    """,
    HALVES: """
        histogram-f16 histogram-bf16 histogramdd-f16 histogramdd-bf16
    """,
    ORACLE_VALUES: """
        linalg.matrix_exp-bf16 linalg.matrix_exp-f16 matrix_exp-bf16 matrix_exp-f16
        special.bessel_j0-f64 special.bessel_j1-f64 special.bessel_y0-f64 special.bessel_y1-f64
    """,
    SIGNS: """
        linalg.svd-c64 linalg.svd-f64 svd-c64 svd-f64 linalg.eig-c64 linalg.eig-f64
        svd_lowrank-c64 svd_lowrank-f64 pca_lowrank-c64 pca_lowrank-f64
    """,
}
_GRADIENTS = "floor_divide vander dist sgn heaviside ldexp bincount as_strided_scatter detach_copy"

KNOWN: dict[str, str] = {
    f"test_dtypes[{name}]": reason for reason, names in _NAMES.items() for name in names.split()
}
KNOWN |= {f"test_gradients[{name}]": ORACLE_GRADIENT for name in _GRADIENTS.split()}
_LOW_RANK = ("svd_lowrank", "pca_lowrank")
KNOWN |= {
    f"test_float32[{name}]": SIGNS for name in ("linalg.eig", "linalg.svd", "svd", *_LOW_RANK)
}
KNOWN |= {f"test_gradients[{name}]": SIGNS for name in _LOW_RANK}
KNOWN |= {
    "test_float32[max_pool1d_with_indices]": "a private operator with another layout of results",
}
