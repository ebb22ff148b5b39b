"""Reading and writing at places that are data: gather, scatter, index_*, take, put.

Indices are wrapped and checked by the primitive `check_index`, which raises IndexError at run time.
Writes are sequential, so results are the same for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.dtypes import TITLES
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.ir.node import Node
from flambeau.ir.size import Size, prod
from flambeau.language import layout
from flambeau.language.definition import REGISTRY, op
from flambeau.language.promotion import CATEGORY
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Scalar, Tensor
from flambeau.ops.common import normalise_dim, shown, strides_of
from flambeau.ops.creation.creation import filled, number

Samples = Iterator[Sample]


def I(*shape: int, high: int) -> Any:  # noqa: E743, N802 - beside T in samples
    """A tensor of indices below `high`, for samples."""
    return T(*shape, dtype="i64", low=0, high=high, grad=False)


def check_integer(index: Node, name: str, kinds: Sequence[str] = ("i64", "i32")) -> Node:
    """The index tensor, which must hold integers.

    Raises:
        RuntimeError: of another dtype.
    """
    if index.dtype not in kinds:
        problem = f"{name}(): Expected dtype {'int32/' * ('i32' in kinds)}int64 for index, got "
        problem += f"{index.dtype}"
        raise failure(RuntimeError, name, problem, "convert it with long()")
    return index


def wrapped(index: Node, extent: Size, name: str, dim: int = 0) -> Node:
    """Indices in [0, extent), checked at run time, as int64.

    The operator's definition states the error, and whether negative indices count from the end.
    """
    options = REGISTRY[name.removesuffix("_")].options
    error = "runtime" if options.index_error is RuntimeError else "index"
    strict = options.strict_index
    message = (
        f"[{name}] index {{value}} is out of bounds for dimension {dim} with size {{size}}\n"
        f"hint: indices lie in [{'0' if strict else '-size'}, size)"
    )
    if extent == 0 and 0 not in index.shape:  # zeros are never symbols
        raise options.index_error(
            f"[{name}] index is out of bounds for dimension {dim} with size 0\n"
            "hint: only an empty index fits an empty dimension"
        )
    once = _unrepeated(index)
    checked = prims.check_index(once, extent, name, message, error=error, strict=strict)
    return checked if once is index else prims.broadcast_to(checked, index.shape)


def _with_check(result: Node, places: Node, source: Node) -> Node:
    """Reads at `places`, which are checked even where there is one only.

    The element of a zero-dimensional tensor is read without its index, whose check would be lost.
    """
    if source.ndim:
        return result
    return prims.where(places <= 0, result, prims.zeros_like(result))


def _unrepeated(index: Node) -> Node:
    """One copy of an expanded index: whole rows then move at once, and nothing is checked twice."""
    for d, stride in enumerate(strides_of(index)):
        extent = index.shape[d]
        repeats = not isinstance(extent, int) or extent > 1
        if isinstance(stride, int) and stride == 0 and repeats:
            index = prims.slice(index, d, 0, 1)
    return index


def _is_empty(x: Node) -> bool:
    return any(isinstance(n, int) and n == 0 for n in x.shape)


def connected(x: Node, source: Node) -> Node:
    """x as a result of `source` too, from which no element is taken: its gradient is zero."""
    if CATEGORY[x.dtype] < 2:
        return x  # integers have no gradient
    unread = prims.sum(prims.reshape(source, (prod(source.shape),)), axis=0)
    never = prims.full(False, x.shape, "bool")
    return prims.where(never, prims.broadcast_to(unread, x.shape), x)


def _at_least_1d(x: Node) -> Node:
    return prims.reshape(x, (1,)) if x.ndim == 0 else x


def _cut(x: Node, shape: Sequence[Size], axis: int) -> Node:
    """The leading part of x with the sizes of `shape` beside the axis."""
    for d, n in enumerate(shape):
        if d != axis and not layout.same(x.shape[d], n):
            x = prims.slice(x, d, 0, n)
    return x


# ------------------------------------------------------------------------------------ gather


def _gather_samples() -> Samples:
    yield sample(T(3, 4), 1, I(3, 2, high=4))
    yield sample(T(3, 4), 0, I(2, 3, high=3))
    yield sample(T(3, 4), -1, I(2, 6, high=4))
    yield sample(T(4), 0, I(high=4))


def _gather_errors() -> Iterator[ErrorSample]:
    index = T(2, dtype="i64", values=[0, 4], grad=False)
    yield ErrorSample(sample(T(4), 0, index), RuntimeError, "out of bounds")


def _check_ranks(self: Node, index: Node, d: int, name: str) -> None:
    if self.ndim != index.ndim:
        problem = "Index tensor must have the same number of dimensions as input tensor: "
        problem += f"{index.ndim} and {self.ndim}"
        raise failure(RuntimeError, name, problem, "unsqueeze the index")
    for axis in range(self.ndim):
        if axis != d and less(self.shape[axis], index.shape[axis]):
            problem = f"Size does not match at dimension {axis} expected index "
            problem += f"{shown(index.shape)} to be no larger than self {shown(self.shape)} apart "
            problem += f"from dimension {d}"
            raise failure(RuntimeError, name, problem, "only the indexed dimension may be larger")


@op(
    out="separate",
    samples=_gather_samples,
    errors=_gather_errors,
    index_error=RuntimeError,
    strict_index=True,
)
def gather(self: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """`out[i][j] = input[i][index[i][j]]` for dim 1; the shape is that of index.

    Raises:
        RuntimeError: index has another rank, or is larger beside `dim`, or no integer dtype.
        IndexError: an index outside of the dimension.

    Example:
        >>> torch.tensor([[1, 2], [3, 4]]).gather(1, torch.tensor([[0, 0], [1, 0]]))
        tensor([[1, 1],
                [4, 3]])
    """
    d = normalise_dim(dim, self.ndim, "gather")
    if _is_empty(index):
        flat = prims.reshape(self, (prod(self.shape),))
        return prims.reshape(prims.slice(flat, 0, 0, 0), index.shape)
    check_integer(index, "gather")
    x, places = _at_least_1d(self), _at_least_1d(index)
    _check_ranks(x, places, d, "gather")
    places = wrapped(places, x.shape[d], "gather", d)
    result = prims.gather(_cut(x, places.shape, d), places, d)
    return prims.reshape(_with_check(result, places, self), index.shape)


@op(
    out="separate",
    samples=lambda: [sample(T(3, 4), I(3, 2, high=4), 1), sample(T(3, 4), I(1, 4, high=3), 0)],
    index_error=RuntimeError,
)
def take_along_dim(self: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather` after broadcasting input and indices beside `dim` (None: both flattened).

    Example:
        >>> torch.tensor([[1, 2]]).take_along_dim(torch.tensor([[1]]), 1)
        tensor([[2]])
    """
    if dim is None:
        flat = prims.reshape(self, (prod(self.shape),))
        return gather(flat, 0, prims.reshape(indices, (prod(indices.shape),)))  # type: ignore[no-any-return]
    d = normalise_dim(dim, self.ndim, "take_along_dim")
    if self.ndim != indices.ndim:
        problem = "torch.take_along_dim(): input and indices should have the same number of "
        problem += f"dimensions, but got {self.ndim} dimensions for input, and {indices.ndim} "
        problem += "dimensions for indices"
        raise failure(RuntimeError, "take_along_dim", problem, "unsqueeze one of them")
    one = (1,)
    beside = prims.broadcast_shapes(
        self.shape[:d] + one + self.shape[d + 1 :], indices.shape[:d] + one + indices.shape[d + 1 :]
    )
    x = prims.broadcast_to(self, beside[:d] + self.shape[d : d + 1] + beside[d + 1 :])
    at = prims.broadcast_to(indices, beside[:d] + indices.shape[d : d + 1] + beside[d + 1 :])
    return prims.gather(
        x,
        wrapped(check_integer(at, "take_along_dim", ("i64",)), x.shape[d], "take_along_dim", d),
        d,
    )


