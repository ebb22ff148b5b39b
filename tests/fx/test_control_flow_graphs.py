"""Graphs of `make_fx` with operators that take functions: one node with the same bits."""

from __future__ import annotations

import copy

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.fx.experimental.proxy_tensor import make_fx
from tests.core.control_flow_programs import PAIRS, W, X, same

hops = torch._higher_order_ops
ops = torch.ops.higher_order
NODES = {"scan": "scan", "scan from the end": "scan", "map": "map_impl", "cond": "cond",
         "nested": "cond", "checkpoint": "cond", "while_loop": "while_loop"}  # fmt: skip


def leaves(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


@pytest.mark.parametrize("mode", ["real", "fake"])
@pytest.mark.parametrize("name", NODES)
def test_one_node_computes_what_python_does(name, mode):
    operator, plain = PAIRS[name]
    module = make_fx(operator, tracing_mode=mode)(X)
    targets = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    assert targets.count(NODES[name]) == 1
    for x in (X, -X, X * 2):  # the graph holds for both branches
        assert same(leaves(module(x)), leaves(plain(x)))
        assert same(leaves(copy.deepcopy(module)(x)), leaves(plain(x)))


def gradient(function):
    def call(x):
        x = x.clone().requires_grad_()
        total = sum(y.sin().sum() for y in leaves(function(x)))
        return torch.autograd.grad(total, x)[0]

    return call


@pytest.mark.parametrize("mode", ["real", "fake"])
@pytest.mark.parametrize("name", ["cond", "nested", "map", "scan", "associative_scan"])
def test_gradients_are_recorded(name, mode):
    operator, plain = PAIRS[name]
    module = make_fx(gradient(operator), tracing_mode=mode)(X)
    targets = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    if name in ("cond", "map"):
        assert targets.count(NODES[name]) == 2  # one of them backward
    for x in (X, -X):
        assert torch.equal(module(x), gradient(plain)(x))


def test_second_derivatives_of_a_branch():
    operator, plain = PAIRS["cond"]
    module = make_fx(second := _second(operator))(X)
    for x in (X, -X):
        assert torch.equal(module(x), second(x))
        assert torch.equal(module(x), _second(plain)(x))


def _second(function):
    def call(x):
        x = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        return torch.autograd.grad((first**2).sum(), x)[0]

    return call


def facts(module):
    return [
        (node.op, node.name, str(node.target), [str(each) for each in node.all_input_nodes])
        for node in module.graph.nodes
    ]


def test_what_a_branch_reads_becomes_an_operand():
    linear = nn.Linear(8, 8)

    def f(x, y, p):
        return torch.cond(p, lambda a: linear(a) + y, lambda a: a.cos() * W, (x,))

    module = make_fx(f)(X, X + 1, torch.tensor(True))
    node = next(node for node in module.graph.nodes if node.name == "cond")
    assert [str(each) for each in node.args[3]] == [
        "x_1", "_param_constant0", "_param_constant1", "y_1", "_tensor_constant0",
    ]  # fmt: skip
    for graph in (module.true_graph_0, module.false_graph_0):
        names = [each.name for each in graph.graph.nodes if each.op == "placeholder"]
        assert names == [f"arg{number}_1" for number in range(5)]
        assert all(each.meta["val"].dim() for each in graph.graph.nodes if each.op != "output")
    for p in (True, False):
        assert torch.equal(module(X, X * 3, torch.tensor(p)), f(X, X * 3, torch.tensor(p)))


def test_branches_run_once_and_draw_as_in_eager_mode():
    calls = []

    def f(x, p):
        def true_fn(a):
            calls.append("true")
            return a + torch.rand(8)

        return torch.cond(p, true_fn, lambda a: a * torch.rand(4, 8), (x,))

    torch.manual_seed(0)
    module = make_fx(f)(X, torch.tensor(False))
    drawn = torch.rand(4, 8)
    assert calls == ["true"]
    torch.manual_seed(0)
    f(X, torch.tensor(False))
    assert torch.equal(drawn, torch.rand(4, 8))  # tracing took what one call takes
    for p in (True, False):
        torch.manual_seed(1)
        expected = f(X, torch.tensor(p))
        torch.manual_seed(1)
        assert torch.equal(module(X, torch.tensor(p)), expected)


def test_operators_as_functions():
    def f(x, y):
        last, power = ops.while_loop(
            lambda i, a, b: i < 3, lambda i, a, b: (i + 1, a * b), (torch.tensor(0), x), (y,)
        )
        carry, rows = ops.scan(lambda c, v, k: [c + v * k, c * v], [y[0]], [x], (y[1],))
        (sums,) = ops.associative_scan(lambda a, b: [a + b], [x], ())
        (products,) = ops.map_impl(lambda a, b: (a * b,), [x], [y[0]])
        first = ops.invoke_subgraph(lambda a: (a.sin(),), "id", x)
        second = ops.invoke_subgraph(lambda a: (a.sin(),), "id", *first)
        return last, power, carry, rows, sums, products, *second

    for mode in ("real", "fake"):
        module = make_fx(f, tracing_mode=mode)(X, X + 1)
        assert same(module(X * 2, X), f(X * 2, X))
        names = {node.name for node in module.graph.nodes if node.op == "get_attr"}
        assert {"while_loop_cond_graph_0", "while_loop_body_graph_0", "scan_combine_graph_0",
                "associative_scan_combine_graph_0", "body_graph_0", "repeated_subgraph0",
                "repeated_subgraph1"} <= names  # fmt: skip
        bodies = module.while_loop_body_graph_0.graph.nodes
        assert [node.name for node in bodies][:3] == ["i_1", "a_1", "b_1"]


REFUSED = {
    "shapes": (lambda x: torch.cond(x.sum() > 0, lambda a: a, lambda a: a[0], (x,)),
               RuntimeError, "true_fn returns .*false_fn"),
    "dtypes": (lambda x: torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a.long(), (x,)),
               RuntimeError, "equal dtypes and shapes"),
    "containers": (lambda x: torch.cond(x.sum() > 0, lambda a: [a + 1], lambda a: (a + 1,), (x,)),
                   RuntimeError, "equal containers"),
    "numbers": (lambda x: torch.cond(x.sum() > 0, lambda a: 1, lambda a: 2, (x,)),
                torch._dynamo.exc.UncapturedHigherOrderOpError, "a branch returns a int"),
    "values of data": (
        lambda x: torch.cond(x.sum() > 0, lambda a: a * a.sum().item(), lambda a: a + 1, (x,)),
        RuntimeError, "a value of data is read"),
    "carried numbers": (lambda x: torch.while_loop(
        lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (0, x)),
        NotImplementedError, "carry torch.tensor"),
    "gradients of loops": (gradient(PAIRS["while_loop"][0]), NotImplementedError,
                           "length data decides"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_graph_can_hold(name):
    function, kind, text = REFUSED[name]
    with pytest.raises(kind, match=text):
        make_fx(function)(X)


def test_conditions_of_python_are_no_nodes():
    module = make_fx(lambda x: torch.cond(True, torch.sin, torch.cos, (x,)))(X)
    assert [node.name for node in module.graph.nodes] == ["x_1", "sin", "output"]
