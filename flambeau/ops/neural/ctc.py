"""`ctc_loss`: connectionist temporal classification (Graves et al. 2006), in logarithms.

A target of S labels has 2 S + 1 states: its labels, and a blank around each. What reaches a state
by a time (alpha) and what leads from it to the end (beta) are recurrences over time, one kernel a
step; sums run in a fixed order, so that losses and gradients are deterministic. The gradient is
PyTorch's: that of the loss with respect to what log_softmax made the log probabilities of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.lock import importing
from flambeau.ir.node import Node
from flambeau.ir.size import Size
from flambeau.language.definition import function, op
from flambeau.language.dtypes import name_of
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Scalar, Tensor
from flambeau.ops.common import number_shown, shown
from flambeau.ops.neural.loss import reduction_named, reduction_of
from flambeau.ops.shape.shape import stack
from flambeau.prims.scan import shift

_F = "nn.functional"
_NO_LABEL = (
    "[ctc_loss] target {value} is no class: there are {size}\nhint: labels lie in [0, classes)"
)


def _joined(*terms: Node) -> Node:
    """Logarithm of the sum of exponentials of nodes, -inf where all are."""
    top = terms[0]
    for term in terms[1:]:
        top = prims.maximum(top, term)
    finite = prims.where(top > -math.inf, top, prims.full_like(0, top))
    total = prims.exp(terms[0] - finite)
    for term in terms[1:]:
        total = total + prims.exp(term - finite)
    return prims.log(total) + finite


@op(
    name="_ctc_states",
    where="private",
    differentiable=False,
    samples=lambda: [
        sample(T(4, 2, 3), T(2, 2, dtype="i64", low=1, high=3), T(2, values=[2, 1], dtype="i64"), 0)
    ],
    varying=True,
)
def ctc_states(
    log_probs: Tensor, targets: Tensor, target_lengths: Tensor, blank: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Log probability of each state's label (T, N, 2S + 1), the labels, and whether a state may be
    reached from the one before the last, (N, 2S + 1): a label other than the previous one; alpha
    at time 0, and beta at the end.
    """
    batch, count = targets.shape
    places = prims.iota(targets.shape, 1, "i64")
    used = places < prims.broadcast(target_lengths, targets.shape, (0,))
    labels = prims.where(used, targets, prims.full_like(blank, targets))
    labels = prims.check_index(labels, log_probs.shape[2], "ctc_loss", _NO_LABEL, strict=True)
    blanks = prims.full_like(blank, labels)
    pairs = prims.cat([prims.unsqueeze(blanks, 2), prims.unsqueeze(labels, 2)], 2)
    flat = prims.reshape(pairs, (batch, count * 2))
    states = prims.cat([flat, prims.full(blank, (batch, 1), "i64")], 1)
    before = shift(states, 1, 2, blank)
    may_skip = prims.ne(states, before) & prims.ne(states, prims.full_like(blank, states))
    shape = (*log_probs.shape[:2], states.shape[1])
    emission = prims.gather(log_probs, prims.broadcast(states, shape, (1, 2)), 2)
    first = prims.squeeze(prims.slice(emission, 0, 0, 1), 0)
    place = prims.iota(first.shape, 1, "i64")
    last = _columns(target_lengths, first) * 2
    low = prims.full_like(-math.inf, first)
    begins = (place < 2) & prims.le(place, last)
    ends = prims.le(place, last) & (place + 1 >= last)
    ends = prims.where(ends, prims.full_like(0, low), low)
    return emission, states, may_skip, prims.where(begins, first, low), ends


def _columns(x: Node, like: Node) -> Node:
    return prims.broadcast(x, like.shape, (0,))


@op(
    name="_ctc_forward",
    where="private",
    differentiable=False,
    runtime="t",
    samples=lambda: [
        sample(T(2, 3), T(2, 3), T(2, 3, dtype="bool"), T(2, values=[3, 1], dtype="i64"), 1)
    ],
)
def ctc_forward(
    before: Tensor, emission: Tensor, may_skip: Tensor, input_lengths: Tensor, t: Scalar
) -> Tensor:
    """alpha at time t > 0 from that at t - 1; unchanged after the end of an input."""
    skipped = shift(before, 1, 2, -math.inf)
    skipped = prims.where(may_skip, skipped, prims.full_like(-math.inf, skipped))
    scores = _joined(before, shift(before, 1, 1, -math.inf), skipped) + emission
    return prims.where(_columns(input_lengths, scores) > _time(t, scores), scores, before)


