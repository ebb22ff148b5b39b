"""Stochastic gradient descent with momentum (Sutskever et al. 2013)."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.optim.optimizer import (
    Closure,
    Optimizer,
    check_implementation,
    check_lr,
    each,
    gradients,
    new_state,
    private,
)


class SGD(Optimizer):
    """Stochastic gradient descent.

    A sparse gradient (`nn.Embedding(sparse=True)`) changes only the rows it keeps.

    Args:
        params: parameters or groups.
        lr: learning rate.
        momentum: decay of the momentum buffer; 0: none is kept.
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
            raise ValueError(
                "[optim] Nesterov momentum requires a momentum and zero dampening\n"
                "hint: momentum=0.9, dampening=0"
            )
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize, "foreach": foreach,
            "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_implementation(foreach, fused, differentiable)

    _later_options = MappingProxyType(
        {"nesterov": False, "maximize": False, "foreach": None, "differentiable": False,
         "fused": False}
    )  # fmt: skip

    def _update(self, group: dict[str, Any]) -> None:
        dense = []
        for parameter, grad in gradients(group, sparse=True):
            if grad.is_sparse:
                self._update_rows(parameter, grad, group)
            else:
                dense.append((parameter, grad))
        if dense and group["differentiable"]:
            self._update_differentiable(dense, group)
        elif dense:
            self._update_dense(dense, group)

    def _update_dense(self, pairs: list[tuple[Tensor, Tensor]], group: dict[str, Any]) -> None:
        lr, decay, momentum = float(group["lr"]), group["weight_decay"], group["momentum"]
        parameters, grads = (list(column) for column in zip(*pairs, strict=True))
        if momentum == 0:
            each(private("_sgd_step"), (parameters, grads, lr, decay, group["maximize"]))
            return
        # The first gradient enters the buffer undamped.
        dampening = [group["dampening"] if self._buffer(p) is not None else 0.0 for p in parameters]
        missing = [p for p in parameters if self._buffer(p) is None]
        if missing:
            buffers = new_state(lambda: [flambeau.zeros_like(p) for p in missing])
            for parameter, buffer in zip(missing, buffers, strict=True):
                self.state[parameter]["momentum_buffer"] = buffer
        columns = (parameters, grads, [self._buffer(p) for p in parameters])
        numbers = (lr, decay, momentum, dampening, group["nesterov"], group["maximize"])
        each(private("_sgd_momentum_step"), (*columns, *numbers))

    def _buffer(self, parameter: Tensor) -> Tensor | None:
        return self.state[parameter].get("momentum_buffer")

    def _update_differentiable(
        self, pairs: list[tuple[Tensor, Tensor]], group: dict[str, Any]
    ) -> None:
        """The same by operators that have gradients."""
        momentum, decay = group["momentum"], group["weight_decay"]
        for parameter, grad in pairs:
            grad = -grad if group["maximize"] else grad
            if decay != 0:
                grad = grad.add(parameter, alpha=decay)
            if momentum != 0:
                buffer = self._buffer(parameter)
                if buffer is None:
                    buffer = self.state[parameter]["momentum_buffer"] = grad.clone()
                else:
                    buffer.mul_(momentum).add_(grad, alpha=1 - group["dampening"])
                grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer.clone()
            parameter.sub_(grad * group["lr"])

    def _update_rows(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        """The step for a sparse gradient: what it does not keep stays as it is."""
        grad = -grad if group["maximize"] else grad
        if group["weight_decay"] != 0:
            grad = grad.add(parameter, alpha=group["weight_decay"])  # refused, as the sum is dense
        momentum = group["momentum"]
        if momentum != 0:
            buffer = self.state[parameter].get("momentum_buffer")
            if buffer is None:
                buffer = grad.clone()
            else:
                buffer = (buffer * momentum).add(grad, alpha=1 - group["dampening"])
            if buffer.is_sparse:
                buffer = buffer.coalesce()
            self.state[parameter]["momentum_buffer"] = buffer
            grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
        parameter.add_(grad, alpha=-float(group["lr"]))

    def step(self, closure: Closure | None = None) -> Any:
        """Updates the parameters once."""
        return self._run(self._update, closure)
