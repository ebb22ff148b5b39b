"""Private operators of PyTorch that other packages call: shapes, draws."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.ir.lock import late


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


def _cast_to(name: str, dtype: Any) -> Any:
    """The operator `name`, which converts to a dtype."""

    def cast(input: Any, non_blocking: bool = False) -> Any:  # noqa: A002 - PyTorch's name
        return input.to(dtype, non_blocking=non_blocking)

    cast.__name__ = cast.__qualname__ = name
    cast.__doc__ = f"The values of a tensor as {dtype}."
    return cast


_CASTS = {
    "_cast_Byte": torch.uint8, "_cast_Char": torch.int8, "_cast_Double": torch.float64,
    "_cast_Float": torch.float32, "_cast_Half": torch.float16, "_cast_Int": torch.int32,
    "_cast_Long": torch.int64, "_cast_Short": torch.int16,
}  # fmt: skip
globals().update({name: _cast_to(name, dtype) for name, dtype in _CASTS.items()})

__all__ = [*_CASTS, "_sample_dirichlet", "_shape_as_tensor"]
