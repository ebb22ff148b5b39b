"""Nested tensors mean their samples: every operator has the bits of a loop over them."""

from __future__ import annotations

import contextlib
import copy
import io
import pickle

import pytest

import flambeau as torch
from flambeau.nested import attention

F = torch.nn.functional
LENGTHS = (3, 0, 5, 1)


def samples(width=4, lengths=LENGTHS):
    torch.manual_seed(0)
    return [torch.randn(n, width) for n in lengths]


def nested(width=4, lengths=LENGTHS, layout=torch.jagged, **options):
    return torch.nested.nested_tensor(samples(width, lengths), layout=layout, **options)


def check(found, expected):
    """Samples of a nested result, or rows of a dense one, are exactly these."""
    parts = found.unbind()
    assert len(parts) == len(expected)
    for part, row in zip(parts, expected, strict=True):
        assert tuple(part.shape) == tuple(row.shape)
        assert torch.equal(part, row)


# ------------------------------------------------------------------------------ what they are
def test_sizes_are_symbols_that_tell_offsets_apart():
    x, y = nested(), nested()
    assert x.is_nested and not torch.ones(1).is_nested and x.layout is torch.jagged
    assert x.shape[1] == (2 * x).shape[1] == x.size(1) and x.shape[1] != y.shape[1]
    assert isinstance(x.shape[1], torch.SymInt) and x.shape[1] != 3
    assert (x.dim(), x.size(0), x.size(-1), len(x), x.numel()) == (3, 4, 4, 4, 36)
    z = torch.nested.nested_tensor_from_jagged(2 * x.values(), x.offsets())
    assert z.shape == x.shape and torch.equal(z.unbind()[2], 2 * x.unbind()[2])
    with pytest.raises(RuntimeError, match="is no number"):
        range(x.shape[1])
    with pytest.raises(ValueError, match="no one value"):
        x.shape[1] > 5  # noqa: B015
    assert x.stride() == (4 * x.shape[1], 4, 1)


def test_printing():
    x = torch.nested.nested_tensor([torch.ones(1), torch.zeros(2)])
    assert repr(x) == "nested_tensor([\n  tensor([1.]),\n  tensor([0., 0.])\n])"
    y = nested(1)
    expected = f"NestedTensor(size=(4, {y.shape[1]}, 1), offsets=tensor([0, 3, 3, 8, 9]), "
    assert repr(y) == expected + "contiguous=True)"


def test_holes():
    x = torch.arange(12.0).view(3, 4)
    cut = torch.nested.narrow(x, 1, 1, torch.tensor([2, 0, 3]), layout=torch.jagged)
    check(cut, [x[0, 1:3], x[1, 1:1], x[2, 1:4]])
    assert not cut.is_contiguous() and cut.lengths().tolist() == [2, 0, 3]
    check(cut * 2, [x[0, 1:3] * 2, x[1, 1:1], x[2, 1:4] * 2])
    check(cut.sum(1), [x[0, 1:3].sum(), x[1, 1:1].sum(), x[2, 1:4].sum()])
    assert cut.sum().item() == (x[0, 1:3].sum() + x[2, 1:4].sum()).item()
    check(cut.softmax(1), [x[0, 1:3].softmax(0), x[1, 1:1], x[2, 1:4].softmax(0)])
    assert cut.contiguous().offsets().tolist() == [0, 2, 2, 5]
    check(torch.nested.masked_select(x, x > 5), [x[0, :0], x[1, 2:], x[2]])


def test_padding():
    x = nested()
    dense = x.to_padded_tensor(7.0)
    assert tuple(dense.shape) == (4, 5, 4) and (dense[1] == 7).all()
    assert torch.equal(dense, torch.nested.to_padded_tensor(nested(layout=torch.strided), 7.0))
    assert tuple(x.to_padded_tensor(0.0, (4, 6, 4)).shape) == (4, 6, 4)
    with pytest.raises(RuntimeError, match="output_size"):
        x.to_padded_tensor(0.0, (4, 3, 4))
    with pytest.raises(NotImplementedError):
        torch.ones(2).to_padded_tensor(0.0)


