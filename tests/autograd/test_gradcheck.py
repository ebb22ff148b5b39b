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


class Double(autograd.Function):
    """Twice its input; how wrong backward and tangents are is counted by what multiplies them."""

    back = 2
    ahead = 2

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @classmethod
    def backward(cls, ctx, grad):
        return grad * cls.back

    @classmethod
    def jvp(cls, ctx, tangent):
        return tangent * cls.ahead


class WrongTangent(Double):
    ahead = 3


class WrongGradient(Double):
    back = 3


EVERY = {
    "check_forward_ad": True,
    "check_batched_grad": True,
    "check_batched_forward_grad": True,
    "check_grad_dtypes": True,
}


def test_every_check():
    a, b = leaf(0.3, 0.4), leaf(1.3, 1.4)
    assert gradcheck(lambda x, y: (x * y.exp(), x.sum()), (a, b), **EVERY)
    assert gradcheck(lambda x, k: x * k, (a, 2), **EVERY)
    assert gradcheck(Double.apply, a, check_forward_ad=True)


def test_every_check_of_complex_numbers():
    z = torch.tensor([0.3 + 1j, 0.5 - 0.2j], dtype=torch.complex128).requires_grad_()
    assert gradcheck(lambda x: (x * x.conj(), x.real), z, **EVERY)
    assert gradcheck(lambda x: torch.complex(x, 2 * x) * x, leaf(0.3, 0.4), **EVERY)
    assert gradgradcheck(lambda x: x * x, z, check_fwd_over_rev=True)


def test_wrong_tangents():
    x = leaf(1, 2)
    with pytest.raises(RuntimeError, match="computed with forward mode mismatch for output 0 with"):
        gradcheck(WrongTangent.apply, x, check_forward_ad=True)
    assert not gradcheck(WrongTangent.apply, x, check_forward_ad=True, raise_exception=False)
    assert gradcheck(WrongTangent.apply, x)


def test_one_mode_alone():
    x = leaf(1, 2)
    assert gradcheck(WrongGradient.apply, x, check_forward_ad=True, check_backward_ad=False)
    assert not gradcheck(WrongGradient.apply, x, check_forward_ad=True, raise_exception=False)


def test_second_derivatives_by_forward_mode():
    a, b = leaf(0.3, 0.4), leaf(1.3, 1.4)
    alone = {"check_rev_over_rev": False, "check_undefined_grad": False}
    assert gradgradcheck(lambda x, y: x * x * y, (a, b), check_fwd_over_rev=True)
    assert gradgradcheck(lambda x, y: x * x * y, (a, b), check_fwd_over_rev=True, **alone)
    assert gradgradcheck(lambda x, y: x * x * y, (a, b), check_batched_grad=True)


def test_derivatives_that_cannot_be_batched():
    class Peeks(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return grad * 1 if grad.sum().item() != 7.5 else grad

    with pytest.raises(RuntimeError, match="While computing batched gradients, got"):
        gradcheck(Peeks.apply, leaf(1, 2), check_batched_grad=True)


@pytest.mark.parametrize(
    "options",
    [
        {"check_backward_ad": False},
        {"check_backward_ad": False, "check_forward_ad": True, "check_batched_grad": True},
        {"check_batched_forward_grad": True},
    ],
)
def test_checks_that_need_another(options):
    with pytest.raises(AssertionError, match="to be True"):
        gradcheck(lambda x: x, leaf(1), **options)


def test_second_checks_that_need_another():
    with pytest.raises(AssertionError, match="check_undefined_grad=True requires"):
        gradgradcheck(lambda x: x, leaf(1), check_rev_over_rev=False, check_fwd_over_rev=True)
    with pytest.raises(AssertionError, match="at least one of check_fwd_over_rev"):
        gradgradcheck(lambda x: x, leaf(1), check_rev_over_rev=False)
