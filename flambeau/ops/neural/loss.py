"""Losses. Each is one program, so a mean over elements is one fused reduction.

`reduction` is "none", "mean" or "sum"; the legacy flags `size_average` and `reduce` are read as
PyTorch reads them. Formulas: Szegedy et al. 2016 (label smoothing), Huber 1964, Girshick 2015
(smooth L1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from functools import reduce as folded
from typing import Any

from flambeau import prims
from flambeau.ir.dtypes import TITLES
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.ir.node import Node
from flambeau.language.definition import Body, OpDefinition, given_dtype, op
from flambeau.language.layout import same
from flambeau.language.promotion import CATEGORY, compute_dtype, default_dtype, promote_types
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Scalar, Tensor, annotated_schema
from flambeau.ops.broadcasting import (
    check_one_dtype,
    insist,
    is_complex,
    is_float,
    rounded,
    unsupported,
)
from flambeau.ops.common import shown
from flambeau.ops.pointwise.binary import refuse_bools
from flambeau.ops.pointwise.pointwise import clamped
from flambeau.prims.common import COMPLEX, FLOATS

_F = "nn.functional"
LEGACY = "bool? size_average=None, bool? reduce=None, str reduction='mean'"


def reduction_of(name: str, size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction, legacy flags applied.

    Raises:
        ValueError: not one of the three.
    """
    if size_average is not None or reduce is not None:
        number = "none" if reduce is False else "sum" if size_average is False else "mean"
        late("flambeau.core.warned").warn(
            "size_average and reduce args will be deprecated, please use "
            f"reduction='{number}' instead."
        )
        return number
    if reduction not in ("none", "mean", "sum"):
        problem = f"{reduction} is not a valid value for reduction"
        raise failure(ValueError, name, problem, "use 'none', 'mean' or 'sum'")
    return reduction


def warn_of_broadcast(input: Node, target: Node) -> None:
    """Warns where input and target have not one shape."""
    wide, narrow = shown(input.shape), shown(target.shape)
    if wide != narrow:
        late("flambeau.core.warned").warn(
            f"Using a target size (torch.Size({narrow})) that is different to the input size "
            f"(torch.Size({wide})). This will likely lead to incorrect results due to "
            "broadcasting. Please ensure they have the same size."
        )


def reduction_named(number: int) -> str:
    """The reduction that PyTorch's inner signatures give by number."""
    return {1: "mean", 2: "sum"}.get(number, "none")


def fraction_dtype(*dtypes: str) -> str:
    """The dtype of a quotient of operands: the promoted one, of integers the default."""
    common = folded(promote_types, dtypes)
    return common if CATEGORY[common] >= 2 else default_dtype()


def reduced(value: Node, reduction: str) -> Node:
    """`value`, its mean or its sum."""
    if reduction == "none":
        return value
    if CATEGORY[value.dtype] < 2:
        value = prims.cast(value, "i64")
    total = prims.reduce_dims("sum", value, tuple(range(value.ndim)))
    if reduction == "sum":
        return total
    count: Any = 1
    for size in value.shape:
        count = count * size
    return total / prims.constant(count, total)


def weighted(value: Node, weight: Node | None, reduction: str) -> Node:
    """`value * weight`, reduced; a mean divides by the sum of the weights."""
    if weight is None:
        return reduced(value, reduction)
    if reduction != "mean":
        return reduced(value * weight, reduction)
    spread = prims.broadcast_to(weight, value.shape)
    return reduced(value * weight, "sum") / reduced(spread, "sum")


_REDUCED = """    Shape: input and target broadcast together -> `()`, or their shape under "none".

    Args:
        size_average, reduce: the older spelling of `reduction`.
        reduction: "none", "mean" or "sum" of the elements.

"""


def loss(before: str = "", explain: bool = True, **options: Any) -> Callable[[Body], OpDefinition]:
    """`@op(kind="loss")` of a loss per element: adds its reduction to signature and documentation.

    The body returns the elements, or the elements and their weights.

    Args:
        before: the parameter that `size_average`, `reduce` and `reduction` precede; "": none.
        explain: whether the documentation gets the shape and the three arguments, too.
    """

    def decorate(body: Body) -> OpDefinition:
        name = body.__name__
        head, _, result = annotated_schema(body, name).rpartition(") -> ")
        arguments = head.split(", ")
        names = [argument.partition("=")[0].rpartition(" ")[2] for argument in arguments]
        at = names.index(before) if before else len(names)
        schema = ", ".join([*arguments[:at], LEGACY, *arguments[at:]])

        def reducing(*values: Any) -> Node:
            reduction = reduction_of(name, *values[at : at + 3])  # refused before the operands are
            elements = body(*values[:at], *values[at + 3 :])
            element, weight = elements if isinstance(elements, tuple) else (elements, None)
            return weighted(element, weight, reduction)

        reducing.__name__, reducing.__module__ = name, body.__module__
        text = body.__doc__ or ""
        section = min(text.find(f"    {title}:") % len(text) for title in ("Raises", "Example"))
        reducing.__doc__ = text[:section] + _REDUCED * explain + text[section:]
        return op(f"{schema}) -> {result}", kind="loss", **options)(reducing)

    return decorate


