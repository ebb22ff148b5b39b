"""x86-64: AVX-512, and AVX2 with FMA and half conversions.

Intrinsics are spelled as the builtins behind them: kernels include no header.
"""

from __future__ import annotations

from flambeau.compiler.targets.description import Instruction, Table, Target

_MACHINES = ("x86_64", "AMD64")
_AVX2_FEATURES = frozenset({"avx2", "fma", "f16c", "bmi2"})
_AVX512_FEATURES = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})
_AVX2_FLAGS = ("-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-mpopcnt")
_AVX512_FLAGS = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512")

_ROUNDINGS = {"rint": 8, "floor": 9, "ceil": 10, "trunc": 11}
_PRECISIONS = {"f32": "ps", "f64": "pd"}
# Masked loads and stores by bits of an element and lanes: suffix of the builtin. Vectors of one
# width share the integer instruction.
_MASKED = {
    (32, 16): "dqusi512",
    (64, 8): "dqudi512",
    (16, 32): "dquhi512",
    (16, 16): "dquhi256",
    (8, 16): "dquqi128",
    (32, 8): "dqusi256",
    (16, 8): "dquhi128",
}
_MASK_TYPES = {32: "unsigned", 16: "unsigned short", 8: "unsigned char"}


def _ia32(text: str, *, gcc: bool = True, extension: str = "") -> Instruction:
    return Instruction(f"__builtin_ia32_{text}", gcc, extension)


def _registers(width: int) -> Table:
    """Arithmetic of 128-bit or 256-bit registers."""
    size = "" if width == 128 else "256"
    table = {}
    for kind, precision in _PRECISIONS.items():
        lanes = width // int(kind[1:])
        v = f"{precision}{size}"
        for operation, text in {
            "fma": f"vfmadd{v}($a, $b, $c)",
            "sqrt": f"sqrt{v}($a)",
            "min": f"min{v}($a, $b)",
            "max": f"max{v}($a, $b)",
            **{name: f"round{v}($a, {number})" for name, number in _ROUNDINGS.items()},
        }.items():
            table[operation, kind, lanes] = _ia32(text)
        f = f"{kind}x{lanes}"
        blend = _ia32(f"blendv{v}(({f})$b, ({f})$a, ({f})$mask)")
        for letter in "fiu":
            table["select", f"{letter}{kind[1:]}", lanes] = blend
    return table


def _wide() -> Table:
    """Arithmetic of 512-bit registers."""
    table = {}
    for kind, precision in _PRECISIONS.items():
        lanes, v = 512 // int(kind[1:]), f"{precision}512_mask"
        for operation, text in {
            "fma": f"vfmadd{v}($a, $b, $c, -1, 4)",
            "sqrt": f"sqrt{v}($a, $a, -1, 4)",
            "min": f"min{v}($a, $b, $a, -1, 4)",
            "max": f"max{v}($a, $b, $a, -1, 4)",
            **{
                name: f"rndscale{precision}_mask($a, {number}, $a, -1, 4)"
                for name, number in _ROUNDINGS.items()
            },
        }.items():
            table[operation, kind, lanes] = _ia32(text)
        for letter in "fiu":
            table["select", f"{letter}{kind[1:]}", lanes] = Instruction("loop")
    table["any", "i32", 16] = _ia32("ptestmd512($mask, $mask, -1) != 0")
    table["any", "i64", 8] = _ia32("ptestmq512($mask, $mask, -1) != 0")
    table["bits", "i32", 16] = _ia32("ptestmd512($mask, $mask, $active)")
    table["bits", "i32", 8] = _ia32("ptestmd256($mask, $mask, $active)")
    table["bits", "i64", 8] = _ia32("ptestmq512($mask, $mask, $active)")
    table["from_half", "f32", 16] = _ia32("vcvtph2ps512_mask((i16x16)$a, (f32x16){0}, -1, 4)")
    table["to_half", "f32", 16] = _ia32("vcvtps2ph512_mask($a, 0, (i16x16){0}, -1)")
    wide = "long long __attribute__((vector_size(64)))"
    table["below", "u64", 8] = _ia32(
        f"ucmpq512_mask(({wide})$a, ({wide})($a * 0 + $limit), 1, 255)", gcc=False
    )
    blend = "__builtin_ia32_broadcasti64x4_512"  # loads that blend, and do not move
    table["concat", "i64", 8] = Instruction(f"{blend}($b, {blend}($a, ({wide}){{0}}, 0xff), 0xf0)")
    return table


