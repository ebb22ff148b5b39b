"""Distances, similarities and the losses made of them; margin losses; one-hot codes.

Formulas: Hadsell et al. 2006 (embedding losses), Balntas et al. 2016 (triplets), Crammer & Singer
2001 (multi-class margin). Squares of half types are summed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from flambeau import prims
from flambeau.core.devices import has_data
from flambeau.ir.dtypes import TITLES
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import prod
from flambeau.language import layout
from flambeau.language.definition import function, given_dtype, op
from flambeau.language.promotion import CATEGORY, PARTS, compute_dtype, promote_types
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Scalar, SymInt, Tensor
from flambeau.ops.broadcasting import unsupported
from flambeau.ops.common import normalise_dim, same_sizes, shown, static_size
from flambeau.ops.neural.loss import LEGACY, fraction_dtype, hinge, loss, reduced, reduction_of
from flambeau.ops.pointwise.binary import refuse_bools
from flambeau.ops.reduction.linalg_norms import p_norm
from flambeau.ops.reduction.reduce import dropped
from flambeau.ops.reduction.variance import flat_root

_F = "nn.functional"
_NO_CLASS = (
    "[multi_margin_loss] target out of range: {value} of {size} classes\n"
    "hint: targets lie in [0, classes)"
)
_NO_LABEL = (
    "[multilabel_margin_loss] argument #2 'target' is out of range: {value} of {size} "
    "classes\nhint: labels lie in [0, classes); -1 ends them"
)


def _both(a: Node, b: Node, name: str) -> tuple[Node, Node]:
    try:
        x, y = prims.broadcast_all(a, b)
    except ValueError as error:
        problem = f"The sizes {shown(a.shape)} and {shown(b.shape)} must match at non-singleton "
        problem += "dimensions"
        raise failure(RuntimeError, name, problem, "sizes are equal or one of them is 1") from error
    return x, y


def _zero(x: Node) -> Node:
    return prims.full_like(0, x)


def _positive_part(x: Node) -> Node:
    """max(0, x) without a gradient at 0."""
    return prims.with_derivative(prims.maximum(x, _zero(x)), x, rule="relu")


def _length(x: Node, p: float, keepdim: bool) -> Node:
    """The p-norm of the last dimension."""
    last = (x.ndim - 1,)
    return dropped(p_norm(x, p, last), last, keepdim)


# ------------------------------------------------------------------------------ similarity


def _similarity_samples() -> Iterator[Sample]:
    yield sample(T(3, 5), T(3, 5))
    yield sample(T(2, 3, 4), T(3, 1), dim=-1)
    yield sample(T(2, 3, 4), T(2, 3, 4), 0, 1e-3)
    yield sample(T(6), T(6), dim=0)


def similarity(a: Node, b: Node, dim: int, eps: Any) -> Node:
    """Cosine of the angle along `dim` of operands of one shape."""

    def dot(x: Node, y: Node) -> Node:
        return prims.sum(x * y, dim)

    def length(x: Node) -> Node:
        norm = flat_root(dot(x, x))
        return prims.maximum(norm, prims.constant(eps, norm))

    return dot(a, b) / (length(a) * length(b))


@op(
    where=f"torch {_F}",
    promote="float",
    saves_result=False,
    participants="x1 x2",
    runtime="eps",
    samples=_similarity_samples,
)
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: Scalar = 1e-08) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along a dimension.

    Shape: broadcastable; the result lacks `dim`.

    Raises:
        RuntimeError: the shapes do not broadcast.

    Example:
        >>> torch.cosine_similarity(torch.tensor([1.0, 0.0]), torch.tensor([3.0, 4.0]), dim=0)
        tensor(0.6000)
    """
    if CATEGORY[given_dtype(x1)] < 2 and CATEGORY[given_dtype(x2)] < 2:
        problem = "expected common dtype to be floating point, yet common dtype is "
        problem += f"{TITLES[promote_types(given_dtype(x1), given_dtype(x2))]}"
        raise failure(RuntimeError, "cosine_similarity", problem, "convert one of them")
    a, b = _both(x1, x2, "cosine_similarity")
    if a.ndim == 0:
        a, b = prims.reshape(a, (1,)), prims.reshape(b, (1,))
    return similarity(a, b, normalise_dim(dim, a.ndim, "cosine_similarity"), eps)


