"""`GradScaler` on the CPU: growth, steps that are left out, states, errors."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import flambeau as torch


def parameter(value: float = 1.0) -> Any:
    return torch.full((3,), value, requires_grad=True)


def test_grows_and_backs_off() -> None:
    w = parameter()
    optimizer = torch.optim.SGD([w], lr=0.25)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    scales = []
    for factor in (1.0, 1.0, float("inf"), 1.0, float("nan"), 1.0, 1.0):
        optimizer.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert scales == [8.0, 16.0, 8.0, 8.0, 4.0, 4.0, 8.0]
    assert torch.equal(w.detach(), torch.full((3,), 1.0 - 5 * 0.25))  # two steps were left out


def test_unscale_once_per_step() -> None:
    w = parameter()
    optimizer = torch.optim.SGD([w], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with pytest.raises(AssertionError, match="_scale is None"):
        scaler.unscale_(optimizer)
    scaler.scale(w.sum()).backward()
    assert w.grad[0].item() == 1024.0
    scaler.unscale_(optimizer)
    assert torch.equal(w.grad, torch.ones(3))
    with pytest.raises(RuntimeError, match="already been called on this optimizer"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    assert torch.equal(w.detach(), torch.zeros(3))
    with pytest.raises(RuntimeError, match="being called after step"):
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called since"):
        scaler.step(optimizer)
    scaler.update()
    with pytest.raises(AssertionError, match="No inf checks were recorded"):
        scaler.update()


def test_errors() -> None:
    half = torch.ones(2, dtype=torch.float16, requires_grad=True)
    optimizer = torch.optim.SGD([half], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(half.sum()).backward()
    with pytest.raises(ValueError, match="FP16 gradients"):
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="Closure use"):
        scaler.step(optimizer, closure=lambda: None)
    with pytest.raises(ValueError, match="iterable of Tensors"):
        scaler.scale(3)
    with pytest.raises(AssertionError, match="growth factor"):
        torch.amp.GradScaler("cpu", growth_factor=1.0)
    with pytest.warns(UserWarning, match="CUDA is not available"):
        assert not torch.amp.GradScaler().is_enabled()


def test_two_optimizers() -> None:
    good, bad = parameter(), parameter()
    first, second = torch.optim.SGD([good], lr=1.0), torch.optim.SGD([bad], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    losses = scaler.scale([good.sum(), (bad * float("inf")).sum()])
    for loss in losses:
        loss.backward()
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert torch.equal(good.detach(), torch.zeros(3))
    assert torch.equal(bad.detach(), torch.ones(3))
    assert scaler.get_scale() == 2.0


def test_an_optimizer_that_takes_the_scale() -> None:
    seen: list[Any] = []

    class Own(torch.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, closure: Any = None) -> None:
            seen.append((float(self.grad_scale), float(self.found_inf)))  # type: ignore[attr-defined]

    w = parameter()
    optimizer = Own([w], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for factor in (1.0, float("inf")):
        optimizer.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert seen == [(4.0, 0.0), (4.0, 1.0)]
    assert not hasattr(optimizer, "grad_scale")
    assert scaler.get_scale() == 2.0


def test_states() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=32.0, growth_interval=3)
    w = parameter()
    optimizer = torch.optim.SGD([w], lr=0.0)
    scaler.scale(w.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    state = scaler.state_dict()
    assert state == {
        "scale": 32.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 3,
        "_growth_tracker": 1,
    }
    other = torch.amp.GradScaler("cpu")
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert pickle.loads(pickle.dumps(scaler)).state_dict() == state
    scaler.update(5.0)
    assert scaler.get_scale() == 5.0
    assert torch.amp.GradScaler("cpu", enabled=False).state_dict() == {}
    with pytest.raises(RuntimeError, match="source state dict is empty"):
        other.load_state_dict({})


def test_disabled() -> None:
    w = parameter()
    optimizer = torch.optim.SGD([w], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    scaler.scale(w.sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(w.detach(), torch.zeros(3))
    assert scaler.get_scale() == 1.0
