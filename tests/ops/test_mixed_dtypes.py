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
    "triplet_margin_with_distance_loss": (
        lambda: F.triplet_margin_with_distance_loss(HALVES, HALVES, MASK),
        RuntimeError,
        "with a bool tensor",
    ),
    "binary_cross_entropy_with_logits": (
        lambda: F.binary_cross_entropy_with_logits(HALVES, COUNTS),
        RuntimeError,
        "result type Float can't be cast to the desired output type Long",
    ),
    "binary_cross_entropy_with_logits of masks": (
        lambda: F.binary_cross_entropy_with_logits(HALVES, MASK),
        RuntimeError,
        "two bool tensors",
    ),
    "binary_cross_entropy_with_logits of integers": (
        lambda: F.binary_cross_entropy_with_logits(COUNTS, HALVES),
        NotImplementedError,
        "binary_cross_entropy_with_logits",
    ),
    "complex mse_loss": (lambda: F.mse_loss(HALVES, COMPLEX), NotImplementedError, "mse_loss"),
    "complex smooth_l1_loss": (
        lambda: F.smooth_l1_loss(HALVES, COMPLEX),
        NotImplementedError,
        "smooth_l1_loss",
    ),
    "complex soft_margin_loss": (
        lambda: F.soft_margin_loss(HALVES, COMPLEX),
        RuntimeError,
        "can't be cast",
    ),
    "poisson_nll_loss": (
        lambda: F.poisson_nll_loss(HALVES, MASK, full=True),
        RuntimeError,
        "two bool tensors",
    ),
    "integer variances": (
        lambda: F.gaussian_nll_loss(HALVES, HALVES, COUNTS),
        RuntimeError,
        "can't be cast",
    ),
    "two half types": (
        lambda: F.layer_norm(HALVES.half(), (3,), HALVES.bfloat16()),
        RuntimeError,
        "mixed dtype",
    ),
    "half weights of a norm": (
        lambda: F.layer_norm(HALVES, (3,), HALVES.half()),
        RuntimeError,
        "mixed dtype",
    ),
    "tolerance": (
        lambda: torch.linalg.matrix_rank(torch.eye(2), atol=torch.tensor(1j)),
        RuntimeError,
        "complex type is not supported",
    ),
    "isin": (lambda: torch.isin(MASK, COUNTS), RuntimeError, "Unsupported input type"),
    "gather of bytes": (
        lambda: torch.gather(HALVES, 0, COUNTS.byte() - 1),
        RuntimeError,
        "Expected dtype int32/int64",
    ),
    "index_copy": (
        lambda: HALVES.index_copy(0, COUNTS.int() - 1, HALVES),
        RuntimeError,
        "Expected a long tensor",
    ),
    "index_fill": (
        lambda: HALVES.index_fill(0, COUNTS.int() - 1, 2.0),
        IndexError,
        "Expected a long tensor",
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


def test_dtypes_of_losses() -> None:
    """Integers count as the default dtype where a quotient or an exponential is taken of them."""
    half, pairs = HALVES.half(), COUNTS.expand(1, 3)
    assert F.poisson_nll_loss(COUNTS, half).dtype == torch.float32
    assert F.poisson_nll_loss(half, COUNTS).dtype == torch.float16
    assert F.triplet_margin_loss(half[None], pairs, pairs).dtype == torch.float16
    assert F.triplet_margin_loss(half[None], pairs, pairs, swap=True).dtype == torch.float32
    assert F.cosine_embedding_loss(half, COUNTS, torch.tensor(1)).dtype == torch.float32
    assert F.cosine_embedding_loss(WIDE, HALVES, torch.tensor(1)).dtype == torch.float64
    assert F.binary_cross_entropy_with_logits(HALVES, half).dtype == torch.float16
    assert F.binary_cross_entropy_with_logits(HALVES, WIDE).dtype == torch.float64
    assert F.rms_norm(HALVES, (3,), WIDE).dtype == torch.float32


def test_masks_as_labels() -> None:
    loss = F.hinge_embedding_loss(HALVES, MASK, reduction="none")
    assert loss.tolist() == F.hinge_embedding_loss(HALVES, MASK.long(), reduction="none").tolist()
    numbers = torch.tensor([0.5, 0.0, 2.0])  # as masks they are True where they are not zero
    assert torch.masked.sum(HALVES, 0, mask=numbers).item() == 2.5
    assert torch.masked.cumsum(COUNTS.int(), 0, mask=MASK).dtype == torch.int32


def test_type_as_takes_nothing_but_the_dtype() -> None:
    """The other tensor may have more dimensions; its strides do not order the result's."""
    other = torch.zeros(2, 3, 4, dtype=torch.float64).transpose(1, 2)
    for values in (HALVES, torch.rand(6)[::2], torch.rand(2, 3).t(), torch.rand(3, 4)[:, ::2]):
        converted = values.type_as(other)
        assert torch.equal(converted, values.double())
        assert converted.stride() == values.double().stride()
    assert torch.rand(3, 4).t().type_as(other[0].t()).stride() == (1, 4)
