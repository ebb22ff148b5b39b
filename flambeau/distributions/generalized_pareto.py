"""The generalized Pareto distribution (Pickands 1975; Hosking and Wallis 1987)."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Distribution
from flambeau.distributions.utils import batch_of, broadcast_all

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """Excesses over a threshold: F(x) = 1 - (1 + c z)^(-1 / c) of z = (x - loc) / scale.

    c is the `concentration`; at 0 the distribution is exponential.

    Example:
        >>> GeneralizedPareto(0.0, 1.0, 0.5).mean
        tensor(2.)
    """

    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True
    _parameters = ("loc", "scale", "concentration")

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        batch = batch_of(loc, scale, concentration)
        super().__init__(self.loc.size() if batch is None else batch, validate_args=validate_args)

    def _is_exponential(self) -> Tensor:
        return torch.isclose(self.concentration, torch.zeros_like(self.concentration))

    def _nonzero(self) -> Tensor:
        """The concentration, and 1 where it counts as 0."""
        one = torch.ones_like(self.concentration)
        return torch.where(self._is_exponential(), one, self.concentration)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(torch.rand(shape, dtype=self.loc.dtype, device=self.loc.device))

    def _standard(self, value: Tensor) -> Tensor:
        return (value - self.loc) / self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        z, c = self._standard(value), self._nonzero()
        power = -(1 / c + 1) * torch.log1p(c * z)
        return torch.where(self._is_exponential(), -z, power) - self.scale.log()

    def log_survival_function(self, value: Tensor) -> Tensor:
        """log(1 - F(value))."""
        if self._validate_args:
            self._validate_sample(value)
        z, c = self._standard(value), self._nonzero()
        return torch.where(self._is_exponential(), -z, -torch.log1p(c * z) / c)

    def log_cdf(self, value: Tensor) -> Tensor:
        """log(F(value))."""
        return torch.log1p(-torch.exp(self.log_survival_function(value)))

    def cdf(self, value: Tensor) -> Tensor:
        return torch.exp(self.log_cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        c, tail = self._nonzero(), torch.log1p(-value)
        z = torch.where(self._is_exponential(), -tail, torch.expm1(-c * tail) / c)
        return self.loc + self.scale * z

    @property
    def mean(self) -> Tensor:
        finite = self.loc + self.scale / (1 - self.concentration)
        return torch.where(self.concentration < 1, finite, math.inf)

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        finite = self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c))
        return torch.where(c < 0.5, finite, math.inf)

    def entropy(self) -> Tensor:
        return torch.log(self.scale) + self.concentration + 1

    @property
    def mode(self) -> Tensor:
        return self.loc

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From `loc`; up to loc - scale / c where c is negative."""
        end = self.loc - self.scale / self._nonzero()
        return constraints.interval(self.loc, torch.where(self.concentration < 0, end, math.inf))
