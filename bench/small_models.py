"""Twelve small models with a training step each; the framework is an argument of all.

Five are those of `examples/models`, at sizes of their own here. Shape comments: B batch, T time,
C channels, nh heads, hs head size, N nodes, E edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Loss = Callable[[], Any]
Training = tuple[Any, Loss]  # a model, and the loss of its batch


def mlp(t: Any) -> Training:
    """A perceptron with two hidden layers on 28 x 28 images."""
    nn, f = t.nn, t.nn.functional
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 128),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    images, labels = t.randn(8, 1, 28, 28), t.randint(0, 10, (8,))
    return model, lambda: f.cross_entropy(model(images), labels)


def lenet(t: Any) -> Training:
    """LeNet-5 (LeCun et al. 1998) with ReLU and max pooling."""
    nn, f = t.nn, t.nn.functional

    class LeNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
            self.conv2 = nn.Conv2d(6, 16, 5)
            self.fc1 = nn.Linear(16 * 5 * 5, 120)
            self.fc2 = nn.Linear(120, 84)
            self.fc3 = nn.Linear(84, 10)

        def forward(self, x: Any) -> Any:
            x = f.max_pool2d(f.relu(self.conv1(x)), 2)
            x = f.max_pool2d(f.relu(self.conv2(x)), 2)
            x = x.view(x.size(0), -1)
            return self.fc3(f.relu(self.fc2(f.relu(self.fc1(x)))))

    model, criterion = LeNet(), nn.CrossEntropyLoss()
    images, labels = t.randn(8, 1, 28, 28), t.randint(0, 10, (8,))
    return model, lambda: criterion(model(images), labels)


def resnet18(t: Any) -> Training:
    """ResNet-18 (He et al. 2015), an eighth as wide, on 32 x 32 images."""
    nn, f = t.nn, t.nn.functional

    class BasicBlock(nn.Module):
        def __init__(self, channels: int, out: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(out)
            self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(out)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = None
            if stride != 1 or channels != out:
                self.downsample = nn.Sequential(
                    nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
                )

        def forward(self, x: Any) -> Any:
            identity = x if self.downsample is None else self.downsample(x)
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            y += identity
            return self.relu(y)

    class ResNet18(nn.Module):
        def __init__(self, width: int, classes: int) -> None:
            super().__init__()
            self.stem = nn.Sequential(
                nn.Conv2d(3, width, 7, 2, padding=3, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(3, 2, padding=1),
            )
            widths = [width, width, 2 * width, 4 * width, 8 * width]
            blocks: list[Any] = []
            for stage, (channels, out) in enumerate(zip(widths, widths[1:], strict=False)):
                blocks.append(BasicBlock(channels, out, 2 if stage else 1))
                blocks.append(BasicBlock(out, out, 1))
            self.blocks = nn.Sequential(*blocks)
            self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
            self.fc = nn.Linear(widths[-1], classes)
            for module in self.modules():
                if isinstance(module, nn.Conv2d):
                    nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

        def forward(self, x: Any) -> Any:
            return self.fc(t.flatten(self.avgpool(self.blocks(self.stem(x))), 1))

    model = ResNet18(8, 10)
    images, labels = t.randn(4, 3, 32, 32), t.randint(0, 10, (4,))
    return model, lambda: f.cross_entropy(model(images), labels)


def mobilenet(t: Any) -> Training:
    """MobileNetV3 (Howard et al. 2019): depthwise convolutions, squeeze-excite, hard swish."""
    nn, f = t.nn, t.nn.functional

    def convolution(channels: int, out: int, kernel: int, stride: int, groups: int = 1) -> Any:
        conv = nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(out, eps=0.001, momentum=0.01))

    class SqueezeExcite(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.avgpool = nn.AdaptiveAvgPool2d(1)
            self.fc1 = nn.Conv2d(channels, channels // 4, 1)
            self.fc2 = nn.Conv2d(channels // 4, channels, 1)
            self.relu, self.gate = nn.ReLU(), nn.Hardsigmoid()

        def forward(self, x: Any) -> Any:
            return x * self.gate(self.fc2(self.relu(self.fc1(self.avgpool(x)))))

    class InvertedResidual(nn.Module):
        def __init__(
            self,
            channels: int,
            kernel: int,
            wide: int,
            out: int,
            squeeze: bool,
            hard: bool,
            stride: int,
        ) -> None:
            super().__init__()
            self.residual = stride == 1 and channels == out
            activation = nn.Hardswish if hard else nn.ReLU
            layers = [convolution(channels, wide, 1, 1), activation(inplace=True)]
            layers += [convolution(wide, wide, kernel, stride, wide), activation(inplace=True)]
            if squeeze:
                layers.append(SqueezeExcite(wide))
            self.block = nn.Sequential(*layers, convolution(wide, out, 1, 1))

        def forward(self, x: Any) -> Any:
            return x + self.block(x) if self.residual else self.block(x)

    model = nn.Sequential(
        convolution(3, 8, 3, 2),
        nn.Hardswish(inplace=True),
        InvertedResidual(8, 3, 16, 8, True, False, 1),
        InvertedResidual(8, 3, 32, 16, False, False, 2),
        InvertedResidual(16, 5, 48, 24, True, True, 2),
        InvertedResidual(24, 5, 64, 24, True, True, 1),
        convolution(24, 96, 1, 1),
        nn.Hardswish(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(1),
        nn.Linear(96, 128),
        nn.Hardswish(inplace=True),
        nn.Dropout(0.2),
        nn.Linear(128, 10),
    )
    images, labels = t.randn(4, 3, 32, 32), t.randint(0, 10, (4,))
    return model, lambda: f.cross_entropy(model(images), labels)


def llama(t: Any) -> Training:
    """A decoder like Llama 3's: RMS norm, rotary embedding, grouped heads, SwiGLU."""
    nn, f = t.nn, t.nn.functional
    vocabulary, context, width, heads, groups, layers = 256, 48, 64, 4, 2, 2
    size = width // heads

    class RMSNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(t.ones(width))

        def forward(self, x: Any) -> Any:
            return x * t.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight

    def rotate(x: Any, cos: Any, sin: Any) -> Any:
        a, b = x.chunk(2, dim=-1)
        return x * cos + t.cat((-b, a), dim=-1) * sin

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q = nn.Linear(width, width, bias=False)
            self.k = nn.Linear(width, groups * size, bias=False)
            self.v = nn.Linear(width, groups * size, bias=False)
            self.out = nn.Linear(width, width, bias=False)

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            B, T, C = x.shape
            q = rotate(self.q(x).view(B, T, heads, size).transpose(1, 2), cos, sin)
            k = rotate(self.k(x).view(B, T, groups, size).transpose(1, 2), cos, sin)
            v = self.v(x).view(B, T, groups, size).transpose(1, 2)  # (B, nh, T, hs)
            k, v = (y.repeat_interleave(heads // groups, dim=1) for y in (k, v))
            y = f.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(B, T, C))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.attention, self.norm2 = RMSNorm(), Attention(), RMSNorm()
            self.gate = nn.Linear(width, 3 * width, bias=False)
            self.up = nn.Linear(width, 3 * width, bias=False)
            self.down = nn.Linear(3 * width, width, bias=False)

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            x = x + self.attention(self.norm1(x), cos, sin)
            y = self.norm2(x)
            return x + self.down(f.silu(self.gate(y)) * self.up(y))

    class Llama(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Embedding(vocabulary, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = RMSNorm(), nn.Linear(width, vocabulary, bias=False)
            frequencies = 10000.0 ** (-t.arange(0, size, 2).float() / size)
            angles = t.outer(t.arange(context).float(), frequencies)  # (T, hs / 2)
            self.register_buffer("cos", t.cat((angles, angles), dim=-1).cos())
            self.register_buffer("sin", t.cat((angles, angles), dim=-1).sin())

        def forward(self, tokens: Any) -> Any:
            x, length = self.token(tokens), tokens.shape[1]
            for block in self.blocks:
                x = block(x, self.cos[:length], self.sin[:length])
            return self.head(self.norm(x))

    model, text = Llama(), t.randint(0, vocabulary, (4, context + 1))

    def loss() -> Any:
        logits = model(text[:, :-1])
        return f.cross_entropy(logits.view(-1, vocabulary), text[:, 1:].reshape(-1))

    return model, loss


def gnn(t: Any) -> Training:
    """Message passing on a random graph: a class for each node, of which some have labels."""
    nn, f = t.nn, t.nn.functional
    nodes, edges, classes = 120, 480, 5

    class Layer(nn.Module):
        def __init__(self, channels: int, out: int) -> None:
            super().__init__()
            self.message = nn.Linear(2 * channels, out)
            self.update = nn.Linear(channels + out, out)

        def forward(self, x: Any, source: Any, target: Any) -> Any:
            pairs = t.cat((x[source], x[target]), dim=1)  # (E, 2 C)
            messages = f.relu(self.message(pairs))
            total = t.zeros(x.shape[0], messages.shape[1]).index_add(0, target, messages)
            degree = t.zeros(x.shape[0]).scatter_add(0, target, t.ones(target.shape[0]))
            mean = total / degree.clamp(min=1).unsqueeze(1)
            return self.update(t.cat((x, mean), dim=1))

    class GNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer1, self.layer2 = Layer(16, 32), Layer(32, 32)
            self.head = nn.Linear(32, classes)

        def forward(self, x: Any, edge_index: Any) -> Any:
            source, target = edge_index
            x = f.relu(self.layer1(x, source, target))
            x = f.dropout(x, 0.2, training=self.training)
            return self.head(f.relu(self.layer2(x, source, target)))

    model, features = GNN(), t.randn(nodes, 16)
    edge_index, labels = t.randint(0, nodes, (2, edges)), t.randint(0, classes, (nodes,))
    labelled = t.rand(nodes) < 0.5
    return model, lambda: f.cross_entropy(model(features, edge_index)[labelled], labels[labelled])


def diffusion(t: Any) -> Training:
    """The U-Net of a diffusion model (Ho et al. 2020): predicts the noise of noisy images."""
    nn, f = t.nn, t.nn.functional
    width, steps = 16, 1000

    class TimeEmbedding(nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.mlp = nn.Sequential(nn.Linear(width, size), nn.SiLU(), nn.Linear(size, size))

        def forward(self, time: Any) -> Any:
            half = width // 2
            frequencies = t.exp(-math.log(10000) * t.arange(half, dtype=t.float32) / half)
            angles = time[:, None].float() * frequencies[None]
            return self.mlp(t.cat([angles.sin(), angles.cos()], dim=-1))

    class Residual(nn.Module):
        def __init__(self, channels: int, out: int, time: int) -> None:
            super().__init__()
            self.norm1, self.conv1 = (
                nn.GroupNorm(4, channels),
                nn.Conv2d(channels, out, 3, padding=1),
            )
            self.norm2, self.conv2 = nn.GroupNorm(4, out), nn.Conv2d(out, out, 3, padding=1)
            self.time = nn.Linear(time, out)
            self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

        def forward(self, x: Any, time: Any) -> Any:
            y = self.conv1(f.silu(self.norm1(x)))
            y = y + self.time(f.silu(time))[:, :, None, None]
            return self.skip(x) + self.conv2(f.silu(self.norm2(y)))

    class Attention(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.norm = nn.GroupNorm(4, channels)
            self.qkv, self.out = (
                nn.Conv2d(channels, 3 * channels, 1),
                nn.Conv2d(channels, channels, 1),
            )

        def forward(self, x: Any) -> Any:
            B, C, H, W = x.shape
            q, k, v = self.qkv(self.norm(x)).reshape(B, 3, C, H * W).unbind(1)
            scores = t.einsum("bci,bcj->bij", q, k) / math.sqrt(C)
            y = t.einsum("bij,bcj->bci", scores.softmax(dim=-1), v)
            return x + self.out(y.reshape(B, C, H, W))

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.time = TimeEmbedding(4 * width)
            self.stem = nn.Conv2d(3, width, 3, padding=1)
            self.down1 = Residual(width, width, 4 * width)
            self.pool = nn.Conv2d(width, width, 3, stride=2, padding=1)
            self.down2 = Residual(width, 2 * width, 4 * width)
            self.middle, self.attention = (
                Residual(2 * width, 2 * width, 4 * width),
                Attention(2 * width),
            )
            self.up = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
            self.up1 = Residual(3 * width, width, 4 * width)
            self.norm, self.head = nn.GroupNorm(4, width), nn.Conv2d(width, 3, 3, padding=1)

        def forward(self, x: Any, time: Any) -> Any:
            time = self.time(time)
            skip = self.down1(self.stem(x), time)
            y = self.down2(self.pool(skip), time)
            y = self.attention(self.middle(y, time))
            y = self.up(f.interpolate(y, scale_factor=2, mode="nearest"))
            y = self.up1(t.cat([y, skip], dim=1), time)
            return self.head(f.silu(self.norm(y)))

    model, images = UNet(), t.randn(4, 3, 16, 16)
    signal = t.cumprod(1.0 - t.linspace(1e-4, 0.02, steps), dim=0)

    def loss() -> Any:
        time = t.randint(0, steps, (images.shape[0],))
        noise, share = t.randn_like(images), signal[time][:, None, None, None]
        noisy = share.sqrt() * images + (1.0 - share).sqrt() * noise
        return f.mse_loss(model(noisy, time), noise)

    return model, loss


def example(name: str, batch: int, **sizes: Any) -> Callable[[Any], Training]:
    """A model of `examples/models`, with the loss and the random batch that it has there."""

    def make(t: Any) -> Training:
        from examples.models import build

        model = build(name, t.__name__, **sizes)
        inputs = model.example(batch)
        return model, lambda: model.loss(*inputs)

    return make


MODELS: dict[str, Callable[[Any], Training]] = {
    "MLP": mlp,
    "LeNet": lenet,
    "ResNet-18": resnet18,
    "MobileNetV3": mobilenet,
    "U-Net": example("unet", 2, classes=4, width=8, depth=2, image=32),
    "ViT": example("vit", 4, image=32, patch=4, layers=2, heads=4, width=64, classes=10),
    "BERT": example("bert", 4, vocabulary=256, context=32, layers=2, heads=4, width=64),
    "GPT-2": example("gpt2", 4, vocabulary=256, context=48, layers=2, heads=4, width=64),
    "Llama": llama,
    "LSTM": example("lstm", 4, vocabulary=256, context=16, layers=2, width=64),
    "GNN": gnn,
    "diffusion": diffusion,
}
CLASSIFIERS = ("LeNet", "ResNet-18", "MobileNetV3")  # trained with momentum, the others with AdamW


def training_step(t: Any, name: str) -> Callable[[], float]:
    """The training step of a model, which returns the loss; weights and data have seed 0."""
    t.manual_seed(0)
    model, loss_of = MODELS[name](t)
    model.train()
    if name in CLASSIFIERS:
        optimizer = t.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    else:
        optimizer = t.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> float:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step
