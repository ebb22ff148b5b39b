"""Stochastic gradient descent with momentum (Sutskever et al. 2013)."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau.optim.optimizer import Closure, Optimizer, gradients, private


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
        foreach, differentiable, fused: accepted; every step is one fused Plan.

    Raises:
        ValueError: a hyper-parameter is out of range, or Nesterov without momentum.
        RuntimeError: weight decay with a sparse gradient.
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

    def _update(self, group: dict[str, Any]) -> None:
        lr, decay, momentum = float(group["lr"]), group["weight_decay"], group["momentum"]
        plain, with_momentum = private("_sgd_step"), private("_sgd_momentum_step")
        for parameter, grad in gradients(group, sparse=True):
            if grad.is_sparse:
                self._update_rows(parameter, grad, group)
                continue
            if momentum == 0:
                plain(parameter, grad, lr, decay, group["maximize"])
                continue
            buffer = self.state[parameter].get("momentum_buffer")
            dampening = group["dampening"]
            if buffer is None:  # the first gradient enters the buffer undamped
                buffer = self.state[parameter]["momentum_buffer"] = parameter.new_zeros(
                    parameter.shape
                )
                dampening = 0.0
            with_momentum(
                parameter, grad, buffer, lr, decay, momentum, dampening,
                group["nesterov"], group["maximize"],
            )  # fmt: skip

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
