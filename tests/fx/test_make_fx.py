"""`make_fx`: graphs of operators, which give what the recorded function gives."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import nn
from flambeau._subclasses.fake_tensor import FakeTensor
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.nn import functional

X = torch.arange(12.0).reshape(3, 4) / 7 - 0.8
MODES = ("real", "fake")


def names(module):
    """Operators in order, as "sin.default"."""
    return [node.target.__name__ for node in module.graph.nodes if node.op == "call_function"]


def with_gradient(x, w):
    loss = functional.linear(x, w).relu().sum()
    return (loss, *torch.autograd.grad(loss, w))


def containers(inputs):
    values, places = inputs["x"].max(0)
    return {"max": (values, places), "rest": [inputs["y"] + 1]}


def in_place(x):
    y = x.clone()
    y[0].fill_(2.0)
    y.add_(1).mul_(x)
    return y


CASES = {
    "gradient": (with_gradient, (X, (X * 2).requires_grad_())),
    "containers": (containers, ({"x": X, "y": X * 3},)),
    "in place": (in_place, (X,)),
    "views": (lambda x: torch.cat([*x.split(2, 1), x], 1)[:, 1:].t().reshape(-1), (X,)),
    "own data": (lambda x: x * torch.tensor([1.0, 2, 3, 4]) + torch.ones(4), (X,)),
    "own number": (lambda x: x * torch.tensor(3.0).item(), (X,)),
    "loss": (lambda x: functional.cross_entropy(x, torch.tensor([0, 1, 2])), (X,)),
    "attention": (
        lambda q: functional.scaled_dot_product_attention(q, q, q, is_causal=True),
        (X.reshape(1, 1, 3, 4),),
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_graphs_give_what_the_function_gives(case, mode):
    function, args = CASES[case]
    module = make_fx(function, tracing_mode=mode)(*args)
    other = torch.utils._pytree.tree_map(lambda x: (x.detach() * 1.5).requires_grad_(), args)
    for given in (args, other):
        expected, results = function(*given), module(*given)
        pairs = zip(*map(torch.utils._pytree.tree_leaves, (expected, results)), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("mode", MODES)
def test_a_training_step_of_a_module(mode):
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))

    def step(x, y):
        loss = functional.cross_entropy(model(x), y)
        return (loss, *torch.autograd.grad(loss, list(model.parameters())))

    y = torch.tensor([0, 1, 0])
    module = make_fx(step, tracing_mode=mode)(X, y)
    assert {id(p) for p in module.parameters()} == {id(p) for p in model.parameters()}
    for x in (X, X + 1):
        assert all(map(torch.equal, step(x, y), module(x, y)))


def test_operators_of_a_backward():
    module = make_fx(with_gradient)(X, (X * 2).requires_grad_())
    assert names(module) == [
        "t.default", "mm.default", "relu.default", "detach.default", "sum.default",
        "ones_like.default", "expand.default", "detach.default", "threshold_backward.default",
        "t.default", "mm.default", "t.default", "t.default",
    ]  # fmt: skip
    assert [node.name for node in module.graph.nodes][:3] == ["x_1", "w_1", "t"]


def test_nodes_know_their_values():
    module = make_fx(lambda x: x.sum(1, keepdim=True).to(torch.float64))(X)
    values = {node.name: node.meta["val"] for node in module.graph.nodes if node.op != "output"}
    assert values["x_1"].shape == (3, 4) and values["x_1"].device == X.device
    assert all(isinstance(value, FakeTensor) for value in values.values())
    described = {n.name: n.meta["tensor_meta"] for n in module.graph.nodes if n.op != "output"}
    assert [meta.dtype for meta in described.values()][-1] == torch.float64


def test_operators_are_replaced_by_a_table():
    table = {torch.ops.aten.gelu.default: lambda x: x * (x * 1.702).sigmoid()}
    module = make_fx(functional.gelu, decomposition_table=table)(X)
    assert names(module) == ["mul.Tensor", "sigmoid.default", "mul.Tensor"]
    assert torch.equal(module(X), X * (X * 1.702).sigmoid())


def test_a_replacement_may_decline_or_call_the_operator():
    aten = torch.ops.aten
    table = {aten.sin.default: lambda x: NotImplemented, aten.cos.default: lambda x: -aten.cos(x)}
    module = make_fx(lambda x: x.sin() + x.cos(), decomposition_table=table)(X)
    assert names(module) == ["sin.default", "cos.default", "neg.default", "add.Tensor"]


@pytest.mark.parametrize("mode", MODES)
def test_values_of_inputs_are_not_read(mode):
    for function in (lambda x: x * x.sum().item(), lambda x: x if x.sum() > 0 else -x):
        with pytest.raises(RuntimeError, match="value of data"):
            make_fx(function, tracing_mode=mode)(X)


def test_what_is_not_recorded_is_refused():
    with pytest.raises(NotImplementedError, match="vmap"):
        make_fx(torch.func.vmap(torch.sin))(X)
    with pytest.raises(NotImplementedError, match="pre_dispatch"):
        make_fx(torch.sin, pre_dispatch=True)
    with pytest.raises(ValueError, match="tracing_mode"):
        make_fx(torch.sin, tracing_mode="other")


def test_numbers_are_constants():
    module = make_fx(lambda x, n: x * n)(X, 3)
    assert [node.name for node in module.graph.nodes] == ["x_1", "n_1", "mul", "output"]
    assert torch.equal(module(X, 5), X * 3)


def test_negative_indices_count_from_the_end():
    x, index = torch.arange(6.0).reshape(2, 3), torch.tensor([[0, -1, 1], [2, -2, -3]])
    graph = make_fx(lambda x, i: torch.take_along_dim(x, i, 1))(x, index)
    assert torch.equal(graph(x, index), torch.take_along_dim(x, index, 1))
    with pytest.raises(RuntimeError, match="out of bounds"):
        graph(x, index + 4)