# ------------------------------------------------------------------------------ operators
WEIGHT = torch.arange(20.0).view(5, 4).sin()
PER_SAMPLE = {
    "sin": lambda x, d: (x.sin() * 2 + 1).relu(),
    "compare": lambda x, d: torch.where(x > 0, x, -1.0).clamp(max=0.5),
    "linear": lambda x, d: F.linear(x, WEIGHT),
    "matmul": lambda x, d: x @ WEIGHT.t(),
    "layer_norm": lambda x, d: F.layer_norm(x, (4,)),
    "rms_norm": lambda x, d: F.rms_norm(x, (4,)),
    "softmax": lambda x, d: x.softmax(-1),
    "softmax over rows": lambda x, d: x.softmax(d),
    "log_softmax over rows": lambda x, d: x.log_softmax(d),
    "sum": lambda x, d: x.sum(-1),
    "sum over rows": lambda x, d: x.sum(d),
    "mean over rows": lambda x, d: x[:, :, :2].mean(d) if d else x[:, :2].mean(d),
    "sum kept": lambda x, d: x.sum(d, keepdim=True),
    "prod over rows": lambda x, d: x.prod(d),
    "any over rows": lambda x, d: (x > 1).any(d),
    "transpose": lambda x, d: x.transpose(d, d + 1).contiguous(),
    "unflatten": lambda x, d: x.unflatten(-1, (2, 2)).transpose(d, d + 1).flatten(d + 1, d + 1),
    "select": lambda x, d: x.select(-1, 1),
    "sort": lambda x, d: x.sort(-1).values,
    "glu": lambda x, d: F.glu(x),
    "cumsum": lambda x, d: x.cumsum(-1),
    "cat": lambda x, d: torch.cat([x, -x], -1).chunk(2, -1)[1],
    "stack": lambda x, d: torch.stack([x, x + 1], -1).squeeze(-1).flatten(-2),
    "half": lambda x, d: x.half().exp(),
}  # fmt: skip


@pytest.mark.parametrize("name", PER_SAMPLE)
def test_operators_have_the_bits_of_a_loop(name):
    function = PER_SAMPLE[name]
    if name == "mean over rows":  # of no row: nan, which equals nothing
        parts = samples(lengths=(3, 2))
        check(function(torch.nested.nested_tensor(parts, layout=torch.jagged), 1),
              [function(p, 0) for p in parts])  # fmt: skip
        return
    parts = samples()
    check(function(nested(), 1), [function(part, 0) for part in parts])
    if "rows" not in name and "kept" not in name:
        check(function(nested(layout=torch.strided), 1), [function(part, 0) for part in parts])


def test_extremes_of_rows():
    parts = samples(lengths=(3, 1, 5))
    x = torch.nested.nested_tensor(parts, layout=torch.jagged)
    check(x.amax(1), [p.amax(0) for p in parts])
    values, places = x.max(1)
    check(values, [p.max(0).values for p in parts])
    check(places, [p.max(0).indices for p in parts])
    assert x.max().item() == max(p.max().item() for p in parts)
    check(torch.maximum(x, x * 2), [torch.maximum(p, p * 2) for p in parts])
    check((x * 10).long().amin(1), [(p * 10).long().amin(0) for p in parts])


def test_dense_operands_are_broadcast():
    parts, x = samples(), nested()
    row, per_sample = torch.arange(4.0), torch.arange(16.0).view(4, 1, 4)
    check(x + row, [p + row for p in parts])
    check(row - x, [row - p for p in parts])
    check(x * per_sample, [p * y for p, y in zip(parts, per_sample, strict=True)])
    full = torch.arange(80.0).view(4, 5, 4)
    check(x + full, [p + y[: len(p)] for p, y in zip(parts, full, strict=True)])
    check(x.masked_fill(x > 0, 0.0), [p.masked_fill(p > 0, 0.0) for p in parts])
    with pytest.raises(RuntimeError, match="cannot call binary pointwise function add"):
        x + nested()
    with pytest.raises(RuntimeError, match="cannot call binary pointwise function add"):
        x + torch.ones(4, 3, 4)


