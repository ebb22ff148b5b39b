"""`aot_function(dynamic=True)` beside PyTorch's: operators of both graphs, results, gradients."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")
for library in ("torch", "flambeau"):
    importlib.import_module(f"{library}._functorch.aot_autograd")
pytestmark = pytest.mark.filterwarnings("ignore")


def programs(library: Any) -> dict[str, Any]:
    """Functions of one matrix."""
    functional = library.nn.functional
    return {
        "pointwise": lambda x: x.sin() * x.shape[0],
        "joined": lambda x: library.cat([x, x]).tanh().sum(0),
        "product": lambda x: (x @ x.t()).relu(),
        "softmax": lambda x: functional.softmax(x, 1).exp(),
        "reshaped": lambda x: x.view(x.shape[1], -1).cos().sum(),
        "halves": lambda x: x[: x.shape[0] // 2].exp(),
    }


def run(library: Any, name: str) -> tuple[list[list[str]], list[list[float]]]:
    """Operators on tensors per graph, and results and gradients for two sizes."""
    graphs: list[list[str]] = []

    def compiler(module: Any, inputs: Any) -> Any:
        targets = [str(n.target) for n in module.graph.nodes if n.op == "call_function"]
        graphs.append([x for x in targets if x.startswith("aten.") and "sym_" not in x])
        return module

    aot = library._functorch.aot_autograd
    boxed = aot.make_boxed_compiler(compiler)
    function = aot.aot_function(programs(library)[name], boxed, dynamic=True)
    values = []
    for n in (4, 6):
        x = (library.arange(n * 5.0) * 0.3).sin().reshape(n, 5).requires_grad_()
        result = function(x)
        result.sum().backward()
        values += [result.detach().reshape(-1).tolist(), x.grad.reshape(-1).tolist()]
    return graphs, values


@pytest.mark.parametrize("name", programs(torch))
def test_graphs_and_results(name: str) -> None:
    (ours, mine), (theirs, other) = run(flambeau, name), run(torch, name)
    assert len(ours) == len(theirs) == 2
    assert ours[0] == theirs[0]
    for one, two in zip(mine, other, strict=True):
        assert one == pytest.approx(two, rel=1e-4, abs=1e-5)
