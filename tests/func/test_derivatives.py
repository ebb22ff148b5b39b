"""Derivatives of functions, nested in each other and in `vmap`: against closed forms."""

import pytest

import flambeau as torch
from flambeau.func import (
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    vjp,
    vmap,
)

D = torch.float64
X = torch.tensor([0.3, -1.2, 0.7], dtype=D)
Y = torch.tensor([1.1, 0.4, -0.5], dtype=D)
A = torch.linspace(-1, 1, 12, dtype=D).reshape(3, 4)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def f(x):
    return torch.softmax(x.sin() @ A, -1)


def loss(x):
    return f(x).square().sum()


def test_modes_agree():
    close(jacrev(f)(X), jacfwd(f)(X))
    expected = hessian(loss)(X)
    for second in (jacrev(jacrev(loss)), jacfwd(jacfwd(loss)), jacrev(jacfwd(loss))):
        close(second(X), expected)
    close(torch.compile(hessian(loss))(X), expected)
    out, moved = jvp(f, (X,), (Y,))
    close(moved, jacrev(f)(X) @ Y)
    value, derivative = linearize(f, X)
    close(value, out)
    close(derivative(Y), moved)
    close(jvp(grad(loss), (X,), (Y,))[1], expected @ Y)


def test_inside_vmap():
    batch = torch.stack([X, Y, X * Y])
    for transform, g in ((grad, loss), (jacrev, f), (jacfwd, f), (hessian, loss)):
        found = vmap(transform(g))(batch)
        close(found, torch.stack([transform(g)(x) for x in batch]))
    close(jacrev(vmap(f))(batch)[0, :, 0], jacrev(f)(X))
    found = vmap(lambda x, t: jvp(grad(loss), (x,), (t,))[1])(batch, batch)
    close(found, torch.stack([hessian(loss)(x) @ x for x in batch]))
    close(vmap(vmap(grad(lambda x: x**3)))(batch), 3 * batch**2)


def test_higher_orders():
    x = torch.tensor(2.0, dtype=D)
    assert grad(grad(grad(lambda x: x**4)))(x) == 48
    assert jvp(lambda x: jvp(lambda y: y**3, (x,), (x * 0 + 1,))[1], (x,), (x * 0 + 1,))[1] == 12
    # no confusion of the two derivatives: d/dx (x * d/dy (x + y)) = 1
    assert grad(lambda x: x * grad(lambda y: x + y)(x))(x) == 1
    assert (
        jvp(lambda x: x * jvp(lambda y: x + y, (x,), (x * 0 + 1,))[1], (x,), (x * 0 + 1,))[1] == 1
    )


def test_arguments_and_auxiliaries():
    g = lambda a, b, k=1: ((a["u"] * b).sum() * k, {"b": b})  # noqa: E731
    (da, db), (value, aux) = grad_and_value(g, (0, 1), has_aux=True)({"u": X}, Y, k=2)
    close(da["u"], 2 * Y)
    close(db, 2 * X)
    close(value, 2 * (X * Y).sum())
    close(aux["b"], Y)
    out, back, aux = vjp(lambda a: (a * 2, a), X, has_aux=True)
    close(back(Y)[0], 2 * Y)
    assert not out.requires_grad and not aux.requires_grad
    close(jacrev(lambda a, b: (a * b, a), (0, 1))(X, Y)[0][1], X.diag())
    assert grad(lambda a, b: (a * b).sum(), argnums=-1)(X, Y).equal(X)
    assert grad(lambda a: Y.sum())(X).equal(torch.zeros(3, dtype=D))


def test_gradients_that_flow_out():
    leaf = X.clone().requires_grad_()
    inner = grad(lambda a: (a**3 * leaf).sum())(Y)
    assert inner.requires_grad
    inner.sum().backward()
    close(leaf.grad, 3 * Y**2)
    assert not grad(lambda a: (a * Y).sum())(X).requires_grad
    leaf.grad = None
    grad(lambda a: (a**3).sum())(leaf).sum().backward()
    close(leaf.grad, 6 * X)
    with torch.no_grad():
        found = grad(lambda a: (a**2 * leaf.detach()).sum())(leaf)
    assert not found.requires_grad
    close(found, 2 * X**2)


def test_writes_in_place():
    def g(x):
        y = x.clone()
        y.mul_(2)
        y[0] = x[1] * 3
        return (y**2).sum()

    expected = torch.stack([0 * X[0], 26 * X[1], 8 * X[2]])
    close(grad(g)(X), expected)
    close(grad(functionalize(g))(X), expected)
    close(jvp(g, (X,), (Y,))[1], expected @ Y)
    close(vmap(grad(g))(torch.stack([Y, X]))[1], expected)
    close(hessian(g)(X), torch.diag(torch.tensor([0.0, 26, 8], dtype=D)))