def test_products():
    parts, x = samples(), nested()
    batch = torch.arange(48.0).view(4, 4, 3).cos()
    check(torch.bmm(x, batch), [p @ b for p, b in zip(parts, batch, strict=True)])
    check(x.transpose(1, 2) @ x, [p.t() @ p for p in parts])
    check(batch.mT @ x.transpose(1, 2), [b.t() @ p.t() for p, b in zip(parts, batch, strict=True)])
    heads = x.unflatten(-1, (2, 2))
    check(heads @ heads.transpose(2, 3), [h @ h.mT for h in heads.unbind()])
    rows = nested(layout=torch.strided)
    check(rows @ rows.transpose(1, 2), [p @ p.t() for p in parts])
    with pytest.raises(RuntimeError, match="not supported between inputs of shapes"):
        x @ x.transpose(1, 2)
    table = torch.arange(12.0).view(6, 2)
    index = torch.nested.nested_tensor([[1, 5], [0]], layout=torch.jagged)
    check(F.embedding(index, table), [table[[1, 5]], table[[0]]])


def test_batches_are_cut_and_joined():
    parts, x = samples(), nested()
    one, two = x.chunk(2)
    check(one, parts[:2])
    check(torch.cat([two, one]), parts[2:] + parts[:2])
    assert torch.equal(x[2], parts[2]) and torch.equal(x[-1, 0], parts[-1][0])
    check(x[:, :, 1:3], [p[:, 1:3] for p in parts])
    check(x[..., None, 0], [p[:, None, 0] for p in parts])
    check(x.view(4, -1, 2, 2), [p.view(-1, 2, 2) for p in parts])
    check(x.reshape(4, x.shape[1], 4, 1).expand(4, -1, 4, 2)[..., 1], parts)
    check(torch.nested.as_nested_tensor(list(x)), parts)


def test_in_place():
    x = nested()
    y = x.clone()
    assert y.mul_(2).add_(x) is y
    check(y, [p * 2 + p for p in samples()])
    check(y.copy_(x).fill_(3.0), [torch.full_like(p, 3.0) for p in samples()])
    assert torch.equal(torch.zeros_like(x), x.clone().zero_()) and not torch.equal(x, y)


def test_dropout_draws_for_the_values():
    x = nested()
    torch.manual_seed(3)
    found = F.dropout(x, 0.5)
    torch.manual_seed(3)
    assert torch.equal(found.values(), F.dropout(x.values(), 0.5))


def test_samples_that_differ_in_several_dimensions():
    images = [torch.arange(float(3 * h * w)).view(3, h, w) for h, w in ((2, 3), (4, 1))]
    x = torch.nested.nested_tensor(images)
    check(x * 2 + x, [p * 2 + p for p in images])
    check(x.transpose(2, 3), [p.transpose(1, 2) for p in images])
    check(x.softmax(-1), [p.softmax(-1) for p in images])
    assert x.size(1) == 3 and x.to_padded_tensor(0.0).shape == (2, 3, 4, 3)
    with pytest.raises(RuntimeError, match="irregular"):
        x.size(2)
    with pytest.raises(NotImplementedError, match="sort"):
        x.sort(1)


# ------------------------------------------------------------------------------ gradients
def test_gradients_reach_samples_values_and_leaves():
    parts = [p.requires_grad_() for p in samples(lengths=(3, 1, 5))]

    def loss(part, d):
        return (part.softmax(d) * F.linear(part, WEIGHT[:4]) + part.sum(d, keepdim=True)).sum()

    loss(torch.nested.as_nested_tensor(parts, layout=torch.jagged), 1).backward()
    for part in parts:
        alone = part.detach().requires_grad_()
        loss(alone, 0).backward()
        torch.testing.assert_close(part.grad, alone.grad)
    values = torch.arange(6.0, requires_grad=True)
    x = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 2, 6]))
    assert not x.is_leaf
    (x.sum(1) * torch.tensor([1.0, 2.0])).sum().backward()
    assert values.grad.tolist() == [1, 1, 2, 2, 2, 2]
    leaf = nested(requires_grad=True)
    leaf.sin().backward(torch.ones_like(leaf))
    check(leaf.grad, [p.cos() for p in samples()])
    (found,) = torch.autograd.grad((leaf * leaf).sum(), leaf)
    assert torch.equal(found.values(), 2 * leaf.values())


