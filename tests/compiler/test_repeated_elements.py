"""A concatenation of one value with itself, of one element each, reads that element once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import flambeau as torch
from flambeau import _core


def loads(function: Callable[..., object], *arguments: torch.Tensor) -> int:
    """How many elements the kernels of a function load per point."""
    texts = {name: text for name, _, text in torch.compiler.stages(function, *arguments)}
    return texts["lower"].count("k.load")


def joined(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The up-sampling and the skip connection of a U-Net."""
    return torch.cat([torch.nn.functional.interpolate(x, scale_factor=2), y], 1)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 1, 8, 8), (2, 2, 1, 3)])
def test_neighbours_of_an_image_are_one_load(shape: tuple[int, ...]) -> None:
    x = torch.randn(*shape)
    y = torch.randn(shape[0], 2, 2 * shape[2], 2 * shape[3])
    assert loads(joined, x, y) == 2
    compiled = torch.compile(joined)(x, y)
    assert _core.tensor_bytes(compiled) == _core.tensor_bytes(joined(x, y))


@pytest.mark.parametrize("times", [2, 3, 7])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_repeated_values_have_the_same_bits(times: int, axis: int) -> None:
    def repeated(x: torch.Tensor) -> torch.Tensor:
        beside = torch.cat([x.sin().unsqueeze(axis)] * times, axis)
        return beside.flatten() * 2 + 1

    x = torch.randn(3, 5)
    assert _core.tensor_bytes(torch.compile(repeated)(x)) == _core.tensor_bytes(repeated(x))


def test_longer_operands_are_chosen_by_position() -> None:
    """Two copies of a row are no repeated element."""

    def twice(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x], 1) - torch.cat([x + 1, x], 1)

    x = torch.randn(3, 4)
    assert _core.tensor_bytes(torch.compile(twice)(x)) == _core.tensor_bytes(twice(x))
