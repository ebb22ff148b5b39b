"""`linear` and scaled dot-product attention.

Attention is written as its definition (Vaswani et al. 2017): the scores exist as a matrix for now;
the tiled kernel with memory linear in the sequence is a kernel of its own later, under this name.
"""

from __future__ import annotations

import math
from typing import Any

from flambeau import prims
from flambeau.core.definition import op
from flambeau.core.layout import same
from flambeau.core.samples import T, sample
from flambeau.ir.node import Node
from flambeau.ir.size import prod
from flambeau.ops.activation import softmax_value
from flambeau.ops.common import shown
from flambeau.ops.embedding import keep_mask


def _linear_samples() -> Any:
    yield sample(T(3, 4), T(5, 4), T(5))
    yield sample(T(2, 3, 4), T(5, 4))
    yield sample(T(4), T(5, 4), T(5))
    yield sample(T(0, 4), T(5, 4), T(5))
    yield sample(T(70, 40), T(35, 40), T(35))


@op(
    "linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    where="nn.functional",
    promote="keep",
    samples=_linear_samples,
)
def linear(input: Node, weight: Node, bias: Node | None) -> Node:  # noqa: A002
    """input @ weight^T + bias.

    Shape: `(*, K)`, `(N, K)`, `(N)` -> `(*, N)`.

    Raises:
        RuntimeError: inner sizes or dtypes differ.
    """
    inner = input.shape[-1] if input.ndim else 1
    if weight.ndim not in (1, 2) or not input.ndim or not same(inner, weight.shape[-1]):
        raise RuntimeError(
            f"[linear] mat1 and mat2 shapes cannot be multiplied: input is {shown(input.shape)}, "
            f"weight is {shown(weight.shape)}\nhint: weight is (out_features, in_features)"
        )
    if input.dtype != weight.dtype:
        raise RuntimeError(
            f"[linear] mat1 and mat2 must have the same dtype, but got {input.dtype} and "
            f"{weight.dtype}\nhint: cast one of them"
        )
    wide = weight if weight.ndim == 2 else prims.reshape(weight, (1, weight.shape[0]))
    lead = input.shape[:-1]
    rows = prims.reshape(input, (prod(lead), inner))
    out = prims.matmul(rows, prims.permute(wide, (1, 0)))
    if bias is not None:
        out = out + bias
    return prims.reshape(out, (*lead, wide.shape[0]) if weight.ndim == 2 else lead)


def _attention_samples() -> Any:
    yield sample(T(2, 3, 4, 8), T(2, 3, 5, 8), T(2, 3, 5, 6))
    yield sample(T(2, 4, 8), T(2, 4, 8), T(2, 4, 8), is_causal=True)
    yield sample(T(2, 2, 4, 8), T(2, 2, 5, 8), T(2, 2, 5, 8), T(4, 5))
    yield sample(T(2, 2, 4, 8), T(2, 2, 5, 8), T(2, 2, 5, 8), scale=0.5)


def _scores(query: Node, key: Node, factor: float) -> Node:
    order = (*range(key.ndim - 2), key.ndim - 1, key.ndim - 2)
    return prims.matmul(query, prims.permute(key, order)) * factor


def _batched(x: Node, lead: Any) -> Node:
    return prims.broadcast_to(x, (*lead, *x.shape[-2:]))


def _causal(scores: Node) -> Node:
    rows = prims.iota(scores.shape, scores.ndim - 2, "i64")
    columns = prims.iota(scores.shape, scores.ndim - 1, "i64")
    return columns <= rows


@op(
    "_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, "
    "float dropout_p=0.0, bool is_causal=False, float? scale=None, bool enable_gqa=False, "
    "generator? generator=None) -> Tensor",
    where="private",
    promote="keep",
    samples=_attention_samples,
)
def attention(
    query: Node,
    key: Node,
    value: Node,
    attn_mask: Node | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    generator: int,
) -> Node:
    """softmax(Q K^T * scale + mask) V with static choices already made."""
    from flambeau.ops.common import static_size

    if enable_gqa:
        key, value = _repeat_heads(query, key), _repeat_heads(query, value)
    lead = prims.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    query, key, value = (_batched(x, lead) for x in (query, key, value))
    factor = scale if scale is not None else 1.0 / math.sqrt(static_size(query.shape[-1]))
    scores = _scores(query, key, factor)
    if is_causal:
        scores = prims.where(_causal(scores), scores, prims.full_like(-math.inf, scores))
    if attn_mask is not None:
        mask = prims.broadcast_to(attn_mask, scores.shape)
        if mask.dtype == "bool":
            scores = prims.where(mask, scores, prims.full_like(-math.inf, scores))
        else:
            scores = scores + prims.cast(mask, scores.dtype)
    weights = softmax_value(scores, scores.ndim - 1)
    if attn_mask is not None and attn_mask.dtype == "bool":
        any_kept = prims.reduce_dims("max", scores, (scores.ndim - 1,), True) > -math.inf
        kept = prims.broadcast_to(any_kept, weights.shape)
        weights = prims.where(kept, weights, prims.full_like(0, weights))
    if dropout_p > 0.0:
        weights = weights * keep_mask(weights, dropout_p, generator)
    return prims.matmul(weights, value)


def _repeat_heads(query: Node, x: Node) -> Node:
    """Grouped-query attention: each head of x serves several heads of the query."""
    heads, groups = query.shape[-3], x.shape[-3]
    factor = heads // groups
    lead = x.shape[:-3]
    wide = (*lead, groups, factor, *x.shape[-2:])
    dims = (*range(len(lead) + 1), len(lead) + 2, len(lead) + 3)
    repeated = prims.broadcast(x, wide, dims)
    return prims.reshape(repeated, (*lead, heads, *x.shape[-2:]))


@op(
    "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, "
    "Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, *, float? scale=None, "
    "bool enable_gqa=False, generator? generator=None) -> Tensor",
    where="nn.functional",
    promote="keep",
    samples=_attention_samples,
)
def scaled_dot_product_attention(
    query: Node,
    key: Node,
    value: Node,
    attn_mask: Node | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    generator: int,
) -> Node:
    """softmax(Q K^T * scale + mask) V.

    Shape: `(*, L, E)`, `(*, S, E)`, `(*, S, V)` -> `(*, L, V)`; with `enable_gqa` the heads of key
    and value (dimension -3) divide those of the query.

    Args:
        attn_mask: bool (True keeps) or added to the scores; broadcast to `(*, L, S)`.
        is_causal: position i sees keys 0..i; excludes `attn_mask`.
        scale: 1 / sqrt(E) when None.

    Raises:
        RuntimeError: both a mask and `is_causal`.
    """
    if is_causal and attn_mask is not None:
        raise RuntimeError(
            "[scaled_dot_product_attention] explicit attn_mask should not be set when "
            "is_causal=True\nhint: fold the causal mask into attn_mask"
        )
    return attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, generator
    )
