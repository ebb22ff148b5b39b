"""`func`, `autograd.functional` and `forward_ad` beside PyTorch: values, structures, errors."""

from __future__ import annotations

import numpy
import pytest

import flambeau

oracle = pytest.importorskip("torch", reason="PyTorch, the oracle, is not installed")

NUMBERS = numpy.random.default_rng(7)
X, Y = NUMBERS.normal(size=(5, 3, 4)), NUMBERS.normal(size=(5, 4))
W, V = NUMBERS.normal(size=(4, 6)), NUMBERS.normal(size=4)


def net(t, w, x):
    return t.tanh(x @ w).softmax(-1)


def loss(t, w, x):
    return net(t, w, x).square().sum()


def tree(t, x):
    return {"a": (x.sin(), x.sum()), "b": [x * 2]}


def written(t, x):
    y = x.clone()
    y[..., 0] = x[..., 1] * 2
    y.mul_(x)
    return y.sum(-1)


def cases(t):
    f = t.func
    x, y, w, v = (t.tensor(a) for a in (X, Y, W, V))
    yield "vmap", lambda: f.vmap(lambda x: net(t, w, x))(x)
    yield "vmap dims", lambda: f.vmap(lambda x, y: x * y, (1, -1), -2)(x, y.reshape(4, 5)[:, :3])
    yield "vmap tree", lambda: f.vmap(lambda x: tree(t, x), out_dims={"a": (1, 0), "b": [0]})(y)
    yield "vmap nested", lambda: f.vmap(f.vmap(t.dot, (0, None)), (None, 0))(y, y)
    yield "vmap chunks", lambda: f.vmap(lambda x: x.cumsum(0), chunk_size=2)(y)
    yield "vmap written", lambda: f.vmap(lambda x: written(t, x))(x)
    yield "vmap sort", lambda: tuple(f.vmap(lambda x: t.sort(x, -1))(y))
    yield "vmap index", lambda: f.vmap(lambda x, i: x[:, i], (0, 0))(x, t.tensor([0, 3, 1, 1, 2]))
    yield "vmap where", lambda: f.vmap(lambda x: t.where(x > 0, x, x.mean()))(x)
    yield "grad", lambda: f.grad(lambda w: loss(t, w, x))(w)
    yield "grad two", lambda: f.grad(lambda w, x: loss(t, w, x), (0, 1))(w, x)
    yield "value", lambda: f.grad_and_value(lambda w: loss(t, w, x))(w)
    yield "aux", lambda: f.grad(lambda v: (v.sum(), {"v": v}), has_aux=True)(v)
    yield "per sample", lambda: f.vmap(f.grad(lambda w, x: loss(t, w, x)), (None, 0))(w, x)
    yield "vjp", lambda: f.vjp(lambda v: tree(t, v), v)[1]({"a": (v, v.sum()), "b": [v]})
    yield "jvp", lambda: f.jvp(lambda w: net(t, w, x), (w,), (w * 2,))
    yield "jvp tree", lambda: f.jvp(lambda v: tree(t, v), (v,), (v * v,))
    yield "jvp written", lambda: f.jvp(lambda x: written(t, x), (x,), (x + 1,))
    yield "jacrev", lambda: f.jacrev(lambda v: tree(t, v))(v)
    yield "jacrev two", lambda: f.jacrev(lambda v, w: v @ w, (0, 1))(v, w)
    yield "jacrev chunks", lambda: f.jacrev(t.sin, chunk_size=3)(y)
    yield "jacfwd", lambda: f.jacfwd(lambda v: tree(t, v))(v)
    yield "jacfwd two", lambda: f.jacfwd(lambda v, w: (v @ w, v), (1, 0))(v, w)
    yield "hessian", lambda: f.hessian(lambda v: loss(t, w, v))(v)
    yield "hessian two", lambda: f.hessian(lambda v, w: loss(t, w, v), (0, 1))(v, w)
    yield "hessian batch", lambda: f.vmap(f.hessian(lambda v: loss(t, w, v)))(y)
    yield "hvp", lambda: f.jvp(f.grad(lambda v: loss(t, w, v)), (v,), (v,))
    yield "functionalize", lambda: f.functionalize(lambda x: written(t, x))(x)
    yield "linearize", lambda: f.linearize(lambda v: net(t, w, v), v)[1](v)
    a = t.autograd.functional
    yield "jacobian", lambda: a.jacobian(lambda v, w: (v @ w, v.sum()), (v, w))
    yield "a.hessian", lambda: a.hessian(lambda v: loss(t, w, v), v)
    yield "a.vectorize", lambda: a.hessian(lambda v: loss(t, w, v), v, vectorize=True)
    yield "a.vjp", lambda: a.vjp(lambda v: v @ w, v, w[0])
    yield "a.jvp", lambda: a.jvp(lambda v: v @ w, v, v)
    yield "a.hvp", lambda: a.hvp(lambda v: loss(t, w, v), v, v)
    yield "a.vhp", lambda: a.vhp(lambda v: loss(t, w, v), v, v)


def leaves(value):
    if isinstance(value, dict):
        return [("dict", *value), *(x for key in value for x in leaves(value[key]))]
    if isinstance(value, (list, tuple)):
        return [(type(value).__name__, len(value)), *(x for item in value for x in leaves(item))]
    return [value]


