"""Layers and small models of the usual families, trained for a step: classes of calls that single
operators on their samples do not meet, because they depend on how layers are put together.

Sizes do not matter, since a plan serves all of them: what matters are dtypes, layouts, who requires
a gradient, and which dimensions have one element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

Step = Callable[[ModuleType], None]
HEADS = (16, 32, 64)  # widths of attention heads: a plan serves one


def train(torch: ModuleType, model: Any, loss: Callable[[], Any]) -> None:
    """Two steps with each of the usual optimizers; then the loss without gradients."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    optim = torch.optim
    makers: tuple[Callable[[], Any], ...] = (
        lambda: optim.SGD(parameters, lr=0.1),
        lambda: optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4),
        lambda: optim.Adam(parameters),
        lambda: optim.AdamW(parameters),
        lambda: optim.Adagrad(parameters),
        lambda: optim.RMSprop(parameters),
    )
    for make in makers:
        with suppress(Exception):
            optimizer = make()
            for _ in range(2):  # the second step meets the state that the first one made
                optimizer.zero_grad()
                value = loss()
                value.backward()
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()
                value.item()
    with suppress(Exception), torch.no_grad():
        model.eval()
        loss().item()


# ------------------------------------------------------------------------------- layers


def _layers(torch: ModuleType) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Layers, and sizes of what they take, without the batch."""
    nn = torch.nn
    for bias in (True, False):
        yield nn.Linear(6, 4, bias=bias), (6,)
        yield nn.Linear(6, 4, bias=bias), (5, 6)
        yield nn.Linear(6, 4, bias=bias), (3, 5, 6)
        for size, stride, padding in ((1, 1, 0), (3, 1, 1), (3, 2, 1), (5, 1, 2), (2, 2, 0)):
            options = {"stride": stride, "padding": padding, "bias": bias}
            yield nn.Conv2d(4, 6, size, **options), (4, 8, 8)
            yield nn.Conv1d(4, 6, size, **options), (4, 8)
        yield nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=bias), (4, 8, 8)
        yield nn.Conv2d(4, 4, 3, padding=1, stride=2, groups=4, bias=bias), (4, 8, 8)
        yield nn.Conv2d(4, 4, 5, padding=2, groups=4, bias=bias), (4, 8, 8)
        yield nn.Conv2d(4, 8, 3, padding=2, dilation=2, bias=bias), (4, 8, 8)
        yield nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=bias), (3, 16, 16)
        yield nn.Conv2d(3, 8, 4, stride=4, bias=bias), (3, 16, 16)
        yield nn.Conv2d(1, 6, 5, bias=bias), (1, 16, 16)
        yield nn.Conv2d(1, 6, 3, padding=1, bias=bias), (1, 16, 16)
        for size, stride in ((1, 1), (1, 2), (3, 1), (3, 2)):  # products of 32 columns and more
            options = {"stride": stride, "padding": size // 2, "bias": bias}
            yield nn.Conv2d(16, 32, size, **options), (16, 8, 8)
        yield nn.Conv2d(3, 32, 7, stride=2, padding=3, bias=bias), (3, 16, 16)
        yield nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=bias), (3, 16, 16)
        yield nn.Conv2d(3, 32, 3, padding=1, bias=bias), (3, 16, 16)
        yield nn.Conv2d(3, 32, 4, stride=4, bias=bias), (3, 16, 16)
        yield nn.Conv2d(32, 32, 3, padding=1, groups=32, bias=bias), (32, 8, 8)
        yield nn.Conv2d(32, 32, 3, padding=1, stride=2, groups=32, bias=bias), (32, 8, 8)
        yield nn.ConvTranspose2d(32, 32, 2, stride=2, bias=bias), (32, 8, 8)
        yield nn.ConvTranspose2d(4, 6, 2, stride=2, bias=bias), (4, 8, 8)
        yield nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1, bias=bias), (4, 8, 8)
        yield nn.Conv3d(2, 4, 3, padding=1, bias=bias), (2, 4, 6, 6)
    yield from _norms_and_pools(nn)
    yield from ((layer, sizes) for layer in _activations(nn) for sizes in ((6,), (5, 6), (4, 8, 8)))
    yield nn.Flatten(), (4, 8, 8)
    yield nn.Flatten(), (4, 1, 1)
    yield nn.Upsample(scale_factor=2), (4, 8, 8)
    for align in (True, False):
        yield nn.Upsample(scale_factor=2, mode="bilinear", align_corners=align), (4, 8, 8)
    yield nn.Softmax(-1), (5, 6)
    yield nn.LogSoftmax(-1), (6,)
    yield nn.Softmax(-1), (2, 5, 6)
    yield nn.ZeroPad2d(1), (4, 8, 8)
    yield nn.ReflectionPad2d(1), (4, 8, 8)
    yield nn.PixelShuffle(2), (4, 8, 8)


def _norms_and_pools(nn: Any) -> Iterator[tuple[Any, tuple[int, ...]]]:
    yield nn.BatchNorm1d(6), (6,)
    yield nn.BatchNorm1d(4), (4, 8)
    yield nn.BatchNorm2d(4), (4, 8, 8)
    yield nn.GroupNorm(2, 4), (4, 8, 8)
    yield nn.GroupNorm(2, 4), (4, 8)
    yield nn.InstanceNorm2d(4), (4, 8, 8)
    yield nn.InstanceNorm2d(4, affine=True), (4, 8, 8)
    for sizes in ((6,), (5, 6), (3, 5, 6)):
        yield nn.LayerNorm(6), sizes
        yield nn.LayerNorm(6, elementwise_affine=False), sizes
        yield nn.RMSNorm(6), sizes
    for size, stride, padding in ((2, 2, 0), (3, 2, 1), (3, 1, 1)):
        yield nn.MaxPool2d(size, stride, padding), (4, 8, 8)
        yield nn.AvgPool2d(size, stride, padding), (4, 8, 8)
        yield nn.MaxPool1d(size, stride, padding), (4, 8)
        yield nn.AvgPool1d(size, stride, padding), (4, 8)
    for out in (1, 2):
        yield nn.AdaptiveAvgPool2d(out), (4, 8, 8)
        yield nn.AdaptiveMaxPool2d(out), (4, 8, 8)
        yield nn.AdaptiveAvgPool1d(out), (4, 8)


def _activations(nn: Any) -> list[Any]:
    plain = (
        nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.Mish, nn.ELU, nn.SELU, nn.LeakyReLU, nn.Sigmoid,
        nn.Tanh, nn.Hardswish, nn.Hardsigmoid, nn.Softplus, nn.LogSigmoid, nn.PReLU, nn.CELU,
        nn.Softsign, nn.Hardtanh, nn.Dropout,
    )  # fmt: skip
    extra = [nn.ReLU(inplace=True), nn.GELU(approximate="tanh"), nn.Dropout2d(), nn.Identity()]
    return [*(layer() for layer in plain), *extra]


def layers(torch: ModuleType, batch: int, grad: bool) -> None:
    """Each layer alone, of data, or of another layer's results, which require gradients."""
    for layer, sizes in _layers(torch):
        with suppress(Exception):
            x = torch.randn(batch, *sizes, requires_grad=grad)
            y = layer(x * 1.0 if grad else x)
            if y.requires_grad:
                y.sum().backward(retain_graph=True)
                (y * y).mean().backward()
            with torch.no_grad():
                layer.eval()(x)


