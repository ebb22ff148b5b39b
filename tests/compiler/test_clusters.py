"""Clusters say why two values are in different kernels."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import flambeau as torch
from flambeau.compiler.schedule import cluster as reasons
from flambeau.compiler.schedule import members


def apart(function: Callable[..., object], *arguments: torch.Tensor) -> list[tuple[str, str, str]]:
    """(operations of a kernel, of another, the reason why they are two) of each such pair."""
    texts = {name: text for name, _, text in torch.compiler.stages(function, *arguments)}
    pattern = r"clusters \d+ \((.*)\) and \d+ \((.*)\) are apart: (.*)"
    return re.findall(pattern, texts["cluster"])


def square() -> torch.Tensor:
    return torch.ones(6, 6)


def test_one_kernel_has_no_reasons() -> None:
    assert apart(lambda x: torch.softmax(x, -1), square()) == []


@pytest.mark.parametrize(
    ("function", "pair"),
    [
        (lambda x: x.cumsum(1) @ x, ("cumsum cast", "matmul", reasons.TEMPLATE)),
        (lambda x: (x @ x).sum(0), ("matmul", "sum", reasons.EPILOGUE)),
        (lambda x: x.sort().values.exp(), ("sort", "exp", reasons.ROUTINE)),
        (lambda x: x - x.sum(0) / x.sum(1), ("sum", "sum div", members.AXIS)),
    ],
)
def test_reasons(function: Callable[..., object], pair: tuple[str, str, str]) -> None:
    assert pair in apart(function, square())


def test_siblings_of_many_parts_have_a_reason() -> None:
    """No value of one kernel is read by the other: they were tried because both read x."""
    x = torch.ones(24, 4)
    pairs = apart(lambda x: [part.exp() for part in x.split(1)], x)
    assert {reason for _, _, reason in pairs} == {members.FEW_COMMON}
