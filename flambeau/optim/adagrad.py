"""Adagrad: a learning rate per element (Duchi, Hazan & Singer 2011)."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.ir.failure import failure
from flambeau.optim._elementwise import (
    advance,
    check_call,
    check_range,
    column,
    not_negative,
    run_step,
    scaled_gradients,
)
from flambeau.optim.optimizer import (
    Closure,
    Optimizer,
    as_real,
    check_implementation,
    check_lr,
    gradients,
    scalar_state,
)

__all__ = ["Adagrad", "adagrad"]


class Adagrad(Optimizer):
    """Adagrad: steps shrink where gradients have been large.

    sum += g**2; p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(sum) + eps)

    A sparse gradient (`nn.Embedding(sparse=True)`) updates only the elements that it stores.

    Args:
        params: parameters or groups.
        lr: learning rate.
        lr_decay: decay of the learning rate per step.
        weight_decay: L2 penalty; not for sparse gradients.
        initial_accumulator_value: what sums of squares begin with.
        eps: added to the denominator.
        maximize: ascend.
        differentiable: steps are recorded for backward; parameters must be no leaves.
        foreach, fused: accepted; every step is fused.

    Raises:
        ValueError: a hyper-parameter is out of range.
        RuntimeError: weight decay with a sparse gradient, or `fused` with `foreach` or
            `differentiable`.

    Example:
        >>> p = torch.ones(2, requires_grad=True)
        >>> optimizer = torch.optim.Adagrad([p], lr=0.5)
        >>> p.sum().backward()
        >>> optimizer.step()
        >>> p
        tensor([0.5000, 0.5000], requires_grad=True)
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        check_range(
            (
                ("learning rate", lr, not_negative),
                ("lr_decay value", lr_decay, not_negative),
                ("weight_decay value", weight_decay, not_negative),
                ("initial_accumulator_value value", initial_accumulator_value, not_negative),
                ("epsilon value", eps, not_negative),
            )
        )
        defaults = {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_implementation(foreach, fused, differentiable)
        for group in self.param_groups:
            for parameter in group["params"]:
                start = group["initial_accumulator_value"]
                if parameter.is_complex():
                    start = complex(start, start)
                total = flambeau.full_like(parameter, start, requires_grad=False)
                self.state[parameter] = {"step": scalar_state(0.0), "sum": total}
        if fused:
            self._step_supports_amp_scaling = True

    def share_memory(self) -> None:
        """Moves the sums to memory that processes share."""
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["sum"].share_memory_()

    _step_is_tensor = True
    _later_options = MappingProxyType(
        {"maximize": False, "foreach": None, "differentiable": False, "fused": None}
    )

    def _update(self, group: dict[str, Any]) -> None:
        pairs = list(gradients(group, sparse=True))
        if not pairs:
            return
        params, grads = (list(entries) for entries in zip(*pairs, strict=True))
        states = [self.state[p] for p in params]
        options = (
            "fused", "foreach", "differentiable", "lr", "weight_decay", "lr_decay", "eps",
            "maximize",
        )  # fmt: skip
        adagrad(
            params, grads, column(states, "sum"), column(states, "step"),
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None),
            **{name: group[name] for name in options},
        )  # fmt: skip

    def step(self, closure: Closure | None = None) -> Any:
        """Updates the parameters once."""
        return self._run(self._update, closure)


def adagrad(
    params: list[Tensor],
    grads: list[Tensor],
    state_sums: list[Tensor],
    state_steps: list[Tensor],
    fused: bool | None = None,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    has_sparse_grad: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    has_complex: bool = False,
    *,
    lr: float,
    weight_decay: float,
    lr_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """One step of `Adagrad` on given state, in place.

    Args:
        grad_scale: gradients are divided by it first.
        found_inf: nothing happens where it is 1.
        has_sparse_grad, has_complex: accepted; such tensors are recognized.

    Example:
        >>> p = torch.ones(1)
        >>> torch.optim.adagrad.adagrad(
        ...     [p], [torch.ones(1)], [torch.zeros(1)], [torch.tensor(0.0)], lr=0.5,
        ...     weight_decay=0, lr_decay=0, eps=1e-10, maximize=False)
        >>> p
        tensor([0.5000])
    """
    check_call(state_steps, foreach, False, differentiable)
    unscaled = scaled_gradients(grads, grad_scale, found_inf)
    if unscaled is None:
        return
    lr = lr if differentiable else float(lr)
    rates = [lr / (1 + (number - 1) * lr_decay) for number in advance(state_steps)]
    group = {"weight_decay": weight_decay, "eps": eps, "maximize": maximize}
    dense = []
    for row in zip(params, unscaled, state_sums, rates, strict=True):
        if row[1].is_sparse:
            _update_sparse(*row, group)
        elif differentiable:
            _differentiable_step(*row, group)
        else:
            dense.append(row)
    if dense:
        *columns, rates = (list(entries) for entries in zip(*dense, strict=True))
        run_step("_adagrad_step", False, columns, (rates, weight_decay, eps, bool(maximize)))


def _differentiable_step(
    parameter: Tensor, grad: Tensor, total: Tensor, rate: float, group: dict[str, Any]
) -> None:
    """The same by operators that have gradients."""
    parameter, grad, total = as_real((parameter, grad, total))
    grad = -grad if group["maximize"] else grad
    if group["weight_decay"] != 0:
        grad = grad.add(parameter, alpha=group["weight_decay"])
    total.addcmul_(grad, grad)
    parameter.sub_(grad / (total.sqrt() + group["eps"]) * rate)


def _update_sparse(
    parameter: Tensor, grad: Tensor, total: Tensor, rate: float, group: dict[str, Any]
) -> None:
    if group["weight_decay"] != 0:
        problem = "weight_decay option is not compatible with sparse gradients"
        raise failure(RuntimeError, "optim", problem, "weight_decay=0, or dense gradients")
    grad = -grad if group["maximize"] else grad
    _update_kept(parameter, grad.coalesce(), total, rate, group["eps"])


def _update_kept(parameter: Tensor, grad: Tensor, total: Tensor, rate: float, eps: float) -> None:
    """The step for a sparse gradient: only elements that it stores are updated."""
    total.add_(grad * grad)
    scale = total.sparse_mask(grad).values().sqrt() + eps
    change = flambeau.sparse_coo_tensor(grad.indices(), grad.values() / scale, grad.shape)
    parameter.add_(change, alpha=-rate)