def _masked_store(suffix: str, vector: str, mask: str, narrow: bool) -> Instruction:
    """A store of the lanes whose bits are set. GCC would store a part of a wider register by a
    masked VEXTRACT, which faults on memory that the mask leaves out: a part is a value of its own.
    """
    store = f"__builtin_ia32_store{suffix}_mask((void *)$p, {{}}, {mask}($bits))"
    if not narrow:
        return Instruction(store.format(f"({vector})$v"), gcc=False)
    part = f'{vector} fb_v = ({vector})$v; __asm__("" : "+v"(fb_v));'
    return Instruction(f"({{ {part} {store.format('fb_v')}; }})", gcc=False)


def _masked() -> Table:
    """Loads and stores that leave lanes out."""
    table = {}
    for (bits, lanes), suffix in _MASKED.items():
        vector, mask = f"i{bits}x{lanes}", f"({_MASK_TYPES[lanes]})"
        if lanes == 32:  # the types of units have 16 lanes at most
            vector = "short __attribute__((vector_size(64)))"
        load = _ia32(
            f"load{suffix}_mask((const void *)$p, ({vector})$other, {mask}($bits))", gcc=False
        )
        store = _masked_store(suffix, vector, mask, bits * lanes < 512)
        for letter in "fiu":
            table["load", f"{letter}{bits}", lanes] = load
            table["store", f"{letter}{bits}", lanes] = store
    return table


def _groups() -> Table:
    """Products of groups of narrow numbers. The instruction that rounds to bfloat16 takes numbers
    below the normal ones for zero and preserves a NaN's bits."""
    pairs, quads = "avx512_bf16", "avx512_vnni"
    dot = '%2, %1, %0" : "+v"($c) : "v"($b), "v"($a));'
    return {
        ("dot_pairs", "f32", 16): Instruction(f'__asm__("vdpbf16ps {dot}', False, pairs),
        ("dot_quads", "i32", 16): Instruction(f'__asm__("vpdpbusd {dot}', False, quads),
        ("narrow", "f32", 16): Instruction(
            '__asm__("vcvtneps2bf16 %1, %0" : "=v"($y) : "v"($a));', False, pairs
        ),
        ("narrow_fails", "f32", 16): _ia32(
            "fpclassps512_mask($a, 0xa1, (unsigned short)-1)", gcc=False, extension=pairs
        ),
    }


_HALVES = {
    ("from_half", "f32", 8): _ia32("vcvtph2ps256((i16x8)$a)"),
    ("to_half", "f32", 8): _ia32("vcvtps2ph256($a, 0)"),
}
_BELOW = _ia32(
    "movmskpd256((double __attribute__((vector_size(32))))"
    "((long long __attribute__((vector_size(32))))$a < $limit))",
    gcc=False,
)
_SUFFIXES = {128: "", 256: "256"}  # of builtins, by the bits of a register
_BETWEEN = {
    ("between", f"{letter}{bits}", size // bits): _ia32(
        f"maskload{precision}{suffix}((const f{bits}x{size // bits} *)$p, $inside)", gcc=False
    )
    for bits, precision in ((32, "ps"), (64, "pd"))
    for size, suffix in _SUFFIXES.items()
    for letter in "fiu"
    if size // bits >= 4
}
_TESTED = "(long long __attribute__((vector_size({}))))$mask"
_ANY = {
    ("any", f"i{bits}", size // bits): _ia32(
        f"ptestz{size}({_TESTED.format(size // 8)}, {_TESTED.format(size // 8)}) == 0"
    )
    for bits in (32, 64)
    for size in _SUFFIXES
    if size // bits >= 4
}
_AVX2_TABLE = {**_registers(128), **_registers(256), **_HALVES}

_WIDEN = {("widen", "f64", 4): _ia32("cvtps2pd256($a)")}

AVX512 = Target(
    "avx512",
    64,
    heights=(14, 8, 4, 2, 1),
    complex_heights=(6, 4, 2, 1),
    gemv_heights=(4, 2, 1),
    gemv_transposed=16,
    flags=_AVX2_FLAGS + _AVX512_FLAGS,
    machines=_MACHINES,
    features=_AVX2_FEATURES | _AVX512_FEATURES,
    masks=True,
    table={**_AVX2_TABLE, **_wide(), **_masked(), **_groups()},
)
AVX2 = Target(
    "avx2",
    32,
    heights=(6, 4, 2, 1),
    complex_heights=(4, 2, 1),
    gemv_heights=(2, 1),
    gemv_transposed=4,
    flags=_AVX2_FLAGS,
    machines=_MACHINES,
    features=_AVX2_FEATURES,
    table={**_AVX2_TABLE, **_BETWEEN, **_ANY, **_WIDEN, ("below", "u64", 4): _BELOW},
)

__all__ = ["AVX2", "AVX512"]
