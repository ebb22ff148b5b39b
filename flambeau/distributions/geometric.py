"""The geometric distribution (Johnson, Kemp and Kotz, ch. 5; inversion: Devroye 1986, X.2)."""

from __future__ import annotations

from numbers import Number
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Distribution
from flambeau.distributions.utils import Odds, broadcast_all
from flambeau.nn.functional import binary_cross_entropy_with_logits

__all__ = ["Geometric"]


class Geometric(Odds, Distribution):
    """The number of failures before the first success of trials that succeed with `probs`.

    Example:
        >>> Geometric(0.25).mean
        tensor(3.)
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer
    _parameters = ("probs", "logits")

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        name = self._either(probs, logits)
        parameter = logits if probs is None else probs
        (value,) = broadcast_all(parameter)
        setattr(self, name, value)
        batch = torch.Size() if isinstance(parameter, Number) else value.size()
        super().__init__(batch, validate_args=validate_args)
        if self._validate_args and probs is not None and not (value > 0).all():
            raise ValueError(
                f"[Geometric] Expected parameter probs of distribution {self!r} to be positive, "
                f"but found invalid values:\n{value}"
            )

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return torch.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        tiny = torch.finfo(self.probs.dtype).tiny
        with torch.no_grad():
            draw = self.probs.new_zeros(shape)
            return (draw.uniform_(tiny, 1).log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        certain = (probs == 1) & (value == 0)
        failure = torch.where(certain, torch.zeros_like(probs), probs)
        return value * (-failure).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        both = binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
        return both / self.probs
