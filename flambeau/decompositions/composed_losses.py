"""Compositions of losses and of attention: see `composites`."""

from __future__ import annotations

import math
from typing import Any

from flambeau import _core
from flambeau.decompositions.composed_private import _dropout
from flambeau.decompositions.composites import REDUCTIONS, composes
from flambeau.ops import aten

Tensor = Any


def _reduced(losses: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return losses
    return aten.mean(losses) if reduction == "mean" else aten.sum(losses)


def _old(arguments: dict[str, Any]) -> bool:
    """Whether a call uses the older arguments, or weights that PyTorch treats apart."""
    return any(arguments.get(name) is not None for name in ("size_average", "reduce", "weight"))


def _pair_loss(name: str, extra: str = "") -> None:
    def compose(input: Tensor, target: Tensor, reduction: str, **options: Any) -> Tensor:  # noqa: A002
        if _old(options) or input.shape != target.shape:
            return NotImplemented
        extra_arguments = [options[extra]] if extra else []
        return getattr(aten, name)(input, target, REDUCTIONS[reduction], *extra_arguments)

    composes(f"nn.functional.{name}")(compose)


_pair_loss("mse_loss")
_pair_loss("smooth_l1_loss", "beta")
_pair_loss("huber_loss", "delta")
_pair_loss("soft_margin_loss")


@composes("nn.functional.l1_loss")
def _l1_loss(input: Tensor, target: Tensor, reduction: str, **options: Any) -> Tensor:  # noqa: A002
    if _old(options):
        return NotImplemented
    return _reduced(aten.abs(aten.sub(input, target)), reduction)


@composes("nn.functional.binary_cross_entropy")
def _binary(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Any,
    reduction: str,
    **options: Any,
) -> Tensor:
    return aten.binary_cross_entropy(input, target, weight, REDUCTIONS[reduction])


@composes("nn.functional.binary_cross_entropy_with_logits")
def _logits(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Any,
    reduction: str,
    pos_weight: Any,
    **options: Any,
) -> Tensor:
    return aten.binary_cross_entropy_with_logits(
        input, target, weight, pos_weight, REDUCTIONS[reduction]
    )


@composes("nn.functional.kl_div")
def _kl_div(
    input: Tensor,  # noqa: A002
    target: Tensor,
    reduction: str,
    log_target: bool,
    **options: Any,
) -> Tensor:
    if _old(options):
        return NotImplemented
    if log_target:
        losses = aten.mul(aten.exp(target), aten.sub(target, input))
    else:
        product = aten.mul(target, input)
        losses = aten.sub(aten.xlogy(target, target), product)
    if reduction != "batchmean":
        return _reduced(losses, reduction)
    return aten.div(aten.sum(losses), input.shape[0] if input.ndim else 1)


# ------------------------------------------------------------------------------ classes
def nll(x: Tensor, target: Tensor, weight: Any, reduction: str, ignore: int) -> Tensor:
    """`nll_loss` of (N, C), (C), or (N, C, d1, ...)."""
    number = REDUCTIONS[reduction]
    if x.ndim <= 2:
        return aten.nll_loss_forward(x, target, weight, number, ignore)[0]
    if x.ndim == 4:
        return aten.nll_loss2d_forward(x, target, weight, number, ignore)[0]
    if not (x.is_contiguous() and target.is_contiguous() and x.numel()):
        return NotImplemented
    flat = aten.view(x, (*x.shape[:2], 1, -1))
    places = aten.view(target, (target.shape[0], 1, -1))
    result = aten.nll_loss2d_forward(flat, places, weight, number, ignore)[0]
    return aten.view(result, tuple(target.shape)) if reduction == "none" else result


@composes("nn.functional.nll_loss")
def _nll_loss(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Any,
    size_average: Any,
    ignore_index: int,
    reduce: Any,
    reduction: str,
) -> Tensor:
    return nll(input, target, weight, reduction, ignore_index)


@composes("nn.functional.cross_entropy")
def _cross_entropy(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Any,
    size_average: Any,
    ignore_index: int,
    reduce: Any,
    reduction: str,
    label_smoothing: float,
) -> Tensor:
    classes = 0 if input.ndim == 1 else 1
    logs = aten._log_softmax(input, classes, False)
    if target.is_floating_point():
        return _of_shares(logs, target, weight, reduction, label_smoothing, classes)
    loss = nll(logs, target, weight, reduction, ignore_index)
    if not label_smoothing:
        return loss
    if weight is not None or reduction != "mean":
        return NotImplemented
    spread = aten.neg(aten.sum(logs, [classes]))
    ignored = aten.eq(target, ignore_index)
    spread = aten.masked_fill_(spread, ignored, 0.0)
    count = aten.sum(aten.bitwise_not(ignored))
    spread = aten.div(aten.sum(spread), count)
    share = label_smoothing / input.shape[classes]
    return aten.add(aten.mul.Scalar(loss, 1 - label_smoothing), aten.mul.Scalar(spread, share))


def _of_shares(
    logs: Tensor, target: Tensor, weight: Any, reduction: str, smoothing: float, classes: int
) -> Tensor:
    if smoothing:
        share = smoothing / logs.shape[classes]
        target = aten.add(aten.mul.Scalar(target, 1 - smoothing), share)
    terms = aten.mul(logs, target)
    if weight is not None:
        return NotImplemented
    if reduction == "none":
        return aten.neg(aten.sum(terms, [classes]))
    total = aten.neg(aten.sum(terms))
    count = logs.numel() // logs.shape[classes]
    return aten.div.Scalar(total, count) if reduction == "mean" else total


# ------------------------------------------------------------------------------ attention
@composes("nn.functional.scaled_dot_product_attention")
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    **options: Any,
) -> Tensor:
    if enable_gqa:
        return NotImplemented
    if not dropout_p and query.ndim == 4 and query.is_floating_point():
        if attn_mask is not None and attn_mask.dtype == _core.bool:
            hidden = aten.scalar_tensor(float("-inf"), dtype=query.dtype)
            seen = aten.scalar_tensor(0.0, dtype=query.dtype)
            attn_mask = aten.where(attn_mask, seen, hidden)
        return aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, is_causal, attn_mask=attn_mask, scale=scale
        )[0]
    if is_causal or attn_mask is not None:
        return NotImplemented
    root = math.sqrt(scale or 1 / math.sqrt(query.shape[-1]))
    left = aten.mul.Scalar(query, root)
    right = aten.mul.Scalar(aten.transpose(key, -2, -1), root)
    weights = aten._safe_softmax(aten.matmul(left, right), -1)
    if dropout_p:
        weights = _dropout(weights, dropout_p, options.get("generator"))
    return aten.matmul(weights, value)


