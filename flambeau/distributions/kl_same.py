"""Kullback-Leibler divergences of two distributions of one family; entered into `kl`."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.distributions.bernoulli import Bernoulli
from flambeau.distributions.beta import Beta
from flambeau.distributions.binomial import Binomial
from flambeau.distributions.categorical import Categorical
from flambeau.distributions.cauchy import Cauchy
from flambeau.distributions.continuous_bernoulli import ContinuousBernoulli
from flambeau.distributions.dirichlet import Dirichlet
from flambeau.distributions.exp_family import ExponentialFamily
from flambeau.distributions.exponential import Exponential
from flambeau.distributions.gamma import Gamma
from flambeau.distributions.geometric import Geometric
from flambeau.distributions.gumbel import Gumbel
from flambeau.distributions.half_normal import HalfNormal
from flambeau.distributions.independent import Independent
from flambeau.distributions.kl import infinite_like, kl_divergence, register_kl
from flambeau.distributions.laplace import Laplace
from flambeau.distributions.lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
    lowrank_mahalanobis,
)
from flambeau.distributions.multivariate_normal import MultivariateNormal, batch_mahalanobis
from flambeau.distributions.normal import Normal
from flambeau.distributions.one_hot_categorical import OneHotCategorical
from flambeau.distributions.pareto import Pareto
from flambeau.distributions.poisson import Poisson
from flambeau.distributions.transformed_distribution import TransformedDistribution
from flambeau.distributions.uniform import Uniform
from flambeau.distributions.utils import EULER, sum_rightmost
from flambeau.nn.functional import softplus


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Tensor:
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    zero = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    one = torch.where(q.probs == 0, torch.inf, one)
    zero = torch.where(q.probs == 1, torch.inf, zero)
    return torch.where(p.probs == 0, 0.0, one) + torch.where(p.probs == 1, 0.0, zero)


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Tensor:
    p1, p0, q1, q0 = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    norm_q = q1.lgamma() + q0.lgamma() + (p1 + p0).lgamma()
    norm_p = p1.lgamma() + p0.lgamma() + (q1 + q0).lgamma()
    slopes = (p1 - q1) * torch.digamma(p1) + (p0 - q0) * torch.digamma(p0)
    return norm_q - norm_p + slopes + (q1 + q0 - p1 - p0) * torch.digamma(p1 + p0)


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Tensor:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError(
            "[kl_divergence] Binomial with total_count of p below that of q is not implemented"
        )
    logs = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    kl = p.total_count * logs
    return torch.where(p.total_count > q.total_count, torch.inf, kl)


def _categories(p_probs: Tensor, p_logits: Tensor, q_probs: Tensor, q_logits: Tensor) -> Tensor:
    terms = p_probs * (p_logits - q_logits)
    terms = torch.where((q_probs == 0).expand_as(terms), torch.inf, terms)
    return torch.where((p_probs == 0).expand_as(terms), 0.0, terms).sum(-1)


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Tensor:
    return _categories(p.probs, p.logits, q.probs, q.logits)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: Any) -> Tensor:
    slope = p.mean * (p.logits - q.logits)
    norms = p._cont_bern_log_norm() + torch.log1p(-p.probs)
    return slope + norms - q._cont_bern_log_norm() - torch.log1p(-q.probs)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    norms = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return norms + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _family(p: Any, q: Any) -> Tensor:
    """The Bregman divergence of the log-normalizer (Nielsen and Nock 2010)."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "[kl_divergence] exponential families of two kinds have no common formula"
        )
    p_natural = [v.detach().requires_grad_() for v in p._natural_params]
    normalizer = p._log_normalizer(*p_natural)
    gradients = torch.autograd.grad(normalizer.sum(), p_natural, create_graph=True)
    result = q._log_normalizer(*q._natural_params) - normalizer
    for a, b, gradient in zip(p_natural, q._natural_params, gradients, strict=True):
        result = result - sum_rightmost((b - a) * gradient, len(q.event_shape))
    return result


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    rates = b * (p.rate / q.rate).log() + (q.rate - p.rate) * (a / p.rate)
    return rates + b.lgamma() - a.lgamma() + (a - b) * a.digamma()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Tensor:
    ratio, gap = p.scale / q.scale, (q.loc - p.loc) / q.scale
    tail = torch.exp(gap + (1 + ratio).lgamma())
    return -ratio.log() - gap + ratio * EULER + tail - (1 + EULER)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Tensor:
    return -p.entropy() - torch.log1p(-q.probs) / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Tensor:
    distance = (p.loc - q.loc).abs()
    moment = p.scale * torch.exp(-distance / p.scale) + distance
    return (q.scale / p.scale).log() + moment / q.scale - 1


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Tensor:
    ratio, distance = (p.scale / q.scale).pow(2), ((p.loc - q.loc) / q.scale).pow(2)
    return 0.5 * (ratio + distance - 1 - ratio.log())


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Tensor:
    ratio, shape = p.scale / q.scale, q.alpha / p.alpha
    kl = q.alpha * ratio.log() - shape.log() + shape - 1
    return torch.where(p.support.lower_bound < q.support.lower_bound, torch.inf, kl)


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("[kl_divergence] the distributions have different transforms")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Tensor:
    kl = ((q.high - q.low) / (p.high - p.low)).log()
    return torch.where((q.low > p.low) | (q.high < p.high), torch.inf, kl)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Tensor:
    """Chyzak and Nielsen 2019."""
    widths = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return widths.log() - (4 * p.scale * q.scale).log()


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("[kl_divergence] Independent of different numbers of dimensions")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(Poisson, Bernoulli)
@register_kl(Poisson, Binomial)
def _outside(p: Any, q: Any) -> Tensor:
    return infinite_like(p.rate)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Any, q: Any) -> Tensor:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


