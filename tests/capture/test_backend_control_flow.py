"""Operators that take functions in the graphs that a backend gets."""

from __future__ import annotations

import pytest

import flambeau as torch
from tests.core.control_flow_programs import PAIRS, W, X, derivatives, same


class Graphs:
    """A backend that runs the graphs as they are, and has a list of them."""

    def __init__(self):
        self.modules = []

    def __call__(self, module, inputs):
        self.modules.append(module)
        return module


def targets(module):
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


NODES = {"scan": "scan", "scan from the end": "scan", "map": "map_impl", "cond": "cond",
         "nested": "cond", "while_loop": "while_loop"}  # fmt: skip


@pytest.mark.parametrize("name", NODES)
def test_one_graph_holds_the_operator(name):
    operator, plain = PAIRS[name]
    backend = Graphs()
    compiled = torch.compile(operator, backend=backend, fullgraph=True)
    with torch.no_grad():
        for x in (X, -X, X * 2):
            results = [f(x) for f in (compiled, plain)]
            assert same(*(r if isinstance(r, (tuple, list)) else [r] for r in results))
    assert len(backend.modules) == 1 and targets(backend.modules[0]).count(NODES[name]) == 1
    for x in (X, -X):
        assert same(derivatives(compiled, x), derivatives(plain, x))


def test_what_a_branch_reads_is_an_input():
    linear = torch.nn.Linear(8, 8)

    def f(x):
        y = x * 2
        return torch.cond(x.sum() > 0, lambda a: linear(a) * y, lambda a: a.cos() * W, (y,)) + 1

    backend = Graphs()
    compiled = torch.compile(f, backend=backend, fullgraph=True)
    for x in (X, -X):
        results = []
        for function in (compiled, f):
            linear.zero_grad()
            loss = function(x).square().sum()
            if loss.requires_grad:
                loss.backward()
            results.append([loss.detach(), linear.weight.grad])
        assert torch.equal(results[0][0], results[1][0])
        first, second = results[0][1], results[1][1]
        assert first is second is None or torch.equal(first, second)
    (module,) = backend.modules
    assert [name for name, _ in module.named_children()] == ["cond_true_0", "cond_false_0"]
    node = next(node for node in module.graph.nodes if node.name == "cond")
    assert (
        len(node.args[3]) == 4 and len(module.cond_false_0.graph.find_nodes(op="placeholder")) == 4
    )


def test_functions_that_graphs_cannot_hold_run_at_once():
    def f(x):
        y = x + 1
        return torch.cond(y.sum() > 0, lambda a: a * a.sum().item(), lambda a: a.cos(), (y,)) * 2

    backend = Graphs()
    compiled = torch.compile(f, backend=backend)
    for x in (X, -X):
        assert torch.equal(compiled(x), f(x))
    assert len(backend.modules) > 2
    with pytest.raises(torch._dynamo.exc.Unsupported, match="cond: item"):
        torch.compile(f, backend=Graphs(), fullgraph=True)(X)

    def failing(x):
        def wrong(a):
            raise ValueError("of the user")

        return torch.cond(x.sum() > 0, wrong, torch.cos, (x,))

    for _ in range(2):  # nothing of the function is left in the recorder
        with pytest.raises(ValueError, match="of the user"):
            torch.compile(failing, backend=backend)(X)


def test_branches_that_differ_are_refused():
    with pytest.raises(RuntimeError, match="true_fn returns"):
        torch.compile(
            lambda x: torch.cond(x.sum() > 0, lambda a: a, lambda a: a[0], (x,)), backend=Graphs()
        )(X)


def test_random_draws_are_those_of_the_branch():
    def f(x):
        return torch.cond(
            x.sum() > 0, lambda a: a + torch.rand(8), lambda a: a * torch.rand(4, 8), (x,)
        )

    compiled = torch.compile(f, backend=Graphs(), fullgraph=True)
    for x in (X, -X, X):
        torch.manual_seed(3)
        expected = f(x)
        torch.manual_seed(3)
        assert torch.equal(compiled(x), expected)
        assert torch.equal(torch.rand(2), (torch.manual_seed(3), f(x), torch.rand(2))[2])


def test_equal_regions_share_a_graph():
    layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))

    @torch.compiler.nested_compile_region
    def layer(module, x, *, scale):
        return {"y": module(x).relu() * scale}

    def f(x):
        for module in layers:
            x = layer(module, x, scale=2)["y"]
        return x

    backend = Graphs()
    compiled = torch.compile(f, backend=backend, fullgraph=True)
    assert torch.equal(compiled(X), f(X))
    (module,) = backend.modules
    assert targets(module).count("invoke_subgraph") == 3
    assert [name for name, _ in module.named_children()] == ["subgraph_0"]
    gradients = []
    for function in (compiled, f):
        layers.zero_grad()
        function(X).square().sum().backward()
        gradients.append([p.grad.clone() for p in layers.parameters()])
    assert same(*gradients)
