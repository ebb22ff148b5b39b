"""Programs that `torch.fx` traces, written once for any library with PyTorch's API.

`programs(torch)` gives name -> (module or function, inputs). The parity tests compare the graphs of
both libraries; the tests here run what was traced beside the program itself.
"""

# ruff: noqa: D101, D102, D103, E501, E731 - a table of small programs, one a line

from __future__ import annotations

import math
import operator
from typing import Any


def functions(torch: Any) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Functions: operators, methods, indexing, functions of every kind."""
    F = torch.nn.functional
    x = torch.arange(12.0).reshape(3, 4) / 7 - 0.5
    y = x.flip(0) + 0.25
    image = torch.arange(32.0).reshape(1, 2, 4, 4) / 16
    constant = torch.arange(4.0)

    def unpack(pair):
        first, second = pair
        return first - second

    def defaults(x, scale=2.0, *, shift=None):
        return x * scale

    def varargs(x, *others, **named):
        return x + others[0] * named["factor"]

    def annotated(x: torch.Tensor, count: int = 2) -> torch.Tensor:
        return x.repeat(count, 1)

    def nested(x):
        return {"sum": x.sum(), "pair": (x + 1, [x, None]), "part": x[1:, ::2, None]}

    def sizes(x):
        rows, columns = x.shape[0], x.size(1)
        return x.view(rows * columns).reshape(columns, -1)

    def constants(x):
        return constant + x, x - constant, constant.mul(x), torch.add(constant, x), constant > x

    def inplace(x):
        z = x.clone()
        z += 1
        z.mul_(2).add_(x)
        return operator.iadd(z, x)

    table = {
        "arithmetic": (lambda x, y: (x + y, x - 1, 2 * x, x / y, x // 2, x % 2, x**2, 2**x), (x, y)),
        "reflected": (lambda x: (1 + x, 1 - x, 3 / x, 2 // x, 7 % x), (x + 3,)),
        "compare": (lambda x, y: (x < y, x <= 0, x == y, x != 1, x > y, 1 >= x), (x, y)),
        "unary": (lambda x: (-x, +x, abs(x), ~(x > 0)), (x,)),
        "bits": (lambda m: (m & True, m | m, m ^ True), (x > 0,)),
        "matmul": (lambda x, y: (x @ y.T, torch.matmul(x, y.mT)), (x, y)),
        "index": (lambda x: (x[0], x[..., 1], x[:, 1:3], x[None], x[[0, 2]], x[x > 0]), (x,)),
        "attributes": (lambda x: (x.T, x.shape, x.dtype, x.ndim), (x,)),
        "methods": (lambda x: x.relu().clamp(min=0.0, max=1.0).sum(dim=1, keepdim=True), (x,)),
        "views": (lambda x: x.transpose(0, 1).contiguous().flatten().unsqueeze(0).expand(2, -1), (x,)),
        "sizes": (sizes, (x,)),
        "unpack": (unpack, ((x, y),)),
        "defaults": (defaults, (x,)),
        "varargs": (varargs, (x, y)),
        "annotated": (annotated, (x,)),
        "nested": (nested, (x,)),
        "constants": (constants, (x,)),
        "inplace": (inplace, (x,)),
        "torch functions": (lambda x, y: torch.cat([torch.relu(x), torch.where(x > 0, x, y)], dim=1), (x, y)),
        "stack and split": (lambda x: torch.stack(torch.split(x, 2, dim=1)[:1]) + torch.chunk(x, 2, 1)[0].sum(), (x,)),
        "reductions": (lambda x: (torch.max(x, 1).values, x.mean(), x.std(0), torch.argmax(x, dim=1)), (x,)),
        "einsum": (lambda x, y: torch.einsum("ij,kj->ik", x, y), (x, y)),
        "norms": (lambda x: (torch.norm(x, 2, 1), F.normalize(x, dim=-1), F.layer_norm(x, (4,))), (x,)),
        "activations": (lambda x: (F.relu(x), F.gelu(x), F.silu(x), F.elu(x, 0.5), F.leaky_relu(x, 0.1)), (x,)),
        "more activations": (lambda x: (F.sigmoid(x), F.tanh(x), F.softplus(x), F.hardtanh(x), F.relu6(x), F.mish(x)), (x,)),
        "softmax": (lambda x: (F.softmax(x, -1), F.log_softmax(x, dim=1), torch.softmax(x, 0), F.logsigmoid(x)), (x,)),
        "pooling": (lambda i: (F.max_pool2d(i, 2), F.avg_pool2d(i, 2, stride=1), F.adaptive_avg_pool2d(i, 1)), (image,)),
        "resize": (lambda i: (F.interpolate(i, scale_factor=2), F.pad(i, (1, 1)), F.unfold(i, 2)), (image,)),
        "linear": (lambda x, y: (F.linear(x, y), F.bilinear(x[:1], y[:1], x.T[:, :, None].expand(4, 3, 4)[:, :1].expand(4, 4, 4))), (x, y)),
        "losses": (lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y, reduction="sum"), F.smooth_l1_loss(x, y), F.kl_div(x, y.exp())), (x, y)),
        "classes": (lambda x: (F.cross_entropy(x, x.argmax(1)), F.nll_loss(x, x.argmax(1), reduction="none")), (x,)),
        "dropout": (lambda x: (F.dropout(x, 0.5, False), F.alpha_dropout(x, training=False)), (x,)),
        "attention": (lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True), (x,)),
        "embedding": (lambda x: F.embedding(torch.argmax(x, dim=0), x), (x,)),
        "factories": (lambda x: torch.zeros(2, dtype=x.dtype, device=x.device) + torch.ones_like(x)[:, :2], (x,)),
        "conversions": (lambda x: (x.to(torch.float64), x.double().long(), x.type_as(x)), (x,)),
        "python math": (lambda x: x * math.sqrt(2.0) + math.pi, (x,)),
        "assert": (lambda x: (torch._assert(x.sum() > -100, "small"), x)[1], (x,)),
        "linear algebra": (lambda x: (torch.linalg.norm(x), torch.fft.fft(x).real, torch.tensordot(x, x.T, 1)), (x,)),
        "low rank": (lambda x: (torch.svd_lowrank(x, 2)[1], torch.lu(x @ x.T)[0], torch.unique(x), F.glu(x)), (x,)),
        "eigenvalues": (lambda x: torch.lobpcg(x @ x.T + 2, 1)[0], (x,)),
        "spectra": (lambda x: (torch.stft(x[0], 4, window=torch.ones(4), return_complex=True), torch.cdist(x, x)), (x,)),
        "literal": (lambda x: 3, (x,)),
    }  # fmt: skip
    return table


def modules(torch: Any) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Modules: parameters, buffers, containers, calls more than once."""
    nn, F = torch.nn, torch.nn.functional

    class Members(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))
            self.register_buffer("shift", torch.arange(4.0))
            self.plain = torch.full((4,), 2.0)
            self.inner = nn.Module()
            self.inner.weight = nn.Parameter(torch.ones(4) / 3)

        def forward(self, x):
            x = x * self.scale + self.shift
            return self.shift + x - self.plain * self.inner.weight + self.scale

    class Block(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.norm = nn.LayerNorm(size)
            self.layers = nn.Sequential(
                nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size)
            )

        def forward(self, x):
            return x + self.layers(self.norm(x))

    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Block(4) for _ in range(2))
            self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 3)})
            self.shared = self.blocks[0]
            self.extra = nn.ParameterList([nn.Parameter(torch.ones(4))])

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            x = self.shared(x) + self.extra[0]
            return {name: head(x) for name, head in self.heads.items()}

    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(2, 4, 3, padding=1, bias=False)
            self.bn = nn.BatchNorm2d(4)
            self.pool = nn.AdaptiveAvgPool2d((1, 1))
            self.fc = nn.Linear(4, 3)

        def forward(self, image, scale: float = 1.0):
            x = F.relu(self.bn(self.conv(image)), inplace=True)
            if self.training:
                x = F.dropout(x, 0.1)
            x = torch.flatten(self.pool(x), 1)
            return F.log_softmax(self.fc(x) * scale, dim=1)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = 2
            self.qkv = nn.Linear(4, 12)
            self.out = nn.Linear(4, 4)

        def forward(self, x):
            length, width = x.shape
            q, k, v = (
                self.qkv(x).view(length, 3, self.heads, width // self.heads).permute(1, 2, 0, 3)
            )
            weights = (q @ k.transpose(-2, -1) / math.sqrt(2)).softmax(dim=-1)
            return self.out((weights @ v).transpose(0, 1).reshape(length, width))

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(10, 4)
            self.rnn = nn.LSTM(4, 5, batch_first=True)
            self.multi = nn.MultiheadAttention(5, 1, batch_first=True)

        def forward(self, tokens):
            out, (hidden, _) = self.rnn(self.embedding(tokens))
            return self.multi(out, out, out, need_weights=False)[0], hidden[-1]

    x = torch.arange(12.0).reshape(3, 4) / 7 - 0.5
    image = torch.arange(64.0).reshape(2, 2, 4, 4) / 32
    return {
        "members": (Members(), (x,)),
        "block": (Block(4), (x,)),
        "stack": (Stack(), (x,)),
        "branch training": (Branch(), (image,)),
        "branch": (Branch().eval(), (image,)),
        "attention module": (Attention(), (x,)),
        "recurrent": (Recurrent(), (torch.arange(6).reshape(2, 3),)),
        "sequential": (nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Softmax(dim=1)), (x,)),
        "leaf": (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), (x[None],)),
    }


def programs(torch: Any) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """All of them."""
    return {**functions(torch), **modules(torch)}
