"""Gradients of convolutions by name: the bits of the tape's, eager and compiled."""

import itertools

import pytest

import flambeau as torch

CASES = [
    ((2, 4, 9), (6, 2, 3), {"stride": 2, "padding": 1, "groups": 2}),
    ((2, 3, 7, 6), (4, 3, 3, 2), {"dilation": (2, 1)}),
    ((2, 32, 8, 8), (32, 32, 3, 3), {"padding": 1}),
    ((1, 2, 5, 4, 6), (3, 2, 2, 1, 3), {"stride": (1, 2, 2)}),
]


def operands(size, kernel, options, dtype=torch.float32):
    torch.manual_seed(0)
    count = len(size) - 2
    x, w = (torch.randn(*s, dtype=dtype, requires_grad=True) for s in (size, kernel))
    y = getattr(torch.nn.functional, f"conv{count}d")(x, w, **options)
    return count, x, w, y, torch.randn(y.shape, dtype=dtype)


@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c[0]))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_bits_of_the_tape(case, dtype):
    count, x, w, y, g = operands(*case, dtype)
    dx, dw = torch.autograd.grad(y, (x, w), g)
    home = torch.nn.grad
    x, w = x.detach(), w.detach()
    for wrap in (lambda f: f, torch.compile):
        wide = wrap(getattr(home, f"conv{count}d_input"))(x.shape, w, g, **case[2])
        deep = wrap(getattr(home, f"conv{count}d_weight"))(x, w.shape, g, **case[2])
        assert torch.equal(wide, dx)
        assert torch.equal(deep, dw)
    assert torch.nn.functional.grad is home


def test_gradients_of_gradients():
    x, w, g = torch.randn(1, 2, 5).double(), torch.randn(3, 2, 2).double(), torch.randn(1, 3, 4)
    g = g.double()
    home = torch.nn.grad
    for function, args in (
        (lambda w, g: home.conv1d_input((1, 2, 5), w, g), (w, g)),
        (lambda x, g: home.conv1d_weight(x, (3, 2, 2), g), (x, g)),
    ):
        assert torch.autograd.gradcheck(function, [a.clone().requires_grad_() for a in args])


@pytest.mark.parametrize("mask", [*itertools.product((True, False), repeat=3)])
@pytest.mark.parametrize("transposed", [False, True])
def test_backward_by_its_inner_name(mask, transposed):
    torch.manual_seed(0)
    x, w, b = torch.randn(2, 4, 5), torch.randn(4, 4, 2), torch.randn(4)
    args = [t.requires_grad_() for t in (x, w, b)]
    numbers = ((2,), (1,), (1,), transposed, (0,), 1)
    y = torch.convolution(*args, *numbers)
    g = torch.randn(y.shape)
    wanted = torch.autograd.grad(y, args, g)
    found = torch.ops.aten.convolution_backward(g, x, w, [4], *numbers, mask)
    for asked, ours, theirs in zip(mask, found, wanted, strict=True):
        assert torch.equal(ours, theirs) if asked else ours is None


def test_refusals():
    home, one = torch.nn.grad, torch.ones
    for call, error in (
        (lambda: home.conv1d_input((2, 3, 8), one(4, 3, 3), one(2, 4, 5)), RuntimeError),
        (lambda: home.conv1d_input((2, 2, 8), one(4, 3, 3), one(2, 4, 6)), RuntimeError),
        (lambda: home.conv2d_input((2, 3, 8), one(4, 3, 3), one(2, 4, 6)), RuntimeError),
        (lambda: home.conv1d_input((2, 3, 8), one(4, 3, 3), one(2, 4, 6).double()), RuntimeError),
        (lambda: home.conv1d_weight(one(2, 3, 8), (4, 2, 3), one(2, 4, 6)), RuntimeError),
        (lambda: home.conv1d_weight(one(2, 3, 8), (4, 3), one(2, 4, 6)), RuntimeError),
        (
            lambda: home.conv1d_weight(one(2, 3, 8).int(), (4, 3, 3), one(2, 4, 6).int()),
            NotImplementedError,
        ),
    ):
        with pytest.raises(error, match="hint:"):
            call()
