"""One layer or block at a time: values, gradients, state."""

from __future__ import annotations

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.differential.show import describe, numbers, raised


def _run(layer, *shape):
    torch.manual_seed(1)
    x = torch.randn(*shape, requires_grad=True)
    y = layer(x)
    y.pow(2).mean().backward()
    print(layer, describe(y), numbers(y.mean()), numbers(x.grad.norm()))
    print({k: numbers(p.grad.norm()) for k, p in layer.named_parameters()})


def linear_layers() -> None:
    for layer in (
        nn.Linear(3, 2),
        nn.Linear(3, 2, bias=False),
        nn.Linear(3, 2, dtype=torch.float64).float(),
        nn.Identity(),
    ):
        _run(layer, 4, 3)
        _run(layer, 2, 4, 3)
        _run(layer, 3)


def convolutions_1d() -> None:
    for layer in (
        nn.Conv1d(2, 4, 3, dilation=2),
        nn.Conv1d(2, 2, 3, groups=2, padding=1),
        nn.ConvTranspose1d(2, 3, 4, stride=2, padding=1),
    ):
        _run(layer, 2, 2, 8)


def convolutions_3d() -> None:
    _run(nn.Conv3d(1, 2, 2), 1, 1, 3, 4, 4)
    _run(nn.ConvTranspose3d(1, 1, 2, stride=2), 1, 1, 2, 2, 2)
    _run(nn.MaxPool3d(2), 1, 1, 4, 4, 4)


def depthwise_separable() -> None:
    _run(
        nn.Sequential(
            nn.Conv2d(4, 4, 3, padding=1, groups=4),
            nn.BatchNorm2d(4),
            nn.ReLU6(),
            nn.Conv2d(4, 8, 1),
        ),
        2,
        4,
        5,
        5,
    )


def residual_block() -> None:
    class Block(nn.Module):
        def __init__(self, c, stride=1):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(c, c, 3, stride, 1, bias=False),
                nn.BatchNorm2d(c),
                nn.ReLU(True),
                nn.Conv2d(c, c, 3, 1, 1, bias=False),
                nn.BatchNorm2d(c),
            )
            self.down = nn.Sequential(nn.Conv2d(c, c, 1, stride)) if stride > 1 else None

        def forward(self, x):
            skip = x if self.down is None else self.down(x)
            return F.relu(self.body(x) + skip, inplace=True)

    _run(nn.Sequential(Block(2), Block(2, 2)), 2, 2, 6, 6)


def squeeze_excitation() -> None:
    class Gate(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.fc = nn.Sequential(
                nn.Linear(c, c // 2), nn.ReLU(), nn.Linear(c // 2, c), nn.Sigmoid()
            )

        def forward(self, x):
            return x * self.fc(x.mean((2, 3)))[:, :, None, None]

    _run(Gate(4), 2, 4, 3, 3)


def unet() -> None:
    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
            self.up, self.out = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 1, 1)

        def forward(self, x):
            a = F.relu(self.a(x))
            b = F.relu(self.b(F.max_pool2d(a, 2)))
            return self.out(torch.cat([a, self.up(b)], 1))

    _run(UNet(), 1, 1, 8, 8)


def patch_embedding() -> None:
    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(3, 8, 4, 4)
            self.cls, self.pos = (
                nn.Parameter(torch.zeros(1, 1, 8)),
                nn.Parameter(torch.randn(1, 5, 8) * 0.02),
            )
            self.block = nn.TransformerEncoderLayer(
                8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True
            )

        def forward(self, x):
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(x.size(0), -1, -1), x], 1) + self.pos
            return self.block(x)[:, 0]

    _run(ViT(), 2, 3, 8, 8)


def positional_encodings() -> None:
    position = torch.arange(6).unsqueeze(1)
    div = torch.exp(torch.arange(0, 4, 2) * (-math.log(10000.0) / 4))
    pe = torch.zeros(6, 4)
    pe[:, 0::2], pe[:, 1::2] = torch.sin(position * div), torch.cos(position * div)
    freqs = torch.outer(torch.arange(4.0), 1.0 / 10000 ** (torch.arange(0, 4, 2) / 4))
    q = torch.randn(1, 4, 2, 4)
    turned = torch.view_as_real(
        torch.view_as_complex(q.reshape(1, 4, 2, 2, 2))
        * torch.polar(torch.ones_like(freqs), freqs)[None, :, None]
    ).flatten(3)
    x1, x2 = q.chunk(2, -1)
    print(
        numbers(pe),
        numbers(turned[0, 1]),
        numbers(torch.cat((-x2, x1), -1)[0, 0]),
        describe(turned),
    )
    slopes = torch.tensor([2.0 ** -(i + 1) for i in range(2)])
    print(
        numbers(
            slopes[:, None, None] * (torch.arange(3)[None] - torch.arange(3)[:, None]).abs().neg()
        )
    )


