"""Layers that merge and split dimensions."""

from __future__ import annotations

from typing import Any

from flambeau.nn.messages import problem
from flambeau.nn.modules.module import Module

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """Makes one dimension of dimensions `start_dim` to `end_dim`.

    Example:
        >>> nn.Flatten()(torch.zeros(2, 3, 4, device="meta")).shape
        torch.Size([2, 12])
    """

    __constants__ = ["start_dim", "end_dim"]

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Any) -> Any:
        """`input.flatten(start_dim, end_dim)`."""
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """The dimensions."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Makes several dimensions of dimension `dim`.

    Args:
        dim: which one.
        unflattened_size: the sizes; one may be -1.

    Raises:
        TypeError: the sizes are not a tuple or list of integers.

    Example:
        >>> nn.Unflatten(1, (3, 4))(torch.zeros(2, 12, device="meta")).shape
        torch.Size([2, 3, 4])
    """

    __constants__ = ["dim", "unflattened_size"]

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        if isinstance(dim, str):
            raise NotImplementedError(
                problem("Unflatten", "named dimensions are not supported", "give a number")
            )
        self._check(unflattened_size)
        self.dim = dim
        self.unflattened_size = unflattened_size

    @staticmethod
    def _check(sizes: Any) -> None:
        if not isinstance(sizes, (tuple, list)):
            text = (
                f"unflattened_size must be a tuple of ints, but found type {type(sizes).__name__}"
            )
            raise TypeError(problem("Unflatten", text, "give a tuple"))
        for position, size in enumerate(sizes):
            if not isinstance(size, int):
                text = (
                    f"unflattened_size must be tuple of ints, but found element of type "
                    f"{type(size).__name__} at pos {position}"
                )
                raise TypeError(problem("Unflatten", text, "give ints"))

    def forward(self, input: Any) -> Any:
        """`input.unflatten(dim, unflattened_size)`."""
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        """The dimension and sizes."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