def _distance_samples() -> Iterator[Sample]:
    yield sample(T(3, 5), T(3, 5))
    yield sample(T(2, 3, 5), T(5), 1.0)
    yield sample(T(3, 5), T(3, 5), 3.0, 1e-3, True)
    yield sample(T(3, 5), T(3, 5), math.inf)
    yield sample(T(5), T(5))


@op(
    where=f"torch {_F}",
    promote="float",
    unsaved="x1 x2",
    participants="x1 x2",
    runtime="eps",
    samples=_distance_samples,
)
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: Scalar = 1e-06, keepdim: bool = False
) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last dimension.

    Shape: `(*, D)` and `(*, D)`, broadcastable -> `(*)`, or `(*, 1)` with keepdim.

    Raises:
        RuntimeError: the shapes do not broadcast.

    Example:
        >>> torch.pairwise_distance(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
        tensor([5.0000])
    """
    refuse_bools(x1, x2)
    a, b = _both(x1, x2, "pairwise_distance")
    difference = a - b
    return _length(difference + prims.constant(eps, difference), p, keepdim)


# ------------------------------------------------------------------------------ embedding losses


def _cosine_samples() -> Iterator[Sample]:
    signs = T(3, values=[1, -1, 1], dtype="i64")
    yield sample(T(3, 5), T(3, 5), signs)
    yield sample(T(3, 5), T(3, 5), signs, 0.5, reduction="sum")
    yield sample(T(5), T(5), T(values=-1, dtype="i64"), -0.5, reduction="none")


@op(
    f"cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0, {LEGACY})"
    " -> Tensor",
    where=_F,
    unsaved="target",
    samples=_cosine_samples,
    autocast="float32",
)
def cosine_embedding_loss(
    input1: Node,
    input2: Node,
    target: Node,
    margin: float,
    size_average: bool | None,
    reduce: bool | None,
    reduction: str,
) -> Node:
    """1 - cos where target is 1, max(0, cos - margin) where it is -1.

    Shape: inputs `(N, D)` with target `(N)`, or `(D)` with `()`.

    Raises:
        RuntimeError: ranks that do not fit.

    Example:
        >>> F.cosine_embedding_loss(torch.ones(1, 2), torch.ones(1, 2), torch.tensor([-1.0]))
        tensor(1.)
    """
    if target.ndim > 1:
        problem = "0D or 1D target tensor expected, multi-target not supported"
        raise failure(RuntimeError, "cosine_embedding_loss", problem, "one target per row")
    if input1.ndim != target.ndim + 1 or input2.ndim != target.ndim + 1:
        problem = f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but "
        problem += f"found inputs with sizes {shown(input1.shape)} and {shown(input2.shape)}"
        raise failure(RuntimeError, "cosine_embedding_loss", problem, "(N, D) with a target of (N)")
    final = promote_types(*(fraction_dtype(x.dtype) for x in (input1, input2)))
    wide = compute_dtype(final)
    a, b = _both(*(prims.cast(x, wide) for x in (input1, input2)), "cosine_embedding_loss")
    target = prims.cast(target, "i64") if target.dtype == "bool" else target
    epsilon = 1e-12  # PyTorch adds it to the squared lengths
    last = a.ndim - 1
    length = (prims.sum(a * a, last) + epsilon) * (prims.sum(b * b, last) + epsilon)
    cosine = prims.sum(a * b, last) / prims.sqrt(length)
    zero = _zero(cosine)
    one = prims.full_like(1, target)
    near = prims.where(prims.eq(target, one), 1.0 - cosine, zero)
    far = prims.where(prims.eq(target, -one), hinge(cosine - margin), zero)
    kind = reduction_of("cosine_embedding_loss", size_average, reduce, reduction)
    return prims.cast(reduced(near + far, kind), final)


def _triplet_samples() -> Iterator[Sample]:
    yield sample(T(3, 5), T(3, 5), T(3, 5))
    yield sample(T(3, 5), T(3, 5), T(3, 5), 0.5, 1.0, swap=True, reduction="sum")
    yield sample(T(5), T(5), T(5), reduction="none")


@op(
    "triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, "
    f"float p=2, float eps=1e-06, bool swap=False, {LEGACY}) -> Tensor",
    where=_F,
    unsaved="anchor positive negative",
    samples=_triplet_samples,
    autocast="float32",
)
def triplet_margin_loss(
    anchor: Node,
    positive: Node,
    negative: Node,
    margin: float,
    p: float,
    eps: float,
    swap: bool,
    size_average: bool | None,
    reduce: bool | None,
    reduction: str,
) -> Node:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d the p-distance.

    Source: Balntas et al., Learning Local Feature Descriptors with Triplets, 2016.

    Args:
        swap: use d(positive, negative) where it is smaller than d(anchor, negative).

    Raises:
        RuntimeError: different ranks.
        ValueError: the margin is not positive.

    Example:
        >>> F.triplet_margin_loss(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2))
        tensor(1.)
    """
    refuse_bools(anchor, positive)
    refuse_bools(anchor, negative)
    if not anchor.ndim == positive.ndim == negative.ndim:
        problem = "The anchor, positive, and negative tensors are expected to have the same "
        problem += f"number of dimensions, but got: anchor {anchor.ndim}D, positive "
        problem += f"{positive.ndim}D, and negative {negative.ndim}D inputs"
        raise failure(RuntimeError, "triplet_margin_loss", problem, "(N, D) each")
    if margin <= 0:
        problem = f"margin must be greater than 0, got {margin}"
        raise failure(ValueError, "triplet_margin_loss", problem, "margin=1.0")

    sides = (anchor.dtype, positive.dtype, negative.dtype)
    pairs = [(sides[0], sides[1]), (sides[0], sides[2]), (sides[1], sides[2])]
    final = fraction_dtype(*(fraction_dtype(*pair) for pair in pairs[: 3 if swap else 2]))
    anchor, positive, negative = (
        prims.cast(x, compute_dtype(final)) for x in (anchor, positive, negative)
    )

    def distance(a: Node, b: Node) -> Node:
        x, y = _both(a, b, "triplet_margin_loss")
        return _length(x - y + eps, p, False)

    far = distance(anchor, negative)
    if swap:
        far = prims.minimum(far, distance(positive, negative))
    value = distance(anchor, positive) - far + margin
    kind = reduction_of("triplet_margin_loss", size_average, reduce, reduction)
    return prims.cast(reduced(hinge(value), kind), PARTS.get(final, final))


@function(where=_F, samples=lambda: [sample(T(3, 5), T(3, 5), T(3, 5), swap=True)])
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """`triplet_margin_loss` with any distance, the euclidean one when None.

    Raises:
        ValueError: an unknown reduction or a margin that is not positive.

    Example:
        >>> x = torch.zeros(1, 2)
        >>> F.triplet_margin_with_distance_loss(x, x, x)
        tensor(1.)
    """
    kind = reduction_of("triplet_margin_with_distance_loss", None, None, reduction)
    if margin <= 0:
        problem = f"margin must be greater than 0, got {margin}"
        raise failure(ValueError, "triplet_margin_with_distance_loss", problem, "margin=1.0")
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    value = (near - far + margin).clamp_min(0)
    return value.mean() if kind == "mean" else value.sum() if kind == "sum" else value


# ------------------------------------------------------------------------------ margin losses


def _class_samples() -> Iterator[Sample]:
    target = T(3, values=[1, 0, 4], dtype="i64")
    yield sample(T(3, 5), target)
    yield sample(T(3, 5), target, 2, 0.5, T(5, low=0.1, grad=False), reduction="none")
    yield sample(T(5), T(values=2, dtype="i64"), reduction="sum")


def _as_rows(x: Node) -> Node:
    """(N, C), where N is 1 for fewer dimensions, and C for a number."""
    return x if x.ndim >= 2 else prims.reshape(x, (1, x.shape[0] if x.ndim else 1))


def _check_classes(name: str, x: Node) -> None:
    if x.ndim and layout.same(x.shape[-1], 0):
        problem = "Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
        problem += f"{shown(x.shape)}"
        raise failure(RuntimeError, name, problem, "at least one class")


def _rows_and_classes(x: Node, target: Node) -> tuple[Node, Node]:
    """(N, C) and (N) of the arguments of `multi_margin_loss`."""
    _check_classes("multi_margin_loss", x)
    if target.dtype != "i64":
        problem = f"expected scalar type Long but found {target.dtype}"
        raise failure(RuntimeError, "multi_margin_loss", problem, "classes")
    rows = _as_rows(x)
    if x.ndim > 2 or target.ndim > 1:
        problem = f"inconsistent sizes {shown(x.shape)} and {shown(target.shape)}"
        raise failure(RuntimeError, "multi_margin_loss", problem, "(N, C) and (N)")
    classes = target if target.ndim else prims.reshape(target, (1,))
    if not same_sizes(classes.shape, rows.shape[:1]):
        problem = "target tensor should be 1-D with size equal to the number of input samples "
        problem += f"(batch size). Expected target size {shown(rows.shape[:1])}, but got "
        problem += f"{shown(target.shape)}. Input has shape {shown(x.shape)}."
        raise failure(RuntimeError, "multi_margin_loss", problem, "one class a row")
    return rows, classes


@op(
    "multi_margin_loss(Tensor input, Tensor target, int p=1, float margin=1.0, "
    f"Tensor? weight=None, {LEGACY}) -> Tensor",
    kind="loss",
    samples=_class_samples,
)
def multi_margin_loss(
    input: Node,
    target: Node,
    p: int,
    margin: float,
    weight: Node | None,
    size_average: bool | None,
    reduce: bool | None,
    reduction: str,
) -> Node:
    """Mean over the other classes of max(0, margin - x[y] + x[i])^p.

    Shape: `(N, C)` with target `(N)`, or `(C)` with `()`.

    Raises:
        ValueError: p is neither 1 nor 2, the weight is no vector, or an unknown reduction.
        RuntimeError: no class, a weight or target that does not fit, a target that names no class
            (found when the call runs).

    Example:
        >>> F.multi_margin_loss(torch.tensor([[0.1, 0.2, 0.4]]), torch.tensor([2]))
        tensor(0.5000)
    """
    kind = reduction_of("multi_margin_loss", size_average, reduce, reduction)
    if p not in (1, 2):
        raise failure(ValueError, "multi_margin_loss", "only p == 1 and p == 2 supported", "p=1")
    if weight is not None and weight.ndim != 1:
        raise ValueError("[multi_margin_loss] weight must be one-dimensional\nhint: one a class")
    rows, target_classes = _rows_and_classes(input, target)
    classes = rows.shape[1]
    if weight is not None and not same_sizes(weight.shape, (classes,)):
        problem = f"inconsistent weight size, expected {classes} but got {shown(weight.shape)}"
        raise failure(RuntimeError, "multi_margin_loss", problem, "one weight a class")
    index = prims.check_index(
        target_classes, classes, "multi_margin_loss", _NO_CLASS, error="runtime", strict=True
    )
    column = prims.unsqueeze(index, 1)
    chosen = prims.broadcast_to(prims.gather(rows, column, 1), rows.shape)
    value = _positive_part(rows - chosen + margin)
    value = value * value if p == 2 else value
    if weight is not None:
        value = value * prims.unsqueeze(prims.take(weight, index, 0), 1)
    places = prims.iota(rows.shape, 1, "i64")
    other = prims.ne(places, prims.broadcast_to(column, rows.shape))
    total = prims.sum(prims.where(other, value, _zero(value)), 1)
    total = total / prims.constant(classes, total)
    if input.ndim < 2:
        total = prims.reshape(total, ())
    return reduced(total, kind)


def _label_samples() -> Iterator[Sample]:
    labels = T(2, 4, values=[[3, 0, -1, 1], [1, -1, 2, 0]], dtype="i64")
    yield sample(T(2, 4), labels)
    yield sample(T(2, 4), labels, reduction="none")
    yield sample(T(4), T(4, values=[2, 0, 1, 3], dtype="i64"), reduction="sum")
    yield sample(T(4), T(4, values=[-1, 0, 1, 3], dtype="i64"))


@loss(explain=False, samples=_label_samples)
def multilabel_margin_loss(input: Tensor, target: Tensor) -> Tensor:
    """Sum over labels y and other classes i of max(0, 1 - x[y] + x[i]) / C.

    Shape: `(N, C)` or `(C)`, both; a target row holds labels up to the first -1.

    Raises:
        RuntimeError: the shapes differ; a label names no class, found when the call runs.

    Example:
        >>> F.multilabel_margin_loss(torch.tensor([[0.1, 0.2, 0.4]]), torch.tensor([[2, -1, 0]]))
        tensor(0.5000)
    """
    if input.ndim > 2 or not same_sizes(input.shape, target.shape):
        problem = f"inconsistent target size: {shown(target.shape)} for input of size: "
        problem += f"{shown(input.shape)}"
        raise failure(RuntimeError, "multilabel_margin_loss", problem, "labels of a row, then -1")
    if target.dtype != "i64":
        raise RuntimeError(
            "[multilabel_margin_loss] expected scalar type Long but found "
            f"{TITLES[given_dtype(target)]}\nhint: labels are numbers of classes: target.long()"
        )
    _check_classes("multilabel_margin_loss", input)
    rows, labels = _as_rows(input), prims.cast(_as_rows(target), "i64")
    ended = prims.cumsum(prims.cast(labels < 0, "i64"), 1)
    used = prims.eq(ended, _zero(ended))
    classes = rows.shape[1]
    safe = prims.check_index(
        prims.where(used, labels, _zero(labels)),
        classes,
        "multilabel_margin_loss",
        _NO_LABEL,
        error="runtime",
        strict=True,
    )
    batch = rows.shape[0]
    cube = (batch, classes, classes)  # sample, label, class
    chosen = prims.broadcast(prims.gather(rows, safe, 1), cube, (0, 1))
    value = _positive_part(prims.broadcast(rows, cube, (0, 2)) - chosen + 1.0)
    hit = prims.eq(prims.broadcast(safe, cube, (0, 1)), prims.iota(cube, 2, "i64"))
    is_label = prims.any(hit & prims.broadcast(used, cube, (0, 1)), 1)
    counted = prims.broadcast(used, cube, (0, 1)) & ~prims.broadcast(is_label, cube, (0, 2))
    total = prims.reduce_dims("sum", prims.where(counted, value, _zero(value)), (1, 2))
    total = total / prims.constant(classes, total)
    return prims.reshape(total, ()) if input.ndim < 2 else total


def _soft_samples() -> Iterator[Sample]:
    targets = T(2, 4, low=0.0, high=1.0, grad=False)
    yield sample(T(2, 4), targets)
    yield sample(T(2, 4), targets, T(4, low=0.1, grad=False), reduction="none")
    yield sample(T(4), T(4, low=0.0, high=1.0, grad=False), reduction="sum")


@loss(explain=False, promote="default", samples=_soft_samples, autocast="")
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None
) -> Tensor:
    """Mean over classes of -(t log s(x) + (1 - t) log s(-x)), s the logistic function.

    Raises:
        RuntimeError: the shapes do not broadcast.

    Example:
        >>> F.multilabel_soft_margin_loss(torch.zeros(1, 3), torch.ones(1, 3))
        tensor(0.6931)
    """
    refuse_bools(target, target)
    if CATEGORY[given_dtype(input)] != 2:
        raise unsupported(
            "multilabel_soft_margin_loss", input, "convert the input to a real floating-point type"
        )
    x, t = _both(input, target, "multilabel_soft_margin_loss")
    tail = prims.log1p(prims.exp(-prims.abs(x)))
    positive = prims.minimum(x, _zero(x)) - tail  # log s(x)
    positive = prims.with_derivative(positive, x, rule="log_sigmoid")
    value = (1.0 - t) * x - positive
    if weight is not None:
        value = value * weight
    mean = prims.sum(value, value.ndim - 1)
    return mean / prims.constant(value.shape[-1], mean)


