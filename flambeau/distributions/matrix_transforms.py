"""Transforms of vectors, matrices and of parts of tensors; public in `transforms`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.basic_transforms import Transform
from flambeau.distributions.utils import sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix
from flambeau.nn.functional import pad, softplus


class _OfEvents(Transform):
    """A function of whole events, without parameters."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    __hash__ = object.__hash__


class SoftmaxTransform(_OfEvents):
    """y = softmax(x): not bijective, and its inverse is log(y).

    Example:
        >>> SoftmaxTransform()(torch.zeros(2))
        tensor([0.5000, 0.5000])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Any) -> Any:
        odds = (x - x.max(-1, True)[0]).exp()
        return odds / odds.sum(-1, True)

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        return _at_least(1, shape)

    def inverse_shape(self, shape: Any) -> Any:
        return _at_least(1, shape)


def _at_least(count: int, shape: Any) -> Any:
    if len(shape) < count:
        raise ValueError(f"[Transform] {tuple(shape)} has too few dimensions")
    return shape


class StickBreakingTransform(_OfEvents):
    """From n - 1 real numbers to n probabilities: each takes a share of the remainder.

    A number x_k takes sigmoid(x_k - log(n - k)) of the rest (Carpenter et al., "Stan", 2017), so
    that zeros give equal probabilities.

    Example:
        >>> StickBreakingTransform()(torch.zeros(2))
        tensor([0.3333, 0.3333, 0.3333])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def _offset(self, x: Any) -> Any:
        count = x.shape[-1]
        return torch.arange(count, 0, -1, dtype=x.dtype, device=x.device).log()

    def _call(self, x: Any) -> Any:
        share = torch.sigmoid(x - self._offset(x))
        remaining = (1 - share).cumprod(-1)
        return pad(share, [0, 1], value=1) * pad(remaining, [1, 0], value=1)

    def _inverse(self, y: Any) -> Any:
        taken = y[..., :-1]
        remaining = (1 - taken.cumsum(-1)).clamp(min=torch.finfo(y.dtype).tiny)
        return taken.log() - remaining.log() + self._offset(taken)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        x = x - self._offset(x)
        # dy_k/dx_k = y_k (1 - sigmoid(x_k)), and the Jacobian is triangular.
        return (y[..., :-1].log() - softplus(x)).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        shape = _at_least(1, shape)
        return shape[:-1] + (shape[-1] + 1,)

    def inverse_shape(self, shape: Any) -> Any:
        shape = _at_least(1, shape)
        return shape[:-1] + (shape[-1] - 1,)


