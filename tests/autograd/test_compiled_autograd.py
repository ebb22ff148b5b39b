"""Compiled backwards: the bits of eager mode, one program each, in every way to enable them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau import _core
from flambeau._dynamo import compiled_autograd
from flambeau._dynamo.utils import counters
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
