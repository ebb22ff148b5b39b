"""`linear` and scaled dot-product attention (Vaswani et al. 2017).

Attention is one primitive (`prims/attention.py`), tiled, with memory linear in the sequence. With
dropout too: its draws are PyTorch's, and what is stored of them are places of the generator's
stream, from which tiles draw again.
"""

from __future__ import annotations

import math
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size, floordiv, prod
from flambeau.language import promotion
from flambeau.language.definition import op
from flambeau.language.layout import same
from flambeau.language.samples import T, sample
from flambeau.language.schema import Generator, Tensor
from flambeau.ops.broadcasting import check_one_dtype
from flambeau.ops.common import shown, static_size
from flambeau.prims.attention import attention
from flambeau.prims.common import FLOATS, show


def _linear_samples() -> Any:
    yield sample(T(3, 4), T(5, 4), T(5))
    yield sample(T(2, 3, 4), T(5, 4))
    yield sample(T(4), T(5, 4), T(5))
    yield sample(T(0, 4), T(5, 4), T(5))
    yield sample(T(70, 40), T(35, 40), T(35))


@op(kind="product", where="nn.functional", overlap="partial bias", samples=_linear_samples)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight^T + bias.

    Shape: `(*, K)`, `(N, K)`, `(N)` -> `(*, N)`.

    Raises:
        RuntimeError: inner sizes or dtypes differ.

    Example:
        >>> F.linear(torch.tensor([1.0, 2.0]), torch.tensor([[3.0, 4.0]]), torch.tensor([0.5]))
        tensor([11.5000])
    """
    inner = input.shape[-1] if input.ndim else 1
    if weight.ndim not in (1, 2) or not input.ndim or not same(inner, weight.shape[-1]):
        problem = f"mat1 and mat2 shapes cannot be multiplied: input is {shown(input.shape)}, "
        problem += f"weight is {shown(weight.shape)}"
        raise failure(RuntimeError, "linear", problem, "weight is (out_features, in_features)")
    if input.dtype != weight.dtype:
        problem = f"mat1 and mat2 must have the same dtype, but got {input.dtype} and "
        problem += f"{weight.dtype}"
        raise failure(RuntimeError, "linear", problem, "cast one of them")
    if bias is not None:
        check_one_dtype("linear", input=input, bias=bias)
    wide = weight if weight.ndim == 2 else prims.reshape(weight, (1, weight.shape[0]))
    lead = input.shape[:-1]
    rows = prims.reshape(input, (prod(lead), inner))
    compute = promotion.compute_dtype(input.dtype)
    out = prims.matmul(rows, prims.permute(wide, (1, 0)), compute)
    if bias is not None:
        out = out + prims.cast(bias, compute)
    out = prims.cast(out, input.dtype)
    return prims.reshape(out, (*lead, wide.shape[0]) if weight.ndim == 2 else lead)


def _attention_samples() -> Any:
    yield sample(T(2, 3, 4, 8), T(2, 3, 5, 8), T(2, 3, 5, 6))
    yield sample(T(2, 4, 8), T(2, 4, 8), T(2, 4, 8), is_causal=True)
    yield sample(T(2, 2, 4, 8), T(2, 2, 5, 8), T(2, 2, 5, 8), T(4, 5))
    yield sample(T(2, 2, 4, 8), T(2, 2, 5, 8), T(2, 2, 5, 8), scale=0.5)
    mask = T(20, 5, dtype="bool", low=0, high=2, grad=False)
    yield sample(T(2, 2, 20, 8), T(2, 2, 5, 8), T(2, 2, 5, 8), mask)
    yield sample(T(1, 4, 40, 8), T(1, 2, 40, 8), T(1, 2, 40, 8), is_causal=True, enable_gqa=True)


_NAME = "scaled_dot_product_attention"


def _problem(what: str, hint: str) -> RuntimeError:
    return RuntimeError(f"[{_NAME}] {what}\nhint: {hint}")


def _check(query: Node, key: Node, value: Node, mask: Node | None) -> None:
    named = (("query", query), ("key", key), ("value", value))
    if min(x.ndim for _, x in named) < 2:
        sizes = ", ".join(f"{name} {show(x.shape)}" for name, x in named)
        raise _problem(
            f"expected query, key and value to have at least 2 dimensions: {sizes}", "unsqueeze"
        )
    if not query.dtype == key.dtype == value.dtype:
        dtypes = ", ".join(f"{name} is {x.dtype}" for name, x in named)
        raise _problem(f"expected query, key and value to have one dtype: {dtypes}", "cast them")
    if query.dtype not in FLOATS:
        raise _problem(f"not defined for {query.dtype}", "cast query, key and value to float32")
    if not same(query.shape[-1], key.shape[-1]) or not same(key.shape[-2], value.shape[-2]):
        sizes = ", ".join(f"{name} {show(x.shape)}" for name, x in named)
        raise _problem(f"sizes do not fit: {sizes}", "(*, L, E), (*, S, E), (*, S, V)")
    if mask is not None and mask.dtype not in ("bool", "f32", query.dtype):
        raise _problem(
            f"expected attn_mask dtype to be bool or float or to match query dtype: attn_mask is "
            f"{mask.dtype}, query is {query.dtype}",
            "True keeps a key; numbers are added to the scores",
        )


def _batches(
    query: Node, key: Node, value: Node, grouped: bool
) -> tuple[tuple[Size, ...], Node, Node, Node]:
    """The result's leading sizes, and the operands as [B, H, *, *]; keys may have fewer heads."""
    if grouped:
        key, value = _groups(query, key, value)
        lead = prims.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
        leads = [(*lead, x.shape[-3]) for x in (query, key, value)]
    else:
        lead = prims.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
        leads = [lead] * 3
    reshaped: list[Node] = []
    for x, wide in zip((query, key, value), leads):
        x = prims.broadcast_to(x, (*wide, *x.shape[-2:]))
        batch, heads = (prod(wide[:-1]), wide[-1]) if wide else (1, 1)
        reshaped.append(prims.reshape(x, (batch, heads, *x.shape[-2:])))
    return leads[0], reshaped[0], reshaped[1], reshaped[2]


