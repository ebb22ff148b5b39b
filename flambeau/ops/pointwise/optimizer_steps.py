"""One parameter's update per op: what an optimizer's step is made of.

Each is one fused kernel over parameter, gradient and state, written in place. Hyper-parameters are
run-time numbers, so a schedule never recompiles; what is computed of them alone (1 - beta) is
computed in double, and rounded once. Formulas: Kingma & Ba 2015 (Adam), Loshchilov &
Hutter 2019 (AdamW), Reddi et al. 2018 (AMSGrad), Sutskever et al. 2013 (Nesterov momentum).
"""

from __future__ import annotations

from collections.abc import Iterator

from flambeau import prims
from flambeau.ir.node import Node
from flambeau.language.definition import op
from flambeau.language.samples import Sample, T, sample
from flambeau.language.schema import Mutable, Scalar, Tensor


def _scalar(value: Node, like: Node) -> Node:
    """A run-time number in the parameter's compute dtype, computed on as a scalar."""
    return prims.cast(value, like.dtype)


def _adam_samples() -> Iterator[Sample]:
    numbers = (1e-3, 0.9, 0.99, 1e-8, 0.1, 0.1, 0.2, True, False)
    yield sample(T(5), T(5), T(5), T(5, low=0), None, *numbers)
    yield sample(T(5), T(5), T(5), T(5, low=0), T(5, low=0), *numbers)


def _sgd_samples() -> Iterator[Sample]:
    yield sample(T(5), T(5), None, 0.1, 0.01, 0.0, 0.0, False, False)
    yield sample(T(5), T(5), T(5), 0.1, 0.01, 0.9, 0.0, True, False)


def _adam_direction(
    param: Node, grad: Node, weight_decay: Node, decoupled: bool, maximize: bool
) -> Node:
    grad = -grad if maximize else grad
    return grad if decoupled else grad + param * weight_decay


@op(
    name="_adam_step",
    kind="step",
    runtime="lr beta1 beta2 eps weight_decay bias_correction1 bias_correction2_sqrt",
    samples=_adam_samples,
)
def adam_step(
    param: Mutable[Tensor],
    grad: Tensor,
    exp_avg: Mutable[Tensor],
    exp_avg_sq: Mutable[Tensor],
    max_exp_avg_sq: Mutable[Tensor | None],
    lr: Scalar,
    beta1: Scalar,
    beta2: Scalar,
    eps: Scalar,
    weight_decay: Scalar,
    bias_correction1: Scalar,
    bias_correction2_sqrt: Scalar,
    decoupled: bool,
    maximize: bool,
) -> None:
    """Adam (or AdamW when `decoupled`), with the running maximum of the second moment (AMSGrad).

    Shape: all tensors have the parameter's shape.
    """
    decay = _scalar(weight_decay, param)
    grad = _adam_direction(param, grad, decay, decoupled, maximize)
    first = _moment(exp_avg, beta1, grad)
    second = _moment(exp_avg_sq, beta2, grad, grad)
    top = None if max_exp_avg_sq is None else prims.maximum(max_exp_avg_sq, second)
    root = prims.sqrt(second if top is None else top)
    denominator = root / _scalar(bias_correction2_sqrt, param) + _scalar(eps, param)
    change = first / denominator * _scalar(lr / bias_correction1, param)
    if decoupled:  # what is small is added first: the parameter is rounded once
        change = change + param * _scalar(lr * weight_decay, param)
    return param - change, first, second, top


def _moment(before: Node, decay: Node, *factors: Node) -> Node:
    """decay * before + (1 - decay) * the factors' product, in double, rounded once.

    The two shares are of very different size, and errors of the larger one add up over the steps.
    """
    share = 1.0 - decay
    for factor in factors:
        share = share * prims.cast(factor, "f64")
    return prims.cast(prims.cast(before, "f64") * decay + share, before.dtype)


@op(
    name="_sgd_step",
    kind="step",
    runtime="lr weight_decay momentum dampening",
    samples=_sgd_samples,
)
def sgd_step(
    param: Mutable[Tensor],
    grad: Tensor,
    momentum_buffer: Mutable[Tensor | None],
    lr: Scalar,
    weight_decay: Scalar,
    momentum: Scalar,
    dampening: Scalar,
    nesterov: bool,
    maximize: bool,
) -> None:
    """param - lr * (grad + weight_decay * param), or its average in the momentum buffer."""
    rate, decay, beta = (_scalar(v, param) for v in (lr, weight_decay, momentum))
    grad = -grad if maximize else grad
    grad = grad + param * decay
    if momentum_buffer is None:
        return param - grad * rate, None
    buffer = momentum_buffer * beta + grad * _scalar(1.0 - dampening, param)
    step = grad + buffer * beta if nesterov else buffer
    return param - step * rate, buffer


@op(
    name="_adagrad_step",
    kind="step",
    runtime="rate weight_decay eps",
    samples=lambda: [sample(T(5), T(5), T(5, low=0), 0.1, 0.01, 1e-10, False)],
)
def adagrad_step(
    param: Mutable[Tensor],
    grad: Tensor,
    sum: Mutable[Tensor],
    rate: Scalar,
    weight_decay: Scalar,
    eps: Scalar,
    maximize: bool,
) -> None:
    """Adagrad: new param and sum of squares."""
    grad = -grad if maximize else grad
    grad = grad + param * _scalar(weight_decay, param)
    total = sum + grad * grad
    scaled = grad * _scalar(-rate, param) / (prims.sqrt(total) + _scalar(eps, param))
    return param + scaled, total
