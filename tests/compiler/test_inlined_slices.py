"""Slices of slices: a value that is read at many positions is stored, not inlined at each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau import prims
from flambeau.compiler.dry_run import dry_run
from flambeau.compiler.pipeline import schedule
from flambeau.compiler.schedule.fusion_roots import SIZE_LIMIT
from tests.compiler.kernel_interpreter import check_graph
from tests.prims.composites import make_graph

LINES = 500  # of one kernel; 14,191 where every level of slices was inlined
SHAPES = [(8,), (64,), (512,), (5, 5, 5), (3, 3, 3, 3), (7, 100)]


def lines_of(program: Any) -> list[int]:
    """The lines of each kernel that a program needs, none of them compiled."""
    [(_, counts)] = dry_run([program], lambda ks: [str(k.text().count("\n")) for k in ks])
    return [int(count) for count in counts]


def products(function: Any, shape: tuple[int, ...], order: int) -> Any:
    """A product of complex numbers and so many derivatives of it."""

    def program() -> None:
        x = torch.ones(shape, dtype=torch.complex64, requires_grad=True)
        y = function(x).sum().abs()
        for number in range(order):
            (gradient,) = torch.autograd.grad(y, x, create_graph=number + 1 < order)
            y = gradient.sum().abs()

    return program


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_complex_products_have_short_kernels(shape: tuple[int, ...]) -> None:
    """Of 625 numbers as of 8: prod, cumprod, and two derivatives of each."""
    for function in (torch.prod, lambda x: torch.cumprod(x, -1)):
        for order in (0, 1, 2):
            counts = lines_of(products(function, shape, order))
            assert counts and max(counts) <= LINES, (shape, order, counts)


def halves(levels: int, joined: bool) -> Any:
    """Levels of sums of slices; a level in one piece, or in two that are selected from."""

    def function(x: Any) -> Any:
        for _ in range(levels):
            half = (x.shape[0] - 1) // 2
            both = prims.slice(x, 0, 0, half) * prims.slice(x, 0, half, half)
            x = prims.cat([both, prims.slice(x, 0, 2 * half, 1)], 0) if joined else both
        return x + 1

    return function


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("levels", [6, 9, 11])
def test_chains_of_slices_grow_with_their_levels(levels: int, joined: bool) -> None:
    """Each level doubles what inlining makes: its values are counted before."""
    graph = make_graph(halves(levels, joined), ["f32"], [(5000,)], ())
    kernels = [launch.kernel for launch in schedule(graph).launches if launch.kernel]
    counts = [kernel.text().count("\n") for kernel in kernels]
    assert sum(counts) <= SIZE_LIMIT * (1 + levels // 3), counts


@pytest.mark.parametrize("joined", [False, True])
def test_stored_levels_compute_the_same(joined: bool) -> None:
    """Stored or inlined, a level has the bits of the definition."""
    graph = make_graph(halves(8, joined), ["f32"], [(700,)], ())
    check_graph(graph, [np.random.default_rng(0).uniform(-2, 2, 700)])
