"""The invariants of a sparse tensor's parts, checked where a program enables it.

Shapes are always checked. The values of indices (in range, in order) are checked only where
`check_sparse_tensor_invariants` or an argument enables it, as in PyTorch, because that reads all of
them; without it the operator that reads a wrong index raises.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.core.warned import warn_once
from flambeau.sparse.tensor import BLOCKS, LAYOUT_NAMES, linear

_NAMES = {
    torch.sparse_csr: ("crow_indices", "col_indices", "nrows", "ncols", "number of rows"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "ncols", "nrows", "number of columns"),
    torch.sparse_bsr: (
        "crow_indices", "col_indices", "nrowblocks", "ncolblocks", "number of row blocks",
    ),
    torch.sparse_bsc: (
        "ccol_indices", "row_indices", "ncolblocks", "nrowblocks", "number of column blocks",
    ),
}  # fmt: skip
_BY_ROWS = (torch.sparse_csr, torch.sparse_bsr)


class check_sparse_tensor_invariants:  # noqa: N801 - PyTorch's name
    """Checks of the indices of new sparse tensors: a switch, a context manager, a decorator.

    Args:
        enable: whether checks are made in the block (in the decorated function).

    Example:
        >>> with torch.sparse.check_sparse_tensor_invariants():
        ...     torch.sparse_coo_tensor([[5]], [1.0], (3,))
        Traceback (most recent call last):
        RuntimeError: [sparse_coo_tensor] size is inconsistent with indices: for dim 0, size is ...
    """

    _enabled = False
    _chosen = False  # whether a program has said which

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self._before: list[bool] = []

    @staticmethod
    def is_enabled() -> bool:
        """Whether new sparse tensors are checked."""
        return check_sparse_tensor_invariants._enabled

    @staticmethod
    def enable() -> None:
        """Checks new sparse tensors from now on."""
        _choose(True)

    @staticmethod
    def disable() -> None:
        """Checks new sparse tensors no more."""
        _choose(False)

    def __enter__(self) -> None:
        self._before.append(check_sparse_tensor_invariants._enabled)
        _choose(self.state)

    def __exit__(self, *exception: object) -> None:
        check_sparse_tensor_invariants._enabled = self._before.pop()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that runs with this setting."""

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return function(*args, **kwargs)

        return checked


def _choose(enabled: bool) -> None:
    check_sparse_tensor_invariants._enabled = enabled
    check_sparse_tensor_invariants._chosen = True


def wanted(check_invariants: bool | None) -> bool:
    """Resolves the argument `check_invariants`: None is the switch's state."""
    if check_invariants is None:
        if not check_sparse_tensor_invariants._chosen:
            warn_once(
                "Sparse invariant checks are implicitly disabled: indices out of range are seen "
                "by operators only. To silence this warning, explicitly opt in or out, see "
                "torch.sparse.check_sparse_tensor_invariants."
            )
        return check_sparse_tensor_invariants._enabled
    return bool(check_invariants)


def problem(layout: Any, what: str, hint: str) -> RuntimeError:
    """The error of parts that do not fit."""
    name = str(layout).removeprefix("torch.")
    return RuntimeError(f"[{name}_tensor] {what}\nhint: {hint}")


def check(
    layout: Any, index: tuple[Any, ...], values: Any, size: tuple[int, ...], unique: bool
) -> None:
    """Checks everything about the parts of a sparse tensor.

    Raises:
        RuntimeError: something does not fit; says what.
    """
    if layout is torch.sparse_coo:
        check_coordinate_shapes(index[0], values, size)
        _check_coordinates(index[0], size, unique)
    elif layout in _NAMES:
        compressed, plain = index
        check_compressed_shapes(layout, compressed, plain, values, size)
        _check_compressed(layout, *index, values, size)
    else:
        raise NotImplementedError(
            f"[sparse] layout {LAYOUT_NAMES[layout]} is not supported\nhint: use torch.sparse_csr"
        )


# ------------------------------------------------------------------------------ coordinates
def check_coordinate_shapes(indices: Any, values: Any, size: tuple[int, ...]) -> None:
    """Raises RuntimeError where sizes of the parts of a `sparse_coo` tensor do not fit."""
    layout, nnz = torch.sparse_coo, indices.shape[-1]
    if indices.dim() != 2:
        raise problem(
            layout,
            f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}",
            "one column per kept element",
        )
    dense = values.dim() - 1
    if len(size) != indices.shape[0] + dense:
        raise problem(
            layout,
            "'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = "
            f"{len(size)}, sparse_dim = {indices.shape[0]}, dense_dim = {dense}",
            "indices has one row per sparse dimension",
        )
    if values.shape[0] != nnz:
        raise problem(
            layout,
            f"indices and values must have same nnz, but got nnz from indices: {nnz}, "
            f"nnz from values: {values.shape[0]}",
            "one value per column of indices",
        )
    expected = [nnz, *size[indices.shape[0] :]]
    if list(values.shape) != expected:
        raise problem(
            layout,
            f"values has incorrect size, expected {expected}, got {list(values.shape)}",
            "values is (nnz, *dense sizes)",
        )


