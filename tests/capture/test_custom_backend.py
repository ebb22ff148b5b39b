"""`torch.compile` with backends that are functions: graphs, results, gradients, effects."""

from __future__ import annotations

import copy
import functools
import gc
import operator
import pickle
import weakref

import pytest

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau._dynamo.testing import CompileCounter
from flambeau.utils.checkpoint import checkpoint


class Graphs:
    """A backend that stores the graphs and runs them as they are."""

    def __init__(self):
        self.modules, self.inputs = [], []

    def __call__(self, gm, example_inputs):
        self.modules.append(gm)
        self.inputs.append(example_inputs)
        return gm.forward

    @property
    def calls(self):
        """Targets of the calls of each graph."""
        return [[n.target for n in gm.graph.nodes if "call" in n.op] for gm in self.modules]


def compiled(function):
    backend = Graphs()
    return torch.compile(function, backend=backend), backend


def same(left, right):
    assert type(left) is type(right)
    if isinstance(left, torch.Tensor):
        assert left.dtype is right.dtype and left.stride() == right.stride()
        assert left.requires_grad == right.requires_grad and left.is_leaf == right.is_leaf
        assert torch.equal(left.nan_to_num(), right.nan_to_num())
    elif isinstance(left, dict):
        assert left.keys() == right.keys()
        [same(left[key], right[key]) for key in left]
    elif isinstance(left, (tuple, list)):
        assert len(left) == len(right)
        [same(a, b) for a, b in zip(left, right, strict=True)]
    else:
        assert left == right


def compare(function, *args, graphs=1):
    """Runs a function eagerly and compiled on equal arguments; effects on these are compared."""
    backend, first, second = Graphs(), copy.deepcopy(args), copy.deepcopy(args)
    torch.manual_seed(3)
    expected = function(*first)
    torch.manual_seed(3)
    same(torch.compile(function, backend=backend)(*second), expected)
    same(list(second), list(first))
    assert len(backend.modules) == graphs
    return backend


def test_operators_are_spelled_as_in_the_program():
    def f(x, scale):
        y = F.relu(x @ x.T) * scale
        y += 1
        y[0] = 2
        return {"y": torch.cat([y, y], 1), "n": y.shape[0], "d": 1 - y.mean(-1, keepdim=True)}

    backend = compare(f, torch.randn(3, 3), 2.5)
    assert backend.calls == [
        [getattr, operator.matmul, F.relu, operator.mul, operator.iadd, operator.setitem,
         torch.cat, "mean", operator.sub]
    ]  # fmt: skip
    assert [n.target for n in backend.modules[0].graph.nodes][0] == "L_x_"


def test_the_same_graph_serves_equal_calls():
    counter = CompileCounter()
    f = torch.compile(lambda x, k: (x + k).sin(), backend=counter)
    for _ in range(3):
        f(torch.randn(4), 1)
    assert (counter.frame_count, counter.op_count) == (1, 2)
    f(torch.randn(4), 1.0)  # another number
    f(torch.randn(4, dtype=torch.float64), 1)
    f(torch.randn(4, requires_grad=True), 1)
    assert counter.frame_count == 4
    torch._dynamo.reset()
    f(torch.randn(4), 1)
    assert counter.frame_count == 5


@pytest.mark.parametrize("count", (3, 6))
def test_equal_layers_that_are_compiled_one_by_one_share_graphs(count):
    """The first input needs no gradient, as with PyTorch: two graphs for any number of layers."""
    counter = CompileCounter()
    layers = [nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(count)]
    x = torch.randn(2, 4)
    expected = functools.reduce(lambda value, layer: layer(value), layers, x)
    for layer in layers:
        layer.compile(backend=counter)
    assert torch.equal(functools.reduce(lambda value, layer: layer(value), layers, x), expected)
    assert counter.frame_count == 2
    for _ in range(2):  # a size that varies is a symbol, in a graph for all layers
        functools.reduce(lambda value, layer: layer(value), layers, torch.randn(5, 4))
    assert counter.frame_count == 4
    torch._dynamo.reset()
    layers[1](x)
    assert counter.frame_count == 5


def test_functions_of_equal_code_share_graphs_but_not_numbers():
    def scaled(by):
        return lambda x: x * by

    counter, other, x = CompileCounter(), CompileCounter(), torch.randn(3)
    functions = []
    for by, backend, graphs in ((2, counter, 1), (2, counter, 1), (3, counter, 2), (3, other, 1)):
        functions.append(torch.compile(scaled(by), backend=backend))
        assert torch.equal(functions[-1](x), x * by)
        assert backend.frame_count == graphs


def test_shared_graphs_end_with_the_last_function():
    class Callable:
        def __call__(self, *inputs):
            return (inputs[0] + 1,)

    alive = weakref.WeakSet()

    def backend(module, inputs):
        function = Callable()
        alive.add(function)
        return function

    f = lambda x: x + 1  # noqa: E731 - two compiled functions of one code
    first, second = (torch.compile(f, backend=backend) for _ in range(2))
    assert first(torch.ones(1)) == second(torch.ones(1)) == 2 and len(alive) == 1
    del first
    gc.collect()
    assert len(alive) == 1
    del second
    gc.collect()
    assert not alive


