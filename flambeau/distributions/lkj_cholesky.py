"""The LKJ distribution of correlation matrices (Lewandowski, Kurowicka and Joe 2009)."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau import Tensor
from flambeau.distributions import constraints
from flambeau.distributions.beta import Beta
from flambeau.distributions.distribution import Distribution
from flambeau.distributions.utils import broadcast_all

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices with density proportional to det^(c - 1).

    Samples are drawn by the onion method: row by row, a beta-distributed length times a uniform
    direction.

    Args:
        dim: rows of the matrices.
        concentration: 1 is uniform over correlation matrices.
        validate_args: see `Distribution`.

    Raises:
        ValueError: fewer than two rows.

    Example:
        >>> factor = LKJCholesky(3, 0.5).sample()
        >>> (factor @ factor.T).diagonal()
        tensor([1.0000, 1.0000, 1.0000])
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(f"[LKJCholesky] dim must be an integer of at least 2, got {dim}")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        rows = torch.arange(
            dim - 1, dtype=self.concentration.dtype, device=self.concentration.device
        )
        offset = torch.cat([rows.new_zeros((1,)), rows])
        marginal = self.concentration + 0.5 * (dim - 2)
        self._beta = Beta(offset + 0.5, marginal.unsqueeze(-1) - 0.5 * offset)
        batch, event = self.concentration.size(), torch.Size((dim, dim))
        super().__init__(batch, event, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(LKJCholesky, _instance)
        shape = torch.Size(batch_shape)
        new.dim = self.dim
        new.concentration = self.concentration.expand(shape)
        new._beta = self._beta.expand((*shape, self.dim))
        return self._finish(new, LKJCholesky, shape)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            squared = self._beta.sample(sample_shape).unsqueeze(-1)
            shape = self._extended_shape(sample_shape)
            normal = torch.randn(shape, dtype=squared.dtype, device=squared.device).tril(-1)
            direction = normal / normal.norm(dim=-1, keepdim=True)
            direction[..., 0, :].fill_(0.0)  # the first row holds its 1 alone
            w = torch.sqrt(squared) * direction
            tiny = torch.finfo(w.dtype).tiny
            diagonal = torch.clamp(1 - torch.sum(w**2, dim=-1), min=tiny).sqrt()
            return w + torch.diag_embed(diagonal)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = torch.arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        unnormalized = torch.sum(order * diagonal.log(), dim=-1)
        less = self.dim - 1
        alpha = self.concentration + 0.5 * less
        # The normalizer of page 1999 of the paper.
        denominator = torch.lgamma(alpha) * less
        numerator = torch.mvlgamma(alpha - 0.5, less)
        return unnormalized - (0.5 * less * math.log(math.pi) + numerator - denominator)
