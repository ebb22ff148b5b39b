"""Tensors without memory in a region, beside others: what those hold stays right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch


def _tensor(device: str) -> Any:
    return torch.empty(3, 3, device=device)


def _written_before(device: str) -> Any:
    _tensor(device).fill_(1)
    return torch.ones(3, 3) * 2


def _written_after(device: str) -> Any:
    made = torch.ones(3, 3) * 2
    _tensor(device).mul_(2)
    return made + 1


def _computed(device: str) -> Any:
    kept = torch.zeros(3, 3, device=device) + 1
    made = torch.ones(3, 3) * 2
    assert kept.device.type == device
    return made


def _initialised(device: str) -> Any:
    torch.nn.init.kaiming_uniform_(_tensor(device))
    return torch.randn(3, 3)


def _loaded(device: str) -> Any:
    layer = torch.nn.Linear(3, 3, device=device)
    layer.load_state_dict({"weight": torch.randn(3, 3), "bias": torch.zeros(3)}, assign=True)
    return layer(torch.ones(2, 3)).detach()


def _differentiated(device: str) -> Any:
    weight = torch.ones(3, 3, device=device, requires_grad=True)
    x = torch.ones(3, 3, requires_grad=True)
    (x * 2).sum().backward()
    (weight * 3).sum().backward()
    assert weight.grad.device.type == device
    return x.grad


def _by_default(device: str) -> Any:
    with torch.device(device):
        layer = torch.nn.Linear(3, 3)
        kept = torch.zeros(3, 3).add_(1) + torch.rand(3, 3)
    assert layer.weight.device.type == kept.device.type == device
    return torch.ones(3, 3) * 2 + torch.randn(3, 3)


PROGRAMS = (
    _written_before,
    _written_after,
    _computed,
    _initialised,
    _loaded,
    _differentiated,
    _by_default,
)


@pytest.mark.parametrize("device", ["meta", "null"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs(program: Callable[[str], Any], device: str) -> None:
    torch.manual_seed(0)
    expected = program(device)
    compiled = torch.compile(program)
    for _ in range(2):
        torch.manual_seed(0)
        assert torch.equal(compiled(device), expected)


def test_empty_module_is_filled() -> None:
    def program() -> Any:
        layer = torch.nn.Linear(3, 3, device="meta").to_empty(device="cpu")
        torch.nn.init.normal_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
        return layer(torch.ones(2, 3)).detach()

    torch.manual_seed(0)
    expected = program()
    torch.manual_seed(0)
    assert torch.equal(torch.compile(program)(), expected)