def losses(torch: ModuleType) -> None:
    """The usual losses on predictions of one and of several samples."""
    nn = torch.nn
    for batch in (1, 4):
        x = torch.randn(batch, 5, requires_grad=True)
        y, labels = torch.rand(batch, 5), torch.zeros(batch, dtype=torch.int64)
        for criterion in (
            nn.MSELoss(), nn.L1Loss(), nn.SmoothL1Loss(), nn.HuberLoss(), nn.BCEWithLogitsLoss(),
            nn.KLDivLoss(reduction="batchmean"), nn.MSELoss(reduction="sum"),
            nn.MSELoss(reduction="none"),
        ):  # fmt: skip
            with suppress(Exception):
                criterion(x * 1.0, y).mean().backward()
        with suppress(Exception):
            nn.BCELoss()(x.sigmoid(), y).backward()
        for options in ({}, {"label_smoothing": 0.1}, {"ignore_index": -100}, {"reduction": "sum"}):
            with suppress(Exception):
                nn.CrossEntropyLoss(**options)(x * 1.0, labels).backward()
        for shape in ((batch, 5, 3), (batch, 5, 3, 3)):  # of sequences, of pixels
            with suppress(Exception):
                z = torch.randn(shape, requires_grad=True)
                target = torch.zeros((shape[0], *shape[2:]), dtype=torch.int64)
                nn.CrossEntropyLoss()(z * 1.0, target).backward()
        with suppress(Exception):
            nn.NLLLoss()((x * 1.0).log_softmax(-1), labels).backward()
        with suppress(Exception):
            flat = torch.randn(batch, 3, 5, requires_grad=True)
            nn.functional.cross_entropy((flat * 1.0).flatten(0, 1), labels.repeat(3)).backward()


