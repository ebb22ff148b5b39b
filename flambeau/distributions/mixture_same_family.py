"""Mixtures of distributions of one family (McLachlan and Peel, Finite Mixture Models, 2000)."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.distributions import constraints
from flambeau.distributions.categorical import Categorical
from flambeau.distributions.distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A mixture: a `Categorical` chooses an index of the components' last batch dimension.

    Raises:
        ValueError: the shapes do not fit, or the first is no `Categorical`.

    Example:
        >>> weights = torch.distributions.Categorical(torch.tensor([1.0, 3.0]))
        >>> parts = torch.distributions.Normal(torch.tensor([0.0, 4.0]), torch.ones(2))
        >>> MixtureSameFamily(weights, parts).mean
        tensor(3.)
    """

    arg_constraints: dict[str, Any] = {}  # type: ignore[assignment]
    has_rsample = False

    def __init__(
        self,
        mixture_distribution: Any,
        component_distribution: Any,
        validate_args: bool | None = None,
    ) -> None:
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError("[MixtureSameFamily] mixture_distribution must be a Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("[MixtureSameFamily] component_distribution must be a Distribution")
        mixture, components = mixture_distribution.batch_shape, component_distribution.batch_shape
        for a, b in zip(reversed(mixture), reversed(components[:-1]), strict=False):
            if a != 1 and b != 1 and a != b:
                raise ValueError(
                    f"[MixtureSameFamily] batch shapes do not fit: {tuple(mixture)} of weights, "
                    f"{tuple(components)} of the components"
                )
        count = components[-1]
        if count != mixture_distribution.logits.shape[-1]:
            raise ValueError(
                f"[MixtureSameFamily] {mixture_distribution.logits.shape[-1]} weights for {count} "
                "components"
            )
        self._num_component = count
        event = component_distribution.event_shape
        self._event_ndims = len(event)
        super().__init__(components[:-1], event, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        shape = torch.Size(batch_shape)
        new._component_distribution = self._component_distribution.expand(
            (*shape, self._num_component)
        )
        new._mixture_distribution = self._mixture_distribution.expand(shape)
        new._num_component = self._num_component
        new._event_ndims = self._event_ndims
        return self._finish(new, MixtureSameFamily, shape)

    @constraints.dependent_property
    def support(self) -> Any:
        """The support of every component."""
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """The weights."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """The components."""
        return self._component_distribution

    def _weights(self) -> Tensor:
        weights = self.mixture_distribution.probs
        return weights.reshape(weights.shape + (1,) * self._event_ndims)

    def _average(self, values: Tensor) -> Tensor:
        return torch.sum(self._weights() * values, dim=-1 - self._event_ndims)

    @property
    def mean(self) -> Tensor:
        return self._average(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        """The mean of the variances plus the variance of the means."""
        means = self.component_distribution.mean
        offset = means - self.mean.unsqueeze(-1 - self._event_ndims)
        return self._average(self.component_distribution.variance) + self._average(offset.pow(2))

    def cdf(self, x: Tensor) -> Tensor:
        x = self._padded(x)
        return torch.sum(self.component_distribution.cdf(x) * self.mixture_distribution.probs, -1)

    def log_prob(self, x: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(x)
        log_prob = self.component_distribution.log_prob(self._padded(x))
        weights = torch.log_softmax(self.mixture_distribution.logits, dim=-1)
        return torch.logsumexp(log_prob + weights, dim=-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            axis = len(sample_shape) + len(self.batch_shape)
            index = self.mixture_distribution.sample(sample_shape)
            samples = self.component_distribution.sample(sample_shape)
            index = index.reshape(index.shape + (1,) * (self._event_ndims + 1))
            repeats = (1,) * (len(index.shape) - self._event_ndims) + tuple(self.event_shape)
            return torch.gather(samples, axis, index.repeat(repeats)).squeeze(axis)

    def _padded(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-1 - self._event_ndims)

    def __repr__(self) -> str:
        parts = f"\n  {self.mixture_distribution},\n  {self.component_distribution}"
        return f"MixtureSameFamily({parts})"
