"""`vmap`: a batch has the bits of a loop over its samples; what does not fit raises."""

import pytest

import flambeau as torch
from flambeau.func import grad, jvp, vmap

X = torch.linspace(-2, 2, 60).reshape(5, 3, 4)
W = torch.linspace(-1, 1, 20).reshape(4, 5)


def loop(function, *args):
    return torch.stack([function(*(a[i] for a in args)) for i in range(args[0].shape[0])])


def mix(x, w):
    y = torch.softmax((x @ w).sin() * 2, -1)
    return (y - y.mean(0)).reshape(-1)[1:] + x.sum()


def test_batch_has_the_bits_of_a_loop():
    expected = torch.stack([mix(x, W) for x in X])
    assert torch.equal(vmap(mix, (0, None))(X, W), expected)
    assert torch.equal(vmap(mix, (2, None))(X.movedim(0, 2), W), expected)
    assert torch.equal(vmap(mix, (-1, None), out_dims=1)(X.movedim(0, -1), W), expected.mT)
    assert torch.equal(vmap(mix, (0, None), chunk_size=2)(X, W), expected)
    assert torch.equal(torch.compile(vmap(mix, (0, None)))(X, W), expected)


def test_nesting_and_structure():
    outer = vmap(vmap(lambda a, b: {"product": a * b, "sum": (a + b, a)}, (0, None)), (None, 0))
    a, b = torch.arange(3), torch.arange(4)
    found = outer(a, b)
    assert torch.equal(found["product"], b[:, None] * a)
    assert torch.equal(found["sum"][0], b[:, None] + a)
    assert torch.equal(found["sum"][1], a.expand(4, 3))
    tree = vmap(lambda t, s: t["x"] * s + t["y"][0], ({"x": 0, "y": (1,)}, None))
    assert torch.equal(tree({"x": b, "y": (a.expand(2, 3).new_ones(2, 4),)}, 2)[:, 0], b * 2 + 1)


def test_python_control_flow_and_indices():
    def f(x, i):
        rows = [x[k] * k for k in range(x.shape[0]) if k != 1]
        return torch.cat(rows)[i] + x[..., i % 4].sum() + x[x.shape[0] - 1, 2]

    index = torch.tensor([0, 3, 5, -1, 2])
    assert torch.equal(vmap(f)(X, index), loop(f, X, index))


def test_writes_in_place():
    def f(x, y):
        z = x.clone()
        z[1] = y * 2
        z[:, 0] += y[0]
        z.mul_(x).unsqueeze_(0)
        total = torch.zeros_like(x)
        total.index_put_((torch.tensor([2, 0]),), x[:2])
        return z.squeeze(0) + total

    y = X[:, 2] * 3
    assert torch.equal(vmap(f)(X, y), loop(f, X, y))
    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        vmap(lambda x: torch.zeros(3, 4).add_(x))(X)


def test_views_share_memory():
    x = X.clone()
    vmap(lambda s: s[0].fill_(7))(x)
    assert bool((x[:, 0] == 7).all()) and torch.equal(x[:, 1:], X[:, 1:])