def factories(torch: ModuleType) -> None:
    """Tensors made from nothing, of up to four dimensions, some of one element."""
    names = ("zeros", "ones", "rand", "randn", "empty")
    for sizes in (
        (3,),
        (3, 4),
        (2, 3, 4),
        (2, 3, 4, 5),
        (1,),
        (1, 3),
        (3, 1),
        (1, 3, 4),
        (1, 1, 4),
    ):
        for name in names:
            made = getattr(torch, name)(*sizes)
            for like in ("zeros_like", "ones_like", "rand_like", "randn_like"):
                getattr(torch, like)(made)
        torch.full(sizes, 2.0)
        for low in ((), (1,)):
            torch.randint(*low, 10, sizes)
        torch.zeros(sizes, dtype=torch.int64)
        torch.zeros(sizes, dtype=torch.bool)
    torch.arange(5)
    torch.arange(1, 5)
    torch.arange(0, 6, 2)
    torch.arange(5, dtype=torch.float32)
    torch.linspace(0.0, 1.0, 5)
    torch.eye(3)
    torch.tril(torch.ones(4, 4))
    torch.triu(torch.ones(4, 4), diagonal=1).bool()
    torch.triu(torch.full((4, 4), float("-inf")), diagonal=1)
    torch.randperm(5)
    torch.tensor([1.0, 2.0]).mean().item()


def initializers(torch: ModuleType) -> None:
    """The ways to begin weights of one, two and four dimensions."""
    init = torch.nn.init
    for sizes in ((6,), (4, 6), (4, 3, 3, 3), (4, 3, 1, 1), (4, 1, 3, 3)):
        weight = torch.nn.Parameter(torch.empty(sizes))
        for fill in (
            init.zeros_, init.ones_, init.normal_, init.uniform_, init.trunc_normal_,
            init.xavier_uniform_, init.xavier_normal_, init.kaiming_uniform_, init.kaiming_normal_,
            init.orthogonal_, lambda w: init.constant_(w, 0.5), lambda w: w.data.mul_(0.5),
        ):  # fmt: skip
            with suppress(Exception):
                fill(weight)


# ------------------------------------------------------------------------------- sequences


def recurrent(torch: ModuleType) -> None:
    """LSTM, GRU and RNN over embedded tokens, layer and direction by number."""
    nn = torch.nn
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        for options in ({}, {"num_layers": 2}, {"bidirectional": True}, {"batch_first": False}):
            options = {"batch_first": True} | options
            net = kind(6, 8, **options)
            width = 16 if options.get("bidirectional") else 8
            model = nn.ModuleList([nn.Embedding(11, 6), net, nn.Linear(width, 11)])
            for batch in (1, 3):
                tokens = torch.randint(0, 11, (batch, 5))

                def loss(model: Any = model, tokens: Any = tokens) -> Any:
                    out, _ = model[1](model[0](tokens))
                    logits = model[2](out)
                    every = nn.functional.cross_entropy(logits.reshape(-1, 11), tokens.view(-1))
                    return every + nn.functional.cross_entropy(model[2](out[:, -1]), tokens[:, 0])

                train(torch, model, loss)