prims.register_rule("log_sigmoid", lambda grad, out, x: (grad * prims.sigmoid(-x),))


# ------------------------------------------------------------------------------ one-hot


@op(
    name="_one_hot",
    where="private",
    samples=lambda: [sample(T(2, 3, dtype="i64", low=0, high=4), 4)],
)
def one_hot_of(self: Tensor, num_classes: SymInt) -> Tensor:
    """1 where a class equals the place in a new last dimension."""
    shape = (*self.shape, num_classes)
    places = prims.iota(shape, self.ndim, "i64")
    classes = prims.broadcast(self, shape, range(self.ndim))
    return prims.cast(prims.eq(classes, places), "i64")


def _one_hot_errors() -> Iterator[ErrorSample]:
    wrong = T(2, values=[1, -1], dtype="i64")
    yield ErrorSample(sample(wrong), RuntimeError, "non-negative")
    large = T(2, values=[1, 3], dtype="i64")
    yield ErrorSample(sample(large, 2), RuntimeError, "smaller than num_classes")


@op(
    where=_F,
    host=True,
    samples=lambda: [
        sample(T(2, 3, dtype="i64", low=0, high=4)),
        sample(T(3, dtype="i64", low=0, high=4), 6),
        sample(T(0, dtype="i64"), 3),
        sample(T(values=2, dtype="i64"), 3),
    ],
    errors=_one_hot_errors,
)
def one_hot(tensor: Tensor, num_classes: int = -1) -> Any:
    """Classes as rows with a single 1.

    Shape: `(*)` int64 -> `(*, num_classes)` int64; the largest class + 1 when -1.

    Raises:
        RuntimeError: not int64, or a class outside [0, num_classes).

    Example:
        >>> torch.nn.functional.one_hot(torch.tensor([1, 0]))
        tensor([[0, 1],
                [1, 0]])
    """
    from flambeau.language.dtypes import name_of

    def fail(text: str, hint: str) -> RuntimeError:
        return RuntimeError(f"[one_hot] {text}\nhint: {hint}")

    if isinstance(tensor, Node):
        return one_hot_of(tensor, num_classes)
    if name_of(tensor.dtype) != "i64":
        raise fail("is only applicable to index tensor of type LongTensor.", "call .long()")
    if tensor.numel() == 0:
        if num_classes <= 0:
            raise fail("Can not infer total number of classes from empty tensor.", "pass it")
        return one_hot_of(tensor, num_classes)
    if not has_data(tensor) and num_classes > 0:
        return one_hot_of(tensor, static_size(num_classes))
    if int(tensor.min()) < 0:
        raise fail("Class values must be non-negative.", "classes count from 0")
    largest = int(tensor.max())
    if num_classes == -1:
        num_classes = largest + 1
    elif num_classes < 1:
        raise fail("num_classes should be positive", "leave it out to infer it")
    elif largest >= num_classes:
        raise fail("Class values must be smaller than num_classes.", "count all classes")
    return one_hot_of(tensor, static_size(num_classes))


