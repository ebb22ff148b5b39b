"""Adam (Kingma & Ba 2015; decoupled decay of
Loshchilov & Hutter 2019; AMSGrad of Reddi et al. 2018)."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.ir.failure import failure
from flambeau.optim._elementwise import (
    ElementwiseOptimizer,
    advance,
    check_betas,
    check_call,
    check_range,
    column,
    not_negative,
    run_step,
    scaled_gradients,
    zeros,
)
from flambeau.optim.optimizer import as_real, check_implementation, check_lr, scalar_state

__all__ = ["Adam", "adam"]


class Adam(ElementwiseOptimizer):
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

    Example:
        >>> p = torch.ones(2, requires_grad=True)
        >>> optimizer = torch.optim.Adam([p], lr=0.1)
        >>> p.sum().backward()
        >>> optimizer.step()
        >>> p
        tensor([0.9000, 0.9000], requires_grad=True)
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
        check_range((("learning rate", lr, not_negative), ("epsilon value", eps, not_negative)))
        check_betas(betas)
        check_range((("weight_decay value", weight_decay, not_negative),))
        check_implementation(foreach, fused, differentiable)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)
        if fused:
            self._step_supports_amp_scaling = True

    _later_options = MappingProxyType(
        {
            "amsgrad": False, "maximize": False, "foreach": None, "capturable": False,
            "differentiable": False, "decoupled_weight_decay": False, "fused": None,
        }
    )  # fmt: skip

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[: 3 if group["amsgrad"] else 2]
        return {"step": scalar_state(0.0)} | {name: zeros(parameter) for name in names}

    def _apply(
        self,
        params: list[Tensor],
        grads: list[Tensor],
        states: list[dict[str, Any]],
        group: dict[str, Any],
    ) -> None:
        options = (
            "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay",
            "amsgrad", "lr", "weight_decay", "eps", "maximize",
        )  # fmt: skip
        beta1, beta2 = group["betas"]
        adam(
            params, grads, column(states, "exp_avg"), column(states, "exp_avg_sq"),
            column(states, "max_exp_avg_sq") if group["amsgrad"] else [],
            column(states, "step"), beta1=beta1, beta2=beta2,
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None),
            **{name: group[name] for name in options},
        )  # fmt: skip


def adam(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    capturable: bool = False,
    differentiable: bool = False,
    fused: bool | None = None,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    has_complex: bool = False,
    decoupled_weight_decay: bool = False,
    *,
    amsgrad: bool,
    beta1: float | Tensor,
    beta2: float | Tensor,
    lr: float | Tensor,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """One step of `Adam` on given state, in place.

    Args:
        max_exp_avg_sqs: empty unless `amsgrad`.
        grad_scale: gradients are divided by it first.
        found_inf: nothing happens where it is 1.
        has_complex: accepted; complex tensors are recognized.

    Example:
        >>> p, zero = torch.ones(1), torch.zeros(1)
        >>> torch.optim.adam.adam(
        ...     [p], [torch.ones(1)], [zero], [zero.clone()], [], [torch.tensor(0.0)],
        ...     amsgrad=False, beta1=0.9, beta2=0.999, lr=0.1, weight_decay=0, eps=1e-8,
        ...     maximize=False)
        >>> p
        tensor([0.9000])
    """
    check_call(state_steps, foreach, capturable, differentiable)
    unscaled = scaled_gradients(grads, grad_scale, found_inf)
    if unscaled is None:
        return
    numbers = advance(state_steps)
    betas = (float(beta1), float(beta2))
    columns = [params, unscaled, exp_avgs, exp_avg_sqs]
    decoupled = bool(decoupled_weight_decay)
    if differentiable:
        rows = zip(*columns, *([max_exp_avg_sqs] if amsgrad else []), strict=True)
        for number, row in zip(numbers, rows, strict=True):
            tensors = as_real([-t if k == 1 and maximize else t for k, t in enumerate(row)])
            _differentiable_step(tensors, number, betas, lr, weight_decay, eps, decoupled)
        return
    corrections = (
        [1 - betas[0] ** number for number in numbers],
        [math.sqrt(1 - betas[1] ** number) for number in numbers],
    )
    run_step(
        "_adam_step", False, [*columns, max_exp_avg_sqs if amsgrad else None],
        (lr, *betas, eps, weight_decay, *corrections, decoupled, bool(maximize)),
    )  # fmt: skip


def _differentiable_step(
    tensors: list[Tensor],
    number: float,
    betas: tuple[float, float],
    lr: float | Tensor,
    decay: float,
    eps: float,
    decoupled: bool,
) -> None:
    """The same by operators that have gradients; a rate may be a tensor with a gradient, too."""
    parameter, grad, first, second, *top = tensors
    beta1, beta2 = betas
    if decay != 0 and decoupled:
        parameter.mul_(1 - lr * decay)
    elif decay != 0:
        grad = grad.add(parameter, alpha=decay)
    first.mul_(beta1).add_(grad, alpha=1 - beta1)
    second.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    root = second
    if top:
        root = top[0].copy_(flambeau.maximum(top[0].clone(), second.clone()))
    denominator = root.sqrt() / math.sqrt(1 - beta2**number) + eps
    parameter.sub_(first.clone() / denominator * (lr / (1 - beta1**number)))


def _check_tensors(lr: Any, betas: tuple[Any, Any], foreach: bool, capturable: bool) -> None:
    """Where tensors may be given instead of numbers."""
    if isinstance(lr, Tensor) and foreach and not capturable:
        problem = "lr as a Tensor is not supported for capturable=False and foreach=True"
        raise failure(ValueError, "optim", problem, "foreach=False")
    check_lr(lr)
    tensors = [isinstance(beta, Tensor) for beta in betas]
    if any(tensors) and not all(tensors):
        problem = "betas must be either both floats or both Tensors"
        raise failure(ValueError, "optim", problem, "two floats")
    for index, beta in enumerate(betas):
        if isinstance(beta, Tensor) and foreach and not capturable:
            problem = f"betas[{index}] as a Tensor is not supported for capturable=False and "
            problem += "foreach=True"
            raise failure(ValueError, "optim", problem, "foreach=False")
        if isinstance(beta, Tensor) and beta.numel() != 1:
            raise ValueError(f"[optim] Tensor betas[{index}] must be 1-element\nhint: a float")