def attention_layers(torch: ModuleType) -> None:
    """torch.nn's encoder and decoder layers, batch first or not, norms before or after."""
    nn = torch.nn
    for first in (True, False):
        for before in (True, False):
            for activation in ("relu", "gelu"):
                options = {
                    "batch_first": first, "norm_first": before, "activation": activation,
                    "dropout": 0.1 if before else 0.0,
                }  # fmt: skip
                for width in HEADS:
                    with suppress(Exception):
                        _encoder(
                            torch,
                            nn.TransformerEncoderLayer(2 * width, 2, 16, **options),
                            2 * width,
                        )
                with suppress(Exception):
                    _decoder(torch, nn.TransformerDecoderLayer(8, 2, 16, **options))


def _encoder(torch: ModuleType, layer: Any, width: int) -> None:
    nn = torch.nn
    model = nn.ModuleList(
        [nn.Embedding(11, width), nn.TransformerEncoder(layer, 2), nn.Linear(width, 11)]
    )
    tokens = torch.randint(0, 11, (3, 5))
    padding = tokens == 0
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    for masks in ({}, {"src_key_padding_mask": padding}, {"mask": causal, "is_causal": True}):

        def pooled(masks: Any = masks) -> Any:
            y = model[1](model[0](tokens), **masks)
            return nn.functional.cross_entropy(model[2](y.mean(1)), tokens[:, 0])

        def first(masks: Any = masks) -> Any:
            y = model[1](model[0](tokens) + model[0].weight[:5], **masks)
            return nn.functional.cross_entropy(model[2](y[:, 0]), tokens[:, 0])

        def every(masks: Any = masks) -> Any:
            y = model[2](model[1](model[0](tokens) * math.sqrt(8), **masks))
            return nn.functional.cross_entropy(y.view(-1, 11), tokens.view(-1))

        for loss in (pooled, first, every):
            with suppress(Exception):
                loss().backward()
    train(torch, model, pooled)


def _decoder(torch: ModuleType, layer: Any) -> None:
    nn = torch.nn
    model = nn.ModuleList([nn.Embedding(11, 8), layer, nn.Linear(8, 11)])
    tokens = torch.randint(0, 11, (3, 5))

    def loss() -> Any:
        x = model[0](tokens)
        y = model[2](model[1](x, x))
        return nn.functional.cross_entropy(y.flatten(0, 1), tokens.flatten())

    train(torch, model, loss)


def causal_models(torch: ModuleType) -> None:
    """GPT and Llama, as they are usually written, with batches of one and of several."""
    for batch in (1, 2):
        for fused in (True, False):
            for bias in (True, False):
                with suppress(Exception):
                    _gpt(torch, torch.randint(0, 11, (batch, 6)), fused, bias)
        for grouped in (True, False):
            with suppress(Exception):
                _llama(torch, torch.randint(0, 11, (batch, 6)), grouped)


def _heads(torch: ModuleType, q: Any, k: Any, v: Any, fused: bool) -> Any:
    """Causal attention by the fused operator, or as products around a softmax."""
    if fused:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    length = q.size(-2)
    scores = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(q.size(-1)))
    mask = torch.tril(torch.ones(length, length)).view(1, 1, length, length)
    return torch.softmax(scores.masked_fill(mask[:, :, :length, :length] == 0, -math.inf), -1) @ v


def attention(torch: ModuleType) -> None:
    """The operator alone, for heads of the usual widths, in the layouts that layers give it."""
    fused = torch.nn.functional.scaled_dot_product_attention
    for width in HEADS:
        for batch in (1, 3):
            mixed = torch.randn(batch, 6, 6 * width, requires_grad=True)
            apart = [torch.randn(batch, 6, 2 * width, requires_grad=True) for _ in range(3)]
            floats = torch.zeros(batch, 1, 6, 6)
            masks = ({"attn_mask": floats}, {"attn_mask": floats > 0})
            for parts in (mixed.split(2 * width, dim=-1), [x * 1.0 for x in apart]):
                q, k, v = (x.view(batch, 6, 2, width).transpose(1, 2) for x in parts)
                for options in ({}, {"is_causal": True}, {"dropout_p": 0.1}, *masks):
                    with suppress(Exception):
                        y = fused(q, k, v, **options).transpose(1, 2)
                        y = y.reshape(batch, 6, 2 * width) * 1.0
                        y.sum().backward(retain_graph=True)
                    with suppress(Exception):
                        y = fused(q.contiguous(), k.contiguous(), v, **options)
                        (y.transpose(1, 2).flatten(2) * 1.0).sum().backward(retain_graph=True)
                    with suppress(Exception), torch.no_grad():
                        fused(q, k, v, **options)


