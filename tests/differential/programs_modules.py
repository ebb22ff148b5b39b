"""Modules of every family: structure, state, hooks, forward and backward."""

from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F

from tests.differential.show import describe, numbers, raised


class _Block(nn.Module):
    def __init__(self, width=4, depth=2):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("cache", None, persistent=False)
        self.heads = nn.ModuleDict({"a": nn.Linear(width, 1), "b": nn.Identity()})

    def forward(self, x):
        for layer in self.layers:
            x = x + F.gelu(layer(self.norm(x))) * self.scale
        self.count += 1
        return self.heads["a"](x)


def module_tree() -> None:
    net = _Block()
    print(net)
    print(
        list(net.state_dict()),
        [n for n, _ in net.named_parameters()],
        [n for n, _ in net.named_buffers()],
    )
    print([n for n, _ in net.named_modules()], [n for n, _ in net.named_children()])
    y = net(torch.randn(3, 4))
    print(describe(y), numbers(y), net.count, sum(p.numel() for p in net.parameters()))
    print(raised(lambda: net.missing), raised(lambda: setattr(net, "scale", torch.ones(1))))
    print(
        raised(lambda: net.register_parameter("x.y", None)),
        raised(lambda: net.add_module("norm2", 3)),
    )
    net.half()
    print({k: str(v.dtype) for k, v in net.state_dict().items()})
    net.to(torch.float64).requires_grad_(False).eval()
    print(
        net.training,
        net.norm.training,
        any(p.requires_grad for p in net.parameters()),
        net.count.dtype,
    )
    del net.heads
    print(
        hasattr(net, "heads"),
        "layers.0" in dict(net.named_modules()),
        net.get_submodule("layers.1"),
    )


def state_dict_loading() -> None:
    net, other = _Block(), _Block(depth=3)
    print(net.load_state_dict(_Block().state_dict()))
    print(raised(lambda: net.load_state_dict(other.state_dict())))
    print(net.load_state_dict(other.state_dict(), strict=False))
    print(raised(lambda: net.load_state_dict(_Block(5).state_dict(), strict=False)))
    state = net.state_dict()
    print(
        type(state).__name__,
        state._metadata[""],
        state["scale"].requires_grad,
        state["scale"].data_ptr() == net.scale.data_ptr(),
    )
    before = net.scale
    net.load_state_dict({k: v.double() for k, v in state.items()}, assign=True)
    print(net.scale is before, net.scale.dtype, type(net.scale).__name__)
    print(
        net.state_dict(keep_vars=True)["scale"] is net.scale, list(net.state_dict(prefix="m."))[:2]
    )


def forward_hooks() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    log = []
    h1 = net[0].register_forward_hook(
        lambda m, i, o: log.append(("f", type(m).__name__, tuple(o.shape)))
    )
    net[1].register_forward_pre_hook(lambda m, i: (i[0] * 2,))
    net[2].register_forward_hook(lambda m, i, k, o: o + 100, with_kwargs=True)
    net.register_full_backward_hook(
        lambda m, gi, go: log.append(("b", len(gi), gi[0] is None, numbers(go[0])))
    )
    net[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
    x = torch.ones(1, 2, requires_grad=True)
    y = net(x)
    y.sum().backward()
    h1.remove()
    net(torch.ones(1, 2)).sum().backward()
    print(
        log,
        numbers(y),
        numbers(x.grad),
        numbers(net[2].bias.grad),
        y.grad_fn,
        len(net[0]._forward_hooks),
    )
    print(type(net[2](torch.ones(1, 3)).grad_fn).__name__, h1.id in net[0]._forward_hooks)


def containers() -> None:
    seq = nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 3), nn.Linear(3, 4))
    print(seq[1:], len(seq), seq[-1], seq.append(nn.ReLU())[3])
    del seq[0]
    seq.insert(0, nn.Dropout(0.1))
    print(seq, [n for n, _ in seq.named_children()], (seq + nn.Sequential(nn.Tanh())))
    items = nn.ModuleList([nn.ReLU()]).extend([nn.Tanh()])
    items += [nn.Sigmoid()]
    print(
        items,
        nn.ModuleDict([["x", nn.ReLU()]]),
        items.pop(0),
        raised(lambda: items(1)),
        raised(lambda: items[5]),
    )
    print(
        nn.ParameterList([torch.ones(2), nn.Parameter(torch.ones(1, 2))]),
        nn.ParameterDict({"w": torch.zeros(2, 2)}),
    )
    table = nn.ModuleDict({"a": nn.ReLU()})
    table.update({"b": nn.Tanh()})
    print(
        "b" in table,
        list(table.keys()),
        raised(lambda: table["c"]),
        raised(lambda: table.update(3)),
    )


