"""Scripting, tracing, symbolic graphs, export, compilation, profiling."""

from __future__ import annotations

import io
from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.nn as nn

from tests.differential.show import numbers, raised


class Box(NamedTuple):
    value: torch.Tensor
    size: int


def scripted_types() -> None:
    @torch.jit.script
    def f(
        xs: List[torch.Tensor], table: Dict[str, int], flag: Optional[bool] = None
    ) -> Tuple[torch.Tensor, int]:
        total = torch.zeros_like(xs[0])
        for i, x in enumerate(xs):
            total = total + x * i
        n = 0
        for key in table.keys():
            n += table[key]
        if flag is not None and flag:
            n = -n
        return total, n

    print(
        f([torch.ones(2), torch.ones(2)], {"a": 1, "b": 2}),
        f([torch.ones(1)], {}, True),
        raised(lambda: f(torch.ones(1), {})),
        raised(lambda: f([1], {})),
    )


def scripted_module() -> None:
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
            self.scale = 3
            self.register_buffer("bias", torch.ones(2))

        def forward(self, x):
            for layer in self.layers:
                x = torch.relu(layer(x))
            return self.helper(x) + self.bias

        def helper(self, x):
            return x * self.scale

        @torch.jit.export
        def twice(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @torch.jit.ignore
        def python_only(self, x):
            return x

    net = torch.jit.script(Net())
    buffer = io.BytesIO()
    torch.jit.save(net, buffer)
    buffer.seek(0)
    again = torch.jit.load(buffer)
    x = torch.ones(1, 2)
    print(
        torch.equal(net(x), again(x)),
        again.twice(x),
        list(again.state_dict()),
        again.training,
        [n for n, _ in again.named_children()],
        net.scale,
    )
    frozen = torch.jit.freeze(net.eval())
    print(
        torch.equal(frozen(x), net(x)),
        len(list(frozen.parameters())),
        torch.jit.is_tracing(),
        type(net.layers).__name__,
    )


def traced_control_flow() -> None:
    def f(x):
        if x.sum() > 0:
            return x * 2
        return x - 1

    traced = torch.jit.trace(f, torch.ones(2), check_trace=False)
    print(traced(-torch.ones(2)), traced(torch.ones(3)), type(traced).__name__)

    class M(nn.Module):
        def forward(self, x, y=None):
            return {"s": x + (y if y is not None else 1)}["s"], x.shape[0] * x

    traced = torch.jit.trace(M(), (torch.ones(2),), check_trace=False)
    print(traced(torch.ones(3)), raised(lambda: torch.jit.trace(lambda v: "x", torch.ones(1))))


def script_failures() -> None:
    def uses_kwargs(x, **kwargs):
        return x

    def uses_yield(x):
        yield x

    for f in (uses_kwargs, uses_yield):
        print(raised(lambda f=f: torch.jit.script(f)))

    @torch.jit.script
    def check(x):
        assert x.size(0) > 2, "too small"
        if x.dim() > 3:
            raise ValueError("no")
        return x

    print(
        raised(lambda: check(torch.ones(1))),
        check(torch.ones(3)),
        raised(lambda: check(torch.ones(3, 1, 1, 1))),
    )


def graph_rewrites() -> None:
    from torch.fx import replace_pattern, symbolic_trace

    gm = symbolic_trace(lambda x, w: torch.relu(torch.add(x, w)) + x.neg())
    replace_pattern(gm, lambda a, b: torch.relu(torch.add(a, b)), lambda a, b: torch.sigmoid(a * b))
    print(gm.code, gm(torch.ones(1), torch.zeros(1)))
    g = gm.graph
    for node in list(g.nodes):
        if node.op == "call_method" and node.target == "neg":
            with g.inserting_after(node):
                new = g.call_function(torch.abs, (node.args[0],))
            node.replace_all_uses_with(new)
            g.erase_node(node)
    g.eliminate_dead_code()
    gm.recompile()
    print(g, gm(torch.ones(1), torch.zeros(1)), raised(lambda: g.erase_node(next(iter(g.nodes)))))


def shape_propagation() -> None:
    from torch.fx import symbolic_trace
    from torch.fx.passes.shape_prop import ShapeProp

    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    gm = symbolic_trace(net)
    ShapeProp(gm).propagate(torch.ones(1, 1, 4, 4))
    for node in gm.graph.nodes:
        meta = node.meta["tensor_meta"]
        print(
            node.op,
            node.name,
            node.target,
            tuple(meta.shape),
            meta.dtype,
            meta.stride,
            meta.requires_grad,
        )
    gm.graph.print_tabular() if False else None
    print(gm, [type(m).__name__ for m in gm.modules()], list(gm.state_dict()))


def interpreters_and_tracers() -> None:
    import torch.fx as fx

    class Count(fx.Interpreter):
        def __init__(self, module):
            super().__init__(module)
            self.calls = []

        def run_node(self, n):
            self.calls.append((n.op, str(n)))
            return super().run_node(n)

    class Swap(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(torch.cos if target is torch.sin else target, args, kwargs)

    class Leaf(fx.Tracer):
        def is_leaf_module(self, m, name):
            return isinstance(m, nn.Sequential)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

        def forward(self, x, *, k=2):
            return torch.sin(self.body(x)) * k

    net = Net()
    gm = fx.symbolic_trace(net)
    count = Count(gm)
    count.run(torch.ones(2))
    print(count.calls, Swap(gm).transform().code, Leaf().trace(net))
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_method("add", (x, 1)))
    print(
        fx.GraphModule({}, graph).code,
        graph.python_code("self").src,
        raised(lambda: fx.symbolic_trace(lambda v: len(v))),
        raised(lambda: fx.symbolic_trace(lambda v: [a for a in v])),
    )


def compiled_training() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 1))
    step = torch.compile(lambda x: net(x).pow(2).mean(), backend="eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for n in (4, 4, 6):
        optimizer.zero_grad()
        loss = step(torch.ones(n, 3))
        loss.backward()
        optimizer.step()
        print(numbers(loss))
    torch._dynamo.reset()

    @torch.compiler.disable
    def plain(x):
        return x + 1

    f = torch.compile(lambda x: plain(x) * 2, backend="eager")
    print(
        f(torch.ones(2)),
        raised(lambda: torch.compile(lambda x: x.nope, backend="eager")(torch.ones(1))),
        plain.__name__,
        torch.compiler.is_dynamo_compiling(),
    )


def profiled_step() -> None:
    from torch.profiler import ProfilerActivity, profile, record_function, schedule

    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
        with record_function("forward"):
            y = net(torch.ones(2, 4))
        y.sum().backward()
    keys = {e.key: e.count for e in prof.key_averages()}
    for name in (
        "forward",
        "aten::linear",
        "aten::addmm",
        "aten::t",
        "aten::transpose",
        "aten::relu",
        "aten::clamp_min",
        "aten::sum",
        "aten::threshold_backward",
        "aten::mm",
        "autograd::engine::evaluate_function: AddmmBackward0",
        "AddmmBackward0",
        "torch::autograd::AccumulateGrad",
    ):
        print(name, keys.get(name))
    print(type(prof.key_averages().table(row_limit=3)).__name__, len(prof.events()) > 5)
    seen = []
    with profile(
        schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
        on_trace_ready=lambda p: seen.append(p.step_num),
    ) as prof:
        for _ in range(5):
            torch.ones(2).add(1)
            prof.step()
    print(seen)


def profiled_optimizer() -> None:
    from torch.profiler import profile

    net = nn.Linear(4, 2)
    for optimizer in (torch.optim.SGD(net.parameters(), 0.1), torch.optim.Adam(net.parameters())):
        with profile() as prof:
            net(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        print(sorted({e.key for e in prof.key_averages() if "Optimizer" in e.key}))


def counted_operations() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    with FlopCounterMode(display=False) as counter:
        net(torch.ones(2, 1, 4, 4)).sum().backward()
    print(
        counter.get_total_flops(),
        sorted(
            (str(k), sorted((str(a), b) for a, b in v.items()))
            for k, v in counter.get_flop_counts().items()
        ),
    )


def module_summaries() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    rows = []
    for name, module in net.named_modules():
        if not list(module.children()):
            module.register_forward_hook(
                lambda m, i, o, n=name: rows.append(
                    (n, type(m).__name__, tuple(o.shape), sum(p.numel() for p in m.parameters()))
                )
            )
    net(torch.ones(2, 3))
    print(
        rows,
        net.extra_repr() == "",
        repr(net[0]),
        net._get_name(),
        [type(m).__name__ for m in net.children()],
        sum(1 for _ in net.modules()),
    )
    stack, seen = [net(torch.ones(1, 3)).grad_fn], []
    while stack:
        node = stack.pop()
        seen.append(node.name())
        stack += [n for n, _ in node.next_functions if n is not None]
    print(seen)


def conditional_operators() -> None:
    from torch._higher_order_ops import cond

    f = lambda x: cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,))  # noqa: E731
    print(f(torch.ones(2)), f(-torch.ones(2)))
    print(torch.cond(torch.tensor(True), lambda v: v * 2, lambda v: v + 0, (torch.ones(1),)))
