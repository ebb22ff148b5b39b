"""Attention layers: with and without weights they compute the same, whatever the masks."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn, runtime

BATCH, HEADS, LENGTH, SOURCE, WIDTH = 3, 4, 5, 7, 16


def draw(*shape, seed=0):
    return torch.tensor(np.random.default_rng([seed, *shape]).standard_normal(shape).astype("f4"))


def masks():
    hidden = torch.tensor(np.random.default_rng(1).random((LENGTH, SOURCE)) > 0.6)
    hidden[:, 0] = False
    padded = torch.tensor(np.arange(SOURCE)[None] >= np.array([[7], [5], [3]]))
    yield None, None
    yield hidden, None
    yield None, padded
    yield hidden, padded
    yield draw(BATCH * HEADS, LENGTH, SOURCE), padded.float() * -1e4
    yield torch.zeros(LENGTH, SOURCE).masked_fill(hidden, -float("inf")), None


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("extra", [False, True])
def test_weights_or_not(number, extra):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(WIDTH, HEADS, add_bias_kv=extra, add_zero_attn=extra)
    query, key = draw(LENGTH, BATCH, WIDTH), draw(SOURCE, BATCH, WIDTH, seed=1)
    attn_mask, padding = list(masks())[number]
    options = {"attn_mask": attn_mask, "key_padding_mask": padding}
    out, weights = layer(query, key, key, **options)
    alone, none = layer(query, key, key, need_weights=False, **options)
    assert none is None and weights.shape == (BATCH, LENGTH, SOURCE + 2 * extra)
    np.testing.assert_allclose(alone.detach().numpy(), out.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(weights.sum(-1).detach().numpy(), 1, atol=1e-6)
    each = layer(query, key, key, average_attn_weights=False, **options)[1]
    assert each.shape == (BATCH, HEADS, LENGTH, SOURCE + 2 * extra)


def test_causal_hint_has_the_bits_of_the_mask():
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, dropout=0.0, batch_first=True)
    x = draw(BATCH, LENGTH, WIDTH)
    mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    hinted = layer(x, src_mask=mask, is_causal=True)
    assert (hinted == layer(x, src_mask=mask)).all()
    nothing = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    padded = layer(x, src_mask=mask, src_key_padding_mask=nothing.float(), is_causal=True)
    assert (hinted == padded).all()


def test_layers_store_no_weights():
    """The masks of a batch are not repeated for its heads, nor are weights stored."""
    length = 600
    layer = nn.TransformerDecoderLayer(WIDTH, 8, 16, dropout=0.0, batch_first=True)
    x = draw(1, length, WIDTH)
    mask = nn.Transformer.generate_square_subsequent_mask(length)
    padding = torch.zeros(1, length)
    call = {"tgt_mask": mask, "tgt_key_padding_mask": padding, "memory_key_padding_mask": padding}
    with torch.no_grad():
        layer(x, x, **call)
        runtime.reset_peak_memory_stats()
        before = runtime.memory_stats()["allocated_bytes.all.current"]
        layer(x, x, **call)
    peak = runtime.memory_stats()["allocated_bytes.all.peak"] - before
    assert peak < 3 * 4 * length * length  # weights of all heads: eight times 4 * length * length


def test_masks_of_halves_are_added_before_the_scores_are_rounded():
    """Both keys have the score 2050; 2049, which the first has without its mask, is no half."""
    layer = nn.MultiheadAttention(1, 1, bias=False, dtype=torch.float16)
    with torch.no_grad():
        layer.in_proj_weight.fill_(1)
    query, key = torch.full((1, 1, 1), 683.0).half(), torch.tensor([3.0, 0.0]).half().view(2, 1, 1)
    for shape in ((1, 2), (1, 1, 2)):
        mask = torch.tensor([1.0, 2050.0]).half().view(shape)
        assert layer(query, key, key, attn_mask=mask)[1].tolist() == [[[0.5, 0.5]]]


def test_errors():
    layer, x = nn.MultiheadAttention(WIDTH, HEADS), torch.zeros(LENGTH, BATCH, WIDTH)
    with pytest.raises(RuntimeError, match="2D attn_mask"):
        layer(x, x, x, attn_mask=torch.zeros(3, 3))
    with pytest.raises(RuntimeError, match="3D attn_mask"):
        layer(x, x, x, attn_mask=torch.zeros(3, LENGTH, LENGTH))
    with pytest.raises(RuntimeError, match="Need attn_mask"):
        layer(x, x, x, is_causal=True)
    with pytest.raises(AssertionError, match="key_padding_mask"):
        layer(x, x, x, key_padding_mask=torch.zeros(BATCH, 2))


def test_blocks_of_transformer_layers_are_not_causal_unless_told():
    class Own(nn.TransformerEncoderLayer):
        def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
            return self.norm1(src + self._sa_block(src, src_mask, src_key_padding_mask))

    torch.manual_seed(0)
    layer = Own(8, 2, 16, dropout=0.0, batch_first=True)
    x = torch.randn(2, 5, 8)
    expected = layer.norm1(x + layer.self_attn(x, x, x, need_weights=False)[0])
    assert layer(x).equal(expected)
    decoder = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    for block in (decoder._sa_block(x, None, None), decoder._mha_block(x, x, None, None)):
        assert block.shape == x.shape
