"""Compiled backwards: the bits of eager mode, one program each, in every way to enable them."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau import _core
from flambeau._dynamo import compiled_autograd
from flambeau._dynamo.utils import counters, maybe_enable_compiled_autograd
from flambeau.utils.checkpoint import checkpoint
from tests.capture.conftest import compare


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """Every test starts without programs and counts, and ends without a recorder."""
    torch._dynamo.reset()
    counters.clear()
    yield
    assert not _core.is_recording()
    assert not compiled_autograd.compiled_autograd_enabled


class Graphs:
    """A backend that stores the graphs and runs them as they are."""

    def __init__(self) -> None:
        self.modules: list[Any] = []

    def __call__(self, gm: Any, example_inputs: Any) -> Any:
        self.modules.append(gm)
        return gm.forward

    def reading(self, gm: Any) -> Any:
        """A compiler function that looks at the graph."""
        assert len(gm.graph.nodes) > 0
        return self(gm, ())


def blocks() -> dict[str, Callable[[], Any]]:
    """Ways to run a backward: by the compiler, in graphs of a backend, in graphs read before."""
    graphs = Graphs()
    by_backend = torch.compile(backend=graphs)
    return {
        "compiler": lambda: compiled_autograd._enable(torch.compile),
        "backend": lambda: compiled_autograd._enable(by_backend),
        "reading": lambda: compiled_autograd._enable(graphs.reading),
    }


WAYS = ("compiler", "backend", "reading")


# ------------------------------------------------------------------------------- programs
def net(*sizes: int) -> nn.Module:
    """The same network each time."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for m, n in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(m, n), nn.Tanh()]
    return nn.Sequential(*layers)


def data(*shape: int, grad: bool = False) -> Any:
    """The same numbers each time."""
    torch.manual_seed(1)
    return torch.randn(shape, requires_grad=grad)


def grads(model: nn.Module) -> list[Any]:
    """Gradients of the parameters."""
    return [p.grad for p in model.parameters()]


def training() -> Any:
    model = net(4, 8, 2)
    for _ in range(2):  # the second adds to what is there
        model(data(5, 4)).square().mean().backward()
    return grads(model)


def set_to_zero() -> Any:
    model = net(4, 8, 2)
    for n in (5, 3):
        model.zero_grad(set_to_none=False)
        model(data(n, 4)).square().mean().backward()
    return grads(model)


def by_grad() -> Any:
    model, x = net(4, 8, 2), data(5, 4, grad=True)
    y = model(x)
    first = torch.autograd.grad(y.sum(), [x, *model.parameters()], retain_graph=True)
    second = torch.autograd.grad(y, x, torch.ones_like(y) * 0.5, retain_graph=True)
    unused = torch.autograd.grad(y.sum(), data(2, grad=True), allow_unused=True)
    return first, second, [u is None for u in unused]


def retained() -> Any:
    x = data(5, 4, grad=True)
    y = x.sin()
    y.retain_grad()
    z = (y * y).sum()
    z.backward(retain_graph=True)
    z.backward()
    return x.grad, y.grad


def many_sums() -> Any:
    x = data(4, grad=True)
    y = sum((x * k).sin() for k in range(7))
    (y * x + x.square()).sum().backward()
    return x.grad


def double() -> Any:
    x = data(5, grad=True)
    y = x.sin() * x
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    slope.square().sum().backward()
    (third,) = torch.autograd.grad(
        torch.autograd.grad((x**4).sum(), x, create_graph=True)[0].sum(), x
    )
    return slope.detach(), x.grad, third


def penalty() -> Any:
    model, x = net(3, 6, 1), data(4, 3, grad=True)
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    (slope.norm(2, dim=1) - 1).square().mean().backward()
    return grads(model), x.grad


class Cube(torch.autograd.Function):
    """With a backward that is Python."""

    @staticmethod
    def forward(ctx: Any, x: Any, scale: float) -> Any:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x**3 * scale

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * x.square() * grad * ctx.scale, None