# ------------------------------------------------------------------------------------ scatter

REDUCTIONS = {"add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "max"}
REDUCTIONS["amin"] = "min"


def _scatter_samples() -> Samples:
    index = T(2, 3, dtype="i64", values=[[0, 2, 1], [3, 0, 2]], grad=False)
    yield sample(T(2, 4), 1, index, T(2, 3))
    yield sample(T(2, 4), 1, index, 1.5)
    yield sample(T(2, 4), -1, index, T(2, 5, grad=False))


def _scattered(self: Node, dim: int, index: Node, source: Node, mode: str, name: str) -> Node:
    d = normalise_dim(dim, self.ndim, name)
    if not _is_empty(index):
        check_integer(index, name)
    if source.dtype != self.dtype:
        problem = f"Expected self.dtype to be equal to src.dtype: {self.dtype} and {source.dtype}"
        raise failure(RuntimeError, name, problem, "convert src")
    if _is_empty(index):
        return connected(self, source)
    x, at, values = (_at_least_1d(v) for v in (self, index, source))
    _check_ranks(x, at, d, name)
    if values.ndim != at.ndim or any(
        less(n, m) for n, m in zip(values.shape, at.shape, strict=True)
    ):
        problem = f"Expected index {shown(at.shape)} to be no larger than src {shown(values.shape)}"
        raise failure(RuntimeError, name, problem, "one source element per index")
    result = prims.scatter(x, wrapped(at, x.shape[d], name, d), _cut(values, at.shape, -1), d, mode)
    return prims.reshape(result, self.shape)


@op(kind="scatter", samples=_scatter_samples, index_error=RuntimeError, strict_index=True)
def scatter(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy with `out[i][index[i][j]] = src[i][j]` for dim 1; of equal indices the last wins.

    Args:
        src: a tensor of the same dtype (also named `value` for a number).
        reduce: "add" or "multiply" instead of overwriting.

    Raises:
        RuntimeError: dtypes differ, index larger than src, or than self beside `dim`.
        IndexError: an index outside of the dimension.

    Example:
        >>> torch.zeros(3).scatter(0, torch.tensor([2]), torch.tensor([5.]))
        tensor([0., 0., 5.])
    """
    return _scattered(self, dim, index, src, "set", "scatter")


@scatter.overload(fits="value", runtime="value", samples=None)
def _scatter_value(self: Tensor, dim: int, index: Tensor, value: Scalar) -> Tensor:
    return _scattered(self, dim, index, filled(value, index.shape, self.dtype), "set", "scatter")


def _mode(reduce: str, name: str) -> str:
    if reduce not in REDUCTIONS:
        problem = f"reduce argument must be one of {', '.join(REDUCTIONS)}: got {reduce}"
        raise failure(RuntimeError, name, problem, "check the spelling")
    return REDUCTIONS[reduce]


@scatter.overload(samples=None)
def _scatter_mode(self: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str) -> Tensor:
    late("flambeau.core.warned").warn_once(
        "The reduce argument of torch.scatter with Tensor src is deprecated and will be removed in "
        "a future PyTorch release. Use torch.scatter_reduce instead for more reduction options."
    )
    return _scattered(self, dim, index, src, _mode(reduce, "scatter"), "scatter")


@scatter.overload(fits="value", runtime="value", samples=None)
def _scatter_value_mode(
    self: Tensor, dim: int, index: Tensor, value: Scalar, *, reduce: str
) -> Tensor:
    source = filled(value, index.shape, self.dtype)
    return _scattered(self, dim, index, source, _mode(reduce, "scatter"), "scatter")


@op(
    kind="scatter",
    samples=lambda: [
        sample(T(2, 4), 1, I(2, 6, high=4), T(2, 6)),
        sample(T(5), 0, I(9, high=5), T(9)),
    ],
    index_error=RuntimeError,
    strict_index=True,
)
def scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy with `out[i][index[i][j]] += src[i][j]` for dim 1, in increasing order of j.

    Example:
        >>> torch.zeros(2).scatter_add(0, torch.tensor([1, 1]), torch.ones(2))
        tensor([0., 2.])
    """
    return _scattered(self, dim, index, src, "add", "scatter_add")


def _reduce_samples() -> Samples:
    for kind in ("sum", "prod", "amax", "amin", "mean"):
        yield sample(T(2, 4), 1, I(2, 6, high=4), T(2, 6), kind)
        yield sample(T(2, 4), 1, I(2, 6, high=4), T(2, 6), kind, include_self=False)


@op(kind="scatter", samples=_reduce_samples, index_error=RuntimeError, strict_index=True)
def scatter_reduce(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Combines src into a copy of the tensor at `index`: sum, prod, mean, amax or amin.

    Args:
        include_self: whether the tensor's own element takes part where something is written.

    Raises:
        RuntimeError: unknown reduction; shapes and dtypes as in `scatter`.

    Example:
        >>> x, index = torch.ones(2), torch.tensor([0, 0])
        >>> x.scatter_reduce(0, index, torch.tensor([2., 3.]), "sum")
        tensor([6., 1.])
    """
    name = "scatter_reduce"
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        problem = f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}"
        raise failure(RuntimeError, name, problem, "check the spelling")

    def write(base: Node, source: Node, mode: str) -> Node:
        return _scattered(base, dim, index, source, mode, name)

    mode = "add" if reduce == "mean" else REDUCTIONS[reduce]
    return combined(self, src, mode, reduce == "mean", include_self, write)


def _neutral(mode: str, dtype: str) -> float:
    """The number that changes nothing when a mode combines it with another."""
    if mode in ("add", "mul"):
        return 0 if mode == "add" else 1
    bits = {"bool": 1, "u8": 8, "i8": 7, "i16": 15, "i32": 31, "i64": 63}.get(dtype)
    if bits is None:
        return -math.inf if mode == "max" else math.inf
    if mode == "min":
        return (1 << bits) - 1
    return 0 if dtype in ("bool", "u8") else -(1 << bits)


def combined(
    self: Node, source: Node, mode: str, mean: bool, include_self: bool, write: Any
) -> Node:
    """`source` written into the tensor by `write(base, source, mode)`, with `include_self`."""
    base = self
    if not include_self:
        start = prims.full(_neutral(mode, self.dtype), source.shape, source.dtype)
        base = write(base, start, "set")
    result = write(base, source, mode)
    if not mean:
        return result
    own = prims.full(1, self.shape, self.dtype)
    ones = prims.full(1, source.shape, source.dtype)
    if not include_self:
        own = write(own, prims.full(0, source.shape, source.dtype), "set")
    count = write(own, ones, "add")
    if self.dtype in ("f16", "bf16", "f32", "f64", "c64", "c128"):
        return prims.div(result, count)
    return prims.floor_div(result, count)


# ------------------------------------------------------------------------------------ index_*


_LONG_ONLY = {"index_copy": RuntimeError, "index_fill": IndexError}


def _vector(index: Node, name: str) -> Node:
    if name in _LONG_ONLY and index.dtype != "i64":
        raise _LONG_ONLY[name](
            f"[{name}] {name}(): Expected a long tensor for index, but got {TITLES[index.dtype]}\n"
            "hint: convert it with long()"
        )
    if index.ndim > 1:
        problem = f"{name}(): Index is supposed to be a vector, but got dim: {index.ndim}"
        raise failure(IndexError, name, problem, "ravel() it")
    return _at_least_1d(check_integer(index, name))


@op(
    out="separate",
    samples=lambda: [
        sample(T(3, 4), 1, I(5, high=4)),
        sample(T(3, 4), 0, I(0, high=3)),
        sample(T(4), 0, I(high=4)),
    ],
    strict_index=True,
)
def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of a dimension that a vector of indices names.

    Raises:
        IndexError: an index outside of the dimension, or an index tensor of several dimensions.
        RuntimeError: no integer dtype.

    Example:
        >>> torch.tensor([1, 2, 3]).index_select(0, torch.tensor([2, 0]))
        tensor([3, 1])
    """
    d = normalise_dim(dim, self.ndim, "index_select")
    x = _at_least_1d(self)
    places = wrapped(_vector(index, "index_select"), x.shape[d], "index_select", d)
    result = _with_check(prims.take(x, places, d), places, self)
    return prims.reshape(result, ()) if self.ndim == 0 else result


def _written(self: Node, dim: int, index: Node, source: Node, mode: str, name: str) -> Node:
    """`source` written to the slices that a vector of indices names."""
    d = normalise_dim(dim, self.ndim, name)
    if source.dtype != self.dtype:
        problem = f"self ({self.dtype}) and source ({source.dtype}) expected to have the same dtype"
        raise failure(RuntimeError, name, problem, "convert the source")
    x, values = _at_least_1d(self), _at_least_1d(source)
    at = _vector(index, name)
    expected = (*x.shape[:d], at.shape[0], *x.shape[d + 1 :])
    if values.ndim != x.ndim or not all(
        layout.same(a, b) for a, b in zip(values.shape, expected, strict=True)
    ):
        missing = name == "index_copy" and not layout.same(values.shape[d], at.shape[0])
        raise (IndexError if missing else RuntimeError)(
            f"[{name}] source has shape {shown(values.shape)}, the indexed slices have "
            f"{shown(expected)}\nhint: one slice per index"
        )
    result = prims.put_nd(x, (wrapped(at, x.shape[d], name, d),), values, (d,), mode)
    return prims.reshape(result, self.shape)


def _write_samples() -> Samples:
    index = T(2, dtype="i64", values=[2, 0], grad=False)
    yield sample(T(3, 4), 0, index, T(2, 4))
    yield sample(T(3, 4), 1, index, T(3, 2))
    yield sample(T(3), 0, index, T(2))


@op(
    kind="scatter",
    fits="alpha",
    runtime="alpha",
    samples=_write_samples,
    index_error=RuntimeError,
    strict_index=True,
)
def index_add(
    self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Scalar = 1
) -> Tensor:
    """A copy with `alpha * source` added to the slices of `dim` that index names.

    Raises:
        RuntimeError: dtypes or shapes differ.
        IndexError: an index outside of the dimension.

    Example:
        >>> torch.zeros(2).index_add(0, torch.tensor([1, 1]), torch.ones(2))
        tensor([0., 2.])
    """
    scaled = source
    if self.dtype == "bool":
        scaled = prims.bitwise_and(source, prims.constant(alpha, source))
    elif not (isinstance(alpha, (int, float)) and alpha == 1):
        scaled = source * prims.constant(alpha, source)
    return _written(self, dim, index, scaled, "add", "index_add")


@op(kind="scatter", samples=_write_samples, autocast="promote", strict_index=True)
def index_copy(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy with the slices of `dim` that index names replaced by those of source.

    Example:
        >>> torch.zeros(3).index_copy(0, torch.tensor([2]), torch.ones(1))
        tensor([0., 0., 1.])
    """
    return _written(self, dim, index, source, "set", "index_copy")


def _fill_samples() -> Samples:
    yield sample(T(3, 4), 1, I(2, high=4), 1.5)
    yield sample(T(3), 0, I(high=3), 2)
    yield sample(T(3, 4), 1, T(3, dtype="i64", values=[2, 0, 2], grad=False), T())


@op(
    layout="first",
    inplace=True,
    overlap="copy",
    repeats=True,
    fits="value",
    runtime="value",
    samples=_fill_samples,
)
def index_fill(self: Tensor, dim: int, index: Tensor, value: Tensor | Scalar) -> Tensor:
    """A copy with the slices of `dim` that index names filled with a number.

    Example:
        >>> torch.zeros(3).index_fill(0, torch.tensor([0, 2]), 1)
        tensor([1., 0., 1.])
    """
    d = normalise_dim(dim, self.ndim, "index_fill")
    x = _at_least_1d(self)
    at = wrapped(_vector(index, "index_fill"), x.shape[d], "index_fill", d)
    if isinstance(value, Node) and not value.is_scalar:
        # A slice named twice is filled once: its gradient counts once, too.
        line = prims.full(False, (x.shape[d],), "bool")
        named = prims.put_nd(line, (at,), prims.full(True, at.shape, "bool"), (0,), "set")
        filled = number(value, x.shape, self.dtype, "index_fill")
        filled = prims.where(prims.broadcast(named, x.shape, (d,)), filled, x)
        return prims.reshape(filled, self.shape)
    source = number(value, (*x.shape[:d], at.shape[0], *x.shape[d + 1 :]), self.dtype, "index_fill")
    return prims.reshape(prims.put_nd(x, (at,), source, (d,), "set"), self.shape)


def _index_reduce_samples() -> Samples:
    for kind in ("prod", "amax", "amin", "mean"):
        yield sample(T(3, 4), 1, I(6, high=4), T(3, 6), kind)


@op(kind="scatter", samples=_index_reduce_samples, strict_index=True)
def index_reduce(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Combines slices of source into a copy of the tensor: prod, mean, amax or amin.

    Example:
        >>> torch.ones(2).index_reduce(0, torch.tensor([1]), torch.tensor([3.]), "amax")
        tensor([1., 3.])
    """
    if reduce not in ("prod", "mean", "amax", "amin"):
        problem = f"reduce argument must be either prod, mean, amax or amin, got {reduce}"
        raise failure(RuntimeError, "index_reduce", problem, "index_add sums")

    def write(base: Node, values: Node, mode: str) -> Node:
        return _written(base, dim, index, values, mode, "index_reduce")

    mode = "add" if reduce == "mean" else REDUCTIONS[reduce]
    return combined(self, source, mode, reduce == "mean", include_self, write)


# ------------------------------------------------------------------------------------ take, put


@op(
    out="separate",
    samples=lambda: [sample(T(3, 4), I(2, 3, high=12)), sample(T(5), I(0, high=5))],
)
def take(self: Tensor, index: Tensor) -> Tensor:
    """Elements of the flattened tensor; the shape is that of index.

    Raises:
        RuntimeError: index is not int64.
        IndexError: an index outside of the tensor.

    Example:
        >>> torch.tensor([[1, 2], [3, 4]]).take(torch.tensor([3, 0]))
        tensor([4, 1])
    """
    check_integer(index, "take", ("i64",))
    flat = prims.reshape(self, (prod(self.shape),))
    places = wrapped(index, flat.shape[0], "take")
    return _with_check(prims.take(flat, places, 0), places, self)


@op(
    layout="first",
    inplace=True,
    overlap="any",
    samples=lambda: [
        sample(T(3, 4), T(2, dtype="i64", values=[3, 7], grad=False), T(2)),
        sample(T(3, 4), I(5, high=12), T(5), True),
    ],
)
def put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy with source written (or added) at places of the flattened tensor.

    Raises:
        RuntimeError: dtypes differ.
        IndexError: numbers of elements differ.

    Example:
        >>> torch.zeros(3).put(torch.tensor([1]), torch.tensor([5.]))
        tensor([0., 5., 0.])
    """
    check_integer(index, "put_", ("i64",))
    if source.dtype != self.dtype:
        problem = "put_(): self and source expected to have the same dtype, but got self.dtype = "
        problem += f"{self.dtype} and source.dtype = {source.dtype}"
        raise failure(RuntimeError, "put_", problem, "convert the source")
    if not layout.same(prod(source.shape), prod(index.shape)):
        problem = "put_(): Expected source and index to have the same number of elements, but "
        problem += f"they are {shown(source.shape)} and {shown(index.shape)}"
        raise failure(IndexError, "put_", problem, "one source each")
    count = prod(index.shape)
    flat = prims.reshape(self, (prod(self.shape),))
    places = wrapped(prims.reshape(index, (count,)), flat.shape[0], "put_")
    values = prims.reshape(source, (count,))
    mode = "add" if accumulate else "set"
    return prims.reshape(prims.put_nd(flat, (places,), values, (0,), mode), self.shape)
