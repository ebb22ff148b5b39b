"""`as_sparse_gradcheck`: checks derivatives of functions whose operands or results are sparse.

`gradcheck` moves the elements of dense tensors. Here those are the values of the sparse operands,
of which the function's own operands are made again, and sparse results become dense ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import flambeau as torch
from flambeau.sparse.tensor import SparseTensor

Rebuild = Callable[[Any], Any]


def _with_all_places(x: Any) -> Any:
    """The same elements with every index stored, those of zeros too."""
    dense = x.to_dense()
    if x.layout is torch.sparse_coo:
        pattern = torch.ones_like(dense).to_sparse(x.sparse_dim())
    else:
        block = tuple(x.values().shape[-2:]) if x.layout in _BLOCKED else None
        options = {"layout": x.layout, "dense_dim": x.dense_dim(), "blocksize": block}
        pattern = torch.ones_like(dense).to_sparse(**options)
    return dense.sparse_mask(pattern)


_BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)
_BY_ROWS = (torch.sparse_csr, torch.sparse_bsr)


def _taken_apart(x: Any, masked: bool) -> tuple[Any, Rebuild]:
    """The values of a sparse operand as a variable, and what makes the operand of them."""
    coalesced = x.layout is torch.sparse_coo and x.is_coalesced()
    leaf = x.detach() if masked else _with_all_places(x.detach())
    size, layout = tuple(x.shape), x.layout
    if layout is torch.sparse_coo:
        places = leaf._indices()
        coalesced = coalesced or not masked

        def rebuild(values: Any) -> Any:
            return torch.sparse_coo_tensor(places, values, size, is_coalesced=coalesced or None)

        return leaf._values().clone().requires_grad_(), rebuild
    rows = layout in _BY_ROWS
    compressed = leaf.crow_indices() if rows else leaf.ccol_indices()
    plain = leaf.col_indices() if rows else leaf.row_indices()

    def rebuild_compressed(values: Any) -> Any:
        return torch.sparse_compressed_tensor(compressed, plain, values, size, layout=layout)

    return leaf.values().clone().requires_grad_(), rebuild_compressed


def _dense(result: Any, masked: bool) -> Any:
    if isinstance(result, (tuple, list)):
        return tuple(_dense(item, masked) for item in result)
    sparse = isinstance(result, SparseTensor)
    return result.to_dense(masked_grad=masked) if sparse else result


def _is_masked(gradcheck: Any, kwargs: Mapping[str, Any]) -> bool:
    bound = getattr(gradcheck, "keywords", {})
    return bool(kwargs.get("masked", bound.get("masked", False)))


def as_sparse_gradcheck(gradcheck: Callable[..., bool]) -> Callable[..., bool]:
    """A gradient check that also takes functions with sparse operands or results.

    Args:
        gradcheck: `torch.autograd.gradcheck`, or a `functools.partial` of it. With `masked=True`
            only the elements that a sparse operand stores are perturbed, else all of them.

    Returns:
        A function of the same arguments.

    Example:
        >>> gradcheck = torch.sparse.as_sparse_gradcheck(torch.autograd.gradcheck)
        >>> x = torch.tensor([[0.0, 1.0], [2.0, 3.0]], dtype=torch.float64).to_sparse()
        >>> gradcheck(lambda x: x.to_sparse_csr() * 2, x.requires_grad_())
        True
    """

    @wraps(getattr(gradcheck, "func", gradcheck))
    def checked(func: Callable[..., Any], inputs: Any, *args: Any, **kwargs: Any) -> bool:
        masked = _is_masked(gradcheck, kwargs)
        operands: Sequence[Any] = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
        moved, rebuilds = list(operands), [None] * len(operands)
        for place, x in enumerate(operands):
            if isinstance(x, SparseTensor) and x.requires_grad:
                moved[place], rebuilds[place] = _taken_apart(x, masked)

        def dense_function(*values: Any) -> Any:
            pairs = zip(rebuilds, values, strict=True)
            return _dense(func(*[v if f is None else f(v) for f, v in pairs]), masked)

        return gradcheck(dense_function, moved, *args, **kwargs)

    return checked
