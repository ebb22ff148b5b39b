"""Extremes: max, min and their places, over all or some dimensions.

Over one dimension the gradient goes to the element that was found; over several (`amax`) or all of
them, equal extremes share it evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.language import layout
from flambeau.language.definition import OpDefinition, op
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.broadcasting import is_complex, is_float, unsupported
from flambeau.ops.common import normalise_dim
from flambeau.ops.pointwise.binary import maximum, minimum
from flambeau.ops.reduction.reduce import Dims, every, list_samples, reduced_dims

Reduce = Callable[[Node, int], Node]
_PRIMITIVES: dict[str, tuple[Reduce, Reduce]] = {
    "max": (prims.max, prims.argmax),
    "min": (prims.min, prims.argmin),
}


def checked_axis(name: str, x: Node, dim: int) -> int:
    """The dimension to search, which must not be empty."""
    axis = normalise_dim(dim, x.ndim, name)
    if x.ndim and layout.same(x.shape[axis], 0):
        problem = f"{name}(): Expected reduction dim {axis} to have non-zero size."
        raise failure(IndexError, name, problem, "reduce another dimension")
    return axis


def _check_filled(name: str, x: Node, error: type[Exception] = RuntimeError) -> None:
    if layout.same(layout.numel(x.shape), 0):
        problem = f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
        problem += "Specify the reduction dim with the 'dim' argument."
        raise failure(error, name, problem, "an empty tensor has none")


def ordered(name: str, x: Node) -> Node:
    """x in a dtype whose elements are ordered; bools count as u8."""
    if is_complex(x):
        raise unsupported(name, x, "complex numbers have no order")
    return prims.cast(x, "u8") if x.dtype == "bool" else x


def _place_rule(g: Node, y: Node, x: Node, place: Node) -> list[Node | None]:
    """The gradient of an element that was picked at `place` of an axis."""
    axis = y.attribute("axis")
    here = prims.eq(prims.iota(x.shape, axis), prims.spread(place, x, axis))
    return [prims.where(here, prims.spread(g, x, axis), prims.full_like(0, x)), None]


prims.register_rule("picked", _place_rule)


def picked(value: Node, x: Node, place: Node, axis: int) -> Node:
    """`value`, which is x at `place` along the axis, differentiated as such."""
    return prims.with_derivative(value, x, prims.stop_gradient(place), rule="picked", axis=axis)


def extreme_at(name: str, x: Node, axis: int) -> tuple[Node, Node]:
    """Extremes along an axis and their first places; NaN wins."""
    if x.ndim == 0:
        return x, prims.full(0, (), "i64")
    value, place = _PRIMITIVES[name]
    places = place(x, axis)
    if is_float(x):  # the element at that index: of zeros of both signs the first one
        extreme = prims.squeeze(prims.gather(x, prims.unsqueeze(places, axis), axis), axis)
    else:
        extreme = value(x, axis)
    return picked(extreme, x, places, axis), places


_TEXT = """The {word} element; over `dim` also its place; or of two tensors.

    `{name}(x)` gives one element, `{name}(x, dim, keepdim)` the named pair (values, indices) with
    the first place of each extreme, `{name}(x, y)` is `{both}`. NaN wins.

    Raises:
        RuntimeError: an empty tensor.
        IndexError: a dimension out of range, or empty.

    Example:
        >>> torch.{name}(torch.tensor([3.0, 1.0, 3.0]), 0).indices
        tensor({place})
    """


def _extreme(name: str, elementwise: OpDefinition) -> OpDefinition:
    def whole(self: Node) -> Node:
        _check_filled(name, self)
        x = ordered(name, self)
        return prims.cast(prims.reduce_dims(name, x, every(x)), self.dtype)

    def with_dim(self: Node, dim: int, keepdim: bool) -> list[Node]:
        axis = checked_axis(name, self, dim)
        results = extreme_at(name, ordered(name, self), axis)
        if keepdim and self.ndim:
            results = tuple(prims.unsqueeze(r, axis) for r in results)
        return [prims.cast(results[0], self.dtype), results[1]]

    def with_other(self: Node, other: Node) -> Node:
        return elementwise(self, other)

    word = "greatest" if name == "max" else "least"
    place = 0 if name == "max" else 1
    whole.__doc__ = _TEXT.format(name=name, word=word, both=elementwise.name, place=place)
    definition = op(
        f"{name}(Tensor self) -> Tensor",
        promote="keep",
        out=True,
        samples=_extreme_samples,
        errors=lambda: _extreme_errors(name),
        reference="numpy." + name,
    )(whole)
    pair = (
        f"{name}.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)"
    )
    both = f"{name}.other(Tensor self, Tensor other) -> Tensor"  # a 0-dim tensor is no dimension
    definition.overload(both, promote="none", layout="follow")(with_other)
    return definition.overload(pair, out="exact", overlap="partial")(with_dim)


def _extreme_samples() -> Iterator[Sample]:
    for shape in ((), (1,), (7,), (3, 4), (33, 17), (4200,)):
        yield sample(T(*shape))
    yield sample(T(4, 6, layout="transposed"), 0)
    yield sample(T(2, 3, 5), -2, keepdim=True)
    yield sample(T(2, 3, 5), 2)
    yield sample(T(), 0)
    yield sample(T(4, values=[1.0, float("nan"), 3.0, float("nan")], dtype="f32"), 0)
    yield sample(T(3, 1), T(4))


def _extreme_errors(name: str) -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(0)), RuntimeError, "Expected reduction dim to be specified")
    yield ErrorSample(sample(T(0, 3), 0), IndexError, "to have non-zero size")
    yield ErrorSample(sample(T(3), 5), IndexError, "Dimension out of range")


max = _extreme("max", maximum)
min = _extreme("min", minimum)


def _spread_samples() -> Iterator[Sample]:
    for entry in list_samples():
        if 0 not in entry.args[0].shape:
            yield entry
    yield sample(T(0, 3), 1)


def _amax(name: str, primitive: str) -> OpDefinition:
    def body(self: Node, dim: Dims, keepdim: bool) -> Node:
        dim = () if dim is None else dim
        if layout.same(layout.numel(self.shape), 0):
            if not dim and dim != 0:
                _check_filled(name, self)
            for d in (dim,) if isinstance(dim, int) else dim:
                checked_axis(name, self, d)
        x = ordered(name, self)
        dims = reduced_dims(dim, x.ndim, name)
        return prims.cast(prims.reduce_dims(primitive, x, dims, keepdim), self.dtype)

    body.__doc__ = f"""The {"greatest" if primitive == "max" else "least"} elements over `dim`.

    Equal extremes share the gradient evenly. NaN wins.

    Raises:
        RuntimeError: an empty tensor without `dim`.
        IndexError: a dimension out of range, or empty.

    Example:
        >>> torch.{name}(torch.zeros(2, 3), (0, 1))
        tensor(0.)
    """
    return op(
        f"{name}(Tensor self, int[]? dim=(), bool keepdim=False) -> Tensor",
        kind="reduction",
        samples=_spread_samples,
        errors=lambda: _extreme_errors(name),
        reference="numpy." + name,
    )(body)


amax = _amax("amax", "max")
amin = _amax("amin", "min")


@op(
    kind="reduction",
    results="min max",
    overlap="partial",
    overlap_when=lambda x, dim, keepdim: dim is not None,
    samples=lambda: [sample(T(3, 4)), sample(T(3, 4), dim=1, keepdim=True), sample(T())],
)
def aminmax(
    self: Tensor, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """The least and the greatest elements, of all or over `dim`, as the named pair (min, max).

    Raises:
        RuntimeError: an empty tensor without `dim`.
        IndexError: a dimension out of range, or empty.

    Example:
        >>> torch.aminmax(torch.tensor([3.0, 1.0])).max
        tensor(3.)
    """
    if dim is None:
        _check_filled("aminmax", self)
        dims = every(self)
    else:
        dims = (checked_axis("aminmax", self, dim),) if self.ndim else ()
    x = ordered("aminmax", self)
    both = [prims.reduce_dims(name, x, dims, keepdim) for name in ("min", "max")]
    return [prims.cast(value, self.dtype) for value in both]


def _arg(name: str, primitive: str) -> OpDefinition:
    function: Reduce = getattr(prims, name)

    def body(self: Node, dim: int | None, keepdim: bool) -> Node:
        if self.dtype == "bool":
            raise failure(RuntimeError, name, f"{name}(): does not support bool input", "use int()")
        x = ordered(name, self)
        if dim is None:
            _check_filled(name, x, IndexError)
            place = function(prims.reshape(x, (layout.numel(x.shape),)), 0)
            return prims.reshape(place, (1,) * x.ndim) if keepdim else place
        axis = checked_axis(name, x, dim)
        if x.ndim == 0:
            return prims.full(0, (), "i64")
        place = function(x, axis)
        return prims.unsqueeze(place, axis) if keepdim else place

    body.__doc__ = f"""The first place of the {primitive} element, of all or over `dim`, as int64.

    Without `dim` the place counts through the flattened tensor. NaN wins.

    Raises:
        IndexError: an empty tensor, or a dimension out of range or empty.
        RuntimeError: a `bool` tensor.

    Example:
        >>> torch.{name}(torch.tensor([2.0, 1.0, 3.0])).dtype
        torch.int64
    """
    return op(
        f"{name}(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
        kind="reduction",
        samples=lambda: (s for s in _extreme_samples() if len(s.args) < 2 or s.args[1] in (0, 2)),
        reference="numpy." + name,
    )(body)


argmax = _arg("argmax", "greatest")
argmin = _arg("argmin", "least")
