"""`torch.nn.attention.flex_attention` and `varlen` beside the formula over whole matrices."""

from __future__ import annotations

import math

import pytest

import flambeau as torch
from flambeau import runtime
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


KEYS = (1, 5, 130, 1024, 2049, 5000)  # of one query; segments have 1024
FORMS = {
    "plain": {},
    "score_mod": {"score_mod": lambda s, b, h, q, kv: s - (kv - q).abs() * 0.01},
    "block_mask": {"hidden": 3},
    "both": {"score_mod": lambda s, b, h, q, kv: s * (h + 1), "hidden": 3},
    "sums": {"return_lse": True},
    "sums, block_mask": {"return_lse": True, "hidden": 3},
}


def options_of(form, keys):
    options = dict(FORMS[form])
    hidden = options.pop("hidden", None)
    if hidden is not None:
        shown = max(1, keys - hidden)
        options["block_mask"] = create_block_mask(
            lambda b, h, q, kv: kv < shown, None, None, 1, keys
        )
    return options


@pytest.mark.parametrize("heads", [(2, 2), (6, 2), (4, 1)])
@pytest.mark.parametrize("form", FORMS)
def test_one_query_has_the_same_bits_on_any_number_of_threads(form, heads):
    for keys in KEYS:
        torch.manual_seed(0)
        q = torch.randn(2, heads[0], 1, 24)
        k, v = (torch.randn(2, heads[1], keys, size) for size in (24, 40))
        options = options_of(form, keys) | {"enable_gqa": heads[0] != heads[1]}

        def call(q, k, v, options=options):
            output = flex_attention(q, k, v, **options)
            return output if isinstance(output, tuple) else (output,)

        compiled = torch.compile(call)
        found = []
        before = torch.get_num_threads()
        try:
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                found += [call(q, k, v), compiled(q, k, v)]
        finally:
            torch.set_num_threads(before)
        for other in found[1:]:
            assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))
        wide = [t.repeat_interleave(heads[0] // heads[1], 1) for t in (k, v)]
        scores = q @ wide[0].mT / math.sqrt(24)
        if (change := options.get("score_mod")) is not None:
            indices = torch.meshgrid(*(torch.arange(n) for n in scores.shape), indexing="ij")
            scores = change(scores, *indices)
        if (mask := options.get("block_mask")) is not None:
            shown = create_mask(mask.mask_mod, 1, 1, 1, keys)
            scores = scores.masked_fill(~shown, -math.inf)
        expected = (torch.softmax(scores, -1) @ wide[1], torch.logsumexp(scores, -1))
        torch.testing.assert_close(found[0], expected[: len(found[0])])


def test_keys_of_one_query_are_divided():
    q, k = torch.randn(1, 4, 1, 16), torch.randn(1, 2, 5000, 16)
    mask = create_block_mask(lambda b, h, q, kv: kv < 4000, None, None, 1, 5000)

    def call(q, k):
        return flex_attention(q, k, k, block_mask=mask, enable_gqa=True)

    launches = torch.compiler.explain(call, q, k).launches
    read = {launch.name: launch.read for launch in launches}
    assert read["attention_decode_f32"] > k.nbytes and read["attention_join_f32"] > 0
    assert read["attention_f32"] == 0


def test_a_query_alone_has_its_bits_among_others():
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 4, 40, 16), torch.randn(1, 2, 3000, 16), torch.randn(1, 2, 3000, 16)
    mask = create_block_mask(causal, None, None, 40, 3000)
    together = flex_attention(q, k, v, block_mask=mask, enable_gqa=True, return_lse=True)
    for row in (0, 17, 39):
        one = create_block_mask(lambda b, h, q, kv: q + row >= kv, None, None, 1, 3000)  # noqa: B023
        alone = flex_attention(
            q[:, :, row : row + 1], k, v, block_mask=one, enable_gqa=True, return_lse=True
        )
        assert torch.equal(alone[0], together[0][:, :, row : row + 1])
        assert torch.equal(alone[1], together[1][:, :, row : row + 1])


def test_rows_that_see_nothing(qkv):
    q, k, v = qkv
    mask = create_block_mask(lambda b, h, q, kv: q > 3, None, None, 10, 12)
    output, sums = flex_attention(q, k, v, block_mask=mask, return_lse=True)
    assert (output[:, :, :4] == 0).all() and (sums[:, :, :4] == -math.inf).all()
    assert output[:, :, 4:].isfinite().all() and sums[:, :, 4:].isfinite().all()


def test_gradients_of_output_and_sums():
    torch.manual_seed(0)
    shapes = (2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 5, 6)
    q, k, v = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes)
    mask = create_block_mask(near, None, None, 3, 5)
    assert torch.autograd.gradcheck(
        lambda q, k, v: flex_attention(q, k, v, None, mask, enable_gqa=True, return_lse=True),
        (q, k, v),
    )
    assert torch.autograd.gradgradcheck(
        lambda q, k, v: flex_attention(q, k, v, None, mask, enable_gqa=True, return_lse=True),
        (q, k, v),
    )


@pytest.mark.usefixtures("no_garbage")
def test_memory_without_a_function_of_scores_is_linear():
    def peak(length):
        q, k, v = (torch.randn(1, 4, length, 16) for _ in range(3))
        flex_attention(q, k, v)
        runtime.reset_peak_memory_stats()
        before = runtime.memory_stats()["allocated_bytes.all.current"]
        flex_attention(q, k, v)
        return runtime.memory_stats()["allocated_bytes.all.peak"] - before

    assert peak(2048) < 4.5 * peak(512)
