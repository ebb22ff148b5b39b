"""RAdam: Adam whose adaptive rate is rectified while few gradients are known (Liu et al. 2020)."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

from flambeau import Tensor
from flambeau.optim._elementwise import (
    ElementwiseOptimizer,
    advance,
    check_betas,
    check_call,
    check_range,
    column,
    not_negative,
    run_step,
    zeros,
)
from flambeau.optim.optimizer import ParamsT, check_lr, scalar_state

__all__ = ["RAdam", "radam"]


class RAdam(ElementwiseOptimizer):
    """RAdam.

    The length of the approximated average is rho_t = rho - 2 t beta2**t / (1 - beta2**t) with
    rho = 2 / (1 - beta2) - 1. Above 5, Adam's change is multiplied by
    sqrt((rho_t - 4) (rho_t - 2) rho / ((rho - 4) (rho - 2) rho_t)); below, it is lr times the
    first moment (Liu et al. 2020, algorithm 2).

    Args:
        params: parameters or groups.
        lr: learning rate.
        betas: decay of the first and second moment.
        eps: added to the denominator.
        weight_decay: L2 penalty, or decoupled decay when `decoupled_weight_decay`.
        decoupled_weight_decay: shrink the parameter instead of changing the gradient.
        foreach: accepted; every step is fused.
        maximize: ascend.
        capturable: accepted; there is no device for it, so that a step raises as in PyTorch.
        differentiable: steps are recorded for backward; parameters must be no leaves.

    Raises:
        ValueError: a hyper-parameter is out of range.

    Example:
        >>> p = torch.ones(2, requires_grad=True)
        >>> optimizer = torch.optim.RAdam([p], lr=0.1)
        >>> p.sum().backward()
        >>> optimizer.step()
        >>> p
        tensor([0.9000, 0.9000], requires_grad=True)
    """

    _later_options = MappingProxyType(
        {
            "foreach": None, "maximize": False, "differentiable": False,
            "decoupled_weight_decay": False, "capturable": False,
        }
    )  # fmt: skip

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range((("learning rate", lr, not_negative), ("epsilon value", eps, not_negative)))
        check_betas(betas)
        check_range((("weight_decay value", weight_decay, not_negative),))
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": scalar_state(0.0),
            "exp_avg": zeros(parameter),
            "exp_avg_sq": zeros(parameter),
        }

    def _apply(
        self,
        params: list[Tensor],
        grads: list[Tensor],
        states: list[dict[str, Any]],
        group: dict[str, Any],
    ) -> None:
        options = (
            "capturable", "foreach", "differentiable", "maximize", "lr", "eps", "weight_decay",
            "decoupled_weight_decay",
        )  # fmt: skip
        beta1, beta2 = group["betas"]
        radam(
            params, grads, column(states, "exp_avg"), column(states, "exp_avg_sq"),
            column(states, "step"), beta1=beta1, beta2=beta2,
            **{name: group[name] for name in options},
        )  # fmt: skip


def radam(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    state_steps: list[Tensor],
    decoupled_weight_decay: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    maximize: bool = False,
    *,
    beta1: float,
    beta2: float,
    lr: float,
    weight_decay: float,
    eps: float,
) -> None:
    """One step of `RAdam` on given state, in place.

    Args:
        has_complex: accepted; complex tensors are recognized.

    Example:
        >>> p = torch.ones(1)
        >>> torch.optim.radam.radam(
        ...     [p], [torch.ones(1)], [torch.zeros(1)], [torch.zeros(1)], [torch.tensor(0.0)],
        ...     lr=0.1, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0)
        >>> p
        tensor([0.9000])
    """
    check_call(state_steps, foreach, capturable, differentiable)
    lr = lr if differentiable else float(lr)
    numbers = advance(state_steps)
    run_step(
        "_radam_step", differentiable, (params, grads, exp_avgs, exp_avg_sqs),
        (
            [lr / (1 - beta1**n) for n in numbers],
            [_rectified(beta2, n) for n in numbers],
            beta1, beta2, eps,
            0.0 if decoupled_weight_decay else weight_decay,
            lr * weight_decay if decoupled_weight_decay else 0.0,
            bool(maximize),
        ),
    )  # fmt: skip


def _rectified(beta2: float, number: float) -> float:
    """The factor of the adaptive rate, bias correction included; 0 while there is none."""
    correction = 1 - beta2**number
    limit = 2 / (1 - beta2) - 1
    length = limit - 2 * number * beta2**number / correction
    if length <= 5.0:
        return 0.0
    variance = (length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length)
    return math.sqrt(variance) * math.sqrt(correction)
