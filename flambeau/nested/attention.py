"""Attention of jagged tensors: every sample attends to itself, or to its partner.

Samples are filled up and attended to by one kernel, which masks what was filled up; where lengths
differ so much that most of its work would be on filling, samples are attended to one by one. A row
of attention has the same bits either way (docs/design.md § 3).
"""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.core.tensors import Tensor
from flambeau.nested import padded
from flambeau.nested.tensor import JaggedTensor, NestedTensor, jagged, refuse

_NAME = "scaled_dot_product_attention"
# One by one where filled-up samples are this many times the work of the samples themselves.
WASTE = 4.0


def attention(
    query: Tensor,
    key: Tensor,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(Q K^T * scale) V per sample: `(B, heads, n, E)` or `(B, n, E)`.

    Args:
        is_causal: row i of a sample sees rows 0..i of its keys.

    Raises:
        ValueError: a mask is given.
        RuntimeError: some operands are dense, or keys and values do not share offsets.
    """
    if attn_mask is not None:
        raise ValueError(
            f"[{_NAME}] Masks are not yet supported!\nhint: is_causal=True, or to_padded_tensor()"
        )
    tensors = (query, key, value)
    if not all(isinstance(x, JaggedTensor) for x in tensors):
        refuse(_NAME, "Expected query, key, value to be nested tensors, not some of them dense",
               "make all of them nested")  # fmt: skip
    if any(x._ragged_idx != x.dim() - 2 or x.dim() != query.dim() for x in tensors):
        refuse(_NAME, "the ragged dimension of query, key and value is the last but one",
               "transpose(1, 2) puts the heads in front")  # fmt: skip
    if key._ragged is not value._ragged and not key._ragged.same_parts(value._ragged):
        refuse(_NAME, "keys and values have different lengths", "they share offsets")
    if query._ragged.batch != key._ragged.batch:
        refuse(_NAME, "queries and keys are batches of different sizes", "one key per query")
    options = {"dropout_p": dropout_p, "scale": scale, "enable_gqa": enable_gqa}
    one_by_one = dropout_p > 0.0 or _wasteful(query._ragged, key._ragged)
    function = _one_by_one if one_by_one else _filled_up
    return function(query, key, value, is_causal, options)


def _wasteful(queries: Any, keys: Any) -> bool:
    """Whether most of the filled-up samples' work would be on what fills up."""
    needed = sum(q * k for (_, q), (_, k) in zip(queries.spans, keys.spans, strict=True))
    return queries.batch * queries.longest * keys.longest > WASTE * max(needed, 1)


def _filled_up(query: Tensor, key: Tensor, value: Any, is_causal: bool, options: Any) -> Tensor:
    q, k, v = (padded.to_dense(x, 0) for x in (query, key, value))
    if 0 in q.shape or 0 in k.shape:
        return _one_by_one(query, key, value, is_causal, options)
    own = query._ragged is key._ragged
    mask = None if is_causal and own else _mask(query, key, is_causal)
    dense = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, mask, is_causal=is_causal and mask is None, **options
    )
    r = query._ragged_idx
    rows = query._kept.shape[r - 1]
    return jagged(padded.to_values(dense, query._ragged, r, rows), query._ragged, r)


def _mask(query: Tensor, key: Tensor, is_causal: bool) -> Any:
    """(B, 1.., 1 or L, S): which keys there are; rows past the end see a key, whatever it is."""
    ragged = key._ragged
    steps = torch.arange(ragged.longest, device=key.device)
    seen = (steps < ragged.counts().unsqueeze(1)).unsqueeze(1)
    if is_causal:
        rows = torch.arange(query._ragged.longest, device=key.device).unsqueeze(1)
        seen = seen & (steps <= rows)
    return seen.unsqueeze(1) if query.dim() == 4 else seen