# ------------------------------------------------------------------------------ distances of pairs


@op(
    where=f"torch {_F}",
    promote="keep",
    samples=lambda: [sample(T(5, 3)), sample(T(4, 3), 1.0), sample(T(1, 3))],
)
def pdist(input: Tensor, p: float = 2) -> Tensor:
    """p-distances of all pairs of rows i < j, in the order of `triu_indices`.

    Shape: `(N, D)` -> `(N (N - 1) / 2)`.

    Raises:
        RuntimeError: another rank, or a negative p.

    Example:
        >>> torch.pdist(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
        tensor([5.])
    """
    if input.ndim != 2 or p < 0:
        problem = f"only supports 2D tensors and p >= 0, got {shown(input.shape)}, p={p}"
        raise failure(RuntimeError, "pdist", problem, "(N, D)")
    n = static_size(input.shape[0])
    count = n * (n - 1) // 2
    if count == 0:
        return prims.slice(prims.reshape(input, (prod(input.shape),)), 0, 0, 0)
    # Pair k counts the rows from the end: row i starts after i (2 n - i - 1) / 2 pairs.
    k = prims.cast(prims.iota((count,), 0, "i64"), "f64")
    root = prims.sqrt((2.0 * n - 1.0) * (2.0 * n - 1.0) - k * 8.0 - 0.5)
    row = prims.cast(prims.floor(((2.0 * n - 1.0) - root) * 0.5), "i64")
    start = prims.floor_div(row * (2 * n - 1) - row * row, prims.full_like(2, row))
    column = prims.iota((count,), 0, "i64") - start + row + 1
    difference = prims.take(input, row, 0) - prims.take(input, column, 0)
    return _length(difference, p, False)