NAMES = [name for name, _ in cases(flambeau)]


@pytest.mark.parametrize("name", NAMES)
def test_values(name):
    ours, theirs = (leaves(dict(cases(library))[name]()) for library in (flambeau, oracle))
    assert len(ours) == len(theirs)
    for x, y in zip(ours, theirs, strict=True):
        if isinstance(y, oracle.Tensor):
            assert tuple(x.shape) == tuple(y.shape) and x.requires_grad == y.requires_grad
            numpy.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), 1e-9, 1e-11)
        else:
            assert x == y


def errors(t):
    f, a, fa = t.func, t.autograd.functional, t.autograd.forward_ad
    x = t.ones(3, 4)
    yield lambda: f.vmap(t.sin, in_dims=2)(x)
    yield lambda: f.vmap(t.sin, in_dims="no")(x)
    yield lambda: f.vmap(t.sin, in_dims=(0, 0))(x)
    yield lambda: f.vmap(t.sin, in_dims=(None,))(x)
    yield lambda: f.vmap(t.sin)()
    yield lambda: f.vmap(t.mul)(x, 2)
    yield lambda: f.vmap(t.mul)(x, x[:2])
    yield lambda: f.vmap(lambda x: "text")(x)
    yield lambda: f.vmap(t.sin, out_dims=(0, 0))(x)
    yield lambda: f.vmap(t.sin, out_dims=None)(x)
    yield lambda: f.vmap(t.sin, out_dims=3)(x)
    yield lambda: f.vmap(t.sin, chunk_size=0)(x)
    yield lambda: f.vmap(t.sin, randomness="no")(x)
    yield lambda: f.vmap(lambda x: x + t.rand(4))(x)
    yield lambda: f.vmap(lambda x: x.sum().item())(x)
    yield lambda: f.vmap(lambda x: x if x.sum() > 0 else -x)(x)
    yield lambda: f.vmap(lambda x: t.zeros(4).add_(x))(x)
    yield lambda: f.vmap(t.nonzero)(x)
    yield lambda: f.vmap(lambda x: x.sum().backward())(x)
    yield lambda: f.grad(t.sin)(x)
    yield lambda: f.grad(lambda x: 1)(x)
    yield lambda: f.grad(t.sum, argnums=1)(x)
    yield lambda: f.grad(t.sum, argnums=())(x)
    yield lambda: f.grad(t.sum, argnums=(0, 0))(x)
    yield lambda: f.grad(t.sum, has_aux=True)(x)
    yield lambda: f.grad(t.sum)(t.arange(3))
    yield lambda: f.vjp(t.sin, x)[1](x[0])
    yield lambda: f.vjp(lambda x: 1, x)
    yield lambda: f.jvp(t.sin, x, x)
    yield lambda: f.jvp(t.sin, (x,), (x, x))
    yield lambda: f.jvp(t.sin, (x,), (x[0],))
    yield lambda: f.jvp(t.sin, (), ())
    yield lambda: f.jvp(lambda y: x, (x,), (x,), strict=True)
    yield lambda: f.jacrev(t.sin, chunk_size=0)(x)
    yield lambda: f.functionalize(t.sin, remove="no")(x)
    yield lambda: f.stack_module_state([])
    yield lambda: a.vjp(t.sin, x)
    yield lambda: a.vjp(t.sin, x, x[0])
    yield lambda: a.hvp(t.sin, x, x)
    yield lambda: a.jacobian(t.sin, 1.0)
    yield lambda: a.jacobian(lambda y: x, x, strict=True)
    yield lambda: a.jacobian(t.sin, x, strategy="no")
    yield lambda: fa.make_dual(x, x)
    yield lambda: fa.exit_dual_level()


@pytest.mark.parametrize("number", range(len(list(errors(flambeau)))))
def test_errors(number):
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - whatever PyTorch raises
        list(errors(oracle))[number]()
    with pytest.raises(theirs.type):
        list(errors(flambeau))[number]()


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_draws(randomness):
    found = []
    for t in (flambeau, oracle):
        t.manual_seed(5)
        draw = t.func.vmap(lambda x, t=t: x * t.rand(3) + t.rand(()), randomness=randomness)
        found.append(draw(t.ones(4, 3)).numpy())
    numpy.testing.assert_allclose(*found, 1e-6)


def _told(t, transformed):
    """What tensors say about their conjugate bits while a function of them is transformed."""
    told = []

    def function(x):
        y = x.conj()
        bits = [x, y, y.conj(), y.mT, y.resolve_conj(), y * 2]
        told.append([b.is_conj() for b in bits] + [t.is_conj(y), t.resolve_conj(y).is_conj()])
        return y * x

    x = t.complex(t.arange(8.0), t.ones(8)).reshape(2, 2, 2)
    return transformed(t, function, x), told


@pytest.mark.parametrize("transformed", [
    lambda t, f, x: t.vmap(f)(x).tolist(),
    lambda t, f, x: t.vmap(f)(x.conj()).tolist(),
    lambda t, f, x: [y.tolist() for y in t.func.jvp(f, (x,), (x,))],
    lambda t, f, x: [y.tolist() for y in t.vmap(lambda z: t.func.jvp(f, (z,), (z,)))(x)],
])  # fmt: skip
def test_conjugate_bits(transformed):
    assert _told(flambeau, transformed) == _told(oracle, transformed)
