"""Adagrad: a learning rate per element (Duchi, Hazan & Singer 2011)."""

from __future__ import annotations

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
    private,
)


class Adagrad(Optimizer):
    """Adagrad: steps shrink where gradients have been large.

    sum += g**2; p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(sum) + eps)

    A sparse gradient (`nn.Embedding(sparse=True)`) changes only the elements it keeps.

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
        for name, value in (
            ("learning rate", lr),
            ("lr_decay value", lr_decay),
            ("weight_decay value", weight_decay),
            ("initial_accumulator_value value", initial_accumulator_value),
            ("epsilon value", eps),
        ):
            if not 0.0 <= value:
                raise ValueError(f"[optim] Invalid {name}: {value}\nhint: it must not be negative")
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
                total = flambeau.full_like(parameter, start, requires_grad=False)
                self.state[parameter] = {"step": 0, "sum": total}

    _later_options = MappingProxyType(
        {"maximize": False, "foreach": None, "differentiable": False, "fused": None}
    )

    def _update(self, group: dict[str, Any]) -> None:
        check_differentiable(group)
        by_number: dict[int, list[tuple[Tensor, Tensor, Tensor]]] = {}
        for parameter, grad in gradients(group, sparse=True):
            state = self.state[parameter]
            number = state["step"] = int(state["step"]) + 1
            if grad.is_sparse:
                rate = _rate(group, number)
                _update_sparse(parameter, grad, state["sum"], rate, group)
            else:
                by_number.setdefault(number, []).append((parameter, grad, state["sum"]))
        update = _differentiable_step if group["differentiable"] else _step
        for number, rows in by_number.items():
            update(rows, _rate(group, number), group)

    def step(self, closure: Closure | None = None) -> Any:
        """Updates the parameters once."""
        return self._run(self._update, closure)


def _rate(group: dict[str, Any], number: int) -> float:
    return float(group["lr"]) / (1 + (number - 1) * group["lr_decay"])


def _step(rows: list[tuple[Tensor, ...]], rate: float, group: dict[str, Any]) -> None:
    """One step of parameters that share a rate."""
    columns = [as_real(column) for column in zip(*rows, strict=True)]
    each(
        private("_adagrad_step"),
        (*columns, rate, group["weight_decay"], group["eps"], group["maximize"]),
    )


def _differentiable_step(
    rows: list[tuple[Tensor, ...]], rate: float, group: dict[str, Any]
) -> None:
    """The same by operators that have gradients."""
    for row in rows:
        parameter, grad, total = as_real(row)
        grad = -grad if group["maximize"] else grad
        if group["weight_decay"] != 0:
            grad = grad.add(parameter, alpha=group["weight_decay"])
        total.addcmul_(grad, grad)
        parameter.addcdiv_(grad, total.sqrt() + group["eps"], value=-rate)


def _update_sparse(
    parameter: Tensor, grad: Tensor, total: Tensor, rate: float, group: dict[str, Any]
) -> None:
    if group["weight_decay"] != 0:
        raise RuntimeError(
            "[optim] weight_decay option is not compatible with sparse gradients\n"
            "hint: weight_decay=0, or dense gradients"
        )
    grad = -grad if group["maximize"] else grad
    _update_kept(parameter, grad.coalesce(), total, rate, group["eps"])


def _update_kept(parameter: Tensor, grad: Tensor, total: Tensor, rate: float, eps: float) -> None:
    """The step for a sparse gradient, only where it keeps something."""
    total.add_(grad * grad)
    scale = total.sparse_mask(grad).values().sqrt() + eps
    change = flambeau.sparse_coo_tensor(grad.indices(), grad.values() / scale, grad.shape)
    parameter.add_(change, alpha=-rate)
