"""Convolutions as implicit products: the matrix of windows exists only as a tile in cache.

The template "convolution" has two passes, chosen by its setting "pass":

    places   out[o, place] = sum over (c, tap) of weight[o, (c, tap)] * window[(c, tap), place]:
             convolutions, and gradients of the input. Those are convolutions of the gradient, one
             per phase of the strides, with the taps that meet this phase.
    weight   dw[o, (c, tap)] = sum over places of dy[o, place] * window[(c, tap), place].

A chunk of the launch is a tile of results. For 256 elements of K at a time the windows of the tile
are gathered from the image in whole vectors, the other operand is packed as for a product, and the
micro-kernels of `c_micro` do the rest: the sum's order is that of a product over the same K. What
lies outside of the image is zero. Which axes there are and where they lie is told by the size
arguments, in the order of `SIZES`.
"""

from __future__ import annotations

import re

from flambeau.compiler.codegen.c_convolution_text import (
    DESTINATION,
    IMAGE,
    PARTS,
    PLACES,
    SUMS,
    WEIGHT,
)
from flambeau.compiler.codegen.c_epilogue import EPILOGUE, print_epilogue
from flambeau.compiler.codegen.c_forms import ARGUMENTS, SYMBOL
from flambeau.compiler.codegen.c_micro import CHUNK, Micro
from flambeau.compiler.codegen.c_types import MEMORY_KIND, kind_bits
from flambeau.compiler.targets import Target
from flambeau.ir.kernel import Kernel

# The size arguments of every launch. "x" is what windows are taken of, "y" what has a place per
# window; an axis is counted 0, 1, 2, the last one along rows.
SIZES = (
    "batch", "groups", "outer", "inner",  # channels of a group: of y, of x
    "x0", "x1", "x2", "y0", "y1", "y2", "kernel0", "kernel1", "kernel2",
    "stride0", "stride1", "stride2", "dilation0", "dilation1", "dilation2", "low0", "low1", "low2",
    # strides in elements
    "xs_batch", "xs_channel", "xs0", "xs1", "xs2", "ys_batch", "ys_channel", "ys0", "ys1", "ys2",
    "ws_outer", "ws_inner", "ws0", "ws1", "ws2",
    # tiles: of columns and rows, how many, and how many elements of K are one part of a sum
    "columns", "rows", "column_tiles", "row_tiles", "part", "parts",
)  # fmt: skip
_NUMBER = {name: i for i, name in enumerate(SIZES)}
_SIZE = re.compile(r"\$(\w+)")
_NAME = re.compile(r"@(\w+)@")

PASSES = {
    "places": (IMAGE, DESTINATION, PLACES),
    "weight": (IMAGE, SUMS, WEIGHT),
    "parts": (SUMS, PARTS),
}


def spelled(text: str, names: dict[str, str]) -> str:
    """C text with `$size` as the size argument and `@name@` as what the names say."""
    text = _SIZE.sub(lambda found: f"n[{_NUMBER[found[1]]}]", text)
    return _NAME.sub(lambda found: names[found[1]], text)


def print_template(kernel: Kernel, target: Target) -> str:
    """C text of the kernel.

    Settings: "pass", "gradient" (of pass "places": of the input), "stored" (element type of the
    operands), "result" (of the results).
    """
    stored = str(kernel.setting("stored"))
    micro = Micro.of("f64" if stored == "f64" else "f32", target)
    names = {
        "K": micro.kind,
        "I": "i" + micro.kind[1:],
        "B": "b",
        "T": MEMORY_KIND[stored] + "x1",
        "V": f"{micro.kind}x{micro.lanes}",
        "L": str(micro.lanes),
        "W": str(micro.columns),
        "R": str(micro.rows),
        "CHUNK": str(CHUNK),
        "fb": SYMBOL,
        "micro": micro.name,
        "pack": micro.packing_name(micro.kind),
        "arguments": ARGUMENTS,
        "gradient": "1" if kernel.setting("gradient") else "0",
        "fused": "1" if kernel.body else "0",
        "epilogue": EPILOGUE,
        "load": _masked_load(micro.kind, micro.lanes),
    }
    parts = [micro.text(), micro.packing(micro.kind)]
    if kernel.body:
        parts.append(print_epilogue(kernel, target))
    parts.extend(spelled(text, names) for text in PASSES[str(kernel.setting("pass"))])
    return "".join(parts)


def _masked_load(kind: str, lanes: int) -> str:
    """Statements that return the lanes of `from` in [first, last), the others zero."""
    bits, v = kind_bits(kind), f"{kind}x{lanes}"
    integer = f"i{bits}x{lanes}"
    suffix = "si" if bits == 32 else "di"
    mask = "unsigned short" if lanes == 16 else "unsigned char"
    steps = ", ".join(map(str, range(lanes)))
    plain = (
        f"  union {{ {v} v; {kind}x1 t[{lanes}]; }} u = {{ ({v}){{0}} }};\n"
        f"  for (int l = 0; l < {lanes}; ++l) if (l >= first && l < last) u.t[l] = from[l];\n"
        "  return u.v;"
    )
    if bits * lanes == 512:
        call = f"__builtin_ia32_loaddqu{suffix}512_mask((const void *)from, ({integer}){{0}}, "
        bound = "(((1u << last) - 1u) & ~((1u << first) - 1u))"
        return f"#ifdef __AVX512VL__\n  return ({v}){call}({mask}){bound});\n#else\n{plain}\n#endif"
    if bits * lanes == 256:
        name = "ps" if bits == 32 else "pd"
        here = f"({integer}){{{steps}}}"
        inside = f"({here} >= (i{bits}x1)first) & ({here} < (i{bits}x1)last)"
        return (
            f"#ifdef __AVX2__\n  return ({v})__builtin_ia32_maskload{name}256((const {v} *)from, "
            f"({integer})({inside}));\n#else\n{plain}\n#endif"
        )
    return plain
