"""Ready parametrizations: weight norm, spectral norm, orthogonal matrices.

Salimans and Kingma 2016; Miyato et al. 2018.
"""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau._core import Tensor
from flambeau.autograd import no_grad
from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.messages import problem
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.nn.utils import parametrize

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def norm_except_dim(v: Tensor, dim: int) -> Any:
    """2-norms over all dimensions but `dim`, kept as 1; one number when `dim` is -1."""
    if dim == -1:
        return (v * v).sum().sqrt()
    others = [d for d in range(v.dim()) if d != dim]
    return (v * v).sum(others, keepdim=True).sqrt()


def normed_weight(v: Tensor, g: Tensor, dim: int) -> Any:
    """`v * (g / norm)`: one operator where the dimension is an outer one, as in PyTorch."""
    if dim in (0, v.dim() - 1):
        return torch._weight_norm(v, g, dim)
    return v * (g / norm_except_dim(v, dim))


class _WeightNorm(Module):
    """original0 * original1 / |original1|."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Any:
        """The weight of norm g and direction v."""
        return normed_weight(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Any, Any]:
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
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
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

    def forward(self, weight: Tensor) -> Any:
        """The divided weight; in training the singular vectors are improved first."""
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._as_matrix(weight)
        if self.training:
            self._power_method(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / torch.dot(u, torch.mv(matrix, v))

    def right_inverse(self, value: Any) -> Tensor:
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


def _orthogonal_factor(matrix: Any) -> Any:
    """Q of the QR decomposition whose R has a positive diagonal."""
    reflectors, factors = torch.geqrf(matrix)
    q = torch.linalg.householder_product(reflectors, factors)
    return q * reflectors.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def _is_orthogonal(matrix: Tensor) -> bool:
    rows, columns = matrix.size(-2), matrix.size(-1)
    if rows < columns:
        matrix = matrix.mT
        rows, columns = columns, rows
    identity = torch.eye(columns, dtype=matrix.dtype)
    limit = 10 * rows * torch.finfo(matrix.dtype).eps
    return bool(torch.allclose(matrix.mH @ matrix, identity, atol=limit))


class _Orthogonal(Module):
    """A matrix with orthonormal columns (rows, if it is wide) from any matrix.

    The lower triangle is mapped by the matrix exponential or the Cayley map of its skew-symmetric
    part, or read as Householder reflectors. With a base B the result is B times that, so that any
    orthogonal matrix can be assigned (Lezcano-Casado 2019, dynamic trivialization).
    """

    base: Any

    def __init__(self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            text = "The householder parametrization does not support complex tensors."
            raise ValueError(problem("orthogonal", text, 'orthogonal_map="matrix_exp"'))
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Any:  # noqa: N803
        """The orthogonal matrix."""
        wide = X.size(-2) < X.size(-1)
        X = X.mT if wide else X  # noqa: N806
        if self.orthogonal_map == "householder":
            reflectors = X.tril(diagonal=-1)
            factors = 2.0 / (1.0 + (reflectors * reflectors).sum(dim=-2))
            q = torch.linalg.householder_product(reflectors, factors)
            q = q * X.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)
        else:
            q = self._from_skew(X)
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if wide else q

    def _from_skew(self, X: Any) -> Any:  # noqa: N803
        rows, columns = X.size(-2), X.size(-1)
        lower = X.tril()
        if rows != columns:
            padding = lower.new_zeros(rows, rows - columns).expand(*lower.shape[:-2], -1, -1)
            lower = torch.cat([lower, padding], dim=-1)
        skew = lower - lower.mH
        if self.orthogonal_map == "matrix_exp":
            q = torch.matrix_exp(skew)
        else:
            identity = torch.eye(rows, dtype=skew.dtype)
            q = torch.linalg.solve(
                torch.add(identity, skew, alpha=-0.5), torch.add(identity, skew, alpha=0.5)
            )
        return q[..., :columns]

    @no_grad()
    def right_inverse(self, Q: Tensor) -> Any:  # noqa: N803
        """A matrix that `forward` maps to Q, or to its orthogonal factor."""
        if Q.shape != self.shape:
            text = f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of "
            raise ValueError(problem("orthogonal", f"{text}shape {Q.shape}.", "the same shape"))
        rows, columns = Q.size(-2), Q.size(-1)
        wide = rows < columns
        matrix = Q.mT if wide else Q
        rows, columns = max(rows, columns), min(rows, columns)
        if not hasattr(self, "base"):
            return self._reflectors(matrix, wide)
        if rows == columns:
            self.base = matrix.clone() if _is_orthogonal(matrix) else _orthogonal_factor(matrix)
        else:
            shape = (*matrix.shape[:-1], rows - columns)
            random = torch.randn(shape, dtype=matrix.dtype)
            self.base = _orthogonal_factor(torch.cat([matrix, random], dim=-1))
        negative = torch.zeros_like(Q)
        negative.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return negative

    def _reflectors(self, matrix: Any, wide: bool) -> Any:
        if self.orthogonal_map != "householder":
            text = "It is not possible to assign to the matrix exponential or the Cayley "
            text += "parametrizations when use_trivialization=False."
            raise NotImplementedError(problem("orthogonal", text, "use_trivialization=True"))
        reflectors, factors = torch.geqrf(matrix)
        diagonal = reflectors.diagonal(dim1=-2, dim2=-1)
        diagonal.copy_(torch.where(factors == 0, -diagonal.sign(), diagonal.sign()))
        return reflectors.mT if wide else reflectors


def orthogonal(
    module: Any,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Any:
    """Keeps a matrix orthogonal: its columns, or its rows if there are more columns.

    Args:
        module: has the parameter.
        name: which parameter; of three or more dimensions it is a batch of matrices.
        orthogonal_map: "matrix_exp", "cayley" or "householder"; the first for square and complex
            matrices, the last for others when None.
        use_trivialization: moves along the group from a base: any matrix can be assigned.

    Raises:
        ValueError: no such parameter, a vector, another map.

    Example:
        >>> layer = orthogonal(torch.nn.Linear(2, 3))
        >>> bool(torch.allclose(layer.weight.mT @ layer.weight, torch.eye(2), atol=1e-5))
        True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, torch.Tensor):
        text = f"Module '{module}' has no parameter or buffer with name '{name}'"
        raise ValueError(problem("orthogonal", text, "see named_parameters()"))
    if weight.ndim < 2:
        text = f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        raise ValueError(problem("orthogonal", text, "parametrize a weight"))
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        text = 'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got '
        raise ValueError(problem("orthogonal", text + str(orthogonal_map), "one of these"))
    mapping = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, mapping, unsafe=True)