# ------------------------------------------------------------------------------ attention
def heads(x):
    return x.unflatten(-1, (2, -1)).transpose(1, 2)


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_has_the_bits_of_each_sample(is_causal, monkeypatch):
    torch.manual_seed(1)
    parts = [torch.randn(n, 16) for n in (3, 7, 1)]
    keys = [torch.randn(n, 16) for n in (5, 2, 4)]

    def run(mine):
        q = [p.detach().requires_grad_() for p in parts]
        k = [p.detach().requires_grad_() for p in keys]
        x, y = (heads(torch.nested.as_nested_tensor(t, layout=torch.jagged)) for t in (q, k))
        out = F.scaled_dot_product_attention(x, y, y, is_causal=is_causal)
        own = F.scaled_dot_product_attention(x, x, x, is_causal=is_causal)
        (out * own).sum().backward()
        del mine
        return [*out.unbind(), *own.unbind(), *(t.grad for t in q), *(t.grad for t in k)]

    together = run(True)
    monkeypatch.setattr(attention, "WASTE", 0.0)
    one_by_one = run(False)
    assert all(torch.equal(a, b) for a, b in zip(together, one_by_one, strict=True))
    alone = F.scaled_dot_product_attention(
        *(t.unflatten(-1, (2, -1)).transpose(0, 1)[None] for t in (parts[1], keys[1], keys[1])),
        is_causal=is_causal,
    )
    assert torch.equal(together[1], alone[0])


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_transformer_layer(layout):
    torch.manual_seed(2)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 16, dropout=0.0, batch_first=True)
    parts = [torch.randn(n, 16) for n in (3, 7, 1)]
    found = layer(torch.nested.nested_tensor(parts, layout=layout))
    for mine, part in zip(found.unbind(), parts, strict=True):
        torch.testing.assert_close(mine, layer(part[None])[0])
    found.sum().backward()
    assert layer.self_attn.in_proj_weight.grad.abs().sum() > 0
    x = torch.nested.nested_tensor(parts, layout=layout)
    _, weights = layer.self_attn(x, x, x)
    assert weights.shape == (3, 7, 7) and weights[0, 0, 3:].tolist() == [0.0] * 4
    with pytest.raises(AssertionError, match="padding mask"):
        layer.self_attn(x, x, x, key_padding_mask=torch.zeros(3, 7, dtype=torch.bool))


def test_normalisation_over_the_ragged_dimension():
    x, weight = nested(), torch.arange(4.0)
    found = F.layer_norm(x, (x.shape[1], 4), weight, weight)
    check(found, [F.layer_norm(p, tuple(p.shape)) * weight + weight for p in samples()])
    x.requires_grad_()
    F.layer_norm(x, (x.shape[1], 4), weight).pow(3).sum().backward()
    rows = [part.requires_grad_() for part in samples()]
    sum((F.layer_norm(p, tuple(p.shape)) * weight).pow(3).sum() for p in rows).backward()
    for part, row in zip(x.grad.unbind(), rows, strict=True):
        torch.testing.assert_close(part, row.grad)


