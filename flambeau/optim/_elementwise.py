"""The common part of optimizers that change every element by a formula of its own state.

Such a step is one private op per parameter, called in a native loop
(`ops/pointwise/adaptive_steps.py`); with `differentiable` the same formula runs over tensors, so
that it is recorded for backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.autograd import no_grad
from flambeau.capture import recording
from flambeau.ir.failure import failure
from flambeau.ops.pointwise.adaptive_steps import FORMULAS, Arithmetic
from flambeau.optim.optimizer import (
    Closure,
    Optimizer,
    as_real,
    each,
    gradients,
    new_state,
    private,
)

_DEVICES = "['cuda', 'xpu', 'hpu', 'privateuseone', 'xla']"


class ElementwiseOptimizer(Optimizer):
    """An optimizer whose state starts by `_start` and whose step is `_apply`."""

    _step_is_tensor = True

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter before its first step."""
        raise NotImplementedError

    def _apply(
        self,
        params: list[Tensor],
        grads: list[Tensor],
        states: list[dict[str, Any]],
        group: dict[str, Any],
    ) -> None:
        """One step of the parameters of a group that have a gradient."""
        raise NotImplementedError

    def _update(self, group: dict[str, Any]) -> None:
        pairs = list(gradients(group, name=type(self).__name__))
        missing = [p for p, _ in pairs if not self.state.get(p)]
        if missing:
            starts = new_state(lambda: [self._start(p, group) for p in missing])
            for parameter, start in zip(missing, starts, strict=True):
                self.state[parameter].update(start)
        if pairs:
            params, grads = (list(column) for column in zip(*pairs, strict=True))
            self._apply(params, grads, [self.state[p] for p in params], group)

    def step(self, closure: Closure | None = None) -> Any:
        """Updates the parameters once.

        Args:
            closure: evaluates the model again and returns the loss.
        """
        return self._run(self._update, closure)


def column(states: Sequence[dict[str, Any]], name: str) -> list[Any]:
    """One entry of every state."""
    return [state[name] for state in states]


def zeros(parameter: Tensor) -> Tensor:
    """Zeros in the form of a parameter, for its state."""
    return flambeau.zeros_like(parameter, requires_grad=False)


def check_call(
    state_steps: Sequence[Any], foreach: bool | None, capturable: bool, differentiable: bool,
    what: str = "params and state_steps",
) -> None:  # fmt: skip
    """Checks the arguments that all functional forms have.

    Raises:
        RuntimeError: the step counters are no tensors.
        AssertionError: `capturable` (there is no device for it), or a list form with autograd.
    """
    if not all(isinstance(step, Tensor) for step in state_steps):
        problem = "API has changed, `state_steps` argument must contain a list of singleton tensors"
        raise failure(RuntimeError, "optim", problem, "[torch.tensor(0.0) for _ in params]")
    if foreach and differentiable:
        raise AssertionError("[optim] _foreach ops don't support autograd\nhint: foreach=False")
    if capturable:
        problem = f"If capturable=True, {what} must be on supported devices: {_DEVICES}."
        raise failure(AssertionError, "optim", problem, "capturable=False")


def advance(state_steps: Sequence[Tensor]) -> list[float]:
    """Counts one step more, and returns the counts.

    The counters are written outside of recorded regions: the rates follow from their values.
    """

    def count() -> list[float]:
        flambeau._foreach_add_(list(state_steps), 1)
        return [step.item() for step in state_steps]

    with no_grad():
        return recording.unrecorded(count)


advance._counts_in_tensors = True  # type: ignore[attr-defined] # calls without Python count, too


def scaled_gradients(
    grads: list[Tensor], grad_scale: Tensor | None, found_inf: Tensor | None
) -> list[Tensor] | None:
    """The gradients divided by a loss scale, in place; None if the step is to be left out."""
    if found_inf is not None and found_inf.item() == 1:
        return None
    if grad_scale is not None:
        flambeau._foreach_div_(grads, grad_scale.item())
    return grads


def run_step(
    name: str,
    differentiable: bool,
    tensors: Sequence[Sequence[Tensor] | None],
    numbers: Iterable[Any],
) -> None:
    """Calls the private op `name` for every parameter.

    Args:
        tensors: parameters, gradients, then the states, as columns; None for a state that this
            variant of the step has not.
        numbers: hyper-parameters; a list has one for each parameter.
    """
    if differentiable:
        _run_formula(name, tensors, list(numbers))
        return
    columns = [None if entries is None else as_real(entries) for entries in tensors]
    each(private(name), (*columns, *(_number(n) for n in numbers)))


def _number(value: Any) -> Any:
    """A hyper-parameter as a float, so that plans do not depend on its type; flags stay."""
    return value if isinstance(value, (bool, list)) else float(value)


def _run_formula(name: str, tensors: Sequence[Sequence[Tensor] | None], numbers: list[Any]) -> None:
    for index in range(len(tensors[0] or ())):
        own = [n[index] if isinstance(n, list) else n for n in numbers]
        row = [None if column is None else as_real((column[index],))[0] for column in tensors]
        param, grad, *states = row
        # Copies: autograd holds the states, which are written.
        before = [None if state is None else state.clone() for state in states]
        results = FORMULAS[name](_TENSORS, param, grad, *before, *own)
        for target, result in zip((param, *states), results, strict=True):
            if target is not None:
                target.copy_(result)


def _moment(before: Tensor, decay: Any, *factors: Tensor) -> Tensor:
    share = factors[0] * (1.0 - decay)
    for factor in factors[1:]:
        share = share * factor
    return before * decay + share


_TENSORS = Arithmetic(
    flambeau.sqrt, flambeau.abs, flambeau.sign, flambeau.maximum, flambeau.minimum,
    flambeau.where, flambeau.gt, flambeau.eq, _moment, lambda value, like: value,
    flambeau.full_like,
)  # fmt: skip


def check_range(checks: Iterable[tuple[str, Any, Callable[[Any], bool]]]) -> None:
    """Checks hyper-parameters.

    Args:
        checks: names, values and what must hold for the value.

    Raises:
        ValueError: a value is out of range.
    """
    for name, value, fits in checks:
        if not fits(value):
            raise ValueError(f"[optim] Invalid {name}: {value}\nhint: see the range in the paper")


def not_negative(value: Any) -> bool:
    """Whether a hyper-parameter is at least 0."""
    return bool(value >= 0.0)


def check_betas(betas: Sequence[Any]) -> None:
    """Checks the decays of moments.

    Raises:
        ValueError: one is not in [0, 1).
    """
    for index, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            problem = f"Invalid beta parameter at index {index}: {beta}"
            raise failure(ValueError, "optim", problem, "0 <= beta < 1")