def _gpt(torch: ModuleType, tokens: Any, fused: bool, bias: bool) -> None:
    nn = torch.nn
    model = nn.ModuleDict(
        {
            "tokens": nn.Embedding(11, 8), "places": nn.Embedding(6, 8), "drop": nn.Dropout(0.1),
            "before": nn.LayerNorm(8, bias=bias), "mix": nn.Linear(8, 24, bias=bias),
            "out": nn.Linear(8, 8, bias=bias), "after": nn.LayerNorm(8, bias=bias),
            "feed": nn.Sequential(
                nn.Linear(8, 32, bias=bias), nn.GELU(), nn.Linear(32, 8, bias=bias), nn.Dropout(0.1)
            ),
            "norm": nn.LayerNorm(8, bias=bias), "head": nn.Linear(8, 11, bias=False),
        }
    )  # fmt: skip
    batch, length = tokens.shape

    def loss(tied: bool = False, chunked: bool = False) -> Any:
        x = model["drop"](model["tokens"](tokens) + model["places"](torch.arange(length)))
        mixed = model["mix"](model["before"](x))
        parts = mixed.chunk(3, dim=-1) if chunked else mixed.split(8, dim=2)
        q, k, v = (part.view(batch, length, 2, 4).transpose(1, 2) for part in parts)
        y = _heads(torch, q, k, v, fused).transpose(1, 2)
        y = y.reshape(batch, length, 8) if chunked else y.contiguous().view(batch, length, 8)
        x = x + model["drop"](model["out"](y))
        x = model["norm"](x + model["feed"](model["after"](x)))
        logits = x @ model["tokens"].weight.t() if tied else model["head"](x)
        if chunked:
            logits, targets = logits[:, :-1].reshape(-1, 11), tokens[:, 1:].reshape(-1)
        else:
            logits, targets = logits.view(-1, 11), tokens.view(-1)
        return nn.functional.cross_entropy(logits, targets)

    for tied in (True, False):
        for chunked in (True, False):
            with suppress(Exception):
                loss(tied, chunked).backward()
    train(torch, model, loss)


def _llama(torch: ModuleType, tokens: Any, grouped: bool) -> None:
    nn = torch.nn
    shared = 1 if grouped else 2  # heads of keys and values
    linear = {
        "q": (8, 8), "k": (8, 4 * shared), "v": (8, 4 * shared), "o": (8, 8),
        "gate": (8, 16), "up": (8, 16), "down": (16, 8), "head": (8, 11),
    }  # fmt: skip
    model = nn.ModuleDict({name: nn.Linear(*sizes, bias=False) for name, sizes in linear.items()})
    model["tokens"], model["norm"], model["own"] = (
        nn.Embedding(11, 8),
        nn.RMSNorm(8),
        nn.Linear(8, 8),
    )
    gain = nn.Parameter(torch.ones(8))
    batch, length = tokens.shape
    rates = 1.0 / (10000 ** (torch.arange(0, 4, 2).float() / 4))
    angles = torch.outer(torch.arange(length).float(), rates)
    cosine, sine = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
    turns = torch.polar(torch.ones_like(angles), angles)

    def root_norm(x: Any) -> Any:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * gain

    def turned(x: Any) -> Any:
        low, high = x.chunk(2, dim=-1)
        return x * cosine + torch.cat([-high, low], -1) * sine

    def half(x: Any) -> Any:
        low, high = x[..., :2], x[..., 2:]
        return x * cosine[None, None] + torch.cat((-high, low), dim=-1) * sine[None, None]

    def by_complex(x: Any) -> Any:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(3).type_as(x)

    def loss(norm: Any = root_norm, turn: Any = turned, fused: bool = True) -> Any:
        x = model["tokens"](tokens)
        y = norm(x)
        q, k, v = (
            model[name](y).view(batch, length, -1, 4).transpose(1, 2) for name in ("q", "k", "v")
        )
        q, k = turn(q), turn(k)
        if grouped:
            k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, 1)
        y = _heads(torch, q, k, v, fused).transpose(1, 2).contiguous().view(batch, length, -1)
        x = x + model["o"](y)
        y = norm(x)
        x = x + model["down"](nn.functional.silu(model["gate"](y)) * model["up"](y))
        logits = model["head"](norm(x))
        return nn.functional.cross_entropy(logits.view(-1, 11), tokens.view(-1))

    for norm in (root_norm, model["norm"]):
        for turn in (turned, half, by_complex):
            for fused in (True, False):
                with suppress(Exception):
                    loss(norm, turn, fused).backward()
    train(torch, model, loss)


