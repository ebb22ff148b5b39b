"""Optimizers, schedules, averaging, clipping, scaling."""

from __future__ import annotations

import copy

import torch
import torch.nn as nn
from torch.optim import lr_scheduler

from tests.differential.show import numbers, raised


def _problem():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.randn(8, 3)
    return net, x, x.sum(1, keepdim=True)


def _steps(optimizer, net, x, y, count=4):
    for _ in range(count):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
    return round(float(loss.detach()), 5)


def every_optimizer() -> None:
    for name, options in (
        ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
        ("Adam", {"amsgrad": True, "maximize": False}),
        ("AdamW", {"lr": 0.05, "betas": (0.8, 0.95)}),
        ("Adagrad", {"lr_decay": 0.1}),
        ("Adadelta", {}),
        ("Adamax", {}),
        ("ASGD", {}),
        ("NAdam", {"decoupled_weight_decay": True}),
        ("RAdam", {}),
        ("RMSprop", {"centered": True, "momentum": 0.5}),
        ("Rprop", {}),
        ("Adafactor", {}),
    ):
        net, x, y = _problem()
        optimizer = getattr(torch.optim, name)(net.parameters(), **options)
        print(name, _steps(optimizer, net, x, y), numbers(net[2].weight))
        state = optimizer.state_dict()
        print({k: type(v).__name__ for k, v in state["state"][0].items()}, state["param_groups"])
        print(
            {k: tuple(v.shape) for k, v in state["state"][0].items() if isinstance(v, torch.Tensor)}
        )
        print(optimizer)


def parameter_groups() -> None:
    net, x, y = _problem()
    optimizer = torch.optim.SGD(
        [{"params": net[0].parameters(), "lr": 0.5}, {"params": [net[2].weight]}],
        lr=0.1,
        momentum=0.9,
    )
    optimizer.add_param_group({"params": net[2].bias, "weight_decay": 0.1})
    print(optimizer, len(optimizer.param_groups), optimizer.defaults)
    print(
        raised(lambda: optimizer.add_param_group({"params": net[2].bias})),
        raised(lambda: torch.optim.SGD([], lr=0.1)),
    )
    print(
        raised(lambda: torch.optim.SGD(net.parameters(), lr=-1)),
        raised(lambda: torch.optim.SGD(net[0].weight, 0.1)),
    )
    print(
        raised(lambda: torch.optim.SGD([net[0].weight * 2], 0.1)),
        raised(lambda: torch.optim.Adam(net.parameters(), betas=(1, 2))),
    )
    print(
        raised(lambda: torch.optim.SGD(net.parameters(), nesterov=True)),
        _steps(optimizer, net, x, y),
    )
    optimizer.zero_grad(set_to_none=False)
    print(net[0].weight.grad)
    print(
        {i: list(s) for i, s in optimizer.state_dict()["state"].items()},
        [g["params"] for g in optimizer.state_dict()["param_groups"]],
    )
    named = torch.optim.SGD(net.named_parameters(), lr=0.1)
    print(named.param_groups[0]["param_names"], named.state_dict()["param_groups"])
    torch.optim.SGD([net[0].weight, net[0].weight], lr=0.1)


def saved_optimizer_state() -> None:
    net, x, y = _problem()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    _steps(optimizer, net, x, y)
    saved = copy.deepcopy(optimizer.state_dict())
    other, _, _ = _problem()
    other.load_state_dict(net.state_dict())
    fresh = torch.optim.Adam(other.parameters(), lr=1.0)
    fresh.load_state_dict(saved)
    print(_steps(optimizer, net, x, y), _steps(fresh, other, x, y), fresh.param_groups[0]["lr"])
    state = optimizer.state[net[0].weight]
    print(
        sorted(state),
        state["step"],
        type(state["step"]).__name__,
        state["step"].dtype,
        optimizer.state_dict()["state"][0] is state,
    )
    state["exp_avg"].zero_()
    print(
        optimizer.state_dict()["state"][0]["exp_avg"].sum(),
        len(optimizer.state),
        type(optimizer.state).__name__,
    )
    print(raised(lambda: torch.optim.Adam([net[0].weight]).load_state_dict(saved)))
    old = {
        "state": {},
        "param_groups": [
            {
                "lr": 0.3,
                "betas": (0.9, 0.99),
                "eps": 1e-8,
                "weight_decay": 0,
                "amsgrad": False,
                "params": [0, 1, 2, 3],
            }
        ],
    }
    fresh.load_state_dict(old)
    print(_steps(fresh, other, x, y))


