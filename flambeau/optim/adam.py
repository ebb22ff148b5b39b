"""Adam and AdamW (Kingma & Ba 2015; Loshchilov & Hutter 2019; AMSGrad of Reddi et al. 2018)."""

from __future__ import annotations

import math
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.optim.optimizer import Closure, Optimizer, gradients, private


class Adam(Optimizer):
    """Adam.

    Args:
        params: parameters or groups.
        lr: learning rate.
        betas: decay of the first and second moment.
        eps: added to the denominator.
        weight_decay: L2 penalty (Adam), or decoupled decay when `decoupled_weight_decay`.
        amsgrad: use the running maximum of the second moment.
        maximize: ascend.
        foreach, fused, capturable, differentiable: accepted; every step is one fused Plan.

    Raises:
        ValueError: a hyper-parameter is out of range.
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        _check(lr, betas, eps, weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _state(self, parameter: Tensor, amsgrad: bool) -> dict[str, Any]:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = flambeau.zeros_like(parameter)
            state["exp_avg_sq"] = flambeau.zeros_like(parameter)
            if amsgrad:
                state["max_exp_avg_sq"] = flambeau.zeros_like(parameter)
        return state

    def _update(self, group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        amsgrad = group["amsgrad"]
        step_op = private("_amsgrad_step" if amsgrad else "_adam_step")
        for parameter, grad in gradients(group):
            state = self._state(parameter, amsgrad)
            number = state["step"] = int(state["step"]) + 1
            moments = [state["exp_avg"], state["exp_avg_sq"]]
            if amsgrad:
                moments.append(state["max_exp_avg_sq"])
            step_op(
                parameter, grad, *moments, float(group["lr"]), beta1, beta2, group["eps"],
                group["weight_decay"], 1 - beta1**number, math.sqrt(1 - beta2**number),
                group["decoupled_weight_decay"], group["maximize"],
            )  # fmt: skip

    def step(self, closure: Closure | None = None) -> Any:
        """Updates the parameters once."""
        return self._run(self._update, closure)


class AdamW(Adam):
    """Adam with decoupled weight decay; arguments as `Adam`."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
            capturable=capturable, differentiable=differentiable, fused=fused,
            decoupled_weight_decay=True,
        )  # fmt: skip


def _check(lr: Any, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
    for name, value in (
        ("learning rate", lr),
        ("epsilon value", eps),
        ("weight_decay value", weight_decay),
    ):
        if not 0.0 <= value:
            raise ValueError(f"[optim] Invalid {name}: {value}\nhint: it must not be negative")
    for index, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(
                f"[optim] Invalid beta parameter at index {index}: {beta}\nhint: 0 <= beta < 1"
            )
