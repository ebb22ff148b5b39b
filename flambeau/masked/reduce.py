"""Reductions of masked tensors, by the functions of `torch.masked`.

Masked-out elements are ignored; a result without unmasked elements is masked out itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from flambeau.core.install import namespace
from flambeau.core.tensors import Tensor
from flambeau.masked.tensor import masked

Dims = int | Sequence[int] | None
# Reductions of the form (input, dim, keepdim, *, dtype).
PLAIN = frozenset({"sum", "mean", "prod", "amax", "amin", "argmax", "argmin"})
ALONG = frozenset({"softmax", "log_softmax", "softmin"})


def _left(mask: Any, dim: Dims, keepdim: bool) -> Any:
    """For which results something is left."""
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        dim = tuple(range(mask.dim()))
    if mask.dim() == 0:
        return mask
    return mask.any(dim=dim, keepdim=keepdim)


def _reduced(
    name: str, tensor: Tensor, dim: Dims, keepdim: bool, *args: Any, **options: Any
) -> Tensor:
    dense = tensor.to_dense()
    function, data = namespace("masked")[name], dense._kept
    if name == "mean" and not (data.is_floating_point() or options.get("dtype") is not None):
        raise ValueError(
            "[mean] could not infer the dtype of the result: the input must be of a floating "
            f"point dtype, got {data.dtype}\nhint: mean(dtype=torch.float32)"
        )
    keywords = {k: v for k, v in options.items() if v is not None}
    result = function(data, *args, dim=dim, keepdim=keepdim, mask=dense._mask, **keywords)
    return masked(result, _left(dense._mask, dim, keepdim))


def plain(name: str) -> Callable[..., Any]:
    """The reduction of a name in `PLAIN`."""

    def reduction(
        input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
    ) -> Tensor:
        return _reduced(name, input, dim, keepdim, dtype=dtype)

    return reduction


def norm(
    input: Tensor, p: Any = "fro", dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """A vector norm of what is there.

    Raises:
        NotImplementedError: the nuclear norm.
    """
    if p == "nuc":
        raise NotImplementedError(
            "[norm] the nuclear norm of a masked tensor is not defined\nhint: x.to_tensor(0)"
        )
    return vector_norm(input, 2.0 if p in ("fro", None) else p, dim, keepdim, dtype=dtype)


def vector_norm(
    input: Tensor, ord: float = 2.0, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The norm of a vector that consists of what is there."""
    return _reduced("norm", input, dim, keepdim, float(ord), dtype=dtype)


def spread(name: str) -> Callable[..., Any]:
    """`var` or `std`."""

    def reduction(
        input: Tensor,
        dim: Any = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> Tensor:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        return _reduced(name, input, dim, keepdim, unbiased=unbiased, correction=correction)

    return reduction


def all_of(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether everything that is there is not zero."""
    dense = input.to_dense()
    data = torch.where(dense._mask, dense._kept.bool(), True)
    result = data.all() if dim is None else data.all(dim=dim, keepdim=keepdim)
    return masked(result, _left(dense._mask, dim, keepdim))


def along(name: str) -> Callable[..., Any]:
    """`softmax` and its relatives: what is masked out stays so."""

    def normalised(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
        dense = input.to_dense()
        result = namespace("masked")[name](dense._kept, dim, dtype=dtype, mask=dense._mask)
        return masked(result, dense._mask)

    return normalised