def convolutions() -> None:
    x = torch.randn(2, 4, 9, 9)
    for layer in (
        nn.Conv2d(4, 6, 3),
        nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False),
        nn.Conv2d(4, 8, 3, groups=4, padding="same", dilation=2),
        nn.Conv2d(4, 4, (1, 3), padding=(0, 1), padding_mode="reflect"),
        nn.ConvTranspose2d(4, 2, 3, stride=2, output_padding=1),
        nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last),
    ):
        y = layer(x)
        y.pow(2).mean().backward()
        print(
            layer,
            describe(y),
            numbers(y.mean()),
            numbers(y.std()),
            numbers(layer.weight.grad.norm()),
        )
    print(
        numbers(nn.Conv1d(4, 2, 3)(torch.ones(4, 5))),
        nn.Conv3d(1, 1, 2)(torch.ones(1, 1, 3, 3, 3)).shape,
    )
    print(
        raised(lambda: nn.Conv2d(3, 6, 3)(x)),
        raised(lambda: nn.Conv2d(4, 6, 3, groups=3)),
        raised(lambda: nn.Conv2d(4, 6, 11)(x)),
    )
    print(nn.LazyConv2d(3, 3), F.unfold(x, 3).shape, F.fold(F.unfold(x, 3), (9, 9), 3).shape)


def pooling_and_resampling() -> None:
    x = torch.randn(1, 2, 6, 6, requires_grad=True)
    for layer in (
        nn.MaxPool2d(2),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        nn.AdaptiveAvgPool2d((2, 3)),
        nn.AdaptiveMaxPool2d(2),
        nn.LPPool2d(2, 2),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Upsample(size=(3, 9), mode="nearest"),
        nn.PixelShuffle(1),
        nn.ZeroPad2d(1),
        nn.ReflectionPad2d(2),
        nn.Flatten(),
        nn.Unflatten(1, (1, 2)),
    ):
        y = layer(x)
        y.pow(2).sum().backward()
        print(layer, describe(y), numbers(y.mean()), numbers(x.grad.norm()))
        x.grad = None
    y, index = F.max_pool2d(x, 2, return_indices=True)
    print(
        index,
        F.max_unpool2d(y, index, 2).shape,
        numbers(F.interpolate(x, (3, 3), mode="bicubic", align_corners=True).sum()),
    )
    grid = F.affine_grid(torch.eye(2, 3)[None], (1, 2, 4, 4), align_corners=False)
    print(numbers(F.grid_sample(x, grid, align_corners=False)))
    F.interpolate(x, scale_factor=0.5, mode="bilinear", recompute_scale_factor=True)
    F.grid_sample(x, grid)
    F.affine_grid(torch.eye(2, 3)[None], (1, 2, 4, 4))


def normalization() -> None:
    x = torch.randn(4, 6, 5) * 3 + 1
    norm = nn.BatchNorm1d(6)
    y = norm(x)
    print(
        numbers(y.mean((0, 2))),
        numbers(norm.running_mean),
        numbers(norm.running_var),
        norm.num_batches_tracked,
    )
    norm.eval()
    print(numbers(norm(x)[0, 0]), norm)
    for layer in (
        nn.LayerNorm(5),
        nn.GroupNorm(3, 6),
        nn.InstanceNorm1d(6, affine=True),
        nn.RMSNorm(5),
        nn.LocalResponseNorm(2),
    ):
        print(layer, numbers(layer(x)[0, 0]), list(layer.state_dict()))
    print(
        raised(lambda: nn.BatchNorm1d(6)(torch.ones(1, 6))),
        raised(lambda: nn.GroupNorm(4, 6)),
        raised(lambda: nn.BatchNorm2d(6)(x)),
    )
    cumulative = nn.BatchNorm1d(6, momentum=None, track_running_stats=True)
    cumulative(x), cumulative(x + 1)
    print(
        numbers(cumulative.running_mean),
        nn.BatchNorm1d(3, affine=False).weight,
        nn.BatchNorm1d(3, track_running_stats=False).running_mean,
    )
    print(
        numbers(F.normalize(x[0, :2])),
        numbers(nn.CosineSimilarity(0)(x[0], x[1])),
        numbers(nn.PairwiseDistance()(x[0], x[1])),
    )


