"""Steps of the optimizers with a rate per element: one formula each, for kernels and for autograd.

A formula is written over `Arithmetic`. With `NODES` it is the body of a private op, one fused
kernel over parameter, gradient and state; with the tensors' arithmetic (`optim`) the same text is
recorded for backward. Hyper-parameters are run-time numbers, as in `optimizer_steps`.

Formulas: Tieleman & Hinton 2012 and Graves 2013 (RMSprop), Zeiler 2012 (Adadelta), Kingma & Ba 2015
(Adamax), Dozat 2016 (NAdam), Liu et al. 2020 (RAdam), Polyak & Juditsky 1992 (averaged SGD),
Riedmiller & Braun 1993 (Rprop).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau import prims
from flambeau.language.definition import op
from flambeau.language.samples import T, sample
from flambeau.ops.pointwise.optimizer_steps import _moment, _scalar


class Arithmetic(NamedTuple):
    """The functions that formulas use beside operators.

    Attributes:
        moment: moment(before, decay, *factors), the average that moves by 1 - decay.
        number: number(value, like), a hyper-parameter in the dtype of `like`.
        constant: constant(like, value), a constant of the shape of `like`.
    """

    sqrt: Callable[..., Any]
    absolute: Callable[..., Any]
    sign: Callable[..., Any]
    maximum: Callable[..., Any]
    minimum: Callable[..., Any]
    where: Callable[..., Any]
    gt: Callable[..., Any]
    eq: Callable[..., Any]
    moment: Callable[..., Any]
    number: Callable[..., Any]
    constant: Callable[..., Any]


NODES = Arithmetic(
    prims.sqrt, prims.abs, prims.sign, prims.maximum, prims.minimum, prims.where, prims.gt,
    prims.eq, _moment, _scalar, lambda like, value: prims.full_like(value, like),
)  # fmt: skip
FORMULAS: dict[str, Callable[..., tuple[Any, ...]]] = {}


def _ascent(m: Arithmetic, param: Any, grad: Any, weight_decay: Any, maximize: bool) -> Any:
    """The gradient of what is minimized, the L2 penalty included."""
    grad = -grad if maximize else grad
    return grad + param * m.number(weight_decay, param)


def _rmsprop(
    m: Arithmetic, param: Any, grad: Any, square_avg: Any, grad_avg: Any | None,
    momentum_buffer: Any | None, lr: Any, alpha: Any, eps: Any, weight_decay: Any, momentum: Any,
    maximize: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """v = alpha v + (1 - alpha) g**2; param -= lr g / (sqrt(v - mean**2) + eps)."""
    grad = _ascent(m, param, grad, weight_decay, maximize)
    square = m.moment(square_avg, alpha, grad, grad)
    mean = None if grad_avg is None else m.moment(grad_avg, alpha, grad)
    spread = square if mean is None else square - mean * mean
    step = grad / (m.sqrt(spread) + m.number(eps, param))
    buffer = None if momentum_buffer is None else momentum_buffer * m.number(momentum, param) + step
    change = step if buffer is None else buffer
    return param - change * m.number(lr, param), square, mean, buffer


def _adadelta(
    m: Arithmetic, param: Any, grad: Any, square_avg: Any, acc_delta: Any, lr: Any, rho: Any,
    eps: Any, weight_decay: Any, maximize: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """delta = sqrt(acc_delta + eps) / sqrt(square_avg + eps) g; param -= lr delta."""
    grad = _ascent(m, param, grad, weight_decay, maximize)
    square = m.moment(square_avg, rho, grad, grad)
    small = m.number(eps, param)
    delta = m.sqrt(acc_delta + small) / m.sqrt(square + small) * grad
    return param - delta * m.number(lr, param), square, m.moment(acc_delta, rho, delta, delta)


def _adamax(
    m: Arithmetic, param: Any, grad: Any, exp_avg: Any, exp_inf: Any, rate: Any, beta1: Any,
    beta2: Any, eps: Any, weight_decay: Any, maximize: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """u = max(beta2 u, |g| + eps); param -= rate m / u, where rate = lr / (1 - beta1**t)."""
    grad = _ascent(m, param, grad, weight_decay, maximize)
    first = m.moment(exp_avg, beta1, grad)
    top = m.maximum(exp_inf * m.number(beta2, param), m.absolute(grad) + m.number(eps, param))
    return param - first / top * m.number(rate, param), first, top


def _nadam(
    m: Arithmetic, param: Any, grad: Any, exp_avg: Any, exp_avg_sq: Any, grad_rate: Any,
    moment_rate: Any, beta1: Any, beta2: Any, eps: Any, correction2_sqrt: Any, weight_decay: Any,
    shrinking: Any, maximize: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """param -= (grad_rate g + moment_rate m) / (sqrt(v) / correction2_sqrt + eps).

    `shrinking` is the share of the parameter that decoupled decay takes.
    """
    grad = _ascent(m, param, grad, weight_decay, maximize)
    first = m.moment(exp_avg, beta1, grad)
    second = m.moment(exp_avg_sq, beta2, grad, grad)
    scale = m.sqrt(second) / m.number(correction2_sqrt, param) + m.number(eps, param)
    change = grad * m.number(grad_rate, param) + first * m.number(moment_rate, param)
    return param - (change / scale + param * m.number(shrinking, param)), first, second


def _radam(
    m: Arithmetic, param: Any, grad: Any, exp_avg: Any, exp_avg_sq: Any, rate: Any,
    rectified: Any, beta1: Any, beta2: Any, eps: Any, weight_decay: Any, shrinking: Any,
    maximize: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """param -= rate m, times rectified / (sqrt(v) + eps) where `rectified` is above 0."""
    grad = _ascent(m, param, grad, weight_decay, maximize)
    first = m.moment(exp_avg, beta1, grad)
    second = m.moment(exp_avg_sq, beta2, grad, grad)
    factor = m.number(rectified, param) + m.constant(second, 0.0)
    adaptive = factor / (m.sqrt(second) + m.number(eps, param))
    scale = m.where(m.gt(factor, m.constant(second, 0.0)), adaptive, m.constant(second, 1.0))
    change = first * m.number(rate, param) * scale
    return param - (change + param * m.number(shrinking, param)), first, second


def _asgd(
    m: Arithmetic, param: Any, grad: Any, ax: Any, eta: Any, lambd: Any, mu: Any,
    weight_decay: Any, maximize: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """param = (1 - lambd eta) param - eta g; ax moves to param by the share mu."""
    grad = _ascent(m, param, grad, weight_decay, maximize)
    new = param * m.number(1.0 - lambd * eta, param) - grad * m.number(eta, param)
    share = m.number(mu, param) + m.constant(new, 0.0)
    return new, m.where(m.eq(share, m.constant(new, 1.0)), new, ax + (new - ax) * share)


def _rprop(
    m: Arithmetic, param: Any, grad: Any, prev: Any, step_size: Any, low: Any, high: Any,
    minus: Any, plus: Any, maximize: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """Step sizes grow by `plus` where the gradient's sign stays, shrink by `minus` where not."""
    grad = -grad if maximize else grad
    product = grad * prev
    one, zero = m.constant(product, 1.0), m.constant(product, 0.0)
    same, turned = m.gt(product, zero), m.gt(zero, product)
    factor = m.where(m.eq(product, zero), one, product)  # neither sign: it is 0, or not a number
    factor = m.where(same, one * m.number(plus, param), factor)
    factor = m.where(turned, one * m.number(minus, param), factor)
    size = step_size * factor
    size = m.minimum(m.maximum(size, one * m.number(low, param)), one * m.number(high, param))
    grad = m.where(turned, zero, grad)
    return param - m.sign(grad) * size, grad, size


