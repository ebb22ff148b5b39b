"""Graphs with symbolic sizes beside PyTorch's: operators, symbolic numbers, and results."""

from __future__ import annotations

import importlib

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")
from tests.fx.symbolic_programs import OTHER_SIZES, programs  # noqa: E402

for library in ("torch", "flambeau"):
    importlib.import_module(f"{library}.fx.experimental.proxy_tensor")

# Programs whose symbolic numbers are computed by other nodes: a count of elements as a product.
OTHER_NUMBERS = ("two: gradient of mean",)


def recorded(library, name):
    function, args = programs(library)[name]
    make_fx = library.fx.experimental.proxy_tensor.make_fx
    return make_fx(function, tracing_mode="symbolic")(*args)


def operators(module):
    """Operators on tensors in order, and those on sizes in any."""
    names = [
        str(node.target) if hasattr(node.target, "overloadpacket") else node.target.__name__
        for node in module.graph.nodes
        if node.op == "call_function"
    ]
    sizes = [x for x in names if not x.startswith("aten.") or x.startswith("aten.sym_")]
    return [x for x in names if x not in sizes], sorted(sizes)


def flat(library, results):
    return [
        x.detach().tolist() if isinstance(x, library.Tensor) else x
        for x in library.utils._pytree.tree_leaves(results)
    ]


@pytest.mark.parametrize("name", programs(torch))
def test_graphs_and_results(name):
    ours, theirs = recorded(flambeau, name), recorded(torch, name)
    expected = operators(theirs)
    assert operators(ours)[0] == expected[0]
    assert operators(ours)[1] == expected[1] or name in OTHER_NUMBERS
    for rows, columns in OTHER_SIZES.get(name, ((7, 6), (12, 3))):
        mine = flat(flambeau, ours(*programs(flambeau, rows, columns)[name][1]))
        other = flat(torch, theirs(*programs(torch, rows, columns)[name][1]))
        for one, two in zip(mine, other, strict=True):
            close = flambeau.allclose(
                flambeau.tensor(one, dtype=flambeau.float64),
                flambeau.tensor(two, dtype=flambeau.float64),
                rtol=1e-4,
                atol=1e-5,
            )
            assert close
