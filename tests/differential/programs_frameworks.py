"""Serialization, NumPy, tracing, graphs, compilation, subclasses, libraries of operators."""

from __future__ import annotations

import io

import numpy as np
import torch
import torch.nn as nn

from tests.differential.show import describe, numbers, raised


def saving_and_loading() -> None:
    buffer = io.BytesIO()
    base = torch.arange(6.0)
    torch.save(
        {
            "a": base,
            "view": base[2:4],
            "n": 3,
            "p": nn.Parameter(torch.ones(1)),
            "l": [1, (2, "x")],
            "bf": torch.ones(2, dtype=torch.bfloat16),
        },
        buffer,
    )
    print(buffer.getvalue()[:2])
    buffer.seek(0)
    loaded = torch.load(buffer)
    loaded["a"][2] = 100
    print(
        loaded["view"],
        type(loaded["p"]).__name__,
        loaded["p"].requires_grad,
        loaded["l"],
        loaded["bf"].dtype,
    )

    torch.save(np.float64(3), buffer := io.BytesIO())
    buffer.seek(0)
    print(
        raised(lambda: torch.load(buffer)),
        raised(lambda: torch.load("/nonexistent.pt")),
    )
    torch.save(nn.Linear(2, 2), buffer := io.BytesIO())
    buffer.seek(0)
    print(raised(lambda: torch.load(buffer)))
    buffer.seek(0)
    print(torch.load(buffer, weights_only=False))
    torch.save(base, buffer := io.BytesIO())
    buffer.seek(0)
    print(torch.load(buffer, map_location="meta"), raised(lambda: torch.load(io.BytesIO())))


def training_checkpoint() -> None:
    net = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for _ in range(2):
        net(torch.ones(2)).sum().backward()
        optimizer.step()
        schedule.step()
    buffer = io.BytesIO()
    torch.save(
        {
            "model": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "rng": torch.get_rng_state(),
            "epoch": 2,
        },
        buffer,
    )
    expected = torch.rand(2)
    buffer.seek(0)
    state = torch.load(buffer, weights_only=True)
    other = nn.Linear(2, 1)
    print(
        other.load_state_dict(state["model"]),
        state["epoch"],
        state["optimizer"]["param_groups"],
        state["schedule"],
    )
    second = torch.optim.Adam(other.parameters())
    second.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    print(
        torch.equal(expected, torch.rand(2)),
        second.state[other.weight]["step"],
        second.param_groups[0]["lr"],
        type(state["model"]).__name__,
    )


def numpy_exchange() -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = torch.from_numpy(a)
    t[0, 0] = 50
    print(
        a[0, 0],
        t.numpy() is a,
        np.shares_memory(t.numpy(), a),
        torch.as_tensor(a).data_ptr() == t.data_ptr(),
        torch.tensor(a).data_ptr() == t.data_ptr(),
    )
    print(
        describe(torch.from_numpy(a.T)),
        torch.tensor(np.float64(2)).dtype,
        torch.tensor([np.float32(1)]).dtype,
        torch.tensor(np.array([1, 2])).dtype,
        torch.as_tensor([1.5, 2]).dtype,
    )
    print(
        raised(lambda: torch.from_numpy(np.array(["a"]))),
        raised(lambda: torch.ones(1, requires_grad=True).numpy()),
        raised(lambda: torch.from_numpy([1])),
        raised(lambda: torch.ones(1, dtype=torch.bfloat16).numpy()),
    )
    print(
        raised(lambda: torch.from_numpy(a[::-1])),
        np.add(t.numpy(), 1).dtype,
        np.asarray(t).shape,
        type(np.float64(2) * t).__name__,
    )
    frozen = np.ones(2)
    frozen.flags.writeable = False
    print(
        torch.from_numpy(frozen),
        t.numpy(force=True).shape,
        np.array(torch.tensor(3)),
        t.__array__().dtype,
        torch.from_numpy(np.array(5)).shape,
        np.array([torch.tensor(1.0), torch.tensor(2.0)]).dtype,
    )
    torch.tensor([np.ones(2), np.ones(2)])
    print(
        t[np.array([0])].shape,
        t[:, np.array([True, False, True])].shape,
        t[np.int64(1)],
        torch.zeros(np.int64(2), np.int32(3)).shape,
        torch.tensor(2.5) * np.float32(2),
        torch.tensor([1, 2]).sum().item() + np.int64(1),
    )


