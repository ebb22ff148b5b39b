"""`x[key]` and `x[key] = value`: NumPy's rules as PyTorch has them.

Integers, slices, None, Ellipsis give a view; the native core reads such keys itself
(native/tensor/indexing.cpp) and only hands over what it does not know. Index tensors, masks and
sequences give a copy: first the view of all the rest, then one `index` of that view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import index as as_integer
from typing import Any

from flambeau import prims
from flambeau.core import tensors
from flambeau.ir.failure import failure
from flambeau.ir.lock import late, loaded
from flambeau.ir.node import Node
from flambeau.ir.size import Size, mul
from flambeau.language import layout
from flambeau.language.definition import View, function, op
from flambeau.language.dtypes import name_of, object_of
from flambeau.language.samples import Sample, T, sample
from flambeau.language.schema import SymInt, Tensor
from flambeau.ops.common import gathered, geometry_of, same_sizes, shown, strides_of
from flambeau.ops.indexing.index import I, wrapped
from flambeau.ops.indexing.search import masked_slices

Samples = Iterator[Sample]
WHOLE = slice(None)


# ------------------------------------------------------------------------------------ basic keys


@op(name="_basic_index", where="torch", view=True)
def basic_index(self: Tensor, pattern: str, numbers: Sequence[SymInt]) -> Tensor:
    """A view by a key of integers, slices and None that was checked against the sizes.

    Args:
        pattern: per item "i" (one number: index), "s" (start, length, step), ":" (all), "n"
            (new dimension of size 1).
        numbers: of all items.
    """
    remaining = iter(numbers)
    value, d = self, 0
    dropped: list[int] = []
    shape: list[Size] = []
    strides: list[Size] = []
    geometry = geometry_of(self)
    own = (1,) * self.ndim if geometry is None else geometry[1]
    offset: Size = 0 if geometry is None else geometry[2]
    for item in pattern + ":" * (self.ndim - sum(c != "n" for c in pattern)):
        if item == "n":
            shape.append(1)
            strides.append(mul(self.shape[d], own[d]) if d < self.ndim else 1)
            continue
        if item == "i":
            start = next(remaining)
            value = prims.slice(value, d, start, 1)
            offset = offset + mul(start, own[d])
            dropped.append(d)
        elif item == "s":
            start, length, step = next(remaining), next(remaining), next(remaining)
            value = prims.slice(value, d, start, length, step)
            offset = offset + mul(start, own[d])
            shape.append(length)
            strides.append(mul(step, own[d]))
        else:
            shape.append(self.shape[d])
            strides.append(own[d])
        d += 1
    value = prims.reshape(value, tuple(shape))
    return value if geometry is None else View(value, tuple(strides), offset)


def basic_key(self: Any, items: Sequence[Any]) -> tuple[str, tuple[int, ...]]:
    """Pattern and numbers of `basic_index` for a key of integers, slices, None and Ellipsis.

    Raises:
        IndexError: too many items, or an integer outside of its dimension.
        ValueError: a slice with a step below 1.
    """
    sizes = self.shape
    used = sum(item is not None and item is not Ellipsis for item in items)
    if used > len(sizes):
        raise _too_many(len(sizes))
    pattern: list[str] = []
    numbers: list[int] = []
    d = 0
    for item in items:
        if item is None:
            pattern.append("n")
        elif item is Ellipsis:
            pattern.append(":" * (len(sizes) - used))
            d += len(sizes) - used
            used = len(sizes)  # a second Ellipsis stands for nothing
        elif isinstance(item, slice):
            start, length, step = slice_numbers(item, sizes[d])
            entire = start == 0 and step == 1 and length == sizes[d]
            pattern.append(":" if entire else "s")
            numbers.extend(() if entire else (start, length, step))
            d += 1
        else:
            pattern.append("i")
            numbers.append(integer_place(as_integer(item), d, sizes[d]))
            d += 1
    return "".join(pattern), tuple(numbers)


def _too_many(ndim: int) -> IndexError:
    if ndim == 0:
        return IndexError(
            "[getitem] invalid index of a 0-dim tensor. Use `tensor.item()` in Python to convert a "
            "0-dim tensor to a number\nhint: x[...] is the tensor itself"
        )
    return IndexError(
        f"[getitem] too many indices for tensor of dimension {ndim}\nhint: one per dimension"
    )


def integer_place(index: int, d: int, size: int) -> int:
    """A non-negative index.

    Raises:
        IndexError: outside of the dimension.
    """
    if not -(2**63) <= index < 2**63:
        problem = "Overflow when unpacking long long"
        raise failure(ValueError, "getitem", problem, "indices are 64-bit integers")
    if not -size <= index < size:
        problem = f"index {index} is out of bounds for dimension {d} with size {size}"
        raise failure(IndexError, "getitem", problem, "indices lie in [-size, size)")
    return index + size if index < 0 else index


def slice_numbers(item: slice, size: int) -> tuple[int, int, int]:
    """First element, number of elements and step of a slice."""
    start, stop, step = (None if v is None else as_integer(v) for v in _bounds(item))
    if step is not None and step <= 0:
        raise failure(ValueError, "getitem", "step must be greater than zero", "flip() reverses")
    first, last, hop = slice(start, stop, step).indices(size)
    return first, max(0, -(-(last - first) // hop)), hop


def _bounds(item: slice) -> tuple[Any, Any, Any]:
    return item.start, item.stop, item.step


# ------------------------------------------------------------------------------------ index tensors


def _arranged(
    self: Node, indices: Sequence[Node | None], name: str
) -> tuple[list[int], list[Node], list[int]]:
    """How to read or write at index tensors.

    Returns:
        An order of dimensions that puts the indexed ones side by side, the checked index tensors
        in their common shape, and the places of the indexed dimensions in that order.
    """
    if len(indices) > self.ndim:
        problem = f"too many indices for tensor of dimension {self.ndim} (got {len(indices)})"
        raise failure(IndexError, name, problem, "one per dimension")
    dims = [d for d, index in enumerate(indices) if index is not None]
    present = [index for index in indices if index is not None]
    for index in present:
        if index.dtype not in ("i64", "i32", "i16", "i8"):
            problem = "tensors used as indices must be long, int, byte or bool tensors: got "
            problem += f"{index.dtype}"
            raise failure(IndexError, name, problem, "convert with long()")
    try:
        common = list(prims.broadcast_all(*present))
    except ValueError as error:
        problem = "shape mismatch: indexing tensors could not be broadcast together with shapes "
        problem += f"{', '.join(shown(index.shape) for index in present)}"
        raise failure(IndexError, name, problem, "sizes equal, or 1") from error
    places = [wrapped(x, self.shape[d], name, d) for x, d in zip(common, dims, strict=True)]
    adjacent = dims == list(range(dims[0], dims[0] + len(dims)))
    others = [d for d in range(self.ndim) if d not in dims]
    order = list(range(self.ndim)) if adjacent else [*dims, *others]
    return order, places, dims if adjacent else list(range(len(dims)))


def _index_samples() -> Samples:
    yield sample(T(3, 4), [I(2, high=3)])
    yield sample(T(3, 4), [I(2, high=3), I(2, high=4)])
    yield sample(T(3, 4), [None, I(2, 2, high=4)])
    yield sample(T(3, 4, 5), [I(2, high=3), None, I(1, high=5)])


@op(where="torch", out=True, samples=_index_samples)
def index(self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Elements at the places of index tensors, one per dimension; None keeps a dimension.

    Shapes: the indexed dimensions are replaced by the broadcast shape of the index tensors, which
    comes first when they are not next to each other.

    Raises:
        IndexError: outside of a dimension, or shapes that do not broadcast.

    Example:
        >>> torch.index(torch.tensor([5, 6, 7]), [torch.tensor([2, 0])])
        tensor([7, 5])
    """
    order, places, dims = _arranged(self, indices, "index")
    value = prims.index_nd(prims.permute(self, order), places, dims)
    strides = strides_of(self)
    steps = [strides[d] for d in order]
    layouts = [(x.shape, strides_of(x)) for x in indices if x is not None]
    return gathered(value, steps[: dims[0]], steps[dims[-1] + 1 :], layouts)