def custom_function() -> Any:
    x = data(4, grad=True)
    Cube.apply(x.sin(), 2.0).sum().backward()
    return x.grad


def checkpoints(reentrant: bool) -> Any:
    model, x = net(4, 6, 3), data(5, 4, grad=True)

    def run() -> Any:
        y = x * 2
        for layer in model:
            y = checkpoint(layer, y, use_reentrant=reentrant)
        return y.sum()

    run().backward()
    return grads(model), x.grad


def in_place() -> Any:
    x = data(4, 4, grad=True)
    y = x * 2
    y[1:3] = x[:2].sin()
    y[:, 0].mul_(x[:, 1])
    y.t().add_(x)
    y.square().sum().backward()
    return x.grad


def layouts() -> Any:
    w = data(4, 6).t().contiguous().t().requires_grad_()
    v = data(3, 4, grad=True)
    (v @ w).sin().sum().backward()
    x = data(2, 3, 4, 4).to(memory_format=torch.channels_last).requires_grad_()
    F.conv2d(x, data(5, 3, 3, 3)).square().sum().backward()
    return w.grad, v.grad, x.grad


def sparse() -> Any:
    torch.manual_seed(0)
    table = nn.Embedding(10, 3, sparse=True)
    for _ in range(2):
        table(torch.tensor([1, 4, 1])).sin().sum().backward()
    gradient: Any = table.weight.grad
    return gradient.is_sparse, gradient.to_dense()


def lookups() -> Any:
    torch.manual_seed(0)
    table, model = nn.Embedding(10, 4), net(4, 6, 5)
    F.cross_entropy(model(table(torch.arange(8))), torch.arange(8) % 5).backward()
    return table.weight.grad, grads(model)


def lists() -> Any:
    leaves = [data(k + 1, 3, grad=True) for k in range(12)]
    parts = torch.cat([x.sin() for x in leaves]).split(13)
    torch.stack([p.sum() for p in parts]).square().sum().backward()
    return [x.grad for x in leaves]


def same_leaf() -> Any:
    x, y = data(4, grad=True), data(4, grad=True)
    (x + y).sum().backward()
    (x + x).sum().backward()
    return x.grad, y.grad, x.grad.data_ptr() != y.grad.data_ptr()


def mixed_dtypes() -> Any:
    model, x = net(4, 8, 2), data(5, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(x).float().square().mean()
    loss.backward()
    return grads(model)


def complex_numbers() -> Any:
    x = torch.complex(data(4), data(4) * 2).requires_grad_()
    (x * x.conj() + x.exp()).abs().sum().backward()
    return x.grad


def norms() -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LayerNorm(16),
        nn.Dropout(0.3),
    )  # fmt: skip
    model(data(3, 2, 4, 4)).square().sum().backward()
    return grads(model), list(model.buffers())


def attention() -> Any:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    layer(data(2, 5, 8)).square().mean().backward()
    return grads(layer)


def compiled_forward() -> Any:
    model = net(4, 8, 8, 2)
    compiled = torch.compile(model)
    for n in (5, 5, 3):
        compiled(data(n, 4)).square().mean().backward()
    return grads(model)


def compiled_and_eager() -> Any:
    model, x = net(4, 8, 4), data(5, 4, grad=True)
    compiled = torch.compile(model)
    y = x.sin()
    (compiled(y) * y + model(compiled(y))).square().mean().backward()
    return grads(model), x.grad


def broken_forward() -> Any:
    model, x = net(4, 4, 4, 4), data(5, 4, grad=True)

    @torch.compile
    def run(x: Any) -> Any:
        for layer in model:
            x = layer(x)
            torch._dynamo.graph_break()
        return x

    run(x).square().mean().backward()
    return grads(model), x.grad


def several_roots() -> Any:
    x, y = data(3, grad=True), data(3, grad=True)
    torch.autograd.backward([x * y, x.sum()], [data(3), None])
    torch.autograd.backward([(x * y).sum()], inputs=[x])
    return x.grad, y.grad


