"""Functions that product kernels of a translation unit have in common."""

from __future__ import annotations

import re

import pytest

import flambeau as torch
from flambeau.compiler import codegen, targets
from flambeau.compiler.codegen.c.printer import c_unit

_DEFINED = re.compile(r"^(?:FB_SHARED|static inline FB_ALWAYS) .*?(fb_\w+)\(", re.MULTILINE)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Kernels of a product and of one that is added to."""
    x, y, z = torch.randn(6, 5), torch.randn(5, 7), torch.randn(6, 7)
    with codegen.collect() as kernels:
        torch.compile(lambda a, b: a @ b)(x, y)
        torch.compile(lambda a, b, c: torch.addmm(c, a, b, beta=0.5, alpha=3.0))(x, y, z)
    found = {codegen.print_kernel(kernel, targets.current()) for kernel in kernels}
    return sorted(text for text in found if "FB_SHARED" in text)


def _shared(text: str) -> set[str]:
    names = _DEFINED.findall(c_unit.render([("fb_first", text)], targets.current()))
    return {name for name in names if name.startswith("fb_shared_")}


def test_a_unit_defines_each_function_once(texts):
    one, other, *_ = texts
    defined = _DEFINED.findall(
        c_unit.render([("fb_first", one), ("fb_second", other)], targets.current())
    )
    assert len(defined) == len(set(defined))
    assert _shared(one) and _shared(one) & _shared(other)
    assert set(defined) >= _shared(one) | _shared(other)


def test_functions_with_other_texts_are_not_shared(texts):
    text = texts[0]
    changed = text.replace("__builtin_prefetch", "(void)sizeof")
    assert _shared(text) - _shared(changed) and _shared(changed) - _shared(text)
    both = _DEFINED.findall(
        c_unit.render([("fb_first", text), ("fb_second", changed)], targets.current())
    )
    assert set(both) >= _shared(text) | _shared(changed)


def test_a_function_of_the_kernels_own_stays_with_it():
    text = (
        "static void fb_kernel_other(void) {\n}\n"
        "FB_SHARED void fb_kernel_calls(void) {\n  fb_kernel_other();\n}\n"
        "static inline FB_ALWAYS int fb_kernel_small(void) { return 1; }\n"
        "FB_SHARED int fb_kernel_alone(void) {\n  return fb_kernel_small();\n}\n"
        "void fb_kernel(void) { fb_kernel_calls(); fb_kernel_alone(); }\n"
    )
    unit = c_unit.render([("fb_first", text), ("fb_second", text)], targets.current())
    assert unit.count("FB_SHARED void fb_first_calls(") == 1
    assert unit.count("FB_SHARED void fb_second_calls(") == 1
    assert len(re.findall(r"FB_SHARED int fb_shared_\w+_alone\(", unit)) == 1
    assert len(re.findall(r"int fb_shared_\w+_small\(void\) \{ return 1", unit)) == 1