def causal_attention() -> None:
    torch.manual_seed(2)
    q, k, v = (torch.randn(1, 2, 4, 8, requires_grad=True) for _ in range(3))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    manual = ((q @ k.transpose(-2, -1)) / math.sqrt(8)).masked_fill(~mask, float("-inf")).softmax(
        -1
    ) @ v
    out.sum().backward()
    print(
        torch.allclose(out, manual, atol=1e-5),
        numbers(q.grad.norm()),
        numbers(v.grad[0, 0, :, 0]),
        describe(out),
        describe(manual),
    )
    print(
        numbers(F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.5).mean()),
        numbers(F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True).mean()),
    )


def masked_encoder_in_evaluation() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    x, padding = (
        torch.randn(2, 4, 8),
        torch.tensor([[False, False, False, True], [False, True, True, True]]),
    )
    with torch.no_grad():
        out = encoder(x, src_key_padding_mask=padding)
        print(
            numbers(out[:, :, 0]),
            numbers(encoder(x, mask=torch.zeros(4, 4), src_key_padding_mask=padding)[:, :, 0]),
        )
        print(
            numbers(encoder(x, src_key_padding_mask=padding.flip(1))[:, :, 0]),
            encoder.use_nested_tensor,
        )
    print(numbers(encoder(x, src_key_padding_mask=padding)[:, :, 0]))
    nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 3, batch_first=True), 1)


def bidirectional_lstm() -> None:
    torch.manual_seed(0)
    lstm = nn.LSTM(3, 4, num_layers=2, bidirectional=True, dropout=0.3)
    out, (h, c) = lstm(torch.randn(5, 2, 3))
    print(
        describe(out),
        describe(h),
        numbers(out[0, 0]),
        sorted(lstm.state_dict()),
        lstm.all_weights[0][0].shape,
        lstm._flat_weights_names[:2],
    )
    lstm.flatten_parameters()
    print(
        numbers(lstm.eval()(torch.ones(2, 1, 3))[0].sum()),
        raised(lambda: lstm(torch.ones(2, 1, 3), (h[:1], c))),
    )


def cells_by_hand() -> None:
    torch.manual_seed(0)
    for cell in (nn.RNNCell(2, 3), nn.LSTMCell(2, 3), nn.GRUCell(2, 3)):
        h = None
        for t in range(3):
            h = cell(torch.full((1, 2), float(t)), h)
        last = h[0] if isinstance(h, tuple) else h
        last.sum().backward()
        print(cell, numbers(last), numbers(cell.weight_hh.grad.norm()))


def dropout_kinds() -> None:
    x = torch.ones(2, 4, 3)
    for layer in (
        nn.Dropout(0.5),
        nn.Dropout1d(0.5),
        nn.AlphaDropout(0.5),
        nn.FeatureAlphaDropout(0.5),
        nn.Dropout(1.0),
        nn.Dropout(0.0),
    ):
        torch.manual_seed(4)
        print(layer, numbers(layer(x)[0]), torch.equal(layer.eval()(x), x))
    torch.manual_seed(4)
    print(
        numbers(nn.Dropout2d(0.5)(torch.ones(1, 4, 1, 2))),
        numbers(nn.Dropout3d(0.5)(torch.ones(1, 3, 1, 1, 1))),
    )


def batch_norm_modes() -> None:
    x = torch.arange(12.0).view(4, 3)
    norm = nn.BatchNorm1d(3, momentum=0.5)
    for _ in range(2):
        norm(x)
    print(norm.running_mean, norm.running_var, norm.num_batches_tracked, numbers(norm.eval()(x)[0]))
    norm.reset_running_stats()
    print(
        norm.running_var,
        F.batch_norm(x, None, None, training=True)[0],
        raised(lambda: F.batch_norm(x, None, None)),
        raised(lambda: F.batch_norm(x[:1], None, None, training=True)),
    )
    nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(2)))


def weight_sharing() -> None:
    encoder, decoder = nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False)
    decoder.weight = nn.Parameter(encoder.weight.T.clone())
    tied = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    tied[1].weight = tied[0].weight
    tied(torch.tensor([1, 2])).sum().backward()
    print(
        tied[0].weight.grad is tied[1].weight.grad,
        numbers(tied[0].weight.grad.sum()),
        len(list(tied.parameters())),
        tied.state_dict().keys(),
        describe(decoder.weight),
    )


def spatial_transformer() -> None:
    theta = torch.tensor([[[0.5, 0.0, 0.2], [0.0, 0.5, 0.0]]], requires_grad=True)
    image = torch.arange(16.0).view(1, 1, 4, 4)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            grid = F.affine_grid(theta, (1, 1, 3, 3), align_corners=True)
            y = F.grid_sample(image, grid, mode, padding, align_corners=True)
            print(mode, padding, numbers(y))
    F.grid_sample(
        image, F.affine_grid(theta, (1, 1, 3, 3), align_corners=False), align_corners=False
    ).sum().backward()
    print(numbers(theta.grad))


