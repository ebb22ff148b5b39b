"""Schedules and weight averages beside PyTorch: rates, state dicts, warnings, refusals."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import flambeau

Make = Callable[[Any, Any], Any]

SCHEDULES: dict[str, Make] = {
    "step": lambda m, o: m.StepLR(o, 7, 0.5),
    "lambda": lambda m, o: m.LambdaLR(o, lambda e: 0.9**e),
    "multiplicative": lambda m, o: m.MultiplicativeLR(o, lambda e: 0.95),
    "multi step": lambda m, o: m.MultiStepLR(o, [3, 20, 20, 9], 0.5),
    "constant": lambda m, o: m.ConstantLR(o, 0.25, 9),
    "linear": lambda m, o: m.LinearLR(o, 0.1, 0.8, 12),
    "exponential": lambda m, o: m.ExponentialLR(o, 0.9),
    "polynomial": lambda m, o: m.PolynomialLR(o, 30, 2.0),
    "cosine": lambda m, o: m.CosineAnnealingLR(o, 8, 0.01),
    "restarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 4, 2, 0.01),
    "triangular": lambda m, o: m.CyclicLR(o, 0.01, 0.1, 4, 6),
    "triangular2": lambda m, o: m.CyclicLR(o, 0.01, 0.1, 4, mode="triangular2"),
    "range": lambda m, o: m.CyclicLR(o, 0.01, 0.1, 4, mode="exp_range", gamma=0.9),
    "scaled": lambda m, o: m.CyclicLR(o, 0.01, 0.1, 4, scale_fn=lambda x: 1 / (x + 1)),
    "still": lambda m, o: m.CyclicLR(o, 0.01, 0.1, 4, cycle_momentum=False),
    "one cycle": lambda m, o: m.OneCycleLR(o, 0.5, total_steps=60),
    "three phases": lambda m, o: m.OneCycleLR(
        o, 0.5, epochs=6, steps_per_epoch=10, three_phase=True, anneal_strategy="linear"
    ),
    "sequence": lambda m, o: m.SequentialLR(
        o, [m.ConstantLR(o, 0.1, 5), m.LinearLR(o, 0.5), m.ExponentialLR(o, 0.9)], [5, 15]
    ),
    "restarts later": lambda m, o: m.SequentialLR(
        o, [m.LinearLR(o, 0.1, total_iters=5), m.CosineAnnealingWarmRestarts(o, 6)], [5]
    ),
    "chain": lambda m, o: m.ChainedScheduler([m.ConstantLR(o, 0.1, 5), m.ExponentialLR(o, 0.9)]),
    "nested": lambda m, o: m.ChainedScheduler(
        [m.SequentialLR(o, [m.ConstantLR(o, 0.1, 5), m.StepLR(o, 3)], [5]), m.ExponentialLR(o, 0.9)]
    ),
}  # fmt: skip


def _optimizer(module: Any, lr: Any = 0.1, name: str = "SGD", **options: Any) -> Any:
    parameters = [module.ones(1, requires_grad=True) for _ in range(2)]
    if name == "SGD":
        options.setdefault("momentum", 0.9)
    groups = [{"params": [parameters[0]]}, {"params": [parameters[1]], "lr": 0.05}]
    return getattr(module.optim, name)(groups, lr=lr, **options)


def _run(module: Any, make: Make, epochs: int, name: str = "SGD", lr: Any = 0.1) -> Any:
    optimizer = _optimizer(module, lr, name)
    schedule = make(module.optim.lr_scheduler, optimizer)
    rows = []
    for _ in range(epochs):
        group = optimizer.param_groups
        rows.append([float(g["lr"]) for g in group] + [g.get("momentum", 0.0) for g in group])
        optimizer.step()
        schedule.step()
    return rows, schedule, optimizer


def _equal(ours: Any, theirs: Any) -> bool:
    """Equal up to rounding, containers and all."""
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_equal(ours[k], theirs[k]) for k in theirs)
    if isinstance(theirs, list | tuple):
        return len(ours) == len(theirs) and all(map(_equal, ours, theirs))
    if isinstance(theirs, float):
        return ours == pytest.approx(theirs, rel=1e-12, abs=1e-15)
    return bool(ours == theirs)


@pytest.mark.parametrize("name", SCHEDULES)
def test_fifty_epochs(name: str) -> None:
    runs = [_run(module, SCHEDULES[name], 50) for module in (flambeau, torch)]
    assert _equal(runs[0][0], runs[1][0])
    assert _equal(runs[0][1].state_dict(), runs[1][1].state_dict())
    keys = [list(o.param_groups[0]) for _, _, o in runs]
    assert sorted(keys[0]) == sorted(keys[1])


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_state_of_pytorch_continues(name: str) -> None:
    _, theirs, their_optimizer = _run(torch, SCHEDULES[name], 17)
    _, ours, optimizer = _run(flambeau, SCHEDULES[name], 0)
    ours.load_state_dict(theirs.state_dict())
    for mine, other in zip(optimizer.param_groups, their_optimizer.param_groups, strict=True):
        mine.update({k: v for k, v in other.items() if k != "params"})
    for _ in range(5):
        for schedule in (ours, theirs):
            schedule.step()
        assert _equal(ours.get_last_lr(), theirs.get_last_lr())


def test_plateau() -> None:
    losses = [5.0, 4.0, 4.1, 4.2, 4.3, 4.0, 4.5, 4.6, 4.7, 4.8, 4.9, 5.0, 5.1, 3.0, 3.1, 3.2]
    for options in (
        {"patience": 1}, {"patience": 2, "cooldown": 2}, {"mode": "max", "patience": 0},
        {"threshold_mode": "abs", "threshold": 0.5, "patience": 1, "min_lr": [0.02, 0.01]},
        {"patience": 0, "eps": 0.01},
    ):  # fmt: skip
        runs = []
        for module in (flambeau, torch):
            optimizer = _optimizer(module)
            schedule = module.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
            rates = []
            for loss in losses:
                schedule.step(module.tensor(loss))
                rates.append(schedule.get_last_lr())
            runs.append((rates, schedule.state_dict()))
        assert _equal(*runs)


@pytest.mark.parametrize("name", ["range", "three phases"])
def test_momentum_of_adam(name: str) -> None:
    runs = [_run(module, SCHEDULES[name], 20, "Adam") for module in (flambeau, torch)]
    assert _equal(runs[0][0], runs[1][0])
    groups = [o.param_groups[0]["betas"] for _, _, o in runs]
    assert _equal(*groups)


SINGLE = ["step", "exponential", "cosine", "linear", "constant", "polynomial", "multi step",
          "multiplicative", "lambda", "restarts", "one cycle", "range"]  # fmt: skip
RESUMED: dict[str, Make] = {
    "step": lambda m, o: m.StepLR(o, 3, last_epoch=5),
    "multi step": lambda m, o: m.MultiStepLR(o, [6, 8], last_epoch=5),
    "constant": lambda m, o: m.ConstantLR(o, last_epoch=4),
    "linear": lambda m, o: m.LinearLR(o, last_epoch=2),
    "exponential": lambda m, o: m.ExponentialLR(o, 0.9, last_epoch=4),
    "cosine": lambda m, o: m.CosineAnnealingLR(o, 10, last_epoch=4),
    "polynomial": lambda m, o: m.PolynomialLR(o, 10, last_epoch=4),
    "lambda": lambda m, o: m.LambdaLR(o, lambda e: 0.9**e, last_epoch=4),
    "multiplicative": lambda m, o: m.MultiplicativeLR(o, lambda e: 0.9, last_epoch=4),
    "restarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 3, last_epoch=4),
}


@pytest.mark.parametrize("name", RESUMED)
def test_resumed(name: str) -> None:
    runs = []
    for module in (flambeau, torch):
        optimizer = _optimizer(module)
        for group in optimizer.param_groups:
            group["initial_lr"] = 0.2
        schedule = RESUMED[name](module.optim.lr_scheduler, optimizer)
        rates = [schedule.get_last_lr()]
        for _ in range(6):
            optimizer.step()
            schedule.step()
            rates.append(schedule.get_last_lr())
        runs.append(rates)
    assert _equal(*runs)


@pytest.mark.parametrize("name", SINGLE)
def test_a_rate_that_is_a_tensor(name: str) -> None:
    runs = []
    for module in (flambeau, torch):
        rows, schedule, optimizer = _run(module, SCHEDULES[name], 8, lr=module.tensor(0.1))
        rate = optimizer.param_groups[0]["lr"]
        assert isinstance(rate, module.Tensor)
        runs.append(rows)
    for ours, theirs in zip(*runs, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)


def _caught(action: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [f"{w.category.__name__} {str(w.message)[:30]}" for w in caught]


def _wrong_order(module: Any) -> None:
    schedule = module.optim.lr_scheduler.StepLR(_optimizer(module), 1)
    schedule.step()
    schedule.step()


def _overridden(module: Any) -> None:
    optimizer = _optimizer(module)
    schedule = module.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step = lambda: None
    schedule.step()


def _stepped_before(module: Any) -> None:
    optimizer = _optimizer(module)
    optimizer.step()
    module.optim.lr_scheduler.StepLR(optimizer, 1).step()


def _in_order(module: Any) -> None:
    optimizer = _optimizer(module)
    schedules = [module.optim.lr_scheduler.StepLR(optimizer, 1) for _ in range(2)]
    optimizer.step()
    for schedule in schedules:
        schedule.step()


def _with_epoch(module: Any) -> None:
    optimizer = _optimizer(module)
    schedule = module.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step()
    schedule.step(4)
    schedule.get_lr()
    module.optim.lr_scheduler.ReduceLROnPlateau(optimizer).step(1.0, 3)
    module.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2).step(2.5)


@pytest.mark.parametrize(
    "action", [_wrong_order, _overridden, _stepped_before, _in_order, _with_epoch]
)
def test_warnings(action: Callable[[Any], None]) -> None:
    ours, theirs = (_caught(lambda m=m: action(m)) for m in (flambeau, torch))
    assert ours == theirs


REFUSED: list[Make] = [
    lambda m, o: m.OneCycleLR(o, 0.1), lambda m, o: m.OneCycleLR(o, 0.1, total_steps=-1),
    lambda m, o: m.OneCycleLR(o, 0.1, total_steps=2.5),
    lambda m, o: m.OneCycleLR(o, 0.1, epochs=0, steps_per_epoch=3),
    lambda m, o: m.OneCycleLR(o, 0.1, total_steps=10, pct_start=1),
    lambda m, o: m.OneCycleLR(o, 0.1, total_steps=10, anneal_strategy="x"),
    lambda m, o: m.OneCycleLR(o, [0.1], total_steps=10),
    lambda m, o: m.CyclicLR(o, [0.1], 0.2), lambda m, o: m.CyclicLR(o, 0.1, 0.2, mode="x"),
    lambda m, o: m.CosineAnnealingWarmRestarts(o, 0),
    lambda m, o: m.CosineAnnealingWarmRestarts(o, 2.5),
    lambda m, o: m.CosineAnnealingWarmRestarts(o, 2, 0),
    lambda m, o: m.CosineAnnealingWarmRestarts(o, 2, eta_min="x"),
    lambda m, o: m.CosineAnnealingWarmRestarts(o, 2).step(-1),
    lambda m, o: m.ConstantLR(o, 2.0), lambda m, o: m.LinearLR(o, 0.0),
    lambda m, o: m.LinearLR(o, 0.5, 2.0), lambda m, o: m.ReduceLROnPlateau(o, factor=1.0),
    lambda m, o: m.ReduceLROnPlateau(o, mode="x"),
    lambda m, o: m.ReduceLROnPlateau(o, threshold_mode="x"),
    lambda m, o: m.ReduceLROnPlateau(o, min_lr=[1.0]), lambda m, o: m.ReduceLROnPlateau(3),
    lambda m, o: m.SequentialLR(o, [], []), lambda m, o: m.SequentialLR(o, [3, 4], [1]),
    lambda m, o: m.SequentialLR(o, [m.ConstantLR(o)], [1]),
    lambda m, o: m.SequentialLR(o, [m.ConstantLR(o), m.ReduceLROnPlateau(o)], [1]),
    lambda m, o: m.ChainedScheduler([]), lambda m, o: m.ChainedScheduler([3]),
    lambda m, o: m.ChainedScheduler([m.ReduceLROnPlateau(o)]),
    lambda m, o: m.StepLR(3, 1), lambda m, o: m.StepLR(o, 1, last_epoch=3),
    lambda m, o: m.LRScheduler(o), lambda m, o: m.LambdaLR(o, [1]),
    lambda m, o: [s := m.OneCycleLR(o, 0.1, total_steps=3), [s.step() for _ in range(6)]],
]  # fmt: skip


def _outcome(module: Any, make: Make, name: str) -> str:
    try:
        make(module.optim.lr_scheduler, _optimizer(module, name=name))
    except Exception as error:
        return type(error).__name__
    return "fine"


def test_refusals() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, make in enumerate(REFUSED):
            assert _outcome(flambeau, make, "SGD") == _outcome(torch, make, "SGD"), number
        for key in ("one cycle", "range"):
            make = SCHEDULES[key]
            assert _outcome(flambeau, make, "Adadelta") == _outcome(torch, make, "Adadelta")


# ---------------------------------------------------------------------------------- averages


@pytest.mark.parametrize("use_buffers", [False, True])
@pytest.mark.parametrize("kind", ["swa", "ema", "multi"])
def test_averaged_models(kind: str, use_buffers: bool) -> None:
    results = []
    for module in (flambeau, torch):
        utils = module.optim.swa_utils
        options = {
            "swa": {}, "ema": {"avg_fn": utils.get_ema_avg_fn(0.9)},
            "multi": {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.9)},
        }[kind]  # fmt: skip
        layers = [module.nn.Linear(2, 3), module.nn.BatchNorm1d(3)]
        model = module.nn.Sequential(*layers)
        average = utils.AveragedModel(model, use_buffers=use_buffers, **options)
        for number in range(5):
            with module.no_grad():
                for index, tensor in enumerate([*model.parameters(), *model.buffers()]):
                    tensor.fill_((number * 3 + index) % 5)
            average.update_parameters(model)
        results.append({k: v.tolist() for k, v in average.state_dict().items()})
    assert results[0].keys() == results[1].keys()
    for key, value in results[1].items():
        torch.testing.assert_close(torch.tensor(results[0][key]), torch.tensor(value))


def test_schedules_for_averages() -> None:
    for options in (
        {"anneal_epochs": 3}, {"anneal_epochs": 4, "anneal_strategy": "linear"},
        {"anneal_epochs": 0}, {"swa_lr": [0.3, 0.4]},
    ):  # fmt: skip
        runs = []
        for module in (flambeau, torch):
            optimizer = _optimizer(module)
            schedule = module.optim.swa_utils.SWALR(optimizer, **{"swa_lr": 0.5, **options})
            rates = [schedule.get_last_lr()]
            for _ in range(7):
                optimizer.step()
                schedule.step()
                rates.append(schedule.get_last_lr())
            runs.append((rates, schedule.state_dict()))
        assert _equal(*runs)


def test_batch_statistics() -> None:
    results = []
    for module in (flambeau, torch):
        model = module.nn.BatchNorm1d(2).eval()
        batches = [module.arange(8.0).reshape(4, 2), [module.ones(3, 2), 5]]
        module.optim.swa_utils.update_bn(batches, model)
        state = {k: v.tolist() for k, v in model.state_dict().items()}
        results.append((state, model.training, model.momentum))
    assert _equal(*results)
