"""`torch.ao.nn.quantized`: modules of quantized networks; those that also run in float32."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import nn
from flambeau.runtime import missing as _missing

__all__ = ["FloatFunctional"]

Tensor = Any


class FloatFunctional(nn.Module):
    """Operators as methods of a module, so that an observer could see their results.

    Example:
        >>> torch.ao.nn.quantized.FloatFunctional().add(torch.ones(1), 2)
        tensor([3.])
    """

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Raises: call one of the other methods.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            "FloatFunctional is not intended to use the 'forward'. Please use the underlying "
            "operation\nhint: .add(x, y)"
        )

    def _observed(self, result: Tensor) -> Tensor:
        return self.activation_post_process(result)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum of two tensors."""
        return self._observed(torch.add(x, y))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """The sum of a tensor and a number, which is not observed."""
        return torch.add(x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """The product of two tensors."""
        return self._observed(torch.mul(x, y))

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """The product of a tensor and a number, which is not observed."""
        return torch.mul(x, y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """Tensors one behind the other."""
        return self._observed(torch.cat(x, dim=dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum of two tensors, zeros for its negative elements."""
        return self._observed(torch.relu(torch.add(x, y)))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """The matrix product of two tensors."""
        return self._observed(torch.matmul(x, y))


globals()["__getattr__"] = _missing.getter(__name__)
