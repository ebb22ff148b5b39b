"""Cross entropy of a linear layer's results, which are never stored.

With many classes (a vocabulary) the logits are the largest tensors of a model. The loss needs of
them one number per sample: the logarithm of the sum of exponentials, which attention computes
block by block (samples are its queries, classes its keys; `prims/attention.py`), as it does the
gradients. What else the loss needs is a product with the weight of few rows: the logits of the
targets, their weighted sums. Memory grows with samples and classes, not with their product.
(Wijmans et al. 2024, "Cut Your Losses in Large-Vocabulary Language Models".)
"""

from __future__ import annotations

from typing import Any

from flambeau import prims
from flambeau.ir.node import Node
from flambeau.ir.size import prod
from flambeau.language import promotion
from flambeau.language.definition import op
from flambeau.language.layout import same
from flambeau.language.samples import T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.common import shown
from flambeau.ops.neural.class_losses import NO_CLASS, averaged
from flambeau.ops.neural.loss import reduced, reduction_of
from flambeau.prims.attention import lse
from flambeau.prims.common import FLOATS

_NAME = "linear_cross_entropy"


def _problem(text: str, hint: str) -> RuntimeError:
    return RuntimeError(f"[{_NAME}] {text}\nhint: {hint}")


def _samples() -> Any:
    classes = T(4, dtype="i64", low=0, high=5)
    for reduction in ("mean", "sum", "none"):
        yield sample(T(4, 6), T(5, 6), classes, reduction=reduction)
    yield sample(T(6), T(5, 6), T(dtype="i64", low=0, high=5))
    yield sample(T(4, 6), T(5, 6), classes, linear_bias=T(5), weight=T(5, low=0.5, grad=False))
    yield sample(T(4, 6), T(5, 6), classes, label_smoothing=0.2, ignore_index=2)
    yield sample(T(4, 6), T(5, 6), T(4, 5, low=0.0, high=1.0), linear_bias=T(5))
    deep = T(4, 2, dtype="i64", low=0, high=5)
    yield sample(T(4, 6), T(5, 2, 6), deep, linear_bias=T(5, 2), label_smoothing=0.1)


def _check(x: Node, matrix: Node, bias: Node | None) -> None:
    if x.ndim not in (1, 2):
        raise _problem(f"expected input with dimensionality 1 or 2, got {x.ndim}", "reshape it")
    if matrix.ndim < 2:
        text = f"expected linear_weight with dimensionality at least 2, got {matrix.ndim}"
        raise _problem(text, "it is (classes, in_features)")
    if not same(x.shape[-1], matrix.shape[-1]):
        raise _problem(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{shown(x.shape)} and {shown(matrix.shape)}",
            "linear_weight is (classes, in_features)",
        )
    if bias is not None and not _same_shape(bias.shape, matrix.shape[:-1]):
        text = f"expected linear_bias shape {shown(matrix.shape[:-1])}, got {shown(bias.shape)}"
        raise _problem(text, "one number per row of linear_weight")
    if matrix.ndim > 2 and x.ndim == 1:
        text = f"linear_weight {shown(matrix.shape)} requires batched input, got {shown(x.shape)}"
        raise _problem(text, "input.unsqueeze(0)")
    dtypes = {y.dtype for y in (x, matrix, bias) if y is not None}
    if len(dtypes) != 1 or x.dtype not in FLOATS:
        text = f"expected floating input, linear_weight and linear_bias of one dtype: {dtypes}"
        raise _problem(text, "cast one of them")


def _same_shape(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))


class _Head:
    """Samples [N, E] against classes [C, D, E], D losses apart."""

    def __init__(self, x: Node, matrix: Node, bias: Node | None) -> None:
        self.classes, self.apart = matrix.shape[0], matrix.shape[1]
        self.x, self.matrix, self.bias = x, matrix, bias
        self.compute = promotion.compute_dtype(x.dtype)
        self.wide = prims.cast(x, self.compute)

    def lse(self) -> Node:
        """log sum exp of each sample's logits, [N, D]; the bias is an element more of each."""
        x, keys = self.x, prims.permute(self.matrix, (1, 0, 2))
        if self.bias is not None:
            turned = prims.permute(self.bias, (1, 0))
            x = prims.cat([x, prims.full(1, (x.shape[0], 1), x.dtype)], 1)
            keys = prims.cat([keys, prims.unsqueeze(turned, 2)], 2)
        query = prims.broadcast(x, (1, self.apart, *x.shape), (2, 3))
        logsumexp = lse(query, prims.unsqueeze(keys, 0))
        return prims.permute(prims.reshape(logsumexp, logsumexp.shape[1:]), (1, 0))

    def _dot(self, rows: Node, shift: Node | None) -> Node:
        """Products of each sample with rows [N, D, E], and their biases [N, D]."""
        spread = prims.broadcast(self.wide, rows.shape, (0, 2))
        product = prims.reduce_dims("sum", spread * rows, (2,))
        return product if shift is None else product + shift

    def chosen(self, index: Node) -> Node:
        """The logits at a class per sample and loss, [N, D]."""
        rows, bias = self.matrix, self.bias
        number = index * self.apart + prims.iota(index.shape, 1, "i64")
        flat = prims.reshape(rows, (self.classes * self.apart, rows.shape[2]))
        shift = None
        if bias is not None:
            line = prims.reshape(bias, (self.classes * self.apart,))
            shift = prims.cast(prims.take(line, number, 0), self.compute)
        return self._dot(prims.cast(prims.take(flat, number, 0), self.compute), shift)

    def summed(self, parts: Node) -> Node:
        """Sums of logits, [N, D], class c counting parts[c] or, of [N, C, D], parts[n, c, d]."""
        matrix = prims.cast(self.matrix, self.compute)
        bias = None if self.bias is None else prims.cast(self.bias, self.compute)
        if parts.ndim == 1:
            rows = prims.reshape(matrix, (self.classes, self.apart * matrix.shape[2]))
            mixed = prims.matmul(prims.unsqueeze(parts, 0), rows)
            mean = prims.reshape(mixed, (1, self.apart, matrix.shape[2]))
            wide = (self.x.shape[0], *mean.shape[1:])
            shift = None
            if bias is not None:
                shift = prims.matmul(prims.unsqueeze(parts, 0), bias)
                shift = prims.broadcast_to(shift, wide[:2])
            return self._dot(prims.broadcast_to(mean, wide), shift)
        turned = prims.permute(parts, (2, 0, 1))
        mixed = prims.permute(prims.matmul(turned, prims.permute(matrix, (1, 0, 2))), (1, 0, 2))
        if bias is None:
            return self._dot(mixed, None)
        spread = prims.broadcast(bias, parts.shape, (1, 2))
        return self._dot(mixed, prims.reduce_dims("sum", parts * spread, (1,)))


