"""Products of vectors and matrices, and what is made of them."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau import prims
from flambeau.core import layout
from flambeau.core.definition import op
from flambeau.core.samples import Sample, T, sample
from flambeau.ir.node import Node
from flambeau.ops.broadcasting import broadcast_sizes
from flambeau.ops.common import shown


def _matmul_samples() -> Iterator[Sample]:
    shapes = [
        ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
        ((5, 2, 3), (5, 3, 4)), ((2, 1, 2, 3), (5, 3, 4)), ((5, 2, 3), (3,)), ((0, 3), (3, 4)),
        ((2, 0), (0, 3)), ((33, 17), (17, 40)),
    ]  # fmt: skip
    for a, b in shapes:
        yield sample(T(*a), T(*b))
    yield sample(T(4, 6, layout="transposed"), T(4, 3))


def check_same_dtype(name: str, a: Node, b: Node) -> None:
    """Raise unless both operands of a product have one dtype."""
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"[{name}] expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}\n"
            "hint: convert one operand; products do not promote dtypes"
        )


def check_inner(name: str, a: Node, b: Node) -> None:
    """Raise unless the last size of `a` is the last but one of `b`."""
    if not layout.same(a.shape[-1], b.shape[-2]):
        raise RuntimeError(
            f"[{name}] mat1 and mat2 shapes cannot be multiplied: inner dimensions differ: "
            f"{shown(a.shape)} and {shown(b.shape)}\n"
            "hint: transpose mat2, or check the order of its dimensions"
        )


def product(name: str, a: Node, b: Node) -> Node:
    """Matrix product of equal batches, checked; halves accumulate in float32 and round once."""
    check_same_dtype(name, a, b)
    check_inner(name, a, b)
    if a.dtype == "bool":
        raise RuntimeError(
            f"[{name}] \"addmm_impl_cpu_\" not implemented for 'Bool'\nhint: convert to int or float"
        )
    return prims.matmul(a, b)


@op("mm(Tensor self, Tensor mat2) -> Tensor", reference="numpy.matmul")
def mm(self: Node, mat2: Node) -> Node:
    """Product of two matrices: (n, k) x (k, m) -> (n, m); no broadcasting, no promotion.

    Raises:
        RuntimeError: not matrices, inner sizes or dtypes differ.

    Example:
        >>> torch.mm(torch.ones(2, 3), torch.ones(3, 2))
        tensor([[3., 3.],
                [3., 3.]])
    """
    for x, which in ((self, "self"), (mat2, "mat2")):
        if x.ndim != 2:
            raise RuntimeError(f"[mm] {which} must be a matrix\nhint: use matmul for other ranks")
    return product("mm", self, mat2)


@op(
    "matmul(Tensor self, Tensor other) -> Tensor",
    samples=_matmul_samples,
    reference="numpy.matmul",
)
def matmul(self: Node, other: Node) -> Node:
    """Matrix product with the rank rules of `@`.

    Vectors count as a row on the left and a column on the right and vanish from the result; the
    dimensions before the last two are batches and broadcast.

    Raises:
        RuntimeError: a zero-dimensional operand, inner sizes or dtypes differ, batches do not
            broadcast.

    Example:
        >>> (torch.ones(5, 2, 3) @ torch.ones(3)).shape
        torch.Size([5, 2])
    """
    if self.ndim == 0 or other.ndim == 0:
        raise RuntimeError(
            "[matmul] both arguments to matmul need to be at least 1D, but they are "
            f"{self.ndim}D and {other.ndim}D\nhint: multiply by a number with *"
        )
    a = prims.unsqueeze(self, 0) if self.ndim == 1 else self
    b = prims.unsqueeze(other, 1) if other.ndim == 1 else other
    result = batched(a, b)
    if self.ndim == 1:
        result = prims.squeeze(result, -2)
    return prims.squeeze(result, -1) if other.ndim == 1 else result


def batched(a: Node, b: Node) -> Node:
    """Matrix products with broadcast batches; many rows times one matrix are one product."""
    check_same_dtype("matmul", a, b)
    check_inner("matmul", a, b)
    if b.ndim == 2 and a.ndim > 2:
        rows = layout.numel(a.shape[:-1])
        flat = product("matmul", prims.reshape(a, (rows, a.shape[-1])), b)
        return prims.reshape(flat, (*a.shape[:-1], b.shape[-1]))
    batch = broadcast_sizes("matmul", a.shape[:-2], b.shape[:-2])
    a = prims.broadcast_to(a, (*batch, *a.shape[-2:]))
    b = prims.broadcast_to(b, (*batch, *b.shape[-2:]))
    return product("matmul", a, b)