def test_places_written_by_index_tensors():
    x, one = nested(), torch.tensor([0, 2, 2])
    found = x.index_put((one, torch.tensor([-1, 0, 4])), torch.zeros(3, 4))
    expected = [part.clone() for part in samples()]
    expected[0][2], expected[2][0], expected[2][4] = 0, 0, 0
    check(found, expected)
    check(x, samples())
    assert x.index_put_((torch.tensor([2, 3]),), torch.ones(4)) is x
    check(x, [*samples()[:2], torch.ones(5, 4), torch.ones(1, 4)])
    leaf, written = nested(requires_grad=True), torch.ones(4, requires_grad=True)
    leaf.index_put((torch.tensor([2]), torch.tensor([1])), written).mul(3).sum().backward()
    assert torch.equal(written.grad, torch.full((4,), 3.0))
    assert leaf.grad.unbind()[2].tolist() == [[3.0] * 4, [0.0] * 4, *[[3.0] * 4] * 3]
    with pytest.raises(RuntimeError, match="no such row"):
        x.index_put((torch.tensor([1]), torch.tensor([0])), torch.ones(4))
    with pytest.raises(IndexError, match="no such sample"):
        x.index_put((torch.tensor([4]), torch.tensor([0])), torch.ones(4))
    turned = nested().transpose(1, 2)
    places = (torch.tensor([0]), torch.tensor([3]), torch.tensor([1]))
    check(turned.index_put(places, torch.tensor(7.0)).transpose(1, 2), [
        torch.cat([part[:1], torch.cat([part[1:2, :3], torch.full((1, 1), 7.0)], 1), part[2:]])
        if i == 0 else part for i, part in enumerate(samples())
    ])  # fmt: skip
    with pytest.raises(NotImplementedError, match="ragged dimension is 2"):
        turned.index_put(places[:2], torch.tensor(7.0))


def test_elements_that_a_mask_keeps():
    rows = [part.reshape(-1) for part in samples(1)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    found = x.masked_select(x > 0)
    check(found, [row[row > 0] for row in rows])
    found.values().pow(2).sum().backward()
    check(x.grad, [torch.where(row > 0, 2 * row, 0) for row in rows])


# ------------------------------------------------------------------------------ compiled
def test_compiled_functions_have_eager_bits():
    def forward(x, weight):
        hidden = F.layer_norm(F.linear(x, weight).relu() + x, (4,))
        return hidden.softmax(1) * hidden, hidden.sum(1)

    compiled = torch.compile(forward)
    for lengths in (LENGTHS, (2, 6), LENGTHS):
        gradients = []
        for function in (forward, compiled):
            x = nested(lengths=lengths, requires_grad=True)
            weight = WEIGHT[:4].clone().requires_grad_()
            one, two = function(x, weight)
            assert one.shape == x.shape
            (one.pow(2).sum() + two.sin().sum()).backward()
            gradients.append((one, two, x.grad, weight.grad))
        for a, b in zip(*gradients, strict=True):
            assert torch.equal(a, b)


# ------------------------------------------------------------------------------ elsewhere
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_copies(layout):
    x = nested(layout=layout, requires_grad=True)
    stream = io.BytesIO()
    torch.save({"x": x}, stream)
    stream.seek(0)
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), torch.load(stream)["x"]):
        assert torch.equal(x, other) and other.requires_grad and other.layout is layout
        torch.testing.assert_close(x, other)
        with pytest.raises(AssertionError):
            torch.testing.assert_close(x, other + 1)
    assert x.to(torch.float64).dtype is torch.float64 and x.detach().requires_grad is False


def test_nothing_changes_geometry_that_is_not_there():
    for layout in (torch.jagged, torch.strided):
        x = nested(layout=layout)
        for name in ("squeeze_", "unsqueeze_", "resize_", "as_strided"):
            with pytest.raises(NotImplementedError, match=name):
                getattr(x, name)(-1)


