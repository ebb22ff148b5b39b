"""Products of vectors and matrices, and sums with them.

Products never promote dtypes. Half types accumulate in float32 and round once per operation: a
product, or a sum with a product.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.ir.node import Node
from flambeau.ir.size import Size
from flambeau.language import layout
from flambeau.language.definition import OpDefinition, op
from flambeau.language.dtypes import PUBLIC_NAMES
from flambeau.language.promotion import compute_dtype, promote_types, result_type
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.broadcasting import (
    as_node,
    broadcast_sizes,
    check_float,
    check_one_dtype,
    participant,
    rounded,
    together,
    unsupported,
)
from flambeau.ops.cast_rules import by_arguments
from flambeau.ops.common import normalise_dim, number_shown, same_sizes, shown, static_size

Value = Any  # a Node or a Python number


def check_same_dtype(name: str, a: Node, b: Node) -> None:
    """Raise unless both operands of a product have one dtype."""
    if a.dtype != b.dtype:
        problem = f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}"
        raise failure(
            RuntimeError, name, problem, "convert one operand; products do not promote dtypes"
        )


def check_rank(name: str, x: Node, ndim: int, argument: str) -> None:
    """Raise unless an operand has so many dimensions."""
    if x.ndim != ndim:
        kind = {1: "vector", 2: "matrix", 3: "batch of matrices (3D tensor)"}[ndim]
        problem = f"{argument} must be a {kind}, but it has {x.ndim} dimensions: {shown(x.shape)}"
        raise failure(RuntimeError, name, problem, "matmul takes all ranks")


def check_inner_sizes(name: str, a: Node, b: Node) -> None:
    """Raises RuntimeError unless the matrices can be multiplied."""
    if not layout.same(a.shape[-1], b.shape[-2]):
        problem = "inner dimensions differ: mat1 and mat2 shapes cannot be multiplied "
        problem += f"({shown(a.shape)} and {shown(b.shape)}: {number_shown(a.shape[-1])} != "
        problem += f"{number_shown(b.shape[-2])})"
        raise failure(
            RuntimeError, name, problem, "transpose mat2, or check the order of its dimensions"
        )


def product(name: str, a: Node, b: Node, dtype: str | None = None) -> Node:
    """Matrix product of equal batches, checked."""
    check_same_dtype(name, a, b)
    check_inner_sizes(name, a, b)
    if a.dtype == "bool":
        raise unsupported(name, a, "convert to an integer or floating-point type first")
    return prims.matmul(a, b, dtype)


def batched(name: str, a: Node, b: Node) -> Node:
    """Matrix products with broadcast batches; many rows times one matrix are one product."""
    if b.ndim == 2 and a.ndim > 2:
        rows = layout.numel(a.shape[:-1])
        flat = product(name, prims.reshape(a, (rows, a.shape[-1])), b)
        return prims.reshape(flat, (*a.shape[:-1], b.shape[-1]))
    batch = broadcast_sizes(name, a.shape[:-2], b.shape[:-2])
    a = prims.broadcast_to(a, (*batch, *a.shape[-2:]))
    b = prims.broadcast_to(b, (*batch, *b.shape[-2:]))
    return product(name, a, b)


def _matmul_samples() -> Iterator[Sample]:
    shapes = [
        ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
        ((5, 2, 3), (5, 3, 4)), ((2, 1, 2, 3), (5, 3, 4)), ((5, 2, 3), (3,)), ((3,), (5, 3, 4)),
        ((0, 3), (3, 4)), ((2, 0), (0, 3)), ((33, 17), (17, 40)),
    ]  # fmt: skip
    for a, b in shapes:
        yield sample(T(*a), T(*b))
    yield sample(T(4, 6, layout="transposed"), T(6, 3))
    yield sample(T(4, 6), T(6, 3, layout="transposed"))


def _matmul_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(2, 3), T(4, 5)), RuntimeError, "inner dimensions differ")
    yield ErrorSample(sample(T(), T(4)), RuntimeError, "both arguments to matmul need")
    yield ErrorSample(sample(T(2, 2, 3), T(4, 3, 5)), RuntimeError, "The size of tensor a (2)")


@op(
    kind="product",
    where="torch method linalg",
    samples=_matmul_samples,
    errors=_matmul_errors,
    reference="numpy.matmul",
)
def matmul(self: Tensor, other: Tensor) -> Tensor:
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
        problem = f"both arguments to matmul need to be at least 1D, but they are {self.ndim}D "
        problem += f"and {other.ndim}D"
        raise failure(RuntimeError, "matmul", problem, "multiply by a number with *")
    a = prims.unsqueeze(self, 0) if self.ndim == 1 else self
    b = prims.unsqueeze(other, 1) if other.ndim == 1 else other
    result = batched("matmul", a, b)
    if self.ndim == 1:
        result = prims.squeeze(result, result.ndim - 2)
    return prims.squeeze(result, result.ndim - 1) if other.ndim == 1 else result


@op(where="method", out=True, autocast="lower")
def _rmatmul(self: Tensor, other: Tensor) -> Tensor:
    """`other @ self`."""
    return matmul(other, self)


def _pair_samples(*shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Any:
    return lambda: iter([sample(T(*a), T(*b)) for a, b in shapes])


@op(
    kind="product",
    samples=_pair_samples(((2, 3), (3, 4)), ((0, 3), (3, 2)), ((17, 33), (33, 5))),
    errors=lambda: [ErrorSample(sample(T(2), T(2, 3)), RuntimeError, "must be a matrix")],
    reference="numpy.matmul",
)
def mm(self: Tensor, mat2: Tensor) -> Tensor:
    """Product of two matrices: (n, k) x (k, m) -> (n, m); no broadcasting, no promotion.

    Raises:
        RuntimeError: not matrices, inner sizes or dtypes differ.

    Example:
        >>> torch.mm(torch.ones(2, 3), torch.ones(3, 2))
        tensor([[3., 3.],
                [3., 3.]])
    """
    check_rank("mm", self, 2, "self")
    check_rank("mm", mat2, 2, "mat2")
    return product("mm", self, mat2)


def _refuses_out_dtype(definition: OpDefinition, arguments: str) -> None:
    """Adds the overload with `out_dtype`, which PyTorch has for CUDA alone: it raises."""
    name = definition.name
    tensors, _, factors = arguments.partition(", *")

    def body(*args: Any, out: Any, **options: Any) -> Any:
        kind = "dtype" if out is None else "dtype_out"
        raise NotImplementedError(
            f"[{name}] Could not run 'aten::{name}.{kind}' with arguments from the 'CPU' backend: "
            f"out_dtype={args[-1]}\nhint: convert the operands to the result's dtype"
        )

    definition.overload(
        f"{name}.dtype({tensors}, dtype out_dtype, *{factors}, Tensor? out=None) -> Tensor",
        host=True,
        inplace=False,
        out=False,
        samples=None,
        errors=None,
    )(body)


_refuses_out_dtype(mm, "Tensor self, Tensor mat2")


def _int_mm_samples() -> Iterator[Sample]:
    for m, k, n in ((3, 4, 5), (20, 300, 33), (1, 40, 8)):
        bounds: dict[str, Any] = {"dtype": "i8", "low": -128, "high": 128, "grad": False}
        yield sample(T(m, k, **bounds), T(k, n, **bounds))


@op(where="torch", out=True, samples=_int_mm_samples)
def _int_mm(self: Tensor, mat2: Tensor) -> Tensor:
    """Product of two matrices of bytes in int32: exact. `self` may be uint8.

    Raises:
        RuntimeError: not matrices of bytes, inner sizes differ.
    """
    check_rank("_int_mm", self, 2, "self")
    check_rank("_int_mm", mat2, 2, "mat2")
    for x, argument, names in ((self, "self", ("i8", "u8")), (mat2, "mat2", ("i8",))):
        if x.dtype not in names:
            problem = f"Expected {argument} dtype to be "
            problem += f"{' or '.join(PUBLIC_NAMES[name] for name in names)} but got {x.dtype}"
            raise failure(RuntimeError, "_int_mm", problem, "quantise it, or use mm")
    check_inner_sizes("_int_mm", self, mat2)
    return prims.matmul(self, mat2, "i32")


@op(
    kind="product",
    samples=_pair_samples(((5, 2, 3), (5, 3, 4)), ((0, 2, 3), (0, 3, 4)), ((2, 3, 0), (2, 0, 4))),
    reference="numpy.matmul",
)
def bmm(self: Tensor, mat2: Tensor) -> Tensor:
    """Products of two equal batches of matrices: (b, n, k) x (b, k, m) -> (b, n, m).

    Raises:
        RuntimeError: not three dimensions; batches, inner sizes or dtypes differ.

    Example:
        >>> torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 5)).shape
        torch.Size([2, 3, 5])
    """
    check_rank("bmm", self, 3, "batch1")
    check_rank("bmm", mat2, 3, "batch2")
    _check_batches("bmm", self, mat2)
    return product("bmm", self, mat2)


_refuses_out_dtype(bmm, "Tensor self, Tensor mat2")


def _check_batches(name: str, a: Node, b: Node) -> None:
    if not layout.same(a.shape[0], b.shape[0]):
        problem = "Expected size for first two dimensions of batch2 tensor to be: "
        problem += f"[{number_shown(a.shape[0])}, {number_shown(a.shape[2])}] but got: "
        problem += f"{shown(b.shape[:2])}"
        raise failure(RuntimeError, name, problem, "batches must be equal; matmul broadcasts them")


@op(
    out="exact",
    samples=_pair_samples(((2, 3), (3,)), ((0, 3), (3,)), ((3, 0), (0,))),
    reference="numpy.matmul",
)
def mv(self: Tensor, vec: Tensor) -> Tensor:
    """Product of a matrix and a vector: (n, k) x (k) -> (n).

    Raises:
        RuntimeError: not a matrix and a vector, inner sizes or dtypes differ.

    Example:
        >>> torch.mv(torch.ones(2, 3), torch.ones(3))
        tensor([3., 3.])
    """
    check_rank("mv", self, 2, "self")
    check_rank("mv", vec, 1, "vec")
    return prims.squeeze(product("mv", self, prims.unsqueeze(vec, 1)), 1)


# ------------------------------------------------------------------------------- inner products


def _dot(name: str, a: Node, b: Node, conjugate: bool = False) -> Node:
    check_rank(name, a, 1, "self")
    check_rank(name, b, 1, "tensor")
    if a.dtype != b.dtype:
        problem = f"dot : expected both vectors to have same dtype, but found {a.dtype} and "
        problem += f"{b.dtype}"
        raise failure(RuntimeError, name, problem, "convert one operand")
    if not layout.same(a.shape[0], b.shape[0]):
        problem = f"inconsistent tensor size, expected tensor {shown(a.shape)} and src "
        problem += f"{shown(b.shape)} to have the same number of elements"
        raise failure(RuntimeError, name, problem, "check the lengths")
    if a.dtype == "bool":
        raise unsupported(name, a, "convert to an integer or floating-point type first")
    wide = compute_dtype(a.dtype)
    left, right = prims.cast(a, wide), prims.cast(b, wide)
    if conjugate and wide in ("c64", "c128"):
        left = prims.complex(prims.real(left), -prims.imag(left))
    return prims.cast(prims.sum(left * right, 0), a.dtype)


@op(
    out="exact",
    samples=_pair_samples(((3,), (3,)), ((0,), (0,)), ((4200,), (4200,))),
    errors=lambda: [ErrorSample(sample(T(2), T(3)), RuntimeError, "inconsistent tensor")],
    reference="numpy.dot",
)
def dot(self: Tensor, tensor: Tensor) -> Tensor:
    """The sum of products of two vectors.

    Raises:
        RuntimeError: not two vectors of one size and dtype.

    Example:
        >>> torch.dot(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        tensor(11.)
    """
    return _dot("dot", self, tensor)


@op(out="exact", samples=_pair_samples(((3,), (3,))), reference="numpy.vdot")
def vdot(self: Tensor, other: Tensor) -> Tensor:
    """The sum of products of two vectors, the first conjugated.

    Example:
        >>> torch.vdot(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        tensor(11.)
    """
    return _dot("vdot", self, other, True)


@op(
    kind="product",
    where="linalg",
    samples=lambda: [sample(T(3, 4), T(3, 4)), sample(T(3, 4), T(4)), sample(T(3), T(3))],
)
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sums of products along `dim`, the first operand conjugated; operands broadcast.

    Raises:
        RuntimeError: integers, or two dtypes.

    Example:
        >>> torch.linalg.vecdot(torch.ones(2, 3), torch.ones(3))
        tensor([3., 3.])
    """
    check_float("linalg.vecdot", x)
    check_same_dtype("vecdot", x, y)
    a, b = together("vecdot", x, y)
    axis = normalise_dim(dim, a.ndim, "vecdot")
    wide = compute_dtype(a.dtype)
    a, b = prims.cast(a, wide), prims.cast(b, wide)
    if wide in ("c64", "c128"):
        a = prims.complex(prims.real(a), -prims.imag(a))
    products = rounded(a * b, x.dtype)
    return prims.cast(prims.sum(products, axis) if products.ndim else products, x.dtype)


def _inner_rule(self: Any, other: Any) -> str:
    """A product of matrices is cast; a product of vectors and one of numbers are not."""
    return "" if self.ndim == 0 or other.ndim == 0 or self.ndim == other.ndim == 1 else "lower"


@op(
    out="exact",
    overlap="partial",
    overlap_when=lambda x, y: x.ndim == 0 or y.ndim == 0,
    autocast=by_arguments(_inner_rule),
    samples=_pair_samples(((3,), (3,)), ((2, 3), (4, 3)), ((2, 3), (3,)), ((), (3,))),
    reference="numpy.inner",
)
def inner(self: Tensor, other: Tensor) -> Tensor:
    """Sums of products along the last dimensions: [*A, K] and [*B, K] give [*A, *B].

    Raises:
        RuntimeError: the last sizes or the dtypes differ.

    Example:
        >>> torch.inner(torch.ones(2, 3), torch.ones(3))
        tensor([3., 3.])
    """
    if self.ndim == 0 or other.ndim == 0:
        a, b = together("inner", *_promoted(self, other))
        wide = compute_dtype(a.dtype)
        return (
            a & b
            if a.dtype == "bool"
            else prims.cast(prims.cast(a, wide) * prims.cast(b, wide), a.dtype)
        )
    if self.ndim == 1 and other.ndim == 1:
        return _dot("inner", self, other)
    last = self.shape[-1]
    a = prims.reshape(self, (layout.numel(self.shape[:-1]), last))
    b = prims.reshape(other, (layout.numel(other.shape[:-1]), other.shape[-1]))
    flat = product("inner", a, prims.permute(b, (1, 0)))
    return prims.reshape(flat, (*self.shape[:-1], *other.shape[:-1]))


@op(
    promote="default",
    out=True,
    overlap="partial",
    aliases="ger",
    samples=_pair_samples(((3,), (4,)), ((0,), (4,))),
    reference="numpy.outer",
)
def outer(self: Tensor, vec2: Tensor) -> Tensor:
    """All products of the elements of two vectors: (n) and (m) give (n, m).

    Raises:
        RuntimeError: not two vectors.

    Example:
        >>> torch.outer(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        tensor([[3., 4.],
                [6., 8.]])
    """
    check_rank("outer", self, 1, "self")
    check_rank("outer", vec2, 1, "vec2")
    a, b = prims.unsqueeze(self, 1), prims.unsqueeze(vec2, 0)
    return a & b if self.dtype == "bool" else a * b


# ------------------------------------------------------------------------------- sums of products


def _is(value: Value, number: int) -> bool:
    return not isinstance(value, Node) and value == number


def _scaled_sum(name: str, self: Node, term: Node, dtype: str, beta: Value, alpha: Value) -> Node:
    """beta * self + alpha * found, of a dtype; beta 0 leaves `self` out, even its NaN."""
    if self.dtype != dtype:
        problem = f"self and mat2 must have the same dtype, but got {self.dtype} and {dtype}"
        raise failure(RuntimeError, name, problem, "convert one of them")
    shape = term.shape
    sum_shape = broadcast_sizes(name, self.shape, shape)
    if not same_sizes(sum_shape, shape):
        raise RuntimeError(
            f"[{name}] The expanded size of the tensor {shown(shape)} must match the existing size "
            f"{shown(self.shape)}\nhint: the first operand broadcasts to the product's shape"
        )
    wide = "i64" if dtype == "bool" else compute_dtype(dtype)
    base = prims.broadcast_to(prims.cast(self, wide), shape)
    total = prims.cast(term, wide)
    if not _is(alpha, 1):
        total = total * as_node(alpha, wide)
    if not _is(beta, 1):
        factor = as_node(beta, wide)
        none = prims.broadcast_to(prims.eq(factor, prims.zeros_like(factor)), shape)
        base = prims.where(none, prims.zeros_like(base), base * factor)
    return prims.cast(base + total, dtype)


def _summand(name: str, a: Node, b: Node) -> Node:
    """A product for a sum: of halves not rounded to their own type yet."""
    return product(name, a, b, "f32" if a.dtype in ("f16", "bf16") else None)


def _addmm(self: Node, mat1: Node, mat2: Node) -> Node:
    check_rank("addmm", mat1, 2, "mat1")
    check_rank("addmm", mat2, 2, "mat2")
    return _summand("addmm", mat1, mat2)


def _addmv(self: Node, mat: Node, vec: Node) -> Node:
    check_rank("addmv", mat, 2, "mat")
    check_rank("addmv", vec, 1, "vec")
    return prims.squeeze(_summand("addmv", mat, prims.unsqueeze(vec, 1)), 1)


def _baddbmm(self: Node, batch1: Node, batch2: Node) -> Node:
    check_rank("baddbmm", batch1, 3, "batch1")
    check_rank("baddbmm", batch2, 3, "batch2")
    _check_batches("baddbmm", batch1, batch2)
    return _summand("baddbmm", batch1, batch2)


def _addbmm(self: Node, batch1: Node, batch2: Node) -> Node:
    """One product over batch and inner dimension together."""
    check_rank("addbmm", batch1, 3, "batch1")
    check_rank("addbmm", batch2, 3, "batch2")
    _check_batches("addbmm", batch1, batch2)
    count, rows, size = batch1.shape
    left = prims.reshape(prims.permute(batch1, (1, 0, 2)), (rows, count * size))
    right = prims.reshape(batch2, (batch2.shape[0] * batch2.shape[1], batch2.shape[2]))
    return _summand("addbmm", left, right)


def _addr(self: Node, vec1: Node, vec2: Node) -> Node:
    if vec1.dtype == vec2.dtype == "bool":
        return prims.cast(outer(prims.cast(vec1, "u8"), prims.cast(vec2, "u8")), "bool")
    return outer(vec1, vec2)


def _promoted(*operands: Node) -> list[Node]:
    common = result_type([participant(x) for x in operands])
    return [prims.cast(x, common) for x in operands]


_FACTORS = "*, Scalar beta=1, Scalar alpha=1"
_SHAPES = {
    "addmm": ((2, 4), (2, 3), (3, 4), (4,)),
    "addmv": ((2,), (2, 3), (3,), ()),
    "addbmm": ((2, 4), (5, 2, 3), (5, 3, 4), (4,)),
    "baddbmm": ((5, 2, 4), (5, 2, 3), (5, 3, 4), (2, 4)),
    "addr": ((3, 4), (3,), (4,), (4,)),
}


def _sum_samples(name: str) -> Iterator[Sample]:
    addend, left, right, part = (T(*shape) for shape in _SHAPES[name])
    yield sample(addend, left, right)
    yield sample(part, left, right)
    yield sample(addend, left, right, beta=2, alpha=3)
    yield sample(addend, left, right, beta=0)


def _sum_with(name: str, names: str, text: str, product_of: Any) -> OpDefinition:
    first, second = names.split()

    def plain(self: Node, left: Node, right: Node) -> Node:
        if name == "addr":
            self, left, right = _promoted(self, left, right)
        return _scaled_sum(name, self, product_of(self, left, right), left.dtype, 1, 1)

    def scaled(self: Node, left: Node, right: Node, beta: Value, alpha: Value) -> Node:
        if name == "addr":
            self, left, right = _promoted(self, left, right)
        product = product_of(self, left, right)
        return _scaled_sum(name, self, product, left.dtype, beta, alpha)

    one = {shape: f"torch.ones{shape}" for shape in _SHAPES[name]}
    addend, left, right = (one[shape] for shape in _SHAPES[name][:3])
    plain.__doc__ = f"""`beta * self + alpha * {text}`; `self` broadcasts to the product.

    beta 0 leaves `self` out, even where it is NaN. Half types are added in float32.

    Args:
        beta, alpha: numbers, 1 by default; integers for tensors of integers.

    Raises:
        RuntimeError: ranks, inner sizes or dtypes do not fit.

    Example:
        >>> torch.{name}({addend}, {left}, {right}).shape
        torch.Size({list(_SHAPES[name][0])})
    """
    rule = True if name == "addr" else "exact"
    tensors = f"Tensor self, Tensor {first}, Tensor {second}"
    definition = op(
        f"{name}({tensors}) -> Tensor",
        inplace=True,
        out=rule,
        autocast="" if name in ("addmv", "addr") else "lower",
        samples=lambda: _sum_samples(name),
        overlap="partial * self" if name == "addr" else "partial self",
    )(plain)
    return definition.overload(
        f"{name}.scaled({tensors}, {_FACTORS}) -> Tensor",
        runtime="beta alpha",
    )(scaled)


addmm = _sum_with("addmm", "mat1 mat2", "mat1 @ mat2", _addmm)
addmv = _sum_with("addmv", "mat vec", "mat @ vec", _addmv)
addbmm = _sum_with("addbmm", "batch1 batch2", "sum of batch1[i] @ batch2[i]", _addbmm)
baddbmm = _sum_with("baddbmm", "batch1 batch2", "batch1 @ batch2", _baddbmm)
addr = _sum_with("addr", "vec1 vec2", "outer(vec1, vec2)", _addr)
_refuses_out_dtype(addmm, f"Tensor self, Tensor mat1, Tensor mat2, {_FACTORS}")
_refuses_out_dtype(baddbmm, f"Tensor self, Tensor batch1, Tensor batch2, {_FACTORS}")


# ------------------------------------------------------------------------------------ others


@op(
    out=True,
    overlap="partial",
    samples=_pair_samples(((2, 3), (4, 5)), ((2,), (3, 2)), ((2, 2, 2), (2, 3)), ((), (3,))),
    reference="numpy.kron",
)
def kron(self: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: every element of `self` times all of `other`, as blocks.

    Example:
        >>> torch.kron(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0]))
        tensor([1., 1., 2., 2.])
    """
    common = promote_types(self.dtype, other.dtype)  # also of tensors without dimensions
    inner = compute_dtype(common)
    self, other = prims.cast(self, inner), prims.cast(other, inner)
    ndim = max(self.ndim, other.ndim)
    left = (1,) * (ndim - self.ndim) + self.shape
    right = (1,) * (ndim - other.ndim) + other.shape
    pairs_a: list[Size] = [n for a in left for n in (a, 1)]
    pairs_b: list[Size] = [n for b in right for n in (1, b)]
    a, b = prims.reshape(self, tuple(pairs_a)), prims.reshape(other, tuple(pairs_b))
    blocks = a & b if self.dtype == "bool" else a * b
    blocks = prims.cast(blocks, common)
    return prims.reshape(blocks, tuple(m * n for m, n in zip(left, right, strict=True)))


def _cross_product(name: str, a: Node, b: Node, dim: int) -> Node:
    if a.ndim != b.ndim:
        problem = "linalg.cross: inputs must have the same number of dimensions."
        raise failure(RuntimeError, name, problem, "unsqueeze one of them")
    check_one_dtype(name, input=a, other=b)
    axis = normalise_dim(dim, a.ndim, name)
    if a.ndim == 0 or not (layout.same(a.shape[axis], 3) and layout.same(b.shape[axis], 3)):
        problem = f"linalg.cross: inputs dimension {dim} must have length 3, but the inputs are "
        problem += f"{shown(a.shape)} and {shown(b.shape)}"
        raise failure(RuntimeError, name, problem, "cross products are of vectors in space")
    a, b = together(name, a, b)
    x, y = ([prims.slice(v, axis, i, 1) for i in range(3)] for v in (a, b))
    parts = [x[i] * y[(i + 1) % 3] - x[(i + 1) % 3] * y[i] for i in (1, 2, 0)]
    return prims.cat(parts, axis)


def _cross_samples() -> Iterator[Sample]:
    yield sample(T(4, 3), T(4, 3))
    yield sample(T(3), T(3))
    yield sample(T(3, 5), T(3, 5), dim=0)


@op(promote="default", out="separate", samples=_cross_samples)
def cross(self: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """Cross products of vectors of three elements along `dim` (the first of size 3 by default).

    Raises:
        RuntimeError: no dimension of size 3, sizes that do not broadcast, or dtypes that differ.

    Example:
        >>> torch.cross(torch.tensor([1.0, 0, 0]), torch.tensor([0.0, 1, 0]))
        tensor([0., 0., 1.])
    """
    if dim is None:
        late("flambeau.core.warned").warn_once(
            "Using torch.cross without specifying the dim arg is deprecated. Please either pass "
            "the dim explicitly or simply use torch.linalg.cross."
        )
        dim = next((d for d, n in enumerate(self.shape) if static_size(n) == 3), None)
        if dim is None:
            raise failure(RuntimeError, "cross", "no dimension of size 3 in input", "pass dim")
    return _cross_product("cross", self, other, dim)


@op(
    name="cross",
    where="linalg",
    promote="default",
    out="separate",
    samples=lambda: [sample(T(4, 3), T(4, 3)), sample(T(4, 3), T(1, 3))],
)
def linalg_cross(self: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Cross products of vectors of three elements along `dim`.

    Raises:
        RuntimeError: the dimension has not size 3, sizes do not broadcast, or dtypes differ.

    Example:
        >>> torch.linalg.cross(torch.tensor([1.0, 0, 0]), torch.tensor([0.0, 1, 0]))
        tensor([0., 0., 1.])
    """
    return _cross_product("cross", self, other, dim)


@op(
    samples=lambda: [sample(T(3, 4)), sample(T(4, 3)), sample(T(0, 3))],
    reference="numpy.trace",
    autocast="float32",
)
def trace(self: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix; integers sum in int64.

    Raises:
        RuntimeError: not a matrix.

    Example:
        >>> torch.trace(torch.ones(3, 3))
        tensor(3.)
    """
    from flambeau.ops.reduction.reduce import sum as total

    if self.ndim != 2:
        problem = f"trace: expected a matrix, but got tensor with dim {self.ndim}"
        raise failure(RuntimeError, "trace", problem, "2D")
    diagonal = prims.eq(prims.iota(self.shape, 0), prims.iota(self.shape, 1))
    zero = prims.full_like(0, self)
    return total(prims.where(diagonal, self, zero))
