"""Helpers of distributions: broadcast parameters, probabilities and logits, packed triangles."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

import flambeau as torch
from flambeau import Size, Tensor
from flambeau.ir.failure import failure

EULER = 0.57721566490153286060  # the Euler-Mascheroni constant

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Tensor:
    """Samples of N(0, 1): PyTorch's inner function, which packages of distributions call."""
    return torch.randn(shape, dtype=dtype, device=device)


def inherit_docs(cls: type) -> None:
    """Gives public methods and properties without a docstring the one of the method they override.

    Example:
        >>> inherit_docs(lazy_property)
    """
    for name, value in vars(cls).items():
        if name.startswith("_") or not (isinstance(value, property) or callable(value)):
            continue
        if not isinstance(value, type) and not value.__doc__:
            inherited = (getattr(base, name, None) for base in cls.__mro__[1:])
            value.__doc__ = next((b.__doc__ for b in inherited if b is not None), None)


def is_tensor_like(value: Any) -> bool:
    """True for tensors and for objects that implement `__torch_function__`.

    Example:
        >>> is_tensor_like(torch.ones(2)), is_tensor_like(1.0)
        (True, False)
    """
    return isinstance(value, Tensor) or hasattr(type(value), "__torch_function__")


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape.

    Numbers take dtype and device of the first tensor, or the default dtype.

    Raises:
        ValueError: a value is neither a number nor a tensor.

    Example:
        >>> [x.shape for x in broadcast_all(1.0, torch.ones(2, 1), torch.zeros(3))]
        [torch.Size([2, 3]), torch.Size([2, 3]), torch.Size([2, 3])]
    """
    tensors = [v for v in values if is_tensor_like(v)]
    wrong = [v for v in values if not (is_tensor_like(v) or isinstance(v, Number))]
    if wrong:
        problem = f"parameters are numbers or tensors, not {type(wrong[0]).__name__}"
        raise failure(
            ValueError, "broadcast_all", problem, "torch.as_tensor converts lists and arrays"
        )
    options: dict[str, Any] = {"dtype": torch.get_default_dtype()}
    for first in tensors[:1]:
        options = {"dtype": first.dtype, "device": first.device}
    full = [v if is_tensor_like(v) else torch.tensor(v, **options) for v in values]
    shape = torch.broadcast_shapes(*(v.shape for v in full))
    return tuple(v if v.shape == shape else v.expand(shape) for v in full)


def batch_of(*values: Any) -> Size | None:
    """The empty batch shape if all parameters are numbers; None: it is that of the tensors.

    Example:
        >>> batch_of(1.0, 2.0)
        torch.Size([])
    """
    return Size() if all(isinstance(v, Number) for v in values) else None


def standard_normal(shape: Any, like: Tensor) -> Tensor:
    """Standard normal numbers in dtype and on the device of another tensor.

    Example:
        >>> standard_normal((2, 3), torch.ones(1)).shape
        torch.Size([2, 3])
    """
    return torch.randn(shape, dtype=like.dtype, device=like.device)


def sum_rightmost(value: Any, count: int) -> Any:
    """Sums the last `count` dimensions.

    Example:
        >>> sum_rightmost(torch.ones(2, 3), 1)
        tensor([3., 3.])
    """
    return value if count == 0 else value.reshape(*value.shape[: value.dim() - count], -1).sum(-1)


_sum_rightmost = sum_rightmost  # under PyTorch's name


def finite_limits(dtype: Any) -> Any:
    """Machine limits of a dtype; those of the default dtype for integers.

    Example:
        >>> finite_limits(torch.int64).bits
        32
    """
    return torch.finfo(dtype if dtype.is_floating_point else torch.get_default_dtype())


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities moved into [eps, 1 - eps], so that their logarithms are finite.

    Example:
        >>> clamp_probs(torch.tensor([0.0, 0.5]))
        tensor([1.1921e-07, 5.0000e-01])
    """
    eps = torch.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of log-odds (`is_binary`) or of unnormalized log-probabilities.

    Example:
        >>> logits_to_probs(torch.zeros(2))
        tensor([0.5000, 0.5000])
    """
    return torch.sigmoid(logits) if is_binary else torch.softmax(logits, dim=-1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log-odds (`is_binary`) or log-probabilities of probabilities.

    Example:
        >>> probs_to_logits(torch.tensor([0.25]), is_binary=True)
        tensor([-1.0986])
    """
    clamped = clamp_probs(probs)
    return torch.log(clamped) - torch.log1p(-clamped) if is_binary else torch.log(clamped)


