"""AArch64: Advanced SIMD, 32 registers of 128 bits, and a fused multiply-add."""

from __future__ import annotations

from flambeau.compiler.targets.description import Instruction, Table, Target


def _table() -> Table:
    """GCC's builtins for what it does not find in loops over the lanes."""
    table = {}
    for kind, mode in (("f32", "v4sf"), ("f64", "v2df")):
        lanes = 128 // int(kind[1:])
        for operation, text in {
            "fma": f"fma{mode}($a, $b, $c)",
            "sqrt": f"sqrt{mode}($a)",
            "floor": f"floor{mode}($a)",
            "ceil": f"ceil{mode}($a)",
            "trunc": f"btrunc{mode}($a)",
        }.items():
            table[operation, kind, lanes] = Instruction(f"__builtin_aarch64_{text}")
    return table


NEON = Target(
    "neon",
    16,
    heights=(8, 4, 2, 1),
    complex_heights=(4, 2, 1),
    gemv_heights=(4, 2, 1),
    gemv_transposed=4,
    machines=("aarch64", "arm64"),
    table=_table(),
)

__all__ = ["NEON"]
