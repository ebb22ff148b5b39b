"""The Wishart distribution (Wishart 1928; sampling: Bartlett 1933, Sawyer 2007)."""

from __future__ import annotations

import math
import warnings
from typing import Any

import flambeau as torch
from flambeau import Size, Tensor
from flambeau.distributions import constraints
from flambeau.distributions.chi2 import Chi2
from flambeau.distributions.exp_family import ExponentialFamily
from flambeau.distributions.multivariate_normal import Covariance, exactly_one
from flambeau.distributions.utils import is_tensor_like

__all__ = ["Wishart"]


def mvdigamma(x: Tensor, p: int) -> Tensor:
    """The derivative of the multivariate log-gamma function of dimension p.

    Example:
        >>> mvdigamma(torch.tensor(1.0), 1)
        tensor(-0.5772)
    """
    steps = torch.arange(p, dtype=x.dtype, device=x.device).div(2)
    return torch.digamma(x.unsqueeze(-1) - steps.expand(x.shape + (-1,))).sum(-1)


class Wishart(Covariance, ExponentialFamily):
    """Positive definite matrices: sums of `df` outer products of normal vectors.

    Args:
        df: degrees of freedom, above the number of rows minus 1.
        covariance_matrix, precision_matrix, scale_tril: the scale, one of the three.
        validate_args: see `Distribution`.

    Raises:
        ValueError: too few degrees of freedom, or not exactly one matrix.

    Example:
        >>> Wishart(torch.tensor(3.0), torch.eye(2)).mean
        tensor([[3., 0.],
                [0., 3.]])
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        df: Any,
        covariance_matrix: Any = None,
        precision_matrix: Any = None,
        scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = exactly_one(
            "Wishart",
            covariance_matrix=covariance_matrix,
            scale_tril=scale_tril,
            precision_matrix=precision_matrix,
        )
        if is_tensor_like(df):
            batch = torch.broadcast_shapes(matrix.shape[:-2], df.shape)
            self.df = df.expand(batch)
        else:
            batch = torch.Size(matrix.shape[:-2])
            self.df = torch.tensor(df, dtype=matrix.dtype, device=matrix.device).expand(batch)
        event = matrix.shape[-2:]
        if self.df.le(event[-1] - 1).any():
            raise ValueError(
                f"[Wishart] df must be greater than the rows minus 1, {event[-1] - 1}: {df}"
            )
        setattr(self, name, matrix.expand(batch + event))
        if self.df.lt(event[-1]).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for "
                "ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        super().__init__(batch, event, validate_args=validate_args)
        self._set_factor(name, matrix)
        self._dist_chi2 = self._chi2()

    def _chi2(self) -> Chi2:
        steps = torch.arange(self._event_shape[-1], dtype=self.df.dtype, device=self.df.device)
        return Chi2(df=self.df.unsqueeze(-1) - steps.expand((*self._batch_shape, -1)))

    @property
    def arg_constraints(self) -> dict[str, Any]:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Wishart, _instance)
        shape = Size(batch_shape)
        self._expand_matrices(new, shape)
        new.df = self.df.expand(shape)
        self._finish(new, Wishart, shape)
        new._dist_chi2 = new._chi2()
        return new

    def _df(self) -> Tensor:
        return self.df.view((*self._batch_shape, 1, 1))

    @property
    def mean(self) -> Tensor:
        return self._df() * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self._event_shape[-1] - 1
        factor = torch.where(factor <= 0, torch.nan, factor)
        return factor.view((*self._batch_shape, 1, 1)) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self._df() * (v.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _bartlett_sampling(self, sample_shape: Any = ()) -> Tensor:
        """L A A^T L^T with chi numbers on the diagonal of A and normal ones below it."""
        p = self._event_shape[-1]
        noise = self._dist_chi2.rsample(sample_shape).sqrt()
        eps = torch.finfo(noise.dtype).eps
        noise = noise.clamp(min=eps).diag_embed(dim1=-2, dim2=-1)
        rows, columns = torch.tril_indices(p, p, offset=-1)
        shape = Size(sample_shape) + self._batch_shape + (p * (p - 1) // 2,)
        below = torch.randn(shape, dtype=noise.dtype, device=noise.device)
        noise[..., rows, columns] = below
        factor = self._unbroadcasted_scale_tril @ noise
        return factor @ factor.mT

    def rsample(self, sample_shape: Any = (), max_try_correction: int | None = None) -> Tensor:
        """Samples; those that rounding made singular are drawn again a few times.

        For equal seeds to give PyTorch's numbers, the first round draws again what passes the
        check, as PyTorch does; this changes no distribution.

        Args:
            sample_shape: see `Distribution.rsample`.
            max_try_correction: how often; 3 for ten rows or more, else 10.
        """
        tries = 3 if self._event_shape[-1] >= 10 else 10
        tries = tries if max_try_correction is None else max_try_correction
        sample = self._bartlett_sampling(Size(sample_shape))
        again = self._of_batch(self.support.check(sample))
        for _ in range(tries):
            if not again.any():
                break
            drawn = self._bartlett_sampling(Size((int(again.sum()),)))
            sample, mask = sample.clone(), again.clone()
            sample[mask] = drawn
            again[mask] = self._of_batch(~self.support.check(drawn))
        if again.any():
            warnings.warn("Singular sample detected.", stacklevel=2)
        return sample

    def _of_batch(self, flags: Tensor) -> Tensor:
        """True for samples with a flag anywhere in the batch."""
        count = len(self._batch_shape)
        return flags.flatten(-count).any(-1) if count else flags

    def _half_log_det(self) -> Tensor:
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        nu, p = self.df, self._event_shape[-1]
        solved = torch.cholesky_solve(value, self._unbroadcasted_scale_tril)
        trace = solved.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
        return (
            -nu * (p * math.log(2) / 2 + self._half_log_det())
            - torch.mvlgamma(nu / 2, p=p)
            + (nu - p - 1) / 2 * torch.linalg.slogdet(value).logabsdet
            - trace / 2
        )

    def entropy(self) -> Tensor:
        nu, p = self.df, self._event_shape[-1]
        return (
            (p + 1) * (p * math.log(2) / 2 + self._half_log_det())
            + torch.mvlgamma(nu / 2, p=p)
            - (nu - p - 1) / 2 * mvdigamma(nu / 2, p=p)
            + nu * p / 2
        )

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        nu, p = self.df, self._event_shape[-1]
        return -self.precision_matrix / 2, (nu - p - 1) / 2

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        p = self._event_shape[-1]
        log_det = -torch.linalg.slogdet(-2 * x).logabsdet
        return (y + (p + 1) / 2) * (log_det + math.log(2) * p) + torch.mvlgamma(
            y + (p + 1) / 2, p=p
        )
