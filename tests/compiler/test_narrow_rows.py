"""Rows of few elements: the bits of the canonical order, at every width, also in the middle."""

from __future__ import annotations

import pytest

import flambeau as torch

WIDTHS = (0, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 24, 31, 32, 33, 40)


@pytest.mark.parametrize("dtype", ("float32", "float64", "bfloat16", "int64"))
@pytest.mark.parametrize("operation", ("sum", "prod", "amax"))
def test_narrow_rows_have_the_bits_of_columns(operation, dtype):
    def reduce(x, dim):
        return getattr(x * 2, operation)(dim)

    for width in WIDTHS:
        if not width and operation == "amax":
            continue
        for rows in (1, 35):
            x = (torch.randn(rows, width) * 3).to(getattr(torch, dtype))
            if width and dtype != "int64":
                x[rows // 2] = -0.0
                x[0, -1] = float("nan")
                x[-1, 0] = float("inf")
            found = reduce(x, 1)
            assert torch.equal(found.view(-1).isnan(), reduce(x.t().contiguous(), 0).isnan())
            assert torch.equal(found.nan_to_num(), reduce(x.t().contiguous(), 0).nan_to_num())
            assert torch.equal(found.signbit(), reduce(x.t().contiguous(), 0).signbit())


def test_narrow_rows_on_any_threads():
    x = torch.randn(70_001, 5)
    found = []
    for threads in (1, 2, 3, 7):
        torch.set_num_threads(threads)
        found.append(x.sum(1))
    assert all(torch.equal(found[0], each) for each in found[1:])
    assert torch.equal(found[0][66_666], x[66_666].sum())


def test_pieces_of_a_repeated_number():
    """Rows whose lengths differ are pieces of a long sum."""
    for count in (2, 4097, 70_001):
        assert torch.full((1,), 0.5, dtype=torch.float64).expand(count).sum().item() == count / 2