def _one_by_one(query: Tensor, key: Tensor, value: Any, is_causal: bool, options: Any) -> Tensor:
    triples = zip(query._parts(), key._parts(), value._parts(), strict=True)
    attend = torch.nn.functional.scaled_dot_product_attention
    results = [attend(*(x.unsqueeze(0) for x in t), is_causal=is_causal, **options).squeeze(0)
             for t in triples]  # fmt: skip
    d = query._ragged_idx - 1
    if query._ragged.lengths is None:
        return jagged(torch.cat(results, d), query._ragged, d + 1)
    from flambeau.nested.ragged import ragged_from_lengths

    counts = [x.shape[d] for x in results]
    return jagged(torch.cat(results, d), ragged_from_lengths(counts, query.device), d + 1)


# ------------------------------------------------------------------------------ several heads
def multi_head_attention(
    module: Any,
    inputs: tuple[Any, Any, Any],
    masks: tuple[Any, Any],
    need_weights: bool,
    average: bool,
    is_causal: bool,
) -> tuple[Any, Any]:
    """Computes `nn.MultiheadAttention` for nested `(B, n, E)`, in training, too.

    Returns:
        The nested result; and the weights `(B, L, S)`, dense and 0 behind the ends, or None.

    Raises:
        AssertionError: a mask that is not the causal one, added keys, dense operands.
    """
    _check_module(module, inputs, masks, is_causal)
    q, k, v = _projected(module, *inputs)
    dropout = module.dropout if module.training else 0.0
    attend = torch.nn.functional.scaled_dot_product_attention
    out = attend(q, k, v, dropout_p=dropout, is_causal=is_causal).transpose(1, 2).flatten(-2)
    result = torch.nn.functional.linear(out, module.out_proj.weight, module.out_proj.bias)
    if not need_weights:
        return result, None
    weights = _weights(q, k, is_causal)
    return result, weights.mean(1) if average else weights


def _check_module(module: Any, inputs: Any, masks: Any, is_causal: bool) -> None:
    attn_mask, key_padding_mask = masks
    blocked = [
        (key_padding_mask is not None, "a key padding mask", "nested samples have no padding"),
        (attn_mask is not None and not is_causal, "attn_mask", "is_causal=True, or pad"),
        (module.bias_k is not None, "add_bias_kv", "pad the samples"),
        (module.add_zero_attn, "add_zero_attn", "pad the samples"),
        (not module.batch_first, "batch_first=False", "batch_first=True"),
        (not all(isinstance(x, NestedTensor) for x in inputs), "dense operands", "nest them"),
    ]
    for bad, what, hint in blocked:
        if bad:
            raise AssertionError(
                f"[MultiheadAttention] not implemented for nested tensors: {what}\nhint: {hint}"
            )


def _projected(module: Any, query: Tensor, key: Tensor, value: Any) -> list[Any]:
    """Queries, keys and values as (B, heads, n, E / heads)."""
    linear = torch.nn.functional.linear
    bias, heads = module.in_proj_bias, module.num_heads
    if query is key is value and module._qkv_same_embed_dim:
        joint = linear(query, module.in_proj_weight, bias).chunk(3, -1)
        return [_heads(x, heads) for x in joint]
    weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    if module._qkv_same_embed_dim:
        weights = module.in_proj_weight.chunk(3)
    parts = (None, None, None) if bias is None else bias.chunk(3)
    triples = zip((query, key, value), weights, parts, strict=True)
    return [_heads(linear(x, w, b), heads) for x, w, b in triples]


def _heads(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _weights(query: Tensor, key: Tensor, is_causal: bool) -> Any:
    """(B, heads, L, S): softmax of the scores; 0 where a sample has no query or key."""
    q, k = (x.to_padded_tensor(0.0) for x in (query, key))
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    rows, columns = (
        torch.ones_like(x.select(-1, 0)).to_padded_tensor(0.0).to(torch.bool) for x in (query, key)
    )
    seen = rows.unsqueeze(-1) & columns.unsqueeze(-2)
    if is_causal:
        seen = seen & seen.new_ones(seen.shape[-2:]).tril()
    return scores.masked_fill(~seen, -math.inf).softmax(-1).masked_fill(~seen, 0.0)