# ------------------------------------------------------------------------------- images


def images(torch: ModuleType) -> None:
    """Residual, separable and dense blocks, patches, and networks that restore what they halve."""
    for batch in (1, 2):
        x = torch.randn(batch, 3, 16, 16)
        labels = torch.zeros(batch, dtype=torch.int64)
        for make in (_residual, _separable, _plain_net, _patches):
            with suppress(Exception):
                model, function = make(torch)
                loss = torch.nn.functional.cross_entropy
                train(torch, model, partial(_loss_of, loss, function, x, labels))
        for norm in (torch.nn.BatchNorm2d, lambda n: torch.nn.GroupNorm(2, n)):
            for transposed in (True, False):
                with suppress(Exception):
                    model, function = _restoring(torch, norm, transposed)
                    loss = torch.nn.functional.mse_loss
                    train(torch, model, partial(_loss_of, loss, function, x, x))


def _loss_of(loss: Any, function: Callable[[Any], Any], x: Any, target: Any) -> Any:
    return loss(function(x), target)


def _residual(torch: ModuleType) -> tuple[Any, Callable[[Any], Any]]:
    nn, relu = torch.nn, torch.nn.functional.relu
    options = {"padding": 1, "bias": False}
    model = nn.ModuleList(
        [
            nn.Sequential(nn.Conv2d(3, 4, 3, **options), nn.BatchNorm2d(4), nn.ReLU(inplace=True)),
            nn.Sequential(
                nn.Conv2d(4, 8, 3, stride=2, **options), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
                nn.Conv2d(8, 8, 3, **options), nn.BatchNorm2d(8),
            ),
            nn.Sequential(nn.Conv2d(4, 8, 1, stride=2, bias=False), nn.BatchNorm2d(8)),
            nn.Sequential(nn.Conv2d(8, 8, 3, **options), nn.BatchNorm2d(8)),
            nn.MaxPool2d(3, 2, 1), nn.Linear(8, 10),
        ]
    )  # fmt: skip

    def function(x: Any) -> Any:
        x = model[0](x)
        x = relu(model[1](x) + model[2](x))
        y = model[3](x)
        y += x
        x = model[4](relu(y, inplace=True))
        pooled = nn.functional.adaptive_avg_pool2d(x, 1)
        return model[5](torch.flatten(pooled, 1)) + model[5](x.mean((2, 3)))

    return model, function


def _separable(torch: ModuleType) -> tuple[Any, Callable[[Any], Any]]:
    nn = torch.nn
    wide = nn.Sequential(
        nn.Conv2d(3, 8, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8), nn.Hardswish(),
    )  # fmt: skip
    squeeze = nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 8, 1), nn.Hardsigmoid()
    )
    narrow = nn.Sequential(nn.Conv2d(8, 3, 1, bias=False), nn.BatchNorm2d(3))
    head = nn.Sequential(nn.Linear(3, 8), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(8, 10))
    model = nn.ModuleList([wide, squeeze, narrow, head])

    def function(x: Any) -> Any:
        y = wide(x)
        x = x + narrow(y * squeeze(y))
        return head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))

    return model, function


