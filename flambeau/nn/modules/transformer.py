"""Transformer encoder and decoder (Vaswani et al. 2017)."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.core.warned import warn_once
from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.functional_attention import canonical_mask
from flambeau.nn.init import xavier_uniform_
from flambeau.nn.messages import problem
from flambeau.nn.modules.container import ModuleList
from flambeau.nn.modules.dropout import Dropout
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.multihead import MultiheadAttention
from flambeau.nn.modules.normalization import LayerNorm

__all__ = [
    "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer",
]  # fmt: skip


def _generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Any:
    """-inf above the diagonal: position i sees positions 0..i."""
    full = torch.full((sz, sz), float("-inf"), dtype=dtype, device=device)
    return torch.triu(full, diagonal=1)


def _detect_is_causal_mask(mask: Any, is_causal: bool | None = None, size: Any = None) -> bool:
    """Whether a mask is the causal one, when the caller does not say."""
    make_causal = is_causal is True
    if is_causal is None and mask is not None:
        extent = size if size is not None else mask.size(-2)
        expected = _generate_square_subsequent_mask(extent, device=mask.device, dtype=mask.dtype)
        if mask.size() == expected.size():
            make_causal = bool((mask == expected).all())
    return make_causal


def _get_seq_len(src: Any, batch_first: bool) -> int | None:
    if src.is_nested:
        return None
    if src.dim() == 2:
        return src.size(0)
    return src.size(1 if batch_first else 0)


def _get_clones(module: Any, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


def _get_activation_fn(activation: str) -> Callable[[Any], Any]:
    if activation == "relu":
        return F.relu
    if activation == "gelu":
        return F.gelu
    text = f"activation should be relu/gelu, not {activation}"
    raise RuntimeError(problem("Transformer", text, "pass a function for others"))


class Transformer(Module):
    """Encoder and decoder.

    Args:
        d_model, nhead: width and number of heads.
        num_encoder_layers, num_decoder_layers: depths.
        dim_feedforward, dropout, activation, layer_norm_eps, norm_first, bias: of the layers.
        custom_encoder, custom_decoder: used instead.
        batch_first: tensors are `(N, L, E)` instead of `(L, N, E)`.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Any], Any] = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
                   batch_first, norm_first, bias, device, dtype)  # fmt: skip

        def final_norm() -> Any:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype)

        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            layer = TransformerEncoderLayer(*options)
            self.encoder = TransformerEncoder(layer, num_encoder_layers, final_norm())
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            decoder_layer = TransformerDecoderLayer(*options)
            self.decoder = TransformerDecoder(decoder_layer, num_decoder_layers, final_norm())
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: Any,
        tgt: Any,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Any:
        """Encodes `src`, decodes `tgt`: shape of `tgt`.

        Raises:
            RuntimeError: batch sizes or widths differ.
        """
        batched = src.dim() == 3
        dim = 0 if self.batch_first else 1
        if batched and src.size(dim) != tgt.size(dim):
            text = "the batch number of src and tgt must be equal"
            raise RuntimeError(problem("Transformer", text, f"{src.shape}, {tgt.shape}"))
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            text = "the feature number of src and tgt must be equal to d_model"
            raise RuntimeError(problem("Transformer", text, f"d_model={self.d_model}"))
        memory = self.encoder(
            src,
            mask=src_mask,
            src_key_padding_mask=src_key_padding_mask,
            is_causal=src_is_causal,
        )
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Any:
        """The causal mask `(sz, sz)`."""
        return _generate_square_subsequent_mask(sz, dtype=dtype, device=device)

    def _reset_parameters(self) -> None:
        for parameter in self.parameters():
            if parameter.dim() > 1:
                xavier_uniform_(parameter)


