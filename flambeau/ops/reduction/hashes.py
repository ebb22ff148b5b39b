"""`hash_tensor`: one number that tells whether two tensors hold the same elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.dtypes import TABLE
from flambeau.ir.environment import same_size
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language.definition import op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.broadcasting import unsupported
from flambeau.ops.reduction.reduce import reduced_dims


def _samples() -> Iterator[Sample]:
    yield sample(T(3, 4))
    yield sample(T(40))
    yield sample(T(2, 3, 5), (0, 2), keepdim=True)
    yield sample(T(4, 6, layout="transposed"), 1)
    yield sample(T())
    yield sample(T(0, 3), 1)


def _errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3, 4), 2), IndexError, "Dimension out of range")
    yield ErrorSample(sample(T(0, 3)), RuntimeError, "Expected reduction dim to be specified")
    yield ErrorSample(sample(T(0, 3), 0), IndexError, "to have non-zero size")
    yield ErrorSample(sample(T(2), mode=1), RuntimeError, "Unknown hash_tensor mode: 1")


def _reference(x: Any, dim: Any = (), keepdim: bool = False) -> Any:
    from importlib import import_module

    numpy = import_module("numpy")
    axis = dim if isinstance(dim, int) else (tuple(dim) or None)
    wide = x.astype("float64" if x.dtype.kind == "f" else "int64").view("uint64")
    return numpy.bitwise_xor.reduce(wide, axis=axis, keepdims=keepdim)


@op(
    out="exact",
    differentiable=False,
    samples=_samples,
    errors=_errors,
    reference=_reference,
    dtypes="bool u8 i8 i16 i32 i64 f16 bf16 f32 f64",
)
def hash_tensor(
    self: Tensor, dim: Sequence[int] | None = None, *, keepdim: bool = False, mode: int = 0
) -> Tensor:
    """Exclusive or of all elements, or over `dim`, as uint64.

    Elements are widened to float64 or int64 first, and the bits of these are joined, so a number
    has one hash whatever its width; the order of elements does not matter.

    Args:
        self: real numbers, of no unsigned type but uint8.
        dim: dimensions that are joined; all of them if None or empty.
        keepdim: whether they stay, of size 1.
        mode: 0, which is exclusive or.

    Raises:
        NotImplementedError: a complex tensor, or one of wide unsigned integers or of bytes of
            floating point.
        RuntimeError: an unknown mode, or no element and no `dim`.
        IndexError: a joined dimension has no element.

    Example:
        >>> torch.hash_tensor(torch.tensor([[1, 2], [3, 4]]), 1)
        tensor([3, 7], dtype=torch.uint64)
    """
    if mode != 0:
        raise failure(RuntimeError, "hash_tensor", f"Unknown hash_tensor mode: {mode}", "mode=0")
    if not TABLE[self.dtype].plain or TABLE[self.dtype].kind == "complex":
        raise unsupported("hash_tensor", self, "view(torch.int64), or convert it")
    dims = reduced_dims(dim, self.ndim, "hash_tensor")
    _check_elements(self, dims, dim)
    kind = "f64" if TABLE[self.dtype].kind == "float" else "i64"
    bits = prims.cast(self, kind)
    if kind == "f64":
        bits = prims.bitcast(bits, "i64")
    hashed = prims.reduce_dims("xor", bits, dims, keepdim)
    return prims.bitcast(hashed, "u64")


def _check_elements(x: Node, dims: tuple[int, ...], asked: Any) -> None:
    if not any(same_size(n, 0) for n in x.shape):
        return
    if not asked and asked != 0:
        problem = "hash_tensor: Expected reduction dim to be specified for input.numel() == 0. "
        problem += "Specify the reduction dim with the 'dim' argument."
        raise failure(RuntimeError, "hash_tensor", problem, "pass dim")
    for d in dims:
        if same_size(x.shape[d], 0):
            problem = f"hash_tensor: Expected reduction dim {d} to have non-zero size."
            raise failure(IndexError, "hash_tensor", problem, "join a dimension with elements")
