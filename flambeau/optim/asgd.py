"""Averaged stochastic gradient descent (Polyak & Juditsky 1992)."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from flambeau import Tensor
from flambeau.autograd import no_grad
from flambeau.capture import recording
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

__all__ = ["ASGD", "asgd"]


class ASGD(ElementwiseOptimizer):
    """Averaged stochastic gradient descent.

    p = (1 - lambd eta) p - eta g; ax += mu (p - ax); then eta = lr / (1 + lambd lr t)**alpha and
    mu = 1 / max(1, t - t0). `state[p]["ax"]` is the average (Polyak & Juditsky 1992; rates of
    Bottou 2010).

    Args:
        params: parameters or groups.
        lr: learning rate.
        lambd: decay of parameters and rate.
        alpha: power of the rate's decay.
        t0: step at which averaging starts.
        weight_decay: L2 penalty.
        foreach: accepted; every step is fused.
        maximize: ascend.
        differentiable: steps are recorded for backward; parameters must be no leaves.
        capturable: accepted; there is no device for it, so that a step raises as in PyTorch.

    Raises:
        ValueError: a hyper-parameter is out of range.

    Example:
        >>> p = torch.ones(2, requires_grad=True)
        >>> optimizer = torch.optim.ASGD([p], lr=0.5)
        >>> p.sum().backward()
        >>> optimizer.step()
        >>> optimizer.state[p]["ax"]
        tensor([0.4999, 0.4999])
    """

    _later_options = MappingProxyType(
        {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}
    )

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range(
            (
                ("learning rate", lr, not_negative),
                ("weight_decay value", weight_decay, not_negative),
            )
        )
        defaults = {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize, "differentiable": differentiable,
            "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for entry in self.state.values():
            for name in ("eta", "mu"):
                if name in entry and not isinstance(entry[name], Tensor):
                    entry[name] = scalar_state(float(entry[name]))

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": scalar_state(0.0),
            "eta": scalar_state(float(group["lr"])),
            "mu": scalar_state(1.0),
            "ax": zeros(parameter),
        }

    def _apply(
        self,
        params: list[Tensor],
        grads: list[Tensor],
        states: list[dict[str, Any]],
        group: dict[str, Any],
    ) -> None:
        options = (
            "capturable", "foreach", "differentiable", "maximize", "lr", "lambd", "t0", "alpha",
            "weight_decay",
        )  # fmt: skip
        asgd(
            params, grads, *(column(states, name) for name in ("ax", "mu", "eta", "step")),
            **{name: group[name] for name in options},
        )  # fmt: skip


def asgd(
    params: list[Tensor],
    grads: list[Tensor],
    axs: list[Tensor],
    mus: list[Tensor],
    etas: list[Tensor],
    state_steps: list[Tensor],
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    lambd: float,
    lr: float,
    t0: float,
    alpha: float,
    weight_decay: float,
) -> None:
    """One step of `ASGD` on given state, in place.

    Args:
        mus, etas: rates of this step, as tensors of one element; replaced by the next step's.
        has_complex: accepted; complex tensors are recognized.

    Example:
        >>> p, eta = torch.ones(1), torch.tensor(0.5)
        >>> torch.optim.asgd.asgd(
        ...     [p], [torch.ones(1)], [torch.zeros(1)], [torch.tensor(1.0)], [eta],
        ...     [torch.tensor(0.0)], lr=0.5, lambd=0.1, t0=10, alpha=0.75, weight_decay=0)
        >>> p, eta
        (tensor([0.4500]), tensor(0.4820))
    """
    check_call(
        state_steps, foreach, capturable, differentiable, "params, mus, etas, and state_steps"
    )
    with no_grad():
        eta, mu = recording.unrecorded(lambda: [[t.item() for t in ts] for ts in (etas, mus)])
    numbers = advance(state_steps)
    run_step(
        "_asgd_step", differentiable, (params, grads, axs),
        (eta, lambd, mu, weight_decay, bool(maximize)),
    )  # fmt: skip
    rate = float(lr)

    def renew() -> None:
        for number, old_eta, old_mu in zip(numbers, etas, mus, strict=True):
            old_eta.fill_(rate / (1 + lambd * rate * number) ** alpha)
            old_mu.fill_(1 / max(1, number - t0))

    with no_grad():
        recording.unrecorded(renew)