def _check_coordinates(indices: Any, size: tuple[int, ...], unique: bool) -> None:
    if indices.dtype is not torch.int64:
        raise problem(
            torch.sparse_coo, f"indices must be int64, but got {indices.dtype}", "call .long()"
        )
    if indices.numel() == 0:
        return
    lowest, highest = indices.amin(1).tolist(), indices.amax(1).tolist()
    for dim, (low, high) in enumerate(zip(lowest, highest, strict=True)):
        if low < 0:
            raise problem(
                torch.sparse_coo, f"found negative index {low} for dim {dim}", "count from 0"
            )
        if high >= size[dim]:
            raise problem(
                torch.sparse_coo,
                f"size is inconsistent with indices: for dim {dim}, size is {size[dim]} but "
                f"found index {high}",
                "indices lie in [0, size)",
            )
    keys = linear(indices, size[: indices.shape[0]])
    if unique and bool((keys[1:] <= keys[:-1]).any()):
        raise problem(
            torch.sparse_coo,
            "cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor",
            "leave is_coalesced out and call coalesce()",
        )


# ------------------------------------------------------------------------------ compressed
def check_compressed_shapes(
    layout: Any, compressed: Any, plain: Any, values: Any, size: tuple[int, ...]
) -> None:
    """Raises RuntimeError where sizes or dtypes of compressed parts do not fit."""
    first, second, _, _, extent = _NAMES[layout]
    block = 2 if layout in BLOCKS else 0

    def need(holds: bool, what: str) -> None:
        if not holds:
            raise problem(layout, what, f"{first}, {second}, values, size: see the documentation")

    need(compressed.dim() >= 1, f"{first} must have dimensionality >= 1 but got {compressed.dim()}")
    need(
        compressed.dim() == plain.dim(),
        f"{first} and {second} dimensionalities must be equal but got {compressed.dim()} and "
        f"{plain.dim()}, respectively",
    )
    batch = compressed.dim() - 1
    need(
        values.dim() >= batch + block + 1,
        "values must have dimensionality > sum of batch and block dimensionalities (="
        f"{batch} + {block}) but got {values.dim()}",
    )
    need(
        len(size) == values.dim() - block + 1,
        f"tensor dimensionality must be sum of batch, base, and dense dimensionalities (="
        f"{batch} + 2 + {values.dim() - batch - block - 1}) but got {len(size)}",
    )
    extents = _groups(layout, values, size, batch)
    need(
        compressed.shape[-1] == extents + 1,
        f"{first}.shape[-1] must be equal to the {extent} + 1 (={extents + 1}), but got "
        f"{compressed.shape[-1]}",
    )
    nnz = values.shape[batch]
    need(
        plain.shape[-1] == nnz,
        f"{second}.shape[-1] must be equal to nnz (={nnz}) as defined by values.shape[{batch}], "
        f"but got {plain.shape[-1]}",
    )
    same = tuple(compressed.shape[:-1]) == tuple(plain.shape[:-1]) == tuple(values.shape[:batch])
    need(
        same and tuple(size[:batch]) == tuple(values.shape[:batch]),
        "all batch dimensions of the provided size, indices, and values must be the same",
    )
    need(
        tuple(values.shape[batch + block + 1 :]) == tuple(size[batch + 2 :]),
        f"values.shape[{batch + block + 1}:] must be equal to the dense sizes "
        f"{list(size[batch + 2 :])}",
    )
    need(
        compressed.dtype is plain.dtype,
        f"{first} and {second} must have the same dtype, but got {compressed.dtype} and "
        f"{plain.dtype}, respectively",
    )
    need(
        compressed.dtype in (torch.int32, torch.int64),
        f"{first} and {second} must be int32 or int64, but got {compressed.dtype}",
    )


def _groups(layout: Any, values: Any, size: tuple[int, ...], batch: int) -> int:
    """Number of rows, columns or rows (columns) of blocks that a layout compresses.

    Raises:
        RuntimeError: blocks do not divide the matrix.
    """
    height, width = values.shape[batch + 1 : batch + 3] if layout in BLOCKS else (1, 1)
    rows, columns = size[batch : batch + 2]
    if not (height > 0 < width) or rows % height or columns % width:
        raise problem(
            layout,
            f"the size {[rows, columns]} must be divisible by the blocksize {[height, width]}",
            "values is (*batch, nnz, height, width, *dense sizes)",
        )
    return int(rows // height if layout in _BY_ROWS else columns // width)


def _check_compressed(
    layout: Any, compressed: Any, plain: Any, values: Any, size: tuple[int, ...]
) -> None:
    first, second, along, across, _ = _NAMES[layout]
    batch = compressed.dim() - 1
    nnz = values.shape[batch]
    extent = size[batch + 1] if layout in _BY_ROWS else size[batch]
    if layout in BLOCKS:
        extent //= values.shape[batch + (2 if layout in _BY_ROWS else 1)]

    def need(holds: Any, what: str) -> None:
        if not bool(holds):
            raise problem(layout, f"`{what}` is not satisfied.", "check how the indices were made")

    counts = compressed[..., 1:] - compressed[..., :-1]
    need((compressed[..., 0] == 0).all(), f"{first}[..., 0] == 0")
    need((compressed[..., -1] == nnz).all(), f"{first}[..., -1] == nnz")
    need(
        ((counts >= 0) & (counts <= extent)).all(),
        f"0 <= {first}[..., 1:] - {first}[..., :-1] <= {across}",
    )
    need(((plain >= 0) & (plain < extent)).all(), f"0 <= {second} < {across}")
    groups = torch.arange(counts.numel()).repeat_interleave(counts.reshape(-1).long())
    keys = groups * extent + plain.reshape(-1).long()
    need(
        (keys[1:] > keys[:-1]).all(),
        f"{second}[..., {first}[..., i - 1]:{first}[..., i]] for all i = 1, ..., {along} "
        "are sorted and distinct along the last dimension values",
    )