@pytest.mark.parametrize("offset", [None, 0, 2, 4, 7, 10])
def test_windows_into_memory(offset):
    """What a window shows of the memory around a tensor is no function of the tensor."""
    memory = torch.arange(12.0, dtype=D)
    x, t = memory[4:8], torch.tensor([2.0, 3.0, 5.0, 7.0], dtype=D)
    first = 4 if offset is None else offset
    shown = memory[first : first + 2]
    moved = torch.cat([torch.zeros(4, dtype=D), t, torch.zeros(4, dtype=D)])[first : first + 2]

    def window(x):
        return x.as_strided((2,), (1,), offset)

    def copy(x):
        return torch.as_strided_copy(x, (2,), (1,), offset)

    for function in (window, copy, lambda x: window(x) * 1, torch.compile(lambda x: window(x) * 1)):
        close(function(x), shown)
        found, tangent = jvp(function, (x,), (t,))
        close(found, shown)
        close(tangent, moved)
        close(vjp(function, x)[1](shown)[0] @ t, shown @ moved)
    squares = grad(lambda x: (window(x) ** 3).sum())
    close(jvp(squares, (x,), (t,))[1] @ t, (6 * shown * moved**2).sum())


@pytest.mark.parametrize("transform", ["jvp", "vjp", "grad", "vmap of jvp"])
@pytest.mark.parametrize(
    ("size", "stride", "offset"), [((3, 2), (6, 1), 4), ((2,), (1,), -4), ((2,), (-1,), 4)]
)
def test_windows_that_leave_the_storage(transform, size, stride, offset):
    """A window under a transform stays inside the storage, as it does without one."""
    x = torch.arange(12.0, dtype=D)

    def window(x):
        return x.as_strided(size, stride, offset)

    def tangent(t):
        return jvp(window, (x,), (t,))[1]

    calls = {
        "jvp": lambda: tangent(x),
        "vjp": lambda: vjp(window, x),
        "grad": lambda: grad(lambda x: window(x).sum())(x),
        "vmap of jvp": lambda: torch.vmap(tangent)(torch.ones(2, 12, dtype=D)),
    }
    with pytest.raises(RuntimeError, match="out of bounds"):
        calls[transform]()


def test_overwritten_values_have_no_tangents():
    """Of two values for one place the last one stays, and so does its tangent."""
    places, twice = torch.tensor([1, 1, 4]), 2 * Y
    wanted = torch.tensor([0, twice[1], 0, 0, twice[2]], dtype=D)

    def unpool(x):
        return torch.nn.functional.max_unpool1d(x.view(1, 1, 3), places.view(1, 1, 3), 2).view(6)

    close(jvp(lambda x: torch.zeros(5, dtype=D).scatter(0, places, x), (X,), (twice,))[1], wanted)
    close(jvp(lambda x: torch.zeros(5, dtype=D).index_put((places,), x), (X,), (twice,))[1], wanted)
    close(jvp(unpool, (X,), (twice,))[1][:5], wanted)
    added = jvp(lambda x: x.repeat(2)[:5].index_add(0, places, x), (X,), (Y,))[1]
    close(added, torch.stack([Y[0], 2 * Y[1] + Y[0], Y[2], Y[0], Y[1] + Y[2]]))


class Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return t * 3 * x**2


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def vmap(info, in_dims, x):
        assert info.batch_size == 2 and in_dims == (0,)
        return Twice.apply(x), 0


def test_custom_functions():
    batch = torch.stack([X, Y])
    close(vmap(Cube.apply)(batch), batch**3)
    close(vmap(grad(lambda x: Cube.apply(x).sum()))(batch), 3 * batch**2)
    close(jvp(Cube.apply, (X,), (Y,))[1], 3 * X**2 * Y)
    close(hessian(lambda x: Cube.apply(x).sum())(X), torch.diag(6 * X))
    close(vmap(Twice.apply)(batch), batch * 2)


def test_complex_numbers():
    z = torch.tensor([1 + 2j, -0.5j], dtype=torch.complex128)
    t = torch.tensor([0.3 - 1j, 1 + 1j], dtype=torch.complex128)
    close(jvp(lambda z: z * z, (z,), (t,))[1], 2 * z * t)
    close(jvp(torch.abs, (z,), (t,))[1], torch.real(z.conj() * t) / z.abs())


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: grad(f)(X), RuntimeError, "scalar tensor"),
        (lambda: grad(lambda x: 1.0)(X), RuntimeError, "single tensor"),
        (lambda: grad(loss, argnums=1)(X), RuntimeError, "argnum=1"),
        (lambda: grad(loss, argnums=())(X), RuntimeError, "non-empty"),
        (lambda: grad(lambda i: i.sum())(torch.arange(3)), RuntimeError, "floating point"),
        (lambda: grad(loss, has_aux=True)(X), RuntimeError, "output, aux"),
        (lambda: vjp(f, X)[1](X), RuntimeError, "Mismatch in shape"),
        (lambda: vjp(f, X)[1](X, X), RuntimeError, "structure"),
        (lambda: jvp(f, X, X), RuntimeError, "tuple"),
        (lambda: jvp(f, (X,), (X, X)), RuntimeError, "structure"),
        (lambda: jvp(f, (X,), (X[:2],)), RuntimeError, "different size"),
        (lambda: jvp(lambda x: Y, (X,), (X,), strict=True), RuntimeError, "independent"),
        (lambda: jacrev(f, chunk_size=0), ValueError, "chunk_size"),
        (lambda: functionalize(f, remove="x"), RuntimeError, "remove"),
    ],
)
def test_mistakes(call, error, text):
    with pytest.raises(error, match=text):
        call()
