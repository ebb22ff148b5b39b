"""Modules with Python in `forward`: hooks, lists, flags, counters, caches, buffers made late."""

import contextlib
import dataclasses
import math

import flambeau as torch
import flambeau.nn.functional as F  # noqa: N812
from flambeau import nn
from tests.capture.corpus.cases import case, t


def modes(build):
    """The module itself with and without gradients, and a function that calls it."""

    def inside():
        module, *steps = build()
        return (lambda *args: (module(*args), 1), *steps)

    case(built=True, grad=False, name=f"{build.__name__}-no_grad")(build)
    case(built=True, grad=True, name=f"{build.__name__}-grad")(build)
    case(built=True, grad=False, name=f"{build.__name__}-inside")(inside)
    return build


class Layer(nn.Module):
    def __init__(self, n=3):
        super().__init__()
        self.weight = nn.Parameter(t(n))
        self.bias = nn.Parameter(t(n, start=0.5))

    def forward(self, x):
        return x * self.weight + self.bias


@modes
def plain():
    m = Layer()
    return m, (t(2, 3),), lambda: m.weight.data.mul_(2), (t(3),), (t(2),)


@modes
def flags():
    class Flags(nn.Module):
        scale, twice = 2.0, False

        def forward(self, x):
            x = x * self.scale
            if self.twice:
                x = x + x
            return -x if self.training else x

    m = Flags()
    return (
        m, (t(3),), m.eval, lambda: setattr(m, "twice", True), lambda: setattr(Flags, "scale", 3),
        lambda: setattr(m, "scale", None), lambda: delattr(m, "scale"),
    )  # fmt: skip


@modes
def counter():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.shapes = 0, []

        def forward(self, x):
            self.calls += 1
            self.shapes.append(tuple(x.shape))
            return x + self.calls

    return Counter(), (t(2),), (t(3),), ("wrong",)


@modes
def cache():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.masks = {}

        def mask(self, n):
            if n not in self.masks:
                self.masks[n] = torch.ones(n, n).tril()
            return self.masks[n]

        def forward(self, x):
            return x @ self.mask(x.shape[-1])

    m = Cache()
    return m, (t(2, 2),), (t(3, 3),), lambda: m.masks.clear(), (t(2),)


@modes
def late_buffer():
    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("positions", None)

        def forward(self, x):
            if self.positions is None or self.positions.shape != x.shape:
                self.register_buffer("positions", torch.arange(x.numel()).reshape(x.shape) * 1.0)
            return x + self.positions

    m = Late()
    return m, (t(2, 2),), (t(3),), lambda: setattr(m, "positions", torch.ones(2, 2))


@modes
def running_mean():
    class Running(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("count", torch.tensor(0))

        def forward(self, x):
            if self.training:
                self.count += 1
                self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
            return x - self.mean

    m = Running()
    return m, (t(2, 3),), m.eval, (t(4, 3),), m.train, (t(2, 2),)


@modes
def lists():
    class Lists(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(3))
            self.skip = {1}

        def forward(self, x):
            outputs = []
            for i, layer in enumerate(self.layers):
                x = layer(x) if i not in self.skip else x
                outputs.append(x)
            return outputs[-1], len(outputs), self.layers[0].weight + 0

    m = Lists()
    return m, (t(3),), lambda: m.layers.append(Layer()), lambda: m.skip.clear(), (t(2, 3),)


@modes
def dicts():
    class Dicts(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleDict({"a": Layer(), "b": nn.ReLU()})

        def forward(self, x, name):
            return (
                {k: m(x) for k, m in self.heads.items()} if name == "all" else self.heads[name](x)
            )

    m = Dicts()
    return (
        m, (t(3), "a"), (t(3), "all"), (t(3), "zz"), lambda: m.heads.update({"c": Layer()}),
        (t(3), "all"), lambda: m.heads.pop("a"),
    )  # fmt: skip


@modes
def parameter_lists():
    class Parameters(nn.Module):
        def __init__(self):
            super().__init__()
            self.scales = nn.ParameterList([nn.Parameter(t(3)), nn.Parameter(t(3))])
            self.table = nn.ParameterDict({"k": nn.Parameter(t(3))})

        def forward(self, x):
            for scale in self.scales:
                x = x * scale
            return x + self.table["k"]

    m = Parameters()
    return m, (t(3),), lambda: m.scales.append(nn.Parameter(t(3))), (t(2, 3),)


@modes
def hooks():
    m, log = Layer(), []
    m.register_forward_hook(lambda module, args, result: log.append(len(log)) or result * 2)
    return m, (t(3),), (t(2, 3),), lambda: log.clear()


@modes
def pure_hooks():
    m = nn.Sequential(Layer(), nn.ReLU())
    handles = [m[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))]
    m.register_forward_hook(lambda module, args, result: result * len(args))
    return m, (t(3),), lambda: handles[0].remove(), (t(2, 3),)


@modes
def keyword_hooks():
    class Scaled(nn.Module):
        def forward(self, x, *, by=2):
            return x * by

    m = Scaled()
    m.register_forward_pre_hook(lambda _, args, kwargs: (args, {"by": 5}), with_kwargs=True)
    return m, (t(3),), (t(2),), (None,)


@modes
def sequential():
    m = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4))
    return m, (t(2, 3),), lambda: m.append(nn.Tanh()), (t(3),), (t(2),)