# ------------------------------------------------------------------------------ distances
@composes("pairwise_distance")
def _pairwise_distance(x1: Tensor, x2: Tensor, p: float, eps: float, keepdim: bool) -> Tensor:
    last = max(x1.ndim, x2.ndim) - 1
    return aten.norm.ScalarOpt_dim(aten.add.Scalar(aten.sub(x1, x2), eps), p, [last], keepdim)


@composes("nn.functional.triplet_margin_loss")
def _triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float,
    p: float,
    eps: float,
    swap: bool,
    reduction: str,
    **options: Any,
) -> Tensor:
    if swap or _old(options):
        return NotImplemented
    near = _pairwise_distance(anchor, positive, p, eps, False)
    far = _pairwise_distance(anchor, negative, p, eps, False)
    losses = aten.clamp_min(aten.sub(aten.add.Scalar(near, margin), far), 0)
    return _reduced(losses, reduction)


@composes("nn.functional.margin_ranking_loss")
def _margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float, reduction: str, **options: Any
) -> Tensor:
    if _old(options):
        return NotImplemented
    difference = aten.sub(input1, input2)
    scaled = aten.mul(aten.neg(target), difference)
    losses = aten.clamp_min_(aten.add.Scalar(scaled, margin), 0)
    return _reduced(losses, reduction)


@composes("cosine_similarity")
def _cosine_similarity(x1: Tensor, x2: Tensor, dim: int, eps: float) -> Tensor:
    if x1.shape != x2.shape:
        return NotImplemented
    copies = [aten.clone(aten.linalg_vector_norm(x, 2, [dim], True)) for x in (x1, x2)]
    least = aten.scalar_tensor(eps, dtype=x1.dtype)
    with _core.no_grad():
        for copy in copies:
            aten.clamp_min_(copy, least)
    left, right = [aten.div(x, copy) for x, copy in zip((x1, x2), copies, strict=True)]
    return aten.sum(aten.mul(left, right), [dim])


@composes("nn.functional.cosine_embedding_loss")
def _cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float, reduction: str, **options: Any
) -> Tensor:
    if _old(options) or input1.ndim != 2:
        return NotImplemented

    def scalar_product(a: Tensor, b: Tensor) -> Tensor:
        return aten.sum(aten.mul(a, b), [1])

    least = 9.999999960041972e-13
    between = scalar_product(input1, input2)
    own = [aten.add.Scalar(scalar_product(x, x), least) for x in (input1, input2)]
    cosine = aten.div(between, aten.sqrt_(aten.mul(*own)))
    zeros = aten.zeros_like(cosine)
    near = aten.sub_(aten.fill_(aten.empty_like(cosine), 1.0), cosine)
    far = aten.clamp_min_(aten.sub.Scalar(cosine, margin), 0)
    alike = aten.where(aten.eq(target, 1), near, zeros)
    unlike = aten.where(aten.eq(target, -1), far, zeros)
    return _reduced(aten.add(alike, unlike), reduction)
