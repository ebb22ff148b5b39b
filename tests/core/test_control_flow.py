"""`cond`, `while_loop`, `scan`, `map`, `associative_scan`, and fake quantization."""

from __future__ import annotations

import pytest

import flambeau as torch

hops = torch._higher_order_ops


def test_cond_and_its_gradient():
    x = torch.arange(3.0, requires_grad=True)
    for pred, factor in ((torch.tensor(True), 2.0), (False, 3.0)):
        y = torch.cond(pred, lambda a: a * 2, lambda a: a * 3, (x,))
        assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.full((3,), factor))
    compiled = torch.compile(
        lambda a: torch.cond(a.sum() > 1, lambda b: b.sin(), lambda b: b.cos(), (a,))
    )
    for value in (torch.zeros(2), torch.ones(2)):
        expected = value.sin() if value.sum() > 1 else value.cos()
        assert torch.equal(compiled(value), expected)


@pytest.mark.parametrize("pred", ["a", torch.ones(2) > 0, None])
def test_conditions_are_one_truth_value(pred):
    with pytest.raises(RuntimeError, match="Expected pred to be bool or"):
        torch.cond(pred, lambda: 1, lambda: 2)
    with pytest.raises(RuntimeError, match="callable"):
        torch.while_loop(1, 2, (3,))


def test_while_loop():
    last, x = torch.while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), torch.ones(2))
    )
    assert last == 3 and torch.equal(x, torch.full((2,), 8.0))


def test_scan_and_map():
    x = torch.arange(4.0)
    total, products = hops.scan(lambda c, v: (c + v, c * v), torch.zeros(()), x)
    assert total == 6 and torch.equal(products, torch.tensor([0.0, 0.0, 2.0, 9.0]))
    total, order = hops.scan(lambda c, v: (c * 2 + v, c), torch.zeros(()), x, reverse=True)
    assert total == 3 * 8 + 2 * 4 + 2 and order[-1] == 0
    rows = hops.map(lambda v, y: v + y, x, torch.ones(2))
    assert torch.equal(rows, x[:, None] + torch.ones(2))


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(length, reverse):
    x = torch.randint(-5, 5, (2, length))
    sums = hops.associative_scan(lambda a, b: a + b, x, 1, reverse=reverse)
    expected = x.flip(1).cumsum(1).flip(1) if reverse else x.cumsum(1)
    assert torch.equal(sums, expected)
    first = hops.associative_scan(
        lambda a, b: {"last": b["last"], "least": torch.minimum(a["least"], b["least"])},
        {"last": x, "least": x}, 1, combine_mode="generic",
    )  # fmt: skip
    assert torch.equal(first["least"], x.cummin(1).values) and torch.equal(first["last"], x)


def test_fake_quantization():
    x = (torch.randn(100) * 3).requires_grad_()
    y = torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15)
    whole = torch.round(x * (1 / torch.tensor(0.1))) + 3
    assert torch.equal(y, (whole.clamp(0, 15) - 3) * torch.tensor(0.1))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, ((whole >= 0) & (whole <= 15)).float())
    w = torch.randn(3, 5)
    scale, zero = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2], dtype=torch.int32)
    rows = torch.fake_quantize_per_channel_affine(w, scale, zero, 0, 0, 15)
    for row, s, z, whole_row in zip(w, scale, zero, rows, strict=True):
        assert torch.equal(torch.fake_quantize_per_tensor_affine(row, s, z, 0, 15), whole_row)
    with pytest.raises(RuntimeError, match="zero_point"):
        torch.fake_quantize_per_tensor_affine(x, 0.1, 300, 0, 255)
    with pytest.raises(RuntimeError, match="Zero-point must be Int32"):
        torch.fake_quantize_per_channel_affine(w, scale, zero.long(), 0, 0, 15)
    with pytest.raises(NotImplementedError):
        torch.fake_quantize_per_tensor_affine(x.detach().int(), 0.1, 0, 0, 255)
