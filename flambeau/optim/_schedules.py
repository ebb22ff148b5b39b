"""Learning-rate schedules that go up and down, start anew, follow a metric, or consist of others.

Public under `flambeau.optim.lr_scheduler`.
"""

from __future__ import annotations

import math
import types
import warnings
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from flambeau import Tensor
from flambeau.ir.failure import failure
from flambeau.optim.lr_scheduler import (
    EPOCH_DEPRECATION_WARNING,
    LRScheduler,
    _check_optimizer,
    _copied,
    _per_group,
    _saved_function,
    _set_rate,
    _warn_outside,
)
from flambeau.optim.optimizer import Optimizer


def _rates(optimizer: Optimizer) -> list[Any]:
    return [_copied(group["lr"]) for group in optimizer.param_groups]


class _Composed(LRScheduler):
    """A schedule made of others: their states are part of its own."""

    _schedulers: list[LRScheduler]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer; the parts' state dicts under "_schedulers"."""
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
        state["_schedulers"] = [schedule.state_dict() for schedule in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a `state_dict()`."""
        saved = dict(state_dict)
        for schedule, part in zip(self._schedulers, saved.pop("_schedulers"), strict=True):
            schedule.load_state_dict(part)
        self.__dict__.update(saved)

    def _check_parts(self, parts: Sequence[Any], optimizer: Optimizer) -> None:
        name = type(self).__name__
        for index, part in enumerate(parts):
            if not hasattr(part, "optimizer"):
                problem = f"{name} at index {index} should have `optimizer` as its attribute."
                raise failure(TypeError, name, problem, "schedules of one optimizer")
            if isinstance(part, ReduceLROnPlateau):
                problem = f"{name} does not support `ReduceLROnPlateau` scheduler as it requires "
                problem += "additional kwargs to be specified when calling `step`, but got one at "
                problem += f"index {index} in the given schedulers sequence."
                raise failure(ValueError, name, problem, "step it by itself")
            if part.optimizer is not optimizer:
                problem = f"{name} expects all schedulers to belong to the same optimizer, but "
                problem += f"got scheduler {type(part).__name__} at index {index} with another"
                raise failure(ValueError, name, problem, "one optimizer")


class SequentialLR(_Composed):
    """One schedule after the other: the next begins at each milestone.

    Args:
        optimizer: whose groups are scheduled.
        schedulers: schedules of this optimizer.
        milestones: the epochs at which the second, third ... begins.
        last_epoch: -1 to start.

    Raises:
        ValueError: no schedule, one for another optimizer, or another number of milestones.

    Example:
        >>> lr_scheduler = torch.optim.lr_scheduler
        >>> optimizer = torch.optim.SGD([torch.ones(1)], lr=1.0)
        >>> warm = lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
        >>> decay = lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> schedule = lr_scheduler.SequentialLR(optimizer, [warm, decay], milestones=[2])
        >>> rates = []
        >>> for _ in range(4):
        ...     rates.append(schedule.get_last_lr()[0])
        ...     optimizer.step()
        ...     schedule.step()
        >>> rates
        [0.5, 0.5, 1.0, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[LRScheduler],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        if len(schedulers) < 1:
            problem = "SequentialLR expects at least one scheduler, but got no scheduler."
            raise failure(ValueError, "SequentialLR", problem, "[StepLR(optimizer, 1)]")
        self._check_parts(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            problem = "Sequential Schedulers expects number of schedulers provided to be one more "
            problem += f"than the number of milestone points, but got {len(schedulers)} and "
            problem += f"{len(milestones)}"
            raise failure(ValueError, "SequentialLR", problem, "one milestone less than schedules")
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            _set_rate(group, group["initial_lr"])
        self.recursive_undo()
        schedulers[0]._initial_step()
        self._last_lr = schedulers[0].get_last_lr()

    def recursive_undo(self, sched: Any = None) -> None:
        """Takes back the epoch that each part counted when it was made."""
        schedule = self if sched is None else sched
        if hasattr(schedule, "_schedulers"):
            for part in schedule._schedulers:
                self.recursive_undo(part)
        elif hasattr(schedule, "last_epoch"):
            schedule.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]
        """Goes to the next epoch."""
        self.last_epoch += 1
        index = bisect_right(self._milestones, self.last_epoch)
        schedule = self._schedulers[index]
        if index > 0 and self._milestones[index - 1] == self.last_epoch:
            schedule._update_lr(0)
        else:
            schedule.step()
        self._last_lr = schedule.get_last_lr()


class ChainedScheduler(_Composed):
    """Several schedules at once: each multiplies what those before have set.

    Args:
        schedulers: schedules of one optimizer.
        optimizer: the optimizer; that of the first schedule if None.

    Raises:
        ValueError: no schedule, or one for another optimizer.

    Example:
        >>> lr_scheduler = torch.optim.lr_scheduler
        >>> optimizer = torch.optim.SGD([torch.ones(1)], lr=1.0)
        >>> schedule = lr_scheduler.ChainedScheduler(
        ...     [lr_scheduler.ExponentialLR(optimizer, 0.5) for _ in range(2)])
        >>> optimizer.step()
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.25]
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        if len(schedulers) < 1:
            problem = "ChainedScheduler expects at least one scheduler to be chained, but got no "
            problem += "scheduler."
            raise failure(ValueError, "ChainedScheduler", problem, "[StepLR(optimizer, 1)]")
        optimizer = optimizer or schedulers[0].optimizer
        self._check_parts(schedulers, optimizer)
        self._schedulers = list(schedulers)
        self.optimizer = optimizer
        self._last_lr = _rates(optimizer)

    def step(self) -> None:  # type: ignore[override]
        """Steps every part."""
        for schedule in self._schedulers:
            schedule.step()
        self._last_lr = _rates(self.optimizer)


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rate by `factor` when a metric has not improved for `patience` epochs.

    Args:
        optimizer: whose groups are scheduled.
        mode: "min" or "max", what is better.
        factor: below 1.
        patience: epochs without improvement that are accepted.
        threshold: what counts as improvement, relative ("rel") or absolute ("abs").
        threshold_mode: "rel" or "abs".
        cooldown: epochs after a change in which nothing is counted.
        min_lr: lower bound, one for all groups or one for each.
        eps: least change that is made.

    Raises:
        ValueError: `factor` is 1 or more, or a mode is unknown.

    Example:
        >>> optimizer = torch.optim.SGD([torch.ones(1)], lr=1.0)
        >>> schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        >>> for loss in (3.0, 2.0, 2.5):
        ...     schedule.step(loss)
        >>> schedule.get_last_lr()
        [0.1]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            problem = f"Factor should be < 1.0, got {factor}"
            raise failure(ValueError, "ReduceLROnPlateau", problem, "factor=0.1")
        self.factor = factor
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        if isinstance(min_lr, (list, tuple)):
            if len(min_lr) != len(optimizer.param_groups):
                problem = f"expected {len(optimizer.param_groups)} min_lrs, got {len(min_lr)}"
                raise failure(ValueError, "ReduceLROnPlateau", problem, "one for each group")
            self.default_min_lr = None
            self.min_lrs = list(min_lr)
        else:
            self.default_min_lr = min_lr
            self.min_lrs = [min_lr] * len(optimizer.param_groups)
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = _rates(optimizer)
        self._init_is_better(mode, threshold, threshold_mode)
        self._reset()

    def _init_is_better(self, mode: str, threshold: float, threshold_mode: str) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"[ReduceLROnPlateau] mode {mode} is unknown!\nhint: 'min' or 'max'")
        if threshold_mode not in ("rel", "abs"):
            problem = f"threshold mode {threshold_mode} is unknown!"
            raise failure(ValueError, "ReduceLROnPlateau", problem, "'rel' or 'abs'")
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode

    def _reset(self) -> None:
        """Forgets the metrics."""
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    @property
    def in_cooldown(self) -> bool:
        """Whether the last change is less than `cooldown` epochs ago."""
        return self.cooldown_counter > 0

    def _is_better(self, value: float, best: float) -> bool:
        sign = -1.0 if self.mode == "min" else 1.0
        if self.threshold_mode == "rel":
            bound = best * (1.0 + sign * self.threshold)
        else:
            bound = best + sign * self.threshold
        return value < bound if self.mode == "min" else value > bound

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Takes the metric of an epoch, and reduces the rates if it is due."""
        value = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self.last_epoch = epoch
        if self._is_better(value, self.best):
            self.best = value
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr(epoch)
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = _rates(self.optimizer)

    def _reduce_lr(self, epoch: int) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise RuntimeError(
                    "[ReduceLROnPlateau] The number of param groups in the `optimizer` "
                    f"({len(groups)}) differs from when `ReduceLROnPlateau` was initialized "
                    f"({len(self.min_lrs)}), usually due to a new param group being added to the "
                    "optimizer.\nhint: set `min_lrs`, or give one min_lr for all"
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs, strict=True):
            before = float(group["lr"])
            after = max(before * self.factor, least)
            if before - after > self.eps:
                _set_rate(group, after)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a `state_dict()`."""
        self.__dict__.update(state_dict)
        self._init_is_better(self.mode, self.threshold, self.threshold_mode)


def _momentum_key(optimizer: Optimizer) -> bool:
    """Whether the momentum of an optimizer is its first beta."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        problem = "optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
        raise failure(ValueError, "lr_scheduler", problem, "cycle_momentum=False")
    return "betas" in optimizer.defaults


def _set_momentum(group: dict[str, Any], value: float, use_beta1: bool) -> None:
    if use_beta1:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class CyclicLR(LRScheduler):
    """The rate goes up and down between two bounds (Smith 2017).

    Args:
        optimizer: whose groups are scheduled.
        base_lr, max_lr: bounds, one for all groups or one for each.
        step_size_up, step_size_down: steps of the two halves of a cycle.
        mode: "triangular", "triangular2" (the height is halved every cycle), or "exp_range" (times
            gamma**step).
        gamma: see "exp_range".
        scale_fn: scales the height instead of a mode.
        scale_mode: whether `scale_fn` takes the number of the "cycle" or of "iterations".
        cycle_momentum: the momentum goes the other way.
        base_momentum, max_momentum: its bounds.
        last_epoch: -1 to start.

    Raises:
        ValueError: an unknown mode, wrong numbers of bounds, or an optimizer without momentum.

    Example:
        >>> optimizer = torch.optim.SGD([torch.ones(1)], lr=1.0, momentum=0.9)
        >>> schedule = torch.optim.lr_scheduler.CyclicLR(optimizer, 1.0, 2.0, step_size_up=2)
        >>> optimizer.step()
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [1.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = _per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, base_lrs, strict=True):
                _set_rate(group, rate)
        self.max_lrs = _per_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        down = up if step_size_down is None else float(step_size_down)
        self.total_size = up + down
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            problem = f"mode is invalid and scale_fn is None: {mode}"
            raise failure(ValueError, "CyclicLR", problem, "'triangular'")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._set_momentum_bounds(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _set_momentum_bounds(self, base: Any, top: Any, last_epoch: int) -> None:
        optimizer = self.optimizer
        self.use_beta1 = _momentum_key(optimizer)
        self.base_momentums = _per_group("base_momentum", optimizer, base)
        self.max_momentums = _per_group("max_momentum", optimizer, top)
        if last_epoch != -1:
            return
        bounds = zip(self.max_momentums, self.base_momentums, strict=True)
        for group, (high, low) in zip(optimizer.param_groups, bounds, strict=True):
            _set_momentum(group, high, self.use_beta1)
            group["max_momentum"] = high
            group["base_momentum"] = low

    def scale_fn(self, x: float) -> float:
        """The factor of the cycle's height."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular":
            return 1.0
        return 1 / (2.0 ** (x - 1)) if self.mode == "triangular2" else self.gamma**x

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates of this step; sets the momentum too."""
        _warn_outside(self)
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        up = x <= self.step_ratio
        height = x / self.step_ratio if up else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            bounds = zip(self.base_momentums, self.max_momentums, strict=True)
            for group, (low, high) in zip(self.optimizer.param_groups, bounds, strict=True):
                _set_momentum(group, high - (high - low) * height * scale, self.use_beta1)
        return [
            base + (top - base) * height * scale
            for base, top in zip(self.base_lrs, self.max_lrs, strict=True)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer and a plain `scale_fn`."""
        state = super().state_dict()
        function = state.pop("_scale_fn_custom")
        state["_scale_fn_custom"] = None
        if function is not None and not isinstance(function, types.FunctionType):
            state["_scale_fn_custom"] = _saved_function(function)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a `state_dict()`; a plain `scale_fn` stays."""
        saved = dict(state_dict)
        attributes = saved.pop("_scale_fn_custom")
        if attributes is not None:
            self._scale_fn_custom.__dict__.update(attributes)
        super().load_state_dict(saved)


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosines from the initial rate to `eta_min` that start anew (Loshchilov & Hutter 2017).

    Args:
        optimizer: whose groups are scheduled.
        T_0: epochs of the first half cosine.
        T_mult: factor of each next one's length.
        eta_min: the least rate.
        last_epoch: -1 to start.

    Raises:
        ValueError: T_0 or T_mult is no integer above 0.

    Example:
        >>> optimizer = torch.optim.SGD([torch.ones(1)], lr=1.0)
        >>> schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2)
        >>> rates = []
        >>> for _ in range(4):
        ...     rates.append(round(schedule.get_last_lr()[0], 3))
        ...     optimizer.step()
        ...     schedule.step()
        >>> rates
        [1.0, 0.5, 1.0, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            problem = f"Expected positive integer T_0, but got {T_0}"
            raise failure(ValueError, "CosineAnnealingWarmRestarts", problem, "a number of epochs")
        if T_mult < 1 or not isinstance(T_mult, int):
            problem = f"Expected integer T_mult >= 1, but got {T_mult}"
            raise failure(ValueError, "CosineAnnealingWarmRestarts", problem, "T_mult=1")
        if not isinstance(eta_min, (float, int)):
            problem = f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}"
            raise failure(ValueError, "CosineAnnealingWarmRestarts", problem, "eta_min=0.0")
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates of this epoch."""
        _warn_outside(self)
        wave = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * wave for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:  # type: ignore[override]
        """Goes to the next epoch (or to `epoch`, which may be a fraction)."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            problem = f"Expected non-negative epoch, but got {epoch}"
            raise failure(ValueError, "CosineAnnealingWarmRestarts", problem, "step()")
        else:
            self._place(epoch)
        self._update_lr(math.floor(epoch))

    def _place(self, epoch: float) -> None:
        """Sets the position within the half cosine that holds an epoch."""
        self.T_i, self.T_cur = self.T_0, epoch
        if epoch < self.T_0:
            return
        if self.T_mult == 1:
            self.T_cur = epoch % self.T_0
            return
        restarts = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
        lengths = (self.T_mult**restarts - 1) / (self.T_mult - 1)
        self.T_cur = epoch - self.T_0 * lengths
        self.T_i = self.T_0 * self.T_mult**restarts


class OneCycleLR(LRScheduler):
    """One cycle: up to the greatest rate, then down to far below the first (Smith & Topin 2019).

    Args:
        optimizer: whose groups are scheduled.
        max_lr: the greatest rate, one for all groups or one for each.
        total_steps: steps of the cycle; or `epochs` times `steps_per_epoch`.
        pct_start: share of the steps that go up.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: the momentum goes the other way.
        base_momentum, max_momentum: its bounds.
        div_factor: the first rate is max_lr / div_factor.
        final_div_factor: the last rate is the first / final_div_factor.
        three_phase: down to the first rate by a mirrored phase, and then to the last.
        last_epoch: -1 to start.

    Raises:
        ValueError: wrong numbers of steps, an unknown strategy, an optimizer without momentum; or
            more steps are taken than there are.

    Example:
        >>> optimizer = torch.optim.SGD([torch.ones(1)], lr=1.0, momentum=0.9)
        >>> schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2.0, total_steps=10)
        >>> for _ in range(2):
        ...     optimizer.step()
        ...     schedule.step()
        >>> schedule.get_last_lr()
        [2.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        _check_optimizer(optimizer)
        self.optimizer = optimizer
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            problem = f"Expected float between 0 and 1 pct_start, but got {pct_start}"
            raise failure(ValueError, "OneCycleLR", problem, "pct_start=0.3")
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        if anneal_strategy not in ("cos", "linear"):
            problem = "anneal_strategy must be one of 'cos' or 'linear', instead got "
            problem += f"{anneal_strategy}"
            raise failure(ValueError, "OneCycleLR", problem, "'cos'")
        self._anneal_func_type = anneal_strategy
        rates = _per_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["initial_lr"] = rate / div_factor
                group["max_lr"] = rate
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _momentum_key(optimizer)
            if last_epoch == -1:
                highs = _per_group("max_momentum", optimizer, max_momentum)
                lows = _per_group("base_momentum", optimizer, base_momentum)
                bounds = zip(highs, lows, strict=True)
                for group, (high, low) in zip(optimizer.param_groups, bounds, strict=True):
                    _set_momentum(group, high, self.use_beta1)
                    group["max_momentum"] = high
                    group["base_momentum"] = low
        super().__init__(optimizer, last_epoch)

    def _between(self, start: Any, end: Any, share: float) -> Any:
        if self._anneal_func_type == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates of this step; sets the momentum too."""
        _warn_outside(self)
        number = self.last_epoch
        if number > self.total_steps:
            problem = f"Tried to step {number} times. The specified number of total steps is "
            problem += f"{self.total_steps}"
            raise failure(ValueError, "OneCycleLR", problem, f"total_steps={number}")
        start = 0.0
        for phase in self._schedule_phases:
            if number <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            start = phase["end_step"]
        share = (number - start) / (phase["end_step"] - start)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                bounds = group[phase["start_momentum"]], group[phase["end_momentum"]]
                _set_momentum(group, self._between(*bounds, share), self.use_beta1)
        return rates


def _total_steps(total: Any, epochs: Any, steps_per_epoch: Any) -> int:
    if total is None and (epochs is None or steps_per_epoch is None):
        problem = "You must define either total_steps OR (epochs AND steps_per_epoch)"
        raise failure(ValueError, "OneCycleLR", problem, "total_steps=100")
    numbers = {"total_steps": total}
    if total is None:
        numbers = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    product = 1
    for name, value in numbers.items():
        if not isinstance(value, int) or value <= 0:
            problem = f"Expected positive integer {name}, but got {value}"
            raise failure(ValueError, "OneCycleLR", problem, f"{name}=100")
        product *= value
    return product


def _phases(total: int, share: float, three_phase: bool) -> list[dict[str, Any]]:
    """The phases: last step, rates and momenta at both ends, by their keys in the groups."""
    up, down = ("max_momentum", "base_momentum"), ("base_momentum", "max_momentum")
    rows: list[tuple[float, str, str, tuple[str, str]]] = [
        (float(share * total) - 1, "initial_lr", "max_lr", up)
    ]
    if three_phase:
        rows.append((float(2 * share * total) - 2, "max_lr", "initial_lr", down))
        rows.append((total - 1, "initial_lr", "min_lr", ("max_momentum", "max_momentum")))
    else:
        rows.append((total - 1, "max_lr", "min_lr", down))
    return [
        {
            "end_step": end, "start_lr": first, "end_lr": last,
            "start_momentum": momenta[0], "end_momentum": momenta[1],
        }
        for end, first, last, momenta in rows
    ]  # fmt: skip


_PUBLIC = (
    ChainedScheduler, CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR, ReduceLROnPlateau,
    SequentialLR,
)  # fmt: skip
for _schedule in _PUBLIC:
    _schedule.__module__ = "flambeau.optim.lr_scheduler"  # where pickles look for them