def closures_and_lbfgs() -> None:
    net, x, y = _problem()
    optimizer = torch.optim.LBFGS(net.parameters(), lr=1, max_iter=5, line_search_fn="strong_wolfe")
    calls = []

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        calls.append(1)
        return loss

    print(
        [round(float(optimizer.step(closure)), 4) for _ in range(3)],
        len(calls),
        raised(optimizer.step),
    )
    sgd = torch.optim.SGD(net.parameters(), lr=0.0)
    result = sgd.step(closure)
    print(
        type(result).__name__,
        result.requires_grad,
        sgd.step(),
        sorted(optimizer.state_dict()["state"][0]),
    )


def schedules() -> None:
    made = {
        "StepLR": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
        "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [1, 3]),
        "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
        "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 4, 0.01),
        "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2, 2),
        "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.5, total_iters=3),
        "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.5, 2),
        "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 4, 2.0),
        "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda e: 1 / (e + 1)),
        "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda e: 0.9),
        "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 2),
        "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.5, 8),
        "SequentialLR": lambda o: lr_scheduler.SequentialLR(
            o,
            [lr_scheduler.LinearLR(o, 0.1, total_iters=2), lr_scheduler.ExponentialLR(o, 0.5)],
            [2],
        ),
        "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
            [lr_scheduler.ConstantLR(o, 0.1, 2), lr_scheduler.ExponentialLR(o, 0.9)]
        ),
    }
    for name, make in made.items():
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9)
        schedule = make(optimizer)
        rates = []
        for _ in range(6):
            rates.append(round(optimizer.param_groups[0]["lr"], 6))
            optimizer.step()
            schedule.step()
        print(
            name,
            rates,
            [round(v, 6) for v in schedule.get_last_lr()],
            sorted(schedule.state_dict()),
            optimizer.param_groups[0].get("initial_lr"),
        )


def plateau() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    schedule = lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=1, cooldown=1, min_lr=0.02
    )
    for value in (1.0, 0.9, 0.9, 0.9, 0.95, torch.tensor(0.9), 0.9, 0.9):
        schedule.step(value)
        print(optimizer.param_groups[0]["lr"], schedule.num_bad_epochs, schedule.get_last_lr())
    print(
        schedule.state_dict(), raised(lambda: lr_scheduler.ReduceLROnPlateau(optimizer, factor=2))
    )
    print(
        raised(lambda: lr_scheduler.StepLR(3, 2)),
        raised(lambda: lr_scheduler.ReduceLROnPlateau(optimizer, verbose=True)),
    )


def schedule_warnings() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    schedule = lr_scheduler.StepLR(optimizer, 1)
    schedule.step()
    optimizer.step()
    schedule.step(3)
    print(schedule.get_last_lr(), schedule.last_epoch)
    schedule.get_lr()
    print(
        lr_scheduler.LRScheduler is lr_scheduler._LRScheduler,
        isinstance(schedule, lr_scheduler.LRScheduler),
    )

    class Warmup(lr_scheduler.LRScheduler):
        def get_lr(self):
            return [base * min(1.0, (self.last_epoch + 1) / 4) for base in self.base_lrs]

    fresh = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.4)
    warm = Warmup(fresh)
    for _ in range(3):
        print(fresh.param_groups[0]["lr"])
        fresh.step()
        warm.step()
    state = warm.state_dict()
    again = Warmup(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.4))
    again.load_state_dict(state)
    print(
        again.last_epoch,
        raised(
            lambda: lr_scheduler.StepLR(
                torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1), 1, last_epoch=3
            )
        ),
    )


