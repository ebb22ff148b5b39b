"""Optimizers, schedules and clipping beside PyTorch: numbers, and what options say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import flambeau

RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 0.05}),
    "nesterov": ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "dampened": ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "maximize": True}),
    "adam": ("Adam", {"lr": 0.01}),
    "amsgrad": ("Adam", {"lr": 0.01, "amsgrad": True, "weight_decay": 0.02}),
    "adamw": ("AdamW", {"lr": 0.01, "betas": (0.8, 0.95)}),
    "adagrad": ("Adagrad", {"lr": 0.05, "lr_decay": 0.1, "weight_decay": 0.01}),
}
OPTIONS: list[dict[str, Any]] = [
    {"differentiable": True},
    {"fused": True},
    {"foreach": True},
    {"fused": True, "foreach": True},
    {"fused": True, "differentiable": True},
    {"foreach": True, "differentiable": True},
    {"lr": 0.1, "tensor": True},
    {"lr": [0.1, 0.2], "tensor": True},
    {"lr": 0.1, "tensor": True, "foreach": True},
    {"capturable": True},
    {"lr": -1.0},
]


def _trained(module: Any, name: str, options: dict[str, Any]) -> list[list[float]]:
    """Parameters after 30 steps of a least squares fit, the schedule halving the rate twice."""
    x = module.arange(24.0).reshape(6, 4).sin()
    w = module.arange(12.0).reshape(4, 3).cos().requires_grad_()
    bias = module.zeros(3, requires_grad=True)
    optimizer = getattr(module.optim, name)([w, bias], **options)
    schedule = module.optim.lr_scheduler.StepLR(optimizer, 10, 0.5)
    for _ in range(30):
        optimizer.zero_grad()
        loss = ((x @ w + bias) ** 2).sum()
        loss.backward()
        module.nn.utils.clip_grad_norm_([w, bias], 2.0)
        optimizer.step()
        schedule.step()
    return [w.tolist(), bias.tolist(), [float(g["lr"]) for g in optimizer.param_groups]]


@pytest.mark.parametrize("name", RUNS)
def test_training(name: str) -> None:
    cls, options = RUNS[name]
    ours, theirs = _trained(flambeau, cls, options), _trained(torch, cls, options)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(torch.tensor(a), torch.tensor(b), rtol=2e-6, atol=2e-6)


def _outcome(module: Any, name: str, given: dict[str, Any]) -> tuple[str, str]:
    """Where an option is refused, and by what."""
    options = dict(given)
    if options.pop("tensor", False):
        options["lr"] = module.tensor(options["lr"])
    p = module.ones(2, requires_grad=True)
    try:
        optimizer = getattr(module.optim, name)([p], **options)
    except Exception as error:
        return "made", type(error).__name__
    p.grad = module.ones(2)
    try:
        optimizer.step()
    except Exception as error:
        return "step", type(error).__name__
    return "fine", str([round(v, 5) for v in p.tolist()])


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_options(name: str) -> None:
    for options in OPTIONS:
        if "capturable" in options and not name.startswith("Adam"):
            continue
        assert _outcome(flambeau, name, options) == _outcome(torch, name, options), options


def test_state_dicts_of_schedules() -> None:
    for name, arguments in (
        ("StepLR", (2,)), ("ExponentialLR", (0.5,)), ("CosineAnnealingLR", (5,)),
        ("LambdaLR", (lambda epoch: 0.5,)),
    ):  # fmt: skip
        states = []
        for module in (flambeau, torch):
            p = module.ones(2, requires_grad=True)
            optimizer = module.optim.SGD([p], lr=0.1)
            schedule = getattr(module.optim.lr_scheduler, name)(optimizer, *arguments)
            optimizer.step()
            schedule.step()
            states.append(schedule.state_dict())
        assert states[0] == states[1]


@pytest.mark.parametrize("call", ["cat", "stack", "hstack", "vstack", "dstack", "column_stack"])
def test_long_lists(call: str) -> None:
    for shape in ((), (3,), (2, 3), (2, 3, 4)):
        if call == "cat" and not shape:
            continue
        results = []
        for module in (flambeau, torch):
            xs = [module.full(shape, float(i)).requires_grad_() for i in range(11)]
            joined = getattr(module, call)(xs)
            parts = joined.unbind()
            value = (joined * module.arange(joined.numel()).reshape(joined.shape)).sum()
            grads = module.autograd.grad(value, xs)
            results.append([joined.stride(), joined.tolist(), len(parts)])
            results[-1] += [g.tolist() for g in grads]
        assert results[0] == results[1]
