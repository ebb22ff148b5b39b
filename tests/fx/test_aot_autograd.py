"""`aot_function`: forward and backward as graphs, which give what the function gives."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import nn
from flambeau._dynamo.backends.common import aot_autograd
from flambeau._functorch.aot_autograd import (
    aot_function,
    aot_module,
    aot_module_simplified,
    make_boxed_compiler,
)
from flambeau._functorch.partitioners import (
    default_partition,
    min_cut_rematerialization_partition,
)
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.nn import functional

X = torch.arange(12.0).reshape(3, 4) / 7 - 0.8


class Kept:
    """A compiler that keeps its graphs."""

    def __init__(self):
        self.modules = []

    def __call__(self, module, inputs):
        self.modules.append(module)
        assert len(inputs) == sum(n.op == "placeholder" for n in module.graph.nodes)
        return module

    def names(self):
        """Operators of each graph."""
        return [
            [n.name for n in module.graph.nodes if n.op == "call_function"]
            for module in self.modules
        ]


def dense(x, w):
    return functional.linear(x, w).relu().sum()


def several(inputs):
    values, places = inputs["x"].softmax(1).max(0)
    return {"values": values, "places": places, "other": inputs["y"] * 2}


def test_graphs_of_forward_and_backward():
    compiler, w = Kept(), (X * 2).requires_grad_()
    loss = aot_function(dense, compiler)(X, w)
    assert len(compiler.modules) == 1  # the backward's is compiled when it is there
    loss.backward()
    assert compiler.names() == [
        ["t", "mm", "relu", "detach", "sum_1"],
        ["expand", "detach_1", "threshold_backward", "t_1", "mm_1", "t_2", "t_3"],
    ]
    expected = torch.autograd.grad(dense(X, w), w)
    assert torch.equal(w.grad, expected[0])


@pytest.mark.parametrize("boxed", [False, True])
def test_further_calls_and_containers(boxed):
    compiler = Kept()
    function = aot_function(several, make_boxed_compiler(compiler) if boxed else compiler)
    for scale in (1, 2):
        inputs = {"x": (X * scale).requires_grad_(), "y": X + scale}
        results, expected = function(inputs), several(inputs)
        assert results.keys() == expected.keys()
        assert all(torch.equal(results[name], expected[name]) for name in expected)
        assert not results["places"].requires_grad and not results["other"].requires_grad
        [grad] = torch.autograd.grad(results["values"].sum(), inputs["x"])
        [other] = torch.autograd.grad(expected["values"].sum(), inputs["x"])
        assert torch.allclose(grad, other, rtol=1e-6, atol=1e-7)
    assert len(compiler.modules) == 2


def test_without_gradients():
    training, inference = Kept(), Kept()
    function = aot_function(dense, training, inference_compiler=inference)
    assert torch.equal(function(X, X), dense(X, X))
    assert not training.modules and inference.names() == [["t", "mm", "relu", "sum_1"]]


def test_gradients_that_a_later_call_needs():
    compiler = Kept()
    function = aot_function(dense, compiler)
    function(X, X)
    for x, w in ((X, (X * 2).requires_grad_()), (X.clone().requires_grad_(), X * 2)):
        (leaf,) = [each for each in (x, w) if each.requires_grad]
        expected = torch.autograd.grad(dense(x, w), leaf)
        assert torch.equal(torch.autograd.grad(function(x, w), leaf)[0], expected[0])
    with torch.no_grad():
        assert not function(X, X.clone().requires_grad_()).requires_grad
    assert len(compiler.modules) == 5


def test_a_module_and_its_parameters():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2)).eval()
    expected = torch.autograd.grad(model(X).sum(), list(model.parameters()))
    for compiled in (
        aot_module(model, Kept()),
        aot_module_simplified(model, (X,), Kept()),
    ):
        model.zero_grad()
        compiled(X).sum().backward()
        pairs = zip(model.parameters(), expected, strict=True)
        assert all(torch.allclose(p.grad, g, rtol=1e-5, atol=1e-6) for p, g in pairs)
    assert dict(compiled.named_parameters()).keys() == dict(model.named_parameters()).keys()


def test_unused_arguments_and_numbers():
    compiler, w = Kept(), X.clone().requires_grad_()
    function = aot_function(lambda x, w, n, unused: x * w + n, compiler)
    unused = X.clone().requires_grad_()
    function(X, w, 2.0, unused).sum().backward()
    assert unused.grad is None and torch.equal(w.grad, X)


def written(x, y):
    y[0].mul_(2)
    z = (x * y).sub_(1)
    z[1].add_(y[0])
    return z, y, y[0]


@pytest.mark.parametrize("gradient", [False, True])
def test_graphs_hold_no_operator_that_writes(gradient):
    compiler, x, y = Kept(), X.clone().requires_grad_(gradient), X.clone()
    function = aot_function(written, compiler)
    for _ in range(2):
        other = y.clone()
        results, expected = function(x, y), written(x, other)
        assert all(map(torch.equal, results, expected)) and torch.equal(y, other)
        assert results[1] is y and results[2].data_ptr() == y.data_ptr()
        if gradient:
            grads = [torch.autograd.grad(r[0].sum(), x)[0] for r in (results, expected)]
            assert torch.equal(*grads)
    targets = [n.target for m in compiler.modules for n in m.graph.nodes if n.op == "call_function"]
    names = [target.__name__.partition(".")[0] for target in targets]
    assert names and not any(name.endswith("_") for name in names)


def test_batch_statistics():
    torch.manual_seed(0)
    compiler, model = Kept(), nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh())
    twin = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh())
    twin.load_state_dict(model.state_dict())
    compiled = aot_module(model, compiler)
    for scale in (1, 2):
        compiled(X * scale).sum().backward()
        twin(X * scale).sum().backward()
    assert all(map(torch.allclose, model.buffers(), twin.buffers()))
    assert model[1].num_batches_tracked == 2
    pairs = zip(model.parameters(), twin.parameters(), strict=True)
    assert all(torch.allclose(p.grad, q.grad, rtol=1e-3, atol=1e-4) for p, q in pairs)


def test_what_is_refused():
    x = X.clone().requires_grad_()
    with pytest.raises(NotImplementedError, match="whose new value has a gradient"):
        aot_function(lambda x, y: y.add_(x) * 2, Kept())(x, X.clone())


def saved(compiler):
    """Bytes that the backward of a graph gets beside gradients."""
    inputs = [n for n in compiler.modules[-1].graph.nodes if n.op == "placeholder"]
    values = [n.meta["val"] for n in inputs if not n.name.startswith("tangents")]
    return sum(x.numel() * x.element_size() for x in values)


PROGRAMS = {
    "products": lambda x, w: functional.gelu((x @ w).sin().cos() * 2).sigmoid(),
    "pointwise": lambda x, w: w.sin().cos().exp().tanh(),
    "softmax": lambda x, w: functional.softmax(x @ w, -1).exp(),
    "norm": lambda x, w: functional.layer_norm(x @ w, (16,)).tanh(),
    "dropout": lambda x, w: functional.dropout(w.sin(), 0.5).cos(),
    "indices": lambda x, w: (x @ w).max(0).values * w[0],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_partitions_agree_and_a_minimum_cut_saves_less(name):
    function, x = PROGRAMS[name], torch.arange(256.0).reshape(16, 16) / 99 - 1
    gradients, sizes = [], []
    for partition in (None, default_partition, min_cut_rematerialization_partition):
        w = (x * 0.7).requires_grad_()
        compiler = Kept()
        run = aot_function(function, compiler, partition_fn=partition) if partition else function
        torch.manual_seed(3)
        run(x, w).sum().backward()
        gradients.append(w.grad)
        if partition:
            sizes.append(saved(compiler))
    assert torch.equal(gradients[1], gradients[2])
    assert torch.allclose(gradients[0], gradients[1], rtol=1e-5, atol=1e-6)
    assert sizes[1] <= sizes[0]
    if name in ("products", "pointwise"):
        assert sizes[1] <= sizes[0] / 2


def test_recording_draws_nothing():
    w = X.clone().requires_grad_()
    function = aot_function(lambda w: functional.dropout(w, 0.5), Kept())
    torch.manual_seed(1)
    first, second = function(w), torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(function(w), first) and torch.equal(torch.rand(3), second)


# ------------------------------------------------------------------------------- backends


@pytest.mark.parametrize("name", ["aot_eager_decomp_partition", "own"])
def test_as_a_backend_of_compile(name):
    compiler = Kept()
    backend = aot_autograd(fw_compiler=compiler) if name == "own" else name
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    compiled = torch.compile(model, backend=backend)
    expected = torch.autograd.grad(model(X).square().sum(), list(model.parameters()))
    for _ in range(2):
        model.zero_grad()
        compiled(X).square().sum().backward()
        pairs = zip(model.parameters(), expected, strict=True)
        assert all(torch.allclose(p.grad, g, rtol=1e-5, atol=1e-6) for p, g in pairs)
    if name == "own":
        assert len(compiler.modules) == 2


def test_a_function_with_a_branch_has_two_graphs():
    def branch(x):
        y = x.sin()
        return y + 1 if y.sum() > 0 else y - 1

    compiler = Kept()
    compiled = torch.compile(branch, backend=aot_autograd(fw_compiler=compiler))
    assert torch.equal(compiled(X), branch(X))
    assert compiler.names() == [["sin", "sum_1", "gt"], ["sub"]]


def test_names_of_backends():
    names = torch._dynamo.list_backends(None)
    assert "aot_eager_decomp_partition" in names
    assert "aot_eager_decomp_partition" not in torch._dynamo.list_backends()
    backend = torch._dynamo.lookup_backend("aot_eager_decomp_partition")
    module = make_fx(torch.sin)(X)
    assert torch.equal(backend(module, [X])(X), X.sin())
    with pytest.raises(AssertionError, match="fw_compiler"):
        aot_autograd()


def test_compilers_that_show(capsys):
    from flambeau._functorch.former.compile import nop, print_compile

    x = X.clone().requires_grad_()
    aot_function(torch.sin, print_compile, nop)(x).sum().backward()
    assert "torch.ops.aten.sin.default(primals_1)" in capsys.readouterr().out
    assert torch.equal(x.grad, X.cos())