def transformed() -> Any:
    x = data(4)
    f = torch.func.grad(lambda v: (v.sin() * v).sum())
    return f(x), torch.func.vmap(f)(data(3, 4)), torch.func.hessian(lambda v: (v**3).sum())(x)


def further_forms() -> Any:
    x = data(2, 3, grad=True)
    y = (x.sin() * x).sum(1)
    (rows,) = torch.autograd.grad(y, x, torch.eye(2), is_grads_batched=True, retain_graph=True)
    torch.autograd.backward(torch.autograd.graph.get_gradient_edge(y.square().sum()))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t * 2):
        z = (x.exp() * x).sum()
    z.backward()
    with torch.autograd.graph.save_on_cpu():
        z = (x.cos() * x).sum()
    z.backward()
    return rows, x.grad, torch.autograd.functional.jacobian(lambda v: v**2, data(3))


def shared_memory() -> Any:
    array = np.ones((3, 3), dtype="float32")
    w, big = torch.from_numpy(array).requires_grad_(), torch.zeros(2, 4)
    (w * w).sin().sum().backward()
    seen = w.grad.numpy()
    x, y = data(4, grad=True), data(4, grad=True)
    x.grad = big[1]
    y.grad = x.grad  # one memory for both
    (x.sin() * y.cos()).sum().backward()
    (w * w).sum().backward()
    return w.grad, torch.from_numpy(seen), big, x.grad, y.grad


def hooks_that_write() -> Any:
    x, w, total = data(4, grad=True), data(4, grad=True), torch.zeros(4)
    z = x * w
    y = z.exp()

    def first(g: Any) -> Any:
        total.copy_(g)
        return g

    def second(g: Any) -> Any:
        total.mul_(2)
        w.data.add_(1)  # saved for backward, and read after this
        return g + total

    y.register_hook(first)
    z.register_hook(second)
    y.sum().backward()
    return x.grad, w.grad, w.detach(), total


def hooks_that_assign() -> Any:
    x, w, taken = data(5, grad=True), data(5, grad=True), []

    def take(p: Any) -> None:
        taken.append(p.grad)
        p.grad = None

    def replace(p: Any) -> None:
        p.grad = p.grad * 2 + torch.ones_like(p.detach())

    x.register_post_accumulate_grad_hook(take)
    w.register_post_accumulate_grad_hook(replace)
    for _ in range(2):
        (x.sin() * w.cos()).sum().backward()
    return taken, w.grad, x.grad is None


PROGRAMS = [
    training, set_to_zero, by_grad, retained, many_sums, double, penalty, custom_function, in_place,
    layouts, sparse, lookups, lists, same_leaf, mixed_dtypes, complex_numbers, norms, attention,
    compiled_forward, compiled_and_eager, broken_forward, several_roots, transformed,
    further_forms, shared_memory, hooks_that_write, hooks_that_assign,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_bits_are_those_of_eager_mode(program: Callable[[], Any], way: str) -> None:
    expected = program()
    block = blocks()[way]
    for _ in range(2):
        with block():
            result = program()
        compare(expected, result)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant: bool, way: str) -> None:
    expected = checkpoints(reentrant)
    with blocks()[way]():
        result = checkpoints(reentrant)
    compare(expected, result)


# ---------------------------------------------------------------------------------- hooks
def doubled(gradients: Any) -> Any:
    """Gradients, each twice as large."""
    return tuple(None if g is None else g * 2 for g in gradients)