def _plain_net(torch: ModuleType) -> tuple[Any, Callable[[Any], Any]]:
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3), nn.Tanh(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(32, 12), nn.ReLU(), nn.Dropout(),
        nn.Linear(12, 10),
    )  # fmt: skip
    return model, model


def _patches(torch: ModuleType) -> tuple[Any, Callable[[Any], Any]]:
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    model = nn.ModuleList(
        [nn.Conv2d(3, 8, 4, stride=4), nn.TransformerEncoder(layer, 1), nn.LayerNorm(8),
         nn.Linear(8, 10), nn.ParameterList([torch.zeros(1, 1, 8), torch.randn(1, 17, 8)])]
    )  # fmt: skip

    def function(x: Any) -> Any:
        patches = model[0](x).flatten(2).transpose(1, 2)
        token, places = model[4]
        x = torch.cat([token.expand(x.shape[0], -1, -1), patches], dim=1) + places
        x = model[1](x)
        return model[3](model[2](x)[:, 0]) + model[3](model[2](x[:, 0])) + model[3](x.mean(dim=1))

    return model, function


def _restoring(torch: ModuleType, norm: Any, transposed: bool) -> tuple[Any, Callable[[Any], Any]]:
    """A U-Net that also takes a time, with attention at the bottom."""
    nn, functional = torch.nn, torch.nn.functional

    def block(narrow: int, wide: int) -> Any:
        act = nn.ReLU(inplace=True) if transposed else nn.SiLU()
        return nn.Sequential(nn.Conv2d(narrow, wide, 3, padding=1), norm(wide), act)

    model = nn.ModuleDict(
        {
            "first": block(3, 4), "down": nn.Conv2d(4, 4, 3, stride=2, padding=1),
            "second": block(4, 8), "up": nn.ConvTranspose2d(8, 4, 2, stride=2), "last": block(8, 4),
            "narrow": block(8, 4), "out": nn.Conv2d(4, 3, 1), "norm": nn.GroupNorm(2, 8),
            "time": nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Linear(16, 8)),
            "mix": nn.Conv2d(8, 24, 1), "mixed": nn.Conv2d(8, 8, 1),
        }
    )  # fmt: skip

    def embedded(batch: int) -> Any:
        times = torch.randint(0, 10, (batch,)).float()
        rates = torch.exp(-math.log(10000.0) * torch.arange(3) / 3)
        angles = times[:, None] * rates[None, :]
        return model["time"](torch.cat([angles.sin(), angles.cos()], dim=-1))

    def attended(x: Any) -> Any:
        batch, channels, height, width = x.shape
        q, k, v = model["mix"](model["norm"](x)).chunk(3, dim=1)
        q, k, v = (part.reshape(batch, channels, -1).transpose(1, 2) for part in (q, k, v))
        y = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(channels), dim=-1) @ v
        q, k, v = (part.unsqueeze(1) for part in (q, k, v))
        y = y + functional.scaled_dot_product_attention(q, k, v).squeeze(1)
        return x + model["mixed"](y.transpose(1, 2).reshape(batch, channels, height, width))

    def function(x: Any) -> Any:
        skip = model["first"](x)
        lower = functional.max_pool2d(skip, 2) if transposed else model["down"](skip)
        lower = model["second"](lower)
        lower = attended(lower + embedded(x.shape[0])[:, :, None, None])
        if transposed:
            upper = model["last"](torch.cat([model["up"](lower), skip], dim=1))
        else:
            upper = functional.interpolate(model["narrow"](lower), scale_factor=2, mode="nearest")
            upper = model["last"](torch.cat((skip, upper), 1))
        return model["out"](upper)

    return model, function


# ------------------------------------------------------------------------------- graphs, vectors


