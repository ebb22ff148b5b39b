"""Every optimizer against its formula in double, compiled, with hooks and saved states."""

from __future__ import annotations

import copy
import importlib
import math
import pickle
from typing import Any

import numpy
import pytest

import flambeau as torch
from flambeau import optim


def rmsprop(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    s["v"] = 0.99 * s.get("v", 0.0) + 0.01 * g**2
    return p - 0.01 * g / (numpy.sqrt(s["v"]) + 1e-8)


def adadelta(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    s["v"] = 0.9 * s.get("v", 0.0) + 0.1 * g**2
    delta = numpy.sqrt(s.get("u", 0.0) + 1e-6) / numpy.sqrt(s["v"] + 1e-6) * g
    s["u"] = 0.9 * s.get("u", 0.0) + 0.1 * delta**2
    return p - delta


def adamax(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    s["m"] = 0.9 * s.get("m", 0.0) + 0.1 * g
    s["u"] = numpy.maximum(0.999 * s.get("u", 0.0), abs(g) + 1e-8)
    return p - 0.002 / (1 - 0.9**t) * s["m"] / s["u"]


def _moments(g: Any, s: dict[str, Any]) -> tuple[Any, Any]:
    s["m"] = 0.9 * s.get("m", 0.0) + 0.1 * g
    s["v"] = 0.999 * s.get("v", 0.0) + 0.001 * g**2
    return s["m"], s["v"]


def nadam(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    m, v = _moments(g, s)
    mu, after = (0.9 * (1 - 0.5 * 0.96 ** (n * 0.004)) for n in (t, t + 1))
    s["mu"] = s.get("mu", 1.0) * mu
    change = (1 - mu) / (1 - s["mu"]) * g + after / (1 - s["mu"] * after) * m
    return p - 0.002 * change / (numpy.sqrt(v / (1 - 0.999**t)) + 1e-8)


def radam(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    m, v = _moments(g, s)
    limit = 2 / 0.001 - 1
    length = limit - 2 * t * 0.999**t / (1 - 0.999**t)
    factor: Any = 1.0
    if length > 5:
        share = (length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length)
        factor = math.sqrt(share) * math.sqrt(1 - 0.999**t) / (numpy.sqrt(v) + 1e-8)
    return p - 0.001 * m / (1 - 0.9**t) * factor


def asgd(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    eta = s.get("eta", 0.01)
    s["eta"] = 0.01 / (1 + 1e-4 * 0.01 * t) ** 0.75
    return (1 - 1e-4 * eta) * p - eta * g


def rprop(p: Any, g: Any, s: dict[str, Any], t: int) -> Any:
    product = g * s.get("g", 0.0 * g)
    size = s.get("size", 0.01 + 0 * g)
    size = size * numpy.where(product > 0, 1.2, numpy.where(product < 0, 0.5, 1.0))
    s["size"] = numpy.clip(size, 1e-6, 50)
    s["g"] = numpy.where(product < 0, 0.0, g)
    return p - numpy.sign(s["g"]) * s["size"]


FORMULAS = {
    "RMSprop": rmsprop, "Adadelta": adadelta, "Adamax": adamax, "NAdam": nadam, "RAdam": radam,
    "ASGD": asgd, "Rprop": rprop,
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "RMSprop": {"centered": True, "momentum": 0.5, "eps": 0.1}, "Adadelta": {"rho": 0.5},
    "Adamax": {}, "NAdam": {"decoupled_weight_decay": True}, "RAdam": {"betas": (0.5, 0.6)},
    "ASGD": {"t0": 1}, "Rprop": {}, "Adafactor": {}, "Muon": {},
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(name: str) -> None:
    rng = numpy.random.default_rng(0)
    expected = rng.standard_normal(40)
    p = torch.from_numpy(expected.copy()).requires_grad_()
    optimizer = getattr(optim, name)([p])
    state: dict[str, Any] = {}
    for number in range(1, 9):
        grad = rng.standard_normal(40)
        p.grad = torch.from_numpy(grad)
        optimizer.step()
        expected = FORMULAS[name](expected, grad, state, number)
    # Scalars of the state are float32 (the rate of ASGD, the momentum's product of NAdam).
    rtol = 1e-7 if name in ("ASGD", "NAdam") else 1e-12
    numpy.testing.assert_allclose(p.detach().numpy(), expected, rtol=rtol, atol=rtol)
    step = optimizer.state[p]["step"]
    assert step.dtype == torch.float32
    assert step.item() == 8.0


@pytest.mark.parametrize("name", OPTIONS)
def test_compiled_steps_are_eager_steps(name: str) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(5, 3), torch.randn(3, 2).requires_grad_()
    twin = w.detach().clone().requires_grad_()
    cls = getattr(optim, name)
    compiled, eager = cls([w], lr=0.1, **OPTIONS[name]), cls([twin], lr=0.1, **OPTIONS[name])

    def train(p: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        (x @ p).pow(2).sum().backward()
        optimizer.step()

    for _ in range(4):
        torch.compile(train)(w, compiled)
        train(twin, eager)
    assert torch.equal(w.detach(), twin.detach())
    for name_, value in eager.state[twin].items():
        assert torch.equal(compiled.state[w][name_], value), name_


@pytest.mark.parametrize("name", FORMULAS)
def test_differentiable_steps(name: str) -> None:
    """The numbers of an ordinary step, and gradients that fit finite differences."""
    cls, options = getattr(optim, name), OPTIONS[name]
    decay = {} if name == "Rprop" else {"weight_decay": 0.1}

    def trained(start: Any, grad: Any, **others: Any) -> Any:
        p = start.clone()
        if others:
            p.retain_grad()
        else:
            p = p.detach().requires_grad_()
        optimizer = cls([p], lr=0.1, **options, **decay, **others)
        for scale in (1.0, 0.5):
            p.grad = grad * scale
            optimizer.step()
        return p

    start = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    grad = torch.tensor([1.5, 0.5, -0.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: trained(a, b, differentiable=True), (start, grad))
    result = trained(start, grad, differentiable=True).detach()
    torch.testing.assert_close(result, trained(start, grad.detach()).detach())


@pytest.mark.parametrize("name", FORMULAS)
def test_complex_parameters_are_pairs(name: str) -> None:
    whole = torch.randn(4, dtype=torch.complex64).requires_grad_()
    parts = torch.view_as_real(whole.detach()).clone().requires_grad_()
    grad = torch.randn(4, dtype=torch.complex64)
    for p, g in ((whole, grad), (parts, torch.view_as_real(grad))):
        p.grad = g.clone()
        getattr(optim, name)([p]).step()
    assert torch.equal(torch.view_as_real(whole.detach()), parts.detach())


def test_modules_of_functional_forms() -> None:
    for name in "adadelta adagrad adam adamax adamw asgd nadam radam rmsprop rprop sgd".split():
        module = importlib.import_module(f"flambeau.optim.{name}")
        assert callable(getattr(module, name))
        assert sorted(module.__all__, key=str.lower)[0].lower() == name
    with pytest.raises(RuntimeError, match="state_steps"):
        optim.adamax.adamax(
            [torch.ones(1)], [torch.ones(1)], [torch.zeros(1)], [torch.zeros(1)], [0],
            eps=1e-8, beta1=0.9, beta2=0.99, lr=0.1, weight_decay=0.0,
        )  # fmt: skip


# ---------------------------------------------------------------------------------- the base


def _stepped(cls: Any = optim.Adam) -> tuple[Any, Any]:
    p = torch.ones(3, requires_grad=True)
    p.grad = torch.ones(3)
    optimizer = cls([p], lr=0.1)
    optimizer.step()
    return optimizer, p


def test_the_state_is_live() -> None:
    optimizer, p = _stepped()
    assert optimizer.state_dict()["state"][0] is optimizer.state[p]
    assert optimizer.state[p]["step"].item() == 1.0


def test_states_with_counts_that_are_numbers() -> None:
    """State dicts of old versions have a number for the step."""
    optimizer, _ = _stepped()
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][0]["step"] = 7
    fresh, p = _stepped()
    fresh.load_state_dict(saved)
    assert fresh.state[p]["step"].dtype == torch.float32
    fresh.step()
    assert fresh.state[p]["step"].item() == 8.0


def test_hooks_of_state_dicts() -> None:
    optimizer, _ = _stepped()
    calls: list[str] = []
    optimizer.register_state_dict_pre_hook(lambda o: calls.append("second"))
    optimizer.register_state_dict_pre_hook(lambda o: calls.append("first"), prepend=True)
    handle = optimizer.register_state_dict_post_hook(lambda o, d: {**d, "more": 1})
    saved = optimizer.state_dict()
    assert (calls, saved["more"]) == (["first", "second"], 1)
    handle.remove()
    assert "more" not in optimizer.state_dict()

    def faster(o: Any, d: dict[str, Any]) -> dict[str, Any]:
        groups = [{**group, "lr": 7.0} for group in d["param_groups"]]
        return {**d, "param_groups": groups}

    optimizer.register_load_state_dict_pre_hook(faster)
    optimizer.register_load_state_dict_post_hook(lambda o: calls.append("loaded"))
    optimizer.load_state_dict(saved)
    assert (calls[-1], optimizer.param_groups[0]["lr"]) == ("loaded", 7.0)
    assert saved["param_groups"][0]["lr"] == 0.1


def test_hooks_of_all_steps() -> None:
    from flambeau.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    optimizer, _ = _stepped()
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda o, a, k: calls.append("own before"))
    optimizer.register_step_post_hook(lambda o, a, k: calls.append("own after"))
    handles = [
        register_optimizer_step_pre_hook(lambda o, a, k: calls.append("before")),
        register_optimizer_step_post_hook(lambda o, a, k: calls.append("after")),
    ]
    optimizer.step()
    assert calls == ["before", "own before", "own after", "after"]
    for handle in handles:
        handle.remove()
    optimizer.register_step_pre_hook(lambda o, a, k: 3)
    with pytest.raises(RuntimeError, match="None or a tuple"):
        optimizer.step()


@pytest.mark.parametrize("name", [*FORMULAS, "Adafactor", "LBFGS", "Adam", "SGD", "Adagrad"])
def test_copies_and_pickles(name: str) -> None:
    p = torch.ones(3, requires_grad=True)
    optimizer = getattr(optim, name)([p], lr=0.1)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert other.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
        states = [o.state_dict()["state"].get(0, {}) for o in (other, optimizer)]
        assert list(states[0]) == list(states[1])


# ---------------------------------------------------------------------------------- schedules


def test_schedules_are_pickled_by_their_public_name() -> None:
    optimizer = optim.SGD([torch.ones(1)], lr=0.1, momentum=0.9)
    schedules = optim.lr_scheduler
    for schedule in (
        schedules.OneCycleLR(optimizer, 0.2, total_steps=5),
        schedules.CyclicLR(optimizer, 0.1, 0.2, 3),
        schedules.ReduceLROnPlateau(optimizer),
    ):
        assert type(schedule).__module__ == "flambeau.optim.lr_scheduler"
        other = pickle.loads(pickle.dumps(schedule))
        assert other.state_dict() == schedule.state_dict()


def test_order_of_steps() -> None:
    optimizer = optim.SGD([torch.ones(1)], lr=0.1)
    schedule = optim.lr_scheduler.StepLR(optimizer, 1)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        schedule.step()
    optimizer.step()
    schedule.step()


def test_one_cycle_formula() -> None:
    """Half a cosine to the greatest rate, then half a one to the least."""
    optimizer = optim.SGD([torch.ones(1)], lr=1.0, momentum=0.9)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=11, pct_start=0.5)
    rates = []
    for _ in range(11):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    top, low, last, bend = 1.0, 1 / 25, 1 / 25e4, 11 * 0.5 - 1
    for number, rate in enumerate(rates):
        ends = (low, top) if number <= bend else (top, last)
        share = number / bend if number <= bend else (number - bend) / (10 - bend)
        wave = (1 - math.cos(math.pi * share)) / 2
        assert rate == pytest.approx(ends[0] + (ends[1] - ends[0]) * wave, rel=1e-12)


def test_averages_are_means() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    utils = optim.swa_utils
    equal = utils.AveragedModel(model)
    moving = utils.AveragedModel(model, multi_avg_fn=utils.get_ema_multi_avg_fn(0.75))
    values, expected = [], 0.0
    for number in range(6):
        with torch.no_grad():
            model[0].weight.normal_()
        values.append(model[0].weight.detach().clone().numpy().astype(float))
        expected = values[-1] if number == 0 else 0.75 * expected + 0.25 * values[-1]
        equal.update_parameters(model)
        moving.update_parameters(model)
    mean = numpy.mean(values, 0)
    numpy.testing.assert_allclose(equal.module[0].weight.detach().numpy(), mean, atol=1e-6)
    numpy.testing.assert_allclose(moving.module[0].weight.detach().numpy(), expected, atol=1e-6)
    assert equal.n_averaged == 6
    x = torch.randn(5, 3)
    assert torch.equal(equal(x), equal.module(x))
