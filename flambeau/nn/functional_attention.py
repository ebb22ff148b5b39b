"""`multi_head_attention_forward`: projections, heads, masks around scaled dot-product attention.

Vaswani et al. 2017. Shapes here are (L, N, E): length, batch, width; heads are folded into the
batch. Part of `nn.functional`, which re-exports it.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import flambeau as torch
from flambeau import _core
from flambeau._core import Tensor
from flambeau.nn.messages import problem

_NAME = "multi_head_attention_forward"


def _check(condition: bool, text: str, kind: type[Exception] = AssertionError) -> None:
    if not condition:
        raise kind(problem(_NAME, text, "see nn.MultiheadAttention for the shapes"))


def check_shapes(
    query: Any, key: Any, value: Any, key_padding_mask: Any, attn_mask: Any, num_heads: int
) -> bool:
    """Whether the input has a batch dimension; all inputs must agree."""
    _check(
        query.dim() in (2, 3),
        "query should be unbatched 2D or batched 3D tensor but received "
        f"{query.dim()}-D query tensor",
    )
    dims = query.dim()
    kind = "batched" if dims == 3 else "unbatched"
    _check(
        key.dim() == dims and value.dim() == dims,
        f"For {kind} ({dims}-D) `query`, expected `key` and `value` to be {dims}-D but found "
        f"{key.dim()}-D and {value.dim()}-D tensors respectively",
    )
    if key_padding_mask is not None:
        _check(
            key_padding_mask.dim() == dims - 1,
            f"For {kind} ({dims}-D) `query`, expected `key_padding_mask` to be `None` or "
            f"{dims - 1}-D but found {key_padding_mask.dim()}-D tensor instead",
        )
    if attn_mask is not None:
        _check(
            attn_mask.dim() in (2, 3),
            f"For {kind} ({dims}-D) `query`, expected `attn_mask` to be `None`, 2-D or 3-D but "
            f"found {attn_mask.dim()}-D tensor instead",
        )
        if dims == 2 and attn_mask.dim() == 3:
            expected = (num_heads, query.shape[0], key.shape[0])
            _check(
                tuple(attn_mask.shape) == expected,
                f"Expected `attn_mask` shape to be {expected} but got {tuple(attn_mask.shape)}",
            )
    return dims == 3


_mha_shape_check = check_shapes  # PyTorch's name


def canonical_mask(
    mask: Any,
    mask_name: str,
    other_type: Any,
    other_name: str,
    target_type: Any,
    check_other: bool = True,
) -> Any:
    """A mask of numbers that are added: -inf where a bool mask is True."""
    if mask is None:
        return None
    is_bool = mask.dtype is _core.bool
    if not is_bool and not mask.is_floating_point():
        text = f"only bool and floating types of {mask_name} are supported"
        raise AssertionError(problem(_NAME, text, "True (or -inf) means: not seen"))
    if check_other and other_type is not None and mask.dtype is not other_type:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type "
            "for both instead.",
            stacklevel=3,
        )
    if not is_bool:
        return mask
    return torch.zeros_like(mask, dtype=target_type).masked_fill_(mask, float("-inf"))


def _in_projection_packed(
    q: Any, k: Any, v: Any, w: Tensor, b: Tensor | None = None
) -> tuple[Any, Any, Any]:
    """One matrix holds the three projections; equal inputs share a product."""
    from flambeau.nn.functional import linear

    width = q.size(-1)
    if k is v and q is k:
        return tuple(linear(q, w, b).split(width, dim=-1))  # type: ignore[return-value]
    if k is v:
        w_q, w_kv = w.split([width, width * 2])
        b_q, b_kv = (None, None) if b is None else b.split([width, width * 2])
        keys, values = linear(k, w_kv, b_kv).split(width, dim=-1)
        return linear(q, w_q, b_q), keys, values
    parts = (None, None, None) if b is None else b.chunk(3)
    results = (linear(x, m, c) for x, m, c in zip((q, k, v), w.chunk(3), parts))
    return tuple(results)  # type: ignore[return-value]


def _in_projection(
    q: Any,
    k: Any,
    v: Any,
    w_q: Any,
    w_k: Any,
    w_v: Any,
    b_q: Any = None,
    b_k: Any = None,
    b_v: Any = None,
) -> tuple[Any, Any, Any]:
    """Three projections by three matrices."""
    from flambeau.nn.functional import linear

    return linear(q, w_q, b_q), linear(k, w_k, b_k), linear(v, w_v, b_v)


def _none_or_dtype(input: Any) -> Any:
    """The dtype of a tensor; None of None."""
    return None if input is None else input.dtype


def _heads(x: Any, heads: int, head_dim: int) -> Any:
    """(L, N, heads * d) -> (N * heads, L, d)."""
    return x.reshape(x.shape[0], x.shape[1] * heads, head_dim).transpose(0, 1)


def _extend(mask: Any, columns: int = 1) -> Any:
    """One more key that everybody sees."""
    from flambeau.nn.functional import pad

    return mask if mask is None else pad(mask, (0, columns))


def _merge_masks(attn_mask: Any, key_padding_mask: Any, batch: int, source: int) -> Any:
    """The padding of the keys added to the attention mask, [batch or 1, heads or 1, L or 1, S]."""
    if key_padding_mask is None:
        return attn_mask
    _check(
        tuple(key_padding_mask.shape) == (batch, source),
        f"expecting key_padding_mask shape of {(batch, source)}, but got {key_padding_mask.shape}",
    )
    wide = key_padding_mask.view(batch, 1, 1, source)
    return wide if attn_mask is None else attn_mask + wide


def _attention_mask(attn_mask: Any, target: int, source: int, batch: int, heads: int) -> Any:
    """A mask of 4 dimensions, its shape checked."""
    if attn_mask is None:
        return None
    dims = attn_mask.dim()
    expected = (target, source) if dims == 2 else (batch * heads, target, source)
    _check(
        tuple(attn_mask.shape) == expected,
        f"The shape of the {dims}D attn_mask is {attn_mask.shape}, but should be {expected}.",
        RuntimeError,
    )
    if dims == 2:
        return attn_mask.unsqueeze(0).unsqueeze(0)
    return attn_mask.view(batch, heads, target, source)


def _scores(q: Any, k: Any, mask: Any) -> Any:
    """q k^T + mask, rounded once: halves lose what a mask of their own size would cost twice."""
    if mask is None:
        return torch.matmul(q, k.transpose(-2, -1))
    batch, heads, target, source = *q.shape[:3], k.size(2)
    if tuple(mask.shape[:2]) != (1, 1):
        mask = mask.expand(batch, heads, *mask.shape[2:]).reshape(batch * heads, *mask.shape[2:])
    else:
        mask = mask.squeeze(0)
    rows, columns = (x.reshape(batch * heads, *x.shape[2:]) for x in (q, k))
    found = torch.baddbmm(mask, rows, columns.transpose(-2, -1))
    return found.view(batch, heads, target, source)


def _with_weights(q: Any, k: Any, v: Any, mask: Any, dropout_p: float) -> tuple[Any, Any]:
    """Attention whose weights are wanted, so they are computed one by one."""
    from flambeau.nn.functional import dropout, softmax

    weights = softmax(_scores(q * math.sqrt(1.0 / float(q.size(-1))), k, mask), dim=-1)
    if dropout_p > 0.0:
        weights = dropout(weights, p=dropout_p)
    return torch.matmul(weights, v), weights


def _with_batch(query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
    """A batch dimension of 1; inputs that are one object stay one object."""
    wide = query.unsqueeze(1)
    wide_key = wide if query is key else key.unsqueeze(1)
    return wide, wide_key, wide_key if key is value else value.unsqueeze(1)


def multi_head_attention_forward(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None,
    k_proj_weight: Any = None,
    v_proj_weight: Any = None,
    static_k: Any = None,
    static_v: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Any, Any]:
    """Attention with several heads.

    Shape: query `(L, N, E)` or `(L, E)`, key and value `(S, N, *)` -> `(L, N, E)` and the weights
    `(N, L, S)` (`(N, heads, L, S)` unless averaged), or None without `need_weights`.

    Args:
        key_padding_mask: `(N, S)`, True (or -inf) at keys nobody sees.
        attn_mask: `(L, S)` or `(N * heads, L, S)`, True (or -inf) where a query does not see a key.
        is_causal: says that `attn_mask` is the causal one.
        static_k, static_v: projected keys and values to use instead.
    """
    batched = check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = _with_batch(query, key, value)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    _check_width(query, embed_dim_to_check, num_heads)
    attn_mask, key_padding_mask, is_causal = _prepare_masks(
        query, attn_mask, key_padding_mask, is_causal, need_weights
    )
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    projected = _project((query, key, value), in_proj_weight, in_proj_bias, separate)
    (target, batch), source = query.shape[:2], projected[1].shape[0]
    masks = (_attention_mask(attn_mask, target, source, batch, num_heads), key_padding_mask)
    extra = (bias_k, bias_v, static_k, static_v)
    qkv, masks = _keys_and_values(projected, masks, num_heads, extra, add_zero_attn)
    mask = _merge_masks(*masks, batch, qkv[1].size(2))
    out, weights = _attend(qkv, mask, dropout_p if training else 0.0, need_weights, is_causal)
    return _finish(out, weights, (out_proj_weight, out_proj_bias), average_attn_weights, batched)


def _check_width(query: Any, expected: int, heads: int) -> None:
    width = query.shape[-1]
    _check(width == expected, f"was expecting embedding dimension of {expected}, but got {width}")
    _check(width % heads == 0, f"embed_dim {width} not divisible by num_heads {heads}")


def _prepare_masks(
    query: Any, attn_mask: Any, key_padding_mask: Any, is_causal: bool, need_weights: bool
) -> tuple[Any, Any, bool]:
    key_padding_mask = canonical_mask(
        key_padding_mask,
        "key_padding_mask",
        None if attn_mask is None else attn_mask.dtype,
        "attn_mask",
        query.dtype,
    )
    if is_causal and attn_mask is None:
        text = "Need attn_mask if specifying the is_causal hint."
        raise RuntimeError(problem(_NAME, text, "pass the causal mask too"))
    if is_causal and key_padding_mask is None and not need_weights:
        return None, None, True
    attn_mask = canonical_mask(attn_mask, "attn_mask", None, "", query.dtype, False)
    return attn_mask, key_padding_mask, False


def _project(
    inputs: tuple[Any, Any, Any], weight: Tensor, bias: Tensor | None, separate: Any
) -> Any:
    query, key, value = inputs
    if separate is None:
        _check(
            tuple(key.shape) == tuple(value.shape),
            f"key shape {key.shape} does not match value shape {value.shape}",
        )
        _check(weight is not None, "use_separate_proj_weight is False but in_proj_weight is None")
        return _in_projection_packed(query, key, value, weight, bias)
    _check(
        tuple(key.shape[:2]) == tuple(value.shape[:2]),
        f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}",
    )
    parts = (None, None, None) if bias is None else bias.chunk(3)
    for name, matrix in zip("qkv", separate):
        text = f"use_separate_proj_weight is True but {name}_proj_weight is None"
        _check(matrix is not None, text)
    return _in_projection(*inputs, *separate, *parts)


def _keys_and_values(
    projected: tuple[Any, Any, Any],
    masks: tuple[Any, Any],
    heads: int,
    extra: tuple[Any, Any, Any, Any],
    add_zero: bool,
) -> tuple[tuple[Any, Any, Any], tuple[Any, Any]]:
    """Queries, keys and values as (N, heads, L, d), with the keys that are added to the given ones;
    everybody sees these."""
    q, k, v = projected
    bias_k, bias_v, static_k, static_v = extra
    batch, width = q.shape[1:]
    if bias_k is not None and bias_v is not None:
        k = torch.cat([k, bias_k.repeat(1, batch, 1)])
        v = torch.cat([v, bias_v.repeat(1, batch, 1)])
        masks = (_extend(masks[0]), _extend(masks[1]))
    given = ((q, None), (k, static_k), (v, static_v))
    q, k, v = (_heads(x, heads, width // heads) if own is None else own for x, own in given)
    q, k, v = (x.view(batch, heads, x.size(1), x.size(2)) for x in (q, k, v))
    if add_zero:
        zeros = torch.zeros((batch, heads, 1, q.size(3)), dtype=k.dtype, device=k.device)
        k, v = torch.cat([k, zeros], dim=2), torch.cat([v, zeros], dim=2)
        masks = (_extend(masks[0]), _extend(masks[1]))
    return (q, k, v), masks


def _attend(
    qkv: tuple[Any, Any, Any], mask: Any, dropout_p: float, need_weights: bool, is_causal: bool
) -> tuple[Any, Any]:
    """The result, (N, heads, L, d), and the weights, if wanted: without them, one kernel."""
    from flambeau.nn.functional import scaled_dot_product_attention

    if need_weights:
        return _with_weights(*qkv, mask, dropout_p)
    return scaled_dot_product_attention(*qkv, mask, dropout_p, is_causal), None


def _finish(
    out: Any, weights: Any, projection: tuple[Any, Any], average: bool, batched: bool
) -> tuple[Any, Any]:
    """The projected result, (L, N, E), and the weights, over all heads or averaged."""
    from flambeau.nn.functional import linear

    batch, heads, target, head_dim = out.shape
    out = out.permute(2, 0, 1, 3).reshape(target * batch, heads * head_dim)
    out = linear(out, *projection)
    out = out.view(target, batch, out.size(1))
    if weights is not None and average:
        weights = weights.mean(dim=1)
    if batched:
        return out, weights
    return out.squeeze(1), None if weights is None else weights.squeeze(0)