def _pair_samples() -> Any:
    for options in ({}, {"reduction": "sum"}, {"reduction": "none"}):
        yield sample(T(3, 5), T(3, 5), **options)
    yield sample(T(), T())
    yield sample(T(70), T(70))


def _unit_samples() -> Any:
    for reduction in ("mean", "sum", "none"):
        yield sample(
            T(3, 5, low=0.1, high=0.9), T(3, 5, low=0.1, high=0.9, grad=False), reduction=reduction
        )


@loss(
    before="weight", promote="default", out=True, participants="input target", samples=_pair_samples
)
def mse_loss(input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """(input - target)^2.

    Example:
        >>> F.mse_loss(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]))
        tensor(2.5000)
    """
    if not is_float(input):
        raise unsupported("mse_loss", input, "convert both to a floating-point type first")
    warn_of_broadcast(input, target)
    difference = input - target
    return difference * difference, weight


@loss(
    before="weight",
    promote="default",
    unsaved="input target",
    participants="input target",
    samples=_pair_samples,
)
def l1_loss(input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """|input - target|.

    Example:
        >>> F.l1_loss(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]))
        tensor(1.5000)
    """
    refuse_bools(input, target)
    warn_of_broadcast(input, target)
    return prims.abs(input - target), weight


@loss(
    before="beta", promote="default", out=True, participants="input target", samples=_pair_samples
)
def smooth_l1_loss(input: Tensor, target: Tensor, beta: float = 1.0) -> Tensor:
    """d^2 / (2 beta) for |d| < beta, else |d| - beta / 2.

    Source: Girshick, Fast R-CNN, 2015.

    Raises:
        RuntimeError: beta is negative.

    Example:
        >>> F.smooth_l1_loss(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]))
        tensor(1.)
    """
    if beta < 0:
        problem = f"does not support negative values for beta, got {beta}"
        raise failure(RuntimeError, "smooth_l1_loss", problem, "beta=1.0")
    if is_complex(input):
        raise unsupported("smooth_l1_loss", input, "take the loss of real and imaginary parts")
    warn_of_broadcast(input, target)
    distance = prims.abs(input - target)
    if beta == 0:
        return distance
    inside = distance * distance * 0.5 / beta
    return prims.where(distance < beta, inside, distance - 0.5 * beta)


@op(kind="loss", out=True, samples=_pair_samples)
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """d^2 / 2 for |d| < delta, else delta (|d| - delta / 2), in the dtype of the input.

    Source: Huber, Robust Estimation of a Location Parameter, 1964.

    Shape: input and target broadcast together -> `()`, or their shape under "none".

    Args:
        reduction: "none", "mean" or "sum" of the elements.
        delta: the distance from which on the loss is linear.

    Raises:
        RuntimeError: delta is not positive.

    Example:
        >>> F.huber_loss(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]))
        tensor(1.)
    """
    if delta <= 0:
        problem = f"does not support non-positive values for delta, got {delta}"
        raise failure(RuntimeError, "huber_loss", problem, "delta=1.0")
    for operand in (input, target):
        if is_complex(operand) or not is_float(input):
            raise unsupported("huber_loss", operand, "convert it to a floating-point type first")
    warn_of_broadcast(input, target)
    a, b = (prims.cast(x, promote_types(input.dtype, target.dtype)) for x in (input, target))
    distance = prims.abs(a - b)
    inside = distance * distance * 0.5
    value = prims.where(distance < delta, inside, (distance - 0.5 * delta) * delta)
    value = value if weight is None else value * prims.cast(weight, value.dtype)
    result = reduced(value, reduction_of("huber_loss", None, None, reduction))
    return prims.cast(result, input.dtype)


@loss(
    out=True,
    samples=lambda: iter(
        sample(s.args[0], s.args[1], reduction=s.kwargs["reduction"]) for s in _unit_samples()
    ),
)
def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """-(t log p + (1 - t) log(1 - p)), logarithms not below -100.

    Raises:
        ValueError: the shapes differ.
        RuntimeError: an element of either is outside [0, 1], found when the call runs.

    Example:
        >>> F.binary_cross_entropy(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]))
        tensor(0.6931)
    """
    _same_shape("binary_cross_entropy", input, target)
    check_one_dtype("binary_cross_entropy", input=input, target=target)
    if weight is not None:
        weight = prims.broadcast_to(weight, input.shape)
    one = prims.full_like(1, input)
    for name, x in (("input", input), ("target", target)):
        outside = ~((x >= 0) & prims.le(x, one))
        input = insist(input, outside, "binary_cross_entropy", _NO_PROBABILITY.format(name))
    floor = prims.full_like(-100.0, input)
    positive = prims.maximum(prims.log(input), floor)
    negative = prims.maximum(prims.log1p(-input), floor)
    value = (target - 1.0) * negative - target * positive
    value = prims.with_derivative(value, input, target, rule="bce")
    return value if weight is None else value * weight


_NO_PROBABILITY = (
    "[binary_cross_entropy] all elements of {} should be between 0 and 1\n"
    "hint: sigmoid first, or binary_cross_entropy_with_logits"
)


def _bce_rule(grad: Node, out: Node, p: Node, target: Node) -> Any:
    spread = prims.maximum((1.0 - p) * p, prims.full_like(1e-12, p))
    return grad * (p - target) / spread, grad * (prims.log1p(-p) - prims.log(p))


prims.register_rule("bce", _bce_rule)


def _same_shape(name: str, a: Node, b: Node) -> None:
    if a.ndim != b.ndim or not all(same(x, y) for x, y in zip(a.shape, b.shape, strict=True)):
        problem = f"Target size ({shown(b.shape)}) must be the same as input size "
        problem += f"({shown(a.shape)})"
        raise failure(ValueError, name, problem, "reshape the target")


@op(
    where=_F,
    samples=lambda: iter(
        sample(T(3, 5), T(3, 5, low=0, high=1), reduction=r) for r in ("mean", "sum", "none")
    ),
    autocast="float32",
)
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """(1 - t) x - log sigmoid(x), weighted by `pos_weight` on the positive part, in the dtype of
    the target.

    Raises:
        ValueError: the shapes differ.
        RuntimeError: the target, or `pos_weight`, is a mask; the target holds integers.
        NotImplementedError: the input holds no real floating-point numbers.

    Example:
        >>> F.binary_cross_entropy_with_logits(torch.zeros(2), torch.tensor([0.0, 1.0]))
        tensor(0.6931)
    """
    _same_shape("binary_cross_entropy_with_logits", input, target)
    final = _logits_dtype(input, target, pos_weight)
    step = partial(rounded, dtype=final) if input.dtype == final else _unrounded
    wide = compute_dtype(
        folded(promote_types, [x.dtype for x in (input, target, weight, pos_weight) if x])
    )
    input, target, weight, pos_weight = (
        x and prims.cast(x, wide) for x in (input, target, weight, pos_weight)
    )
    tail = prims.log1p(prims.exp(-prims.abs(input)))
    part = step(prims.minimum(input, prims.full_like(0, input)) - tail)
    if pos_weight is not None:
        share = step(step(step(pos_weight - 1.0) * target) + 1.0)
        part = step(share * part)
    value = step(step(step(1.0 - target) * input) - part)
    value = value if weight is None else step(value * weight)
    kind = reduction_of("binary_cross_entropy_with_logits", size_average, reduce, reduction)
    return prims.cast(reduced(value, kind), final)


def _unrounded(x: Node) -> Node:
    return x


def _logits_dtype(x: Node, target: Node, positive: Node | None) -> str:
    """The dtype of `1 - target`, into which the rest is computed in place."""
    name = "binary_cross_entropy_with_logits"
    refuse_bools(target, target)
    if positive is not None:
        refuse_bools(positive, positive)
    if not is_float(x) or is_complex(target):
        raise unsupported(name, target if is_float(x) else x, "convert it to a real float first")
    if not is_float(target):
        problem = f"result type {TITLES[x.dtype]} can't be cast to the desired output type "
        problem += f"{TITLES[target.dtype]}"
        raise failure(RuntimeError, name, problem, "convert the target to a floating-point type")
    return target.dtype


@op(
    f"kl_div(Tensor input, Tensor target, {LEGACY}, bool log_target=False) -> Tensor",
    kind="loss",
    promote="default",
    samples=_unit_samples,
)
def kl_div(
    input: Node,
    target: Node,
    size_average: bool | None,
    reduce: bool | None,
    reduction: str,
    log_target: bool,
) -> Node:
    """t (log t - input), input being log-probabilities; "batchmean" divides the sum by the
    batch.

    Source: Kullback and Leibler, On Information and Sufficiency, 1951.

    Shape: input and target broadcast together -> `()`, or their shape under "none".

    Args:
        reduction: "none", "mean", "sum", or "batchmean" (the formula's own).
        log_target: whether the target is logarithms, too.

    Example:
        >>> F.kl_div(torch.zeros(2), torch.ones(2), reduction="sum")
        tensor(0.)
    """
    dtypes = {given_dtype(input), given_dtype(target)}
    if not dtypes <= FLOATS:
        kind = "Complex" if dtypes & COMPLEX else "Integral"
        problem = f"kl_div: {kind} inputs not supported."
        raise failure(RuntimeError, "kl_div", problem, "convert them to real floats")
    if log_target:
        value = prims.exp(target) * (target - input)
    else:
        input, target = prims.broadcast_all(input, target)
        zero = prims.full_like(0, target)
        some = prims.ne(target, zero)  # a negative one is no probability: NaN
        safe = prims.where(some, target, prims.full_like(1, target))
        term = prims.where(some, target * prims.log(safe), zero)
        value = term - target * input
    if reduction == "mean":
        late("flambeau.core.warned").warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size."
            "'batchmean' divides only by the batch size, and aligns with the KL div math "
            "definition."
            "'mean' will be changed to behave the same as 'batchmean' in the next major release."
        )
    if reduction == "batchmean":
        total = reduced(value, "sum")
        return total / prims.constant(value.shape[0], total)
    return reduced(value, reduction_of("kl_div", size_average, reduce, reduction))


@loss(out=True, samples=_pair_samples)
def soft_margin_loss(input: Tensor, target: Tensor) -> Tensor:
    """log(1 + exp(-target * input)).

    Example:
        >>> F.soft_margin_loss(torch.zeros(2), torch.tensor([1.0, -1.0]))
        tensor(0.6931)
    """
    half = given_dtype(input)
    if is_complex(target) and not is_complex(input):
        problem = f"result type {TITLES[promote_types(half, given_dtype(target))]} can't be cast "
        problem += f"to the desired output type {TITLES[half]}"
        raise failure(
            RuntimeError, "soft_margin_loss", problem, "take the loss of real and imaginary parts"
        )
    target = prims.cast(target, input.dtype)  # labels may be integers
    power = rounded(prims.exp(rounded(-target * input, half)), half)
    return rounded(prims.log1p(power), half)


def hinge(x: Node) -> Node:
    """max(0, x) with the gradient of `clamp_min`, which is that of x at 0."""
    return clamped("clamp_min", x, 0, None)


@loss(unsaved="input target", samples=_pair_samples)
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0) -> Tensor:
    """input where target is 1, max(0, margin - input) where it is -1.

    Example:
        >>> F.hinge_embedding_loss(torch.tensor([0.5, 0.5]), torch.tensor([1.0, -1.0]))
        tensor(0.5000)
    """
    half = given_dtype(input)
    zero = prims.full_like(0, input)
    margin = margin if CATEGORY[input.dtype] >= 2 else math.floor(margin)
    far = hinge(rounded(rounded(prims.full_like(margin, input), half) - input, half))
    target = prims.cast(target, "i64") if target.dtype == "bool" else target
    one = prims.full_like(1, target)
    value = prims.where(prims.ne(target, one), far, zero) + prims.where(
        prims.ne(target, -one), input, zero
    )
    return rounded(value, half)