@modes
def dropout():
    m = nn.Dropout(0.5)
    return m, (t(4),), m.eval, (t(2, 2),), m.train


@modes
def batch_norm():
    m = nn.BatchNorm1d(3)
    return m, (t(4, 3),), m.eval, (t(2, 3),), (t(3),)


@modes
def residual():
    class Block(nn.Module):
        def __init__(self, depth):
            super().__init__()
            self.layer = Layer()
            self.inner = Block(depth - 1) if depth else None

        def forward(self, x):
            y = self.layer(x)
            return x + (self.inner(y) if self.inner is not None else y)

    m = Block(2)
    return m, (t(3),), lambda: setattr(m, "inner", None), (t(2, 3),)


@modes
def tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 3, bias=False)
            self.b = nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x)), self.a.weight is self.b.weight

    m = Tied()
    return m, (t(2, 3),), lambda: setattr(m.b, "weight", nn.Parameter(t(3, 3))), (t(3),)


@modes
def weights_as_arguments():
    m = Layer()
    return m, (m.weight.detach(),), (t(3),), (m.weight,), (t(3, start=3.0),)


@modes
def structured():
    @dataclasses.dataclass
    class Output:
        value: object
        name: str = "out"

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Layer()

        def forward(self, x):
            return Output(self.layer(x))

    return Model(), (t(3),), (t(2, 3),), (t(2),)


@modes
def fresh_objects():
    class State:
        def __init__(self, x):
            self.x, self.steps = x, 0

        def step(self, layer):
            self.x, self.steps = layer(self.x), self.steps + 1
            return self

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Layer()

        def forward(self, x, n):
            state = State(x)
            while state.steps < n:
                state.step(self.layer)
            return state.x, state.steps

    return Model(), (t(3), 2), (t(3), 0), (t(3), None)


@modes
def error_paths():
    class Checked(nn.Module):
        def forward(self, x):
            if x.ndim != 1:
                raise ValueError(f"[{type(self).__name__}] {tuple(x.shape)}")
            try:
                return x.reshape(2, -1)
            except RuntimeError:
                return x

    return Checked(), (t(4),), (t(3),), (t(2, 2),)


@modes
def property_and_methods():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self._factor = Layer(), 2

        @property
        def factor(self):
            return self._factor * len(list(self.children()))

        @classmethod
        def name(cls):
            return cls.__name__

        @staticmethod
        def shift(x):
            return x + 1

        def forward(self, x):
            return self.shift(self.layer(x)) * self.factor, self.name()

    m = Model()
    return m, (t(3),), lambda: setattr(m, "_factor", 3), lambda: setattr(m, "b", Layer())


@modes
def dynamic_depth():
    class Depth(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(4))

        def forward(self, x, depth=None):
            for layer in self.layers[:depth]:
                x = layer(x)
            return x

    return Depth(), (t(3),), (t(3), 2), (t(3), 0), (t(3), -1), (t(3), "a")