# ------------------------------------------------------------------------ normal vectors


def _check_events(p: Any, q: Any) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"[kl_divergence] normal vectors of {p.event_shape[0]} and {q.event_shape[0]} elements"
        )


def _log_det(p: Any) -> Tensor:
    if isinstance(p, LowRankMultivariateNormal):
        return p._log_det()
    return 2 * p._half_log_det()


def _factors(p: Any) -> list[Tensor]:
    """Matrices whose outer products sum to the covariance."""
    if isinstance(p, LowRankMultivariateNormal):
        diagonal = torch.diag_embed(p._unbroadcasted_cov_diag.sqrt())
        return [p._unbroadcasted_cov_factor, diagonal]
    return [p._unbroadcasted_scale_tril]


def _trace(p: Any, q: Any) -> Tensor:
    """tr(Q^-1 P) of the covariances: the columns of P's factors, measured by Q."""
    total: Any = 0
    for factor in _factors(p):
        if isinstance(q, MultivariateNormal):
            n = factor.shape[-2]
            scale = q._unbroadcasted_scale_tril
            batch = torch.broadcast_shapes(factor.shape[:-2], scale.shape[:-2])
            scale, factor = scale.expand((*batch, n, n)), factor.expand(batch + factor.shape[-2:])
            solved = torch.linalg.solve_triangular(scale, factor, upper=False)
            total = total + solved.pow(2).sum((-2, -1))
        else:
            precision = q.precision_matrix
            total = total + (torch.matmul(precision, factor) * factor).sum((-2, -1))
    return total


def _distance(p: Any, q: Any) -> Tensor:
    gap = q.loc - p.loc
    if isinstance(q, MultivariateNormal):
        return batch_mahalanobis(q._unbroadcasted_scale_tril, gap)
    return lowrank_mahalanobis(
        q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag, gap, q._capacitance_tril
    )


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _normal_vectors(p: Any, q: Any) -> Tensor:
    _check_events(p, q)
    n = p.event_shape[0]
    return 0.5 * (_log_det(q) - _log_det(p) + _trace(p, q) + _distance(p, q) - n)
