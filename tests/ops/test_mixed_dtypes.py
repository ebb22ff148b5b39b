"""Operands of different kinds of number: what PyTorch refuses is refused, with its error type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
import flambeau.nn.functional as F

HALVES = torch.tensor([0.5, 1.0, 2.0])
WIDE = HALVES.double()
COUNTS = torch.tensor([1, 2, 3])
MASK = torch.tensor([True, False, True])
COMPLEX = torch.tensor([1 + 1j, 2j, 3])

REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "float_power_": (lambda: HALVES.clone().float_power_(2), RuntimeError, "requires dtype Double"),
    "float_power_ of integers": (
        lambda: COUNTS.clone().float_power_(WIDE),
        RuntimeError,
        "can't be cast|requires dtype Double",
    ),
    "complex float_power_": (
        lambda: COMPLEX.clone().float_power_(2),
        RuntimeError,
        "requires dtype ComplexDouble",
    ),
    "igamma": (lambda: torch.igamma(COUNTS, COUNTS), NotImplementedError, "igamma"),
    "igamma_": (lambda: COUNTS.clone().igamma_(COUNTS), NotImplementedError, "igamma"),
    "igammac": (lambda: torch.igammac(HALVES, COMPLEX), NotImplementedError, "igammac"),
    "kl_div": (lambda: F.kl_div(HALVES, COUNTS), RuntimeError, "Integral inputs not supported"),
    "kl_div of masks": (lambda: F.kl_div(MASK, HALVES), RuntimeError, "Integral inputs not"),
    "complex kl_div": (lambda: F.kl_div(HALVES, COMPLEX), RuntimeError, "Complex inputs not"),
    "l1_loss": (lambda: F.l1_loss(HALVES, MASK), RuntimeError, "with a bool tensor"),
    "l1_loss of masks": (lambda: F.l1_loss(MASK, MASK), RuntimeError, "with two bool tensors"),
    "gaussian_nll_loss": (
        lambda: F.gaussian_nll_loss(HALVES, MASK, HALVES),
        RuntimeError,
        "with a bool tensor",
    ),
    "margin_ranking_loss": (
        lambda: F.margin_ranking_loss(HALVES, MASK, HALVES),
        RuntimeError,
        "with a bool tensor",
    ),
    "triplet_margin_loss": (
        lambda: F.triplet_margin_loss(HALVES, HALVES, MASK),
        RuntimeError,
        "with a bool tensor",
    ),
    "multilabel_soft_margin_loss": (
        lambda: F.multilabel_soft_margin_loss(HALVES, MASK),
        RuntimeError,
        "bool tensor",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    call, kind, text = REFUSED[name]
    with pytest.raises(kind, match=text):
        call()


def test_what_stays_allowed() -> None:
    assert WIDE.clone().float_power_(2).tolist() == [0.25, 1.0, 4.0]
    assert torch.igamma(COUNTS, HALVES).dtype == torch.float32
    assert F.kl_div(HALVES, WIDE, reduction="sum").dtype == torch.float64
    assert F.l1_loss(HALVES, COUNTS).item() == pytest.approx(5 / 6)
    assert F.mse_loss(HALVES, MASK).dtype == torch.float32