class LowerCholeskyTransform(_OfEvents):
    """From matrices to lower triangular ones with a positive diagonal.

    Example:
        >>> LowerCholeskyTransform()(torch.zeros(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_OfEvents):
    """From matrices to positive definite ones: L L^T of a `LowerCholeskyTransform`.

    Example:
        >>> PositiveDefiniteTransform()(torch.zeros(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Any) -> Any:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Any) -> Any:
        return LowerCholeskyTransform().inv(torch.linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """From D (D - 1) / 2 real numbers to Cholesky factors of D x D correlation matrices.

    tanh of each number is a canonical partial correlation; each row is broken like a stick from
    its squares (Lewandowski, Kurowicka and Joe 2009).

    Example:
        >>> CorrCholeskyTransform()(torch.zeros(1))
        tensor([[1., 0.],
                [0., 1.]])
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Any) -> Any:
        x = torch.tanh(x)
        eps = torch.finfo(x.dtype).eps
        partial = vec_to_tril_matrix(x.clamp(min=-1 + eps, max=1 - eps), diag=-1)
        remaining = (1 - partial**2).sqrt().cumprod(-1)
        identity = torch.eye(partial.shape[-1], dtype=x.dtype, device=x.device)
        return (partial + identity) * pad(remaining[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Any) -> Any:
        remaining = 1 - torch.cumsum(y * y, dim=-1)
        before = pad(remaining[..., :-1], [1, 0], value=1)
        flat, scale = tril_matrix_to_vec(y, diag=-1), tril_matrix_to_vec(before, diag=-1)
        partial = flat / scale.sqrt()
        return (partial.log1p() - partial.neg().log1p()) / 2

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Any:
        remaining = 1 - (y * y).cumsum(dim=-1)
        stick = 0.5 * tril_matrix_to_vec(remaining, diag=-2).log().sum(-1)
        tanh = -2 * (x + softplus(-2 * x) - math.log(2.0)).sum(dim=-1)
        return stick + tanh

    def forward_shape(self, shape: Any) -> Any:
        count = _at_least(1, shape)[-1]
        size = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != count:
            raise ValueError(f"[CorrCholeskyTransform] {count} is not D (D - 1) / 2 for any D")
        return shape[:-1] + (size, size)

    def inverse_shape(self, shape: Any) -> Any:
        if len(shape) < 2 or shape[-2] != shape[-1]:
            raise ValueError(f"[CorrCholeskyTransform] {tuple(shape)} holds no square matrices")
        return shape[:-2] + (shape[-1] * (shape[-1] - 1) // 2,)


class CatTransform(Transform):
    """Several transforms, each on its own range of a dimension.

    Args:
        tseq: transforms.
        dim: the dimension.
        lengths: length of each range; 1 by default.
        cache_size: see `Transform`.

    Example:
        >>> exp = torch.distributions.ExpTransform()
        >>> CatTransform([exp, exp.inv], lengths=[1, 1])(torch.tensor([0.0, 1.0]))
        tensor([1., 0.])
    """

    def __init__(
        self,
        tseq: Sequence[Any],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError(f"[{type(self).__name__}] every part is a Transform")
        tseq = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        super().__init__(cache_size=cache_size)
        self.transforms = tseq
        self.lengths = [1] * len(tseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(tseq):
            raise AssertionError("[CatTransform] one length per transform")
        self.dim = dim

    @property
    def event_dim(self) -> int:
        """The largest of the parts."""
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """Length of all ranges together."""
        return sum(self.lengths)

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _split(self, x: Any) -> Any:
        if not (-x.dim() <= self.dim < x.dim() and x.size(self.dim) == self.length):
            raise AssertionError(
                f"[CatTransform] dimension {self.dim} of {tuple(x.shape)} is not {self.length} long"
            )
        return x.split(self.lengths, self.dim)

    def _parts(self, apply: Callable[[Any, Any], Any], x: Any) -> Any:
        parts = zip(self.transforms, self._split(x), strict=True)
        return torch.cat([apply(t, part) for t, part in parts], dim=self.dim)

    def _call(self, x: Any) -> Any:
        return self._parts(lambda t, part: t(part), x)

    def _inverse(self, y: Any) -> Any:
        return self._parts(lambda t, part: t.inv(part), y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        terms = []
        for t, a, b in zip(self.transforms, self._split(x), self._split(y), strict=True):
            terms.append(sum_rightmost(t.log_abs_det_jacobian(a, b), self.event_dim - t.event_dim))
        dim = self.dim - x.dim() if self.dim >= 0 else self.dim
        dim += self.event_dim
        return torch.cat(terms, dim=dim) if dim < 0 else sum(terms)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether every part has a unique inverse."""
        return all(t.bijective for t in self.transforms)

    @constraints.dependent_property
    def domain(self) -> Any:  # type: ignore[override]
        """Domains of the parts."""
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:  # type: ignore[override]
        """Codomains of the parts."""
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(Transform):
    """Several transforms, each on its own index of a dimension.

    Example:
        >>> exp = torch.distributions.ExpTransform()
        >>> StackTransform([exp, exp.inv], dim=0)(torch.tensor([0.0, 1.0]))
        tensor([1., 0.])
    """

    def __init__(self, tseq: Sequence[Any], dim: int = 0, cache_size: int = 0) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("[StackTransform] every part is a Transform")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return StackTransform(self.transforms, self.dim, cache_size)

    def _slice(self, z: Any) -> list[Any]:
        if not (-z.dim() <= self.dim < z.dim() and z.size(self.dim) == len(self.transforms)):
            raise AssertionError(
                f"[StackTransform] dimension {self.dim} of {tuple(z.shape)} is not "
                f"{len(self.transforms)} long"
            )
        return [z.select(self.dim, i) for i in range(z.size(self.dim))]

    def _call(self, x: Any) -> Any:
        parts = zip(self.transforms, self._slice(x), strict=True)
        return torch.stack([t(part) for t, part in parts], self.dim)

    def _inverse(self, y: Any) -> Any:
        parts = zip(self.transforms, self._slice(y), strict=True)
        return torch.stack([t.inv(part) for t, part in parts], self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        parts = zip(self.transforms, self._slice(x), self._slice(y), strict=True)
        return torch.stack([t.log_abs_det_jacobian(a, b) for t, a, b in parts], self.dim)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        """Whether every part has a unique inverse."""
        return all(t.bijective for t in self.transforms)

    @constraints.dependent_property
    def domain(self) -> Any:  # type: ignore[override]
        """Domains of the parts."""
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:  # type: ignore[override]
        """Codomains of the parts."""
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
