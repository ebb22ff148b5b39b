"""Normal vectors with covariance W W^T + diag(d), by the Woodbury identity (Hager 1989)."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Distribution
from flambeau.distributions.multivariate_normal import batch_mahalanobis, batch_mv
from flambeau.distributions.utils import lazy_property, standard_normal

__all__ = ["LowRankMultivariateNormal"]


def capacitance_tril(factor: Tensor, diagonal: Tensor) -> Tensor:
    """The Cholesky factor of I + W^T D^-1 W.

    Example:
        >>> capacitance_tril(torch.ones(3, 1), torch.ones(3))
        tensor([[2.]])
    """
    weighted = factor.mT / diagonal.unsqueeze(-2)
    small = torch.matmul(weighted, factor).contiguous()
    identity = torch.eye(factor.size(-1), dtype=factor.dtype, device=factor.device)
    return torch.linalg.cholesky(small + identity)


def lowrank_log_det(factor: Tensor, diagonal: Tensor, capacitance: Tensor) -> Tensor:
    """log det (W W^T + D), by the matrix determinant lemma.

    Example:
        >>> w, d = torch.ones(3, 1), torch.ones(3)
        >>> lowrank_log_det(w, d, capacitance_tril(w, d))
        tensor(1.3863)
    """
    small = 2 * capacitance.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return small + diagonal.log().sum(-1)


def lowrank_mahalanobis(factor: Tensor, diagonal: Tensor, x: Tensor, capacitance: Tensor) -> Tensor:
    """x^T (W W^T + D)^-1 x, by the Woodbury identity.

    Example:
        >>> w, d = torch.ones(3, 1), torch.ones(3)
        >>> lowrank_mahalanobis(w, d, torch.ones(3), capacitance_tril(w, d))
        tensor(0.7500)
    """
    projected = batch_mv(factor.mT / diagonal.unsqueeze(-2), x)
    return (x.pow(2) / diagonal).sum(-1) - batch_mahalanobis(capacitance, projected)


class LowRankMultivariateNormal(Distribution):
    """Normal vectors around `loc` with covariance W W^T + diag(d).

    Args:
        loc: the mean, (..., n).
        cov_factor: W, (..., n, rank).
        cov_diag: d, (..., n).
        validate_args: see `Distribution`.

    Example:
        >>> normal = LowRankMultivariateNormal(torch.zeros(2), torch.ones(2, 1), torch.ones(2))
        >>> normal.covariance_matrix
        tensor([[2., 1.],
                [1., 2.]])
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None
    ) -> None:
        if loc.dim() < 1 or cov_factor.dim() < 2:
            raise ValueError(
                "[LowRankMultivariateNormal] loc needs one dimension or more, cov_factor two"
            )
        event = loc.shape[-1:]
        if cov_factor.shape[-2:-1] != event or cov_diag.shape[-1:] != event:
            raise ValueError(
                f"[LowRankMultivariateNormal] cov_factor must be (..., {event[0]}, rank) and "
                f"cov_diag (..., {event[0]}): {tuple(cov_factor.shape)}, {tuple(cov_diag.shape)}"
            )
        try:
            batch = torch.broadcast_shapes(
                loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1]
            )
        except RuntimeError as error:
            raise ValueError(
                f"[LowRankMultivariateNormal] batch shapes do not broadcast: {tuple(loc.shape)}, "
                f"{tuple(cov_factor.shape)}, {tuple(cov_diag.shape)}"
            ) from error
        self.loc = loc.expand(batch + event)
        self.cov_diag = cov_diag.expand(batch + event)
        self.cov_factor = cov_factor.expand(batch + cov_factor.shape[-2:])
        self._unbroadcasted_cov_factor = cov_factor
        self._unbroadcasted_cov_diag = cov_diag
        self._capacitance_tril = capacitance_tril(cov_factor, cov_diag)
        super().__init__(batch, event, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(LowRankMultivariateNormal, _instance)
        shape = torch.Size(batch_shape)
        new.loc = self.loc.expand(shape + self.event_shape)
        new.cov_diag = self.cov_diag.expand(shape + self.event_shape)
        new.cov_factor = self.cov_factor.expand(shape + self.cov_factor.shape[-2:])
        for name in ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril"):
            setattr(new, name, getattr(self, name))
        return self._finish(new, LowRankMultivariateNormal, shape)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:  # type: ignore[override]
        """The diagonal of the covariance."""
        variance = self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag
        return variance.expand(self._batch_shape + self._event_shape)

    def _full(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance: D^1/2 of that of D^-1/2 W W^T D^-1/2 + I."""
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        identity = torch.eye(self._event_shape[0], dtype=root.dtype, device=root.device)
        return self._full(root * torch.linalg.cholesky(torch.matmul(scaled, scaled.mT) + identity))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """W W^T + diag(d)."""
        factor = self._unbroadcasted_cov_factor
        diagonal = torch.diag_embed(self._unbroadcasted_cov_diag)
        return self._full(torch.matmul(factor, factor.mT) + diagonal)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance, by the Woodbury identity."""
        diagonal = self._unbroadcasted_cov_diag
        weighted = self._unbroadcasted_cov_factor.mT / diagonal.unsqueeze(-2)
        solved = torch.linalg.solve_triangular(self._capacitance_tril, weighted, upper=False)
        inverse = torch.diag_embed(diagonal.reciprocal()) - torch.matmul(solved.mT, solved)
        return self._full(inverse)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        low = standard_normal(shape[:-1] + self.cov_factor.shape[-1:], self.loc)
        own = standard_normal(shape, self.loc)
        common = batch_mv(self._unbroadcasted_cov_factor, low)
        return self.loc + common + self._unbroadcasted_cov_diag.sqrt() * own

    def _log_det(self) -> Tensor:
        return lowrank_log_det(
            self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag, self._capacitance_tril
        )

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = lowrank_mahalanobis(
            self._unbroadcasted_cov_factor,
            self._unbroadcasted_cov_diag,
            value - self.loc,
            self._capacitance_tril,
        )
        n = self._event_shape[0]
        return -0.5 * (n * math.log(2 * math.pi) + self._log_det() + distance)

    def entropy(self) -> Tensor:
        n = self._event_shape[0]
        entropy = 0.5 * (n * (1.0 + math.log(2 * math.pi)) + self._log_det())
        return entropy.expand(self._batch_shape)
