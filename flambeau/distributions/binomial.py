"""The binomial distribution (Johnson, Kemp and Kotz, ch. 3; sampling: Hörmann 1993)."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Distribution
from flambeau.distributions.utils import Odds, broadcast_all
from flambeau.ir.failure import failure
from flambeau.nn.functional import softplus

__all__ = ["Binomial"]


class Binomial(Odds, Distribution):
    """The number of successes of `total_count` trials that succeed with `probs`.

    Example:
        >>> Binomial(4, torch.tensor(0.5)).log_prob(torch.tensor(2.0)).exp()
        tensor(0.3750)
    """

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True
    _parameters = ("total_count", "probs", "logits")

    def __init__(
        self,
        total_count: Any = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        name = self._either(probs, logits)
        parameter = logits if probs is None else probs
        self.total_count, value = broadcast_all(total_count, parameter)
        self.total_count = self.total_count.type_as(value)
        setattr(self, name, value)
        super().__init__(value.size(), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        """The integers from 0 to `total_count`."""
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with torch.no_grad():
            return torch.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        choices = (
            torch.lgamma(self.total_count + 1)
            - torch.lgamma(value + 1)
            - torch.lgamma(self.total_count - value + 1)
        )
        return choices + value * self.logits - self.total_count * softplus(self.logits)

    def _common_count(self, what: str) -> int:
        total = int(self.total_count.max())
        if not self.total_count.min() == total:
            problem = f"{what} of a batch with different total_count"
            raise failure(
                NotImplementedError, "Binomial", problem, "one distribution for each total_count"
            )
        return total

    def entropy(self) -> Tensor:
        self._common_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(torch.exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = 1 + self._common_count("enumerate_support")
        values = torch.arange(count, dtype=self._param.dtype, device=self._param.device)
        return self._enumerated(values, expand)
