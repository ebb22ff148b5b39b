"""Compiled backwards beside PyTorch's: counts, the order of hooks, gradients, errors."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import flambeau

oracle = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

Outcome = tuple[Any, ...]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Both start without programs; PyTorch's compiler changes a switch of distributions."""
    checks = oracle.distributions.Distribution._validate_args
    for torch in (flambeau, oracle):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
    yield
    oracle._dynamo.reset()
    oracle.distributions.Distribution.set_default_validate_args(checks)


def numbers(*shape: int, seed: int = 0) -> Any:
    """The same numbers for both."""
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def net(torch: Any) -> Any:
    """Three layers with the same weights in both."""
    layers = [torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)]
    model = torch.nn.Sequential(*layers)
    with torch.no_grad():
        for n, p in enumerate(model.parameters()):
            p.copy_(torch.tensor(numbers(*p.shape, seed=n)))
    return model


def enabled(torch: Any, graphs: list[Any], fullgraph: bool = True) -> Any:
    """A block in which backwards are compiled by a backend that runs graphs as they are."""

    def backend(gm: Any, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    def compiler(gm: Any) -> Any:
        return torch.compile(gm, backend=backend, fullgraph=fullgraph, dynamic=True)

    return torch._dynamo.compiled_autograd._enable(compiler)


def captures(torch: Any) -> int:
    """How many backwards were new."""
    return int(torch._dynamo.utils.counters["compiled_autograd"]["captures"])


def gradients(model: Any) -> list[Any]:
    """Of the parameters, as arrays."""
    return [p.grad.detach().numpy().copy() for p in model.parameters()]


def steps(torch: Any) -> Outcome:
    """Batches of several sizes."""
    model, graphs, results = net(torch), [], []
    with enabled(torch, graphs):
        for n in (5, 3, 9):
            model.zero_grad()
            model(torch.tensor(numbers(n, 4))).square().mean().backward()
            results += gradients(model)
    return results, len(graphs) > 0


def broken(torch: Any) -> Outcome:
    """A forward in several graphs, whose backward is one."""
    model, graphs, counts = net(torch), [], []

    @torch.compile(backend="eager")
    def forward(x: Any) -> Any:
        for layer in model:
            x = layer(x)
            torch._dynamo.graph_break()
        return x.square().sum()

    with enabled(torch, graphs):
        forward(torch.tensor(numbers(5, 4))).backward()
        counts.append((len(graphs), captures(torch)))
        model.zero_grad()
        forward(torch.tensor(numbers(5, 4))).backward()
        counts.append((len(graphs), captures(torch)))
    return gradients(model), counts


def hooks(torch: Any) -> Outcome:
    """Hooks of every kind, in the graph and in order."""
    model, graphs, log = net(torch), [], []
    for n, p in enumerate(model.parameters()):
        p.register_hook(lambda g, n=n: (log.append(("tensor", n)), g.sin())[1])
        p.register_post_accumulate_grad_hook(lambda p, n=n: log.append(("accumulated", n)))
    for n, layer in enumerate(model):
        layer.register_full_backward_pre_hook(lambda m, g, n=n: log.append(("before", n)))
        layer.register_full_backward_hook(
            lambda m, gi, go, n=n: (log.append(("after", n)), (gi[0].atan(),))[1]
        )
    x = torch.tensor(numbers(5, 4)).requires_grad_()
    with enabled(torch, graphs):
        model(x).square().sum().backward()
    (graph,) = graphs
    calls = [node.target for node in graph.graph.nodes if "call" in node.op]
    called = [getattr(each, "__name__", each) for each in calls]
    counts = [sum(str(each) == name for each in called) for name in ("sin", "atan")]
    return [*gradients(model), x.grad.numpy()], log, counts, captures(torch)


def accumulated(torch: Any) -> Outcome:
    """Gradients that are there, retained graphs, `autograd.grad`."""
    model, graphs = net(torch), []
    x = torch.tensor(numbers(5, 4)).requires_grad_()
    with enabled(torch, graphs):
        y = model(x).square().sum()
        y.backward(retain_graph=True)
        y.backward(retain_graph=True)
        slopes = torch.autograd.grad(y, [x, *model.parameters()])
    return [*gradients(model), x.grad.numpy(), *(s.numpy() for s in slopes)], len(slopes)


def functions(torch: Any) -> Outcome:
    """A custom function, whose backward is in the graph."""
    graphs: list[Any] = []

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 3

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.saved_tensors[0].cosh()

    x = torch.tensor(numbers(5)).requires_grad_()
    with enabled(torch, graphs):
        Scaled.apply(x.sin()).sum().backward()
    (graph,) = graphs
    return [x.grad.numpy()], "cosh" in graph.code, captures(torch)


def errors(torch: Any) -> Outcome:
    """An error in a hook, and a program after it."""
    x, graphs = torch.tensor(numbers(5)).requires_grad_(), []
    kinds = []

    def failing(g: Any) -> Any:
        raise ValueError("no")

    with enabled(torch, graphs, fullgraph=False):
        y = x.sin()
        handle = y.register_hook(failing)
        try:
            y.sum().backward(retain_graph=True)
        except Exception as error:
            kinds.append(type(error).__name__)
        handle.remove()
        y.sum().backward()
    return [x.grad.numpy()], kinds


def switches(torch: Any) -> Outcome:
    """What the module's names say."""
    module, seen = torch._dynamo.compiled_autograd, []

    def note() -> None:
        seen.append((module.compiled_autograd_enabled, module.in_compiled_autograd_region))

    note()
    with enabled(torch, []):
        note()
        with module._disable():
            note()
        note()
    note()
    with torch._dynamo.utils.maybe_enable_compiled_autograd(False):
        note()
    return [], seen


def setting(torch: Any) -> Outcome:
    """`torch._dynamo.config.compiled_autograd` of a function that trains, and outside of one."""
    model, counts = net(torch), []

    def backend(gm: Any, example_inputs: Any) -> Any:
        return gm.forward

    with torch._dynamo.config.patch(compiled_autograd=True):

        @torch.compile(backend=backend)
        def train(x: Any) -> Any:
            loss = model(x).square().mean()
            loss.backward()
            return loss

        for _ in range(2):
            model.zero_grad()
            train(torch.tensor(numbers(5, 4)))
            counts.append(captures(torch))
        model(torch.tensor(numbers(5, 4))).sum().backward()  # of no compiled function
        counts.append(captures(torch))
    return gradients(model), counts


CASES: list[Callable[[Any], Outcome]] = [
    steps, broken, hooks, accumulated, functions, errors, switches, setting,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_as_pytorch(case: Callable[[Any], Outcome]) -> None:
    (ours, *facts), (theirs, *expected) = case(flambeau), case(oracle)
    assert facts == expected
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


def graphs_of_sizes(torch: Any) -> int:
    """Graphs that a backend gets when sizes vary and each step compiles anew."""
    model, graphs = net(torch), []

    def backend(gm: Any, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    enable = importlib.import_module(f"{torch.__name__}._dynamo.compiled_autograd")._enable
    for n in (5, 3, 9, 12):
        with enable(torch.compile(backend=backend)):
            model.zero_grad()
            model(torch.tensor(numbers(n, 4))).square().mean().backward()
    return len(graphs)


def test_sizes_make_two_graphs() -> None:
    """A backend that is a function gets a graph of numbers, then one of symbols."""
    assert [graphs_of_sizes(torch) for torch in (flambeau, oracle)] == [2, 2]


def test_sizes_make_one_capture() -> None:
    """Where the compiler compiles."""
    for torch in (flambeau, oracle):
        model = net(torch)
        with ExitStack() as stack:
            if torch is flambeau:
                stack.enter_context(torch._dynamo.utils.maybe_enable_compiled_autograd(True))
            else:
                stack.enter_context(enabled(torch, []))
            for n in (5, 3, 9):
                model.zero_grad()
                model(torch.tensor(numbers(n, 4))).square().mean().backward()
        assert captures(torch) == 1