@pytest.mark.parametrize(("dynamic", "graphs"), [(None, 3), (True, 2), (False, 4)])
def test_several_sizes(dynamic, graphs):
    backend = Graphs()
    f = torch.compile(lambda x: x.reshape(-1).softmax(0) * x.shape[0], backend=backend,
                      dynamic=dynamic)  # fmt: skip
    for n in (2, 5, 2, 7, 1):
        x = torch.randn(n, 3)
        assert torch.equal(f(x), x.reshape(-1).softmax(0) * n)
    assert len(backend.modules) == graphs


def test_a_pass_changes_the_program_and_its_gradient():
    def doubling(gm, example_inputs):
        for node in gm.graph.find_nodes(op="call_function", target=operator.add):
            node.target = operator.mul
        gm.recompile()
        return gm.forward

    x = torch.tensor([3.0], requires_grad=True)
    y = torch.compile(lambda x: x + 4, backend=doubling)(x)
    y.backward()
    assert y.item() == 12 and x.grad.item() == 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Dropout(0.3)
        )
        self.calls, self.seen = 0, []

    def forward(self, x):
        self.calls += 1
        y = self.layers(x)
        self.seen.append(y.mean())
        return y, y.argmax(1)


def test_training_equals_eager():
    nets = [Net() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    backend = Graphs()
    runs = (nets[0], torch.compile(nets[1], backend=backend))
    optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in nets]
    for step in range(4):
        for run, net, optimizer in zip(runs, nets, optimizers, strict=True):
            torch.manual_seed(step)
            net.train(step != 2)
            out, _ = run(torch.randn(5, 3))
            optimizer.zero_grad()
            out.square().sum().backward()
            optimizer.step()
    same(nets[0].state_dict(), nets[1].state_dict())
    same(nets[0].seen, nets[1].seen)
    assert nets[1].calls == 4 and len(backend.modules) == 2  # training and evaluation
    first = next(iter(backend.modules[0].graph.nodes))
    assert first.target.startswith(("L_x_", "L_args_0_"))
    assert isinstance(backend.inputs[0][1], nn.Parameter)


def test_a_value_that_python_reads_ends_a_graph():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            y = y + float(y[0])
        return y.tolist(), y - 1

    compare(f, torch.ones(3), graphs=4)
    whole = torch.compile(f, backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="backend.py.*branches on data"):
        whole(torch.ones(3))
    assert torch.compile(lambda x: x + 1, backend="eager", fullgraph=True)(torch.ones(1)) == 2


def test_effects_on_arguments_and_objects():
    log = []

    def f(x, buffer, state):
        log.append("called")
        buffer.add_(x.sum())
        view = buffer[1:]
        view.mul_(2)
        state["last"] = x * 3
        state.setdefault("all", []).append(view)
        return buffer, x

    compare(f, torch.ones(3), torch.zeros(4), {"all": []})
    fast, backend = compiled(f)
    x, buffer = torch.ones(3), torch.zeros(4)
    for _ in range(3):
        same_buffer, same_x = fast(x, buffer, {})
        assert same_buffer is buffer and same_x is x
    assert buffer.tolist() == [9.0, 42.0, 42.0, 42.0] and len(backend.modules) == 1
    assert len(log) == 5


def test_what_was_recorded_runs_before_an_error():
    buffer = torch.zeros(2)

    def f(x):
        buffer.add_(1)
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        torch.compile(f, backend=Graphs())(torch.ones(1))
    assert buffer.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="matmul|shape|size"):
        torch.compile(lambda x: x @ torch.ones(3, 2), backend=Graphs())(torch.ones(2, 2))


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        return grad * 7  # not the derivative, on purpose


def _gradient(function):
    def run(x):
        x = x.detach().requires_grad_()
        loss = function(x).sum()
        loss.backward()
        return loss, x.grad

    return run


@pytest.mark.parametrize(
    ("body", "graphs"),
    [
        (lambda x: Cube.apply(x * 2) + 1, 3),
        (lambda x: checkpoint(lambda y: y.sin() * y, x * 2, use_reentrant=False) + 1, 4),
        (lambda x: torch.func.vmap(lambda r: r * r.sum())(x * 2) + 1, 3),
        (lambda x: torch.func.grad(lambda r: (r**3).sum())(x * 2) + x, 3),
        (lambda x: F.dropout(x, 0.5) + torch.rand(2, 2), 2),
        (lambda x: torch.compiler.disable(torch.exp)(x * 2) * 2, 3),
    ],
    ids=["Function", "checkpoint", "vmap", "grad", "random", "disable"],
)
def test_parts_that_run_outside_of_graphs(body, graphs):
    x = torch.randn(2, 2)
    torch.manual_seed(0)
    expected = _gradient(body)(x)
    backend = Graphs()
    torch.manual_seed(0)
    same(torch.compile(_gradient(body), backend=backend)(x), expected)
    assert 1 <= len(backend.modules) <= graphs + 1