def test_errors_say_what_to_do():
    x = nested()
    with pytest.raises(NotImplementedError, match=r"\[roll\].*torch.jagged(.|\n)*hint: apply it"):
        x.roll(1)
    for bad, kind in (
        (lambda: x.sum(0), RuntimeError), (lambda: x.unsqueeze(0), RuntimeError),
        (lambda: x.transpose(0, 1), ValueError), (lambda: x[:, 0], RuntimeError),
        (lambda: x.flatten(1), RuntimeError), (lambda: x.view(4, 4, -1), RuntimeError),
        (lambda: x.size(3), IndexError), (lambda: x.sum(3), IndexError),
        (lambda: x.numpy(), RuntimeError), (lambda: x.tolist(), RuntimeError),
        (lambda: bool(x), RuntimeError), (lambda: x.T, ValueError),
        (lambda: torch.nested.nested_tensor(torch.ones(2)), TypeError),
        (lambda: torch.nested.nested_tensor([], layout=torch.jagged), RuntimeError),
        (lambda: torch.nested.nested_tensor_from_jagged(torch.ones(2)), RuntimeError),
    ):  # fmt: skip
        with pytest.raises(kind, match="hint"):
            bad()


BIGGEST = 2**63 - 1


@pytest.mark.parametrize(
    "offsets",
    [[0, 1, 5], [0, 3, 1], [0, -1, 4], [-1, 1, 4], [0, BIGGEST, 4], [-BIGGEST, BIGGEST, 4],
     [BIGGEST, -BIGGEST, BIGGEST]],
)  # fmt: skip
@pytest.mark.parametrize("extremes", [{}, {"min_seqlen": 0, "max_seqlen": 5}])
def test_offsets_that_do_not_fit_the_values(offsets, extremes):
    """Read when a sample is asked for; what reads no sample on the host does not crash either."""
    x = torch.nested.nested_tensor_from_jagged(torch.ones(4), torch.tensor(offsets), **extremes)
    (x * 2).values().sum()
    for ask in (x.unbind, lambda: x[0], lambda: torch.cat([x, x]), x.contiguous().unbind):
        with pytest.raises(RuntimeError, match=r"\[jagged\] sample \d(.|\n)*hint: offsets must"):
            ask()
    for compute in (lambda: x.to_padded_tensor(0.0), lambda: x.sum(1), lambda: x.softmax(1)):
        if extremes:
            with contextlib.suppress(RuntimeError, IndexError):
                compute()
        else:
            with pytest.raises(RuntimeError, match=r"\[jagged\]"):
                compute()


@pytest.mark.parametrize("lengths", [[3, 2], [2, 3], [-1, 2], [0, BIGGEST]])
def test_lengths_that_do_not_fit_the_values(lengths):
    offsets = torch.tensor([0, 2, 4])
    x = torch.nested.nested_tensor_from_jagged(torch.ones(4), offsets, torch.tensor(lengths))
    if lengths == [3, 2]:
        assert [len(part) for part in x.unbind()] == [3, 2], "samples may overlap"
        return
    for ask in (x.unbind, x.contiguous, lambda: x.sum(1)):
        with pytest.raises(RuntimeError, match=r"\[jagged\] sample"):
            ask()


def test_rows_do_not_read_their_neighbours():
    x = torch.arange(8).view(2, 4)
    for start, length in ((2, 3), (-1, 3), (torch.tensor([0, 5]), 1), (0, torch.tensor([-1, 2]))):
        cut = torch.nested.narrow(x, 1, start, length, layout=torch.jagged)
        with pytest.raises(RuntimeError, match="there are 4 rows"):
            cut.unbind()


def test_offsets_shared_by_values_of_other_sizes():
    offsets = torch.tensor([0, 1, 4])
    first = torch.nested.nested_tensor_from_jagged(torch.ones(4), offsets)
    assert len(first.unbind()) == 2
    with pytest.raises(RuntimeError, match="there are 3 rows"):
        torch.nested.nested_tensor_from_jagged(torch.ones(3), offsets)


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_uninitialised_ones(layout):
    x = torch.nested.nested_tensor(samples(), layout=layout)
    made = torch.empty_like(x, dtype=torch.float64, requires_grad=True)
    assert made.is_nested and made.layout is layout and made.requires_grad
    assert [tuple(part.shape) for part in made.unbind()] == [(n, 4) for n in LENGTHS]
    for ask in (lambda: x.new_empty(2), lambda: x.new_empty_strided((2,), (1,))):
        with pytest.raises(NotImplementedError, match=r"\[new_empty(.|\n)*hint"):
            ask()
