"""Inner operators of attention: scores, fused kernels' names, several heads, encoder layers."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import flambeau as torch
from flambeau.backends import attention as kinds
from flambeau.decompositions.inner_gradients import gradients
from flambeau.decompositions.listed import listed
from flambeau.decompositions.listed_layers import _masked
from flambeau.ir.failure import failure
from flambeau.nested.attention import multi_head_attention
from flambeau.nn import functional
from flambeau.ops import aten

__all__: list[str] = []

Tensor = Any
Value = Any


def _scores(
    query: Tensor, key: Tensor, mask: Value, is_causal: bool, scale: float | None
) -> Tensor:
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ key.mT * factor
    if is_causal:
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        mask = ones.tril()
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else scores + mask


@listed("_scaled_dot_product_attention_math", "_scaled_dot_product_attention_math_for_mps")
def _attention_math(
    query: Tensor, key: Tensor, value: Tensor, mask: Value, dropout_p: float, is_causal: bool,
    dropout_mask: Value, scale: float | None, enable_gqa: bool,
) -> Value:  # fmt: skip
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(groups, -3) for x in (key, value))
    weights = aten._safe_softmax(_scores(query, key, mask, is_causal, scale), -1)
    dropped = weights
    if dropout_mask is not None:
        dropped = weights.masked_fill(~dropout_mask, 0.0) / (1 - dropout_p)
    elif dropout_p:
        dropped = functional.dropout(weights, dropout_p)
    return dropped @ value, weights


def _no_dropout(name: str, dropout_p: float) -> None:
    if dropout_p:
        problem = (
            f"dropout_p is {dropout_p}: the stream of another device is not part of this build"
        )
        hint = "dropout_p=0, or nn.functional.scaled_dot_product_attention"
        raise failure(NotImplementedError, f"aten.{name}", problem, hint)


@listed("_scaled_dot_product_efficient_attention")
def _efficient_attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Value, compute_log: bool, dropout_p: float,
    is_causal: bool, scale: float | None,
) -> Value:  # fmt: skip
    _no_dropout("_scaled_dot_product_efficient_attention", dropout_p)
    result = functional.scaled_dot_product_attention(
        query, key, value, bias, is_causal=is_causal, scale=scale
    )
    sums = _scores(query, key, bias, is_causal, scale).float().logsumexp(-1)
    seed = torch.zeros((), dtype=torch.int64)
    return result, sums if compute_log else sums[..., :0], seed, seed.clone()


@listed("_scaled_dot_product_efficient_attention_backward")
def _efficient_attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Value, out: Tensor,
    logsumexp: Tensor, seed: Tensor, offset: Tensor, dropout_p: float, mask: Value,
    is_causal: bool, scale: float | None,
) -> Value:  # fmt: skip
    _no_dropout("_scaled_dot_product_efficient_attention_backward", dropout_p)

    def attend(query: Tensor, key: Tensor, value: Tensor, bias: Value) -> Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, bias, is_causal=is_causal, scale=scale
        )

    return _masked(gradients(attend, [query, key, value, bias], grad), mask)


@listed("_scaled_dot_product_flash_attention")
def _flash_attention(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float, is_causal: bool,
    return_debug_mask: bool, scale: float | None,
) -> Value:  # fmt: skip
    _no_dropout("_scaled_dot_product_flash_attention", dropout_p)
    result, sums, seed, offset = _efficient_attention(
        query, key, value, None, True, 0.0, is_causal, scale
    )
    lengths = [torch.zeros(0, dtype=torch.int32) for _ in range(2)]
    sizes = (query.shape[-2], key.shape[-2])
    return result, sums, *lengths, *sizes, seed, offset, query.new_empty((0,))


@listed("_scaled_dot_product_flash_attention_backward")
def _flash_attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor,
    cum_q: Tensor, cum_k: Tensor, max_q: int, max_k: int, dropout_p: float, is_causal: bool,
    seed: Tensor, offset: Tensor, scale: float | None,
) -> Value:  # fmt: skip
    return _efficient_attention_backward(
        grad, query, key, value, None, out, logsumexp, seed, offset, dropout_p,
        (True, True, True, False), is_causal, scale,
    )[:3]  # fmt: skip


def _hidden(scores: Tensor, mask: Value, mask_type: int | None) -> Value:
    """A mask that is true where a score does not count, in the shape of the scores."""
    if mask is None or mask_type == 2 or mask.ndim == scores.ndim:
        return mask
    return mask[:, None, None, :] if mask_type == 1 else mask


@listed("_masked_softmax")
def _masked_softmax(self: Tensor, mask: Tensor, dim: Value, mask_type: Value) -> Tensor:
    hidden = _hidden(self, mask, mask_type).expand(self.shape)
    return self.masked_fill(hidden, -math.inf).softmax(-1 if dim is None else dim)


@listed("_masked_softmax_backward")
def _masked_softmax_backward(grad: Tensor, output: Tensor, mask: Tensor, dim: Value) -> Tensor:
    hidden, axis = mask.expand(output.shape), output.ndim - 1 if dim is None else dim
    plain = output.masked_fill(hidden, 0.0)
    return torch._softmax_backward_data(grad, plain, axis, grad.dtype)


@listed("_fused_sdp_choice")
def _fused_sdp_choice(
    query: Tensor, key: Tensor, value: Tensor, mask: Value, dropout_p: float, is_causal: bool,
    scale: Value, enable_gqa: bool,
) -> int:  # fmt: skip
    return kinds.kind_of(query, key, value, mask, dropout_p, enable_gqa)


# ------------------------------------------------------------------------------ several heads
@listed("_transform_bias_rescale_qkv")
def _transform_bias_rescale_qkv(qkv: Tensor, bias: Tensor, heads: int) -> Value:
    total = (qkv.to_padded_tensor(0.0) if qkv.is_nested else qkv) + bias
    parts = total.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4).contiguous()
    query, key, value = parts.unbind(0)
    return query * (1 / math.sqrt(query.shape[-1])), key, value


def _check_heads(name: str, query: Tensor, key: Tensor, value: Tensor, embed: Value) -> None:
    width, heads, mask, mask_type = embed
    if query.dim() != 3:
        problem, hint = f"expected 3-D `query`, got {query.dim()}-D tensor", "(batch, n, width)"
    elif not query.is_nested and not query.shape == key.shape == value.shape:
        problem, hint = "expected `query`/`key`/`value` shapes to match", "nn.MultiheadAttention"
    elif width % heads:
        problem, hint = "`embed_dim` must divide evenly by `num_heads`", "another number of heads"
    elif mask is not None and mask_type is None and mask.ndim != 4:
        problem, hint = "Mask Type should be defined", "0: (L, L), 1: padding, 2: of all heads"
    else:
        return
    raise failure(RuntimeError, name, problem, hint)


@listed("_native_multi_head_attention")
def _native_multi_head_attention(
    query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, qkv_weight: Tensor,
    qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor, mask: Value, need_weights: bool,
    average: bool, mask_type: Value,
) -> Value:  # fmt: skip
    name = "_native_multi_head_attention"
    _check_heads(name, query, key, value, (width, heads, mask, mask_type))
    if query.is_nested:
        module = SimpleNamespace(
            dropout=0.0, training=False, bias_k=None, add_zero_attn=False, batch_first=True,
            in_proj_weight=qkv_weight, in_proj_bias=qkv_bias, num_heads=heads,
            out_proj=SimpleNamespace(weight=proj_weight, bias=proj_bias), _qkv_same_embed_dim=True,
            q_proj_weight=None, k_proj_weight=None, v_proj_weight=None,
        )  # fmt: skip
        inputs = (query, key, value)
        return multi_head_attention(module, inputs, (mask, None), need_weights, average, False)
    hidden = None if mask is None else mask.to(torch.bool)
    padding = hidden if mask_type == 1 else None
    if padding is not None or hidden is None:
        hidden = None
    elif hidden.ndim == 4:
        hidden = hidden.flatten(0, 1)
    result, weights = functional.multi_head_attention_forward(
        *[x.transpose(0, 1) for x in (query, key, value)], width, heads, qkv_weight, qkv_bias,
        None, None, False, 0.0, proj_weight, proj_bias, training=False, key_padding_mask=padding,
        need_weights=need_weights, attn_mask=hidden, average_attn_weights=average,
    )  # fmt: skip
    return result.transpose(0, 1).contiguous(), weights


@listed("_transformer_encoder_layer_fwd")
def _transformer_encoder_layer_fwd(
    src: Tensor, width: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor,
    proj_bias: Tensor, use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Tensor,
    norm_bias_1: Tensor, norm_weight_2: Tensor, norm_bias_2: Tensor, ffn_weight_1: Tensor,
    ffn_bias_1: Tensor, ffn_weight_2: Tensor, ffn_bias_2: Tensor, mask: Value, mask_type: Value,
) -> Tensor:  # fmt: skip
    def first_norm(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (width,), norm_weight_1, norm_bias_1, eps)

    def second_norm(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (width,), norm_weight_2, norm_bias_2, eps)

    def attend(x: Tensor) -> Tensor:
        return _native_multi_head_attention(
            x, x, x, width, heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False,
            True, mask_type,
        )[0]  # fmt: skip

    def feed_forward(x: Tensor) -> Tensor:
        inner = functional.linear(x, ffn_weight_1, ffn_bias_1)
        inner = functional.gelu(inner) if use_gelu else torch.relu(inner)
        return functional.linear(inner, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attend(first_norm(src))
        return x + feed_forward(second_norm(x))
    x = first_norm(src + attend(src))
    return second_norm(x + feed_forward(x))
