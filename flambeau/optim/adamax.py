"""Adamax: Adam by the infinity norm (Kingma & Ba 2015, section 7.1)."""

from __future__ import annotations

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

__all__ = ["Adamax", "adamax"]


class Adamax(ElementwiseOptimizer):
    """Adamax.

    m = beta1 m + (1 - beta1) g; u = max(beta2 u, |g| + eps); p -= lr / (1 - beta1**t) m / u
    (Kingma & Ba 2015, algorithm 2).

    Args:
        params: parameters or groups.
        lr: learning rate.
        betas: decay of the first moment and of the norm.
        eps: added to the gradient's size.
        weight_decay: L2 penalty.
        foreach: accepted; every step is fused.
        maximize: ascend.
        differentiable: steps are recorded for backward; parameters must be no leaves.
        capturable: accepted; there is no device for it, so that a step raises as in PyTorch.

    Raises:
        ValueError: a hyper-parameter is out of range.

    Example:
        >>> p = torch.ones(2, requires_grad=True)
        >>> optimizer = torch.optim.Adamax([p], lr=0.1)
        >>> p.sum().backward()
        >>> optimizer.step()
        >>> p
        tensor([0.9000, 0.9000], requires_grad=True)
    """

    _later_options = MappingProxyType(
        {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}
    )

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range((("learning rate", lr, not_negative), ("epsilon value", eps, not_negative)))
        check_betas(betas)
        check_range((("weight_decay value", weight_decay, not_negative),))
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": scalar_state(0.0),
            "exp_avg": zeros(parameter),
            "exp_inf": zeros(parameter),
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
        )  # fmt: skip
        beta1, beta2 = group["betas"]
        adamax(
            params, grads, column(states, "exp_avg"), column(states, "exp_inf"),
            column(states, "step"), beta1=beta1, beta2=beta2,
            **{name: group[name] for name in options},
        )  # fmt: skip


def adamax(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_infs: list[Tensor],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    eps: float,
    beta1: float,
    beta2: float,
    lr: float,
    weight_decay: float,
) -> None:
    """One step of `Adamax` on given state, in place.

    Args:
        has_complex: accepted; complex tensors are recognized.

    Example:
        >>> p = torch.ones(1)
        >>> torch.optim.adamax.adamax(
        ...     [p], [torch.ones(1)], [torch.zeros(1)], [torch.zeros(1)], [torch.tensor(0.0)],
        ...     lr=0.1, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0)
        >>> p
        tensor([0.9000])
    """
    check_call(state_steps, foreach, capturable, differentiable)
    lr = lr if differentiable else float(lr)
    rates = [lr / (1 - beta1**number) for number in advance(state_steps)]
    run_step(
        "_adamax_step", differentiable, (params, grads, exp_avgs, exp_infs),
        (rates, beta1, beta2, eps, weight_decay, bool(maximize)),
    )  # fmt: skip
