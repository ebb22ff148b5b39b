"""What steps of optimizers are made of, for modes: those whose operators round as the step does.

A step of Adam or RMSprop is not here: its moments are added up in double, which no sequence of
PyTorch's operators is. A mode sees it as one operator.
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
def _sgd(param: Tensor, grad: Tensor, lr: float, weight_decay: float, maximize: bool) -> None:
    aten.add_.Tensor(param, _direction(param, grad, weight_decay, maximize), alpha=-lr)


@composes("_sgd_momentum_step")
def _sgd_momentum(
    param: Tensor,
    grad: Tensor,
    momentum_buffer: Tensor,
    lr: float,
    weight_decay: float,
    momentum: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    grad = _direction(param, grad, weight_decay, maximize)
    aten.mul_.Tensor(momentum_buffer, momentum)
    aten.add_.Tensor(momentum_buffer, grad, alpha=1.0 - dampening)
    step = aten.add.Tensor(grad, momentum_buffer, alpha=momentum) if nesterov else momentum_buffer
    aten.add_.Tensor(param, step, alpha=-lr)


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
