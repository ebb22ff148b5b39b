"""`torch.nn.attention.varlen`: attention of sequences of several lengths in one tensor."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import flambeau as torch
from flambeau.language.definition import REGISTRY
from flambeau.nn.messages import problem

Tensor = Any
__all__ = ["AuxRequest", "varlen_attn", "varlen_attn_out"]


class AuxRequest(NamedTuple):
    """The further results that `varlen_attn` is to return.

    Attributes:
        lse: the logarithm of the sum of exponentials of each row.
    """

    lse: bool = False


def _one(q: Tensor, k: Tensor, v: Tensor, scale: float, window: tuple[int, int]) -> Any:
    """Attention of one sequence: (heads, length, size)."""
    queries, keys, shown = q.shape[-2], k.shape[-2], None
    if window != (-1, -1):
        ahead = torch.arange(keys) - (torch.arange(queries)[:, None] + keys - queries)
        shown = torch.ones_like(ahead, dtype=torch.bool)
        if window[0] >= 0:
            shown = shown & (ahead >= -window[0])
        if window[1] >= 0:
            shown = shown & (ahead <= window[1])
    attend = REGISTRY["private._attention_with_sums"].native
    return attend(q, k, v, shown, scale=scale, enable_gqa=True)


def varlen_attn(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, max_q: int,
    max_k: int, *, return_aux: AuxRequest | None = None, scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1), enable_gqa: bool = False, seqused_k: Tensor = None,
    block_table: Tensor = None, num_splits: int | None = None,
) -> Any:  # fmt: skip
    """Attention within each of several sequences.

    Args:
        query: (all queries, H, E).
        key, value: (all keys, Hkv, E).
        cu_seq_q, cu_seq_k: where sequences begin and the last one ends; None for keys: as queries.
        max_q, max_k: the longest sequence.
        return_aux: what else to return.
        scale: of the scores; None: 1 / sqrt(E).
        window_size: keys before and behind a query that it sees; -1: all. (-1, 0) is causal.
        enable_gqa: groups of query heads share a head of keys.
        seqused_k, block_table: None.
        num_splits: of GPU kernels; without effect.

    Returns:
        (all queries, H, E); with `return_aux.lse` a pair with (H, all queries).

    Raises:
        NotImplementedError: `seqused_k` or `block_table`.
    """
    if seqused_k is not None or block_table is not None:
        text = "seqused_k and block_table are not in Flambeau"
        raise NotImplementedError(problem("varlen_attn", text, "keys without gaps"))
    if not enable_gqa and query.shape[1] != key.shape[1]:
        text = f"query has {query.shape[1]} heads, key {key.shape[1]}"
        raise ValueError(problem("varlen_attn", text, "enable_gqa=True"))
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    starts = cu_seq_q.tolist()
    key_starts = starts if cu_seq_k is None else cu_seq_k.tolist()
    outputs, sums = [], []
    for number in range(len(starts) - 1):
        q = query[starts[number] : starts[number + 1]].transpose(0, 1)
        span = slice(key_starts[number], key_starts[number + 1])
        k, v = (t[span].transpose(0, 1) for t in (key, value))
        output, lse = _one(q, k, v, scale, tuple(window_size))  # type: ignore[arg-type]
        outputs.append(output.transpose(0, 1))
        sums.append(lse)
    whole = torch.cat(outputs)
    return (whole, torch.cat(sums, -1)) if return_aux is not None and return_aux.lse else whole


def varlen_attn_out(out: Tensor, query: Tensor, *args: Any, **kwargs: Any) -> Any:
    """`varlen_attn` into a tensor.

    Args:
        out: what is written.
        query, args, kwargs: as of `varlen_attn`.
    """
    result = varlen_attn(query, *args, **kwargs)
    if isinstance(result, tuple):
        return out.copy_(result[0]), result[1]
    return out.copy_(result)
