"""NAdam: Adam with Nesterov momentum (Dozat 2016)."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.autograd import no_grad
from flambeau.capture import recording
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

__all__ = ["NAdam", "nadam"]


class NAdam(ElementwiseOptimizer):
    """NAdam.

    mu_t = beta1 (1 - 0.96**(t momentum_decay) / 2); the change is
    lr ((1 - mu_t) / (1 - mu_1 ... mu_t) g + mu_t+1 / (1 - mu_1 ... mu_t+1) m)
    / (sqrt(v / (1 - beta2**t)) + eps) (Dozat 2016).

    Args:
        params: parameters or groups.
        lr: learning rate.
        betas: decay of the first and second moment.
        eps: added to the denominator.
        weight_decay: L2 penalty, or decoupled decay when `decoupled_weight_decay`.
        momentum_decay: how fast the momentum grows to beta1.
        decoupled_weight_decay: shrink the parameter instead of changing the gradient.
        foreach: accepted; every step is fused.
        maximize: ascend.
        capturable: accepted; there is no device for it, so that a step raises as in PyTorch.
        differentiable: steps are recorded for backward; parameters must be no leaves.

    Raises:
        ValueError: a hyper-parameter is out of range.

    Example:
        >>> p = torch.ones(2, requires_grad=True)
        >>> optimizer = torch.optim.NAdam([p], lr=0.1)
        >>> p.sum().backward()
        >>> optimizer.step()
        >>> p
        tensor([0.8944, 0.8944], requires_grad=True)
    """

    _later_options = MappingProxyType(
        {
            "maximize": False, "foreach": None, "capturable": False, "differentiable": False,
            "decoupled_weight_decay": False,
        }
    )  # fmt: skip

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
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
        check_range(
            (
                ("weight_decay value", weight_decay, not_negative),
                ("momentum_decay value", momentum_decay, not_negative),
            )
        )
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for entry in self.state.values():
            if "mu_product" in entry and not isinstance(entry["mu_product"], Tensor):
                entry["mu_product"] = scalar_state(entry["mu_product"])

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": scalar_state(0.0),
            "mu_product": scalar_state(1.0),
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
            "decoupled_weight_decay", "momentum_decay",
        )  # fmt: skip
        beta1, beta2 = group["betas"]
        names = ("exp_avg", "exp_avg_sq", "mu_product", "step")
        nadam(
            params, grads, *(column(states, name) for name in names), beta1=beta1, beta2=beta2,
            **{name: group[name] for name in options},
        )  # fmt: skip


def nadam(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    mu_products: list[Tensor],
    state_steps: list[Tensor],
    decoupled_weight_decay: bool = False,
    foreach: bool | None = None,
    capturable: bool = False,
    differentiable: bool = False,
    has_complex: bool = False,
    maximize: bool = False,
    *,
    beta1: float,
    beta2: float,
    lr: float,
    weight_decay: float,
    momentum_decay: float,
    eps: float,
) -> None:
    """One step of `NAdam` on given state, in place.

    Args:
        has_complex: accepted; complex tensors are recognized.

    Example:
        >>> p, zero = torch.ones(1), torch.zeros(1)
        >>> torch.optim.nadam.nadam(
        ...     [p], [torch.ones(1)], [zero], [zero.clone()], [torch.tensor(1.0)],
        ...     [torch.tensor(0.0)], lr=0.1, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0,
        ...     momentum_decay=0.004)
        >>> p
        tensor([0.8944])
    """
    what = "params, mu_products and state_steps"
    check_call([*state_steps, *mu_products], foreach, capturable, differentiable, what)
    lr = lr if differentiable else float(lr)
    numbers = advance(state_steps)
    now = [_momentum(beta1, n, momentum_decay) for n in numbers]
    after = [_momentum(beta1, n + 1, momentum_decay) for n in numbers]
    products = _multiplied(mu_products, now)
    run_step(
        "_nadam_step", differentiable, (params, grads, exp_avgs, exp_avg_sqs),
        (
            [lr * (1.0 - mu) / (1.0 - product) for mu, product in zip(now, products)],
            [lr * mu / (1.0 - product * mu) for mu, product in zip(after, products)],
            beta1, beta2, eps,
            [math.sqrt(1 - beta2**n) for n in numbers],
            0.0 if decoupled_weight_decay else weight_decay,
            lr * weight_decay if decoupled_weight_decay else 0.0,
            bool(maximize),
        ),
    )  # fmt: skip


def _momentum(beta1: float, number: float, decay: float) -> float:
    return beta1 * (1.0 - 0.5 * 0.96 ** (number * decay))


def _multiplied(products: list[Tensor], factors: list[float]) -> list[float]:
    """Multiplies the stored products, outside of recorded regions, and returns them."""

    def multiply() -> list[float]:
        flambeau._foreach_mul_(products, factors)
        return [product.item() for product in products]

    with no_grad():
        return recording.unrecorded(multiply)
