"""Adam and AdamW (Kingma & Ba 2015; Loshchilov & Hutter 2019; AMSGrad of Reddi et al. 2018)."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.optim.optimizer import (
    Closure,
    Optimizer,
    as_real,
    check_differentiable,
    check_implementation,
    check_lr,
    each,
    gradients,
    new_state,
    private,
)


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
        differentiable: steps are recorded for backward; parameters must be no leaves.
        foreach, fused: accepted; every step is fused.
        capturable: accepted; there is no device for it, so that a step raises as in PyTorch.

    Raises:
        ValueError: a hyper-parameter is out of range, or a tensor where none is allowed.
        RuntimeError: `fused` with `foreach` or `differentiable`.
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
        _check_tensors(lr, betas, bool(foreach), capturable)
        _check(lr, betas, eps, weight_decay)
        check_implementation(foreach, fused, differentiable)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)

    _later_options = MappingProxyType(
        {
            "amsgrad": False, "maximize": False, "foreach": None, "capturable": False,
            "differentiable": False, "decoupled_weight_decay": False, "fused": None,
        }
    )  # fmt: skip

    def _state(self, parameter: Tensor, amsgrad: bool) -> dict[str, Any]:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: 3 if amsgrad else 2]
            for name in names:
                state[name] = flambeau.zeros_like(parameter, requires_grad=False)
        return state

    def _update(self, group: dict[str, Any]) -> None:
        _check_devices(group)
        check_differentiable(group)
        amsgrad = group["amsgrad"]
        pairs = list(gradients(group))
        missing = [p for p, _ in pairs if not self.state.get(p)]
        if missing:
            new_state(lambda: [self._state(p, amsgrad) for p in missing])
        by_number: dict[int, list[tuple[Tensor, ...]]] = {}
        for parameter, grad in pairs:
            state = self.state[parameter]
            number = state["step"] = int(state["step"]) + 1
            moments = [state["exp_avg"], state["exp_avg_sq"]]
            if amsgrad:
                moments.append(state["max_exp_avg_sq"])
            by_number.setdefault(number, []).append((parameter, grad, *moments))
        update = _differentiable_step if group["differentiable"] else _step
        for number, rows in by_number.items():
            update(rows, number, group)

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

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


def _betas(group: dict[str, Any]) -> tuple[float, float]:
    beta1, beta2 = group["betas"]
    return float(beta1), float(beta2)


def _step(rows: list[tuple[Tensor, ...]], number: int, group: dict[str, Any]) -> None:
    """One step of parameters that have made as many before."""
    beta1, beta2 = _betas(group)
    step_op = private("_amsgrad_step" if group["amsgrad"] else "_adam_step")
    columns = [as_real(column) for column in zip(*rows, strict=True)]
    numbers = (
        float(group["lr"]), beta1, beta2, group["eps"], group["weight_decay"],
        1 - beta1**number, math.sqrt(1 - beta2**number),
        group["decoupled_weight_decay"], group["maximize"],
    )  # fmt: skip
    each(step_op, (*columns, *numbers))


def _differentiable_step(
    rows: list[tuple[Tensor, ...]], number: int, group: dict[str, Any]
) -> None:
    """The same by operators that have gradients; a rate may be a tensor with a gradient, too."""
    beta1, beta2 = _betas(group)
    lr, decay = group["lr"], group["weight_decay"]
    for row in rows:
        parameter, grad, first, second, *top = as_real(row)
        grad = -grad if group["maximize"] else grad
        if decay != 0 and group["decoupled_weight_decay"]:
            parameter.mul_(1 - lr * decay)
        elif decay != 0:
            grad = grad.add(parameter, alpha=decay)
        first.mul_(beta1).add_(grad, alpha=1 - beta1)
        second.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        root = second
        if top:
            root = top[0].copy_(flambeau.maximum(top[0].clone(), second.clone()))
        denominator = root.sqrt() / math.sqrt(1 - beta2**number) + group["eps"]
        parameter.sub_(first.clone() / denominator * (lr / (1 - beta1**number)))


def _check_devices(group: dict[str, Any]) -> None:
    if group["capturable"]:
        raise AssertionError(
            "[optim] If capturable=True, params and state_steps must be on supported devices: "
            "['cuda', 'xpu', 'hpu', 'privateuseone', 'xla'].\nhint: capturable=False"
        )


def _check_tensors(lr: Any, betas: tuple[Any, Any], foreach: bool, capturable: bool) -> None:
    """Where tensors may be given instead of numbers."""
    if isinstance(lr, Tensor) and foreach and not capturable:
        raise ValueError(
            "[optim] lr as a Tensor is not supported for capturable=False and foreach=True\n"
            "hint: foreach=False"
        )
    check_lr(lr)
    tensors = [isinstance(beta, Tensor) for beta in betas]
    if any(tensors) and not all(tensors):
        raise ValueError(
            "[optim] betas must be either both floats or both Tensors\nhint: two floats"
        )
    for index, beta in enumerate(betas):
        if isinstance(beta, Tensor) and foreach and not capturable:
            raise ValueError(
                f"[optim] betas[{index}] as a Tensor is not supported for capturable=False and "
                "foreach=True\nhint: foreach=False"
            )
        if isinstance(beta, Tensor) and beta.numel() != 1:
            raise ValueError(f"[optim] Tensor betas[{index}] must be 1-element\nhint: a float")


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
