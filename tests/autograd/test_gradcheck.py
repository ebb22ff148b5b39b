"""gradcheck itself: it accepts what is right and finds what is wrong."""

import pytest

import flambeau as torch
from flambeau import autograd
from flambeau.autograd import gradcheck, gradgradcheck


def leaf(*values):
    return torch.tensor(list(values), dtype=torch.float64).requires_grad_()


class Wrong(autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


def test_right_gradients():
    a, b = leaf(0.3, 0.4, 0.5), leaf(1.3, 1.4, 1.5)
    assert gradcheck(lambda x, y: (x * y).exp().sum(), (a, b))
    assert gradcheck(lambda x, y: ((x * y).exp(), x + y), (a, b), check_grad_dtypes=True)
    assert gradgradcheck(lambda x, y: (x * y).exp(), (a, b))


def test_wrong_gradients():
    with pytest.raises(RuntimeError, match="Jacobian mismatch for output 0 with respect to input"):
        gradcheck(Wrong.apply, leaf(1, 2))
    assert gradcheck(Wrong.apply, leaf(1, 2), raise_exception=False) is False


def test_nothing_to_check():
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(lambda x: x, leaf(1).detach())


def test_single_precision_is_warned_about():
    x = torch.tensor([1.0, 2.0]).requires_grad_()
    with pytest.warns(UserWarning, match="double precision"):
        gradcheck(lambda t: t * 2, x, raise_exception=False)


def test_random_backward_is_found():
    count = [0]

    class Unsteady(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            count[0] += 1
            return grad * (1 + 1e-7 * count[0])

    with pytest.raises(RuntimeError, match="not reentrant"):
        gradcheck(Unsteady.apply, leaf(1, 2))


def test_unsupported_checks():
    with pytest.raises(NotImplementedError, match="check_forward_ad"):
        gradcheck(lambda x: x, leaf(1), check_forward_ad=True)
