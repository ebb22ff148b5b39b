"""Any processor: vectors of 128 bits, everything in C with vector extensions."""

from flambeau.compiler.targets.description import Target

GENERIC = Target(
    "generic",
    16,
    heights=(4, 2, 1),
    complex_heights=(2, 1),
    gemv_heights=(2, 1),
    gemv_transposed=4,
)

__all__ = ["GENERIC"]
