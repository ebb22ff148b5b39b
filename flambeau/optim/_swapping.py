"""Parameters and state that take an optimizer's place for a while."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flambeau import Tensor
from flambeau.optim.optimizer import Optimizer

__all__ = ["swap_in_optimizer_params_and_state"]


@contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer,
    swapin_parameters: dict[str, Tensor],
    swapin_optim_state: dict[str, Any],
) -> Iterator[None]:
    """A `with` block in which an optimizer has other parameters and state.

    Args:
        optimizer: with its state initialised.
        swapin_parameters: parameters in the order of the optimizer's own.
        swapin_optim_state: a dict of the form of `state_dict()`, whose tensors are used as they
            are: a step changes them.

    Raises:
        ValueError: other numbers of parameters.

    Example:
        >>> p, other = torch.ones(1, requires_grad=True), torch.zeros(1, requires_grad=True)
        >>> optimizer = torch.optim.SGD([p], lr=1.0)
        >>> other.grad = torch.ones(1)
        >>> state = optimizer.state_dict()
        >>> with torch.optim.swap_in_optimizer_params_and_state(optimizer, {"p": other}, state):
        ...     optimizer.step()
        >>> p, other
        (tensor([1.], requires_grad=True), tensor([-1.], requires_grad=True))
    """
    parameters = list(swapin_parameters.values())
    indices = [index for group in swapin_optim_state["param_groups"] for index in group["params"]]
    present = sum(len(group["params"]) for group in optimizer.param_groups)
    if not len(parameters) == len(indices) == present:
        raise ValueError(
            f"[swap_in_optimizer_params_and_state] the optimizer has {present} parameters, got "
            f"{len(parameters)} and a state of {len(indices)}\nhint: optimizer.state_dict()"
        )
    of_index = dict(zip(indices, parameters, strict=True))
    groups, state = optimizer.param_groups, optimizer.state
    optimizer.param_groups = [
        {**group, "params": [of_index[index] for index in group["params"]]}
        for group in swapin_optim_state["param_groups"]
    ]
    optimizer.state = defaultdict(dict)
    for index, values in swapin_optim_state["state"].items():
        optimizer.state[of_index[index]] = dict(values)
    try:
        yield
    finally:
        optimizer.param_groups, optimizer.state = groups, state