@modes
def data_dependent():
    class Adaptive(nn.Module):
        def forward(self, x):
            steps = 0
            while x.abs().max() > 1 and steps < 5:
                x, steps = x / 2, steps + 1
            return x, steps

    return Adaptive(), (t(3),), (t(3, start=8.0),), (t(2, 2),)


@modes
def item():
    class Scaled(nn.Module):
        def forward(self, x):
            largest = x.max().item()
            return x / largest if largest else x, round(largest, 2)

    return Scaled(), (t(3, start=1.0),), (t(3, start=2.0),), (torch.zeros(2),)


@modes
def printing():
    class Loud(nn.Module):
        def forward(self, x):
            print("in", tuple(x.shape))
            y = x * 2
            print(f"sum {y.sum().item():.1f}")
            return y

    return Loud(), (t(3),), (t(2, 2),)


@modes
def warning():
    import warnings

    class Warns(nn.Module):
        def forward(self, x):
            if len(x) > 2:
                warnings.warn("long", stacklevel=2)
            return x + 1

    return Warns(), (t(3),), (t(2),)


@modes
def recurrent():
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Layer()
            self.state = None

        def forward(self, x):
            self.state = (
                self.layer(x) if self.state is None else self.layer(x) + self.state.detach()
            )
            return self.state

    m = Cell()
    return m, (t(3),), lambda: setattr(m, "state", None), (t(3, start=1.0),)


@modes
def explicit_state():
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Layer()

        def forward(self, xs, state=None):
            outputs = []
            for x in xs:
                state = self.layer(x if state is None else x + state).tanh()
                outputs.append(state)
            return torch.stack(outputs), state

    return Cell(), (t(3, 3),), (t(2, 3), t(3)), ([t(3)],), ([],)


@modes
def attention():
    class Attention(nn.Module):
        def __init__(self, heads=2):
            super().__init__()
            self.heads = heads
            self.qkv = nn.Linear(4, 12)

        def forward(self, x, causal=False):
            b, n, d = x.shape
            q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)
            if causal:
                scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -1e9)
            return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d)

    m = Attention()
    return m, (t(1, 3, 4),), (t(1, 3, 4), True), lambda: setattr(m, "heads", 4), (t(3, 4),)


@modes
def experts():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList([Layer(), nn.Tanh(), nn.Identity()])
            self.used = [0, 0, 0]

        def forward(self, x, route):
            results = []
            for row, expert in zip(x, route):
                self.used[expert] += 1
                results.append(self.experts[expert](row))
            return torch.stack(results)

    return Experts(), (t(2, 3), (0, 1)), (t(2, 3), (2, 2)), (t(2, 3), (0, 5))


@modes
def pure_experts():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList([Layer(), nn.Tanh(), nn.Identity()])

        def forward(self, x, route):
            return torch.stack([self.experts[e](row) for row, e in zip(x, route)])

    m = Experts()
    return m, (t(2, 3), (0, 1)), (t(2, 3), [2, 2]), (t(2, 3), (0, 5)), m.eval


@modes
def call_override():
    class Model(nn.Module):
        def forward(self, x):
            return x * 2

        def __call__(self, *args, **kwargs):
            return super().__call__(*args, **kwargs), len(args)

    return Model(), (t(3),), (t(2),), ()


@modes
def getattr_override():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Layer()

        def __getattr__(self, name):
            if name.startswith("dynamic_"):
                return len(name)
            return super().__getattr__(name)

        def forward(self, x):
            return self.layer(x) * self.dynamic_size, hasattr(self, "other")

    m = Model()
    return m, (t(3),), lambda: setattr(m, "dynamic_size", 3), (t(2, 3),)


@modes
def inherited():
    class Base(nn.Module):
        factor = 2

        def forward(self, x):
            return self.transform(x) * self.factor

        def transform(self, x):
            return x

    class Mixin:
        def transform(self, x):
            return super().transform(x) + 1

    class Model(Mixin, Base):
        factor = 3

    m = Model()
    return m, (t(3),), lambda: setattr(Mixin, "transform", lambda self, x: x - 1), (t(2),)


