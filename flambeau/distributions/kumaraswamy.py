"""The Kumaraswamy distribution (Kumaraswamy 1980; Jones 2009)."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.distributions import constraints
from flambeau.distributions.transformed_distribution import TransformedDistribution
from flambeau.distributions.transforms import AffineTransform, PowerTransform
from flambeau.distributions.uniform import Uniform
from flambeau.distributions.utils import EULER, broadcast_all

__all__ = ["Kumaraswamy"]


def kumaraswamy_moment(a: Tensor, b: Tensor, n: int) -> Tensor:
    """The n-th moment, b B(1 + n / a, b) (Jones 2009, "Kumaraswamy's distribution").

    Example:
        >>> kumaraswamy_moment(torch.tensor(1.0), torch.tensor(1.0), 1)
        tensor(0.5000)
    """
    first = 1 + n / a
    return torch.exp(b.log() + torch.lgamma(first) + torch.lgamma(b) - torch.lgamma(first + b))


class Kumaraswamy(TransformedDistribution):
    """F(x) = 1 - (1 - x^c1)^c0 on [0, 1].

    Example:
        >>> Kumaraswamy(1.0, 1.0).mean
        tensor(0.5000)
    """

    arg_constraints = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(
            torch.zeros_like(self.concentration0),
            torch.ones_like(self.concentration0),
            validate_args=validate_args,
        )
        transforms = [
            PowerTransform(exponent=self.concentration0.reciprocal()),
            AffineTransform(loc=1.0, scale=-1.0),
            PowerTransform(exponent=self.concentration1.reciprocal()),
        ]
        super().__init__(base, transforms, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Kumaraswamy, _instance)
        new.concentration1 = self.concentration1.expand(batch_shape)
        new.concentration0 = self.concentration0.expand(batch_shape)
        return super().expand(batch_shape, _instance=new)

    @property
    def mean(self) -> Tensor:
        return kumaraswamy_moment(self.concentration1, self.concentration0, 1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        log_mode = a.reciprocal() * (torch.log1p(-a.reciprocal()) + a.log() - torch.log(a * b - 1))
        return torch.where((a < 1) | (b < 1), torch.nan, log_mode.exp())

    @property
    def variance(self) -> Tensor:
        second = kumaraswamy_moment(self.concentration1, self.concentration0, 2)
        return second - torch.pow(self.mean, 2)

    def entropy(self) -> Tensor:
        one, zero = 1 - self.concentration1.reciprocal(), 1 - self.concentration0.reciprocal()
        harmonic = torch.digamma(self.concentration0 + 1) + EULER
        logs = torch.log(self.concentration1) + torch.log(self.concentration0)
        return zero + one * harmonic - logs
