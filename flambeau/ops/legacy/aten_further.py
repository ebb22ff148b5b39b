"""Operators that are only inner ones in PyTorch, made of public ones: under `torch.ops.aten`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.language.definition import op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Device, Scalar, SymInt, Tensor
from flambeau.ops.indexing.search import searched


@op(name="_pin_memory", where="ops.aten", host=True)
def pin_memory(self: Tensor, device: Device | None = None) -> Any:
    """A copy in pinned memory: raises, as there is no accelerator that would read it."""
    return self.pin_memory()


def _sparse_products() -> Iterator[Sample]:
    yield sample(T(2, 4), T(2, 3), T(3, 4))


@op(name="_sparse_addmm", where="ops.aten", out=True, host=True, samples=_sparse_products)
def sparse_addmm(
    self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Any:
    """`addmm` whose second operand may be sparse."""
    return late("flambeau").addmm(self, mat1, mat2, beta=beta, alpha=alpha)


def _rows_of_places() -> Iterator[Sample]:
    yield sample(T(4, dtype="i64", values=[0, 0, 1, 3], grad=False), 5)
    yield sample(T(4, dtype="i32", values=[0, 0, 1, 3], grad=False), 5, out_int32=True)


@op(
    name="_convert_indices_from_coo_to_csr",
    kind="creation",
    out=False,
    samples=_rows_of_places,
    errors=lambda: [ErrorSample(sample(T(2, 2, dtype="i64"), 3), RuntimeError, "a vector")],
)
def convert_indices_from_coo_to_csr(
    self: Tensor, size: SymInt, *, out_int32: bool = False
) -> Tensor:
    """Where each of `size` rows begins, and the end of the last one, in a sorted list of rows.

    Raises:
        RuntimeError: not one vector.
        NotImplementedError: rows that are not int32 or int64.

    Example:
        >>> torch._convert_indices_from_coo_to_csr(torch.tensor([0, 0, 2]), 3)
        tensor([0, 2, 2, 3])
    """
    if self.ndim != 1:
        raise RuntimeError(
            f"[_convert_indices_from_coo_to_csr] Input is supposed to be a vector, but got "
            f"{self.ndim} dimensional tensor.\nhint: the first row of sparse indices"
        )
    if self.dtype not in ("i32", "i64"):
        raise NotImplementedError(
            "[_convert_indices_from_coo_to_csr] not implemented for "
            f"{self.dtype}\nhint: rows are int32 or int64"
        )
    rows = prims.iota((size + 1,), 0, self.dtype)
    return searched(self, rows, out_int32)


@op(
    name="_convert_indices_from_csr_to_coo",
    kind="creation",
    out=False,
    samples=lambda: [
        sample(T(3, dtype="i64", values=[0, 2, 3]), T(3, dtype="i64", values=[0, 1, 1]))
    ],
)
def convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """Rows and columns of the elements of a compressed matrix; `transpose`: columns and rows.

    Raises:
        NotImplementedError: matrices in a batch.

    Example:
        >>> torch._convert_indices_from_csr_to_coo(torch.tensor([0, 2, 2, 3]), torch.arange(3))
        tensor([[0, 0, 2],
                [0, 1, 2]])
    """
    if crow_indices.ndim != 1:
        problem = f"batches of matrices are not supported: {crow_indices.ndim} dimensions"
        raise failure(
            NotImplementedError, "_convert_indices_from_csr_to_coo", problem, "convert each matrix"
        )
    places = prims.iota(col_indices.shape, 0, crow_indices.dtype)
    rows = searched(crow_indices, places, right=True) - 1
    pair = (col_indices, rows) if transpose else (rows, col_indices)
    dtype = "i32" if out_int32 else "i64"
    return prims.cat([prims.unsqueeze(prims.cast(x, dtype), 0) for x in pair], 0)