def _time(t: Any, like: Node) -> Node:
    return prims.constant(t, prims.full(0, like.shape, "i64"))


@op(
    name="_ctc_backward",
    where="private",
    differentiable=False,
    runtime="t",
    samples=lambda: [
        sample(
            T(2, 3),
            T(2, 3),
            T(2, 3),
            T(2, 3, dtype="bool"),
            T(2, values=[3, 1], dtype="i64"),
            1,
        )
    ],
)
def ctc_backward(
    after: Tensor,
    ends: Tensor,
    emission: Tensor,
    may_skip: Tensor,
    input_lengths: Tensor,
    t: Scalar,
) -> Tensor:
    """beta at time t from that at t + 1; `ends` at the last time of an input."""
    low = prims.full_like(-math.inf, after)
    skipped = shift(prims.where(may_skip, after, low), 1, -2, -math.inf)
    scores = _joined(after, shift(after, 1, -1, -math.inf), skipped)
    goes_on = _columns(input_lengths, scores) > _time(t, scores) + 1
    return prims.where(goes_on, scores, ends) + emission


@op(
    name="_ctc_total",
    where="private",
    notes={"differentiable once": True},
    samples=lambda: [
        sample(
            T(2, 2, 3, grad=False),
            T(2, 3, dtype="i64", low=0, high=3),
            T(2, 2, 3, grad=False),
            T(2, 2, 3, grad=False),
            T(2, values=[2, 1], dtype="i64"),
            T(2, values=[1, 1], dtype="i64"),
            False,
        )
    ],
)
def ctc_total(
    log_probs: Tensor,
    states: Tensor,
    alpha: Tensor,
    beta: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    zero_infinity: bool,
) -> Tensor:
    """Negative log likelihoods (N) from what reaches the last states."""
    steps = alpha.shape[0]
    final = prims.squeeze(prims.slice(alpha, 0, steps - 1, 1), 0)
    place = prims.iota(final.shape, 1, "i64")
    last = _columns(target_lengths, final) * 2
    ends = prims.le(place, last) & (place + 1 >= last)
    low = prims.full_like(-math.inf, final)
    reached = prims.where(ends, final, low)
    top = prims.reduce_dims("max", reached, (1,), True)
    finite = prims.where(top > -math.inf, top, prims.full_like(0, top))
    total = prims.reduce_dims("sum", prims.exp(reached - finite), (1,), True)
    loss = prims.reshape(prims.neg(prims.log(total) + finite), (final.shape[0],))
    none = prims.full_like(0, loss)
    empty = prims.where(target_lengths > 0, prims.full_like(math.inf, loss), none)
    loss = prims.where(input_lengths > 0, loss, empty)
    value = prims.where(prims.isinf(loss), none, loss) if zero_infinity else loss
    others = (states, alpha, beta, input_lengths, loss)
    frozen = tuple(prims.stop_gradient(x) for x in others)
    return prims.with_derivative(
        prims.stop_gradient(value),
        log_probs,
        *frozen,
        rule="ctc",
        zero_infinity=zero_infinity,
    )


def _ctc_rule(
    grad: Node, out: Node, log_probs: Node, states: Node, alpha: Node, beta: Node,
    input_lengths: Node, loss: Node,
) -> tuple[Node | None, ...]:  # fmt: skip
    """Probability of a class less its share of all paths, at each time of the input.

    It is a constant of further differentiation, for alpha and beta are.
    """
    shape = log_probs.shape
    index = prims.broadcast(states, alpha.shape, (1, 2))
    total = alpha + beta + prims.broadcast(loss, alpha.shape, (1,))
    paths = prims.exp(total - prims.gather(log_probs, index, 2))  # alpha and beta have it both
    paths = prims.where(alpha > -math.inf, paths, prims.zeros_like(paths))
    share = prims.scatter(prims.zeros_like(log_probs), index, paths, 2, "add")
    gradient = prims.exp(log_probs) - share
    lost = 0.0 if out.attribute("zero_infinity") else math.nan
    infinite = prims.broadcast(prims.isinf(loss), shape, (1,))
    gradient = prims.where(infinite, prims.full_like(lost, gradient), gradient)
    time = prims.iota(shape, 0, "i64")
    inside = time < prims.broadcast(input_lengths, shape, (1,))
    gradient = prims.where(inside, gradient, prims.full_like(0, gradient))
    gradient = prims.stop_gradient(gradient)
    return gradient * prims.broadcast(grad, shape, (1,)), *[None] * 5


