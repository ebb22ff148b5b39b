"""Joining and rearranging: results with memory of their own.

Everything here is a composition of shape primitives, so it fuses with what follows and its
derivative is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.ir.node import Node
from flambeau.ir.size import Size, known_equal, mod, prod
from flambeau.language import layout
from flambeau.language.definition import Dense, function, op
from flambeau.language.promotion import result_type
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import SymInt, Tensor
from flambeau.ops.common import (
    normalise_dim,
    normalise_dims,
    number_shown,
    shown,
    turned_copy,
)
from flambeau.ops.indexing.slices import diagonal

Samples = Iterator[Sample]


def promoted(tensors: Sequence[Node], name: str) -> list[Node]:
    """The tensors in their common dtype.

    Raises:
        RuntimeError: no tensors (ValueError of `cat`, as in PyTorch).
    """
    if not tensors:
        error = ValueError if name == "cat" else RuntimeError
        raise failure(error, name, "expected a non-empty list of Tensors", "give one or more")
    common = result_type((x.dtype, "tensor" if x.shape else "zero_dim") for x in tensors)
    return [prims.cast(x, common) for x in tensors]


# ------------------------------------------------------------------------------------ joining


def _cat_samples() -> Samples:
    yield sample([T(2, 3), T(4, 3)])
    yield sample([T(2, 3), T(2, 1), T(2, 0)], 1)
    yield sample([T(2, 3), T(2, 3, dtype="i64", grad=False)], -1)
    yield sample([T(4, 6, layout="transposed"), T(4, 6)], dim=0)
    yield sample([T(0), T(2, 3)])


def _cat_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample([T(2, 3), T(2, 4)]), RuntimeError, "Sizes of tensors must match")
    yield ErrorSample(sample([T(), T()]), RuntimeError, "zero-dimensional")


def _joined(tensors: Sequence[Node], dim: int, name: str) -> Node:
    for position, x in enumerate(tensors):
        if x.ndim == 0:
            problem = f"zero-dimensional tensor (at position {position}) cannot be concatenated"
            raise failure(RuntimeError, name, problem, "use stack")
    # A tensor of shape (0,) joins anything, as in PyTorch, whose first empty tensor that was.
    full = [x for x in tensors if not (x.ndim == 1 and known_equal(x.shape[0], 0) is True)]
    if not full:
        return tensors[0]
    first = full[0]
    d = normalise_dim(dim, first.ndim, name)
    for position, x in enumerate(full):
        if x.ndim != first.ndim:
            problem = f"Tensors must have same number of dimensions: got {first.ndim} and {x.ndim}"
            raise failure(RuntimeError, name, problem, "unsqueeze the smaller one")
        for other in range(first.ndim):
            if other != d and not layout.same(x.shape[other], first.shape[other]):
                problem = f"Sizes of tensors must match except in dimension {d}. Expected size "
                problem += f"{number_shown(first.shape[other])} but got size "
                problem += f"{number_shown(x.shape[other])} for tensor number {position} in the "
                problem += "list."
                raise failure(RuntimeError, name, problem, "only the joined dimension may differ")
    return prims.cat(full, d)


@op(
    kind="join",
    layout="images",
    long_list="cat",
    aliases="concat concatenate",
    samples=_cat_samples,
    errors=_cat_errors,
)
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other along a dimension, in their common dtype.

    Shapes: equal but for `dim`; tensors of shape (0,) are left out.

    Raises:
        RuntimeError: other sizes differ, a tensor without dimensions, or no tensors.

    Example:
        >>> torch.cat([torch.zeros(2), torch.ones(1)])
        tensor([0., 0., 1.])
    """
    return _joined(promoted(tensors, "cat"), dim, "cat")


def _stack_samples() -> Samples:
    yield sample([T(2, 3), T(2, 3)])
    yield sample([T(2, 3), T(2, 3), T(2, 3)], 1)
    yield sample([T(), T()])
    yield sample([T(2, 3), T(2, 3)], -1)


