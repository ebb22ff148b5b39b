"""`MultiheadAttention` (Vaswani et al. 2017)."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.ir.lock import importing
from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn import init
from flambeau.nn.messages import problem
from flambeau.nn.modules.linear import NonDynamicallyQuantizableLinear
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention with several heads and its projections.

    Args:
        embed_dim: width E of the query and the result.
        num_heads: number of heads; divides `embed_dim`.
        dropout: of the attention weights.
        bias: whether the projections have biases.
        add_bias_kv: a learnt key and value more.
        add_zero_attn: a key and value of zeros more.
        kdim, vdim: widths of key and value (E).
        batch_first: inputs are `(N, L, E)` instead of `(L, N, E)`.

    Example:
        >>> attention = nn.MultiheadAttention(8, 2, batch_first=True)
        >>> x = torch.zeros(3, 5, 8)
        >>> attention(x, x, x)[0].shape
        torch.Size([3, 5, 8])
    """

    __constants__ = ["batch_first"]
    bias_k: Any
    bias_v: Any

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        _check_positive(embed_dim, num_heads)
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = kdim if kdim is not None else embed_dim
        self.vdim = vdim if vdim is not None else embed_dim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            text = "embed_dim must be divisible by num_heads"
            raise AssertionError(problem("MultiheadAttention", text, "choose a divisor"))
        options = {"device": device, "dtype": dtype}
        self._make_projections(options)
        self.register_parameter(
            "in_proj_bias", Parameter(torch.empty(3 * embed_dim, **options)) if bias else None
        )
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **options)
        if add_bias_kv:
            self.bias_k = Parameter(torch.empty((1, 1, embed_dim), **options))
            self.bias_v = Parameter(torch.empty((1, 1, embed_dim), **options))
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _make_projections(self, options: dict[str, Any]) -> None:
        width = self.embed_dim
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        if self._qkv_same_embed_dim:
            self.in_proj_weight = Parameter(torch.empty((3 * width, width), **options))
            for name in names:
                self.register_parameter(name, None)
        else:
            for name, size in zip(names, (width, self.kdim, self.vdim)):
                setattr(self, name, Parameter(torch.empty((width, size), **options)))
            self.register_parameter("in_proj_weight", None)

    def _reset_parameters(self) -> None:
        if self._qkv_same_embed_dim:
            init.xavier_uniform_(self.in_proj_weight)
        else:
            init.xavier_uniform_(self.q_proj_weight)
            init.xavier_uniform_(self.k_proj_weight)
            init.xavier_uniform_(self.v_proj_weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        if self.bias_k is not None:
            init.xavier_normal_(self.bias_k)
        if self.bias_v is not None:
            init.xavier_normal_(self.bias_v)

    def __setstate__(self, state: dict[str, Any]) -> None:
        state.setdefault("_qkv_same_embed_dim", True)
        super().__setstate__(state)

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Any, Any]:
        """Result and attention weights (None without `need_weights`).

        Args:
            key_padding_mask: `(N, S)`, True at keys nobody sees.
            need_weights: return the weights; without them attention is one kernel.
            attn_mask: `(L, S)` or `(N * heads, L, S)`, True where a query does not see a key.
            average_attn_weights: average the weights over heads.
            is_causal: says that `attn_mask` is the causal one.

        Nested `(N, n, E)` with `batch_first` are attended to sample by sample; `is_causal` needs no
        mask then.
        """
        if query.is_nested:
            with importing:
                from flambeau.nested.attention import multi_head_attention

            return multi_head_attention(
                self,
                (query, key, value),
                (attn_mask, key_padding_mask),
                need_weights,
                average_attn_weights,
                is_causal,
            )
        batched = query.dim() == 3
        if self.batch_first and batched:
            query, key, value = _sequence_first(query, key, value)
        output, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
            **self._separate_weights(),
        )
        if self.batch_first and batched:
            return output.transpose(1, 0), weights
        return output, weights

    def _separate_weights(self) -> dict[str, Any]:
        """Returns whether keys or values have another width than queries, as a reason."""
        if self._qkv_same_embed_dim:
            return {}
        return {
            "use_separate_proj_weight": True,
            "q_proj_weight": self.q_proj_weight,
            "k_proj_weight": self.k_proj_weight,
            "v_proj_weight": self.v_proj_weight,
        }

    def merge_masks(
        self, attn_mask: Any, key_padding_mask: Any, query: Any
    ) -> tuple[Any, int | None]:
        """Both masks as one, and its type: 0 attention, 1 padding, 2 both."""
        mask_type: int | None = None
        merged = None
        if key_padding_mask is not None:
            mask_type, merged = 1, key_padding_mask
        if attn_mask is not None:
            batch, length, _ = query.shape
            mask_type = 2
            if attn_mask.dim() == 3:
                merged = attn_mask.view(batch, -1, length, length)
            else:
                merged = attn_mask.view(1, 1, length, length).expand(batch, self.num_heads, -1, -1)
            if key_padding_mask is not None:
                padding = key_padding_mask.view(batch, 1, 1, length)
                merged = merged + padding.expand(-1, self.num_heads, -1, -1)
        return merged, mask_type


def _check_positive(embed_dim: int, num_heads: int) -> None:
    if embed_dim <= 0 or num_heads <= 0:
        text = (
            "embed_dim and num_heads must be greater than 0, got "
            f"embed_dim={embed_dim} and num_heads={num_heads} instead"
        )
        raise ValueError(problem("MultiheadAttention", text, "give positive numbers"))


def _sequence_first(query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
    """(N, L, E) -> (L, N, E); inputs that are one object stay one object."""
    if key is value:
        if query is key:
            query = key = value = query.transpose(1, 0)
            return query, key, value
        query, key = query.transpose(1, 0), key.transpose(1, 0)
        return query, key, key
    return query.transpose(1, 0), key.transpose(1, 0), value.transpose(1, 0)
