"""Operands that are rolled, padded or concatenated: whole vectors, with the bits of eager mode."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import flambeau as torch
from flambeau.compiler import targets
from flambeau.compiler.codegen.c.printer.c_printer import print_kernel
from flambeau.compiler.codegen.c.printer.c_runs import EDGES_LIMIT, edges_of, sources
from flambeau.ir import kernel as k
from flambeau.ir.kernel import Kernel, Pass
from flambeau.ir.node import Node, node
from flambeau.ir.size import Size, evaluate, symbol
from tests.compiler.block_harness import bits, on_tier

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool]
SIZES = [(1, 1), (2, 7), (3, 8), (16, 9), (7, 33), (33, 100)]
SHIFTS = [(1, 0), (-1, 1), (5, 1), (-13, 0), (1_000_003, 1), (-96, 1), ((2, -3), (0, 1))]
R, N0, N1 = symbol("r"), symbol("n0"), symbol("n1")


def numbers(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Numbers of a dtype; those of floats have NaN, infinities and a negative zero among them."""
    values = torch.randn(shape) * 100
    if dtype.is_floating_point and values.numel() > 4:
        special = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
        values.view(-1)[:4] = special
    return values > 0 if dtype == torch.bool else values.to(dtype)


def joined(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Two operands as one, in an order that matters."""
    return a ^ ~b if a.dtype == torch.bool else a - b * 3


def rolled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for shift, dim in SHIFTS:
        y = joined(y, x.roll(shift, dim))
    return y


def parts(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Concatenated along both dimensions, flipped, padded."""
    wide = joined(torch.cat([y, x, y.flip(1)], 1), torch.cat([x, x, y], 1))
    padded = torch.nn.functional.pad(wide, (2, 3, 1, 0), value=1)
    return joined(
        padded, torch.cat([wide, wide[:1]], 0).roll(3, 1).repeat(1, 3)[:, : padded.shape[1]]
    )


def neighbours(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The gradient of a stencil: reads that are padded, of values that are computed where read."""
    x = x.clone().requires_grad_()
    around = (
        (x * 2).roll(1, 0) + (x * 2).roll(-1, 1) + torch.nn.functional.pad(x, (1, 1))[:, 2:] * y
    )
    (gradient,) = torch.autograd.grad(around.square().mean(), x)
    return gradient


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("function", [rolled, parts, neighbours])
def test_bits_are_those_of_eager_mode(function: Callable, dtype: torch.dtype) -> None:
    if function is neighbours and not dtype.is_floating_point:
        pytest.skip("it has no gradient")
    compiled = torch.compile(function)
    for shape in SIZES:
        x, y = numbers(shape, dtype), numbers(shape, dtype)
        assert bits(compiled(x, y)) == bits(function(x, y)), shape


def test_rolled_reads_are_numpys() -> None:
    compiled = torch.compile(lambda x, y: x.roll((4, -5), (0, 1)) + y.roll(1, 1))
    for shape in SIZES:
        x, y = torch.randn(shape), torch.randn(shape)
        expected = np.roll(x.numpy(), (4, -5), (0, 1)) + np.roll(y.numpy(), 1, 1)
        assert np.array_equal(compiled(x, y).numpy(), expected), shape


@pytest.mark.parametrize("function", [rolled, parts, neighbours])
def test_tiers_agree(function: Callable) -> None:
    x, y = numbers((9, 37), torch.float32), numbers((9, 37), torch.float32)
    calls = [lambda: torch.compile(function)(x, y)]
    assert on_tier("baseline", calls) == on_tier("compiled", calls) == [bits(function(x, y))]


def test_operands_that_are_not_contiguous() -> None:
    compiled = torch.compile(rolled)
    x = torch.randn(40, 60)
    for view in (x.t()[::2, 1:21], x[::2, ::3], x[:20, 7:27], x[0, :20].expand(20, 20)):
        y = torch.randn(view.shape)
        assert bits(compiled(view, y)) == bits(rolled(view, y))


@pytest.mark.parametrize("threads", [1, 2])
def test_every_number_of_threads(threads: int) -> None:
    x, y = torch.randn(301, 307), torch.randn(301, 307)
    expected = bits(rolled(x, y)), bits(neighbours(x, y))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert bits(torch.compile(rolled)(x, y)) == expected[0]
        assert bits(torch.compile(neighbours)(x, y)) == expected[1]
    finally:
        torch.set_num_threads(before)


# ------------------------------------------------------------------------------- kernels


def kernels_of(function: Callable, *arguments: torch.Tensor) -> list[str]:
    """The texts of a function's launches."""
    texts = {name: text for name, _, text in torch.compiler.stages(function, *arguments)}
    return texts["lower"].split("\nlaunch ")[1:]


def test_values_that_are_rolled_are_computed_once_an_element() -> None:
    [launch] = kernels_of(lambda x: 1 - (x * 3).roll(1, 0), torch.randn(5, 6))
    assert launch.count(" = mul ") == 1


def test_a_sum_of_rolled_values_divides_no_position() -> None:
    launches = kernels_of(lambda x: (x - x.roll(1, 1)).square().sum(), torch.randn(96, 96))
    assert len(launches) > 1 and not any(
        "%" in line for line in "".join(launches).split() if "p0" in line
    )


def compared(op: str, left: Size, right: Size) -> Node:
    return node(op, (k.index(left), k.index(right)), (), "bool")


def test_edges_are_where_a_comparison_changes() -> None:
    holds = {
        "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
        "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    }  # fmt: skip
    for op, function in holds.items():
        for left, right in ((R, N0), (N0, R), (R + N1, N0 + 3), (N0 - R, N1)):
            edges = edges_of(compared(op, left, right))
            assert edges is not None
            at = {"n0": 11, "n1": 4}
            results = [
                function(*(evaluate(side, {**at, "r": r}) for side in (left, right)))
                for r in range(-30, 30)
            ]
            changes = {r for r in range(-29, 30) if results[r + 30] != results[r + 29]}
            assert changes == {evaluate(edge, at) for edge in edges}
    assert edges_of(compared("lt", 2 * R, N0)) is None


def rolled_kernel(edges: int) -> Kernel:
    """A map of loads with so many edges."""
    total = k.load(0, R, "f32")
    for shift in range(1, edges + 1):
        before, after = compared("lt", R, shift), compared("ge", R, shift)
        first = k.load(0, R - shift + N0, "f32", mask=before)
        second = k.load(0, R - shift, "f32", mask=after)
        total = node("add", (total, node("where", (before, first, second), (), "f32")), (), "f32")
    return Kernel("map", (("f32", "r"), ("f32", "w")), 1, (), (), N0, (Pass(((1, R, total),)),))


@pytest.mark.parametrize("target", targets.TARGETS)
def test_whole_vectors_between_edges_need_no_mask(target: str) -> None:
    text = print_kernel(rolled_kernel(2), targets.TARGETS[target])
    run, single = text.split("while (r < inner)")[1].split("break;")
    assert "fb_loadif" not in run and single.count("fb_loadif") == 4
    assert "while (r < inner)" not in print_kernel(
        rolled_kernel(EDGES_LIMIT + 1), targets.TARGETS[target]
    )


def test_a_choice_of_loads_needs_masks_that_hold() -> None:
    before, after = compared("lt", R, N0), compared("ge", R, N0)
    first, second = (k.load(0, R, "f32", mask=mask) for mask in (before, after))
    good = node("where", (before, first, second), (), "f32")
    assert sources(good) == [first, second, good]
    assert sources(node("where", (after, first, second), (), "f32")) is None