def _total(weight: Node | None, head: _Head) -> Node:
    """The sum of the classes' weights."""
    if weight is not None:
        return prims.reduce_dims("sum", prims.cast(weight, head.compute), (0,))
    one = prims.full(1, (), head.compute)
    return prims.constant(head.classes, one) * one


def _by_class(
    head: _Head, target: Node, weight: Node | None, kind: str, ignored: int, smoothing: float
) -> Node:
    """The loss where the target, [N, D], is classes."""
    if target.dtype not in ("i64", "u8"):
        raise _problem(f"expected scalar type Long but found {target.dtype}", "call .long()")
    keep = prims.ne(target, prims.full_like(ignored, target))
    safe = prims.where(keep, target, prims.full_like(0, target))
    index = prims.check_index(
        prims.cast(safe, "i64"), head.classes, "nll_loss", NO_CLASS, strict=True
    )
    total = head.lse()
    zero = prims.full_like(0, total)
    factor = prims.full_like(1, total)
    if weight is not None:
        factor = prims.cast(prims.take(weight, index, 0), head.compute)
    factor = prims.where(keep, factor, zero)
    value = prims.where(keep, (total - head.chosen(index)) * factor, zero)
    loss = averaged(value, factor, kind)
    if smoothing == 0.0:
        return loss
    parts = prims.full(1, (head.classes,), head.compute)
    parts = parts if weight is None else prims.cast(weight, head.compute)
    spread = prims.broadcast_to(_total(weight, head), total.shape)
    even = prims.where(keep, total * spread - head.summed(parts), zero)
    uniform = averaged(even, factor, kind)
    return loss * (1.0 - smoothing) + uniform * smoothing / prims.constant(head.classes, uniform)


def _by_probability(
    head: _Head, target: Node, weight: Node | None, kind: str, smoothing: float
) -> Node:
    """The loss where the target is probabilities, [N, C, D]."""
    parts = prims.cast(target, head.compute)
    if smoothing > 0.0:
        parts = parts * (1.0 - smoothing) + smoothing / prims.constant(head.classes, parts)
    if weight is not None:
        parts = parts * prims.broadcast(prims.cast(weight, head.compute), parts.shape, (1,))
    value = head.lse() * prims.reduce_dims("sum", parts, (1,)) - head.summed(parts)
    if kind != "mean":
        return reduced(value, kind)
    total = reduced(value, "sum")
    return total / prims.constant(prod(value.shape), total)


@op(name="_linear_cross_entropy", where="private", promote="keep", samples=_samples)
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """cross_entropy(linear(input, linear_weight, linear_bias), target), its logits not stored.

    Shape: `(E)` or `(N, E)`, `(C, *, E)`; targets are classes `(N, *)` or probabilities
    `(N, C, *)`.

    Raises:
        IndexError: a class is outside [0, C), found when the call runs.
        RuntimeError: shapes or dtypes do not fit, or `ignore_index` beside probabilities.
    """
    _check(input, linear_weight, linear_bias)
    if not 0.0 <= label_smoothing <= 1.0:
        text = f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}"
        raise _problem(text, "it is a fraction")
    kind = reduction_of(_NAME, None, None, reduction)
    lead, classes, trailing = input.shape[:-1], linear_weight.shape[0], linear_weight.shape[1:-1]
    count, apart, inner = prod(lead), prod(trailing), input.shape[-1]
    head = _Head(
        prims.reshape(input, (count, inner)),
        prims.reshape(linear_weight, (classes, apart, inner)),
        None if linear_bias is None else prims.reshape(linear_bias, (classes, apart)),
    )
    if _same_shape(target.shape, (*lead, classes, *trailing)):
        if ignore_index is not None:
            text = "ignore_index cannot be specified when target contains probabilities"
            raise _problem(text, "leave it out")
        parts = prims.reshape(target, (count, classes, apart))
        loss = _by_probability(head, parts, weight, kind, label_smoothing)
    elif _same_shape(target.shape, (*lead, *trailing)):
        ignored = -100 if ignore_index is None else ignore_index
        flat = prims.reshape(target, (count, apart))
        loss = _by_class(head, flat, weight, kind, ignored, label_smoothing)
    else:
        raise _problem(
            f"target {shown(target.shape)} does not fit input {shown(input.shape)} and "
            f"linear_weight {shown(linear_weight.shape)}",
            "classes (N, *) or probabilities (N, C, *)",
        )
    loss = prims.cast(loss, input.dtype)
    return prims.reshape(loss, (*lead, *trailing)) if kind == "none" else loss