prims.register_rule("ctc", _ctc_rule)


# ------------------------------------------------------------------------------ the public function


def _fail(text: str, hint: str) -> RuntimeError:
    return RuntimeError(f"[ctc_loss] {text}\nhint: {hint}")


def _lengths(name: str, lengths: Any, batch: int, limit: Size | None) -> list[int]:
    """Lengths as numbers, checked."""
    if hasattr(lengths, "tolist"):
        if lengths.dtype.is_floating_point or lengths.dtype.is_complex:
            raise _fail(f"{name} must be integral", "call .long()")
        lengths = lengths.reshape(-1).tolist()
    elif not isinstance(lengths, (list, tuple)):
        problem = f"{name} must be a tensor or a tuple of ints, got {lengths!r}"
        raise failure(TypeError, "ctc_loss", problem, "one length per sample")
    values = [int(value) for value in lengths]
    if len(values) != batch:
        raise _fail(f"{name} must be of size batch_size {batch}", "one length per sample")
    low, high = min(values, default=0), max(values, default=0)
    if low < 0:
        raise _fail(f"Expected {name} to have value at least 0, but got value {low}", "lengths")
    if limit is not None and high > limit:
        text = f"Expected {name} to have value at most {number_shown(limit)}, but got value {high}"
        raise _fail(text, "log_probs is (T, N, C)")
    return values


def _padded(targets: Any, lengths: Sequence[int]) -> Any:
    """Targets as (N, longest) int64."""
    longest = max(lengths, default=0)
    targets = targets.long()
    if targets.ndim == 2:
        if targets.shape[0] != len(lengths) or targets.shape[1] < longest:
            text = f"Expected targets of at least {longest} labels for {len(lengths)} samples"
            raise _fail(f"{text}, got {shown(targets.shape)}", "(N, S)")
        return targets[:, :longest]
    if targets.ndim != 1 or targets.shape[0] != sum(lengths):
        text = f"Expected tensor to have size {sum(lengths)} at dimension 0, but got targets of "
        raise _fail(text + shown(targets.shape), "the targets of all samples, joined")
    rows, begin = [], 0
    for length in lengths:
        rows.append([min(begin + i, max(sum(lengths) - 1, 0)) for i in range(longest)])
        begin += length
    index = targets.new_tensor(rows).reshape(len(lengths), longest)
    return targets[index] if sum(lengths) else targets.new_zeros(index.shape)


def _check(log_probs: Any, targets: Any, blank: int) -> None:
    kind = name_of(log_probs.dtype)
    if kind not in ("f32", "f64"):
        problem = f"not implemented for {log_probs.dtype}"
        raise failure(NotImplementedError, "ctc_loss", problem, "call .float() first")
    if log_probs.ndim not in (2, 3):
        raise _fail(
            f"log_probs must be (T, N, C) or (T, C), got {shown(log_probs.shape)}", "(T, N, C)"
        )
    if not 0 <= blank < log_probs.shape[-1]:
        raise _fail("blank must be in label range", f"0 <= blank < {log_probs.shape[-1]}")
    if log_probs.shape[0] == 0 or targets.dtype.is_floating_point:
        raise _fail("Expected input with a time and targets of integers", "(T, N, C)")


def _recurrences(
    log_probs: Any, targets: Any, inputs: Any, lengths: Any, blank: int, both: bool
) -> tuple[Any, Any, Any]:
    """States, alpha and, if asked for, beta, of (T, N, 2S + 1)."""
    emission, states, may_skip, first, end = ctc_states.native(log_probs, targets, lengths, blank)
    steps = emission.shape[0]
    forward = [first]
    for t in range(1, steps):
        forward.append(ctc_forward.native(forward[-1], emission[t], may_skip, inputs, t))
    alpha = stack.native(forward)
    if not both:
        return states, alpha, alpha
    backward = [end]
    for t in range(steps - 1, -1, -1):
        backward.append(ctc_backward.native(backward[-1], end, emission[t], may_skip, inputs, t))
    return states, alpha, stack.native(backward[:0:-1])