def recurrent_layers() -> None:
    x = torch.randn(5, 3, 4)
    for layer in (
        nn.RNN(4, 6, 2, nonlinearity="relu"),
        nn.LSTM(4, 6, 2, bidirectional=True, batch_first=True),
        nn.GRU(4, 6, bias=False),
        nn.LSTM(4, 6, proj_size=2),
    ):
        out, state = layer(x)
        out.sum().backward()
        shapes = [tuple(s.shape) for s in state] if isinstance(state, tuple) else tuple(state.shape)
        print(
            layer,
            describe(out),
            shapes,
            numbers(out.mean()),
            numbers(layer.weight_ih_l0.grad.norm()),
            list(layer.state_dict())[:4],
        )
    packed = nn.utils.rnn.pack_padded_sequence(x, [5, 3, 1])
    out, _ = nn.GRU(4, 2)(packed)
    padded, lengths = nn.utils.rnn.pad_packed_sequence(out)
    print(packed.batch_sizes, padded.shape, lengths, numbers(padded[:, 2]), type(out).__name__)
    print(
        raised(lambda: nn.utils.rnn.pack_padded_sequence(x, [1, 3, 5])),
        nn.utils.rnn.pad_sequence([torch.ones(2), torch.ones(3)], padding_value=-1),
    )
    print(
        numbers(nn.LSTMCell(4, 2)(x[0])[0]),
        nn.GRUCell(4, 2),
        raised(lambda: nn.LSTM(4, 6)(torch.randn(5, 3, 7))),
    )
    nn.LSTM(4, 6, dropout=0.5)


def attention_layers() -> None:
    x = torch.randn(2, 5, 8)
    mha = nn.MultiheadAttention(8, 2, batch_first=True)
    out, weights = mha(x, x, x)
    print(
        numbers(out[0, 0]),
        numbers(weights.sum(-1)),
        mha(x, x, x, need_weights=False)[1],
        list(mha.state_dict()),
    )
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    print(mask, numbers(mha(x, x, x, attn_mask=mask, average_attn_weights=False)[1][0, 0]))
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2
    )
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    print(
        numbers(encoder(x, src_key_padding_mask=padding).mean()), numbers(encoder.eval()(x).std())
    )
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(8, 2, 16, 0.0, activation="gelu", norm_first=True), 1
    )
    print(
        numbers(
            decoder(
                x, x, tgt_is_causal=True, tgt_mask=nn.Transformer.generate_square_subsequent_mask(2)
            ).mean()
        )
    )
    q = torch.randn(1, 2, 4, 8)
    print(
        numbers(F.scaled_dot_product_attention(q, q, q, is_causal=True)[0, 0, 0]),
        nn.Transformer(8, 2, 1, 1, 16),
    )
    print(
        raised(lambda: nn.MultiheadAttention(7, 2)),
        raised(
            lambda: F.scaled_dot_product_attention(
                q, q, q, attn_mask=torch.ones(4, 4), is_causal=True
            )
        ),
    )


def embeddings() -> None:
    table = nn.Embedding(6, 3, padding_idx=1)
    ids = torch.tensor([[0, 1, 2], [2, 2, 5]])
    table(ids).sum().backward()
    print(table, table.weight[1], table.weight.grad, numbers(table(ids)[1, 0]))
    print(raised(lambda: table(torch.tensor([6]))), raised(lambda: table(torch.tensor([0.5]))))
    bag = nn.EmbeddingBag(6, 3, mode="mean")
    print(bag, numbers(bag(torch.tensor([0, 1, 2, 3]), torch.tensor([0, 3]))), numbers(bag(ids)))
    sparse = nn.Embedding(4, 2, sparse=True)
    sparse(torch.tensor([1, 1])).sum().backward()
    print(sparse.weight.grad, sparse.weight.grad.layout)
    print(
        nn.Embedding.from_pretrained(torch.eye(3)).weight.requires_grad,
        F.one_hot(torch.tensor([0, 2]), 4),
    )
    small = nn.Embedding(3, 2, max_norm=1.0)
    small(torch.tensor([0]))
    print(
        small.weight.norm(dim=1)[0] <= 1.0001,
        nn.Bilinear(2, 3, 1)(torch.ones(1, 2), torch.ones(1, 3)).shape,
    )


