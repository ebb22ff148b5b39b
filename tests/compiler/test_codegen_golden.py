"""The C text of a few kernels, kept under tests/compiler/golden (`pytest --update-golden`)."""

from __future__ import annotations

import pytest
from kernel_reference import KK, N0, N1, P0, R, const, op
from test_codegen_run import column_softmax_kernel, reduction_kernels, softmax_kernel

from flambeau.compiler.codegen import key_of, symbol_of
from flambeau.compiler.codegen.c.printer.c_printer import print_kernel
from flambeau.compiler.codegen.c.printer.c_unit import render
from flambeau.compiler.targets import TARGETS
from flambeau.ir import kernel as K
from flambeau.ir import size as S
from flambeau.ir.kernel import Kernel, Pass, ScanPass


def _add():
    value = op("mul", op("add", K.load(0, R, "f32"), K.load(1, R, "f32")), const(0.5))
    return Kernel(
        "map", (("f32", "r"), ("f32", "r"), ("f32", "w")), 1, (), (), N0,
        (Pass(stores=((2, R, value),)),),
    )  # fmt: skip


def _half_transpose():
    turned = K.load(0, S.add(P0, S.mul(R, N1)), "bf16")
    value = op("cast", op("exp", op("cast", turned, dtype="f32")), dtype="bf16")
    return Kernel(
        "map", (("bf16", "r"), ("bf16", "w")), 3, (), (N1,), N0,
        (Pass(stores=((1, S.add(S.mul(P0, N0), R), value),)),), tiled=True,
    )  # fmt: skip


def _cumulative_sum():
    index = S.add(S.mul(KK, N1), R)
    return Kernel(
        "scan", (("f64", "r"), ("f64", "w")), 3, (), (), N1,
        (ScanPass((("c", "sum", K.load(0, index, "f64")),), ((1, index, K.carry("c", "f64")),)),),
        reduce=N0,
    )  # fmt: skip


KERNELS = {
    "add": _add,
    "softmax": softmax_kernel,
    "column_softmax": column_softmax_kernel,
    "argmax": lambda: reduction_kernels("argmax", "f32")[0],
    "half_transpose": _half_transpose,
    "cumulative_sum": _cumulative_sum,
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("target", ["avx512", "avx2"])
def test_text(golden, name, target):
    golden(f"{name}.{target}.c", print_kernel(KERNELS[name](), TARGETS[target]))


def test_printing_is_a_pure_function():
    for make in KERNELS.values():
        assert print_kernel(make(), TARGETS["avx2"]) == print_kernel(make(), TARGETS["avx2"])


def test_a_unit_holds_each_helper_once():
    target = TARGETS["avx512"]
    text = print_kernel(softmax_kernel(), target)
    unit = render([("fb_one", text), ("fb_two", text)], target)
    assert unit.count("f32x16 fb_exp_f32x16(f32x16 x) {") == 1
    assert unit.count("void fb_one(") == unit.count("void fb_two(") == 1
    assert "#include" not in unit


def test_keys_name_everything_that_matters():
    kernel, target = _add(), TARGETS["avx512"]
    key = key_of(kernel, target, "gcc 12")
    assert key == key_of(_add(), target, "gcc 12")
    others = [
        key_of(kernel, target, "gcc 13"),
        key_of(kernel, TARGETS["avx2"], "gcc 12"),
        key_of(_cumulative_sum(), target, "gcc 12"),
    ]
    assert len({key, *others}) == 4
    assert symbol_of(key) == f"fb_{key[:16]}"
