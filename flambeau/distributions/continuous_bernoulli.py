"""The continuous Bernoulli distribution (Loaiza-Ganem and Cunningham 2019)."""

from __future__ import annotations

import math
from numbers import Number
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.distributions import constraints
from flambeau.distributions.exp_family import ExponentialFamily
from flambeau.distributions.utils import Odds, broadcast_all, clamp_probs, probs_to_logits
from flambeau.nn.functional import binary_cross_entropy_with_logits

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(Odds, ExponentialFamily):
    """Density proportional to probs^x (1 - probs)^(1 - x) on [0, 1].

    Args:
        probs, logits: the parameter, one of the two.
        lims: around 1/2 the closed forms cancel; between these limits a Taylor series is used.
        validate_args: see `Distribution`.

    Example:
        >>> ContinuousBernoulli(0.5).mean
        tensor(0.5000)
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        name = self._either(probs, logits)
        parameter = logits if probs is None else probs
        (value,) = broadcast_all(parameter)
        if probs is not None:
            if validate_args is not None and not constraints.unit_interval.check(value).all():
                raise ValueError("[ContinuousBernoulli] the parameter probs has invalid values")
            value = clamp_probs(value)
        setattr(self, name, value)
        self._lims = lims
        batch = torch.Size() if isinstance(parameter, Number) else value.size()
        super().__init__(batch, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(ContinuousBernoulli, _instance)
        new._lims = self._lims
        shape = torch.Size(batch_shape)
        for name in ("probs", "logits"):
            if name in vars(self):
                setattr(new, name, vars(self)[name].expand(shape))
        return self._finish(new, ContinuousBernoulli, shape)

    def _outside(self) -> Tensor:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self) -> Tensor:
        low = self._lims[0] * torch.ones_like(self.probs)
        return torch.where(self._outside(), self.probs, low)

    def _cont_bern_log_norm(self) -> Tensor:
        """log of the density's normalizer, 2 artanh(1 - 2 p) / (1 - 2 p)."""
        p = self._cut_probs()
        below = torch.where(p <= 0.5, p, torch.zeros_like(p))
        above = torch.where(p >= 0.5, p, torch.ones_like(p))
        odds = torch.log(torch.abs(torch.log1p(-p) - torch.log(p)))
        gap = torch.where(p <= 0.5, torch.log1p(-2.0 * below), torch.log(2.0 * above - 1.0))
        squared = (self.probs - 0.5) ** 2
        series = math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * squared) * squared
        return torch.where(self._outside(), odds - gap, series)

    @property
    def mean(self) -> Tensor:
        p = self._cut_probs()
        closed = p / (2.0 * p - 1.0) + 1.0 / (torch.log1p(-p) - torch.log(p))
        x = self.probs - 0.5
        series = 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x**2) * x
        return torch.where(self._outside(), closed, series)

    @property
    def stddev(self) -> Tensor:
        return torch.sqrt(self.variance)

    @property
    def variance(self) -> Tensor:
        p = self._cut_probs()
        closed = p * (p - 1.0) / (1.0 - 2.0 * p) ** 2 + 1.0 / (torch.log1p(-p) - torch.log(p)) ** 2
        x = (self.probs - 0.5) ** 2
        series = 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x
        return torch.where(self._outside(), closed, series)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(torch.rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        bernoulli = -binary_cross_entropy_with_logits(logits, value, reduction="none")
        return bernoulli + self._cont_bern_log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        p = self._cut_probs()
        powers = torch.pow(p, value) * torch.pow(1.0 - p, 1.0 - value)
        inside = torch.where(self._outside(), (powers + p - 1.0) / (2.0 * p - 1.0), value)
        clamped = torch.where(torch.le(value, 0.0), torch.zeros_like(inside), inside)
        return torch.where(torch.ge(value, 1.0), torch.ones_like(inside), clamped)

    def icdf(self, value: Tensor) -> Tensor:
        p = self._cut_probs()
        numerator = torch.log1p(-p + value * (2.0 * p - 1.0)) - torch.log1p(-p)
        quantile = numerator / (torch.log(p) - torch.log1p(-p))
        return torch.where(self._outside(), quantile, value)

    def entropy(self) -> Tensor:
        log_fail, log_odds = torch.log1p(-self.probs), probs_to_logits(self.probs, is_binary=True)
        return -self.mean * log_odds - self._cont_bern_log_norm() - log_fail

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (self.logits,)

    def _log_normalizer(self, x: Any) -> Any:
        outside = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        cut = torch.where(outside, x, (self._lims[0] - 0.5) * torch.ones_like(x))
        closed = torch.log(torch.abs(torch.special.expm1(cut))) - torch.log(torch.abs(cut))
        series = 0.5 * x + torch.pow(x, 2) / 24.0 - torch.pow(x, 4) / 2880.0
        return torch.where(outside, closed, series)
