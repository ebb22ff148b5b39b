"""Graphs of functions without writes beside PyTorch's: operators, names and what reads what."""

from __future__ import annotations

import importlib

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")
from tests.fx.functional_programs import numbers, programs  # noqa: E402

for library in ("torch", "flambeau"):
    importlib.import_module(f"{library}.fx.experimental.proxy_tensor")
    importlib.import_module(f"{library}._functorch.aot_autograd")

# PyTorch's `functionalize` leaves `native_batch_norm`, which writes: without views, its graphs lose
# what it writes into one. Its `aot_function` replaces it, as both do here.
STATISTICS = ("normed", "inputs: statistics")


def nodes(module):
    return [
        (node.op, node.name, str(node.target), [each.name for each in node.all_input_nodes])
        for node in module.graph.nodes
    ]


def recorded(library, name, remove):
    """The graph's nodes as texts."""
    function, args = programs(library)[name]
    functional = library.func.functionalize(function, remove=remove)
    make_fx = library.fx.experimental.proxy_tensor.make_fx
    return nodes(make_fx(functional)(*[x.clone() for x in args]))


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
@pytest.mark.parametrize("name", [name for name in programs(torch) if name not in STATISTICS])
def test_functionalize(name, remove):
    assert recorded(flambeau, name, remove) == recorded(torch, name, remove)


def ahead_of_time(library):
    """Functions that write, of two matrices of which the second may need a gradient."""

    def returned(x, w):
        x.add_(1)
        return x

    def aliases(x, w):
        x.add_(w)
        return x.view(-1), w * 2

    def inner(x, w):
        x.mul_(2)
        z = x.clone()
        z[0].mul_(3)
        return (z * w).sum()

    def statistics(x, w):
        mean, var = x[0].clone(), x[1].clone() + 2
        return library.nn.functional.batch_norm(w, mean, var, training=True), mean, var

    def rows(x, w):
        x[0].copy_(x[1])
        return x[0] * w

    def own(x, w):
        z = x.clone()
        z[1:].fill_(1.0)
        return z, x * 2

    return {
        "returned": returned, "aliases": aliases, "inner": inner, "statistics": statistics,
        "rows": rows, "own": own,
    }  # fmt: skip


def compiled(library, name, gradients):
    """Graphs, results, arguments and gradient of a function that is compiled ahead of time."""
    graphs = []

    def keep(module, inputs):
        graphs.append(nodes(module))
        return module

    x, w = numbers(library, 3, 4), numbers(library, 3, 4, start=5).requires_grad_(gradients)
    run = library._functorch.aot_autograd.aot_function(ahead_of_time(library)[name], keep)
    results = run(x, w)
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    if results[0].requires_grad:
        results[0].sum().backward()
    tensors = [*results, x, *([] if w.grad is None else [w.grad])]
    same = results[0] is x
    return graphs, [tensor.detach().tolist() for tensor in tensors], same


CASES = [(name, grad) for name in ahead_of_time(torch) for grad in (False, True)]
CASES.remove(("aliases", True))  # an argument's new value has a gradient, which is refused here


@pytest.mark.parametrize(("name", "gradients"), CASES)
def test_aot_function(name, gradients):
    ours, theirs = compiled(flambeau, name, gradients), compiled(torch, name, gradients)
    assert ours[0] == theirs[0] and ours[2] == theirs[2]
    for mine, other in zip(ours[1], theirs[1], strict=True):
        assert flambeau.allclose(flambeau.tensor(mine), flambeau.tensor(other), atol=1e-6)
