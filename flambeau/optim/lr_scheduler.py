"""Learning-rate schedules: they set `group["lr"]`, which optimizers read as a run-time number."""

from __future__ import annotations

import contextlib
import functools
import math
import types
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from flambeau import Tensor
from flambeau.ir.failure import failure
from flambeau.optim.optimizer import Optimizer
from flambeau.runtime import missing as _missing

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
    "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR",
    "StepLR",
]  # fmt: skip


class LRScheduler:
    """Base class: counts epochs and writes `get_lr()` into the groups.

    A subclass may define `_get_closed_form_lr()`, which `step(epoch)` calls instead.

    Args:
        optimizer: whose groups are scheduled.
        last_epoch: -1 to start; else the epoch to continue from (groups need "initial_lr").

    Raises:
        TypeError: `optimizer` is none.
        KeyError: continuing without "initial_lr".
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"[lr_scheduler] param 'initial_lr' is not specified in "
                    f"param_groups[{number}] when "
                    "resuming an optimizer"
                )
        self.base_lrs = [_copied(group["initial_lr"]) for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        _track_steps(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        """The step to the first epoch, which is none of the user's."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates of epoch `last_epoch`, one per group."""
        raise NotImplementedError("[lr_scheduler] a schedule defines get_lr()")

    def get_last_lr(self) -> list[float | Tensor]:
        """The learning rates set last."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a `state_dict()`."""
        self.__dict__.update(state_dict)

    def step(self, epoch: int | None = None) -> None:
        """Goes to the next epoch (or to `epoch`)."""
        if self._step_count == 1:
            _check_order(self.optimizer)
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed_form = getattr(self, "_get_closed_form_lr", None)
        with _enable_get_lr_call(self):
            rates = closed_form() if epoch is not None and closed_form else self.get_lr()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            _set_rate(group, rate)
        self._last_lr = [_copied(group["lr"]) for group in self.optimizer.param_groups]

    def _current(self) -> list[float | Tensor]:
        return [group["lr"] for group in self.optimizer.param_groups]


@contextlib.contextmanager
def _enable_get_lr_call(o: Any) -> Iterator[Any]:
    """A `with` block in which a schedule's `get_lr()` is called without a warning."""
    o._get_lr_called_within_step = True
    try:
        yield o
    finally:
        o._get_lr_called_within_step = False


class _LRScheduler(LRScheduler):
    """The name of `LRScheduler` in old programs."""


EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` is deprecated: call `scheduler.step()` for the next "
    "epoch. With an epoch the closed form is used where there is one."
)


def _check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        problem = f"{type(optimizer).__name__} is not an Optimizer"
        raise failure(TypeError, "lr_scheduler", problem, "a subclass of torch.optim.Optimizer")


def _track_steps(optimizer: Optimizer) -> None:
    """Has the optimizer note its steps, for the warning about the order of calls."""
    optimizer.__dict__.setdefault("_opt_called", False)
    step = optimizer.step
    if hasattr(step, "hooked") or hasattr(step, "_wrapped_by_lr_sched"):
        return

    @functools.wraps(step)
    def noted(*args: Any, **kwargs: Any) -> Any:
        optimizer._opt_called = True  # type: ignore[attr-defined]
        return step(*args, **kwargs)

    noted._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = noted  # type: ignore[method-assign]


def _check_order(optimizer: Optimizer) -> None:
    step = optimizer.step
    if not (hasattr(step, "hooked") or hasattr(step, "_wrapped_by_lr_sched")):
        warnings.warn(
            "Seems like `optimizer.step()` has been overridden after learning rate scheduler "
            "initialization: call `optimizer.step()` before `lr_scheduler.step()`.",
            UserWarning,
            stacklevel=3,
        )
    elif not getattr(optimizer, "_opt_called", False):
        warnings.warn(
            "Detected call of `lr_scheduler.step()` before `optimizer.step()`: the first learning "
            "rate of the schedule is left out. Call `optimizer.step()` first.",
            UserWarning,
            stacklevel=3,
        )


def _warn_outside(schedule: LRScheduler) -> None:
    if not schedule._get_lr_called_within_step:
        warnings.warn(
            "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
            UserWarning,
            stacklevel=3,
        )


def _per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """One value for every group."""
    groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * groups
    if len(value) != groups:
        problem = f"{name} must have the same length as optimizer.param_groups. {name} has "
        problem += f"{len(value)} values, param_groups has {groups}."
        raise failure(ValueError, "lr_scheduler", problem, "one value for each")
    return list(value)


def _copied(rate: Any) -> Any:
    """A rate that later changes of the group's own do not reach."""
    return rate.clone() if isinstance(rate, Tensor) else rate


def _set_rate(group: dict[str, Any], rate: Any) -> None:
    """Writes into a rate that is a tensor: others may hold it."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(float(rate))
    else:
        group["lr"] = rate


class StepLR(LRScheduler):
    """Multiplies the rate by `gamma` every `step_size` epochs."""

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates of this epoch."""
        _warn_outside(self)
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return self._current()
        return [rate * self.gamma for rate in self._current()]

    def _get_closed_form_lr(self) -> list[float | Tensor]:
        return [rate * self.gamma ** (self.last_epoch // self.step_size) for rate in self.base_lrs]


class LambdaLR(LRScheduler):
    """The initial rate times a function of the epoch.

    Args:
        lr_lambda: one function, or one per group.

    Raises:
        ValueError: the number of functions differs from that of the groups.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        count = len(optimizer.param_groups)
        functions = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        if len(functions) != count:
            raise ValueError(f"[LambdaLR] Expected {count} lr_lambdas, but got {len(functions)}")
        self.lr_lambdas = functions
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Without plain functions, which cannot be saved; callable objects save their
        attributes.
        """
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "lr_lambdas")}
        state["lr_lambdas"] = [_saved_function(f) for f in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a `state_dict()`; functions stay."""
        saved = dict(state_dict)
        for function, attributes in zip(self.lr_lambdas, saved.pop("lr_lambdas"), strict=True):
            if attributes is not None:
                function.__dict__.update(attributes)
        self.__dict__.update(saved)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates of this epoch."""
        _warn_outside(self)
        return [
            base * function(self.last_epoch)
            for base, function in zip(self.base_lrs, self.lr_lambdas, strict=True)
        ]


def _saved_function(function: Any) -> dict[str, Any] | None:
    return None if isinstance(function, types.FunctionType) else dict(function.__dict__)


class MultiplicativeLR(LambdaLR):
    """The rate times a function of the epoch, every epoch.

    Example:
        >>> optimizer = torch.optim.SGD([torch.ones(1)], lr=1.0)
        >>> schedule = torch.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
        >>> optimizer.step()
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.5]
    """

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates of this epoch."""
        _warn_outside(self)
        if self._is_initial:
            return self._current()
        return [
            rate * function(self.last_epoch)
            for rate, function in zip(self._current(), self.lr_lambdas, strict=True)
        ]


class MultiStepLR(LRScheduler):
    """Multiplies the rate by `gamma` at every milestone.

    Example:
        >>> optimizer = torch.optim.SGD([torch.ones(1)], lr=1.0)
        >>> schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1], gamma=0.5)
        >>> optimizer.step()
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates of this epoch."""
        _warn_outside(self)
        if self.last_epoch not in self.milestones:
            return self._current()
        factor = self.gamma ** self.milestones[self.last_epoch]
        return [rate * factor for rate in self._current()]

    def _get_closed_form_lr(self) -> list[float | Tensor]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """The initial rate times `factor` for `total_iters` epochs.

    Example:
        >>> optimizer = torch.optim.SGD([torch.ones(1)], lr=1.0)
        >>> torch.optim.lr_scheduler.ConstantLR(optimizer, 0.5).get_last_lr()
        [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if factor > 1.0 or factor < 0:
            problem = f"Constant multiplicative factor expected to be between 0 and 1, got {factor}"
            raise failure(ValueError, "lr_scheduler", problem, "factor=0.5")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates of this epoch."""
        _warn_outside(self)
        if self.last_epoch == 0:
            return [rate * self.factor for rate in self._current()]
        if self.last_epoch != self.total_iters:
            return self._current()
        return [rate * (1.0 / self.factor) for rate in self._current()]

    def _get_closed_form_lr(self) -> list[float | Tensor]:
        factor = self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor)
        return [base * factor for base in self.base_lrs]


class LinearLR(LRScheduler):
    """From the initial rate times `start_factor` to that times `end_factor`, on a line.

    Example:
        >>> optimizer = torch.optim.SGD([torch.ones(1)], lr=1.0)
        >>> schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, total_iters=2)
        >>> optimizer.step()
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.75]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if start_factor > 1.0 or start_factor <= 0:
            problem = "Starting multiplicative factor expected to be greater than 0 and less or "
            problem += f"equal to 1, got {start_factor}"
            raise failure(ValueError, "lr_scheduler", problem, "start_factor=0.1")
        if end_factor > 1.0 or end_factor < 0:
            problem = "Ending multiplicative factor expected to be between 0 and 1, got "
            problem += f"{end_factor}"
            raise failure(ValueError, "lr_scheduler", problem, "end_factor=1.0")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates of this epoch."""
        _warn_outside(self)
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in self._current()]
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._current()
        slope = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * slope
        return [rate * (1.0 + slope / before) for rate in self._current()]

    def _get_closed_form_lr(self) -> list[float | Tensor]:
        share = min(self.total_iters, self.last_epoch) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * share
        return [base * factor for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """The initial rate times (1 - epoch / total_iters)**power.

    Example:
        >>> optimizer = torch.optim.SGD([torch.ones(1)], lr=1.0)
        >>> schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=2)
        >>> optimizer.step()
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        total_iters: int = 5,
        power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates of this epoch."""
        _warn_outside(self)
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._current()
        now, before = (
            1.0 - epoch / self.total_iters for epoch in (self.last_epoch, self.last_epoch - 1)
        )
        return [rate * (now / before) ** self.power for rate in self._current()]

    def _get_closed_form_lr(self) -> list[float | Tensor]:
        share = min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (1.0 - share) ** self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate to `eta_min` in `T_max` epochs (Loshchilov &
    Hutter 2017).
    """

    def __init__(
        self, optimizer: Optimizer, T_max: float, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates of this epoch, from those of the epoch before."""
        _warn_outside(self)
        if self._is_initial:
            return self._current()
        step = math.pi / self.T_max
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            return [
                rate + (base - self.eta_min) * (1 - math.cos(step)) / 2
                for rate, base in zip(self._current(), self.base_lrs, strict=True)
            ]
        ratio = (1 + math.cos(step * self.last_epoch)) / (
            1 + math.cos(step * (self.last_epoch - 1))
        )
        return [ratio * (rate - self.eta_min) + self.eta_min for rate in self._current()]

    def _get_closed_form_lr(self) -> list[float | Tensor]:
        wave = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * wave for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Multiplies the rate by `gamma` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates of this epoch."""
        _warn_outside(self)
        if self._is_initial:
            return self._current()
        return [rate * self.gamma for rate in self._current()]

    def _get_closed_form_lr(self) -> list[float | Tensor]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


# The rest of the schedules; they need the base class.
from flambeau.optim._schedules import (  # noqa: E402
    ChainedScheduler,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)

# Distinguishes names of PyTorch that are missing here from misspelt ones.
globals()["__getattr__"] = _missing.getter(__name__)
