"""Learning-rate schedules: they set `group["lr"]`, which optimizers read as a run-time number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from flambeau import Tensor
from flambeau.optim.optimizer import Optimizer
from flambeau.runtime import missing as _missing


class LRScheduler:
    """Base class: counts epochs and writes `get_lr()` into the groups.

    A subclass may define `_get_closed_form_lr()`, which `step(epoch)` asks instead.

    Args:
        optimizer: whose groups are scheduled.
        last_epoch: -1 to start; else the epoch to continue from (groups need "initial_lr").

    Raises:
        TypeError: `optimizer` is none.
        KeyError: continuing without "initial_lr".
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"[lr_scheduler] {type(optimizer).__name__} is not an Optimizer")
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
        self._step_count = 0
        self._is_initial = True
        self._get_lr_called_within_step = False
        self._last_lr: list[float] = []
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> list[float]:
        """The learning rates of epoch `last_epoch`, one per group."""
        raise NotImplementedError("[lr_scheduler] a schedule defines get_lr()")

    def get_last_lr(self) -> list[float]:
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
        self._step_count += 1
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed_form = getattr(self, "_get_closed_form_lr", None)
        self._get_lr_called_within_step = True
        try:
            rates = closed_form() if epoch is not None and closed_form else self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            _set_rate(group, rate)
        self._last_lr = [_copied(group["lr"]) for group in self.optimizer.param_groups]

    def _current(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]


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

    def get_lr(self) -> list[float]:
        """The learning rates of this epoch."""
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return self._current()
        return [rate * self.gamma for rate in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
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
        plain = type(lambda: None)
        state["lr_lambdas"] = [
            None if isinstance(f, plain) else dict(f.__dict__) for f in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a `state_dict()`; functions stay."""
        saved = dict(state_dict)
        for function, attributes in zip(self.lr_lambdas, saved.pop("lr_lambdas"), strict=True):
            if attributes is not None:
                function.__dict__.update(attributes)
        self.__dict__.update(saved)

    def get_lr(self) -> list[float]:
        """The learning rates of this epoch."""
        return [
            base * function(self.last_epoch)
            for base, function in zip(self.base_lrs, self.lr_lambdas, strict=True)
        ]


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

    def get_lr(self) -> list[float]:
        """The learning rates of this epoch, from those of the epoch before."""
        if self.last_epoch == 0:
            return self._current()
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
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

    def _get_closed_form_lr(self) -> list[float]:
        wave = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * wave for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Multiplies the rate by `gamma` every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The learning rates of this epoch."""
        if self.last_epoch == 0:
            return self._current()
        return [rate * self.gamma for rate in self._current()]

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


# A name of PyTorch that is not here yet is told from a misspelt one.
globals()["__getattr__"] = _missing.getter(__name__)