def losses_of(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int,
    zero_infinity: bool,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Loss per sample and the targets' lengths, as tensors (N); and alpha (T, N, 2S + 1).

    Raises:
        RuntimeError, NotImplementedError, TypeError: arguments that do not fit.
    """
    with importing:
        from flambeau.autograd.transforms.wrappers import inside

    _check(log_probs, targets, blank)
    x = log_probs if log_probs.ndim == 3 else log_probs.unsqueeze(1)
    if log_probs.ndim == 2 and targets.ndim == 1:
        targets = targets.unsqueeze(0)
    inputs = _lengths("input_lengths", input_lengths, x.shape[1], x.shape[0])
    lengths = _lengths("target_lengths", target_lengths, x.shape[1], None)
    labels = _padded(targets, lengths)
    ends = labels.new_tensor(inputs), labels.new_tensor(lengths)
    derived = x.requires_grad or inside(x) is not x  # a transformation may want derivatives
    recurrences = _recurrences(x.detach(), labels, *ends, blank, derived)
    losses = ctc_total.native(x, *recurrences, *ends, zero_infinity)
    return losses, ends[1], recurrences[1]


def _samples() -> Iterator[Sample]:
    x, labels = T(3, 2, 4, low=-3.0, high=0.0), T(2, 2, values=[[1, 2], [3, 0]], dtype="i64")
    yield sample(x, labels, (3, 2), (2, 1))
    yield sample(x, T(3, values=[2, 2, 1], dtype="i64"), (3, 2), (2, 1), 3, "mean", True)


def _errors() -> Iterator[ErrorSample]:
    x, labels = T(5, 2, 4), T(2, 2, values=[[1, 2], [3, 0]], dtype="i64")
    yield ErrorSample(sample(x, labels, (5, 6), (2, 1)), RuntimeError, "at most 5")
    yield ErrorSample(sample(x, labels, (5,), (2, 1)), RuntimeError, "batch_size")
    yield ErrorSample(sample(x, labels, (5, 5), (2, 1), 4), RuntimeError, "blank")
    yield ErrorSample(sample(x, labels, (5, 5), (2, 1), 0, "all"), ValueError, "reduction")


_ARGUMENTS = (
    "Tensor log_probs, Tensor targets, object input_lengths, object target_lengths, int blank=0, "
)


@function(where=_F, samples=_samples, errors=_errors, autocast="float32")
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """Negative log likelihood of label sequences whose alignment to the input is not known.

    Shape: log_probs `(T, N, C)` or `(T, C)` float32 or float64, of log_softmax over C; targets
    `(N, S)` or all samples' labels joined; lengths `(N)` -> `()`, or `(N)` without reduction.

    Args:
        input_lengths, target_lengths: how much of each sample counts; tensors or tuples of ints.
        blank: the class that is no label.
        reduction: "mean" divides each loss by its target's length (at least 1) first.
        zero_infinity: zero infinite losses (targets longer than inputs) and their gradients.

    There are no second derivatives with respect to log_probs, as there are none in PyTorch.

    Raises:
        RuntimeError: lengths, blank or shapes do not fit.
        IndexError: a label is no class, found when the call runs.
        NotImplementedError: half types.

    Example:
        >>> log_probs = torch.full((2, 1, 2), 0.5).log()
        >>> torch.nn.functional.ctc_loss(log_probs, torch.tensor([[1]]), (2,), (1,)).exp()
        tensor(1.3333)
    """
    kind = reduction_of("ctc_loss", None, None, reduction)
    arguments = (log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)
    losses, lengths, _ = losses_of(*arguments)
    if kind == "mean":
        return (losses / lengths.clamp_min(1).to(losses.dtype)).mean()
    if kind == "sum":
        return losses.sum()
    return losses if log_probs.ndim == 3 else losses.squeeze(0)


@op(
    f"ctc_loss({_ARGUMENTS}int reduction=1, bool zero_infinity=False) -> Tensor",
    where="torch",
    host=True,
    samples=lambda: [
        sample(
            T(3, 2, 4, low=-3.0, high=0.0),
            T(2, 2, dtype="i64", low=1, high=4),
            (3, 2),
            (2, 1),
            0,
            1,
        )
    ],
    autocast="float32",
)
def ctc_loss_by_number(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Any:
    """`nn.functional.ctc_loss` with its reduction by number: 0 none, 1 mean, 2 sum.

    Example:
        >>> log_probs = torch.full((2, 1, 2), 0.5).log()
        >>> torch.ctc_loss(log_probs, torch.tensor([[1]]), (2,), (1,), reduction=2).exp()
        tensor(1.3333)
    """
    chosen = (blank, reduction_named(reduction), zero_infinity)
    return ctc_loss(log_probs, targets, input_lengths, target_lengths, *chosen)
