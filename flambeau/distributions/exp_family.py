"""Exponential families: the entropy from the log-normalizer (Nielsen and Nock 2010)."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.distributions.distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """Distributions with density exp(t(x)·θ - F(θ) + k(x)).

    Subclasses give the natural parameters θ, the log-normalizer F and the mean of k, and get the
    entropy F(θ) - θ·∇F(θ) - E[k(x)] ("Entropies and cross-entropies of exponential families",
    Nielsen and Nock, ICIP 2010).

    Example:
        >>> isinstance(torch.distributions.Poisson(2.0), ExponentialFamily)
        True
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError(f"[{type(self).__name__}] has no _natural_params")

    def _log_normalizer(self, *natural_params: Any) -> Any:
        raise NotImplementedError(f"[{type(self).__name__}] has no _log_normalizer")

    @property
    def _mean_carrier_measure(self) -> float:
        raise NotImplementedError(f"[{type(self).__name__}] has no _mean_carrier_measure")

    def entropy(self) -> Tensor:
        """The entropy, by the derivative of the log-normalizer."""
        constant = -self._mean_carrier_measure
        natural = [p.detach().requires_grad_() for p in self._natural_params]
        with torch.enable_grad():
            normalizer = self._log_normalizer(*natural)
            gradients = torch.autograd.grad(normalizer.sum(), natural, create_graph=True)
        result = normalizer + constant
        for parameter, gradient in zip(natural, gradients, strict=True):
            product = parameter * gradient
            result = result - product.reshape(*self._batch_shape, -1).sum(-1)
        return result
