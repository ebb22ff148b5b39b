"""Distributions of transformed samples, by the change of variables."""

from __future__ import annotations

import functools
import operator
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Distribution
from flambeau.distributions.independent import Independent
from flambeau.distributions.transforms import ComposeTransform, Transform
from flambeau.distributions.utils import sum_rightmost

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of y = t(x) for x of a base distribution.

    The density is p(x) / |dt/dx| at x = t^-1(y).

    Args:
        base_distribution: the distribution of x.
        transforms: one transform, or several that are applied in order.
        validate_args: see `Distribution`.

    Raises:
        ValueError: something that is no transform, or a base of too few dimensions.

    Example:
        >>> t = torch.distributions.ExpTransform()
        >>> TransformedDistribution(torch.distributions.Normal(0.0, 1.0), t).sample().dim()
        0
    """

    arg_constraints: dict[str, Any] = {}  # type: ignore[assignment]

    def __init__(
        self, base_distribution: Any, transforms: Any, validate_args: bool | None = None
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else transforms
        right = isinstance(self.transforms, list)
        if not right or not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError(
                f"[TransformedDistribution] transforms must be a Transform or a list, got "
                f"{transforms!r}"
            )
        shape = base_distribution.batch_shape + base_distribution.event_shape
        event_dim = len(base_distribution.event_shape)
        transform = ComposeTransform(self.transforms)
        if len(shape) < transform.domain.event_dim:
            raise ValueError(
                f"[TransformedDistribution] the base needs {transform.domain.event_dim} dimensions "
                f"or more, its shape is {tuple(shape)}"
            )
        forward_shape = transform.forward_shape(shape)
        base_shape = transform.inverse_shape(forward_shape)
        base = base_distribution
        if base_shape != shape:
            base = base.expand(base_shape[: len(base_shape) - event_dim])
        missing = transform.domain.event_dim - event_dim
        self.base_dist = Independent(base, missing) if missing > 0 else base
        gained = transform.codomain.event_dim - transform.domain.event_dim
        final = max(transform.codomain.event_dim, event_dim + gained)
        cut = len(forward_shape) - final
        super().__init__(forward_shape[:cut], forward_shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(TransformedDistribution, _instance)
        shape = torch.Size(batch_shape)
        transform = ComposeTransform(self.transforms)
        base_shape = transform.inverse_shape(shape + self.event_shape)
        event = len(self.base_dist.event_shape)
        new.base_dist = self.base_dist.expand(base_shape[: len(base_shape) - event])
        new.transforms = self.transforms
        return self._finish(new, TransformedDistribution, shape)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """Codomain of the last transform, as events of the distribution."""
        if not self.transforms:
            return self.base_dist.support
        codomain = self.transforms[-1].codomain
        missing = len(self.event_shape) - codomain.event_dim
        return constraints.independent(codomain, missing) if missing > 0 else codomain

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether the base has differentiable samples."""
        return self.base_dist.has_rsample

    def _forward(self, x: Tensor) -> Tensor:
        return functools.reduce(lambda value, t: t(value), self.transforms, x)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        event_dim, result, y = len(self.event_shape), 0.0, value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            jacobian = transform.log_abs_det_jacobian(x, y)
            result = result - sum_rightmost(jacobian, event_dim - transform.domain.event_dim)
            y = x
        base = self.base_dist.log_prob(y)
        return result + sum_rightmost(base, event_dim - len(self.base_dist.event_shape))

    def _monotonized(self, value: Any) -> Any:
        """Probabilities mirrored where the transforms decrease."""
        sign = functools.reduce(operator.mul, (t.sign for t in self.transforms), 1)
        if isinstance(sign, int) and sign == 1:
            return value
        return sign * (value - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._monotonized(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._monotonized(value)))