@op(
    kind="join",
    long_list="stack",
    samples=_stack_samples,
    errors=lambda: [
        ErrorSample(sample([T(2), T(3)]), RuntimeError, "expects each tensor to be equal size")
    ],
)
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape along a new dimension.

    Raises:
        RuntimeError: shapes differ, or no tensors.

    Example:
        >>> torch.stack([torch.zeros(2), torch.ones(2)]).shape
        torch.Size([2, 2])
    """
    operands = promoted(tensors, "stack")
    first = operands[0]
    d = normalise_dim(dim, first.ndim + 1, "stack")
    for position, x in enumerate(operands):
        same = x.ndim == first.ndim and all(
            layout.same(a, b) for a, b in zip(x.shape, first.shape, strict=True)
        )
        if not same:
            problem = f"stack expects each tensor to be equal size, but got {shown(first.shape)} "
            problem += f"at entry 0 and {shown(x.shape)} at entry {position}"
            raise failure(RuntimeError, "stack", problem, "pad, or use cat")
    return prims.cat([prims.unsqueeze(x, d) for x in operands], d)


def _at_least(x: Node, ndim: int) -> Node:
    """`x` with dimensions of size 1 added, by NumPy's rule of `atleast_<n>d`."""
    if x.ndim >= ndim:
        return x
    if ndim == 3 and x.ndim == 2:
        return prims.reshape(x, (*x.shape, 1))
    if ndim == 3 and x.ndim == 1:
        return prims.reshape(x, (1, *x.shape, 1))
    return prims.reshape(x, (1,) * (ndim - x.ndim) + x.shape)


@op(
    kind="join",
    long_list="hstack",
    samples=lambda: [sample([T(2), T(3)]), sample([T(2, 3), T(2, 1)]), sample([T(), T()])],
)
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the second dimension (vectors along the first).

    Example:
        >>> torch.hstack([torch.zeros(1), torch.ones(2)])
        tensor([0., 1., 1.])
    """
    operands = [_at_least(x, 1) for x in promoted(tensors, "hstack")]
    return _joined(operands, 0 if operands[0].ndim == 1 else 1, "hstack")


@op(
    kind="join",
    long_list="vstack",
    aliases="row_stack",
    samples=lambda: [sample([T(3), T(3)]), sample([T(2, 3), T(3)])],
)
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the first dimension; vectors are rows.

    Example:
        >>> torch.vstack([torch.zeros(2), torch.ones(2)]).shape
        torch.Size([2, 2])
    """
    return _joined([_at_least(x, 2) for x in promoted(tensors, "vstack")], 0, "vstack")


@op(
    kind="join",
    long_list="dstack",
    samples=lambda: [sample([T(3), T(3)]), sample([T(2, 3), T(2, 3)])],
)
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the third dimension.

    Example:
        >>> torch.dstack([torch.zeros(2), torch.ones(2)]).shape
        torch.Size([1, 2, 2])
    """
    return _joined([_at_least(x, 3) for x in promoted(tensors, "dstack")], 2, "dstack")


@op(
    kind="join",
    long_list="column_stack",
    samples=lambda: [sample([T(3), T(3, 2)]), sample([T(), T()])],
)
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the second dimension; vectors are columns.

    Example:
        >>> torch.column_stack([torch.zeros(3), torch.ones(3)]).shape
        torch.Size([3, 2])
    """
    operands = promoted(tensors, "column_stack")
    columns = [prims.reshape(x, (prod(x.shape), 1)) if x.ndim <= 1 else x for x in operands]
    return _joined(columns, 1, "column_stack")


@op(name="_block_diag", where="torch", out=True)
def block_diagonal(tensors: Sequence[Tensor]) -> Tensor:
    """Matrices along the diagonal of one matrix, zeros elsewhere."""
    for x in tensors:
        if x.ndim > 2:
            problem = f"Input tensors must have 2 or fewer dimensions. Input has {x.ndim} "
            problem += "dimensions"
            raise failure(RuntimeError, "block_diag", problem, "pass matrices")
    blocks = [_at_least(x, 2) for x in promoted(tensors, "block_diag")]
    width: Size = 0
    for x in blocks:
        width = width + x.shape[1]
    rows, start = [], 0
    for x in blocks:
        after = width - start - x.shape[1]
        rows.append(prims.pad(x, (0, start), (0, after)))
        start = start + x.shape[1]  # type: ignore[assignment]
    return prims.cat(rows, 0)


@function(where="torch", samples=lambda: [sample(T(1, 2), T(2, 3), T(3)), sample(T(2, 2))])
def block_diag(*tensors: Tensor) -> Any:
    """Matrices along the diagonal of one matrix, zeros elsewhere.

    Example:
        >>> torch.block_diag(torch.ones(1, 2), torch.ones(1, 1))
        tensor([[1., 1., 0.],
                [0., 0., 1.]])
    """
    return block_diagonal(list(tensors))


