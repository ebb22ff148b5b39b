"""RMSprop: gradients over the root of their running mean square (Tieleman & Hinton 2012)."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from flambeau import Tensor
from flambeau.optim._elementwise import (
    ElementwiseOptimizer,
    advance,
    check_call,
    check_range,
    column,
    not_negative,
    run_step,
    zeros,
)
from flambeau.optim.optimizer import ParamsT, check_lr, scalar_state

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(ElementwiseOptimizer):
    """RMSprop.

    v = alpha v + (1 - alpha) g**2; p -= lr g / (sqrt(v) + eps) (Tieleman & Hinton 2012, lecture
    6.5); centered: v less the square of the mean gradient; with momentum: the buffer
    b = momentum b + g / (sqrt(v) + eps) is the change (Graves 2013).

    Args:
        params: parameters or groups.
        lr: learning rate.
        alpha: decay of the averages.
        eps: added to the denominator.
        weight_decay: L2 penalty.
        momentum: decay of the buffer; 0: none is stored.
        centered: divide by an estimate of the standard deviation.
        capturable: accepted; there is no device for it, so that a step raises as in PyTorch.
        foreach: accepted; every step is fused.
        maximize: ascend.
        differentiable: steps are recorded for backward; parameters must be no leaves.

    Raises:
        ValueError: a hyper-parameter is out of range.

    Example:
        >>> p = torch.ones(2, requires_grad=True)
        >>> optimizer = torch.optim.RMSprop([p], lr=0.01)
        >>> p.sum().backward()
        >>> optimizer.step()
        >>> p
        tensor([0.9000, 0.9000], requires_grad=True)
    """

    _later_options = MappingProxyType(
        {
            "momentum": 0, "centered": False, "foreach": None, "maximize": False,
            "differentiable": False, "capturable": False,
        }
    )  # fmt: skip

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range(
            (
                ("learning rate", lr, not_negative),
                ("epsilon value", eps, not_negative),
                ("momentum value", momentum, not_negative),
                ("weight_decay value", weight_decay, not_negative),
                ("alpha value", alpha, not_negative),
            )
        )
        defaults = {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state = {"step": scalar_state(0.0), "square_avg": zeros(parameter)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros(parameter)
        if group["centered"]:
            state["grad_avg"] = zeros(parameter)
        return state

    def _apply(
        self,
        params: list[Tensor],
        grads: list[Tensor],
        states: list[dict[str, Any]],
        group: dict[str, Any],
    ) -> None:
        options = (
            "capturable", "foreach", "differentiable", "maximize", "lr", "alpha", "eps",
            "weight_decay", "momentum", "centered",
        )  # fmt: skip
        rmsprop(
            params, grads, column(states, "square_avg"),
            column(states, "grad_avg") if group["centered"] else [],
            column(states, "momentum_buffer") if group["momentum"] > 0 else [],
            column(states, "step"), **{name: group[name] for name in options},
        )  # fmt: skip


def rmsprop(
    params: list[Tensor],
    grads: list[Tensor],
    square_avgs: list[Tensor],
    grad_avgs: list[Tensor],
    momentum_buffer_list: list[Tensor],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    lr: float,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    centered: bool,
) -> None:
    """One step of `RMSprop` on given state, in place.

    Args:
        grad_avgs: empty unless `centered`.
        momentum_buffer_list: empty unless `momentum` is above 0.
        has_complex: accepted; complex tensors are recognized.

    Example:
        >>> p = torch.ones(1)
        >>> torch.optim.rmsprop.rmsprop(
        ...     [p], [torch.ones(1)], [torch.zeros(1)], [], [], [torch.tensor(0.0)],
        ...     lr=0.01, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False)
        >>> p
        tensor([0.9000])
    """
    check_call(state_steps, foreach, capturable, differentiable)
    advance(state_steps)
    states = [
        square_avgs,
        grad_avgs if centered else None,
        momentum_buffer_list if momentum > 0 else None,
    ]
    numbers = (lr, alpha, eps, weight_decay, momentum, bool(maximize))
    run_step("_rmsprop_step", differentiable, [params, grads, *states], numbers)