def _groups(query: Node, key: Node, value: Node) -> tuple[Node, Node]:
    """Key and value with one number of heads, which divides the query's."""
    if min(x.ndim for x in (query, key, value)) < 3:
        raise _problem("enable_gqa needs heads", "(*, H, L, E): at least 3 dimensions")
    heads = query.shape[-3]
    if not all(same(floordiv(heads, x.shape[-3]) * x.shape[-3], heads) for x in (key, value)):
        raise _problem(
            f"number of heads in key and value must divide the number of heads in query: query "
            f"{show(query.shape)}, key {show(key.shape)}, value {show(value.shape)}",
            "dimension -3 counts heads",
        )
    if same(key.shape[-3], value.shape[-3]):
        return key, value
    return _repeated_heads(key, heads), _repeated_heads(value, heads)


def _repeated_heads(x: Node, heads: Size) -> Node:
    """Each head several times in a row, until there are `heads`."""
    lead, own, sizes = x.shape[:-3], x.shape[-3], x.shape[-2:]
    each = prims.unsqueeze(x, x.ndim - 2)
    wide = prims.broadcast_to(each, (*lead, own, floordiv(heads, own), *sizes))
    return prims.reshape(wide, (*lead, heads, *sizes))


def _full_mask(mask: Node, lead: tuple[Size, ...], query: Node, key: Node) -> Node:
    """The mask as [B, H, L, S]."""
    length, keys = query.shape[2], key.shape[2]
    wide = prims.broadcast_to(mask, (*lead, length, keys))
    shape = (query.shape[0], query.shape[1], length, keys)
    wide = wide if wide.ndim == 4 else prims.reshape(wide, shape)
    if query.dtype == "f64" and mask.dtype != "bool":
        return prims.cast(wide, "f64")
    return wide


