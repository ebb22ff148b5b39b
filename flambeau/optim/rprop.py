"""Resilient backpropagation: step sizes from the signs of gradients (Riedmiller & Braun 1993)."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.ir.failure import failure
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

__all__ = ["Rprop", "rprop"]


class Rprop(ElementwiseOptimizer):
    """Rprop.

    Each element has a step size. It grows by etas[1] while the gradient's sign stays, and shrinks
    by etas[0] when it changes; such a step is left out. The element moves by the step size
    against the sign (Riedmiller & Braun 1993; the variant without going back of Igel & Huesken
    2003).

    Args:
        params: parameters or groups.
        lr: the first step size.
        etas: factors of shrinking and growing.
        step_sizes: least and greatest step size.
        capturable: accepted; there is no device for it, so that a step raises as in PyTorch.
        foreach: accepted; every step is fused.
        maximize: ascend.
        differentiable: steps are recorded for backward; parameters must be no leaves.

    Raises:
        ValueError: a hyper-parameter is out of range.

    Example:
        >>> p = torch.ones(2, requires_grad=True)
        >>> optimizer = torch.optim.Rprop([p], lr=0.1)
        >>> for _ in range(2):
        ...     optimizer.zero_grad()
        ...     p.sum().backward()
        ...     optimizer.step()
        >>> p
        tensor([0.7800, 0.7800], requires_grad=True)
    """

    _later_options = MappingProxyType(
        {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}
    )

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range((("learning rate", lr, not_negative),))
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            problem = f"Invalid eta values: {etas[0]}, {etas[1]}"
            raise failure(ValueError, "optim", problem, "0 < etas[0] < 1 < etas[1]")
        defaults = {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        lr = float(group["lr"])
        first = complex(lr, lr) if parameter.is_complex() else lr
        return {
            "step": scalar_state(0.0),
            "prev": zeros(parameter),
            "step_size": flambeau.full_like(parameter, first, requires_grad=False),
        }

    def _apply(
        self,
        params: list[Tensor],
        grads: list[Tensor],
        states: list[dict[str, Any]],
        group: dict[str, Any],
    ) -> None:
        options = ("capturable", "foreach", "differentiable", "maximize")
        etaminus, etaplus = group["etas"]
        low, high = group["step_sizes"]
        rprop(
            params, grads, *(column(states, name) for name in ("prev", "step_size", "step")),
            step_size_min=low, step_size_max=high, etaminus=etaminus, etaplus=etaplus,
            **{name: group[name] for name in options},
        )  # fmt: skip


def rprop(
    params: list[Tensor],
    grads: list[Tensor],
    prevs: list[Tensor],
    step_sizes: list[Tensor],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    capturable: bool = False,
    maximize: bool = False,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    step_size_min: float,
    step_size_max: float,
    etaminus: float,
    etaplus: float,
) -> None:
    """One step of `Rprop` on given state, in place.

    Args:
        has_complex: accepted; complex tensors are recognized.

    Example:
        >>> p, size = torch.ones(1), torch.tensor([0.1])
        >>> torch.optim.rprop.rprop(
        ...     [p], [torch.ones(1)], [-torch.ones(1)], [size], [torch.tensor(0.0)],
        ...     step_size_min=1e-6, step_size_max=50, etaminus=0.5, etaplus=1.2)
        >>> p, size
        (tensor([1.]), tensor([0.0500]))
    """
    check_call(state_steps, foreach, capturable, differentiable)
    advance(state_steps)
    run_step(
        "_rprop_step", differentiable, (params, grads, prevs, step_sizes),
        (step_size_min, step_size_max, etaminus, etaplus, bool(maximize)),
    )  # fmt: skip