def _put_where(self: Node, first: int, mask: Node, values: Node, accumulate: bool) -> Node:
    """`index_put` at the true elements of a mask over the dimensions from `first` on."""
    end = first + mask.ndim
    if end > self.ndim or not same_sizes(mask.shape, self.shape[first:end]):
        raise IndexError(
            f"[index_put] The shape of the mask {shown(mask.shape)} at index {first} does not "
            f"match the shape of the indexed tensor {shown(self.shape)}\n"
            "hint: a mask has the sizes of the dimensions that it selects from"
        )
    lead = max(values.ndim - (self.ndim - end), 0)  # behind the dimension of the true elements
    before, after = values.shape[: max(lead - 1, 0)], values.shape[lead:]
    if lead and not layout.same(values.shape[lead - 1], 1):
        raise IndexError(
            "[index_put] values for each true element of a mask cannot be told apart here\n"
            "hint: write x[mask] = values, or pass mask.nonzero(as_tuple=True)"
        )
    ones = (1,) * mask.ndim if lead else ()
    source = prims.broadcast_to(prims.reshape(values, (*before, *ones, *after)), self.shape)
    chosen = prims.broadcast(mask, self.shape, tuple(range(first, end)))
    return prims.where(chosen, _added(self, source) if accumulate else source, self)


