"""`x.real` and `x.imag`: views of a complex tensor's numbers, which may be assigned to."""

from __future__ import annotations

import pytest

import flambeau as torch

VALUES = [1 + 2j, 3 - 1j]


def test_parts_are_views() -> None:
    z = torch.tensor(VALUES)
    z.real.mul_(2)
    z.imag += 1
    assert z.tolist() == [2 + 3j, 6 + 0j]
    real = torch.ones(2)
    assert real.real is real


def test_parts_are_assigned() -> None:
    z = torch.tensor(VALUES)
    z.real = torch.tensor([5.0, 6.0])
    z.imag = 1
    assert z.tolist() == [5 + 1j, 6 + 1j]


def test_gradients_of_parts() -> None:
    z = torch.tensor(VALUES).requires_grad_()
    (z.real * z.imag).sum().backward()
    assert z.grad.tolist() == [2 + 1j, -1 + 3j]


def test_a_real_tensor_has_no_imaginary_part() -> None:
    with pytest.raises(RuntimeError, match="not implemented for tensors with non-complex dtypes"):
        _ = torch.ones(2).imag


def test_variance_of_what_a_mask_leaves() -> None:
    z = torch.tensor([*VALUES, 100j])
    mask = torch.tensor([True, True, False])
    expected = z[:2].var(0).to(z.dtype)
    assert torch.allclose(torch.masked.var(z, 0, mask=mask), expected)
    assert torch.allclose(torch.masked.std(z, 0, mask=mask), expected.sqrt())
