"""Losses of classes: `nll_loss`, `cross_entropy`. Targets are checked when the call runs."""

from __future__ import annotations

from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import op
from flambeau.language.layout import same
from flambeau.language.promotion import promote_types
from flambeau.language.samples import T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.broadcasting import is_float, unsupported
from flambeau.ops.common import number_shown, shown
from flambeau.ops.neural.loss import reduced, reduction_of
from flambeau.ops.pointwise.activation import log_softmax_value

_F = "nn.functional"
NO_CLASS = (
    "[nll_loss] Target {value} is out of bounds: there are {size} classes\n"
    "hint: targets lie in [0, classes), or are ignore_index"
)


def _class_samples() -> Any:
    for reduction in ("mean", "sum", "none"):
        yield sample(T(4, 5), T(4, dtype="i64", low=0, high=5), reduction=reduction)
    yield sample(T(4, 5), T(4, dtype="i64", low=0, high=5), T(5, low=0.5, grad=False))
    yield sample(T(2, 5, 3), T(2, 3, dtype="i64", low=0, high=5))
    yield sample(T(5), T(dtype="i64", low=0, high=5))
    yield sample(T(6, 40), T(6, dtype="i64", low=0, high=5), ignore_index=2)


def _picked(
    log_probabilities: Node, target: Node, weight: Node | None, ignore_index: int
) -> tuple[Node, Node]:
    """-w[t] log p[t] per target (0 where ignored) and w[t] itself."""
    x = log_probabilities
    axis = 0 if x.ndim == 1 else 1
    if weight is not None and not (weight.ndim == 1 and same(weight.shape[0], x.shape[axis])):
        problem = f"weight tensor should be defined either for all {number_shown(x.shape[axis])} "
        problem += f"classes or no classes but got weight tensor of shape: {shown(weight.shape)}"
        raise failure(RuntimeError, "nll_loss", problem, "one weight per class")
    if target.dtype not in ("i64", "u8"):
        problem = f"expected scalar type Long but found {target.dtype}"
        raise failure(RuntimeError, "nll_loss", problem, "call .long()")
    keep = prims.ne(target, prims.full_like(ignore_index, target))
    safe = prims.where(keep, target, prims.full_like(0, target))
    index = prims.check_index(safe, x.shape[axis], "nll_loss", NO_CLASS, strict=True)
    wide = prims.unsqueeze(index, axis) if target.ndim < x.ndim else index
    chosen = prims.gather(x, wide, axis)
    chosen = prims.reshape(chosen, target.shape)
    zero = prims.full_like(0, chosen)
    factor = prims.full_like(1, chosen) if weight is None else prims.take(weight, index, 0)
    factor = prims.where(keep, factor, zero)
    return prims.where(keep, -chosen * factor, zero), factor


def _check_classes(name: str, x: Node, target: Node) -> None:
    if x.ndim == 0:
        error = RuntimeError if name == "cross_entropy" else ValueError
        raise failure(error, name, "Expected 1 or more dimensions (got 0)", "(C) or (N, C, *)")
    spatial = x.shape[:1] + x.shape[2:] if x.ndim > 1 else ()
    fits = target.ndim == len(spatial) and all(
        same(a, b) for a, b in zip(target.shape, spatial, strict=True)
    )
    if not fits and x.ndim > 1 and target.ndim >= 1 and not same(x.shape[0], target.shape[0]):
        problem = f"Expected input batch_size ({shown(x.shape[:1])[1:-1]}) to match target "
        problem += f"batch_size ({shown(target.shape[:1])[1:-1]})"
        raise failure(ValueError, name, problem, "input is (N, C), target is (N)")
    if not fits:
        raise RuntimeError(
            f"[{name}] Expected target size {shown(spatial)}, got {shown(target.shape)}\n"
            "hint: the target has the input's shape without the class dimension 1"
        )


def _check_probabilities(name: str, x: Node, target: Node) -> None:
    """A floating target has the input's shape; of any other shape it was meant as classes."""
    if x.ndim == target.ndim and all(same(a, b) for a, b in zip(x.shape, target.shape)):
        return
    _check_classes(name, x, target)
    raise RuntimeError(
        f"[{name}] expected target dtype to be Long or Byte, but got {target.dtype}\n"
        "hint: classes are integers: target.long(); probabilities have the input's shape"
    )


