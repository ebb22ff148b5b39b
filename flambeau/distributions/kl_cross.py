"""Kullback-Leibler divergences of distributions of two families; entered into `kl`.

KL(p || q) is -H(p) - E_p[log q]; the moments of p that E_p[log q] needs are closed forms
(Johnson, Kotz and Balakrishnan). It is infinite where p has mass outside the support of q.
"""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.distributions.beta import Beta
from flambeau.distributions.continuous_bernoulli import ContinuousBernoulli
from flambeau.distributions.exponential import Exponential
from flambeau.distributions.gamma import Gamma
from flambeau.distributions.gumbel import Gumbel
from flambeau.distributions.kl import infinite_like, register_kl
from flambeau.distributions.laplace import Laplace
from flambeau.distributions.normal import Normal
from flambeau.distributions.pareto import Pareto
from flambeau.distributions.uniform import Uniform
from flambeau.distributions.utils import EULER

# p has mass where q has none, regardless of the parameters.
OUTSIDE: tuple[tuple[type, tuple[type, ...]], ...] = (
    (Beta, (Pareto,)),
    (ContinuousBernoulli, (Pareto,)),
    (Exponential, (Beta, ContinuousBernoulli, Pareto, Uniform)),
    (Gamma, (Beta, ContinuousBernoulli, Pareto, Uniform)),
    (Gumbel, (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    (Laplace, (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    (Normal, (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    (Pareto, (Beta, ContinuousBernoulli, Uniform)),
)


def _infinite(p: Any, q: Any) -> Tensor:
    return infinite_like(p.entropy())


for _p, _targets in OUTSIDE:
    for _q in _targets:
        register_kl(_p, _q)(_infinite)


def _normal_term(p: Any, q: Any) -> Tensor:
    """-E_p[log q] for a normal q, from the mean and variance of p."""
    second = p.variance + (p.mean - q.loc).pow(2)
    return 0.5 * math.log(2 * math.pi) + q.scale.log() + second / (2 * q.scale.pow(2))


@register_kl(Beta, Normal)
@register_kl(ContinuousBernoulli, Normal)
@register_kl(Exponential, Normal)
@register_kl(Gamma, Normal)
@register_kl(Gumbel, Normal)
@register_kl(Laplace, Normal)
@register_kl(Uniform, Normal)
def _to_normal(p: Any, q: Any) -> Tensor:
    return -p.entropy() + _normal_term(p, q)


@register_kl(Pareto, Normal)
def _pareto_normal(p: Any, q: Any) -> Tensor:
    kl = -p.entropy() + _normal_term(p, q)
    return torch.where(p.alpha <= 2, torch.inf, kl)


@register_kl(Beta, Exponential)
@register_kl(ContinuousBernoulli, Exponential)
@register_kl(Gamma, Exponential)
def _to_exponential(p: Any, q: Any) -> Tensor:
    return -p.entropy() - q.rate.log() + q.rate * p.mean


@register_kl(Pareto, Exponential)
def _pareto_exponential(p: Any, q: Any) -> Tensor:
    return torch.where(p.alpha <= 1, torch.inf, _to_exponential(p, q))


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Any, q: Any) -> Tensor:
    return torch.where(p.low < 0, torch.inf, _to_exponential(p, q))


def _gamma_term(q: Any, mean: Tensor, mean_log: Tensor) -> Tensor:
    """-E_p[log q] for a gamma q, from E_p[x] and E_p[log x]."""
    norm = q.concentration.lgamma() - q.concentration * q.rate.log()
    return norm - (q.concentration - 1) * mean_log + q.rate * mean


@register_kl(Beta, Gamma)
def _beta_gamma(p: Any, q: Any) -> Tensor:
    total = p.concentration1 + p.concentration0
    mean_log = p.concentration1.digamma() - total.digamma()
    return -p.entropy() + _gamma_term(q, p.mean, mean_log)


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Any, q: Any) -> Tensor:
    return -p.entropy() + _gamma_term(q, p.mean, -EULER - p.rate.log())


@register_kl(Pareto, Gamma)
def _pareto_gamma(p: Any, q: Any) -> Tensor:
    mean_log = p.scale.log() + p.alpha.reciprocal()
    kl = -p.entropy() + _gamma_term(q, p.mean, mean_log)
    return torch.where(p.alpha <= 1, torch.inf, kl)


def _uniform_x_log_x(x: Tensor) -> Tensor:
    return torch.special.xlogy(x, x) - x


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Any, q: Any) -> Tensor:
    mean_log = (_uniform_x_log_x(p.high) - _uniform_x_log_x(p.low)) / (p.high - p.low)
    kl = -p.entropy() + _gamma_term(q, p.mean, mean_log)
    return torch.where(p.low < 0, torch.inf, kl)


def _gumbel_term(q: Any, mean: Tensor, mean_exp: Tensor) -> Tensor:
    """-E_p[log q] for a Gumbel q, from E_p[x] and E_p[exp(-x / scale)]."""
    return q.scale.log() + (mean - q.loc) / q.scale + torch.exp(q.loc / q.scale) * mean_exp


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p: Any, q: Any) -> Tensor:
    product = p.rate * q.scale
    return -p.entropy() + _gumbel_term(q, p.mean, product / (product + 1))


@register_kl(Gamma, Gumbel)
def _gamma_gumbel(p: Any, q: Any) -> Tensor:
    mean_exp = (1 + (p.rate * q.scale).reciprocal()).pow(-p.concentration)
    return -p.entropy() + _gumbel_term(q, p.mean, mean_exp)


@register_kl(Normal, Gumbel)
def _normal_gumbel(p: Any, q: Any) -> Tensor:
    exponent = -p.loc / q.scale + 0.5 * (p.scale / q.scale).pow(2) + q.loc / q.scale
    return -p.entropy() + q.scale.log() + (p.loc - q.loc) / q.scale + exponent.exp()


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p: Any, q: Any) -> Tensor:
    low, high = torch.exp(-p.low / q.scale), torch.exp(-p.high / q.scale)
    mean_exp = q.scale * (low - high) / (p.high - p.low)
    return -p.entropy() + _gumbel_term(q, p.mean, mean_exp)


@register_kl(Normal, Laplace)
def _normal_laplace(p: Any, q: Any) -> Tensor:
    gap = p.loc - q.loc
    standard = gap / p.scale
    folded = p.scale * math.sqrt(2 / math.pi) * torch.exp(-0.5 * standard.pow(2))
    distance = folded + gap * torch.erf(standard / math.sqrt(2))
    return -p.entropy() + (2 * q.scale).log() + distance / q.scale


@register_kl(Beta, Uniform)
@register_kl(ContinuousBernoulli, Uniform)
def _unit_uniform(p: Any, q: Any) -> Tensor:
    kl = -p.entropy() + (q.high - q.low).log()
    return torch.where((q.low > 0) | (q.high < 1), torch.inf, kl)


@register_kl(Beta, ContinuousBernoulli)
def _beta_continuous_bernoulli(p: Any, q: Any) -> Tensor:
    return -p.entropy() - p.mean * q.logits - torch.log1p(-q.probs) - q._cont_bern_log_norm()


@register_kl(Uniform, Beta)
def _uniform_beta(p: Any, q: Any) -> Tensor:
    width = p.high - p.low
    log_x = (_uniform_x_log_x(p.high) - _uniform_x_log_x(p.low)) / width
    log_rest = (_uniform_x_log_x(1 - p.low) - _uniform_x_log_x(1 - p.high)) / width
    a, b = q.concentration1, q.concentration0
    norm = a.lgamma() + b.lgamma() - (a + b).lgamma()
    kl = -p.entropy() + norm - (a - 1) * log_x - (b - 1) * log_rest
    return torch.where((p.high > 1) | (p.low < 0), torch.inf, kl)


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous_bernoulli(p: Any, q: Any) -> Tensor:
    kl = -p.entropy() - p.mean * q.logits - torch.log1p(-q.probs) - q._cont_bern_log_norm()
    return torch.where((p.high > 1) | (p.low < 0), torch.inf, kl)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Any, q: Any) -> Tensor:
    mean_log = (_uniform_x_log_x(p.high) - _uniform_x_log_x(p.low)) / (p.high - p.low)
    term = q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * mean_log
    return torch.where(p.low < q.scale, torch.inf, -p.entropy() - term)
