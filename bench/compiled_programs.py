"""Sixteen programs whose time is Python's, or the memory's, where they are not compiled.

The framework is an argument of all. Each gives a module and the loss of a batch, as in
`small_models`, some of whose models are among them. Shape comments: B batch, T time, C channels,
N bodies or nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench import small_models
from bench.small_models import Training


def efficientnet(t: Any) -> Training:
    """Inverted residuals with SiLU and squeeze-excite (Tan and Le 2019), on 64 x 64 images."""
    nn, f = t.nn, t.nn.functional

    def convolution(channels: int, out: int, kernel: int, stride: int, groups: int = 1) -> Any:
        conv = nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(out))

    class Block(nn.Module):
        def __init__(self, channels: int, out: int, kernel: int, stride: int) -> None:
            super().__init__()
            wide = 4 * channels
            self.expand = convolution(channels, wide, 1, 1)
            self.depthwise = convolution(wide, wide, kernel, stride, wide)
            self.squeeze, self.excite = nn.Conv2d(wide, channels, 1), nn.Conv2d(channels, wide, 1)
            self.project = convolution(wide, out, 1, 1)
            self.residual = stride == 1 and channels == out

        def forward(self, x: Any) -> Any:
            y = f.silu(self.depthwise(f.silu(self.expand(x))))
            gate = self.excite(f.silu(self.squeeze(y.mean((2, 3), keepdim=True))))
            y = self.project(y * t.sigmoid(gate))
            return x + y if self.residual else y

    model = nn.Sequential(
        convolution(3, 16, 3, 2),
        nn.SiLU(),
        *(Block(*sizes) for sizes in ((16, 24, 3, 2), (24, 24, 3, 1), (24, 40, 5, 2))),
        *(Block(*sizes) for sizes in ((40, 40, 5, 1), (40, 40, 5, 1))),
        convolution(40, 160, 1, 1),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(1),
        nn.Linear(160, 10),
    )
    images, labels = t.randn(2, 3, 64, 64), t.randint(0, 10, (2,))
    return model, lambda: f.cross_entropy(model(images), labels)


def densenet(t: Any) -> Training:
    """Dense blocks (Huang et al. 2017): each layer reads what all before it gave."""
    nn, f = t.nn, t.nn.functional
    growth = 12

    class Layer(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(4 * growth)
            self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
            self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

        def forward(self, x: Any) -> Any:
            y = self.conv1(f.relu(self.norm1(x)))
            return t.cat([x, self.conv2(f.relu(self.norm2(y)))], 1)

    layers, channels = [nn.Conv2d(3, 24, 3, padding=1, bias=False)], 24
    for block in range(3):
        for _ in range(5):
            layers.append(Layer(channels))
            channels += growth
        if block < 2:
            layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels // 2, 1)]
            layers.append(nn.AvgPool2d(2))
            channels //= 2
    model = nn.Sequential(
        *layers, nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(1),
        nn.Linear(channels, 10),
    )  # fmt: skip
    images, labels = t.randn(2, 3, 32, 32), t.randint(0, 10, (2,))
    return model, lambda: f.cross_entropy(model(images), labels)


def convnext(t: Any) -> Training:
    """Depthwise 7 x 7, a norm over the channels, two linear layers (Liu et al. 2022)."""
    nn, f = t.nn, t.nn.functional

    class Block(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
            self.norm = nn.LayerNorm(channels, eps=1e-6)
            self.up = nn.Linear(channels, 4 * channels)
            self.down = nn.Linear(4 * channels, channels)
            self.scale = nn.Parameter(1e-2 * t.ones(channels))

        def forward(self, x: Any) -> Any:
            y = self.depthwise(x).permute(0, 2, 3, 1)  # (B, H, W, C)
            y = self.scale * self.down(f.gelu(self.up(self.norm(y))))
            return x + y.permute(0, 3, 1, 2)

    model = nn.Sequential(
        nn.Conv2d(3, 32, 4, 4),
        *(Block(32) for _ in range(3)),
        nn.Conv2d(32, 64, 2, 2),
        *(Block(64) for _ in range(3)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(1),
        nn.Linear(64, 10),
    )
    images, labels = t.randn(2, 3, 64, 64), t.randint(0, 10, (2,))
    return model, lambda: f.cross_entropy(model(images), labels)


def transformer(t: Any) -> Training:
    """Twelve layers of width 64 over 8 tokens: most of its time is not spent in kernels."""
    nn, f = t.nn, t.nn.functional
    width, heads, vocabulary = 64, 4, 128

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            B, T, C = x.shape
            qkv = self.qkv(self.norm1(x)).view(B, T, 3, heads, C // heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            y = f.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
            return x + self.down(f.gelu(self.up(self.norm2(x))))

    embedding, head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
    model = nn.Sequential(embedding, *(Layer() for _ in range(12)), nn.LayerNorm(width), head)
    text = t.randint(0, vocabulary, (1, 9))

    def loss() -> Any:
        return f.cross_entropy(model(text[:, :-1]).view(-1, vocabulary), text[:, 1:].reshape(-1))

    return model, loss


def cells(t: Any) -> Training:
    """A GRU cell and an LSTM cell in a Python loop over 24 steps."""
    nn, f = t.nn, t.nn.functional

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.lstm = nn.GRUCell(16, 32), nn.LSTMCell(32, 32)
            self.head = nn.Linear(32, 4)

        def forward(self, x: Any) -> Any:
            B, T, _ = x.shape
            h = a = c = x.new_zeros(B, 32)
            for step in range(T):
                h = self.gru(x[:, step], h)
                a, c = self.lstm(h, (a, c))
            return self.head(a)

    model = Recurrent()
    series, target = t.randn(8, 24, 16), t.randn(8, 4)
    return model, lambda: f.mse_loss(model(series), target)


def mixer(t: Any) -> Training:
    """An MLP mixer (Tolstikhin et al. 2021): perceptrons over patches, then over channels."""
    nn, f = t.nn, t.nn.functional
    patches, width = 64, 64

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.tokens = nn.Sequential(nn.Linear(patches, 32), nn.GELU(), nn.Linear(32, patches))
            self.channels = nn.Sequential(nn.Linear(width, 128), nn.GELU(), nn.Linear(128, width))

        def forward(self, x: Any) -> Any:
            x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.norm2(x))

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, width, 4, 4)
            self.blocks = nn.Sequential(*(Block() for _ in range(6)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

        def forward(self, images: Any) -> Any:
            x = self.blocks(self.stem(images).flatten(2).transpose(1, 2))
            return self.head(self.norm(x).mean(1))

    model = Mixer()
    images, labels = t.randn(2, 3, 32, 32), t.randint(0, 10, (2,))
    return model, lambda: f.cross_entropy(model(images), labels)


def flow(t: Any) -> Training:
    """A normalising flow of affine couplings (Dinh et al. 2017): minus the log-likelihood."""
    nn = t.nn

    class Coupling(nn.Module):
        def __init__(self, flip: bool) -> None:
            super().__init__()
            self.flip = flip
            self.net = nn.Sequential(
                nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 16)
            )

        def forward(self, x: Any) -> Any:
            a, b = x.chunk(2, 1)
            if self.flip:
                a, b = b, a
            scale, shift = self.net(a).chunk(2, 1)
            scale = t.tanh(scale)
            b = b * t.exp(scale) + shift
            return t.cat([b, a] if self.flip else [a, b], 1), scale.sum(1)

    model = nn.ModuleList(Coupling(k % 2 == 1) for k in range(8))
    samples = t.randn(64, 16)

    def loss() -> Any:
        x, log_determinant = samples, 0.0
        for layer in model:
            x, part = layer(x)
            log_determinant = log_determinant + part
        return (0.5 * x.square().sum(1) - log_determinant).mean()

    return model, loss


def pinn(t: Any) -> Training:
    """A perceptron that solves the heat equation: second derivatives in its loss."""
    nn = t.nn
    model = nn.Sequential(
        nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(),
        nn.Linear(32, 1),
    )  # fmt: skip
    place, time = t.rand(128, 1), t.rand(128, 1)
    start = t.rand(64, 1)

    def loss() -> Any:
        x, s = place.clone().requires_grad_(), time.clone().requires_grad_()
        with t.enable_grad():
            u = model(t.cat([x, s], 1))
            u_x, u_s = t.autograd.grad(u.sum(), (x, s), create_graph=True)
            (u_xx,) = t.autograd.grad(u_x.sum(), x, create_graph=True)
        begin = model(t.cat([start, t.zeros_like(start)], 1))
        return (u_s - 0.1 * u_xx).square().mean() + (begin - t.sin(3 * start)).square().mean()

    return model, loss


def _state(t: Any, *tensors: Any) -> Any:
    """A module whose parameters are the tensors: `state0` and so on."""
    module = t.nn.Module()
    for number, tensor in enumerate(tensors):
        module.register_parameter(f"state{number}", t.nn.Parameter(tensor))
    return module


def reaction(t: Any) -> Training:
    """Forty steps of two substances that react and diffuse (Gray and Scott) on a 96 x 96 grid."""
    grid = 96
    model = _state(t, 1.0 - 0.1 * t.rand(grid, grid), 0.2 * t.rand(grid, grid))

    def around(x: Any) -> Any:
        near = x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1)
        return near - 4.0 * x

    def loss() -> Any:
        u, v = model.state0, model.state1
        for _ in range(40):
            uvv = u * v * v
            u = u + 0.16 * around(u) - uvv + 0.035 * (1.0 - u)
            v = v + 0.08 * around(v) + uvv - 0.095 * v
        return v.square().mean()

    return model, loss


def bodies(t: Any) -> Training:
    """Ten leapfrog steps of 96 bodies that attract each other."""
    count, pace = 96, 0.01
    mass = t.rand(count) + 0.5
    model = _state(t, t.randn(count, 3), 0.1 * t.randn(count, 3))

    def acceleration(x: Any) -> Any:
        apart = x[None, :, :] - x[:, None, :]  # (N, N, 3)
        weight = mass[None, :] * (apart.square().sum(-1) + 0.05).pow(-1.5)
        return (apart * weight[:, :, None]).sum(1)

    def loss() -> Any:
        x, v = model.state0, model.state1
        a = acceleration(x)
        for _ in range(10):
            v = v + 0.5 * pace * a
            x = x + pace * v
            a = acceleration(x)
            v = v + 0.5 * pace * a
        return 0.5 * (mass[:, None] * v.square()).sum()

    return model, loss


def many_parameters(t: Any) -> Training:
    """Adam over 500 parameters of 16 x 16: a step is little else."""
    model = _state(t, *(t.randn(16, 16) for _ in range(500)))

    def loss() -> Any:
        return t.stack(list(model.parameters())).square().mean()

    return model, loss


def policy(t: Any) -> Training:
    """A policy gradient: 64 carts with poles, twelve steps, and the returns that follow."""
    nn, f = t.nn, t.nn.functional
    model = nn.Sequential(
        nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2)
    )
    begin, pace = 0.05 * t.randn(64, 4), 0.02
    drawn = t.randint(0, 2, (12, 64))

    def move(state: Any, action: Any) -> Any:
        x, speed, angle, turn = state.unbind(1)
        force = 20.0 * action - 10.0
        sine, cosine = t.sin(angle), t.cos(angle)
        push = (force + 0.05 * turn.square() * sine) / 1.1
        twist = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine.square() / 1.1))
        faster = push - 0.05 * twist * cosine / 1.1
        values = (x + pace * speed, speed + pace * faster, angle + pace * turn, turn + pace * twist)
        return t.stack(values, 1)

    def loss() -> Any:
        state, chances, rewards = begin, [], []
        for action in drawn:
            chances.append(f.log_softmax(model(state), 1).gather(1, action[:, None]).squeeze(1))
            state = move(state, action)
            rewards.append(1.0 - state[:, 2].abs())
        returns = t.stack(rewards).flip(0).cumsum(0).flip(0)
        advantage = (returns - returns.mean(1, keepdim=True)) / (
            returns.std(1, keepdim=True) + 1e-6
        )
        return -(t.stack(chances) * advantage).mean()

    return model, loss


def ensemble(t: Any) -> Training:
    """Eight small perceptrons that predict nine quantiles each, with the pinball loss."""
    nn = t.nn
    model = nn.ModuleList(
        nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 9))
        for _ in range(8)
    )
    inputs, target = t.randn(64, 12), t.randn(64, 1)
    levels = t.arange(1, 10) / 10.0

    def loss() -> Any:
        total = 0.0
        for member in model:
            error = target - member(inputs)
            total = total + t.maximum(levels * error, (levels - 1.0) * error).mean()
        return total / len(model)

    return model, loss


PROGRAMS: dict[str, Callable[[Any], Training]] = {
    "MobileNetV3": small_models.mobilenet,
    "EfficientNet": efficientnet,
    "DenseNet": densenet,
    "ConvNeXt": convnext,
    "transformer": transformer,
    "recurrent cells": cells,
    "message passing": small_models.gnn,
    "MLP mixer": mixer,
    "diffusion": small_models.diffusion,
    "flow": flow,
    "PINN": pinn,
    "reaction": reaction,
    "N-body": bodies,
    "500 parameters": many_parameters,
    "policy gradient": policy,
    "quantiles": ensemble,
}
