"""Compiled backwards: one program each, and the switches that compile them."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

import flambeau as torch
import flambeau.nn as nn
from flambeau import _core
from flambeau._dynamo import compiled_autograd
from flambeau._dynamo.utils import counters, maybe_enable_compiled_autograd
from tests.autograd.test_compiled_autograd import (
    WAYS,
    Graphs,
    blocks,
    clean,
    data,
    grads,
    hooked,
    net,
    training,
)
from tests.capture.conftest import compare

__all__ = ["clean"]  # a fixture of every test


# -------------------------------------------------------------------------- one program each
def flushes(function: Callable[[], Any]) -> list[Any]:
    """Where a backward ran, and why."""
    report = torch.compiler.explain(function)
    return [(flush.reason, flush.known) for flush in report.flushes]


def test_a_broken_forward_has_one_backward() -> None:
    model = net(4, 4, 4, 4)
    hooked(model, [])

    @torch.compile
    def run(x: Any) -> Any:
        for layer in model:
            x = layer(x)
            torch._dynamo.graph_break()
        return x.sum()

    for _ in range(2):
        loss = run(data(5, 4))
        assert flushes(loss.backward) == [("end of region", False)]
    with maybe_enable_compiled_autograd(True):
        for _ in range(3):
            run(data(5, 4)).backward()
    assert counters["compiled_autograd"] == {"captures": 1, "compiles": 1}


def test_a_backend_gets_one_graph_with_hooks() -> None:
    model, graphs = net(4, 4, 4), Graphs()
    model[0].weight.register_hook(lambda g: g.sin())
    model[2].weight.register_post_accumulate_grad_hook(lambda p: (p.grad.cos_(), None)[1])
    model[1].register_full_backward_hook(lambda m, gi, go: (gi[0].tan(),))

    @torch.compile
    def run(x: Any) -> Any:
        for layer in model:
            x = layer(x)
            torch._dynamo.graph_break()
        return x.sum()

    with compiled_autograd._enable(torch.compile(backend=graphs, fullgraph=True)):
        run(data(5, 4)).backward()
        run(data(5, 4)).backward()  # adds to gradients
        run(data(5, 4)).backward()
    assert len(graphs.modules) == 2
    calls = [node.target for node in graphs.modules[0].graph.nodes if "call" in node.op]
    assert {"sin", "cos_", "tan"} <= set(calls)
    names = [getattr(target, "__name__", "") for target in calls]
    assert {"CompiledFunctionBackward", "TanhBackward0", "AddmmBackward0"} <= set(names)
    assert counters["compiled_autograd"]["captures"] == 2


def test_sizes_vary() -> None:
    model = net(4, 8, 2)
    hooked(model, [])
    with maybe_enable_compiled_autograd(True):
        for n in (5, 9, 3, 17):
            model.zero_grad()
            model(data(n, 4)).square().mean().backward()
    assert counters["compiled_autograd"] == {"captures": 1, "compiles": 1}
    assert _core.stream_stats()["plans"] == 1


@pytest.mark.parametrize("backend", [Graphs(), None])
def test_compilers_with_equal_options_share_programs(backend: Any) -> None:
    """Each step has a `torch.compile` of its own; graphs of a backend have symbols for sizes."""
    model = net(4, 8, 2)
    hooked(model, [])
    for n in (5, 9, 3, 17, 12):
        grads_of = []
        for on in (True, False):
            model.zero_grad()
            compiler = torch.compile(backend=backend)
            with compiled_autograd._enable(compiler) if on else nullcontext():
                model(data(n, 4)).square().mean().backward()
            grads_of.append(grads(model))
        compare(*grads_of)
    if backend is None:
        assert counters["compiled_autograd"]["captures"] == 1
    else:
        assert len(backend.modules) == 2  # numbers at first, then symbols
        assert "torch.SymInt" in backend.modules[1].code


def test_data_in_hooks() -> None:
    model = net(4, 8, 2)
    model[0].weight.register_hook(lambda g: g * 2 if g.sum() > 0 else g)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="branches on data"):
        with maybe_enable_compiled_autograd(True):
            model(data(5, 4)).sum().backward()
    counters.clear()
    with maybe_enable_compiled_autograd(True, fullgraph=False):
        model(data(5, 4)).sum().backward()
    assert counters["compiled_autograd"]["captures"] == 1


# --------------------------------------------------------------------------------- switches
def test_the_setting() -> None:
    model = net(4, 8, 2)

    def train(x: Any) -> Any:
        loss = model(x).square().mean()
        loss.backward()
        return loss, compiled_autograd.compiled_autograd_enabled

    expected, _ = train(data(5, 4))
    compiled = torch.compile(train)
    assert compiled(data(5, 4))[1] is False
    with torch._dynamo.config.patch(compiled_autograd=True):
        for backend in (None, Graphs()):
            model.zero_grad()
            counters.clear()
            torch._dynamo.reset()
            own = torch.compile(train, backend=backend)
            result = own(data(5, 4))
            assert result[1] and torch.equal(result[0], expected)
            assert counters["compiled_autograd"]["captures"] == 1
        assert len(backend.modules) == 2  # the forward, the backward
        with torch._dynamo.config.patch(compiled_autograd_kwargs_override={"fullgraph": True}):
            assert compiled(data(5, 4))[1]
        with torch._dynamo.config.patch(compiled_autograd_kwargs_override={"mode": "default"}):
            with pytest.raises(AssertionError, match="fullgraph"):
                compiled(data(5, 4))
        with compiled_autograd._disable():
            assert compiled(data(5, 4))[1] is False


def test_nested_switches() -> None:
    assert (compiled_autograd.depth, compiled_autograd.active_disable_ctx) == (0, False)
    seen = []
    x = data(3, grad=True)
    x.register_hook(lambda g: seen.append(compiled_autograd.in_compiled_autograd_region))
    with compiled_autograd.enable(torch.compile, dynamic=False):
        with compiled_autograd.enable(torch.compile):
            assert compiled_autograd.depth == 2
            x.sin().sum().backward()
        with compiled_autograd.disable():
            assert compiled_autograd.active_disable_ctx
            assert not compiled_autograd.compiled_autograd_enabled
            x.sin().sum().backward()
        assert compiled_autograd.compiled_autograd_enabled
    assert seen == [True, False]
    with pytest.raises(AssertionError, match="bool"):
        with compiled_autograd._enable(torch.compile, dynamic=1):
            pass
    with pytest.raises(AttributeError):
        _ = compiled_autograd.no_such_name
    with maybe_enable_compiled_autograd(False):
        assert not compiled_autograd.compiled_autograd_enabled


def test_the_eager_stance() -> None:
    with torch.compiler.set_stance("force_eager"), compiled_autograd._enable(torch.compile):
        assert compiled_autograd.compiled_autograd_enabled_force_eager
        training()
    with compiled_autograd._enable(torch.compile):
        with torch.compiler.set_stance("force_eager"):
            training()
    assert counters["compiled_autograd"]["captures"] == 0


def test_anomaly_mode_is_eager() -> None:
    x = data(3, grad=True)
    with compiled_autograd._enable(torch.compile), torch.autograd.detect_anomaly():
        with pytest.raises(RuntimeError, match="nan"):
            (x.sqrt() * 0).pow(0.5).sum().backward()
    assert counters["compiled_autograd"]["captures"] == 0


def test_compiler_functions() -> None:
    seen = []

    def identity(gm: Any) -> Any:
        seen.append(isinstance(gm, torch.fx.GraphModule))
        return gm

    def failing(gm: Any) -> Any:
        raise ValueError("no compiler")

    x = data(3, grad=True)
    with compiled_autograd._enable(identity):
        x.sin().sum().backward()
        x.sin().sum().backward()
    assert seen == [True] and counters["compiled_autograd"]["captures"] == 1
    with compiled_autograd._enable(failing), pytest.raises(ValueError, match="no compiler"):
        x.sin().sum().backward()
    with compiled_autograd._enable(lambda gm: torch._inductor.compile(gm, ())):
        x.sin().sum().backward()
    assert torch.equal(x.grad, x.cos() + x.cos() + x.cos())


def test_the_eager_backend() -> None:
    compare(training(), under(torch.compile(backend="eager"), training))
    compare(training(), under(torch.compile(backend="eager", fullgraph=True), training))
    model = net(4, 8, 2)
    with torch._dynamo.config.patch(compiled_autograd=True):
        counters.clear()
        torch.compile(lambda x: model(x).sum().backward(), backend="eager")(data(5, 4))
        assert counters["compiled_autograd"]["captures"] == 1


def under(compiler: Callable[..., Any], function: Callable[[], Any]) -> Any:
    """Calls a function while backwards are compiled."""
    with compiled_autograd._enable(compiler):
        return function()


def test_nothing_else_sees_the_program() -> None:
    seen: list[str] = []
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, args, result: seen.append(type(module).__name__)
    )
    try:
        for way in WAYS:
            with blocks()[way]():
                net(2, 2)(data(1, 2)).sum().backward()
    finally:
        handle.remove()
    assert set(seen) == {"Linear", "Tanh", "Sequential"}


@pytest.mark.parametrize("way", WAYS)
def test_graphs_are_freed(way: str) -> None:
    def run() -> Any:
        x = data(3, grad=True)
        y = (x * 2).sin()
        y.sum().backward()
        return weakref.ref(x), weakref.ref(y)

    with blocks()[way]():
        references = [*run(), *run()]
    gc.collect()
    assert all(r() is None for r in references)


@pytest.mark.parametrize("way", WAYS)
def test_fake_tensors_and_types_of_users(way: str) -> None:
    calls: list[str] = []

    class Noted(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            calls.append(getattr(func, "__name__", ""))
            return super().__torch_function__(func, types, args, kwargs)

    def run() -> Any:
        calls.clear()
        x = data(3).as_subclass(Noted).requires_grad_()
        (x * x).sin().sum().backward()
        return [*calls], x.grad.as_subclass(torch.Tensor), type(x.grad)

    expected = run()
    with blocks()[way]():
        assert run()[0] == expected[0] and run()[2] is expected[2]
        compare(run()[1], expected[1])
        with torch._subclasses.FakeTensorMode():
            layer = nn.Linear(3, 3)
            layer(torch.ones(2, 3)).sum().backward()
            assert layer.weight.grad.shape == (3, 3)


def test_graphs_that_are_read_late() -> None:
    def early(gm: Any) -> Any:
        return lambda *args: gm(*args) if len(gm.graph.nodes) else None

    def late(gm: Any) -> Any:
        return lambda *args: (gm(*args), gm.code)[0]

    compare(training(), under(early, training))
    with pytest.raises(NotImplementedError, match="while it runs"):
        under(late, training)


def test_threads_have_their_own_switch() -> None:
    model, x = net(4, 8, 2), data(5, 4)
    results, errors, enabled = [], [], []

    def train() -> Any:  # draws nothing: threads share the generator
        own = copy.deepcopy(model)
        for _ in range(2):
            own(x).square().mean().backward()
        return grads(own)

    def work(on: bool) -> None:
        try:
            with compiled_autograd._enable(torch.compile) if on else nullcontext():
                for _ in range(5):
                    results.append(train())
                enabled.append((on, compiled_autograd.compiled_autograd_enabled))
        except BaseException as error:
            errors.append(error)

    with compiled_autograd._enable(torch.compile):
        threads = [threading.Thread(target=work, args=(n % 2 == 0,)) for n in range(4)]
        [t.start() for t in threads]
        results.append(train())
        [t.join() for t in threads]
    expected = train()
    assert not errors and all(a is b for a, b in enabled)
    for result in results:
        compare(expected, result)
