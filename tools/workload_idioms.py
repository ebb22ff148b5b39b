"""What programs write around their layers: masks, positions, schedules of noise, heads, pairs of
nodes, images of one channel or that shrink to a point, first lines in an interpreter. Each depends
on layouts, on dimensions of one element, or on who requires a gradient, as single operators on
their samples do not.

Where a plan is for some sizes only, because larger ones take another algorithm, several are tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from types import ModuleType
from typing import Any

HEADS = (16, 32, 64)  # widths of attention heads: a plan serves one
EQUATIONS = (  # of einsum: scores of heads, of channels; products, transposed or not; outer ones
    ("bhid,bhjd->bhij", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("bhij,bhjd->bhid", (2, 2, 3, 5), (2, 2, 5, 4)),
    ("bqhd,bkhd->bhqk", (2, 3, 2, 4), (2, 5, 2, 4)),
    ("bhqk,bkhd->bqhd", (2, 2, 3, 5), (2, 5, 2, 4)),
    ("bci,bcj->bij", (2, 4, 3), (2, 4, 5)), ("bij,bcj->bci", (2, 3, 5), (2, 4, 5)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), ("bid,bjd->bij", (2, 3, 4), (2, 5, 4)),
    ("ij,jk->ik", (3, 4), (4, 5)), ("id,jd->ij", (3, 4), (5, 4)), ("i,j->ij", (3,), (4,)),
    ("bi,bj->bij", (2, 3), (2, 4)), ("bi,bi->b", (2, 3), (2, 3)),
)  # fmt: skip


def backward(value: Any) -> None:
    """A loss's gradients; what it was computed of may have others."""
    value.square().mean().backward(retain_graph=True)


def results(torch: ModuleType, *sizes: int) -> Any:
    """Another layer's results, which require gradients."""
    return torch.randn(*sizes, requires_grad=True) * 1.0


# ------------------------------------------------------------------------------- images