def resizing_modes() -> None:
    x = torch.arange(16.0).view(1, 1, 4, 4)
    for mode, corners in (
        ("nearest", None),
        ("nearest-exact", None),
        ("bilinear", False),
        ("bilinear", True),
        ("bicubic", False),
        ("area", None),
    ):
        print(
            mode,
            corners,
            numbers(F.interpolate(x, (3, 5), mode=mode, align_corners=corners)),
            numbers(
                F.interpolate(x, scale_factor=(0.5, 1.5), mode=mode, align_corners=corners).sum()
            ),
        )
    print(
        numbers(F.interpolate(x, (2, 2), mode="bilinear", antialias=True)),
        numbers(F.interpolate(x[0], 6, mode="linear")),
        nn.UpsamplingBilinear2d(scale_factor=2),
        raised(lambda: F.interpolate(x, 3, mode="linear")),
    )


def pooling_with_padding() -> None:
    x = torch.arange(25.0).view(1, 1, 5, 5)
    for layer in (
        nn.MaxPool2d(3, 2, 1),
        nn.MaxPool2d(2, dilation=2),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.AvgPool2d(3, 1, 1, divisor_override=2),
        nn.AdaptiveAvgPool2d(3),
        nn.AdaptiveMaxPool2d((1, 2)),
        nn.LPPool2d(1, 2),
        nn.FractionalMaxPool2d(2, output_size=2),
    ):
        torch.manual_seed(0)
        print(layer, numbers(layer(x)))


def groups_and_shuffles() -> None:
    x = torch.arange(16.0).view(1, 4, 2, 2)
    print(
        nn.PixelShuffle(2)(x),
        nn.PixelUnshuffle(2)(nn.PixelShuffle(2)(x)).equal(x),
        nn.ChannelShuffle(2)(x)[0, :, 0, 0],
        F.fold(F.unfold(x, 2), (2, 2), 2).equal(x),
        nn.Unfold(1)(x).shape,
    )


def normalising_layers() -> None:
    for layer in (
        nn.LayerNorm([2, 3]),
        nn.LayerNorm(3, bias=False),
        nn.GroupNorm(1, 2),
        nn.InstanceNorm1d(2),
        nn.RMSNorm(3),
        nn.BatchNorm1d(2),
        nn.LocalResponseNorm(1),
        nn.CrossMapLRN2d(3),
    ):
        if isinstance(layer, nn.CrossMapLRN2d):
            _run(layer, 2, 4, 3, 1)
        else:
            _run(layer, 4, 2, 3)


def similarity_layers() -> None:
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    print(
        numbers(nn.CosineSimilarity()(a, b)),
        numbers(nn.PairwiseDistance(1)(a, b)),
        numbers(nn.Bilinear(4, 4, 2)(a, b)),
        numbers(F.cosine_similarity(a[:, None], b[None], dim=-1)),
        numbers(torch.cdist(a, b, 2.0)),
    )


def hinge_and_ranking_losses() -> None:
    x, y = torch.tensor([[0.1, 0.2, 0.7]], requires_grad=True), torch.tensor([2])
    for loss in (
        nn.MultiMarginLoss(),
        nn.MultiLabelMarginLoss(),
        nn.MultiLabelSoftMarginLoss(),
        nn.HingeEmbeddingLoss(),
        nn.SoftMarginLoss(),
        nn.PoissonNLLLoss(),
        nn.KLDivLoss(reduction="batchmean"),
        nn.NLLLoss(),
        nn.BCEWithLogitsLoss(),
        nn.HuberLoss(delta=0.1),
    ):
        target = (
            y
            if isinstance(loss, (nn.MultiMarginLoss, nn.NLLLoss))
            else torch.tensor([[2, -1, 0]])
            if isinstance(loss, nn.MultiLabelMarginLoss)
            else torch.tensor([[1.0, 0.0, 1.0]])
        )
        value = loss(x, target)
        (g,) = torch.autograd.grad(value, x)
        print(loss, numbers(value), numbers(g))


def embedding_bags() -> None:
    torch.manual_seed(0)
    for mode in ("sum", "mean", "max"):
        bag = nn.EmbeddingBag(5, 2, mode=mode, padding_idx=0)
        out = bag(torch.tensor([0, 1, 4, 2, 2]), torch.tensor([0, 2, 2]))
        out.sum().backward()
        print(mode, numbers(out), numbers(bag.weight.grad))
    print(
        numbers(
            F.embedding_bag(
                torch.tensor([[1, 2]]),
                torch.eye(3),
                mode="sum",
                per_sample_weights=torch.tensor([[0.5, 2.0]]),
            )
        )
    )


def gated_units() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 6, requires_grad=True)
    a, b = x.chunk(2, -1)
    for y in (
        F.glu(x),
        a * torch.sigmoid(b),
        F.silu(a) * b,
        F.gelu(a, approximate="tanh") * b,
        torch.relu(a) ** 2,
        a * torch.tanh(F.softplus(a)),
        torch.where(a > 0, a, 0.1 * b),
    ):
        (g,) = torch.autograd.grad(y.sum(), x)
        print(numbers(y[0]), numbers(g[0]), type(y.grad_fn).__name__)
