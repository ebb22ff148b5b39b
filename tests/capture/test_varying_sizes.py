"""Sizes that vary in functions that are compiled by a backend that is a function."""

from __future__ import annotations

import copy
import operator

import pytest

import flambeau as torch
from flambeau._dynamo.backends.common import aot_autograd
from flambeau._dynamo.testing import (
    CompileCounter,
    CompileCounterWithBackend,
    EagerAndRecordGraphs,
)
from flambeau.fx.experimental.symbolic_shapes import ConstraintViolationError
from tests.capture.size_programs import matrix, programs

PROGRAMS = programs(torch)


@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_are_those_of_the_function(name):
    function, calls, options = PROGRAMS[name]
    compiled = torch.compile(function, backend=EagerAndRecordGraphs(), **options)
    for args in calls:
        first, second = copy.deepcopy(args), copy.deepcopy(args)
        expected, result = function(*first), compiled(*second)
        pairs = zip(*map(torch.utils._pytree.tree_leaves, ((expected, first), (result, second))))
        for one, two in pairs:
            same = torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two
            assert same and type(one) is type(two)


def counted(function, calls, **options):
    counter = CompileCounter()
    compiled = torch.compile(function, backend=counter, **options)
    for args in calls:
        expected = function(*args)
        result = compiled(*args)
        assert torch.equal(result, expected) and result.requires_grad == expected.requires_grad
    return counter.frame_count


def test_a_graph_for_all_sizes():
    backend = EagerAndRecordGraphs()
    f = torch.compile(lambda x: x.view(x.shape[0] * 2, -1) * x.shape[0], backend=backend)
    for n in (4, 5, 6):
        f(matrix(torch, n, 2))
    static, graph = backend.graphs
    nodes = list(graph.graph.nodes)
    assert [n.name for n in nodes] == ["s0", "l_x_", "mul", "view", "mul_1", "output"]
    assert nodes[0].type is torch.SymInt and str(nodes[0].meta["example_value"]) == "s0"
    assert str(list(nodes[1].meta["example_value"].shape)) == "[s0, 2]"
    assert nodes[2].target is operator.mul and nodes[2].args == (nodes[0], 2)
    assert [n.name for n in static.graph.nodes] == ["l_x_", "view", "mul", "output"]
    x = matrix(torch, 9, 2)
    assert torch.equal(graph(9, x)[0], x.view(18, -1) * 9)


def test_gradients():
    counter = CompileCounter()
    layer = torch.nn.Linear(3, 2)
    f = torch.compile(lambda x: (layer(x) / x.shape[0]).square().mean(), backend=counter)
    for n in (4, 5, 6, 7):
        x = matrix(torch, n, 3).requires_grad_()
        y = x.detach().clone().requires_grad_()
        f(x).backward()
        expected = torch.autograd.grad((layer(y) / n).square().mean(), y)[0]
        assert torch.equal(x.grad, expected)
    assert counter.frame_count == 2


def test_numbers_that_leave_the_function_are_plain():
    class Holder:
        size = 0

    holder = Holder()

    def f(x, n):
        holder.size = x.shape[0] + n
        return {"rows": [x.shape[0] * 2], "shape": x.shape, "x": x * n, "hash": {n: 1}[n]}

    compiled = torch.compile(f, backend=CompileCounter(), dynamic=True)
    for n in (4, 5):
        result = compiled(matrix(torch, n, 3), n)
        assert type(result["rows"][0]) is int and result["rows"] == [2 * n]
        assert [type(k) for k in result["shape"]] == [int, int] and result["shape"] == (n, 3)
        assert type(holder.size + 1) is int and holder.size == 2 * n
        assert copy.deepcopy(holder.size) == 2 * n


def test_python_reads_sizes():
    def f(x):
        rows, columns = x.shape
        text = f"{rows}" + ",".join(map(str, range(columns)))
        square = rows == columns
        return x.sum() + len(text) + square + rows**2 // 3 + round(rows / 3) - abs(-rows) % 5

    calls = [(matrix(torch, *s),) for s in ((4, 3), (5, 3), (5, 5), (12, 3), (40, 3))]
    assert counted(f, calls) >= 2
    assert counted(f, calls, dynamic=True) >= 2


def test_a_graph_break_between():
    def f(x):
        n = x.shape[0]
        y = x * n
        if y.sum() > 1e6:
            return y
        return y.view(-1) / n + y.shape[0]

    assert counted(f, [(matrix(torch, n, 3),) for n in (4, 5, 6, 7)]) == 4


def test_a_marked_size_has_to_vary():
    x = matrix(torch, 4, 3)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(ConstraintViolationError, match="marked as dynamic"):
        torch.compile(lambda x: x.reshape(2, 2, 3) if x.shape[0] == 4 else x,
                      backend=CompileCounter())(x)  # fmt: skip


def test_settings():
    calls = [(matrix(torch, n, 3),) for n in (4, 5, 6)]
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        assert counted(torch.sin, calls) == 3
    with torch._dynamo.config.patch(assume_static_by_default=False):
        assert counted(torch.sin, calls) == 1


def test_reset_forgets_what_varies():
    counter = CompileCounter()
    f = torch.compile(torch.sin, backend=counter)
    for n in (4, 5):
        f(matrix(torch, n))
    torch._dynamo.reset()
    f(matrix(torch, 6))
    assert counter.frame_count == 3
    f(matrix(torch, 6))
    assert counter.frame_count == 3


def test_limits_count_graphs():
    counter = CompileCounter()
    f = torch.compile(torch.sin, backend=counter, dynamic=False, recompile_limit=2)
    f(matrix(torch, 3)), f(matrix(torch, 4))
    with pytest.warns(UserWarning, match="2 graphs"):
        assert torch.equal(f(matrix(torch, 5)), matrix(torch, 5).sin())
    assert counter.frame_count == 2


@pytest.mark.parametrize("training", [False, True])
def test_graphs_of_forward_and_backward(training):
    graphs = []

    def store(module, inputs):
        graphs.append(module)
        return module

    def f(x):
        return torch.cat([x, x]).sin().mean(0) * x.shape[0]

    compiled = torch.compile(f, backend=aot_autograd(fw_compiler=store), dynamic=True)
    for n in (4, 5, 6):
        x, y = [matrix(torch, n, 3).requires_grad_(training) for _ in range(2)]
        result = compiled(x)
        assert torch.equal(result, f(y))
        if training:
            result.sum().backward()
            f(y).sum().backward()
            assert torch.equal(x.grad, y.grad)
    assert len(graphs) == 1 + training


def test_graphs_that_the_compiler_compiles():
    counter = CompileCounterWithBackend("inductor")

    def f(x, n):
        return (x.view(x.shape[0] * 3) * n).softmax(0) / (x.shape[0] / 2)

    compiled = torch.compile(f, backend=counter, dynamic=True)
    for n in (4, 5, 6):
        x = matrix(torch, n, 3)
        assert torch.equal(compiled(x, n + 7), f(x, n + 7))
    assert counter.frame_count == 1
