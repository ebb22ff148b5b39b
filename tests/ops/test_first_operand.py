"""Results that lie in memory as the first operand does, whatever the others look like."""

from __future__ import annotations

import pytest

import flambeau as torch
import flambeau.nn.functional as F


@pytest.mark.parametrize(
    "other", [torch.zeros(1, 1, 1, 4).expand(2, 3, 5, 4), torch.zeros(3, 2).t(), torch.zeros(())]
)
def test_type_as_takes_only_the_dtype(other: torch.Tensor) -> None:
    whole = torch.arange(6).reshape(2, 3)
    for first, strides in ((whole, (3, 1)), (whole.t(), (1, 3)), (whole[:1].expand(2, 3), (3, 1))):
        result = first.type_as(other)
        assert result.dtype == torch.float32 and result.stride() == strides
        assert result.tolist() == first.tolist()


@pytest.mark.parametrize("weights", [1, 4])
def test_prelu_keeps_the_order_of_its_input(weights: int) -> None:
    weight = torch.full((weights,), 0.5)
    value = torch.tensor([-2.0, 3.0] * 12).view(2, 3, 4).transpose(1, 2)
    result = F.prelu(value, weight)
    assert result.stride() == (12, 1, 4)
    assert torch.equal(result, torch.where(value > 0, value, value * 0.5))
    assert F.prelu(torch.zeros(4, 2).t(), weight[:1]).stride() == (1, 2)