def convolutions(torch: ModuleType) -> None:
    """Of more channels and pixels than samples have, of data and of other layers' results."""
    nn = torch.nn
    for (narrow, wide), size, batch in product(
        ((16, 16), (16, 32), (32, 32), (32, 64), (64, 64)), (2, 4, 8, 16), (2, 4, 8)
    ):
        for width, stride, bias in ((3, 1, True), (3, 1, False), (3, 2, False), (1, 1, False)):
            with suppress(Exception):
                options = {"stride": stride, "padding": width // 2, "bias": bias}
                layer = nn.Conv2d(narrow, wide, width, **options)
                backward(layer(results(torch, batch, narrow, size, size)))
    for channels, width, stride, size in product((16, 64), (3, 5), (1, 2), (4, 8, 16)):
        with suppress(Exception):
            options = {"stride": stride, "padding": width // 2, "groups": channels, "bias": False}
            layer = nn.Conv2d(channels, channels, width, **options)
            backward(layer(results(torch, 4, channels, size, size)))


def one_channel(torch: ModuleType) -> None:
    """Images in shades of grey."""
    nn = torch.nn
    x = torch.rand(4, 1, 16, 16)
    flat: tuple[Callable[[Any], Any], ...] = (
        nn.Flatten(),
        lambda y: y.view(y.size(0), -1),
        lambda y: y.reshape(y.shape[0], -1),
        lambda y: torch.flatten(y, 1),
    )
    for flatten in flat:
        with suppress(Exception):
            backward(nn.Linear(256, 4)(flatten(x)))
    with suppress(Exception):
        backward(nn.Linear(256, 4)(x.view(-1, 256)))
    for width, padding, wide in product((3, 5), (0, 1, 2), (6, 16, 32)):
        for flatten in flat:
            with suppress(Exception):
                y = torch.relu(nn.Conv2d(1, wide, width, padding=padding)(x))
                y = nn.Conv2d(wide, 16, width, padding=padding)(nn.functional.max_pool2d(y, 2))
                backward(flatten(nn.functional.max_pool2d(torch.relu(y), 2)))


def _in_place(nn: Any) -> Iterator[Any]:
    yield from (nn.ReLU(True), nn.ReLU6(True), nn.Hardswish(True), nn.SiLU(True), nn.ELU(1.0, True))
    yield from (nn.LeakyReLU(0.2, True), nn.Mish(True), nn.Hardsigmoid(True), nn.Dropout(0.1, True))


def in_place(torch: ModuleType) -> None:
    """Activations that overwrite what a layer gave, at several and at single pixels."""
    nn = torch.nn
    for activation in _in_place(nn):
        for size in (4, 1):
            for after in (nn.BatchNorm2d(4), nn.Identity()):
                with suppress(Exception):
                    x = nn.Conv2d(4, 4, 3, padding=1)(results(torch, 3, 4, size, size))
                    backward(activation(after(x)))
        for sizes in ((3, 4), (3, 5, 4)):
            with suppress(Exception):
                backward(activation(nn.Linear(4, 4)(results(torch, *sizes))))


def points(torch: ModuleType) -> None:
    """Residual blocks whose images shrink to one pixel, and pooling of it and of larger ones."""
    nn = torch.nn
    for batch in (2, 3):
        for bias, stride in product((True, False), (1, 2)):
            norm, pool = nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1)
            near = nn.Conv2d(4, 4, 3, stride=stride, padding=1, bias=bias)
            last, side = (nn.Conv2d(4, 4, n, padding=n // 2, bias=bias) for n in (3, 1))
            for size in (2, 1):
                with suppress(Exception):
                    x = norm(near(results(torch, batch, 4, size, size)))
                    y = norm(last(torch.relu(x)))
                    y += side(x)
                    y = nn.functional.relu(y + x, inplace=True)
                    backward(torch.flatten(pool(y), 1) + y.mean((2, 3)))
        for size, out in product((1, 2, 4, 7, 8, 16, 32), (1, (1, 1))):
            with suppress(Exception):
                x = results(torch, batch, 8, size, size)
                backward(nn.functional.adaptive_avg_pool2d(x, out) * x)


def groups_of_channels(torch: ModuleType) -> None:
    """Group normalization: a plan serves one number of groups."""
    for count in (1, 4, 8, 16, 32):
        for affine in (True, False):
            with suppress(Exception):
                norm = torch.nn.GroupNorm(count, 2 * count, affine=affine)
                backward(torch.nn.functional.silu(norm(results(torch, 2, 2 * count, 4, 4))))


# ------------------------------------------------------------------------------- sequences


def tokens(torch: ModuleType) -> None:
    """Inputs and targets out of one text, positions, padding, and what is pooled of it."""
    nn = torch.nn
    for batch in (1, 3):
        text = torch.randint(1, 11, (batch, 9))
        before, after = text[:, :-1], text[:, 1:]
        for padding in (None, 0):
            table, places = nn.Embedding(11, 8, padding_idx=padding), nn.Embedding(16, 8)
            for inputs in (text, before, before.contiguous()):
                for order in (
                    torch.arange(inputs.shape[1], device=inputs.device),
                    torch.arange(inputs.shape[1], device=inputs.device)[None],
                    torch.arange(0, inputs.shape[1], device=inputs.device).unsqueeze(0),
                    torch.arange(inputs.shape[1]).expand(batch, -1),
                    torch.zeros_like(inputs),
                ):
                    with suppress(Exception):
                        backward(table(inputs) + places(order))
        for targets in (after.flatten(), after.reshape(-1), after.contiguous().view(-1)):
            with suppress(Exception):
                logits = results(torch, batch, 8, 11)
                nn.functional.cross_entropy(logits.flatten(0, 1), targets).backward()
        with suppress(Exception):
            nn.functional.cross_entropy(results(torch, batch, 8, 11).transpose(1, 2), after)
        with suppress(Exception):
            _last_of(torch, results(torch, batch, 8, 4))


def _last_of(torch: ModuleType, x: Any) -> None:
    lengths = torch.full((len(x),), 3)
    y = x[torch.arange(len(x)), lengths - 1] + x[:, -1] + x[:, 0] + x[:, -1, :]
    backward(y + x.mean(1) + x.max(dim=1).values)


def masks(torch: ModuleType) -> None:
    """Of padding, of the future, at random; as bools, as numbers that are added."""
    nn = torch.nn
    for batch in (1, 3):
        text, scores = torch.randint(0, 11, (batch, 6)), results(torch, batch, 2, 6, 6)
        lengths = torch.randint(1, 6, (batch,))
        steps = torch.arange(6, device=text.device)
        ahead = torch.tril(torch.ones(6, 6, dtype=torch.bool))
        hidden = torch.rand(batch, 6) < 0.15
        hidden[:, 0] = True
        hidden[0] = False
        hidden[::2] = True
        chosen = torch.bernoulli(torch.full(text.shape, 0.15)).bool()
        valid = (
            text != 0, ~(text == 0), steps[None, :] < lengths[:, None],
            steps < lengths.unsqueeze(1), ~(steps[None] >= lengths[:, None]), ~hidden, chosen,
            ahead[:6, :6], text.bool(),
        )  # fmt: skip
        labels = (text.masked_fill(hidden, 3), text.masked_fill(~hidden, -100), text.clone())
        labels[2][~hidden] = -100
        torch.where(hidden, text, -100)
        for mask in valid:
            with suppress(Exception):
                wide = mask[None, None] if mask is valid[7] else mask[:, None, None, :]
                for low in (float("-inf"), -1e9, torch.finfo(torch.float32).min):
                    backward(scores.masked_fill(~wide, low).softmax(-1))
                    backward(scores.masked_fill(wide == 0, low).softmax(-1))
                    backward(scores + (1.0 - wide.float()) * low)
                    backward(scores + (1.0 - wide.to(scores.dtype)) * -10000.0)
                backward(nn.functional.scaled_dot_product_attention(*[scores] * 3, attn_mask=wide))
            with suppress(Exception):
                x, weight = results(torch, batch, 6, 4), mask.unsqueeze(-1).float()
                backward((x * weight).sum(1) / weight.sum(1).clamp(min=1e-9))
                backward((x * mask[..., None]).sum(dim=1) / mask.sum(1, keepdim=True))
                backward(x[mask])
        for target in labels:
            with suppress(Exception):
                logits = results(torch, batch, 6, 11)
                cross = nn.functional.cross_entropy
                cross(logits.view(-1, 11), target.view(-1), ignore_index=-100).backward()


def heads(torch: ModuleType) -> None:
    """Queries, keys and values out of one product, rotated, or fewer of the latter two."""
    functional = torch.nn.functional
    for width, batch in product(HEADS, (1, 2)):
        x = results(torch, batch, 6, 3 * 2 * width)
        packed = x.reshape(batch, 6, 3, 2, width)
        split = [part.view(batch, 6, 2, width).transpose(1, 2) for part in x.split(2 * width, -1)]
        parts = (
            packed.permute(2, 0, 3, 1, 4), packed.permute(2, 0, 3, 1, 4).unbind(0),
            packed.transpose(1, 3).unbind(2), [y.transpose(1, 2) for y in packed.unbind(2)], split,
        )  # fmt: skip
        for q, k, v in parts:
            for causal in (True, False):
                with suppress(Exception):
                    y = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
                    backward(y.transpose(1, 2).reshape(batch, 6, 2 * width))
            with suppress(Exception):
                scores = (q @ k.transpose(-2, -1)) * width**-0.5
                backward((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))
        with suppress(Exception):
            _grouped(torch, results(torch, batch, 6, 4 * width), results(torch, batch, 6, width))


def _grouped(torch: ModuleType, x: Any, y: Any) -> None:
    """Four heads of queries that share one of keys and values."""
    batch, length, width = y.shape
    q, k = (z.view(batch, length, -1, width).transpose(1, 2) for z in (x, y))
    angles = torch.outer(
        torch.arange(length).float(), 10000.0 ** -(torch.arange(0, width, 2).float() / width)
    )
    rates = 1.0 / (10000.0 ** (torch.arange(0, width, 2)[: width // 2].float() / width))
    turns = (angles + torch.arange(length, dtype=torch.float32)[:, None] * rates[None]).repeat(1, 2)
    cosine, sine = turns.cos()[None, None, :, :], turns.sin()[None, None]

    def turned(z: Any) -> Any:
        low, high = z[..., : width // 2], z[..., width // 2 :]
        return z * cosine + torch.cat((-high, low), dim=-1) * sine

    for turn in (turned, lambda z: z):
        a, b = turn(q), turn(k)
        copies = (
            b.repeat_interleave(4, dim=1), torch.repeat_interleave(b, 4, 1),
            b[:, :, None].expand(-1, -1, 4, -1, -1).reshape(batch, 4, length, width),
            b.expand(-1, 4, -1, -1),
        )  # fmt: skip
        for keys in copies:
            attention = torch.nn.functional.scaled_dot_product_attention
            backward(attention(a, keys, keys, is_causal=True))


def equations(torch: ModuleType) -> None:
    """Products that are written as equations."""
    for equation, left, right in EQUATIONS:
        for grown in (True, False):
            with suppress(Exception):
                x, y = (results(torch, *sizes) if grown else torch.randn(sizes)
                        for sizes in (left, right))  # fmt: skip
                value = torch.einsum(equation, x, y)
                if grown:
                    backward(value)
    with suppress(Exception):
        q, k, v = results(torch, 2, 12, 3, 3).reshape(2, 3, 4, 9).unbind(1)
        y = torch.einsum("bci,bcj->bij", q, k) / math.sqrt(4)
        backward(torch.einsum("bij,bcj->bci", y.softmax(dim=-1), v).reshape(2, 4, 3, 3))


# ------------------------------------------------------------------------------- the rest


def noise(torch: ModuleType) -> None:
    """Schedules of noise, and embedded times."""
    betas = torch.linspace(1e-4, 0.02, 20)
    for alphas in (1.0 - betas, 1 - betas):
        left = torch.cumprod(alphas, dim=0)
        left = torch.cat([torch.ones(1), alphas.cumprod(0)[:-1]]) * left
        for batch in (1, 3):
            x, times = torch.randn(batch, 3, 4, 4), torch.randint(0, 20, (batch,))
            for share in (
                left[times][:, None, None, None], left[times].view(-1, 1, 1, 1),
                left.gather(-1, times).reshape(batch, 1, 1, 1), left[times].reshape(-1, 1, 1, 1),
            ):  # fmt: skip
                for one in (1.0, 1):
                    y = share.sqrt() * x + (one - share).sqrt() * torch.randn_like(x)
                    (y - torch.sqrt(one - share) * x) / torch.sqrt(share)
            rates = torch.exp(-math.log(10000) * torch.arange(4, dtype=torch.float32) / 4)
            for angles in (
                times[:, None].float() * rates[None], times.float()[:, None] * rates[None, :],
                times.unsqueeze(-1) * rates, times[:, None] * rates[None, :],
            ):  # fmt: skip
                torch.cat([angles.sin(), angles.cos()], dim=-1)
                torch.cat((angles.cos(), angles.sin()), dim=1)


def nodes(torch: ModuleType) -> None:
    """Pairs at the ends of edges, sums at nodes, and the nodes that have labels."""
    edges, labels = torch.randint(0, 5, (2, 9)), torch.zeros(5, dtype=torch.int64)
    labelled = torch.rand(5) < 0.9
    ones = torch.ones(edges.shape[1])
    for x in (torch.randn(5, 4), results(torch, 5, 4)):
        for source, target in (edges, (edges[0], edges[1]), edges.unbind(0)):
            degree = torch.zeros(x.shape[0]).scatter_add(0, target, ones)
            torch.zeros(5).scatter_add_(0, target, ones).clamp_(min=1)
            torch.zeros(5).index_add(0, target, ones)
            torch.bincount(target, minlength=5).clamp(min=1).float()
            pairs = torch.cat((x[source], x[target]), dim=1)
            torch.cat([x[source], x[target], x[source] - x[target]], dim=-1)
            messages = torch.relu(torch.nn.Linear(8, 4)(pairs))
            total = torch.zeros(x.shape[0], messages.shape[1]).index_add(0, target, messages)
            total = total + torch.zeros_like(x).index_add_(0, target, messages)
            mean = total / degree.clamp(min=1).unsqueeze(1)
            both = torch.cat((x, mean), dim=1) + torch.cat([mean, x], -1)
            for chosen in (labelled, labelled.nonzero().squeeze(1), slice(0, 3)):
                with suppress(Exception):
                    logits = both[chosen]
                    torch.nn.functional.cross_entropy(logits, labels[chosen]).backward(
                        retain_graph=True
                    )


def beginnings(torch: ModuleType) -> None:
    """Weights of tokens and places, and tensors of a model's size."""
    init, nn = torch.nn.init, torch.nn
    for sizes in ((1, 1, 8), (1, 5, 8), (5, 8), (64, 64), (1, 64, 64), (512, 64), (64, 32, 3, 3)):
        weight = nn.Parameter(torch.empty(sizes))
        for fill in (
            lambda w: init.normal_(w, std=0.02), lambda w: init.normal_(w, mean=0.0, std=0.02),
            lambda w: init.trunc_normal_(w, std=0.02), lambda w: init.uniform_(w, -0.1, 0.1),
            init.xavier_uniform_, lambda w: init.kaiming_normal_(w, nonlinearity="relu"),
            lambda w: init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu"),
            lambda w: w.data.normal_(0.0, 0.02), lambda w: w.data.zero_(),
        ):  # fmt: skip
            with suppress(Exception):
                fill(weight)
        nn.Parameter(torch.randn(sizes) * 0.02)
        nn.Parameter(torch.zeros(*sizes))
        for name in ("zeros", "ones", "rand", "randn"):
            made = getattr(torch, name)(*sizes, device=weight.device)
            getattr(torch, f"{name}_like")(made)
        torch.full(sizes, 0.5, device=weight.device)
        torch.randint(0, 10, sizes, device=weight.device)
        torch.zeros(sizes, dtype=torch.int64, device=weight.device)


def products(torch: ModuleType) -> None:
    """Of matrices and vectors, written in every usual way: of data, of weights, of both."""
    v, three = torch.randn(4), torch.randn(2, 3, 4)
    for left, right in product((False, True), repeat=2):
        a, b = torch.randn(4, 4, requires_grad=left), torch.randn(4, 4, requires_grad=right)
        for one in _products(torch, a, b, v, three):
            with suppress(Exception):
                value = one()
                if value.requires_grad:
                    value.sum().backward()
                    backward(one())


def _products(
    torch: ModuleType, a: Any, b: Any, v: Any, three: Any
) -> tuple[Callable[[], Any], ...]:
    linear = torch.nn.functional.linear
    return (
        lambda: a @ b, lambda: a.T @ b, lambda: a @ b.T, lambda: a.t() @ b, lambda: torch.mm(a, b),
        lambda: a @ v, lambda: v @ b, lambda: torch.mv(a, v), lambda: v @ v,
        lambda: torch.dot(v, v), lambda: torch.outer(v, v), lambda: a @ b + v,
        lambda: torch.addmm(v, a, b),
        lambda: torch.bmm(a[None], b[None]), lambda: three @ b, lambda: torch.bmm(three, three.mT),
        lambda: three @ three.transpose(-2, -1), lambda: linear(a, b), lambda: linear(a, b, v),
        lambda: linear(three, b, v),
    )  # fmt: skip


def fits(torch: ModuleType) -> None:
    """A line, a parabola and a matrix that are fitted by hand, as in first lessons."""
    x = torch.linspace(0, 1, 20)
    for shape, data in product(((), (1,)), (x, x[:, None], torch.randn(20, 1), torch.rand(20))):
        a, b, c = weights = [torch.randn(shape, requires_grad=True) for _ in range(3)]
        for predict in _predictions(a, b, c):
            for loss in _measures(predict, data):
                _descend(torch, loss, weights)
    matrix, offset = torch.randn(3, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
    wrong = (torch.randn(20, 3) @ matrix + offset) - torch.randn(20, 1)
    _descend(torch, (wrong**2).mean(), [matrix, offset])


def _predictions(a: Any, b: Any, c: Any) -> tuple[Callable[[Any], Any], ...]:
    """Lines and parabolas."""
    return (
        lambda x: a * x + b,
        lambda x: x * a + b,
        lambda x: a * x**2 + b * x + c,
        lambda x: a + b * x + c * x * x,
    )


def _measures(predict: Callable[[Any], Any], data: Any) -> Iterator[Any]:
    """Of what is off a line, in the usual ways."""
    yield ((predict(data) - (2 * data + 1)) ** 2).mean()
    yield (predict(data) - (2 * data + 1)).pow(2).mean()
    yield (predict(data) - (2 * data + 1)).pow(2).sum()
    yield (predict(data) - (2 * data + 1)).abs().mean()


def _descend(torch: ModuleType, loss: Any, weights: list[Any]) -> None:
    """A step of gradient descent, written in three ways."""
    loss.backward()
    with torch.no_grad():
        for weight in weights:
            if weight.grad is None:
                continue
            weight -= 0.1 * weight.grad  # noqa: PLW2901 - as programs do
            weight.sub_(0.1 * weight.grad)
            weight.data -= 0.1 * weight.grad.data
            weight.grad.zero_()


_LOOKED_AT: tuple[Callable[[Any], Any], ...] = (  # one by one, as in an interpreter
    lambda a: (a * a, a / a, a / 2, 2 / a, a * 2.5, a + 1.5, 1 - a, a - a, -a, a**3, a**0.5),
    lambda a: (a == a, a != a, a > a, a >= 0, a < 0.5, (a > 0) & (a < 1), (a > 0).sum()),
    lambda a: (a.argmax(0), a.argmax(-1), a.argmin(0), a.argmax(), a.argmin(), a.min(), a.median()),
    lambda a: (a.max(0), a.max(-1), a.min(0), a.min(-1), a.prod(), a.std(), a.std(0), a.var(0)),
    lambda a: (a.max(1), a.min(1), a.argmax(1), a.argmin(1), a.sum(1), a.mean(1), a.std(1)),
    lambda a: (a.softmax(1), a.log_softmax(1), a.cumsum(1), a.sort(1), a.norm(dim=1)),
    lambda a: (a.mean(0), a.mean(-1), a.mean(0, keepdim=True), a.sum(-1, keepdim=True)),
    lambda a: (a.softmax(0), a.softmax(-1), a.log_softmax(-1), a.logsumexp(-1), a.cumsum(0)),
    lambda a: (a.sort(), a.sort(-1, descending=True), a.argsort(), a.topk(2), a.unique()),
    lambda a: (a[0], a[-1], a[:, 1], a[..., 0], a[1:3], a[:, :2], a[0, 0], a[::2], a[:, None]),
    lambda a: (a[a > 0], a[[0, 1]], a[a.argsort(0)[:, 0]]),
    lambda a: (a.view(-1), a.reshape(-1), a.flatten(), a.reshape(2, a.numel() // 2), a.view(2, -1)),
    lambda a: (a.reshape(2, -1), a.view(-1, 2), a.unsqueeze(0), a.unsqueeze(1)),
    lambda a: (a.unsqueeze(-1), a.squeeze(), a.t(), a.T, a.transpose(0, 1), a.permute(1, 0)),
    lambda a: (a.t().contiguous(), a.expand(2, *a.shape).contiguous(), a.repeat(2, 2), a.flip(0)),
    lambda a: (a.clamp(0, 1), a.clamp(min=0), a.round(), a.floor(), a.ceil(), a.sign()),
    lambda a: (a.double(), a.int(), a.long(), a.to(a.dtype), a.bool(), a.half(), a.bfloat16()),
    lambda a: (a.isnan(), a.isnan().any(), a.isfinite().all(), a.isclose(a), a.allclose(a)),
    lambda a: (a.masked_fill(a > 0, 0.0), a.where(a > 0, a * 0), a.tril(), a.triu(), a.diag()),
    lambda a: (a.roll(1, 0), a.gather(1, a.argsort(1)), a.scatter(1, a.argsort(1), a)),
    lambda a: (a.norm(), a.norm(dim=-1), a.square().sum().sqrt(), a.new_zeros(2), a.clone()),
)


def _layers(torch: ModuleType, a: Any) -> tuple[Callable[[], Any], ...]:
    """Of images, and of rows."""
    F = torch.nn.functional  # noqa: N806 - as programs call it
    images, weight = torch.rand(2, 3, 8, 8), torch.rand(4, 3, 3, 3)
    return (
        lambda: F.conv2d(images, weight), lambda: F.adaptive_avg_pool2d(images, 1),
        lambda: F.conv2d(images, weight, padding=1), lambda: F.relu(images),
        lambda: F.max_pool2d(images, 2), lambda: F.avg_pool2d(images, 2),
        lambda: F.interpolate(images, scale_factor=2),
        lambda: F.interpolate(images, scale_factor=2, mode="bilinear"), lambda: images.mean((2, 3)),
        lambda: F.pad(images, (1, 1, 1, 1)), lambda: images.permute(0, 2, 3, 1).contiguous(),
        lambda: F.rms_norm(a, a.shape[-1:]), lambda: F.layer_norm(a, a.shape[-1:]),
        lambda: F.normalize(a, dim=-1),
        lambda: F.cosine_similarity(a, a), lambda: F.pairwise_distance(a, a),
        lambda: torch.cdist(a, a), lambda: F.softmax(a, dim=1), lambda: F.relu(a),
    )  # fmt: skip


def looks(torch: ModuleType) -> None:
    """What is typed first: one operator at a time on a small matrix, and on integers."""
    F = torch.nn.functional  # noqa: N806 - as programs call it
    for sizes in ((4, 4), (3, 8)):
        a = torch.rand(sizes)
        for look in _LOOKED_AT:
            with suppress(Exception):
                look(a)
                repr(a)
        for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool):
            a.to(dtype).to(torch.float32)
    with suppress(Exception):
        numbers = torch.arange(4)
        (numbers + 1, numbers * 2, numbers % 2, numbers // 2, numbers == 2, numbers.float(),
         numbers.sum(), numbers.max(), F.one_hot(numbers), F.one_hot(numbers, 5))  # fmt: skip
        torch.cat([a, a]), torch.cat([a, a], dim=1), torch.stack([a, a]), torch.cat((a[0], a[1]))
        torch.where(a > 0.5, a, -a), torch.tensor([1.0, 2.0]) + 1, torch.einsum("ij,ij->i", a, a)
    for layer in _layers(torch, a):
        with suppress(Exception):
            layer()
    for width in HEADS:
        query = torch.rand(1, 2, 5, width)
        with suppress(Exception):
            F.scaled_dot_product_attention(query, query, query)
            F.scaled_dot_product_attention(query, query, query, is_causal=True)


STEPS: dict[str, Callable[[ModuleType], None]] = {
    "idiom: convolutions": convolutions,
    "idiom: one channel": one_channel,
    "idiom: in place": in_place,
    "idiom: points": points,
    "idiom: groups of channels": groups_of_channels,
    "idiom: tokens": tokens,
    "idiom: masks": masks,
    "idiom: heads": heads,
    "idiom: equations": equations,
    "idiom: noise": noise,
    "idiom: nodes": nodes,
    "idiom: beginnings": beginnings,
    "idiom: products": products,
    "idiom: fits": fits,
    "idiom: looks": looks,
}
