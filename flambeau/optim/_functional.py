"""`torch.optim._functional`: steps of optimizers as functions."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.optim.adadelta import adadelta
from flambeau.optim.adagrad import adagrad
from flambeau.optim.adam import adam
from flambeau.optim.adamax import adamax
from flambeau.optim.adamw import adamw
from flambeau.optim.asgd import asgd
from flambeau.optim.nadam import nadam
from flambeau.optim.radam import radam
from flambeau.optim.rmsprop import rmsprop
from flambeau.optim.rprop import rprop
from flambeau.optim.sgd import sgd
from flambeau.optim.sparse_adam import move

__all__ = [
    "adadelta", "adagrad", "adam", "adamax", "adamw", "asgd", "nadam", "radam", "rmsprop", "rprop",
    "sgd", "sparse_adam",
]  # fmt: skip


def sparse_adam(
    params: list[Tensor], grads: list[Tensor], exp_avgs: list[Tensor], exp_avg_sqs: list[Tensor],
    state_steps: list[int], *, eps: float, beta1: float, beta2: float, lr: float, maximize: bool,
) -> None:  # fmt: skip
    """A step of `SparseAdam`.

    Args:
        params, grads: parameters and their sparse gradients.
        exp_avgs, exp_avg_sqs: moments, which are updated.
        state_steps: numbers of this step, from 1.
        eps, beta1, beta2, lr, maximize: as of `SparseAdam`.
    """
    group: dict[str, Any] = {"betas": (beta1, beta2), "eps": eps, "lr": lr}
    for parameter, grad, first, second, number in zip(
        params, grads, exp_avgs, exp_avg_sqs, state_steps, strict=True
    ):
        state = {"exp_avg": first, "exp_avg_sq": second}
        with flambeau.no_grad():
            move(float(number), parameter, (-grad if maximize else grad).coalesce(), state, group)