def clipping() -> None:
    net, x, y = _problem()
    nn.functional.mse_loss(net(x), y * 100).backward()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    print(
        numbers(norm),
        type(norm).__name__,
        norm.requires_grad,
        numbers(nn.utils.get_total_norm([p.grad for p in net.parameters()])),
    )
    nn.utils.clip_grad_value_(net.parameters(), 0.01)
    print([numbers(p.grad.abs().max()) for p in net.parameters()])
    net[0].weight.grad[0, 0] = float("nan")
    print(raised(lambda: nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)))
    print(
        nn.utils.clip_grad_norm_([], 1.0),
        numbers(nn.utils.parameters_to_vector(net.parameters()).norm()),
    )
    nn.utils.vector_to_parameters(torch.zeros(21), net.parameters())
    print(net[2].bias)
    nn.utils.clip_grad_norm(net.parameters(), 1.0)


def averaged_weights() -> None:
    from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

    net, x, y = _problem()
    average = AveragedModel(net)
    ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    schedule = SWALR(optimizer, 0.05, 2)
    for _ in range(3):
        _steps(optimizer, net, x, y, 1)
        average.update_parameters(net)
        ema.update_parameters(net)
        schedule.step()
        print(optimizer.param_groups[0]["lr"])
    print(
        numbers(average(x)[:2]),
        numbers(ema.module[0].bias),
        average.n_averaged,
        list(average.state_dict())[:2],
    )
    model = nn.Sequential(nn.BatchNorm1d(3))
    update_bn([x, x + 1], model)
    print(numbers(model[0].running_mean), model[0].momentum)


def own_optimizer() -> None:
    class Sign(torch.optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params, {"lr": lr, "beta": 0.5})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    if not state:
                        state["step"] = 0
                        state["average"] = torch.zeros_like(p)
                    state["step"] += 1
                    state["average"].mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])
                    p.add_(state["average"].sign(), alpha=-group["lr"])

    net, x, y = _problem()
    optimizer = Sign(net.parameters())
    optimizer.register_step_post_hook(lambda o, a, k: print("post", type(o).__name__, a, k))
    optimizer.register_step_pre_hook(lambda o, a, k: None)
    print(
        _steps(optimizer, net, x, y),
        optimizer,
        optimizer.state_dict()["state"][1]["step"],
        optimizer.__getstate__().keys(),
    )
    print(type(optimizer).step.__name__, hasattr(type(optimizer).step, "hooked"))


def frozen_layers() -> None:
    net, x, y = _problem()
    for p in net[0].parameters():
        p.requires_grad = False
    optimizer = torch.optim.AdamW(filter(lambda p: p.requires_grad, net.parameters()), lr=0.1)
    before = net[0].weight.clone()
    print(
        _steps(optimizer, net, x, y),
        torch.equal(before, net[0].weight),
        net[0].weight.grad,
        len(optimizer.state),
    )
    net[0].weight.requires_grad_()
    optimizer.add_param_group({"params": [net[0].weight], "lr": 1e-3})
    print(
        _steps(optimizer, net, x, y),
        len(optimizer.state),
        [g["lr"] for g in optimizer.param_groups],
    )


def optimizer_options() -> None:
    net, x, y = _problem()
    for options in (
        {"foreach": True},
        {"fused": True},
        {"foreach": False},
        {"capturable": True},
        {"differentiable": True},
    ):
        net, x, y = _problem()
        try:
            optimizer = torch.optim.Adam(net.parameters(), lr=0.1, **options)
            print(options, _steps(optimizer, net, x, y))
        except Exception as error:
            print(options, type(error).__name__)
    print(raised(lambda: torch.optim.Adam(net.parameters(), fused=True, foreach=True)))
    rate = torch.tensor(0.1)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.step()
    schedule.step()
    print(rate, optimizer.param_groups[0]["lr"] is rate, schedule.get_last_lr())
    print(raised(lambda: torch.optim.Adam(net.parameters(), lr=torch.tensor(0.1), foreach=True)))