@loss(promote="float", unsaved="input1 input2 target", samples=lambda: [sample(T(5), T(5), T(5))])
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0
) -> Tensor:
    """max(0, -target (input1 - input2) + margin).

    Raises:
        RuntimeError: tensors of different ranks.

    Example:
        >>> F.margin_ranking_loss(torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([1.0]))
        tensor(2.)
    """
    refuse_bools(input1, input2)
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(
            "[margin_ranking_loss] All input tensors should have same dimension but got sizes: "
            f"input1: {shown(input1.shape)}, input2: {shown(input2.shape)}, target: "
            f"{shown(target.shape)}\nhint: unsqueeze what lacks a dimension"
        )
    if given_dtype(target) == "bool":
        problem = "Negation, the `-` operator, on a bool tensor is not supported"
        raise failure(RuntimeError, "margin_ranking_loss", problem, "labels are 1 and -1")
    return hinge(-target * (input1 - input2) + margin)


@op(where=_F, samples=lambda: [sample(T(5), T(5, low=0.0, high=4.0))], autocast="float32")
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-08,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(input) - target * input, with Stirling's term when `full`.

    Shape: input and target broadcast together -> `()`, or their shape under "none".

    Args:
        size_average, reduce: the older spelling of `reduction`.
        reduction: "none", "mean" or "sum" of the elements.
        log_input: False: the input is the rate itself, and its logarithm is taken of input + eps.

    Example:
        >>> F.poisson_nll_loss(torch.zeros(2), torch.ones(2))
        tensor(1.)
    """
    if full:
        refuse_bools(target, target)
    own, final = input.dtype, promote_types(fraction_dtype(input.dtype), target.dtype)
    half = own if own == target.dtype else compute_dtype(final)
    input, target = (prims.cast(x, compute_dtype(final)) for x in (input, target))
    rate = rounded(prims.exp(input), own) if log_input else input
    power = input if log_input else rounded(prims.log(rounded(input + eps, own)), own)
    value = rounded(rate - rounded(target * power, half), half)
    if full:
        turn = rounded(prims.log(rounded(target * (2 * math.pi), half)), half)
        first = rounded(target * rounded(prims.log(target), half), half)
        stirling = rounded(first - target, half) + rounded(turn * 0.5, half)
        value = value + prims.where(target > 1, stirling, prims.full_like(0, value))
    kind = reduction_of("poisson_nll_loss", size_average, reduce, reduction)
    return prims.cast(reduced(value, kind), final)


def _gaussian_samples() -> Iterator[Sample]:
    yield sample(T(5), T(5), T(5, low=0.1))
    yield sample(T(2, 3), T(2, 3), T(2, low=0.1))
    yield sample(T(5), T(5), 0.5)


def _gaussian_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(5), T(5), T(3, low=0.1)), ValueError, "var is of incorrect size")
    negative = T(2, values=[1.0, -1.0], dtype="f32")
    yield ErrorSample(sample(T(2), T(2), negative), ValueError, "var has negative entry/entries")


@op(
    where=_F,
    promote="float",
    unsaved="input target var",
    runtime="var",
    samples=_gaussian_samples,
    errors=_gaussian_errors,
)
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | Scalar,
    full: bool = False,
    eps: float = 1e-06,
    reduction: str = "mean",
) -> Tensor:
    """(log var + (input - target)^2 / var) / 2, var not below eps.

    Source: Nix and Weigend, Estimating the Mean and Variance, 1994.

    Shape: input and target broadcast together -> `()`, or their shape under "none"; `var` as the
    input, without its last dimension, or with one dimension of size 1.

    Raises:
        ValueError: `var` has another size, or a negative element (found when the call runs);
            another reduction.

    Example:
        >>> F.gaussian_nll_loss(torch.zeros(2), torch.ones(2), torch.ones(2))
        tensor(0.5000)
    """
    refuse_bools(input, target)
    if not var.is_scalar and CATEGORY[given_dtype(var)] < 2:
        problem = "result type Float can't be cast to the desired output type "
        problem += f"{TITLES[given_dtype(var)]}"
        raise failure(RuntimeError, "gaussian_nll_loss", problem, "variances are floats")
    var = _checked_variance(input, var)
    floor = prims.stop_gradient(prims.maximum(var, prims.full_like(eps, var)))
    safe = prims.with_derivative(floor, var, rule="straight")
    value = (prims.log(safe) + (input - target) * (input - target) / safe) * 0.5
    value = value + 0.5 * math.log(2 * math.pi) if full else value
    return reduced(value, reduction_of("gaussian_nll_loss", None, None, reduction))


def _checked_variance(x: Node, var: Node) -> Node:
    """`var` as it broadcasts to `x`; a negative element raises when the call runs."""
    if var.is_scalar:
        var = prims.broadcast_to(prims.cast(var, x.dtype), x.shape)
    elif var.ndim == x.ndim - 1 and all(map(same, x.shape, var.shape)):
        var = prims.unsqueeze(var, -1)
    differing = [n for m, n in zip(x.shape, var.shape, strict=False) if not same(m, n)]
    if var.ndim != x.ndim or not (not differing or (len(differing) == 1 and same(differing[0], 1))):
        raise ValueError(
            f"[gaussian_nll_loss] var is of incorrect size: {shown(var.shape)} for an input of "
            f"{shown(x.shape)}\nhint: one variance per element, or one for a dimension"
        )
    return insist(var, var < 0, "gaussian_nll_loss", _NEGATIVE, "value")


_NEGATIVE = "[gaussian_nll_loss] var has negative entry/entries\nhint: pass variances"
prims.register_rule("straight", lambda grad, out, x: (grad,))
