"""`autograd.functional`, `autograd.forward_ad`, and batches of gradients."""

import pytest

import flambeau as torch
from flambeau.autograd import forward_ad, functional

D = torch.float64
X = torch.tensor([0.3, -1.2, 0.7], dtype=D)
Y = torch.tensor([1.1, 0.4, -0.5], dtype=D)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def f(a, b):
    return (a.exp() * b).sum()


def test_matrices():
    zero = torch.zeros(3, 3, dtype=D)
    expected = (((X.exp() * Y).diag(), X.exp().diag()), (X.exp().diag(), zero))
    for options in ({}, {"vectorize": True}, {"vectorize": True, "outer_jacobian_strategy":
                    "forward-mode"}):  # fmt: skip
        close(functional.hessian(f, (X, Y), **options), expected)
    several = lambda a, b: (a * b, a.sum())  # noqa: E731
    ones = torch.ones(3, dtype=D)
    for options in ({}, {"vectorize": True}, {"vectorize": True, "strategy": "forward-mode"}):
        found = functional.jacobian(several, (X, Y), **options)
        close(found, ((Y.diag(), X.diag()), (ones, 0 * ones)))
    close(functional.jacobian(torch.sin, X), X.cos().diag())


def test_products():
    close(functional.vjp(f, (X, Y)), (f(X, Y), (X.exp() * Y, X.exp())))
    close(functional.jvp(torch.sin, X, Y), (X.sin(), X.cos() * Y))
    expected = (f(X, Y), (X.exp() * Y * X + X.exp() * Y, X.exp() * X))
    close(functional.hvp(f, (X, Y), (X, Y)), expected)
    close(functional.vhp(f, (X, Y), (X, Y)), expected)
    x = X.clone().requires_grad_()
    _, moved = functional.jvp(torch.sin, x, Y, create_graph=True)
    close(torch.autograd.grad(moved.sum(), x)[0], -X.sin() * Y)
    assert not functional.vjp(f, (x, Y))[1][0].requires_grad


def test_mistakes():
    with pytest.raises(RuntimeError, match="independent of input 1"):
        functional.jacobian(lambda a, b: a * 2, (X, Y), strict=True)
    with pytest.raises(RuntimeError, match="single element"):
        functional.vjp(torch.sin, X)
    with pytest.raises(RuntimeError, match="invalid size"):
        functional.vjp(torch.sin, X, X[:2])
    with pytest.raises(TypeError, match="tuple of Tensors"):
        functional.jacobian(torch.sin, 1.0)
    with pytest.raises(RuntimeError, match="single"):
        functional.hvp(torch.sin, X, X)


def test_dual_tensors():
    x = X.clone().requires_grad_()
    with forward_ad.dual_level():
        d = forward_ad.make_dual(x, Y)
        value, tangent = forward_ad.unpack_dual(d.sin() * 2)
        close(value, X.sin() * 2)
        close(tangent, X.cos() * Y * 2)
        tangent.sum().backward()
        close(x.grad, -X.sin() * Y * 2)
        assert forward_ad.unpack_dual(X).tangent is None
        assert float(d.sum()) == float(X.sum())
        kept = d
        with pytest.raises(RuntimeError, match="Nested forward mode"):
            forward_ad.enter_dual_level()
    close((kept + 1).detach(), X + 1)
    assert forward_ad.unpack_dual(kept).tangent is None
    with pytest.raises(RuntimeError, match="no level exists"):
        forward_ad.make_dual(X, Y)
    with pytest.raises(RuntimeError, match="not the last"):
        forward_ad.exit_dual_level()


def test_batches_of_gradients():
    x = X.clone().requires_grad_()
    [found] = torch.autograd.grad(x**2, x, torch.eye(3, dtype=D), is_grads_batched=True)
    close(found, (2 * X).diag())
