"""The one implementation of each elementary function, as C text pasted into kernels.

Eager and compiled kernels, vector bodies and scalar tails all call the text made here, so that a
value never depends on where it was computed: for every lane count and compiler the result has the
same bits. float32 functions are within 1.5 ulp everywhere (most within 1); float64 functions
are within 2 ulp, mostly by calling the C library lane by lane.

The text needs no headers. It assumes IEEE arithmetic in round-to-nearest and
``-ffp-contract=off``: fused multiply-adds are written where they are meant.
"""

from __future__ import annotations

import re

from .cmath_float32 import TEXTS as _FLOAT32_TEXTS
from .cmath_float64 import exact_template, float64_template
from .cmath_prelude import prelude
from .cmath_wide import WIDE, core, core_lanes, widen

__all__ = ["FUNCTIONS", "dependencies", "function_source", "prelude"]

_UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf erfc erfinv lgamma digamma rsqrt sqrt sigmoid floor ceil trunc rint"
)
_BINARY = "atan2 pow fmod nextafter"

FUNCTIONS: dict[str, int] = {name: 1 for name in _UNARY.split()} | {
    name: 2 for name in _BINARY.split()
}
"""Name of each function and its number of arguments."""


def dependencies(name: str, dtype: str) -> tuple[str, ...]:
    """Names of the functions that must be emitted before ``name`` (same dtype and lanes).

    None at present: shared inner parts come with each text, guarded so that they are seen once.
    """
    _check(name, dtype)
    return ()


def _check(name: str, dtype: str) -> None:
    if name not in FUNCTIONS or dtype not in ("f32", "f64"):
        raise NotImplementedError(
            f"[cmath] no function {name!r} for {dtype!r}\n"
            f"hint: use f32 or f64 and one of {', '.join(FUNCTIONS)}"
        )


def resolve(template: str, dtype: str, lanes: int) -> str:
    """Replaces a template's capital tokens by the types and helpers of one lane count."""
    bits = dtype[1:]
    suffix = f"x{lanes}"
    floating, signed, unsigned = (f"{kind}{bits}{suffix}" for kind in "fiu")
    tokens = {"F": floating, "I": signed, "U": unsigned, "LANES": str(lanes)}
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        tokens[name.upper()] = f"fb_{name}_{suffix}"
    for name in "fma sqrt rint floor ceil trunc abs copysign one_nan min max".split():
        tokens[name.upper()] = f"fb_{name}_{floating}"
    for letter, type_name in (("F", floating), ("I", signed), ("U", unsigned)):
        tokens[f"AS_{letter}"] = f"fb_as_{type_name}"
        tokens[f"TO_{letter}"] = f"fb_to_{type_name}"
    tokens |= {
        "SEL": f"fb_select_{floating}",
        "ISEL": f"fb_select_{signed}",
        "K": f"fb_splat_{floating}",
        "KI": f"fb_splat_{signed}",
        "ANY": f"fb_any_{signed}",
        "EACH_LANE": "" if lanes == 1 else f"for (int l = 0; l < {lanes}; ++l)",
    }
    text = re.sub(r"\bFN\((\w+)\)", rf"fb_\1_{floating}", template)
    text = re.sub(r"\bFB_GUARD\((\w+)\)", rf"FB_\1_{floating}", text)
    text = re.sub(r"\bLANE\((\w+)\)", r"\1" if lanes == 1 else r"\1[l]", text)
    return re.sub(r"\b[A-Z][A-Z_]*\b", lambda match: tokens.get(match[0], match[0]), text)


def function_source(name: str, dtype: str, lanes: int) -> str:
    """C text of ``fb_<name>_<dtype>x<lanes>``; it follows ``prelude(lanes)``."""
    _check(name, dtype)
    arguments = FUNCTIONS[name]
    if dtype == "f64":
        return resolve(float64_template(name, arguments), dtype, lanes)
    if name in WIDE:
        wide_core = resolve(core(name), "f64", core_lanes(lanes))
        return wide_core + resolve(widen(name, arguments, lanes), dtype, lanes)
    return resolve(_FLOAT32_TEXTS.get(name) or exact_template(name, arguments, dtype), dtype, lanes)