def _define_atleast(ndim: int) -> None:
    name = f"atleast_{ndim}d"
    single = op(f"_{name}(Tensor self) -> Tensor", where="torch", view=True, returns_self=True)(
        lambda self: _at_least(self, ndim)
    )

    def body(*tensors: Any) -> Any:
        if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
            return tuple(single(x) for x in tensors[0])
        results = tuple(single(x) for x in tensors)
        return results[0] if len(results) == 1 else results

    body.__name__ = name
    body.__doc__ = f"""Tensors with at least {ndim} dimensions: sizes of 1 are added.

    Example:
        >>> torch.{name}(torch.tensor(1.)).ndim
        {ndim}
    """
    op(
        f"{name}(Tensor[] tensors) -> (Tensor...)",
        where="torch",
        host=True,
        samples=lambda: [sample(T()), sample(T(3), T(2, 3)), sample([T(3), T(2, 3, 4, 5)])],
    )(body)


for _ndim in (1, 2, 3):
    _define_atleast(_ndim)


@function(
    where="torch",
    samples=lambda: [sample(T(3), T(4), indexing="ij"), sample(T(3), T(4), T(2), indexing="xy")],
)
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinates of a grid: each vector expanded along the dimensions of the others.

    Args:
        tensors: vectors or numbers.
        indexing: "ij" (default): vector i varies along dimension i; "xy" swaps the first two.

    Raises:
        RuntimeError: no tensor, unknown indexing, several dtypes, or tensors with more dimensions.

    Example:
        >>> x, y = torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")
        >>> x.shape
        torch.Size([2, 3])
    """
    if indexing is None:
        late("flambeau.core.warned").warn_once(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing "
            "argument."
        )
    operands = list(tensors)
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = list(operands[0])
    if not operands:
        problem = "meshgrid expects a non-empty TensorList"
        raise failure(RuntimeError, "meshgrid", problem, "pass at least one vector")
    if indexing not in (None, "ij", "xy"):
        problem = 'torch.meshgrid: indexing must be one of "xy" or "ij", but received: '
        problem += f"{indexing}"
        raise failure(RuntimeError, "meshgrid", problem, "matrices use ij")
    return _meshgrid(operands, indexing == "xy")


@op(where="torch", view=True)
def _meshgrid(tensors: Sequence[Tensor], swap: bool) -> tuple[Tensor, ...]:
    """Views of the vectors, expanded to the grid."""
    if any(x.ndim > 1 for x in tensors):
        problem = "torch.meshgrid: Expected 0D or 1D tensor in the tensor list"
        raise failure(RuntimeError, "meshgrid", problem, "ravel() the coordinates")
    if any(x.dtype != tensors[0].dtype for x in tensors):
        problem = "meshgrid expects all tensors to have the same dtype"
        raise failure(RuntimeError, "meshgrid", problem, "convert them")
    shape = [prod(x.shape) for x in tensors]
    places = list(range(len(tensors)))
    if swap and len(tensors) > 1:
        shape[0], shape[1] = shape[1], shape[0]
        places[0], places[1] = 1, 0
    return [
        prims.broadcast(prims.reshape(x, (prod(x.shape),)), shape, (d,))
        for x, d in zip(tensors, places, strict=True)
    ]


@function(where="torch", samples=lambda: [sample(T(2), T(3)), sample(T(3))])
def cartesian_prod(*tensors: Tensor) -> Any:
    """All combinations of the vectors' elements, one per row.

    Example:
        >>> torch.cartesian_prod(torch.arange(2), torch.arange(2)).shape
        torch.Size([4, 2])
    """
    for x in tensors:
        if x.ndim != 1:
            problem = f"Expect a 1D vector, but got shape {list(x.shape)}"
            raise failure(RuntimeError, "cartesian_prod", problem, "ravel() the tensors")
    if len(tensors) == 1:
        return tensors[0]
    grids = meshgrid(*tensors, indexing="ij")
    return stack([x.reshape(-1) for x in grids], 1)


# ------------------------------------------------------------------------------------ reordering


@op(
    layout="first",
    samples=lambda: [sample(T(2, 3), (0,)), sample(T(2, 3), (0, -1)), sample(T(2, 3), ())],
)
def flip(self: Tensor, dims: Sequence[int]) -> Tensor:
    """Elements in reverse order along `dims`; a copy.

    Raises:
        IndexError: a dimension out of range.
        RuntimeError: a dimension named twice.

    Example:
        >>> torch.arange(3).flip(0)
        tensor([2, 1, 0])
    """
    turned = normalise_dims(dims, self.ndim, "flip")
    return prims.flip(self, turned) if self.ndim else self


def _define_flip(name: str, d: int) -> None:
    def body(self: Node) -> Node:
        if self.ndim <= d:
            raise failure(RuntimeError, name, f"Input must be >= {d + 1}-d.", "unsqueeze it")
        return prims.flip(self, (d,))

    flipped = (
        "tensor([[3, 4],\n                [1, 2]])",
        "tensor([[2, 1],\n                [4, 3]])",
    )[d]
    body.__doc__ = f"""Elements in reverse order along dimension {d} (NumPy's `{name}`).

    Raises:
        RuntimeError: fewer than {d + 1} dimensions.

    Example:
        >>> torch.{name}(torch.tensor([[1, 2], [3, 4]]))
        {flipped}
    """
    op(
        f"{name}(Tensor self) -> Tensor",
        layout="first",
        samples=lambda: [sample(T(2, 3))],
        reference=f"numpy.{name}",
    )(body)


_define_flip("flipud", 0)
_define_flip("fliplr", 1)


def _roll_samples() -> Samples:
    yield sample(T(5), 2)
    yield sample(T(2, 3), 1)
    yield sample(T(2, 3), (1, -1), (0, 1))
    yield sample(T(0, 3), 1, 1)


@op(
    layout="images",
    samples=_roll_samples,
    errors=lambda: [ErrorSample(sample(T(3), (1, 2), (0,)), RuntimeError, "must align")],
    varying=True,
)
def roll(self: Tensor, shifts: Sequence[SymInt], dims: Sequence[int] = ()) -> Tensor:
    """Elements moved along `dims` by `shifts`, re-entering at the other end.

    Without `dims` the flattened tensor is rolled and its shape restored.

    Raises:
        RuntimeError: no shift, or not one per dimension.

    Example:
        >>> torch.arange(4).roll(1)
        tensor([3, 0, 1, 2])
    """
    if not shifts:
        raise failure(RuntimeError, "roll", "`shifts` required", "one shift per dimension")
    if not dims and len(shifts) == 1:
        flat = prims.reshape(self, (prod(self.shape),))
        rolled = prims.reshape(_rolled(flat, shifts[0], 0), self.shape)
        return Dense(rolled, range(self.ndim))
    if len(shifts) != len(dims):
        problem = f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}"
        raise failure(RuntimeError, "roll", problem, "give one shift per dimension")
    result = self
    for shift, dim in zip(shifts, dims, strict=True):
        result = _rolled(result, shift, normalise_dim(dim, self.ndim, "roll"))
    return result


def _rolled(x: Node, shift: Size, d: int) -> Node:
    extent = x.shape[d]
    if isinstance(extent, int) and extent <= 1:
        return x
    start = mod(extent - mod(shift, extent), extent)
    if layout.same(start, 0):
        return x
    tail = prims.slice(x, d, start, extent - start)
    return prims.cat([tail, prims.slice(x, d, 0, start)], d)


@op(
    layout="first",
    samples=lambda: [sample(T(2, 3)), sample(T(2, 3), 2), sample(T(2, 3, 4), -1, (1, 2))],
)
def rot90(self: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Rotated by k quarter turns from the first of `dims` towards the second.

    Raises:
        RuntimeError: not two different dimensions.

    Example:
        >>> torch.arange(4).reshape(2, 2).rot90()
        tensor([[1, 3],
                [0, 2]])
    """
    if len(dims) != 2 or self.ndim < 2:
        problem = f"expected total rotation dims == 2, but got dims = {len(dims)}, of a tensor of "
        problem += f"{self.ndim} dimensions"
        raise failure(RuntimeError, "rot90", problem, "name two dimensions")
    a, b = normalise_dims(dims, self.ndim, "rot90")
    turns = k % 4
    if turns == 2:
        return prims.flip(self, (a, b))
    if turns == 0:
        return Dense(self, range(self.ndim))
    flipped = prims.flip(self, (b if turns == 1 else a,))
    return turned_copy(prims.transpose(flipped, a, b), self, a, b)


# ------------------------------------------------------------------------------------ triangles


def _triangle_samples() -> Samples:
    yield sample(T(3, 4))
    yield sample(T(4, 3), 1)
    yield sample(T(2, 3, 3), -1)


def _triangle(self: Node, diagonal: Size, lower: bool, name: str) -> Node:
    if self.ndim < 2:
        problem = f"{name}: input tensor must have at least 2 dimensions"
        raise failure(RuntimeError, name, problem, "unsqueeze it")
    row = prims.iota(self.shape, self.ndim - 2)
    column = prims.iota(self.shape, self.ndim - 1)
    limit = row + prims.constant(diagonal, row)
    inside = prims.le(column, limit) if lower else prims.ge(column, limit)
    return prims.where(inside, self, prims.zeros_like(self))


@op(
    inplace=True,
    out="exact",
    repeats=True,
    samples=_triangle_samples,
    reference="numpy.tril",
    varying=True,
)
def tril(self: Tensor, diagonal: SymInt = 0) -> Tensor:
    """Elements on and below a diagonal, zeros above; shapes (..., m, n).

    Raises:
        RuntimeError: fewer than two dimensions.

    Example:
        >>> torch.ones(2, 2).tril()
        tensor([[1., 0.],
                [1., 1.]])
    """
    return _triangle(self, diagonal, True, "tril")


@op(
    inplace=True,
    out="exact",
    repeats=True,
    samples=_triangle_samples,
    reference="numpy.triu",
    varying=True,
)
def triu(self: Tensor, diagonal: SymInt = 0) -> Tensor:
    """Elements on and above a diagonal, zeros below; shapes (..., m, n).

    Raises:
        RuntimeError: fewer than two dimensions.

    Example:
        >>> torch.ones(2, 2).triu(1)
        tensor([[0., 1.],
                [0., 0.]])
    """
    return _triangle(self, diagonal, False, "triu")


# ------------------------------------------------------------------------------------ diagonals


def _embedded(self: Node, offset: int, first: int, second: int) -> Node:
    """The last dimension on a diagonal of two new dimensions `first` < `second`."""
    n, lead = self.shape[-1], self.ndim - 1
    extent = n + abs(offset)
    low, high = [0] * self.ndim, [0] * self.ndim
    low[-1], high[-1] = max(-offset, 0), max(offset, 0)
    rows = prims.pad(self, low, high)
    shape = (*rows.shape, extent)
    spread = prims.broadcast(rows, shape, range(self.ndim))
    row, column = prims.iota(shape, lead), prims.iota(shape, lead + 1)
    on = prims.eq(column, row + prims.constant(offset, row))
    square = prims.where(on, spread, prims.zeros_like(spread))
    leading = iter(range(lead))
    order = [{first: lead, second: lead + 1}.get(d, -1) for d in range(lead + 2)]
    return prims.permute(square, [next(leading) if d < 0 else d for d in order])


@op(
    samples=lambda: [sample(T(3)), sample(T(2, 3), 1), sample(T(2, 3), -1, 0, 2)],
    varying=True,
)
def diag_embed(self: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices that have the last dimension on their diagonal `offset`, zeros elsewhere.

    Raises:
        RuntimeError: dim1 and dim2 are the same.

    Example:
        >>> torch.diag_embed(torch.tensor([1, 2]))
        tensor([[1, 0],
                [0, 2]])
    """
    a = normalise_dim(dim1, self.ndim + 1, "diag_embed")
    b = normalise_dim(dim2, self.ndim + 1, "diag_embed")
    if a == b:
        problem = f"diagonal dimensions cannot be identical {dim1}, {dim2}"
        raise failure(RuntimeError, "diag_embed", problem, "two")
    return _embedded(self, offset, a, b) if a < b else _embedded(self, -offset, b, a)


@op(
    out="exact",
    samples=lambda: [sample(T(3)), sample(T(3), -1), sample(T(3, 4)), sample(T(3, 4), 1)],
    reference="numpy.diag",
    varying=True,
)
def diag(self: Tensor, diagonal: int = 0) -> Tensor:
    """The matrix with a vector on its diagonal, or the diagonal of a matrix (a copy).

    Raises:
        RuntimeError: neither vector nor matrix.

    Example:
        >>> torch.diag(torch.tensor([1, 2]))
        tensor([[1, 0],
                [0, 2]])
    """
    if self.ndim == 1:
        return _embedded(self, diagonal, 0, 1)
    if self.ndim == 2:
        value: Node = diagonal_of(self, diagonal, 0, 1)
        return value
    problem = f"diag(): Supports 1D or 2D tensors. Got {self.ndim}D"
    raise failure(RuntimeError, "diag", problem, "see diagonal")


diagonal_of = diagonal


@op(
    samples=lambda: [sample(T(2, 2)), sample(T(), 1)],
    reference="numpy.diagflat",
    varying=True,
)
def diagflat(self: Tensor, offset: int = 0) -> Tensor:
    """The matrix with the flattened tensor on its diagonal.

    Example:
        >>> torch.diagflat(torch.tensor([1, 2]))
        tensor([[1, 0],
                [0, 2]])
    """
    return _embedded(prims.reshape(self, (prod(self.shape),)), offset, 0, 1)
