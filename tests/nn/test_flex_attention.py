"""`torch.nn.attention.flex_attention` and `varlen` beside the formula over whole matrices."""

from __future__ import annotations

import math

import pytest

import flambeau as torch
from flambeau.nn.attention import implementations, varlen
from flambeau.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    noop_mask,
    or_masks,
)


def causal(b, h, q, kv):
    return q >= kv


def near(b, h, q, kv):
    return (q - kv).abs() < 3


def reference(q, k, v, shown=None, bias=0.0, scale=None):
    scores = q @ k.mT * (scale or 1 / math.sqrt(q.shape[-1])) + bias
    if shown is not None:
        scores = scores.masked_fill(~shown, -math.inf)
    return torch.nan_to_num(torch.softmax(scores, -1), 0.0) @ v


@pytest.fixture
def qkv():
    torch.manual_seed(0)
    return torch.randn(2, 4, 10, 8), torch.randn(2, 4, 12, 8), torch.randn(2, 4, 12, 5)


def test_scores_and_masks(qkv):
    q, k, v = qkv
    bias = torch.randn(4, 10, 12)
    mask = create_block_mask(causal, None, None, 10, 12, BLOCK_SIZE=4)
    shown = create_mask(causal, 2, 4, 10, 12)
    cases = (
        ({}, reference(q, k, v)),
        ({"block_mask": mask}, reference(q, k, v, shown)),
        (
            {"score_mod": lambda s, b, h, i, j: s + bias[h, i, j], "block_mask": mask},
            reference(q, k, v, shown, bias),
        ),
        ({"scale": 0.3}, reference(q, k, v, scale=0.3)),
    )
    for options, expected in cases:
        torch.testing.assert_close(flex_attention(q, k, v, **options), expected)
    hidden = flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s * 0 - math.inf)
    assert torch.equal(hidden, torch.zeros_like(hidden))


def test_gradients_and_compiled_calls(qkv):
    q, k, v = (t.requires_grad_() for t in qkv)
    mask = create_block_mask(causal, None, None, 10, 12, BLOCK_SIZE=4)

    def call(q, k, v):
        return flex_attention(q, k, v, lambda s, b, h, i, j: s - (i - j).abs() * 0.1, mask)

    eager, compiled = call(q, k, v), torch.compile(call)(q, k, v)
    assert torch.equal(eager, compiled)
    for a, b in zip(
        torch.autograd.grad(eager.sin().sum(), (q, k, v)),
        torch.autograd.grad(compiled.sin().sum(), (q, k, v)),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_groups_of_heads_and_sums(qkv):
    q, k, v = qkv
    output, sums = flex_attention(
        q, k[:, :2], v[:, :2], enable_gqa=True, return_aux=AuxRequest(lse=True)
    )
    keys, values = (t[:, :2].repeat_interleave(2, 1) for t in (k, v))
    torch.testing.assert_close(output, reference(q, keys, values))
    torch.testing.assert_close(sums.lse, torch.logsumexp(q @ keys.mT / math.sqrt(8), -1))
    with pytest.raises(ValueError, match="enable_gqa=True"):
        flex_attention(q, k[:, :2], v[:, :2])
    with pytest.raises(NotImplementedError, match="max scores"):
        flex_attention(q, k, v, return_aux=AuxRequest(max_scores=True))
    with pytest.raises(ValueError, match="larger length"):
        flex_attention(q, k, v, block_mask=create_block_mask(causal, 1, 1, 300, 300))


def test_block_masks():
    mask = create_block_mask(causal, None, None, 10, 12, BLOCK_SIZE=4)
    assert mask.kv_num_blocks.tolist() == [[[1, 1, 3]]]
    assert mask.full_kv_num_blocks.tolist() == [[[0, 1, 0]]]
    assert mask.q_indices.tolist() == [[[[0, 2, 1], [1, 2, 0], [2, 0, 1]]]]
    assert mask.to_dense().tolist() == [[[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]]
    assert mask.shape == (1, 1, 10, 12) and round(mask.sparsity(), 6) == 20 and mask.numel() == 120
    window = create_block_mask(and_masks(causal, near), 2, None, 10, 12, BLOCK_SIZE=(4, 2))
    assert window.to_dense().sum() == 14 and window[0].shape == (1, 1, 10, 12)
    assert window._adjust(5, 6).to_dense()[0, 0].tolist() == [[1, 1, 0], [0, 1, 1]]
    either = create_mask(or_masks(causal, near), None, None, 3, 3)
    assert either.all() and create_mask(noop_mask, None, None, 2, 3).all()
    scored = create_mask(
        lambda s, b, h, q, kv: torch.where(q >= kv, s, -math.inf), None, None, 3, 3
    )
    assert torch.equal(scored, create_mask(causal, None, None, 3, 3))
    assert window.to("cpu").to_dense().equal(window.to_dense())


def test_blocks_alone_make_a_mask(qkv):
    q, k, v = qkv
    blocks = torch.tensor([[[1, 1, 2]]], dtype=torch.int32)
    which = torch.tensor([[[[0, 1, 2], [1, 0, 2], [0, 2, 1]]]], dtype=torch.int32)
    mask = BlockMask.from_kv_blocks(blocks, which, BLOCK_SIZE=4, seq_lengths=(10, 12))
    shown = mask.to_dense().bool().repeat_interleave(4, -1).repeat_interleave(4, -2)[..., :10, :]
    expected = reference(q, k, v, shown)
    torch.testing.assert_close(flex_attention(q, k, v, block_mask=mask), expected)


def test_sequences_of_several_lengths():
    torch.manual_seed(0)
    starts = torch.tensor([0, 3, 3, 8], dtype=torch.int32)
    q, k, v = torch.randn(8, 4, 6), torch.randn(8, 2, 6), torch.randn(8, 2, 6)
    output, sums = varlen.varlen_attn(
        q, k, v, starts, starts, 5, 5, enable_gqa=True, window_size=(-1, 0),
        return_aux=varlen.AuxRequest(lse=True),
    )  # fmt: skip
    assert sums.shape == (4, 8)
    for a, b in ((0, 3), (3, 8)):
        parts = [t[a:b].transpose(0, 1) for t in (q, k, v)]
        expected = torch.nn.functional.scaled_dot_product_attention(
            *(p[None] for p in parts), is_causal=True, enable_gqa=True
        )[0]
        torch.testing.assert_close(output[a:b], expected.transpose(0, 1))
    out = torch.empty_like(output)
    varlen.varlen_attn_out(out, q, k, v, starts, None, 5, 5, enable_gqa=True)
    assert not torch.equal(out, output)


def test_registered_implementations(monkeypatch):
    attention, calls = torch.nn.attention, []
    monkeypatch.setattr(implementations, "_registered", {})

    class Handle:
        def remove(self):
            calls.append("removed")

    attention.register_flash_attention_impl("mine", register_fn=Handle)
    attention.activate_flash_attention_impl("mine")
    assert attention.current_flash_attention_impl() == "mine"
    attention.restore_flash_attention_impl()
    assert calls == ["removed"] and attention.current_flash_attention_impl() is None
    with pytest.raises(ValueError, match="Unknown flash attention impl"):
        attention.activate_flash_attention_impl("FA3")
