"""The von Mises distribution (Mardia and Jupp 2000; sampling: Best and Fisher 1979)."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Distribution
from flambeau.distributions.utils import broadcast_all, lazy_property

__all__ = ["VonMises"]


def rejection_sample(loc: Tensor, concentration: Tensor, r: Tensor, shape: Any) -> Tensor:
    """Angles by rejection from a wrapped Cauchy distribution (Best and Fisher 1979).

    Example:
        >>> one = torch.ones(())
        >>> rejection_sample(one, one, one * 2, (3,)).shape
        torch.Size([3])
    """
    x = loc.new_zeros(shape)
    done = torch.zeros(shape, dtype=torch.bool, device=loc.device)
    while not done.all():
        u1, u2, u3 = torch.rand((3, *shape), dtype=loc.dtype, device=loc.device).unbind()
        z = torch.cos(math.pi * u1)
        f = (1 + r * z) / (r + z)
        c = concentration * (r - f)
        accept = ((c * (2 - c) - u2) > 0) | ((c / u2).log() + 1 - c >= 0)
        if accept.any():
            x = torch.where(accept, (u3 - 0.5).sign() * f.acos(), x)
            done = done | accept
    return (x + math.pi + loc) % (2 * math.pi) - math.pi


def log_bessel(x: Tensor, order: int) -> Tensor:
    """log I_order(x) of the modified Bessel functions of order 0 and 1.

    Example:
        >>> log_bessel(torch.tensor(0.0), 0)
        tensor(0.)
    """
    scaled = torch.special.i0e(x) if order == 0 else torch.special.i1e(x)
    return x + scaled.log()


class VonMises(Distribution):
    """A circular distribution: density proportional to exp(concentration cos(x - loc)).

    Example:
        >>> VonMises(torch.tensor(0.0), torch.tensor(4.0)).log_prob(torch.tensor(0.0))
        tensor(-0.2628)
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        shape = self.loc.shape
        super().__init__(shape, torch.Size(), validate_args)

    @lazy_property
    def _proposal_r(self) -> Tensor:
        kappa = self.concentration.double()
        tau = 1 + (1 + 4 * kappa**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
        r = (1 + rho**2) / (2 * rho)
        return torch.where(kappa < 1e-5, 1 / kappa + kappa, r)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        exponent = self.concentration * torch.cos(value - self.loc)
        return exponent - math.log(2 * math.pi) - log_bessel(self.concentration, 0)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with torch.no_grad():
            loc, concentration = self.loc.double(), self.concentration.double()
            angles = rejection_sample(loc, concentration, self._proposal_r, shape)
            return angles.to(self.loc.dtype)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        self._get_checked_instance(VonMises, _instance)
        loc, concentration = self.loc.expand(batch_shape), self.concentration.expand(batch_shape)
        return type(self)(loc, concentration, validate_args=self._validate_args)

    @property
    def mean(self) -> Tensor:
        """The circular mean."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:  # type: ignore[override]
        """The circular variance, 1 - I1 / I0."""
        return 1 - (log_bessel(self.concentration, 1) - log_bessel(self.concentration, 0)).exp()