def graphs(torch: ModuleType) -> None:
    """Messages along edges, summed or averaged at nodes in the usual ways."""
    nn = torch.nn
    x, labels = torch.randn(5, 4), torch.zeros(5, dtype=torch.int64)
    edges = torch.randint(0, 5, (2, 9))
    model = nn.ModuleList([nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(12, 6), nn.Linear(6, 3)])

    def added(x: Any, source: Any, target: Any) -> Any:
        return torch.zeros(5, x.shape[1]).index_add(0, target, x[source])

    def in_place(x: Any, source: Any, target: Any) -> Any:
        return torch.zeros_like(x).index_add_(0, target, x.index_select(0, source))

    def scattered(x: Any, source: Any, target: Any) -> Any:
        places = target.unsqueeze(-1).expand(-1, x.size(-1))
        return torch.zeros_like(x).scatter_add_(0, places, x[source])

    def averaged(x: Any, source: Any, target: Any) -> Any:
        degree = torch.zeros(5).index_add_(0, target, torch.ones(9)).clamp(min=1)
        weight = degree.pow(-0.5)
        message = x[source] * (weight[source] * weight[target]).unsqueeze(1)
        return torch.zeros_like(x).index_add(0, target, message) / degree.unsqueeze(-1)

    for aggregate in (added, in_place, scattered, averaged):

        def loss(aggregate: Any = aggregate) -> Any:
            y = torch.relu(aggregate(model[0](x), edges[0], edges[1]))
            y = torch.relu(model[1](aggregate(y, edges[0], edges[1])))
            y = model[2](torch.cat([y, aggregate(y, edges[0], edges[1])], dim=-1))
            pooled = torch.zeros(2, 6).index_add(0, torch.tensor([0, 0, 1, 1, 1]), y)
            node, whole = model[3](y), model[3](y.mean(0, keepdim=True)) + model[3](pooled)
            cross = nn.functional.cross_entropy
            return cross(node, labels) + cross(node[:3], labels[:3]) + whole.mean()

        train(torch, model, loss)


def vectors(torch: ModuleType) -> None:
    """Auto-encoders, pairs by contrast, gates, and what losses are written with by hand."""
    nn, functional = torch.nn, torch.nn.functional
    model = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(2, 6), nn.Bilinear(6, 6, 3)])
    for batch in (1, 4):
        x = torch.rand(batch, 6)

        def variational(x: Any = x) -> Any:
            mean, spread = model[1](torch.relu(model[0](x))).chunk(2, dim=-1)
            z = mean + torch.randn_like(spread) * torch.exp(0.5 * spread)
            again = torch.sigmoid(model[2](z))
            kl = -0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())
            return functional.binary_cross_entropy(again, x, reduction="sum") + kl

        def contrast(x: Any = x) -> Any:
            left, right = (functional.normalize(model[0](y), dim=-1) for y in (x, x.flip(0)))
            scores = left @ right.T / 0.1
            labels = torch.arange(len(x))
            cross = functional.cross_entropy
            return (cross(scores, labels) + cross(scores.t(), labels)) / 2

        def by_hand(x: Any = x) -> Any:
            y = model[0](x)
            gate, value = y.chunk(2, -1)
            y = torch.sigmoid(gate) * torch.tanh(value)
            error = ((y - y.mean(0)) ** 2).mean() + (y.abs() + 1e-6).sqrt().sum() / y.numel()
            weights = torch.softmax(y, dim=1)
            entropy = -(weights * weights.clamp_min(1e-9).log()).sum(-1).mean()
            return error + entropy + y.norm() + y.var() + y.max() + (y > 0).float().mean()

        def pairs(x: Any = x) -> Any:
            return model[3](x, x).pow(2).mean() + functional.cosine_similarity(x, x).mean()

        for loss in (variational, contrast, by_hand, pairs):
            train(torch, model, loss)


STEPS: dict[str, Step] = {
    "step: layers": lambda torch: layers(torch, 3, grad=False),
    "step: layers of layers": lambda torch: layers(torch, 3, grad=True),
    "step: layers of one sample": lambda torch: layers(torch, 1, grad=False),
    "step: losses": losses,
    "step: factories": factories,
    "step: initializers": initializers,
    "step: recurrent": recurrent,
    "step: attention layers": attention_layers,
    "step: attention": attention,
    "step: causal models": causal_models,
    "step: images": images,
    "step: graphs": graphs,
    "step: vectors": vectors,
}
