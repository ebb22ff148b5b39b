"""Decompositions of optimizer steps for modes; a step with further options stays one operator.

SGD and Adagrad have the bits that they have without a mode. The moments of Adam and RMSprop are
added up in double there, which no sequence of PyTorch's operators is: under a mode they round as
these do.
"""

from __future__ import annotations

from typing import Any

from flambeau.decompositions.composites import composes
from flambeau.ops import aten

Tensor = Any


def _direction(param: Tensor, grad: Tensor, weight_decay: float, maximize: bool) -> Tensor:
    grad = aten.neg(grad) if maximize else grad
    return aten.add.Tensor(grad, param, alpha=weight_decay) if weight_decay else grad


@composes("_sgd_step")
def _sgd(
    param: Tensor,
    grad: Tensor,
    momentum_buffer: Tensor | None,
    lr: float,
    weight_decay: float,
    momentum: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    step = grad = _direction(param, grad, weight_decay, maximize)
    if momentum_buffer is not None:
        aten.mul_.Tensor(momentum_buffer, momentum)
        aten.add_.Tensor(momentum_buffer, grad, alpha=1.0 - dampening)
        step = (
            aten.add.Tensor(grad, momentum_buffer, alpha=momentum) if nesterov else momentum_buffer
        )
    aten.add_.Tensor(param, step, alpha=-lr)


@composes("_adam_step")
def _adam(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    max_exp_avg_sq: Tensor | None,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    bias_correction1: float,
    bias_correction2_sqrt: float,
    decoupled: bool,
    maximize: bool,
) -> Any:
    if max_exp_avg_sq is not None:
        return NotImplemented
    if decoupled and weight_decay:
        grad = aten.neg(grad) if maximize else grad
        aten.mul_.Tensor(param, 1 - lr * weight_decay)
    else:
        grad = _direction(param, grad, weight_decay, maximize)
    aten.lerp_.Scalar(exp_avg, grad, 1 - beta1)
    aten.mul_.Tensor(exp_avg_sq, beta2)
    aten.addcmul_(exp_avg_sq, grad, grad, value=1 - beta2)
    root = aten.div.Tensor(aten.sqrt(exp_avg_sq), bias_correction2_sqrt)
    aten.addcdiv_(param, exp_avg, aten.add_.Tensor(root, eps), value=-lr / bias_correction1)
    return None


@composes("_rmsprop_step")
def _rmsprop(
    param: Tensor,
    grad: Tensor,
    square_avg: Tensor,
    grad_avg: Tensor | None,
    momentum_buffer: Tensor | None,
    lr: float,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    maximize: bool,
) -> Any:
    if grad_avg is not None or momentum_buffer is not None:
        return NotImplemented
    grad = _direction(param, grad, weight_decay, maximize)
    aten.mul_.Tensor(square_avg, alpha)
    aten.addcmul_(square_avg, grad, grad, value=1 - alpha)
    root = aten.add_.Tensor(aten.sqrt(square_avg), eps)
    aten.addcdiv_(param, grad, root, value=-lr)
    return None


@composes("_adagrad_step")
def _adagrad(
    param: Tensor,
    grad: Tensor,
    sum: Tensor,  # noqa: A002
    rate: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    grad = _direction(param, grad, weight_decay, maximize)
    aten.addcmul_(sum, grad, grad, value=1)
    root = aten.add_.Tensor(aten.sqrt(sum), eps)
    aten.addcdiv_(param, grad, root, value=-rate)
