"""Adam for sparse gradients: moments and parameters move only where the gradient has something."""

from __future__ import annotations

import functools
import math
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.ir.failure import failure
from flambeau.optim._elementwise import advance, check_betas
from flambeau.optim.optimizer import (
    Closure,
    Optimizer,
    check_lr,
    gradients,
    new_state,
    scalar_state,
)

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """A lazy Adam: elements that a gradient does not store, and their moments, do not change.

    Otherwise Adam (Kingma & Ba 2015), without weight decay. Parameters are dense.

    Args:
        params: parameters or groups.
        lr: learning rate.
        betas: decay of the first and second moment.
        eps: added to the denominator.
        maximize: ascend.

    Raises:
        ValueError: a hyper-parameter is out of range, or a parameter is sparse.
        RuntimeError: a gradient is dense.

    Example:
        >>> table = torch.nn.Embedding(10, 2, sparse=True)
        >>> optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
        >>> before = table.weight.detach().clone()
        >>> table(torch.tensor([3])).sum().backward()
        >>> optimizer.step()
        >>> (table.weight != before).any(1).nonzero()
        tensor([[3]])
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        check_lr(lr)
        for name, value in (("learning rate", lr), ("epsilon value", eps)):
            if not value > 0.0:
                raise ValueError(f"[optim] Invalid {name}: {value}\nhint: it must be positive")
        check_betas(betas)
        defaults = {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize}
        super().__init__(params, defaults)
        places = [
            [number, index]
            for number, group in enumerate(self.param_groups)
            for index, parameter in enumerate(group["params"])
            if parameter.is_sparse
        ]
        imaginary = [
            [number, index]
            for number, group in enumerate(self.param_groups)
            for index, parameter in enumerate(group["params"])
            if parameter.is_complex()
        ]
        if imaginary:
            problem = f"Complex params at indices {imaginary}: SparseAdam does not support "
            problem += "complex parameters"
            raise failure(ValueError, "optim", problem, "view_as_real of the parameter")
        if places:
            problem = f"Sparse params at indices {places}: SparseAdam requires dense parameter "
            problem += "tensors"
            raise failure(ValueError, "optim", problem, "it is gradients that are sparse")

    _step_is_tensor = True

    def _update(self, group: dict[str, Any]) -> None:
        for parameter, grad in gradients(group, sparse=True):
            if not grad.is_sparse:
                raise RuntimeError(
                    "[optim] SparseAdam does not support dense gradients, please consider Adam "
                    "instead\nhint: nn.Embedding(sparse=True) makes sparse ones"
                )
            state = self.state[parameter]
            if not state:
                state["step"] = scalar_state(0.0)
                for name in ("exp_avg", "exp_avg_sq"):
                    state[name] = new_state(functools.partial(flambeau.zeros_like, parameter))
            (number,) = advance([state["step"]])
            move(number, parameter, (-grad if group["maximize"] else grad).coalesce(), state, group)

    def step(self, closure: Closure | None = None) -> Any:
        """Updates the parameters once."""
        return self._run(self._update, closure)


def move(
    number: float,
    parameter: Tensor,
    grad: Tensor,
    state: dict[str, Any],
    group: dict[str, Any],
) -> None:
    """Adam's step at the indices of a coalesced gradient."""
    beta1, beta2 = group["betas"]
    indices, values = grad.indices(), grad.values()

    def kept(changes: Tensor) -> Tensor:
        return flambeau.sparse_coo_tensor(indices, changes, grad.shape, is_coalesced=True)

    def moved(moment: Tensor, target: Tensor, share: float) -> Tensor:
        before = moment.sparse_mask(grad).values()
        change = (target - before) * share
        moment.add_(kept(change))
        return before + change

    first = moved(state["exp_avg"], values, 1 - beta1)
    second = moved(state["exp_avg_sq"], values * values, 1 - beta2)
    rate = float(group["lr"]) * math.sqrt(1 - beta2**number) / (1 - beta1**number)
    parameter.add_(kept(first / (second.sqrt() + group["eps"]) * -rate))