def script_and_trace() -> None:
    @torch.jit.script
    def f(x, n: int):
        for i in range(n):
            if x.sum() > 10:
                x = x / 2
            else:
                x = x + i
        return x

    print(f(torch.ones(3), 4), type(f).__name__)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x):
            return self.fc(x).relu()

    net = Net()
    traced = torch.jit.trace(net, torch.ones(1, 2))
    scripted = torch.jit.script(net)
    print(
        torch.equal(traced(torch.ones(3, 2)), net(torch.ones(3, 2))),
        torch.equal(scripted(torch.ones(2)), net(torch.ones(2))),
        isinstance(traced, torch.jit.ScriptModule),
        type(scripted).__name__,
    )
    buffer = io.BytesIO()
    torch.jit.save(traced, buffer)
    buffer.seek(0)
    again = torch.jit.load(buffer)
    print(
        torch.equal(again(torch.ones(1, 2)), net(torch.ones(1, 2))),
        list(again.state_dict()),
        torch.jit.is_scripting(),
        raised(lambda: f(torch.ones(1), 2.5)),
    )


def symbolic_graphs() -> None:
    from torch.fx import Interpreter, symbolic_trace

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 3)
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, x, flag: bool = True):
            y = self.fc(x) * self.scale
            return torch.relu(y).sum(dim=-1, keepdim=True) + y.size(0)

    net = Net()
    graph = symbolic_trace(net)
    print(graph.graph, graph.code)
    for node in graph.graph.nodes:
        print(
            node.op,
            node.name,
            str(getattr(node.target, "__name__", node.target)),
            node.args,
            node.kwargs,
            len(node.users),
        )
    x = torch.ones(2, 2)
    print(
        torch.equal(graph(x), net(x)),
        torch.equal(Interpreter(graph).run(x), net(x)),
        raised(lambda: symbolic_trace(lambda v: v if v.sum() > 0 else -v)),
    )
    for node in graph.graph.nodes:
        if node.target is torch.relu:
            node.target = torch.tanh
    graph.recompile()
    graph.graph.lint()
    print(
        numbers(graph(x)),
        type(graph).__name__,
        graph.code.count("tanh"),
    )


def compiled_functions() -> None:
    calls = []

    @torch.compile(backend="eager")
    def f(x, y=None):
        calls.append(1)
        return x.sin() + (y if y is not None else 1)

    print(f(torch.zeros(2)), f(torch.zeros(2), torch.ones(2)), f(torch.zeros(3)))
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    compiled = torch.compile(net, backend="eager")
    print(
        torch.equal(compiled(torch.ones(1, 2)), net(torch.ones(1, 2))),
        type(compiled).__name__,
        list(compiled.state_dict()),
        isinstance(compiled, nn.Module),
        compiled._orig_mod is net,
    )
    compiled(torch.ones(1, 2)).sum().backward()
    print(
        net[0].weight.grad is not None,
        raised(lambda: torch.compile(net, mode="nope")),
        torch.compiler.is_compiling(),
        torch._dynamo.is_compiling(),
    )
    net.compile(backend="eager")
    print(net(torch.ones(1, 2)).shape, raised(lambda: torch.compile(net, backend="nope")))


class _Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        print("call", getattr(func, "__name__", func), [t.__name__ for t in types])
        return super().__torch_function__(func, types, args, kwargs or {})