def _added(x: Node, y: Node) -> Node:
    """The sum, of truth values whether either is true."""
    return prims.bitwise_or(x, y) if x.dtype == "bool" else x + y


@op(
    layout="first",
    inplace=True,
    overlap="any",
    samples=lambda: [
        sample(T(3, 4), (T(2, dtype="i64", values=[0, 2]),), T(2, 4)),
        sample(T(5), [T(3, dtype="i64", values=[0, 0, -1])], T(3), True),
        sample(T(3, 4), [T(3, dtype="bool", values=[True, False, True])], T(4)),
        sample(T(3, 4), [T(3, dtype="bool", values=[True, False, True])], T(4), True),
    ],
)
def index_put(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """A copy with values written (or added) at the places of index tensors; see `index`.

    Raises:
        RuntimeError: dtypes that differ, or values that do not broadcast to the places.
        IndexError: outside of a dimension.

    Example:
        >>> torch.zeros(3).index_put([torch.tensor([2])], torch.tensor(5.))
        tensor([0., 0., 5.])
    """
    if values.dtype != self.dtype:
        problem = f"Index put requires the source and destination dtypes match, got {self.dtype} "
        problem += f"for the destination and {values.dtype} for the source."
        raise failure(RuntimeError, "index_put", problem, "convert the values")
    present = [(d, index) for d, index in enumerate(indices) if index is not None]
    if len(present) == 1 and present[0][1].dtype == "bool":
        return _put_where(self, *present[0], values, accumulate)
    order, places, dims = _arranged(self, indices, "index_put_")
    x = prims.permute(self, order)
    target = (*x.shape[: dims[0]], *places[0].shape, *x.shape[dims[-1] + 1 :])
    extra = max(values.ndim - len(target), 0)
    if all(layout.same(n, 1) for n in values.shape[:extra]):
        values = prims.reshape(values, values.shape[extra:])
    try:
        source = prims.broadcast_to(values, target)
    except ValueError as error:
        problem = f"shape mismatch: value tensor of shape {shown(values.shape)} cannot be "
        problem += f"broadcast to indexing result of shape {shown(target)}"
        raise failure(RuntimeError, "index_put", problem, "sizes equal, or 1") from error
    written = prims.put_nd(x, places, source, dims, "add" if accumulate else "set")
    return prims.permute(written, sorted(range(self.ndim), key=order.__getitem__))


# ------------------------------------------------------------------------------------ whole keys


def is_tuple_like(key: Any) -> bool:
    """Whether a sequence is read as a tuple of items, by PyTorch's historical rule."""
    if tensors.is_tensor(key) or isinstance(key, (str, bytes)) or not isinstance(key, Sequence):
        return False
    if len(key) >= 32:
        return False
    return any(
        item is None
        or item is Ellipsis
        or isinstance(item, (slice, Sequence))
        or tensors.is_tensor(item)
        for item in key
    )


def _as_index(item: Any) -> Any:
    """A list, range, array or number as an index tensor or Python integer."""
    if isinstance(item, (str, bytes)):
        problem = f"new(): invalid data type '{type(item).__name__}'"
        raise failure(TypeError, "getitem", problem, "index by numbers")
    if isinstance(item, (list, tuple, range)) or hasattr(item, "__array__"):
        if isinstance(item, (list, tuple)) and not item:
            return tensors.from_python(item, object_of("i64"))
        return tensors.from_python(item)
    if hasattr(item, "__index__"):
        return as_integer(item)
    problem = "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are "
    problem += f"valid indices (got {type(item).__name__})"
    raise failure(IndexError, "getitem", problem, "convert to int")


def split_key(self: Any, key: Any) -> tuple[list[Any], list[tuple[int, Any]]]:
    """The basic items of a key, and its index tensors with their dimensions after the basic part.

    Raises:
        IndexError: too many items, or one that is no index.
    """
    historical = not isinstance(key, tuple) and is_tuple_like(key)
    if historical or isinstance(key, str):
        late("flambeau.core.warned").warn_once(
            "Using a non-tuple sequence for multidimensional indexing is deprecated; use "
            "x[tuple(seq)] instead of x[seq]."
        )
    entries = list(key) if historical or isinstance(key, tuple) else [key]
    items = [_normal(item) for item in entries]
    used = sum(_extent(item) for item in items)
    if used > self.ndim:
        raise _too_many(self.ndim)
    basic: list[Any] = []
    advanced: list[tuple[int, Any]] = []
    several = sum(map(tensors.is_tensor, items)) > 1
    d = source = 0  # dimension of the view being built; of the tensor
    for item in items:
        if item is Ellipsis:
            basic.append(Ellipsis)
            d, source = d + self.ndim - used, source + self.ndim - used
            used = self.ndim
        elif (
            tensors.is_tensor(item)
            and item.ndim == 0
            and several
            and not _is_mask(item)
            and not _is_batched(item)
        ):
            basic.append(int(item.item()))
            source += 1
        elif isinstance(item, bool) or (
            tensors.is_tensor(item) and _is_mask(item) and not item.ndim
        ):
            basic.append(None)
            advanced.append((d, bool(item)))
            d += 1
        elif tensors.is_tensor(item):
            _check_mask(self, item, source)
            taken = _extent(item)
            basic.extend([WHOLE] * taken)
            advanced.append((d, item))
            d, source = d + taken, source + taken
        else:
            basic.append(item)
            d += item is None or isinstance(item, slice)
            source += item is not None
    return basic, advanced


def _normal(item: Any) -> Any:
    basic = item is None or item is Ellipsis or isinstance(item, (slice, bool, int))
    return item if basic or tensors.is_tensor(item) else _as_index(item)


def _is_batched(item: Any) -> bool:
    """Whether a tensor stands for one of many samples of `vmap`: its number is not known."""
    wrappers = loaded("flambeau.autograd.transforms.wrappers")
    if wrappers is None or not isinstance(item, wrappers.Wrapper):
        return False
    return wrappers.highest([item]).extent is not None


def _is_mask(item: Any) -> bool:
    kind = name_of(item.dtype)
    if kind == "u8":
        late("flambeau.core.warned").warn_once(
            "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool "
            "instead."
        )
    return kind in ("bool", "u8")


def _extent(item: Any) -> int:
    """How many dimensions of the tensor an item stands for."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return int(item.ndim) if tensors.is_tensor(item) and _is_mask(item) else 1


def _check_mask(self: Any, item: Any, d: int) -> None:
    if not _is_mask(item):
        return
    for offset, size in enumerate(item.shape):
        if size != self.shape[d + offset]:
            raise IndexError(
                f"[getitem] The shape of the mask {list(item.shape)} at index {offset} does not "
                f"match the shape of the indexed tensor {list(self.shape)} at index {d + offset}\n"
                "hint: a mask has the sizes of the dimensions it selects from"
            )


def basic_view(self: Any, items: Sequence[Any]) -> Any:
    """The view by basic items."""
    pattern, numbers = basic_key(self, items)
    return basic_index.native(self, pattern, numbers)


def _index_list(advanced: Sequence[tuple[int, Any]]) -> list[Any]:
    """The argument of `index`: masks become the places of their true elements."""
    indices: list[Any] = []
    for d, item in advanced:
        indices.extend([None] * (d - len(indices)))
        if isinstance(item, bool):
            converted = [tensors.from_python([0] if item else [], object_of("i64"))]
        elif _is_mask(item):
            converted = list(item.nonzero(as_tuple=True))
        else:
            converted = [item]
        indices.extend(converted)
    return indices


def _is_whole(item: Any) -> bool:
    return item is Ellipsis or (isinstance(item, slice) and item == WHOLE)


@function(name="_getitem", where="torch")
def getitem(self: Tensor, key: Any) -> Any:
    """`self[key]`: a view for integers, slices, None and Ellipsis, else a copy.

    Raises:
        IndexError: too many items, or one outside of its dimension.

    Example:
        >>> torch.arange(6).reshape(2, 3)[:, 1]
        tensor([1, 4])
    """
    if type(key) is list and is_tuple_like(key) is False:
        key = _as_index(key)
    if tensors.is_tensor(key) and key.ndim:
        if not _is_mask(key):
            return index.native(self, (key,))
        if 0 < key.ndim <= self.ndim:
            _check_mask(self, key, 0)
            return masked_slices(self, key)
    basic, advanced = split_key(self, key)
    if not advanced:
        return basic_view(self, basic)
    part = self if all(_is_whole(item) for item in basic) else basic_view(self, basic)
    return index.native(part, _index_list(advanced))


@function(name="_setitem", where="torch")
def setitem(self: Tensor, key: Any, value: Any) -> None:
    """`self[key] = value`: numbers and tensors are converted and broadcast.

    Raises:
        IndexError: as reading does.
        RuntimeError: a value that does not broadcast, or of another dtype at index tensors.
        TypeError: a value that is neither number nor tensor.
    """
    basic, advanced = split_key(self, key)
    part = self if all(_is_whole(item) for item in basic) else basic_view(self, basic)
    if not advanced:
        _assign(part, value)
        return
    number = not tensors.is_tensor(value)
    source = _as_value(part, value) if number else value
    if len(advanced) == 1 and source.ndim == 0 and _masked(part, advanced[0], value):
        return
    if number or source.ndim == 0:
        source = source.to(part.dtype)
    part.index_put_(_index_list(advanced), source)


def _masked(part: Any, item: tuple[int, Any], value: Any) -> bool:
    """Writes one number under a mask without counting its elements."""
    d, mask = item
    if isinstance(mask, bool):
        if mask:
            _assign(part, value)
        return True
    if not _is_mask(mask):
        return False
    flags = mask.to(object_of("bool"))
    for _ in range(part.ndim - d - mask.ndim):
        flags = flags.unsqueeze(-1)
    number = value if tensors.is_tensor(value) else _as_value(part, value)
    part.masked_fill_(flags, number.to(part.dtype))
    return True


def _as_value(self: Any, value: Any) -> Any:
    if isinstance(value, (bool, int, float, complex)) or hasattr(value, "dtype"):
        if isinstance(value, complex) and not self.is_complex():
            problem = f"value cannot be converted to type {self.dtype} without overflow"
            raise failure(RuntimeError, "setitem", problem, "assign to a complex tensor")
        return tensors.from_python(value, self.dtype)
    problem = f"can't assign a {type(value).__name__} to a {self.type()}"
    raise failure(TypeError, "setitem", problem, "convert it with torch.tensor")


def _assign(target: Any, value: Any) -> None:
    """Overwrites a view with a number or a tensor."""
    if not tensors.is_tensor(value):
        if isinstance(value, (bool, int, float)):
            target.fill_(value)
            return
        value = _as_value(target, value)
    while value.ndim > target.ndim and value.shape[0] == 1:
        value = value.squeeze(0)
    target.copy_(value)