def hooked(model: nn.Module, log: list[Any]) -> None:
    """Registers hooks of every kind; some change gradients."""
    for n, p in enumerate(model.parameters()):
        p.register_hook(lambda g, n=n: log.append(("tensor", n)) or g * 0.5)
        p.register_post_accumulate_grad_hook(
            lambda p, n=n: (log.append(("accumulated", n)), p.grad.mul_(n + 1))[0]
        )
    for n, layer in enumerate(model.children()):
        layer.register_full_backward_pre_hook(
            lambda m, g, n=n: log.append(("before", n)) or (g[0] + 0.25,)
        )
        layer.register_full_backward_hook(
            lambda m, gi, go, n=n: (log.append(("after", n)), doubled(gi))[1]
        )


def with_hooks() -> Any:
    model, log = net(4, 8, 8, 2), []
    hooked(model, log)
    x = data(5, 4, grad=True)
    y = model(x)
    y.register_hook(lambda g: g.clamp(-1, 1) * 3)
    y.grad_fn.register_hook(lambda gi, go: log.append(("node", len(gi), len(go))))
    y.grad_fn.register_prehook(lambda go: log.append("prehook"))
    loss = y.square().mean()
    loss.backward()
    return grads(model), x.grad, [repr(each) for each in log]


def strange_hooks() -> Any:
    x, other = data(4, grad=True), data(4)
    total = torch.zeros(4)
    y = x.sin()
    y.register_hook(lambda g: other)  # made before
    y.register_hook(lambda g: g if g.sum().item() > 0 else -g)  # reads data
    y.register_hook(lambda g: (total.add_(g), g + total)[1])  # has effects
    z = y * 2
    z.register_hook(lambda g: torch.full_like(g, 2.0))
    z.register_hook(lambda g: g.detach().clone())
    z.sum().backward()
    return x.grad, total


def nested_backward() -> Any:
    x, w = data(4, grad=True), data(4, grad=True)

    def hook(g: Any) -> Any:
        with torch.enable_grad():
            (w * w).sum().backward()
            (slope,) = torch.autograd.grad((w**3).sum(), w)
        return g + w.grad + slope

    y = x.sin()
    y.register_hook(hook)
    y.sum().backward()
    return x.grad, w.grad


def steps_in_hooks() -> Any:
    model = net(4, 8, 2)
    optimizers = {p: torch.optim.Adam([p], lr=0.1) for p in model.parameters()}

    def step(p: Any) -> None:
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        model(data(5, 4)).square().mean().backward()
    return [p.detach() for p in model.parameters()]


def queued() -> Any:
    x, log = data(4, grad=True), []
    engine = torch.autograd.Variable._execution_engine

    def hook(g: Any) -> None:
        engine.queue_callback(lambda: log.append(x.grad.sum().item()))

    x.register_hook(hook)
    x.sin().sum().backward()
    return x.grad, log


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "program", [with_hooks, strange_hooks, nested_backward, steps_in_hooks, queued]
)
def test_hooks(program: Callable[[], Any], way: str) -> None:
    expected = program()
    with blocks()[way]():
        result = program()
    compare(expected, result)
    compare(repr(expected), repr(result))


@pytest.mark.parametrize("way", WAYS)
def test_errors_of_hooks(way: str) -> None:
    def run() -> Any:
        x, y = data(4, grad=True), data(4, grad=True)
        z = y.sin()
        z.register_hook(lambda g: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            (z * x.cos()).sum().backward()
        with pytest.raises(RuntimeError, match="size"):
            w = y.sin()
            w.register_hook(lambda g: g[:2])
            w.sum().backward()
        return x.grad, y.grad is None

    expected = run()
    with blocks()[way]():
        result = run()
        compare(training(), training())  # it goes on
    compare(expected, result)


def test_the_same_errors() -> None:
    x = data(4, grad=True)
    with compiled_autograd._enable(torch.compile):
        y = x.sin()
        with pytest.raises(RuntimeError, match="scalar outputs"):
            y.backward()
        z = y.sum()
        z.backward()
        with pytest.raises(RuntimeError, match="second time"):
            z.backward()
        y = x.exp()
        v = y * 2
        y.add_(1)
        with pytest.raises(RuntimeError, match="inplace operation"):
            v.sum().backward()


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