def tensor_subclass() -> None:
    x = torch.ones(2, 2).as_subclass(_Tagged)
    y = x + 1
    print(type(y).__name__, type(torch.sum(y)).__name__, type(y.shape).__name__)
    z = torch.stack([x, torch.zeros(2, 2)])
    print(
        type(z).__name__,
        type(x[0]).__name__,
        type(x.max(0)).__name__,
        type(nn.functional.relu(x)).__name__,
    )
    x.add_(1)
    w = torch.ones(2, requires_grad=True).as_subclass(_Tagged)
    (w * 2).sum().backward()
    with torch._C.DisableTorchFunctionSubclass():
        print(type(x + 1).__name__)


class _Scalar:
    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.mean:
            return f"mean of {args[0].value}"
        return NotImplemented


def duck_types() -> None:
    from torch.overrides import (
        TorchFunctionMode,
        handle_torch_function,
        has_torch_function,
        is_tensor_like,
        resolve_name,
    )

    s = _Scalar(3)
    print(
        torch.mean(s),
        raised(lambda: torch.sum(s)),
        raised(lambda: torch.add(torch.ones(1), s)),
        is_tensor_like(s),
        has_torch_function((s,)),
    )

    def mine(x):
        if has_torch_function((x,)):
            return handle_torch_function(mine, (x,), x)
        return x

    print(raised(lambda: mine(s)), mine(3))

    class Log(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            print("mode", resolve_name(func).rpartition(".")[2], len(args))
            return func(*args, **(kwargs or {}))

    with Log():
        x = torch.ones(2) + 1
        x.sum().item()
        nn.functional.relu(x)
        x[0], x.shape, x.T, len(x)
        x[0] = 3


def methods_and_functions() -> None:
    print(torch.Tensor.add is torch.add, torch.overrides.resolve_name(torch.Tensor.add))


def dispatch_modes() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            print(func, [tuple(a.shape) for a in args if isinstance(a, torch.Tensor)])
            return func(*args, **(kwargs or {}))

    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4), nn.Linear(4, 2))
    with Log():
        loss = nn.functional.cross_entropy(net(torch.ones(2, 3)), torch.tensor([0, 1]))
        loss.backward()
        torch.ones(2, 2)[0, 1].add_(1).item()
        torch.zeros(3).view(1, 3).expand(2, 3).contiguous()


def operator_libraries() -> None:
    @torch.library.custom_op("differential::scale", mutates_args=())
    def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor

    @scale.register_fake
    def _(x, factor):
        return torch.empty_like(x)

    scale.register_autograd(
        lambda ctx, g: (g * ctx.factor, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
    )
    x = torch.ones(2, requires_grad=True)
    y = scale(x, 3.0)
    y.sum().backward()
    print(
        y,
        x.grad,
        torch.ops.differential.scale,
        scale._opoverload,
        torch.ops.differential.scale.default._schema,
        describe(y),
    )
    print(
        raised(lambda: scale(x)),
        raised(lambda: torch.ops.differential.nothing),
        torch.ops.aten.add.Tensor(x, x),
        torch.ops.aten.add.Tensor._schema,
    )
    library = torch.library.Library("differential", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda t: t * 2, "CompositeImplicitAutograd")
    print(torch.ops.differential.twice(x), torch.ops.differential.twice.default)


def autocasting() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    x = torch.randn(3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = net(x)
        print(
            y.dtype,
            (x @ x.T).dtype,
            x.softmax(0).dtype,
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            (x.bfloat16() + x).dtype,
        )
        with torch.autocast("cpu", enabled=False):
            print((x @ x.T).dtype, torch.is_autocast_cpu_enabled())
        loss = nn.functional.mse_loss(y, torch.zeros(3, 2))
        print(loss.dtype)
    loss.backward()
    print(net[0].weight.grad.dtype, numbers(loss, 1), raised(lambda: torch.autocast("nope")))
    torch.cuda.amp.GradScaler()
    with torch.cuda.amp.autocast():
        print((x @ x.T).dtype)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler.scale(net(x).sum()).backward()
    scaler.unscale_(optimizer)
    print(scaler.step(optimizer), scaler.get_scale(), scaler.state_dict())
    scaler.update()
    torch.autocast("cpu", dtype=torch.float64)
