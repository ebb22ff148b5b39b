"""The Dirichlet distribution (Kotz, Balakrishnan and Johnson, Continuous Multivariate, ch. 49)."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.distributions import constraints
from flambeau.distributions.exp_family import ExponentialFamily

__all__ = ["Dirichlet"]

STEP, FIRST, COUNT = 0.125, -4.0, 97  # nodes of the quadrature


def beta_gradient(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The derivative by `a` of the quantile x of Beta(a, b), divided by 1 - x.

    It is -(dI/da) / p for the distribution function I and the density p (implicit
    differentiation, Figurnov, Mohamed and Mnih 2018). dI/da is the integral of p(t) (E[log t] -
    log t), taken over the side of x away from the mean, with the double exponential rule of
    Takahasi and Mori (1974).

    Example:
        >>> half = torch.tensor(0.5)
        >>> beta_gradient(half, torch.tensor(1.0), torch.tensor(1.0))  # x = u ** (1 / a)
        tensor(0.6931)
    """
    x64, a, b = (v.double() for v in (x, a, b))
    x64 = x64.clamp(1e-300, 1 - 1e-16)
    mean_log = torch.digamma(a) - torch.digamma(a + b)
    below = x64 < a / (a + b)
    near = torch.where(below, x64, 1 - x64)  # the integral runs over t = near * exp(-s)
    power = torch.where(below, a, b)
    other = torch.where(below, b, a)
    slope = (power - (other - 1) * near / (1 - near)).abs()
    curvature = (other - 1).abs() * near / (1 - near) ** 2
    scale = 2 / (slope + (slope**2 + 2 * curvature).sqrt() + 1e-300)
    t = FIRST + STEP * torch.arange(COUNT, dtype=torch.float64, device=x.device)
    u = torch.exp(t - torch.exp(-t))
    s = scale.unsqueeze(-1) * u
    weight = STEP * scale.unsqueeze(-1) * u * (1 + torch.exp(-t))
    share = near.unsqueeze(-1) * torch.exp(-s)
    ratio = torch.log1p(-share) - torch.log1p(-near).unsqueeze(-1)
    density = torch.exp((other - 1).unsqueeze(-1) * ratio - power.unsqueeze(-1) * s)
    log_t = torch.where(below.unsqueeze(-1), x64.log().unsqueeze(-1) - s, torch.log1p(-share))
    side = torch.where(below, 1.0, -1.0)
    integral = (weight * density * (mean_log.unsqueeze(-1) - log_t)).sum(-1)
    return (side * near * integral / (1 - x64)).to(x.dtype)


class _Sample(torch.autograd.Function):
    """Dirichlet samples with the derivative of their marginals, which are beta distributed."""

    generate_vmap_rule = True

    @staticmethod
    def forward(concentration: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        concentration, x = ctx.saved_tensors
        total = concentration.sum(-1, True)
        marginal = beta_gradient(x, concentration, total - concentration)
        return marginal * (grad - (x * grad).sum(-1, True)), None


def sample_dirichlet(concentration: Tensor) -> Tensor:
    """Normalized gamma samples, drawn in float64; differentiable by the concentration.

    Example:
        >>> sample_dirichlet(torch.ones(3)).sum()
        tensor(1.)
    """
    return _Sample.apply(concentration, draw(concentration))


def draw(concentration: Tensor, generator: Any = None) -> Tensor:
    """Normalized gamma samples, without a gradient."""
    with torch.no_grad():
        gammas = torch._standard_gamma(concentration.double(), generator)
        value = (gammas / gammas.sum(-1, True)).to(concentration.dtype)
        return value.clamp(min=torch.finfo(concentration.dtype).tiny)


class Dirichlet(ExponentialFamily):
    """The Dirichlet distribution: probability vectors, around `concentration` normalized.

    Example:
        >>> Dirichlet(torch.tensor([1.0, 3.0])).mean
        tensor([0.2500, 0.7500])
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("[Dirichlet] concentration must be at least one-dimensional")
        self.concentration = concentration
        shape = concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Dirichlet, _instance)
        shape = torch.Size(batch_shape)
        new.concentration = self.concentration.expand(shape + self.event_shape)
        return self._finish(new, Dirichlet, shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return (
            torch.xlogy(self.concentration - 1.0, value).sum(-1)
            + torch.lgamma(self.concentration.sum(-1))
            - torch.lgamma(self.concentration).sum(-1)
        )

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, True)
        corner = self.concentration.argmax(-1, keepdim=True)
        index = torch.arange(self.event_shape[0], device=mode.device)
        flat = (self.concentration < 1).all(-1, keepdim=True)
        return torch.where(flat, (index == corner).to(mode), mode)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def entropy(self) -> Tensor:
        k, total = self.concentration.size(-1), self.concentration.sum(-1)
        return (
            torch.lgamma(self.concentration).sum(-1)
            - torch.lgamma(total)
            - (k - total) * torch.digamma(total)
            - ((self.concentration - 1.0) * torch.digamma(self.concentration)).sum(-1)
        )

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (self.concentration,)

    def _log_normalizer(self, x: Any) -> Any:
        return x.lgamma().sum(-1) - torch.lgamma(x.sum(-1))
