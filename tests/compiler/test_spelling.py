"""`spell`: every pointwise primitive as a C expression, and the helpers that it calls."""

from __future__ import annotations

import subprocess

import pytest

import flambeau  # noqa: F401  (registers the primitives)
from flambeau.compiler import targets, toolchain
from flambeau.compiler.codegen.c.math import library
from flambeau.compiler.codegen.c.printer.c_spelling import Spelled, spell
from flambeau.compiler.codegen.c.printer.c_types import Lanes
from flambeau.compiler.codegen.c.printer.c_unit import render
from flambeau.ir.spelling import SPELLINGS

DTYPES = {
    "f": ("f32", "f64", "f16", "bf16"),
    "i": ("i8", "u8", "i16", "i32", "i64", "u64"),
    "b": ("bool",),
}
CASTS = (*DTYPES["f"], *DTYPES["i"], "bool", "e4m3fn", "e8m0fnu")


def cases():
    """(primitive, dtypes of its operands, dtype of its result)."""
    for name, spelling in SPELLINGS.items():
        for group, template in spelling.c.items():
            count = sum(f"{{{letter}}}" in template for letter in "abc")
            for dtype in DTYPES.get(group, ()):
                if name == "where":
                    yield name, ("bool", dtype, dtype), dtype
                else:
                    compares = template.startswith("?") or spelling.compares
                    yield name, (dtype,) * count, "bool" if compares else dtype
    yield from (("cast", (source,), dtype) for source in CASTS for dtype in CASTS)


def function(number: int, spelled: Spelled) -> str:
    parameters = ", ".join(f"{kind} {name}" for kind, name in zip(spelled.types, "abc"))
    return f"{spelled.type} f{number}({parameters}) {{ return {spelled.text}; }}\n"


@pytest.mark.parametrize("count", [1, 4, 8, 16])
def test_every_primitive_compiles(count):
    compiler, target = toolchain.find(), targets.current()
    for bits in (32, 64):
        spellings = [spell(*case, Lanes(count, bits)) for case in cases()]
        texts = [function(number, spelled) for number, spelled in enumerate(spellings)]
        source = render([("fb_functions", "".join(texts))], target)
        flags = [*compiler.flags(target), "-Wall", "-Werror", "-fsyntax-only", "-x", "c", "-"]
        command = [*compiler.command, *flags]
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:2000]


def test_helpers_are_those_of_the_text():
    spelled = spell("maximum", ("bf16", "bf16"), "bf16", Lanes(8, 32))
    assert spelled.types == ("f32x8", "f32x8") and spelled.type == "f32x8"
    assert set(spelled.helpers) == {"fb_select_f32x8", "fb_gt_x8", "fb_ne_x8"}
    rounded = spell("exp", ("bf16",), "bf16", Lanes(8, 32))
    assert set(rounded.helpers) == {"fb_exp_f32x8", "fb_tobf16_u16x8", "fb_frombf16_u16x8"}
    texts = library.definitions(rounded.helpers, targets.TARGETS["generic"])
    assert any("fb_exp_series_f32x8" in helper.text for helper in texts)


def test_what_is_not_spelled_is_refused():
    with pytest.raises(NotImplementedError, match="'exp' for i32"):
        spell("exp", ("i32",), "i32", Lanes(8, 32))
