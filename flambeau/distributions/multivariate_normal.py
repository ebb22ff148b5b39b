"""The multivariate normal distribution (Kotz, Balakrishnan and Johnson, ch. 45)."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Distribution
from flambeau.distributions.utils import lazy_property, standard_normal

__all__ = ["MultivariateNormal"]


def batch_mv(matrix: Tensor, vector: Tensor) -> Tensor:
    """Products of matrices with vectors, over broadcast batches.

    Example:
        >>> batch_mv(torch.eye(2), torch.ones(3, 2)).shape
        torch.Size([3, 2])
    """
    return torch.matmul(matrix, vector.unsqueeze(-1)).squeeze(-1)


def batch_mahalanobis(factor: Tensor, x: Tensor) -> Tensor:
    """x^T M^-1 x for the Cholesky factor of M, over broadcast batches.

    Example:
        >>> batch_mahalanobis(2 * torch.eye(2), torch.ones(2))
        tensor(0.5000)
    """
    n = x.size(-1)
    extra = x.dim() - (factor.dim() - 1)
    if extra <= 0:
        shape = torch.broadcast_shapes(x.shape[:-1], factor.shape[:-2])
        columns = x.expand(shape + (n,)).unsqueeze(-1)
        solved = torch.linalg.solve_triangular(factor, columns, upper=False)
        return solved.squeeze(-1).pow(2).sum(-1)
    # One factor for many vectors: the vectors become columns of one right-hand side.
    batch = torch.broadcast_shapes(x.shape[extra:-1], factor.shape[:-2])
    x = x.expand(x.shape[:extra] + batch + (n,))
    lead = x.shape[:extra]
    columns = x.reshape((-1, *batch, n)).movedim(0, -1)
    solved = torch.linalg.solve_triangular(factor, columns, upper=False)
    return solved.pow(2).sum(-2).movedim(-1, 0).reshape(lead + batch)


def precision_to_scale_tril(precision: Tensor) -> Tensor:
    """The Cholesky factor of the inverse of positive definite matrices.

    The factor of the matrix with both axes reversed, reversed and inverted, is triangular again.

    Example:
        >>> precision_to_scale_tril(4 * torch.eye(2))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]])
    """
    reversed_factor = torch.linalg.cholesky(torch.flip(precision, (-2, -1)))
    upper_inverse = torch.flip(reversed_factor, (-2, -1)).mT
    identity = torch.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return torch.linalg.solve_triangular(upper_inverse, identity, upper=False)


def exactly_one(name: str, **matrices: Any) -> tuple[str, Tensor]:
    """The one matrix that is given, with its name.

    Raises:
        ValueError: none, several, or one of fewer than two dimensions.

    Example:
        >>> exactly_one("Normal", scale_tril=torch.eye(2))[0]
        'scale_tril'
    """
    present = [(key, value) for key, value in matrices.items() if value is not None]
    if len(present) != 1:
        raise ValueError(f"[{name}] exactly one of {', '.join(matrices)} must be specified")
    if present[0][1].dim() < 2:
        raise ValueError(f"[{name}] {present[0][0]} must be at least two-dimensional")
    return present[0]


class Covariance:
    """A matrix given as covariance, precision or Cholesky factor; the others are computed.

    Example:
        >>> normal = MultivariateNormal(torch.zeros(2), covariance_matrix=4 * torch.eye(2))
        >>> normal.scale_tril.diagonal()
        tensor([2., 2.])
    """

    _unbroadcasted_scale_tril: Tensor

    def _full(self, factor: Tensor) -> Tensor:
        n = factor.shape[-1]
        return factor.expand((*self._batch_shape, n, n))  # type: ignore[attr-defined]

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance."""
        return self._full(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_scale_tril
        return self._full(torch.matmul(factor, factor.mT))

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        return self._full(torch.cholesky_inverse(self._unbroadcasted_scale_tril))

    def _set_factor(self, name: str, matrix: Tensor) -> None:
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = torch.linalg.cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = precision_to_scale_tril(matrix)

    def _expand_matrices(self, new: Any, shape: Any) -> None:
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        for name in ("covariance_matrix", "scale_tril", "precision_matrix"):
            if name in vars(self):
                matrix = vars(self)[name]
                setattr(new, name, matrix.expand(tuple(shape) + tuple(matrix.shape[-2:])))


class MultivariateNormal(Covariance, Distribution):
    """Normal vectors around `loc`, by covariance, precision or Cholesky factor.

    Raises:
        ValueError: not exactly one of the three matrices.

    Example:
        >>> MultivariateNormal(torch.zeros(2), torch.eye(2)).log_prob(torch.zeros(2))
        tensor(-1.8379)
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("[MultivariateNormal] loc must be at least one-dimensional")
        name, matrix = exactly_one(
            "MultivariateNormal",
            covariance_matrix=covariance_matrix,
            scale_tril=scale_tril,
            precision_matrix=precision_matrix,
        )
        batch = torch.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand(batch + matrix.shape[-2:]))
        self.loc = loc.expand(batch + loc.shape[-1:])
        super().__init__(batch, self.loc.shape[-1:], validate_args=validate_args)
        self._set_factor(name, matrix)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(MultivariateNormal, _instance)
        shape = torch.Size(batch_shape)
        new.loc = self.loc.expand(shape + self.event_shape)
        self._expand_matrices(new, shape)
        return self._finish(new, MultivariateNormal, shape)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        variance = self._unbroadcasted_scale_tril.pow(2).sum(-1)
        return variance.expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.loc + batch_mv(self._unbroadcasted_scale_tril, standard_normal(shape, self.loc))

    def _half_log_det(self) -> Tensor:
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = batch_mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        n = self._event_shape[0]
        return -0.5 * (n * math.log(2 * math.pi) + distance) - self._half_log_det()

    def entropy(self) -> Tensor:
        n = self._event_shape[0]
        entropy = 0.5 * n * (1.0 + math.log(2 * math.pi)) + self._half_log_det()
        return entropy.expand(self._batch_shape)


_precision_to_scale_tril = precision_to_scale_tril