def test_randomness():
    draw = lambda x: x + torch.rand(3)  # noqa: E731
    zeros = torch.zeros(4, 3)
    torch.manual_seed(3)
    same = vmap(draw, randomness="same")(zeros)
    different = vmap(draw, randomness="different")(zeros)
    assert torch.equal(same, same[:1].expand(4, 3))
    assert len({tuple(row) for row in different.tolist()}) == 4
    dropout = torch.nn.functional.dropout
    ones = torch.ones(2, 50)
    a, b = vmap(dropout, randomness="different")(ones)
    assert not torch.equal(a, b)
    a, b = vmap(dropout, randomness="same")(ones)
    assert torch.equal(a, b)
    for function in (draw, dropout):
        with pytest.raises(RuntimeError, match="randomness error mode"):
            vmap(function)(zeros)


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: vmap(torch.sin, in_dims=(0, 0))(X), ValueError, "not compatible with the struct"),
        (lambda: vmap(torch.sin, in_dims="x")(X), ValueError, "expected `in_dims` to be int"),
        (lambda: vmap(torch.sin, in_dims=3)(X), ValueError, "dimensionality 3"),
        (lambda: vmap(torch.mul)(X, 2), ValueError, "non-Tensor"),
        (lambda: vmap(torch.sin, in_dims=None)(X), ValueError, "in_dims"),
        (lambda: vmap(torch.sin, in_dims=(None,))(X), ValueError, "at least one Tensor"),
        (lambda: vmap(torch.mul)(X, X[:2]), ValueError, "same size in the mapped dimension"),
        (lambda: vmap(torch.sin)(), ValueError, "got no inputs"),
        (lambda: vmap(lambda x: 1)(X), ValueError, "must only return Tensors"),
        (lambda: vmap(torch.sin, out_dims=(0, 0))(X), ValueError, "out_dims is not compatible"),
        (lambda: vmap(torch.sin, out_dims=None)(X), ValueError, "out_dim is None"),
        (lambda: vmap(torch.sin, out_dims=4)(X), IndexError, "out of range"),
        (lambda: vmap(torch.sin, chunk_size=0), ValueError, "greater than 0"),
        (lambda: vmap(torch.sin, randomness="no"), RuntimeError, "randomness"),
        (lambda: vmap(lambda x: x.sum().item())(X), RuntimeError, r"\.item\(\)"),
        (lambda: vmap(lambda x: x if x.sum() > 0 else -x)(X), RuntimeError, "control flow"),
        (lambda: vmap(torch.nonzero)(X), RuntimeError, "item"),
        (lambda: vmap(lambda x: x.tolist())(X), RuntimeError, "tolist"),
    ],
)
def test_mistakes(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_per_sample_gradients_and_ensembles():
    model = torch.nn.Linear(4, 5)
    params = dict(model.named_parameters())
    call = torch.func.functional_call

    def loss(p, x):
        return call(model, p, (x,)).square().sum()

    found = vmap(grad(loss), (None, 0))(params, X)
    for i, x in enumerate(X):
        model.zero_grad()
        model(x).square().sum().backward()
        assert torch.equal(found["weight"][i], model.weight.grad)
        assert torch.equal(found["bias"][i], model.bias.grad)
    models = [torch.nn.Linear(4, 5) for _ in range(3)]
    stacked, buffers = torch.func.stack_module_state(models)
    out = vmap(lambda p, b: call(model, (p, b), (X[0],)))(stacked, buffers)
    assert torch.equal(out, torch.stack([m(X[0]) for m in models]))
    out.sum().backward()
    assert stacked["weight"].grad.shape == (3, 5, 4)
    with pytest.raises(RuntimeError, match="at least one model"):
        torch.func.stack_module_state([])


def test_wrapper_looks_like_a_sample():
    seen = []

    def f(x):
        seen.append((x.shape, x.dim(), x.dtype, x.device.type, x.numel(), len(x), x.stride()))
        assert isinstance(x, torch.Tensor) and "BatchedTensor" in repr(x)
        return x

    vmap(f)(X)
    assert seen == [((3, 4), 2, torch.float32, "cpu", 12, 3, (4, 1))]


def test_convolutions_with_a_weight_per_sample():
    conv = torch.nn.functional.conv2d
    for channels in (2, 32):  # grouped, and by Winograd's algorithm
        x = torch.linspace(-1, 1, 2 * channels * 36).reshape(2, 1, channels, 6, 6)
        w = torch.linspace(-1, 1, 2 * channels**2 * 9).reshape(2, channels, channels, 3, 3)
        assert torch.equal(vmap(conv)(x, w), loop(conv, x, w))
        assert torch.equal(vmap(conv, (None, 0))(x[0], w)[1], conv(x[0], w[1]))


def test_recurrent_layers():
    model = torch.nn.GRU(4, 5)
    params = {name: p.detach() for name, p in model.named_parameters()}

    def loss(p, x):
        return torch.func.functional_call(model, p, (x,))[0].square().sum()

    x = X[:3].reshape(3, 3, 1, 4)
    found = vmap(grad(loss), (None, 0))(params, x)
    for i in range(3):
        alone = grad(loss)(params, x[i])
        assert all(torch.equal(found[name][i], alone[name]) for name in alone)


@pytest.mark.parametrize("name", ["cholesky", "inv", "matrix_exp"])
def test_operators_that_look_at_values(name):
    """They check all samples at once: vmap gives what the batch gives, and names what fails."""
    function = getattr(torch.linalg, name)
    batch = torch.tensor([[[4.0, 2.0], [2.0, 3.0]], [[9.0, 0.0], [0.0, 1.0]]])
    assert torch.equal(vmap(function)(batch), function(batch))
    assert torch.equal(jvp(vmap(function), (batch,), (batch,))[0], function(batch))
    if name != "matrix_exp":
        with pytest.raises(torch.linalg.LinAlgError, match=r"Batch element 1"):
            vmap(function)(torch.stack([batch[0], torch.zeros(2, 2)]))


def test_same_draws_in_every_chunk():
    x = torch.zeros(3, 2)

    def drawn(**options):
        torch.manual_seed(0)
        return torch.vmap(lambda r: r + torch.randn(2), randomness="same", **options)(x)

    assert torch.equal(drawn(chunk_size=1), drawn()) and torch.equal(drawn()[0], drawn()[2])


def test_debug_unwrap():
    x = torch.ones(4, 2, 3)
    seen = []

    def look(row):
        unwrap = torch.func.debug_unwrap
        seen.append((row.shape, unwrap(row, recurse=False).shape, unwrap(row) is x))
        return row

    torch.vmap(torch.vmap(look))(x)
    assert seen == [((3,), (2, 3), True)] and torch.func.debug_unwrap(x) is x
    with pytest.raises(TypeError):
        torch.func.debug_unwrap(1)


PARTS = {
    "imag": lambda y: y.imag,
    "pairs": torch.view_as_real,
    "column": lambda y: torch.view_as_real(y)[:, 1],
    "conjugates": lambda y: y.conj(),
    "row of conjugates": lambda y: y.conj()[:1],
    "imag of conjugates": lambda y: y.conj().imag,
    "negatives": lambda y: y._neg_view(),
}


@pytest.mark.parametrize("part", PARTS)
def test_writes_through_parts_of_complex_numbers(part):
    def program(x):
        y = x * 1.5
        PARTS[part](y).mul_(3).add_(1)
        return (y * y.conj() * (1 + 2j)).real.sum()

    x = torch.tensor([[1 + 2j, 3 - 1j], [0.3 + 1j, -1 + 0.2j]], dtype=torch.complex128)
    slope = torch.func.grad(program)
    rows, slopes = torch.stack([*map(program, x)]), torch.stack([*map(slope, x)])
    assert torch.allclose(torch.func.vmap(program)(x), rows)
    assert torch.allclose(torch.func.vmap(slope)(x), slopes)
    assert torch.allclose(torch.func.grad(lambda z: torch.func.vmap(program)(z).sum())(x), slopes)
    direction = x.flip(0)
    _, moved = torch.func.jvp(torch.func.vmap(program), (x,), (direction,))
    assert torch.allclose(moved, (slopes.conj() * direction).real.sum(1))


def test_windows_that_leave_a_sample() -> None:
    """A sample has no storage around it: nothing there may be read."""
    x = torch.arange(12.0).reshape(2, 6)
    window = lambda t: t.as_strided((2, 2), (3, 2), 0)  # noqa: E731
    assert torch.equal(torch.vmap(window)(x), torch.stack([window(row.clone()) for row in x]))
    for far in (
        lambda t: t.as_strided((2, 2), (3, 3), 0),
        lambda t: t.as_strided((16,), (3,), 0),
        lambda t: t.as_strided((2,), (1,), 5),
    ):
        with pytest.raises(RuntimeError, match="out of bounds"):
            torch.vmap(far)(x)


def test_views_of_conjugates_say_that_they_are():
    """Samples of a batch and values with a tangent; what is resolved is none."""
    told = []

    def function(x):
        y = x.conj()
        told.append(
            (
                x.is_conj(),
                y.is_conj(),
                torch.is_conj(y),
                y.conj().is_conj(),
                y.mT.is_conj(),
                y.resolve_conj().is_conj(),
                y.imag.is_neg(),
                y.imag.resolve_neg().is_neg(),
            )
        )
        return y.resolve_conj() * x

    x = torch.complex(torch.arange(8.0), torch.ones(8)).reshape(2, 2, 2)
    expected = (False, True, True, False, True, False, True, False)
    size = x.conj().resolve_conj() * x
    assert torch.vmap(function)(x).tolist() == size.tolist()
    value, tangent = torch.func.jvp(function, (x,), (x,))
    assert value.tolist() == size.tolist() and tangent.tolist() == (2 * size).tolist()
    torch.vmap(lambda x: torch.func.jvp(function, (x,), (x,)))(x)
    assert told == [expected] * 3


def test_elements_at_several_batched_numbers():
    x, i, j = torch.arange(12.0).view(3, 4), torch.arange(3), torch.arange(4)
    every = torch.vmap(torch.vmap(lambda a, b: x[a, b], (None, 0)), (0, None))(i, j)
    assert torch.equal(every, x)
    assert torch.equal(torch.vmap(lambda a: x[a, 1])(i), x[:, 1])
