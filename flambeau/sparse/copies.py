"""Copies of a sparse tensor's parts, with memory of their own: `torch.values_copy` and kin."""

from __future__ import annotations

from collections.abc import Callable

import flambeau as torch
from flambeau.core.tensors import Tensor
from flambeau.sparse import methods
from flambeau.sparse.tensor import SparseTensor, refuse


def _copying(part: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """The function that copies what the method `part` shows."""
    name = f"{part.__name__}_copy"

    def copy(input: Tensor, *, out: Tensor | None = None) -> Tensor:
        view = part(input)
        if out is None:
            return view.clone()
        return out.resize_(view.shape).copy_(view)

    copy.__name__ = copy.__qualname__ = name
    copy.__doc__ = f"""A copy of what `{part.__name__}()` shows.

    Raises:
        RuntimeError: a tensor whose layout has no such part.
    """
    return copy


ccol_indices_copy = _copying(methods.ccol_indices)
col_indices_copy = _copying(methods.col_indices)
crow_indices_copy = _copying(methods.crow_indices)
row_indices_copy = _copying(methods.row_indices)
indices_copy = _copying(methods.indices)
values_copy = _copying(methods.values)


def resize_as_sparse_(input: Tensor, the_template: Tensor) -> Tensor:
    """Gives a `sparse_coo` tensor the sizes of another one in place; nothing may be lost.

    Raises:
        RuntimeError: a size shrinks while elements are stored.
        NotImplementedError: a tensor of another layout.

    Example:
        >>> x = torch.ones(2).to_sparse()
        >>> torch.resize_as_sparse_(x, torch.ones(3).to_sparse()).shape
        torch.Size([3])
    """
    for tensor in (input, the_template):
        if not isinstance(tensor, SparseTensor) or tensor.layout is not torch.sparse_coo:
            refuse(tensor, "resize_as_sparse_", "resize_ of a strided tensor")
    dimensions = the_template.sparse_dim(), the_template.dense_dim()
    return methods.sparse_resize_(input, the_template.shape, *dimensions)


def native_norm(
    input: Tensor,
    p: float | None = 2,
    dim: int | tuple[int, ...] | list[int] | None = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The p-norm of all elements of a `sparse_coo` tensor.

    Args:
        dim: empty, or all dimensions.
        keepdim: False.

    Raises:
        NotImplementedError: a strided tensor; `torch.norm` is for those.
        RuntimeError: a norm of some dimensions only, or with keepdim.

    Example:
        >>> torch.native_norm(torch.tensor([3.0, 0.0, 4.0]).to_sparse())
        tensor(5.)
    """
    if not isinstance(input, SparseTensor):
        refuse(input, "native_norm", "torch.norm")
    asked = (dim,) if isinstance(dim, int) else tuple(dim or ())
    problem = ""
    if keepdim:
        problem = "currently does not support keepdim=True"
    elif asked and sorted(d % input.dim() for d in asked) != list(range(input.dim())):
        problem = "only full reductions: 'dim' must be empty or contain all dimensions"
    if problem:
        raise RuntimeError(f"[native_norm] {problem}\nhint: to_dense(), then torch.norm")
    return torch.norm(input, 2 if p is None else p, dtype=dtype)


torch.Tensor.resize_as_sparse_ = resize_as_sparse_
