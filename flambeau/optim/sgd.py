"""Stochastic gradient descent with momentum (Sutskever et al. 2013)."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.ir.failure import failure
from flambeau.optim._elementwise import run_step, scaled_gradients
from flambeau.optim.optimizer import (
    Closure,
    Optimizer,
    check_implementation,
    check_lr,
    gradients,
    new_state,
)

__all__ = ["SGD", "sgd"]


class SGD(Optimizer):
    """Stochastic gradient descent.

    A sparse gradient (`nn.Embedding(sparse=True)`) updates only the rows that it stores.

    Args:
        params: parameters or groups.
        lr: learning rate.
        momentum: decay of the momentum buffer; 0: there is none.
        dampening: 1 - dampening scales the gradient that enters the buffer.
        weight_decay: L2 penalty.
        nesterov: look ahead along the buffer.
        maximize: ascend.
        differentiable: steps are recorded for backward; parameters must be no leaves.
        foreach, fused: accepted; every step is fused.

    Raises:
        ValueError: a hyper-parameter is out of range, or Nesterov without momentum.
        RuntimeError: weight decay with a sparse gradient, or `fused` with `foreach` or
            `differentiable`.

    Example:
        >>> p = torch.ones(2, requires_grad=True)
        >>> optimizer = torch.optim.SGD([p], lr=0.5, momentum=0.9)
        >>> p.sum().backward()
        >>> optimizer.step()
        >>> p
        tensor([0.5000, 0.5000], requires_grad=True)
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        for name, value in (
            ("learning rate", lr),
            ("momentum value", momentum),
            ("weight_decay value", weight_decay),
        ):
            if value < 0.0:
                raise ValueError(f"[optim] Invalid {name}: {value}\nhint: it must not be negative")
        if nesterov and (momentum <= 0 or dampening != 0):
            problem = "Nesterov momentum requires a momentum and zero dampening"
            raise failure(ValueError, "optim", problem, "momentum=0.9, dampening=0")
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize, "foreach": foreach,
            "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_implementation(foreach, fused, differentiable)
        if fused:
            self._step_supports_amp_scaling = True

    _later_options = MappingProxyType(
        {"nesterov": False, "maximize": False, "foreach": None, "differentiable": False,
         "fused": False}
    )  # fmt: skip

    def _update(self, group: dict[str, Any]) -> None:
        pairs = list(gradients(group, sparse=True))
        unscaled = scaled_gradients(
            [grad for _, grad in pairs],
            getattr(self, "grad_scale", None),
            getattr(self, "found_inf", None),
        )
        if not pairs or unscaled is None:
            return
        params = [p for p, _ in pairs]
        momentum = group["momentum"] != 0
        buffers = [self.state[p].get("momentum_buffer") if momentum else None for p in params]
        _step(params, unscaled, buffers, group)
        for parameter, buffer in zip(params, buffers, strict=True):
            if momentum:
                self.state[parameter]["momentum_buffer"] = buffer

    def step(self, closure: Closure | None = None) -> Any:
        """Updates the parameters once."""
        return self._run(self._update, closure)


def sgd(
    params: list[Tensor],
    d_p_list: list[Tensor],
    momentum_buffer_list: list[Tensor | None],
    has_sparse_grad: bool = False,
    foreach: bool | None = None,
    fused: bool | None = None,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    *,
    weight_decay: float,
    momentum: float,
    lr: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    """One step of `SGD` on given buffers, in place.

    Args:
        d_p_list: gradients.
        momentum_buffer_list: None where there is none yet; it is then put there.
        has_sparse_grad, foreach, fused: accepted.
        grad_scale: gradients are divided by it first.
        found_inf: nothing happens where it is 1.

    Example:
        >>> p = torch.ones(1)
        >>> torch.optim.sgd.sgd(
        ...     [p], [torch.ones(1)], [None], weight_decay=0, momentum=0, lr=0.25, dampening=0,
        ...     nesterov=False, maximize=False)
        >>> p
        tensor([0.7500])
    """
    unscaled = scaled_gradients(d_p_list, grad_scale, found_inf)
    if unscaled is not None:
        group = {
            "weight_decay": weight_decay, "momentum": momentum, "lr": lr, "dampening": dampening,
            "nesterov": nesterov, "maximize": maximize, "differentiable": False,
        }  # fmt: skip
        _step(params, unscaled, momentum_buffer_list, group)


def _step(
    params: list[Tensor],
    grads: list[Tensor],
    buffers: list[Tensor | None],
    group: dict[str, Any],
) -> None:
    """One step; writes new momentum buffers to the list."""
    dense = []
    for index, (parameter, grad) in enumerate(zip(params, grads, strict=True)):
        if grad.is_sparse:
            buffers[index] = _update_rows(parameter, grad, buffers[index], group)
        elif group["differentiable"]:
            buffers[index] = _update_differentiable(parameter, grad, buffers[index], group)
        else:
            dense.append(index)
    if dense:
        _update_dense(dense, params, grads, buffers, group)


def _update_dense(
    dense: list[int],
    params: list[Tensor],
    grads: list[Tensor],
    buffers: list[Tensor | None],
    group: dict[str, Any],
) -> None:
    lr, decay, momentum = group["lr"], group["weight_decay"], group["momentum"]
    columns = [[params[k] for k in dense], [grads[k] for k in dense]]
    maximize = bool(group["maximize"])
    if momentum == 0:
        run_step("_sgd_step", False, [*columns, None], (lr, decay, 0.0, 0.0, False, maximize))
        return
    missing = [k for k in dense if buffers[k] is None]
    # The first gradient enters the buffer undamped.
    dampening = [0.0 if buffers[k] is None else float(group["dampening"]) for k in dense]
    if missing:
        fresh = new_state(lambda: [flambeau.zeros_like(params[k]) for k in missing])
        for index, buffer in zip(missing, fresh, strict=True):
            buffers[index] = buffer
    columns.append([buffers[k] for k in dense])  # type: ignore[misc]
    numbers = (lr, decay, momentum, dampening, bool(group["nesterov"]), maximize)
    run_step("_sgd_step", False, columns, numbers)


def _update_differentiable(
    parameter: Tensor, grad: Tensor, buffer: Tensor | None, group: dict[str, Any]
) -> Tensor | None:
    """The same by operators that have gradients; returns the momentum buffer."""
    momentum, decay = group["momentum"], group["weight_decay"]
    grad = -grad if group["maximize"] else grad
    if decay != 0:
        grad = grad.add(parameter, alpha=decay)
    if momentum != 0:
        if buffer is None:
            buffer = grad.clone()
        else:
            buffer.mul_(momentum).add_(grad, alpha=1 - group["dampening"])
        grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer.clone()
    parameter.sub_(grad * group["lr"])
    return buffer


def _update_rows(
    parameter: Tensor, grad: Tensor, buffer: Tensor | None, group: dict[str, Any]
) -> Tensor | None:
    """The step for a sparse gradient: elements that it does not store do not change."""
    grad = -grad if group["maximize"] else grad
    if group["weight_decay"] != 0:
        grad = grad.add(parameter, alpha=group["weight_decay"])  # refused, as the sum is dense
    momentum = group["momentum"]
    if momentum != 0:
        if buffer is None:
            buffer = grad.clone()
        else:
            buffer = (buffer * momentum).add(grad, alpha=1 - group["dampening"])
        if buffer.is_sparse:
            buffer = buffer.coalesce()
        grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
    parameter.add_(grad, alpha=-float(group["lr"]))
    return buffer
