"""`hash_tensor`: one number that tells whether two tensors hold the same elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.core.definition import op
from flambeau.core.samples import ErrorSample, Sample, T, sample
from flambeau.ir.dtypes import TABLE
from flambeau.ir.environment import less, same_size
from flambeau.ir.node import Node
from flambeau.ir.size import ceildiv, mul, prod
from flambeau.ir.size_core import sub
from flambeau.ops.broadcasting import unsupported
from flambeau.ops.reduce import reduced_dims
from flambeau.prims.shape import pad_axis

_COUNTED = 1 << 15  # elements whose ones a field of 16 bits counts


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


def _joined(x: Node) -> Node:
    """Exclusive or along the last axis: the parity of the number of ones at each of 64 bits.

    Bits k, k + 16, k + 32 and k + 48 are counted together, in fields of 16 bits of one sum.
    """
    shifts = prims.iota((*x.shape, 16), x.ndim, "i64")
    ones = prims.full_like(0x0001_0001_0001_0001, shifts)
    wide = prims.broadcast(x, shifts.shape, tuple(range(x.ndim)))
    fields = prims.bitwise_and(prims.shift_right(wide, shifts), ones)
    while True:
        axis = fields.ndim - 2
        lead, extent = fields.shape[:axis], fields.shape[axis]
        many = less(_COUNTED, extent)
        if many:
            blocks = ceildiv(extent, _COUNTED)
            fields = pad_axis(fields, axis, 0, sub(mul(_COUNTED, blocks), extent))
            fields = prims.reshape(fields, (*lead, blocks, _COUNTED, 16))
            axis += 1
        fields = prims.reduce_dims("sum", fields, (axis,))
        fields = prims.bitwise_and(fields, prims.full_like(0x0001_0001_0001_0001, fields))
        if not many:
            places = prims.iota(fields.shape, fields.ndim - 1, "i64")
            return prims.reduce_dims("sum", prims.shift_left(fields, places), (fields.ndim - 1,))


@op(
    "hash_tensor(Tensor self, int[]? dim=None, *, bool keepdim=False, int mode=0) -> Tensor",
    out=True,
    notes={"exact out": True},
    differentiable=False,
    samples=_samples,
    errors=_errors,
    reference=_reference,
    dtypes="bool u8 i8 i16 i32 i64 f16 bf16 f32 f64",
)
def hash_tensor(self: Node, dim: Any, keepdim: bool, mode: int) -> Node:
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
        raise RuntimeError(f"[hash_tensor] Unknown hash_tensor mode: {mode}\nhint: mode=0")
    if not TABLE[self.dtype].plain or TABLE[self.dtype].kind == "complex":
        raise unsupported("hash_tensor", self, "view(torch.int64), or convert it")
    dims = reduced_dims(dim, self.ndim, "hash_tensor")
    _check_elements(self, dims, dim)
    kind = "f64" if TABLE[self.dtype].kind == "float" else "i64"
    bits = prims.cast(self, kind)
    if kind == "f64":
        bits = prims.bitcast(bits, "i64")
    rest = [d for d in range(self.ndim) if d not in dims]
    left = tuple(self.shape[d] for d in rest)
    rows = prims.reshape(
        prims.permute(bits, (*rest, *sorted(dims))), (*left, prod(self.shape[d] for d in dims))
    )
    kept = tuple(1 if d in dims else n for d, n in enumerate(self.shape))
    found = prims.reshape(_joined(rows), kept if keepdim else left)
    return prims.bitcast(found, "u64")


def _check_elements(x: Node, dims: tuple[int, ...], asked: Any) -> None:
    if not any(same_size(n, 0) for n in x.shape):
        return
    if not asked and asked != 0:
        raise RuntimeError(
            "[hash_tensor] hash_tensor: Expected reduction dim to be specified for input.numel() "
            "== 0. Specify the reduction dim with the 'dim' argument.\nhint: pass dim"
        )
    for d in dims:
        if same_size(x.shape[d], 0):
            raise IndexError(
                f"[hash_tensor] hash_tensor: Expected reduction dim {d} to have non-zero size.\n"
                "hint: join a dimension with elements"
            )