class lazy_property:  # noqa: N801 - PyTorch's name
    """A property that is computed once, with gradients enabled, and then stored.

    Example:
        >>> class Circle:
        ...     @lazy_property
        ...     def area(self):
        ...         return 3.14
        >>> Circle().area
        3.14
    """

    def __init__(self, wrapped: Callable[..., Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__
        self.name = wrapped.__name__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with torch.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.name, value)
        return value


class Odds:
    """A parameter given as `probs` or as `logits`; the other one is computed on first access.

    Example:
        >>> torch.distributions.Bernoulli(logits=torch.zeros(1)).probs
        tensor([0.5000])
    """

    _is_binary = True

    @lazy_property
    def logits(self) -> Tensor:
        """Log-odds, or log-probabilities of several events."""
        return probs_to_logits(self.probs, is_binary=self._is_binary)

    @lazy_property
    def probs(self) -> Tensor:
        """Probabilities."""
        return logits_to_probs(self.logits, is_binary=self._is_binary)

    @property
    def _param(self) -> Tensor:
        values = vars(self)
        return values["probs"] if "probs" in values else values["logits"]

    @property
    def param_shape(self) -> Any:
        """Shape of the parameter."""
        return self._param.size()

    def _new(self, *args: Any, **options: Any) -> Tensor:
        return self._param.new(*args, **options)

    def _either(self, probs: Any, logits: Any) -> str:
        """Name of the argument that is given.

        Raises:
            ValueError: both are given, or none.
        """
        if (probs is None) == (logits is None):
            raise ValueError(
                f"[{type(self).__name__}] needs `probs` or `logits`, and not both\n"
                "hint: probs are probabilities, logits are (unnormalized) log-probabilities"
            )
        return "logits" if probs is None else "probs"


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangle of matrices up to diagonal `diag`, row by row.

    Example:
        >>> tril_matrix_to_vec(torch.tensor([[1, 2], [3, 4]]))
        tensor([1, 3, 4])
    """
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        raise ValueError(f"[tril_matrix_to_vec] diag {diag} is outside [{-n}, {n - 1}]")
    rows, columns = torch.tril_indices(n, n, diag)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Lower triangular matrices of vectors: `tril_matrix_to_vec` undone.

    Example:
        >>> vec_to_tril_matrix(torch.tensor([1.0, 3.0, 4.0]))
        tensor([[1., 0.],
                [3., 4.]])
    """
    count = vec.shape[-1]
    n = (
        -(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * count + 4 * abs(diag) * (diag + 1)) ** 0.5
    ) / 2
    eps = torch.finfo(vec.dtype).eps
    if not (round(n) - n < eps and round(n) >= 0 and abs(round(n) - n) < eps * max(n, 1.0)):
        raise ValueError(
            f"[vec_to_tril_matrix] {count} numbers are no lower triangle up to diagonal {diag}"
        )
    n = round(n)
    rows, columns = torch.tril_indices(n, n, diag)
    positions = rows * n + columns
    flat = torch.zeros(*vec.shape[:-1], n * n, dtype=vec.dtype, device=vec.device)
    return flat.index_copy(-1, positions, vec).reshape(*vec.shape[:-1], n, n)


_sum_rightmost = sum_rightmost
