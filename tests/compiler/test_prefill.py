"""What is installed with the package: kernels of the usual training steps."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import flambeau as torch
from flambeau.compiler.dry_run import dry_run
from flambeau.runtime import plan_cache_clear
from tools.workload import STEPS

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="dry runs fork")
def test_steps_of_the_usual_optimizers_are_filled() -> None:
    """Parameters of other sizes need no kernel beyond those of the training steps."""

    def step(make: Callable[[Any], Any]) -> None:
        parameters = [torch.zeros(shape, requires_grad=True) for shape in ((30, 7), (9,))]
        for parameter in parameters:
            parameter.grad = torch.zeros(parameter.shape)
        make(parameters).step()

    plan_cache_clear()  # a plan that another test left asks for no kernel
    fill = [lambda: STEPS["step: regression"](torch)]
    filled = {text for _, texts in dry_run(fill, _texts) for text in texts}
    plan_cache_clear()
    asked = dict(dry_run([partial(step, make) for make in OPTIMIZERS.values()], _texts))
    missing = {name: set(asked[n]) - filled for n, name in enumerate(OPTIMIZERS)}
    assert {name: texts for name, texts in missing.items() if texts} == {}
    assert all(asked.values())


def _texts(kernels: list[Any]) -> list[str]:
    return [kernel.text() for kernel in kernels]