@modes
def replaced_forward():
    m = Layer()
    return m, (t(3),), lambda: setattr(m, "forward", lambda x: x - 1), (t(2),)


@modes
def contexts():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Layer()

        def forward(self, x, quiet=True):
            with torch.no_grad() if quiet else contextlib.nullcontext():
                y = self.layer(x)
            return y + x, y.requires_grad, torch.is_grad_enabled()

    return Model(), (t(3),), (t(3), False), (t(2, 3),)


@modes
def frozen():
    m = nn.Sequential(Layer(), Layer()).requires_grad_(False)
    return m, (t(3),), lambda: m[1].requires_grad_(True), (t(2, 3),)


@modes
def moved():
    m = Layer()
    return m, (t(3),), m.double, (t(3),), m.float, (t(2, 3),)


@modes
def loaded():
    m = Layer()
    saved = {key: value + 1 for key, value in m.state_dict().items()}
    return m, (t(3),), lambda: m.load_state_dict(saved), (t(2, 3),)


@modes
def named_children():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Layer(), nn.ReLU()

        def forward(self, x):
            names = []
            for name, child in self.named_children():
                x = child(x)
                names.append(name)
            return x, names, sum(p.numel() for p in self.parameters())

    m = Model()
    return m, (t(3),), lambda: m.add_module("c", nn.Tanh()), (t(2, 3),)


@modes
def formatted():
    class Model(nn.Module):
        def forward(self, x, **named):
            return {f"{type(self).__name__}.{i}": x + i for i in range(2)}, sorted(named)

    return Model(), (t(3),), (t(2),), (None,)


@modes
def buffers_in_loop():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            for i in range(3):
                self.register_buffer(f"step_{i}", t(3) * i)

        def forward(self, x):
            for i in range(3):
                x = x + getattr(self, f"step_{i}")
            return x

    m = Model()
    return m, (t(3),), lambda: setattr(m, "step_1", torch.zeros(3)), (t(2, 3),)


@modes
def optional_layers():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(3)
            self.extra = None
            self.activation = F.relu

        def forward(self, x, mask=None):
            x = self.activation(self.norm(x))
            if self.extra:
                x = self.extra(x)
            return x if mask is None else x * mask

    m = Model()
    return (
        m, (t(2, 3),), (t(2, 3), t(3)), lambda: setattr(m, "extra", nn.Tanh()),
        lambda: setattr(m, "activation", torch.sigmoid),
    )  # fmt: skip


@modes
def in_place():
    class Model(nn.Module):
        def forward(self, x):
            y = torch.zeros(3)
            y[0] = x.sum().detach()
            y[1:] += 1
            y.mul_(2)
            return y, y[1]

    return Model(), (t(3),), (t(2, 2),)


@modes
def input_in_place():
    class Model(nn.Module):
        def forward(self, x):
            x += 1
            return x

    return Model(), (t(3),), (t(2, 2),)


@modes
def lstm():
    m = nn.LSTM(2, 3)
    return m, (t(2, 1, 2),), (t(1, 1, 2),), (t(2, 1, 5),)


@modes
def embedding():
    m = nn.Embedding(5, 3)
    return m, (torch.tensor([1, 4]),), (torch.tensor([0, 0]),), (torch.tensor([5, 0]),)


@modes
def convolution():
    m = nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Flatten())
    return m, (t(1, 1, 4),), (t(1, 1, 3),), (t(1, 2, 4),)


@modes
def compiled_inside():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.compile(Layer())

        def forward(self, x):
            return self.inner(x) * 2

    return Model(), (t(3),), (t(2, 3),)


@modes
def global_state():
    m = Layer()

    class Model(nn.Module):
        def forward(self, x):
            return m(x) * SETTINGS["scale"] + len(SETTINGS)

    return (
        Model(), (t(3),), lambda: SETTINGS.update(scale=4), lambda: SETTINGS.update(more=0),
        lambda: SETTINGS.pop("scale"),
    )  # fmt: skip


SETTINGS = {"scale": 2}
