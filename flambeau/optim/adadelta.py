"""Adadelta: rates from running averages of gradients and of changes (Zeiler 2012)."""

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

__all__ = ["Adadelta", "adadelta"]


class Adadelta(ElementwiseOptimizer):
    """Adadelta.

    v = rho v + (1 - rho) g**2; delta = sqrt(u + eps) / sqrt(v + eps) g;
    u = rho u + (1 - rho) delta**2; p -= lr delta (Zeiler 2012, algorithm 1).

    Args:
        params: parameters or groups.
        lr: factor of the change; 1 in the paper.
        rho: decay of both averages.
        eps: added below the square roots.
        weight_decay: L2 penalty.
        foreach: accepted; every step is fused.
        capturable: accepted; there is no device for it, so that a step raises as in PyTorch.
        maximize: ascend.
        differentiable: steps are recorded for backward; parameters must be no leaves.

    Raises:
        ValueError: a hyper-parameter is out of range.

    Example:
        >>> p = torch.ones(2, requires_grad=True)
        >>> optimizer = torch.optim.Adadelta([p], lr=10.0)
        >>> p.sum().backward()
        >>> optimizer.step()
        >>> p
        tensor([0.9684, 0.9684], requires_grad=True)
    """

    _later_options = MappingProxyType(
        {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}
    )

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range(
            (
                ("learning rate", lr, not_negative),
                ("rho value", rho, lambda value: 0.0 <= value <= 1.0),
                ("epsilon value", eps, not_negative),
                ("weight_decay value", weight_decay, not_negative),
            )
        )
        defaults = {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": scalar_state(0.0),
            "square_avg": zeros(parameter),
            "acc_delta": zeros(parameter),
        }

    def _apply(
        self,
        params: list[Tensor],
        grads: list[Tensor],
        states: list[dict[str, Any]],
        group: dict[str, Any],
    ) -> None:
        options = ("capturable", "foreach", "differentiable", "lr", "rho", "eps", "weight_decay")
        adadelta(
            params, grads, column(states, "square_avg"), column(states, "acc_delta"),
            column(states, "step"), maximize=group["maximize"],
            **{name: group[name] for name in options},
        )  # fmt: skip


def adadelta(
    params: list[Tensor],
    grads: list[Tensor],
    square_avgs: list[Tensor],
    acc_deltas: list[Tensor],
    state_steps: list[Tensor],
    capturable: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    lr: float,
    rho: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    """One step of `Adadelta` on given state, in place.

    Args:
        has_complex: accepted; complex tensors are recognized.

    Example:
        >>> p, zero = torch.ones(1), torch.zeros(1)
        >>> step = torch.tensor(0.0)
        >>> torch.optim.adadelta.adadelta(
        ...     [p], [torch.ones(1)], [zero], [zero.clone()], [step],
        ...     lr=10.0, rho=0.9, eps=1e-6, weight_decay=0, maximize=False)
        >>> p, step
        (tensor([0.9684]), tensor(1.))
    """
    check_call(state_steps, foreach, capturable, differentiable)
    advance(state_steps)
    run_step(
        "_adadelta_step", differentiable, (params, grads, square_avgs, acc_deltas),
        (lr, rho, eps, weight_decay, bool(maximize)),
    )  # fmt: skip
