"""Arguments as the core reads them: integers of any size, the dtype of `out=`, sizes of a class."""

from __future__ import annotations

import pytest

import flambeau as torch


def test_factories_make_the_dtype_of_out():
    whole = torch.empty(0, dtype=torch.int64)
    assert torch.arange(0.0, 5.0, 1.0, out=whole) is whole
    assert whole.tolist() == [0, 1, 2, 3, 4]
    assert torch.eye(2, out=torch.empty(0, dtype=torch.int64)).dtype is torch.int64
    wide = torch.linspace(0, 1, 7, out=torch.empty(0, dtype=torch.float64))
    assert torch.equal(wide, torch.linspace(0, 1, 7, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="does not match dtype of out"):
        torch.ones(2, dtype=torch.float32, out=whole)
    with pytest.raises(TypeError, match="argument 'out' must be Tensor, not tuple"):
        torch.add(wide, 1, out=(wide,))


@pytest.mark.parametrize(
    ("call", "error", "argument"),
    [
        (lambda x: x.sum(2**64), ValueError, "sum.*dim"),
        (lambda x: x.sum((0, 2**64)), TypeError, "sum.*dim"),
        (lambda x: x.reshape(2**64), TypeError, "reshape.*shape"),
        (lambda x: x + 2**64, OverflowError, "add.*other"),
        (lambda x: x.add(1, alpha=-(2**64)), OverflowError, "add.*alpha"),
        (lambda x: torch.arange(2**64), OverflowError, "arange.*end"),
        (lambda x: x + 10**5000, OverflowError, "add.*other"),
    ],
)
def test_integers_beyond_64_bits(call, error, argument):
    with pytest.raises(error, match=f"{argument}.*does not fit in 64 bits\nhint: "):
        call(torch.ones(3))


def test_float_arguments_take_any_integer():
    padded = torch.nn.functional.pad(torch.ones(1), (1, 0), value=2**64)
    assert padded.tolist() == [2.0**64, 1.0]
    with pytest.raises(OverflowError, match="value.*does not fit"):
        torch.nn.functional.pad(torch.ones(1), (1, 0), value=10**400)


def test_a_tensor_that_requires_a_gradient_is_no_number():
    bound = torch.tensor(0.5, requires_grad=True)
    with pytest.raises(TypeError, match="argument 'alpha' must be Number, got flambeau.Tensor"):
        torch.add(torch.ones(2), 1, alpha=bound)
    assert torch.add(torch.ones(2), 1, alpha=bound.detach()).tolist() == [1.5, 1.5]


@pytest.mark.parametrize("wrap", [lambda f: f, torch.compile], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", ["clamp", "clamp_min", "quantile"])
def test_a_tensor_without_dimensions_keeps_its_gradient(name, wrap):
    x = torch.tensor([0.0, 0.25, 1.0]).double()
    function = wrap(getattr(torch, name))
    assert torch.autograd.gradcheck(
        lambda b: function(x, b), torch.tensor(0.7).double().requires_grad_()
    )
    bounds = torch.tensor([0.1, 0.7]).double()
    each = torch.func.vmap(lambda b: getattr(torch, name)(x, b))(bounds)
    assert torch.equal(each, torch.stack([function(x, b) for b in bounds]))


def test_an_odd_dimension_has_no_halves():
    for size in (4, 6, 5, 8, 7):  # one class of calls
        if size % 2:
            with pytest.raises(RuntimeError, match="must be even"):
                torch.nn.functional.glu(torch.ones(size))
        else:
            assert torch.nn.functional.glu(torch.ones(size)).shape == (size // 2,)


def test_remainders_of_the_least_integer():
    for count in (3, 23, 24):  # one class of calls: its size program takes the remainder
        x = torch.arange(count)
        assert torch.equal(x.roll(-(2**63) + 1), x.roll((-(2**63) + 1) % count))
