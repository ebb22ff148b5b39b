"""Ready parametrizations: weight norm, spectral norm, orthogonal matrices.

Salimans and Kingma 2016; Miyato et al. 2018.
"""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.autograd import no_grad
from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.messages import problem
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.nn.utils import parametrize

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def norm_except_dim(v: Any, dim: int) -> Any:
    """2-norms over all dimensions but `dim`, kept as 1; one number when `dim` is -1."""
    if dim == -1:
        return (v * v).sum().sqrt()
    others = [d for d in range(v.dim()) if d != dim]
    return (v * v).sum(others, keepdim=True).sqrt()


class _WeightNorm(Module):
    """original0 * original1 / |original1|."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        """The weight of norm g and direction v."""
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight: Any) -> tuple[Any, Any]:
        """Norm and direction of a weight."""
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Any, name: str = "weight", dim: int = 0) -> Any:
    """Learns norm and direction of a parameter apart from each other.

    Args:
        name: which parameter.
        dim: the dimension that keeps a norm each; None for one norm.
    """
    return parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class _SpectralNorm(Module):
    """The weight divided by its largest singular value, found by power iteration."""

    def __init__(
        self, weight: Any, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            text = f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] "
            raise IndexError(problem("spectral_norm", text + f"but got {dim})", "choose another"))
        if n_power_iterations <= 0:
            text = "Expected n_power_iterations to be positive, but "
            text += f"got n_power_iterations={n_power_iterations}"
            raise ValueError(problem("spectral_norm", text, "n_power_iterations=1"))
        self.dim = dim if dim >= 0 else dim + ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._as_matrix(weight.detach())
            rows, columns = matrix.size()
            u = torch.empty(rows, dtype=matrix.dtype).normal_(0, 1)
            v = torch.empty(columns, dtype=matrix.dtype).normal_(0, 1)
            self.register_buffer("_u", F.normalize(u, dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(v, dim=0, eps=eps))
            self._power_method(matrix, 15)

    def _as_matrix(self, weight: Any) -> Any:
        if self.dim != 0:
            order = (self.dim, *(d for d in range(weight.dim()) if d != self.dim))
            weight = weight.permute(*order)
        return weight.flatten(1)

    def _power_method(self, matrix: Any, iterations: int) -> None:
        with no_grad():
            for _ in range(iterations):
                self._u.copy_(F.normalize(torch.mv(matrix, self._v), dim=0, eps=self.eps))
                self._v.copy_(F.normalize(torch.mv(matrix.t(), self._u), dim=0, eps=self.eps))

    def forward(self, weight: Any) -> Any:
        """The divided weight; in training the singular vectors are improved first."""
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._as_matrix(weight)
        if self.training:
            self._power_method(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / torch.dot(u, torch.mv(matrix, v))

    def right_inverse(self, value: Any) -> Any:
        """The value itself."""
        return value


def spectral_norm(
    module: Any,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """Keeps the largest singular value of a parameter at 1.

    Args:
        name: which parameter.
        n_power_iterations: steps of power iteration per call.
        eps: least length of a vector.
        dim: the dimension of the outputs (0; 1 for transposed convolutions).
    """
    if name not in module._parameters:
        text = f"Module '{module}' has no parameter or buffer with name '{name}'"
        raise ValueError(problem("spectral_norm", text, "see named_parameters()"))
    if dim is None:
        dim = 1 if getattr(module, "transposed", False) else 0
    weight: Parameter = getattr(module, name)
    return parametrize.register_parametrization(
        module, name, _SpectralNorm(weight, n_power_iterations, dim, eps)
    )


def orthogonal(
    module: Any,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Any:
    """Keeps a matrix orthogonal; not supported."""
    text = "orthogonal parametrizations are not supported"
    raise NotImplementedError(problem("orthogonal", text, "use init.orthogonal_ or spectral_norm"))