def test_modes_hold_inside_graphs():
    def f(x, w):
        with torch.no_grad():
            a = x @ w
        with torch.autocast("cpu", torch.bfloat16):
            b = x @ w
        with torch.inference_mode():
            c = x @ w
        return a, b, c.clone(), x @ w

    backend = compare(f, torch.randn(2, 2, requires_grad=True), torch.randn(2, 2), graphs=4)
    assert torch._C._set_grad_enabled not in backend.calls[-1]
    with torch.no_grad():
        compare(f, torch.randn(2, 2), torch.randn(2, 2), graphs=3)

    def seeds(x):
        y = torch.rand(2) + x
        torch.manual_seed(5)
        return y, torch.rand(2)

    compare(seeds, torch.zeros(2), graphs=2)


def test_an_optimizer_step_inside():
    def step(weight, x):
        optimizer = torch.optim.SGD([weight], 0.1, momentum=0.9)
        for _ in range(2):
            loss = (weight * x).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.detach(), weight.grad

    backend, weights = Graphs(), [torch.ones(3, requires_grad=True) for _ in range(2)]
    x = torch.arange(3.0)
    expected = step(weights[0], x)
    same(torch.compile(step, backend=backend)(weights[1], x), expected)
    same(weights[1], weights[0])
    assert backend.modules


def test_results_are_ordinary_tensors():
    fast, _ = compiled(lambda x: (x.T, x * 2, x.max(0), torch.split(x, 1)))
    x = torch.randn(2, 3, requires_grad=True)
    view, product, best, parts = fast(x)
    assert type(view) is torch.Tensor and view._is_view() and view._base is x
    assert product.grad_fn.name() == "MulBackward0" and not product.__dict__
    assert isinstance(best, tuple) and best.indices.dtype is torch.int64 and len(parts) == 2
    product.register_hook(lambda g: g * 2)
    product.retain_grad()
    product.sum().backward()
    assert x.grad.tolist() == [[4.0] * 3] * 2
    kept = weakref.ref(product)
    del product, view, best, parts
    gc.collect()
    assert kept() is None


def test_registered_and_default_backends(monkeypatch):
    from flambeau._dynamo.backends import registry

    monkeypatch.setattr(registry, "_registered", {})
    calls = []

    @torch._dynamo.register_backend(name="mine")
    def backend(gm, example_inputs, **settings):
        calls.append(settings)
        return gm

    assert "mine" in torch._dynamo.list_backends()
    f = torch.compile(lambda x: x + 1, backend="mine", options={"level": 3})
    assert f(torch.ones(1)) == 2 and calls == [{"options": {"level": 3}}]
    torch.compiler.set_default_backend("mine")
    try:
        assert torch.compiler.get_default_backend() == "mine"
        assert torch.compile(lambda x: x * 3)(torch.ones(1)) == 3 and len(calls) == 2
    finally:
        torch.compiler.set_default_backend(None)
    with pytest.raises(torch._dynamo.exc.InvalidBackend):
        torch.compiler.set_default_backend("none of this name")


def test_errors_of_backends():
    def failing(gm, example_inputs):
        raise ValueError("not today")

    Failed = torch._dynamo.exc.BackendCompilerFailed
    with pytest.raises(Failed, match="(?s)backend='failing' raised:.*ValueError: not today"):
        torch.compile(lambda x: x + 1, backend=failing)(torch.ones(1))
    with pytest.raises(Failed, match="did not return callable"):
        torch.compile(lambda x: x + 1, backend=lambda gm, inputs: 3)(torch.ones(1))
    with pytest.raises(RuntimeError, match="returned 0 values for a graph with 1 outputs"):
        torch.compile(lambda x: x + 1, backend=lambda gm, inputs: lambda *a: ())(torch.ones(1))
    limited = torch.compile(lambda x: x + 1, backend=Graphs(), recompile_limit=1)
    assert limited(torch.ones(1)) == 2
    with pytest.warns(UserWarning, match="recompile_limit"):
        assert torch.equal(limited(torch.ones(2)), torch.full((2,), 2.0))


def test_printed_copied_and_stored_values():
    def f(x):
        y = x * 2
        text = repr(y), f"{y}"
        z = copy.deepcopy(y + 1)
        return text, z, pickle.loads(pickle.dumps(z * 2)), hash(y) == hash(y)

    compare(f, torch.ones(2), graphs=2)


def test_nested_and_reported():
    inner = torch.compile(lambda x: x.sin(), backend=Graphs())
    compare(lambda x: inner(x) + 1, torch.ones(2))
    fast = torch.compile(lambda x: x + x.sum().item(), backend=Graphs())
    report = torch.compiler.explain(fast, torch.ones(3))
    assert [flush.reason for flush in report.flushes if "item" in flush.reason]
    seen = []
    torch.compile(lambda x: seen.append(torch.compiler.is_compiling()), backend=Graphs())(0)
    assert seen == [True] and not torch.compiler.is_compiling()
