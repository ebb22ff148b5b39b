"""Dropout layers (Srivastava et al. 2014; Klambauer et al. 2017 for the alpha variants)."""

from __future__ import annotations

from typing import Any

from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.messages import problem
from flambeau.nn.modules.module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _DropoutNd(Module):
    """A probability and whether to work in place.

    Args:
        p: probability of an element (or channel) to become zero.
        inplace: whether to write into the input.
    """

    __constants__ = ["p", "inplace"]
    p: float
    inplace: bool

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            text = f"dropout probability has to be between 0 and 1, but got {p}"
            raise ValueError(problem(type(self).__name__, text, "0 <= p <= 1"))
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        """The options."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Zeroes elements with probability p in training and scales the others by 1 / (1 - p).

    Example:
        >>> nn.Dropout(0.5).eval()(torch.ones(2))
        tensor([1., 1.])
    """

    def forward(self, input: Any) -> Any:
        """`F.dropout` when training."""
        if not self.training:
            return input
        return F.dropout(input, self.p, True, self.inplace)


class Dropout1d(_DropoutNd):
    """Dropout of whole channels of `(N, C, L)` or `(C, L)`.

    Example:
        >>> nn.Dropout1d().eval()(torch.ones(2, 4, 9, device="meta")).shape
        torch.Size([2, 4, 9])
    """

    def forward(self, input: Any) -> Any:
        """`F.dropout1d`."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Dropout of whole channels of `(N, C, H, W)`.

    Example:
        >>> nn.Dropout2d().eval()(torch.ones(2, 4, 9, 9, device="meta")).shape
        torch.Size([2, 4, 9, 9])
    """

    def forward(self, input: Any) -> Any:
        """`F.dropout2d`."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Dropout of whole channels of `(N, C, D, H, W)` or `(C, D, H, W)`.

    Example:
        >>> nn.Dropout3d().eval()(torch.ones(2, 4, 5, 5, 5, device="meta")).shape
        torch.Size([2, 4, 5, 5, 5])
    """

    def forward(self, input: Any) -> Any:
        """`F.dropout3d`."""
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean and variance of SELU activations.

    Example:
        >>> nn.AlphaDropout().eval()(torch.ones(2))
        tensor([1., 1.])
    """

    def forward(self, input: Any) -> Any:
        """`F.alpha_dropout`."""
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """Alpha dropout of whole channels.

    Example:
        >>> nn.FeatureAlphaDropout().eval()(torch.ones(1, 2, 3, device="meta")).shape
        torch.Size([1, 2, 3])
    """

    def forward(self, input: Any) -> Any:
        """`F.feature_alpha_dropout`."""
        return F.feature_alpha_dropout(input, self.p, self.training)