def averaged(value: Node, factor: Node, reduction: str) -> Node:
    """`value`, reduced; a mean divides by the sum of `factor`."""
    if reduction != "mean":
        return reduced(value, reduction)
    return reduced(value, "sum") / reduced(factor, "sum")


@op(kind="loss", out=True, varying=True, samples=_class_samples)
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-w[t] input[t], input being log-probabilities (N, C, *); "mean" divides by the weights.

    Raises:
        IndexError: a class is outside [0, C), found when the call runs.
        RuntimeError, ValueError: shapes or dtypes do not fit.

    Example:
        >>> F.nll_loss(torch.tensor([[-0.5, -2.0]]), torch.tensor([1]))
        tensor(2.)
    """
    _check_classes("nll_loss", input, target)
    if not is_float(input):
        raise unsupported("nll_loss", input, "log-probabilities are real floats")
    value, factor = _picked(input, target, weight, ignore_index)
    return averaged(value, factor, reduction_of("nll_loss", size_average, reduce, reduction))


@op(kind="loss", unsaved="input", varying=True, samples=_class_samples)
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Negative log likelihood of softmax(input); the target is classes or probabilities.

    Shape: `(C)`, `(N, C)` or `(N, C, *)` logits; targets without the class dimension, or
    probabilities of the logits' shape.

    Raises:
        IndexError: a class is outside [0, C), found when the call runs.
        RuntimeError, ValueError: shapes, dtypes or `label_smoothing` do not fit.

    Example:
        >>> F.cross_entropy(torch.zeros(1, 4), torch.tensor([2]))
        tensor(1.3863)
    """
    kind = reduction_of("cross_entropy", size_average, reduce, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        problem = f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}"
        raise failure(RuntimeError, "cross_entropy", problem, "0 is none, 1 a uniform target")
    if not is_float(input):
        raise unsupported("cross_entropy", input, "convert the logits to a floating-point type")
    if input.ndim == 0:
        _check_classes("cross_entropy", input, target)
    axis = 0 if input.ndim == 1 else 1
    x = log_softmax_value(input, axis)
    if target.dtype[0] == "f" or target.dtype == "bf16":
        _check_probabilities("cross_entropy", input, target)
        return _soft_cross_entropy(x, target, weight, kind, label_smoothing, axis)
    _check_classes("cross_entropy", input, target)
    value, factor = _picked(x, target, weight, ignore_index)
    loss = averaged(value, factor, kind)
    if label_smoothing == 0.0:
        return loss
    smooth = -x if weight is None else -x * _along(weight, x, axis)
    keep = prims.ne(target, prims.full_like(ignore_index, target))
    per_target = prims.reduce_dims("sum", smooth, (axis,))
    per_target = prims.where(keep, per_target, prims.full_like(0, per_target))
    uniform = averaged(per_target, factor, kind)
    classes = prims.constant(x.shape[axis], uniform)
    return loss * (1.0 - label_smoothing) + uniform * label_smoothing / classes


def _along(weight: Node, x: Node, axis: int) -> Node:
    shape = tuple(weight.shape[0] if d == axis else 1 for d in range(x.ndim))
    return prims.broadcast_to(prims.reshape(weight, shape), x.shape)


def _soft_cross_entropy(
    x: Node, target: Node, weight: Node | None, kind: str, smoothing: float, axis: int
) -> Node:
    common = promote_types(x.dtype, target.dtype)
    if weight is not None:
        common = promote_types(common, weight.dtype)
        weight = prims.cast(weight, common)
    x, target = prims.cast(x, common), prims.cast(target, common)
    if smoothing > 0.0:
        target = target * (1.0 - smoothing) + smoothing / prims.constant(x.shape[axis], target)
    value = -x * target if weight is None else -x * target * _along(weight, x, axis)
    per_target = prims.reduce_dims("sum", value, (axis,))
    if kind != "mean":
        return reduced(per_target, kind)
    total = reduced(per_target, "sum")  # row by row: log_softmax is not stored
    batch: Any = 1
    for d, size in enumerate(x.shape):
        batch = batch * size if d != axis else batch
    return total / prims.constant(batch, total)