def _define(
    name: str, states: str, numbers: str, formula: Callable[..., tuple[Any, ...]],
    values: tuple[float, ...],
) -> None:  # fmt: skip
    """Registers a step as the private op `_<name>_step` and its formula under that name.

    States that end in "?" may be missing; the formula has None for them.
    """
    kinds = [f"Tensor{'?' * state.endswith('?')}! {state.rstrip('?')}" for state in states.split()]
    tensors = "".join(f", {kind}" for kind in kinds)
    scalars = "".join(f", Scalar {number}" for number in numbers.split())

    def step(*args: Any) -> tuple[Any, ...]:
        return formula(NODES, *args)

    step.__doc__ = f"{formula.__doc__}\n\nShape: all tensors have the parameter's shape."
    inputs = (T(5), T(5), *[T(5, low=0) for _ in states.split()])
    op(
        f"_{name}_step(Tensor! param, Tensor grad{tensors}{scalars}, bool maximize) -> ()",
        kind="step",
        runtime=numbers,
        samples=lambda: [sample(*inputs, *values, False)],
    )(step)
    FORMULAS[f"_{name}_step"] = formula


_define(
    "rmsprop", "square_avg grad_avg? momentum_buffer?", "lr alpha eps weight_decay momentum",
    _rmsprop, (0.1, 0.9, 1e-8, 0.1, 0.9),
)  # fmt: skip
_define(
    "adadelta", "square_avg acc_delta", "lr rho eps weight_decay", _adadelta,
    (1.0, 0.9, 1e-6, 0.1),
)  # fmt: skip
_define(
    "adamax", "exp_avg exp_inf", "rate beta1 beta2 eps weight_decay", _adamax,
    (0.1, 0.9, 0.99, 1e-8, 0.1),
)  # fmt: skip
_define(
    "nadam", "exp_avg exp_avg_sq",
    "grad_rate moment_rate beta1 beta2 eps correction2_sqrt weight_decay shrinking", _nadam,
    (0.1, 0.2, 0.9, 0.99, 1e-8, 0.3, 0.1, 0.0),
)  # fmt: skip
_define(
    "radam", "exp_avg exp_avg_sq", "rate rectified beta1 beta2 eps weight_decay shrinking",
    _radam, (0.1, 0.2, 0.9, 0.99, 1e-8, 0.1, 0.0),
)  # fmt: skip
_define("asgd", "ax", "eta lambd mu weight_decay", _asgd, (0.1, 0.01, 0.5, 0.1))
_define("rprop", "prev step_size", "low high minus plus", _rprop, (1e-6, 50.0, 0.5, 1.2))
