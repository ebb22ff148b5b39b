"""Averages of weights: stochastic weight averaging (Izmailov et al. 2018) and exponential ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, TypeAlias

import flambeau
from flambeau import Tensor
from flambeau.autograd import no_grad
from flambeau.ir.failure import failure
from flambeau.nn import Module
from flambeau.nn.modules.batchnorm import _BatchNorm
from flambeau.optim.lr_scheduler import LRScheduler, _per_group, _warn_outside
from flambeau.optim.optimizer import Optimizer

__all__ = [
    "AveragedModel", "SWALR", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn",
    "get_swa_multi_avg_fn", "update_bn",
]  # fmt: skip

PARAM_LIST: TypeAlias = tuple[Tensor, ...] | list[Tensor]
AvgFn: TypeAlias = Callable[[Tensor, Tensor, Any], Tensor]
MultiAvgFn: TypeAlias = Callable[[PARAM_LIST, PARAM_LIST, Any], None]


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        problem = f"Invalid decay value {decay} provided. Please provide a value in [0,1] range."
        raise failure(ValueError, "swa_utils", problem, "decay=0.999")


def _move(averages: PARAM_LIST, values: PARAM_LIST, share: float) -> None:
    """Interpolates from averages to values, in place; integers are truncated."""
    floats = [k for k, a in enumerate(averages) if a.is_floating_point() or a.is_complex()]
    if floats:
        flambeau._foreach_lerp_([averages[k] for k in floats], [values[k] for k in floats], share)
    for k in set(range(len(averages))).difference(floats):
        averages[k].copy_(averages[k] * (1 - share) + values[k] * share)


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAvgFn:
    """A function that updates lists of exponential averages in place.

    Args:
        decay: weight of the average before, from 0 to 1.

    Raises:
        ValueError: `decay` is out of range.

    Example:
        >>> average = [torch.zeros(2)]
        >>> torch.optim.swa_utils.get_ema_multi_avg_fn(0.75)(average, [torch.ones(2)], None)
        >>> average
        [tensor([0.2500, 0.2500])]
    """
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param_list: PARAM_LIST, current_param_list: PARAM_LIST, _: Any) -> None:
        _move(ema_param_list, current_param_list, 1 - decay)

    return ema_update


def get_swa_multi_avg_fn() -> MultiAvgFn:
    """A function that updates lists of equally weighted averages in place.

    Example:
        >>> average = [torch.zeros(2)]
        >>> torch.optim.swa_utils.get_swa_multi_avg_fn()(average, [torch.ones(2)], 3)
        >>> average
        [tensor([0.2500, 0.2500])]
    """

    @no_grad()
    def swa_update(
        averaged_param_list: PARAM_LIST, current_param_list: PARAM_LIST, num_averaged: Any
    ) -> None:
        _move(averaged_param_list, current_param_list, 1 / (int(num_averaged) + 1))

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> AvgFn:
    """A function that returns a tensor's exponential average.

    Args:
        decay: weight of the average before, from 0 to 1.

    Raises:
        ValueError: `decay` is out of range.

    Example:
        >>> torch.optim.swa_utils.get_ema_avg_fn(0.75)(torch.ones(1), torch.zeros(1), None)
        tensor([0.7500])
    """
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> AvgFn:
    """A function that returns a tensor's equally weighted average.

    Example:
        >>> torch.optim.swa_utils.get_swa_avg_fn()(torch.ones(1), torch.zeros(1), 3)
        tensor([0.7500])
    """

    @no_grad()
    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of the model's.

    Args:
        model: the model; it is copied.
        device: where the averages are.
        avg_fn: average of a tensor from (average, value, number of averaged models); equal
            weights if None.
        multi_avg_fn: the same for lists, in place.
        use_buffers: buffers are averaged too; else they are copied.

    Raises:
        AssertionError: both functions are given.

    Example:
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> average = torch.optim.swa_utils.AveragedModel(model)
        >>> for value in (1.0, 3.0):
        ...     _ = torch.nn.init.constant_(model.weight, value)
        ...     average.update_parameters(model)
        >>> average.module.weight.item(), average(torch.ones(1)).item()
        (2.0, 2.0)
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: AvgFn | None = None,
        multi_avg_fn: MultiAvgFn | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            problem = "Only one of avg_fn and multi_avg_fn should be provided"
            raise failure(AssertionError, "swa_utils", problem, "leave out one")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", flambeau.tensor(0, dtype=flambeau.long, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The averaged model's result."""
        return self.module(*args, **kwargs)

    def _averaged(self, model: Module) -> list[Tensor]:
        buffers = model.buffers() if self.use_buffers else ()
        return [t.detach() for t in itertools.chain(model.parameters(), buffers)]

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Takes the model's parameters into the averages.

        Args:
            model: of the same structure as the one that was copied.
        """
        averages = self._averaged(self.module)
        values = [v.to(a.device) for v, a in zip(self._averaged(model), averages, strict=True)]
        if self.n_averaged == 0:
            for average, value in zip(averages, values, strict=True):
                average.copy_(value)
        elif self.avg_fn is not None:
            count = self.n_averaged
            for average, value in zip(averages, values, strict=True):
                average.copy_(self.avg_fn(average, value, count.to(average.device)))
        else:
            update = self.multi_avg_fn or get_swa_multi_avg_fn()
            for dtype in dict.fromkeys(a.dtype for a in averages):
                own = [k for k, a in enumerate(averages) if a.dtype == dtype]
                update([averages[k] for k in own], [values[k] for k in own], self.n_averaged)
        if not self.use_buffers:
            for mine, other in zip(self.module.buffers(), model.buffers(), strict=True):
                mine.detach().copy_(other.detach().to(mine.device))
        self.n_averaged += 1


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Computes the running statistics of batch normalization anew, by one pass over data.

    Args:
        loader: batches; of a list or tuple the first entry.
        model: the model, in training mode for the pass.
        device: where batches are moved first.

    Example:
        >>> model = torch.nn.BatchNorm1d(1)
        >>> torch.optim.swa_utils.update_bn([torch.tensor([[1.0], [3.0]])], model)
        >>> model.running_mean
        tensor([2.])
    """
    momenta: dict[_BatchNorm, float | None] = {}
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.reset_running_stats()
            momenta[module] = module.momentum
    if not momenta:
        return
    training = model.training
    model.train()
    for module in momenta:
        module.momentum = None  # the average of all batches
    for batch in loader:
        batch = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(batch if device is None else batch.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(training)


class SWALR(LRScheduler):
    """Anneals the rate to a constant one, for weight averaging.

    Args:
        optimizer: whose groups are scheduled.
        swa_lr: the constant rate, one for all groups or one for each.
        anneal_epochs: epochs until it is reached.
        anneal_strategy: "cos" or "linear".
        last_epoch: -1 to start.

    Raises:
        ValueError: an unknown strategy, or epochs below 0.

    Example:
        >>> optimizer = torch.optim.SGD([torch.ones(1)], lr=1.0)
        >>> schedule = torch.optim.swa_utils.SWALR(
        ...     optimizer, 0.5, anneal_epochs=2, anneal_strategy="linear")
        >>> optimizer.step()
        >>> schedule.step()
        >>> schedule.get_last_lr()
        [0.75]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        rates = _per_group("swa_lr", optimizer, swa_lr)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            problem = "anneal_strategy must be one of 'cos' or 'linear', instead got "
            problem += f"{anneal_strategy}"
            raise failure(ValueError, "swa_utils", problem, "'cos'")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            problem = f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}"
            raise failure(ValueError, "swa_utils", problem, "a number of epochs")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        time = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return time if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * time)) / 2

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates of this epoch, from those of the epoch before."""
        _warn_outside(self)
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            rate, target = group["lr"], group["swa_lr"]
            start = rate if before == 1 else (rate - target * before) / (1 - before)
            rates.append(target * now + start * (1 - now))
        return rates
