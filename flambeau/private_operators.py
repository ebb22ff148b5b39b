"""Private operators of PyTorch that other packages call: shapes, draws."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.ir.lock import late

__all__ = ["_sample_dirichlet", "_shape_as_tensor"]


def _shape_as_tensor(input: Any) -> Any:  # noqa: A002 - PyTorch's name
    """The sizes of a tensor, as a tensor.

    Example:
        >>> torch._shape_as_tensor(torch.zeros(2, 3))
        tensor([2, 3])
    """
    return torch.tensor(list(input.shape), dtype=torch.int64)


def _sample_dirichlet(self: Any, generator: Any = None) -> Any:
    """Samples of Dirichlet distributions, without a gradient.

    Args:
        self: concentrations.
        generator: draws the numbers.
    """
    return late("flambeau.distributions.dirichlet").draw(self, generator)