def activations() -> None:
    x = torch.linspace(-3, 3, 7)
    names = (
        "ReLU ReLU6 LeakyReLU ELU SELU CELU GELU SiLU Mish "
        "Softplus Softsign Tanhshrink Hardtanh Hardswish Hardsigmoid "
        "Hardshrink Softshrink LogSigmoid Sigmoid Tanh PReLU RReLU"
    )
    for name in names.split():
        layer = getattr(nn, name)()
        v = x.clone().requires_grad_()
        y = layer.eval()(v)
        y.sum().backward()
        print(layer, numbers(y), numbers(v.grad), type(y.grad_fn).__name__)
    print(
        numbers(nn.Softmax(0)(x)),
        numbers(nn.GLU()(x[:6])),
        nn.Threshold(0.1, 20)(x),
        nn.Softmin(dim=0),
        nn.Softmax2d(),
    )
    print(
        numbers(nn.GELU("tanh")(x)), nn.ReLU(inplace=True), numbers(F.gumbel_softmax(x, hard=True))
    )
    F.softmax(x)
    F.log_softmax(torch.ones(2, 2))
    torch.nn.functional.sigmoid(x), torch.nn.functional.tanh(x)


def parametrized_modules() -> None:
    from torch.nn.utils import parametrize
    from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

    class Symmetric(nn.Module):
        def forward(self, w):
            return w.triu() + w.triu(1).T

        def right_inverse(self, w):
            return w.triu()

    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    print(
        layer,
        torch.equal(layer.weight, layer.weight.T),
        list(layer.state_dict()),
        parametrize.is_parametrized(layer),
    )
    with parametrize.cached():
        print(layer.weight is layer.weight)
    parametrize.remove_parametrizations(layer, "weight")
    print(type(layer.weight).__name__, type(layer).__name__)
    normed = weight_norm(nn.Linear(3, 2))
    print(
        list(normed.state_dict()),
        numbers(normed(torch.ones(3))),
        numbers(spectral_norm(nn.Linear(2, 2)).weight.norm(2)),
    )
    w = orthogonal(nn.Linear(3, 3)).weight
    print(numbers(w @ w.T, 3))
    old = torch.nn.utils.weight_norm(nn.Linear(2, 2))
    print(list(old.state_dict()))
    import torch.nn.utils.prune as prune

    pruned = prune.l1_unstructured(nn.Linear(3, 2), "weight", amount=0.5)
    print(
        (pruned.weight == 0).sum(),
        list(pruned.state_dict()),
        [n for n, _ in pruned.named_buffers()],
    )


def initialization() -> None:
    w = torch.empty(4, 3)
    for name in (
        "xavier_uniform_",
        "xavier_normal_",
        "kaiming_uniform_",
        "kaiming_normal_",
        "orthogonal_",
        "normal_",
        "uniform_",
        "trunc_normal_",
    ):
        print(name, numbers(getattr(nn.init, name)(w)))
    print(
        nn.init.eye_(w),
        nn.init.constant_(w, 2),
        nn.init.calculate_gain("leaky_relu", 0.1),
        nn.init.zeros_(torch.ones(2)),
    )
    print(
        numbers(nn.init.sparse_(w, 0.5)),
        nn.init.dirac_(torch.empty(2, 2, 3)),
        raised(lambda: nn.init.xavier_uniform_(torch.empty(3))),
    )
    for layer in (
        nn.Linear(2, 2),
        nn.Conv1d(1, 2, 2),
        nn.LSTM(1, 1),
        nn.Embedding(2, 2),
        nn.Bilinear(1, 1, 1),
        nn.MultiheadAttention(2, 1),
    ):
        print(type(layer).__name__, {k: numbers(v) for k, v in layer.state_dict().items()})
    nn.init.normal(w)
    nn.init.kaiming_normal_(torch.empty(0, 2))