class TransformerEncoder(Module):
    """A stack of encoder layers.

    Args:
        encoder_layer: the layer; it is copied.
        num_layers: how often.
        norm: applied at the end.
        enable_nested_tensor: whether, in evaluation without gradients, the layers' results at
            padded positions are zeros; see `use_nested_tensor` for layers of which they never are.
        mask_check: whether that needs padding that stands behind the sequences.
    """

    __constants__ = ["norm"]

    def __init__(
        self,
        encoder_layer: Any,
        num_layers: int,
        norm: Any = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        reason = _why_padding_counts(encoder_layer)
        self.use_nested_tensor = enable_nested_tensor and not reason
        self.mask_check = mask_check
        if enable_nested_tensor and reason:
            warnings.warn(
                "enable_nested_tensor is True, but self.use_nested_tensor is False because "
                f"encoder_layer{reason}",
                stacklevel=2,
            )

    def forward(
        self,
        src: Any,
        mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool | None = None,
    ) -> Any:
        """Passes `src` through all layers."""
        src_key_padding_mask = canonical_mask(
            src_key_padding_mask,
            "src_key_padding_mask",
            None if mask is None else mask.dtype,
            "mask",
            src.dtype,
        )
        mask = canonical_mask(mask, "mask", None, "", src.dtype, False)
        first = self.layers[0]
        length = _get_seq_len(src, first.self_attn.batch_first) if len(self.layers) else None
        causal = _detect_is_causal_mask(mask, is_causal, length)
        output = src
        for layer in self.layers:
            output = layer(
                output,
                src_mask=mask,
                is_causal=causal,
                src_key_padding_mask=src_key_padding_mask,
            )
        if self._drops_padding(src, mask, src_key_padding_mask):
            output = self._without_padding(output, src_key_padding_mask)
        return output if self.norm is None else self.norm(output)

    def _drops_padding(self, src: Any, mask: Any, padding: Any) -> bool:
        """Whether results at padded positions are zeros: evaluation, no gradients, no mask."""
        if padding is None or mask is not None or not self.use_nested_tensor:
            return False
        first = self.layers[0]
        if first.training or src.dim() != 3 or src.is_nested or torch.is_autocast_enabled():
            return False
        tensors = (src, *first.parameters())
        wants_gradient = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        enabled = torch.backends.mha.get_fastpath_enabled()
        return enabled and not wants_gradient and not torch.overrides.has_torch_function(tensors)

    def _without_padding(self, output: Any, padding: Any) -> Any:
        warn_once(
            "Results at padded positions are zeros, as where PyTorch computes with nested tensors, "
            "whose API is in prototype stage."
        )
        padded = padding != 0
        if self.mask_check:  # some padding in front of a sequence: all positions stay
            behind = (padded[:, 1:] | ~padded[:, :-1]).all()
            padded = padded & behind
        return output.masked_fill(padded.unsqueeze(-1), 0.0)


def _why_padding_counts(layer: Any) -> str:
    """Returns why a layer changes its results at padded positions, or ""."""
    if not isinstance(layer, TransformerEncoderLayer):
        return " was not TransformerEncoderLayer"
    attention = layer.self_attn
    reasons = {
        ".norm_first was True": layer.norm_first,
        ".self_attn.batch_first was not True(use batch_first for better inference performance)": (
            not attention.batch_first
        ),
        ".self_attn._qkv_same_embed_dim was not True": not attention._qkv_same_embed_dim,
        ".self_attn was passed bias=False": attention.in_proj_bias is None,
        ".activation_relu_or_gelu was not True": not layer.activation_relu_or_gelu,
        ".norm1.eps was not equal to encoder_layer.norm2.eps": layer.norm1.eps != layer.norm2.eps,
        ".self_attn.num_heads is odd": attention.num_heads % 2 == 1,
    }
    return next((text for text, holds in reasons.items() if holds), "")


class TransformerDecoder(Module):
    """A stack of decoder layers.

    Args:
        decoder_layer: the layer; it is copied.
        num_layers: how often.
        norm: applied at the end.
    """

    __constants__ = ["norm"]

    def __init__(self, decoder_layer: Any, num_layers: int, norm: Any = None) -> None:
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Any:
        """Passes `tgt` through all layers, which attend to `memory`."""
        length = _get_seq_len(tgt, self.layers[0].self_attn.batch_first)
        causal = _detect_is_causal_mask(tgt_mask, tgt_is_causal, length)
        output = tgt
        for layer in self.layers:
            output = layer(
                output,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )
        return output if self.norm is None else self.norm(output)


class TransformerEncoderLayer(Module):
    """Self-attention and a two-layer perceptron, each with dropout, residual and layer norm.

    Args:
        d_model, nhead: width and number of heads.
        dim_feedforward: width of the hidden layer.
        dropout: after attention, inside and after the perceptron.
        activation: "relu", "gelu" or a function.
        layer_norm_eps, bias: of norms and linears.
        batch_first: tensors are `(N, L, E)` instead of `(L, N, E)`.
        norm_first: layer norms before attention and perceptron instead of after.

    Example:
        >>> x = torch.zeros(5, 2, 8, device="meta")
        >>> nn.TransformerEncoderLayer(8, 2, 16, device="meta")(x).shape
        torch.Size([5, 2, 8])
    """

    __constants__ = ["norm_first"]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Any], Any] = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        options = {"device": device, "dtype": dtype}
        super().__init__()
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **options
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **options)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **options)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **options)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        if isinstance(activation, str):
            activation = _get_activation_fn(activation)
        self.activation_relu_or_gelu = 1 if activation is F.relu else 2 * (activation is F.gelu)
        self.activation = activation

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if not hasattr(self, "activation"):
            self.activation = F.relu

    def forward(
        self,
        src: Any,
        src_mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool = False,
    ) -> Any:
        """Passes `src` through the layer."""
        src_key_padding_mask = canonical_mask(
            src_key_padding_mask,
            "src_key_padding_mask",
            None if src_mask is None else src_mask.dtype,
            "src_mask",
            src.dtype,
        )
        src_mask = canonical_mask(src_mask, "src_mask", None, "", src.dtype, False)
        masks = (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            x = src + self._sa_block(self.norm1(src), *masks)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(src + self._sa_block(src, *masks))
        return self.norm2(x + self._ff_block(x))

    def _sa_block(
        self, x: Any, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False
    ) -> Any:
        x = self.self_attn(
            x,
            x,
            x,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            need_weights=False,
            is_causal=is_causal,
        )[0]
        return self.dropout1(x)

    def _ff_block(self, x: Any) -> Any:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(Module):
    """Self-attention, attention to the encoder's result, and a two-layer perceptron.

    Args: as `TransformerEncoderLayer`.

    Example:
        >>> x = torch.zeros(5, 2, 8, device="meta")
        >>> y = torch.zeros(6, 2, 8, device="meta")
        >>> nn.TransformerDecoderLayer(8, 2, 16, device="meta")(x, y).shape
        torch.Size([5, 2, 8])
    """

    __constants__ = ["norm_first"]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Any], Any] = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        options = {"device": device, "dtype": dtype}
        super().__init__()
        attention = {"dropout": dropout, "batch_first": batch_first, "bias": bias, **options}
        self.self_attn = MultiheadAttention(d_model, nhead, **attention)
        self.multihead_attn = MultiheadAttention(d_model, nhead, **attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **options)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **options)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **options)
        self.norm3 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **options)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        if isinstance(activation, str):
            activation = _get_activation_fn(activation)
        self.activation = activation

    def __setstate__(self, state: dict[str, Any]) -> None:
        state.setdefault("activation", F.relu)
        super().__setstate__(state)

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Any:
        """Passes `tgt` through the layer."""
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory_mask, memory_key_padding_mask, memory_is_causal)
        x = tgt
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *own)
            x = x + self._mha_block(self.norm2(x), memory, *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *own))
        x = self.norm2(x + self._mha_block(x, memory, *other))
        return self.norm3(x + self._ff_block(x))

    def _sa_block(
        self, x: Any, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False
    ) -> Any:
        x = self.self_attn(
            x,
            x,
            x,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            need_weights=False,
        )[0]
        return self.dropout1(x)

    def _mha_block(
        self, x: Any, mem: Any, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False
    ) -> Any:
        x = self.multihead_attn(
            x,
            mem,
            mem,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            need_weights=False,
        )[0]
        return self.dropout2(x)

    def _ff_block(self, x: Any) -> Any:
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))
