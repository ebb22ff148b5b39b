"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import flambeau as torch
from flambeau._core import Tensor
from flambeau.nn.messages import problem

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Any]) -> Any:
    """All parameters, flattened, one after the other."""
    return torch.cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Any, parameters: Iterable[Any]) -> None:
    """Makes the slices of a vector the data of the parameters.

    Raises:
        TypeError: `vec` is no tensor.
    """
    if not isinstance(vec, Tensor):
        text = f"expected torch.Tensor, but got: {type(vec).__name__}"
        raise TypeError(problem("vector_to_parameters", text, "pass a vector"))
    start = 0
    for parameter in parameters:
        stop = start + parameter.numel()
        parameter.data = vec[start:stop].view_as(parameter).data
        start = stop