def attend(
    query: Node,
    key: Node,
    value: Node,
    attn_mask: Node | None,
    dropout_p: float,
    causal: str,
    scale: float | None,
    enable_gqa: bool,
    generator: int,
) -> tuple[Node, Node]:
    """softmax(Q K^T * scale + mask) V, and the logarithms of the sums of exponentials; `causal` as
    in `prims/attention.py`."""
    _check(query, key, value, attn_mask)
    lead, *operands = _batches(query, key, value, enable_gqa)
    mask = None if attn_mask is None else _full_mask(attn_mask, lead, operands[0], operands[1])
    size = max(1, static_size(query.shape[-1]))
    factor = scale if scale is not None else 1.0 / math.sqrt(size)
    if not 0.0 <= dropout_p <= 1.0:
        raise _problem(
            f"dropout probability has to be between 0 and 1, but got {dropout_p}", "0 drops nothing"
        )
    places, retain = None, 1.0 - dropout_p
    if 0.0 < dropout_p < 1.0:
        draws = (operands[0].shape[2], operands[1].shape[2])
        places = prims.random_places(operands[0].shape[:2], draws, generator)
    constants = (factor, causal, places, retain)
    out = attention(operands[0], operands[1], operands[2], mask, *constants)
    if dropout_p == 1.0:
        out = out * prims.zeros_like(out)
    lse = attention(operands[0], operands[1], operands[2], mask, *constants, result="lse")
    empty = prims.eq(lse, prims.full_like(math.inf, lse))
    lse = prims.where(empty, prims.full_like(-math.inf, lse), lse)
    return prims.reshape(out, (*lead, *out.shape[2:])), prims.reshape(lse, (*lead, lse.shape[2]))


@op(
    where="nn.functional",
    layout="follow",
    samples=_attention_samples,
    autocast="lower",
    pointwise=False,
)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """softmax(Q K^T * scale + mask) V.

    Source: Vaswani et al., Attention Is All You Need, 2017.

    Shape: `(*, L, E)`, `(*, S, E)`, `(*, S, V)` -> `(*, L, V)`; with `enable_gqa` the heads of key
    and value (dimension -3) divide those of the query.

    Args:
        attn_mask: bool (True keeps) or added to the scores; broadcast to `(*, L, S)`.
        dropout_p: probability with which a weight is dropped, the others are divided by
            1 - dropout_p; the draws follow the weights' `(*, L, S)` in logical order.
        is_causal: position i sees keys 0..i, of those that `attn_mask` keeps.
        scale: 1 / sqrt(E) when None.

    Raises:
        RuntimeError: both a mask and `is_causal`, unless query, key and value have 4 dimensions
            and one head size.

    Example:
        >>> query, key, value = torch.zeros(1, 2, 4), torch.zeros(1, 3, 4), torch.ones(1, 3, 4)
        >>> F.scaled_dot_product_attention(query, key, value)[0, 0]
        tensor([1., 1., 1., 1.])
    """
    alike = query.ndim == key.ndim == value.ndim == 4 and same(query.shape[-1], value.shape[-1])
    if is_causal and attn_mask is not None and not alike:
        raise RuntimeError(
            "[scaled_dot_product_attention] explicit attn_mask should not be set when "
            "is_causal=True, but for 4 dimensions and one head size\n"
            "hint: fold the causal mask into attn_mask"
        )
    causal = "upper" if is_causal else "none"
    return attend(query, key, value, attn_mask, dropout_p, causal, scale, enable_gqa, generator)[0]


def _sums_samples() -> Any:
    yield sample(T(2, 3, 4, 8), T(2, 3, 7, 8), T(2, 3, 7, 6), causal="lower")
    yield sample(T(2, 7, 8), T(2, 7, 8), T(2, 7, 8), causal="lower")
    mask = T(20, 7, dtype="bool", low=0, high=2, grad=False)
    yield sample(T(1, 4, 20, 8), T(1, 2, 7, 8), T(1, 2, 7, 8), mask, enable_gqa=True)


@op(
    name="_attention_with_sums",
    where="private",
    results="out lse",
    samples=_sums_samples,
    autocast="lower",
)
def attention_with_sums(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    *,
    causal: str = "none",
    scale: float | None = None,
    enable_gqa: bool = False,
    generator: Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention, and log(sum(exp(scores))) of each query: -inf where it sees no key.

    Args:
        causal: "lower": the last query sees all keys, the one before it all but the last, ...
    """
    return attend(query, key, value, attn_mask, dropout_p, causal, scale, enable_gqa, generator)
