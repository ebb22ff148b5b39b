"""Causal masks that need no memory: `causal_upper_left` and `causal_lower_right`.

They differ where queries and keys are of unlike number: is the first query aligned with the first
key, or the last with the last, as when keys of earlier calls are kept?
"""

from __future__ import annotations

import enum
import warnings
from typing import Any

import flambeau as torch
from flambeau._core import Tensor
from flambeau.language.definition import REGISTRY
from flambeau.nn.messages import problem

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(enum.IntEnum):
    """The corner of the mask in which its diagonal starts."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):  # type: ignore[misc]
    """A causal mask, given as `attn_mask` to `scaled_dot_product_attention`.

    Args:
        variant: how queries and keys are aligned.
        seq_len_q: number of queries.
        seq_len_kv: number of keys.

    Raises:
        NotImplementedError: when anything else is done with it.

    Example:
        >>> from flambeau.nn.attention.bias import causal_lower_right
        >>> q, k = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 5, 8)
        >>> F.scaled_dot_product_attention(q, k, k, causal_lower_right(3, 5)).shape
        torch.Size([1, 2, 3, 8])
    """

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int
    _operators_only = True  # attributes and functions in Python are ordinary

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> Any:
        """An object without elements."""
        if not isinstance(variant, CausalVariant):
            raise AssertionError(problem("CausalBias", f"no variant {variant!r}", "CausalVariant"))
        made = torch.zeros(0).as_subclass(cls)
        made.variant, made.seq_len_q, made.seq_len_kv = variant, seq_len_q, seq_len_kv
        if seq_len_q > seq_len_kv and variant == CausalVariant.LOWER_RIGHT:
            warnings.warn(
                "Lower right causal bias hides all keys from the first queries if there are more "
                "queries than keys!",
                stacklevel=3,
            )
        return made

    def __repr__(self) -> str:
        """The variant and the sizes."""
        return f"CausalBias({self.variant.name}, {self.seq_len_q}, {self.seq_len_kv})"

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Attention is the one function that takes it."""
        from flambeau.nn.functional import scaled_dot_product_attention

        if func is not scaled_dot_product_attention:
            raise NotImplementedError(
                problem(
                    "CausalBias",
                    "only scaled_dot_product_attention takes a CausalBias",
                    "torch.ones(L, S, dtype=torch.bool).tril(S - L) is such a mask",
                )
            )
        return _attend(*args, **(kwargs or {}))


def _attend(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if is_causal:
        text = "CausalBias should not be used with causal=True"
        raise ValueError(problem("CausalBias", text, "leave is_causal False"))
    if attn_mask.variant == CausalVariant.LOWER_RIGHT:
        return REGISTRY["private._attention_with_sums"].native(
            query, key, value, None, dropout_p, causal="lower", scale=scale, enable_gqa=enable_gqa
        )[0]
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, None, dropout_p, True, scale=scale, enable_gqa=enable_gqa
    )


def causal_upper_left(*size: int) -> CausalBias:
    """A causal mask of `size` (queries, keys): query i sees keys 0..i."""
    return _made(CausalVariant.UPPER_LEFT, size)


def causal_lower_right(*size: int) -> CausalBias:
    """A causal mask of `size` (queries, keys): the last query sees all keys."""
    return _made(CausalVariant.LOWER_RIGHT, size)


def _made(variant: CausalVariant, size: tuple[int, ...]) -> CausalBias:
    if len(size) != 2:
        text = f"causal masks have 2 sizes, got {size}"
        raise RuntimeError(problem("CausalBias", text, "(queries, keys)"))
    found: CausalBias = CausalBias(variant, *size)
    return found
