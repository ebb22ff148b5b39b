"""Gradients of operations with more results than the usual call has arguments."""

import pytest

import flambeau as torch


@pytest.mark.parametrize("count", [46, 47, 48, 49, 200])
def test_gradient_through_many_pieces(count):
    x = torch.randn(count, 3, requires_grad=True)
    scales = [float(i) for i in range(count)]
    total = sum((piece * s).sum() for piece, s in zip(x.unbind(0), scales))
    [unbound] = torch.autograd.grad(total, x)
    [split] = torch.autograd.grad(torch.stack([p * s for p, s in zip(x.split(1), scales)]).sum(), x)
    wanted = torch.tensor(scales).unsqueeze(1).expand(count, 3)
    assert torch.equal(unbound, wanted) and torch.equal(split, wanted)


def test_a_long_sequence_trains():
    layer = torch.nn.LSTM(3, 4)
    layer(torch.randn(64, 2, 3))[0].sum().backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in layer.parameters())
