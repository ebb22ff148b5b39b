"""Order statistics: medians, quantiles, modes; covariance and correlation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import floordiv
from flambeau.language import layout
from flambeau.language.definition import Dense, OpDefinition, op
from flambeau.language.promotion import CATEGORY, PARTS, compute_dtype, default_dtype, promote_types
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.broadcasting import insist, is_float
from flambeau.ops.cast_rules import lower_result
from flambeau.ops.common import normalise_dim
from flambeau.ops.indexing.sorting import selected
from flambeau.ops.pointwise.binary import interpolated
from flambeau.ops.reduction.extremes import checked_axis, ordered, picked

_ROWS = [[3.0, 1.0, 2.5, -1.0], [0.5, 4.0, -2.0, 7.0], [9.0, 8.0, 1.5, 0.25]]
NAN = float("nan")


def _samples() -> Iterator[Sample]:
    yield sample(T(3, 4, values=_ROWS))
    yield sample(T(7, dtype="f64"))
    yield sample(T(3, 4, values=_ROWS), 0)
    yield sample(T(3, 4, values=_ROWS), 1, True)
    yield sample(T(2, 3, 5, dtype="f64"), -2)
    yield sample(T(4, 6, dtype="f64", layout="transposed"), 1)
    yield sample(T())
    yield sample(T(), 0)
    yield sample(T(5, dtype="f32", values=[1.0, NAN, 3.0, NAN, 0.0]))
    yield sample(T(2, 3, dtype="f32", values=[[1.0, NAN, 3.0], [NAN, NAN, NAN]]), 1)


def _errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3), 1), IndexError, "Dimension out of range")


def _at(values: Node, places: Node, position: Node, axis: int) -> tuple[Node, Node]:
    """Element and original place at a position of each sorted row, the axis kept as 1."""
    index = prims.unsqueeze(position, axis)
    return prims.gather(values, index, axis), prims.gather(places, index, axis)


def _middle(x: Node, axis: int, ignore_nan: bool) -> tuple[Node, Node]:
    """The lower median along an axis (kept as 1) and its place."""
    if ignore_nan and is_float(x):
        return _middle_of_numbers(x, axis)
    count = x.shape[axis]
    value, place = selected(x, axis, floordiv(count - 1, 2), 1, False)
    if not is_float(x):
        return value, place
    # The first NaN stands where the numbers end.
    spoilt = prims.unsqueeze(prims.any(prims.isnan(x), axis), axis)
    first = prims.unsqueeze(prims.argmax(x, axis), axis)
    place = prims.where(spoilt, first, place)
    return prims.gather(x, place, axis), place


def _middle_of_numbers(x: Node, axis: int) -> tuple[Node, Node]:
    values, places = prims.sort(x, axis, False, True)
    valid = prims.sum(prims.cast(~prims.isnan(x), "i64"), axis)
    half = prims.shift_right(valid - 1, prims.full_like(1, valid))
    return _at(values, places, prims.maximum(half, prims.zeros_like(half)), axis)


def _median_of_all(name: str, x: Node, ignore_nan: bool) -> Node:
    size = layout.numel(x.shape)
    if layout.same(size, 0):
        if CATEGORY[x.dtype] == 2:
            return prims.full(NAN, (), x.dtype)
        raise failure(RuntimeError, name, "median of an empty tensor", "it has no elements")
    flat = prims.reshape(x, (size,))
    value = prims.squeeze(_middle(flat, 0, ignore_nan)[0], 0)
    return prims.with_derivative(value, flat, rule="shared")


def _median(name: str, ignore_nan: bool) -> OpDefinition:
    def whole(self: Node) -> Node:
        return prims.cast(_median_of_all(name, ordered(name, self), ignore_nan), self.dtype)

    def with_dim(self: Node, dim: int, keepdim: bool) -> list[Node]:
        axis = checked_axis(name, self, dim)
        x = ordered(name, self)
        if x.ndim == 0:
            return [self, prims.full(0, (), "i64")]
        value, place = _middle(x, axis, ignore_nan)
        if not keepdim:
            value, place = prims.squeeze(value, axis), prims.squeeze(place, axis)
        return [prims.cast(value, self.dtype), place]

    treatment = "NaN is left out" if ignore_nan else "NaN wins"
    whole.__doc__ = f"""The median, of all elements or over `dim`: the lower of two middle ones.

    Over `dim` the named pair (values, indices). {treatment}. Over all elements, those equal to the
    median share its gradient.

    Raises:
        IndexError: a dimension out of range, or empty.

    Example:
        >>> torch.{name}(torch.tensor([4.0, 1.0, 3.0, 2.0]))
        tensor(2.)
    """
    definition = op(
        f"{name}(Tensor self) -> Tensor", promote="keep", samples=_samples, errors=_errors
    )(whole)
    pair = (
        f"{name}.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)"
    )
    return definition.overload(pair, out="exact")(with_dim)


def _shared_rule(g: Node, y: Node, x: Node) -> list[Node]:
    """All elements equal to the result share its gradient."""
    result = prims.spread(y, x, 0)
    here = prims.eq(x, result)
    if is_float(x):
        here = here | (prims.isnan(x) & prims.isnan(result))
    count = prims.sum(prims.cast(here, x.dtype), 0)
    return [prims.where(here, prims.spread(g / count, x, 0), prims.zeros_like(x))]


prims.register_rule("shared", _shared_rule)

median = _median("median", False)
nanmedian = _median("nanmedian", True)


def _mode_samples() -> Iterator[Sample]:
    yield sample(T(6, dtype="i64", values=[1, 2, 2, 3, 3, 0]))
    yield sample(T(3, 4, dtype="i64", low=0, high=3))
    yield sample(T(3, 4, dtype="i64", low=0, high=3), 0, True)
    yield sample(T())


def _single_nan(x: Node, length: Node, axis: int) -> Node:
    """Rows whose elements all differ and whose first one is NaN, the axis kept as 1."""
    repeated = prims.unsqueeze(prims.any(length > 0, axis), axis)
    return prims.isnan(prims.slice(x, axis, 0, 1, 1)) & ~repeated


@op(
    kind="reduction",
    results="values indices",
    overlap="partial",
    samples=_mode_samples,
    errors=_errors,
)
def mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The most frequent element along `dim`, the least of several; and its last place.

    NaN equals nothing: it is the mode only where no element repeats and NaN comes first.

    Raises:
        IndexError: a dimension out of range, or empty.

    Example:
        >>> torch.mode(torch.tensor([1, 2, 2, 1, 3])).values
        tensor(1)
    """
    axis = checked_axis("mode", self, dim)
    x = ordered("mode", self)
    if x.ndim == 0:
        return [self, prims.full(0, (), "i64")]
    values, places = prims.sort(x, axis, False, True)
    low = [0] * x.ndim
    low[axis] = 1
    before = prims.pad(values, low, [-n for n in low], prims.full(0, (), x.dtype))
    position = prims.iota(x.shape, axis)
    zero = prims.zeros_like(position)
    starts = prims.ne(values, before) | prims.eq(position, zero)
    run_start = prims.cummax(prims.where(starts, position, zero), axis)
    length = position - run_start
    best = prims.argmax(length, axis)  # the first longest run: of the least value
    _, place = _at(values, places, best, axis)
    if is_float(x):
        place = prims.where(_single_nan(x, length, axis), prims.zeros_like(place), place)
    flat = prims.squeeze(place, axis)
    value = picked(prims.squeeze(prims.gather(x, place, axis), axis), x, flat, axis)
    results = [prims.cast(value, self.dtype), flat]
    return [prims.unsqueeze(r, axis) for r in results] if keepdim else results


# ------------------------------------------------------------------------------------ quantiles

_OUTSIDE = (
    "[quantile] quantile() q values must be in the range [0, 1]\nhint: fractions, not percentages"
)
_MODES = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile_samples() -> Iterator[Sample]:
    for interpolation in _MODES:
        yield sample(T(3, 4, values=_ROWS), 0.3, 1, interpolation=interpolation)
    yield sample(T(7), 0.5)
    yield sample(T(3, 4, values=_ROWS), 1.0, 0, True)
    quantiles = T(3, values=[0.1, 0.5, 1.0], grad=False)
    yield sample(T(3, 4, values=_ROWS), quantiles, 1)
    yield sample(T(3, 4, values=_ROWS), quantiles, dim=0, keepdim=True)
    yield sample(T(3, 4, values=_ROWS), quantiles)
    yield sample(T(4, values=[1.0, NAN, 3.0, 2.0]), 0.4)


def _quantile_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(3), 1.5), RuntimeError, "q must be in the range [0, 1]")


def _quantiles(
    name: str, x: Node, q: Node, dim: int | None, keepdim: bool, mode: str, ignore_nan: bool
) -> Node | Dense:
    """Quantiles of a float32 or float64 tensor; several `q` make a new first dimension.

    As in PyTorch that dimension lies innermost in memory.
    """
    if mode not in _MODES:
        problem = f"{name}() interpolation must be one of linear, lower, higher, midpoint or "
        problem += f"nearest, but got {mode}"
        raise failure(RuntimeError, name, problem, "linear is the default")
    ndim = x.ndim
    if dim is None:
        x = prims.reshape(x, (layout.numel(x.shape),))
    axis = normalise_dim(0 if dim is None else dim, x.ndim, name)
    x = x if x.ndim else prims.reshape(x, (1,))
    if layout.same(layout.numel(x.shape), 0):
        raise failure(RuntimeError, name, f"{name}() input tensor must be non-empty", "no elements")
    values = prims.sort(x, axis, False, True)[0]
    order = [d for d in range(x.ndim) if d != axis]
    values = prims.permute(values, [*order, axis])
    rows = values.shape[:-1]
    ranks = prims.broadcast_to(q, (*rows, *(q.shape or (1,))))
    interpolated = _interpolated(values, ranks, mode, ignore_nan)
    last = interpolated.ndim - 1
    result = prims.permute(interpolated, [last, *range(last)])
    shape: tuple[Any, ...] = rows
    if keepdim:
        keepdim_shape = [1] * ndim if dim is None else [*rows[:axis], 1, *rows[axis:]]
        shape = tuple(keepdim_shape) if ndim else ()
    result = prims.reshape(result, (*q.shape, *shape))
    return Dense(result, (*range(1, result.ndim), 0)) if q.ndim else result


def _interpolated(values: Node, q: Node, mode: str, ignore_nan: bool) -> Node:
    """Elements of sorted rows (the last dimension) at the fractions q of each row."""
    axis = values.ndim - 1
    missing = prims.isnan(values)
    valid = prims.sum(prims.cast(~missing, "i64"), axis)
    count = prims.size(values.shape[axis])
    full = prims.broadcast_to(count, valid.shape)
    used = valid if ignore_nan else full
    ends = prims.maximum(used - 1, prims.zeros_like(used))
    spread = [*range(axis)]
    ends = prims.broadcast(ends, q.shape, spread)
    rank = q * prims.cast(ends, q.dtype)
    if mode == "nearest":
        rank = prims.round(rank)
    below = prims.floor(rank)
    if mode == "higher":
        below = prims.ceil(rank)
    extent = values.shape[axis]
    first = prims.check_index(
        prims.cast(below, "i64"), extent, "quantile", _OUTSIDE, error="runtime"
    )
    low = prims.gather(values, first, axis)
    poisoned = prims.eq(valid, prims.zeros_like(valid)) if ignore_nan else prims.lt(valid, full)
    poisoned = prims.broadcast(poisoned, q.shape, spread)
    if mode in ("linear", "midpoint"):
        above = prims.check_index(
            prims.cast(prims.ceil(rank), "i64"), extent, "quantile", _OUTSIDE, error="runtime"
        )
        high = prims.gather(values, above, axis)
        weight = rank - below if mode == "linear" else prims.full_like(0.5, rank)
        low = interpolated(low, high, weight)
    return prims.where(poisoned, prims.full_like(NAN, low), low)


def _check_quantile(name: str, x: Node) -> None:
    if x.dtype not in ("f32", "f64"):
        problem = f"{name}() input tensor must be either float or double dtype"
        raise failure(RuntimeError, name, problem, "convert to float32 first")


def _quantile(name: str, ignore_nan: bool) -> OpDefinition:
    def number(
        self: Node, q: float, dim: int | None, keepdim: bool, interpolation: str
    ) -> Node | Dense:
        _check_quantile(name, self)
        if not 0 <= q <= 1:
            problem = f"{name}() q must be in the range [0, 1] but got {q}"
            raise failure(RuntimeError, name, problem, "a fraction")
        node = prims.full(q, (), self.dtype)
        return _quantiles(name, self, node, dim, keepdim, interpolation, ignore_nan)

    def tensor(
        self: Node, q: Node, dim: int | None, keepdim: bool, interpolation: str
    ) -> Node | Dense:
        _check_quantile(name, self)
        if q.dtype != self.dtype or q.ndim > 1:
            problem = f"{name}() q tensor must be same dtype as the input tensor, and a scalar or "
            problem += "a vector"
            raise failure(RuntimeError, name, problem, "q.to(input.dtype)")
        return _quantiles(name, self, q, dim, keepdim, interpolation, ignore_nan)

    treatment = "NaN is left out" if ignore_nan else "a row with NaN gives NaN"
    number.__doc__ = f"""The q-quantiles of all elements or along `dim`; {treatment}.

    `interpolation` between neighbours: "linear", "lower", "higher", "midpoint" or "nearest".
    A vector `q` makes a new first dimension.

    Raises:
        RuntimeError: not float32 or float64, empty, or `q` outside of [0, 1].

    Example:
        >>> torch.{name}(torch.tensor([1.0, 2.0, 4.0]), 0.5)
        tensor(2.)
    """
    tail = "int? dim=None, bool keepdim=False, *, str interpolation='linear') -> Tensor"
    tests = {"samples": _quantile_samples, "errors": _quantile_errors, "dtypes": "f32 f64"}
    options = {"out": "exact", "autocast": "float32", **tests}
    definition = op(f"{name}(Tensor self, float q, {tail}", **options)(number)
    return definition.overload(f"{name}.tensor(Tensor self, Tensor q, {tail}")(tensor)


quantile = _quantile("quantile", False)
nanquantile = _quantile("nanquantile", True)


# ------------------------------------------------------------------------------------ covariance


def _table(name: str, x: Node) -> Node:
    """Variables in rows, observations in columns, in the dtype to compute in."""
    if x.ndim > 2:
        problem = f"{name}(): expected input to have two or fewer dimensions but got an input "
        problem += f"with {x.ndim} dimensions"
        raise failure(RuntimeError, name, problem, "rows are variables")
    target = x.dtype if CATEGORY[x.dtype] >= 2 else default_dtype()
    rows = prims.reshape(x, (1,) * (2 - x.ndim) + x.shape)
    return prims.cast(rows, compute_dtype(target))


def _not_negative(weight: Node, name: str) -> Node:
    text = f"[cov] cov(): {name} cannot be negative\nhint: weights of observations"
    return insist(weight, weight < 0, "cov", text)


def _weights(count: Any, fweights: Node | None, aweights: Node | None) -> Node | None:
    if fweights is not None and CATEGORY[fweights.dtype] > 1:
        problem = "cov(): expected fweights to have integral dtype but got fweights with "
        problem += f"{fweights.dtype}"
        raise failure(RuntimeError, "cov", problem, "they count observations")
    if aweights is not None and CATEGORY[aweights.dtype] != 2:
        problem = "cov(): expected aweights to have floating point dtype but got aweights with "
        problem += f"{aweights.dtype}"
        raise failure(RuntimeError, "cov", problem, "convert them with .float()")
    terms = [
        _not_negative(w, name)
        for w, name in ((fweights, "fweights"), (aweights, "aweights"))
        if w is not None
    ]
    if not terms:
        return None
    for weight in terms:
        if weight.ndim != 1 or not layout.same(weight.shape[0], count):
            problem = "cov(): expected fweights and aweights to be vectors with one element per "
            problem += "observation"
            raise failure(RuntimeError, "cov", problem, "columns are observations")
    return prims.cast(terms[0], terms[1].dtype) * terms[1] if len(terms) == 2 else terms[0]


def covariance(
    x: Node, correction: float, fweights: Node | None = None, aweights: Node | None = None
) -> Node:
    """The matrix of covariances of the rows of x, optionally of weighted observations.

    Weights are summed in their own dtype, as promotion has it; see `numpy.cov` for the formula.
    """
    weight = _weights(x.shape[1], fweights, aweights)
    if weight is None:
        real = PARTS.get(x.dtype, x.dtype)
        total = prims.cast(prims.size(x.shape[1]), real)
        mean, scaled = prims.sum(x, 1) / prims.cast(total, x.dtype), None
    else:
        total = prims.sum(weight, 0)
        scaled = prims.broadcast_to(prims.cast(weight, x.dtype), x.shape)
        mean = prims.sum(x * scaled, 1) / prims.cast(total, x.dtype)
    lost = prims.full(correction, (), total.dtype)
    if weight is not None and aweights is not None and correction != 0:
        lost = prims.sum(weight * aweights, 0) / total * lost
    degrees = prims.maximum(total - lost, prims.full(0, (), total.dtype))
    degrees = prims.cast(degrees, x.dtype)
    distance = x - prims.spread(mean, x, 1)
    other = distance if scaled is None else distance * scaled
    other = other if x.dtype not in PARTS else prims.complex(prims.real(other), -prims.imag(other))
    return prims.matmul(distance, prims.permute(other, (1, 0))) / degrees


@op(
    autocast=lower_result,
    unsaved="self",
    samples=lambda: [
        sample(T(3, 7)),
        sample(T(7)),
        sample(T(3, 4), correction=0),
        sample(T(3, 4), fweights=T(4, dtype="i64", low=1, high=4)),
        sample(T(3, 4), aweights=T(4, low=0.2, grad=False)),
    ],
    reference="numpy.cov",
)
def cov(
    self: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """The covariances of the variables in the rows of a matrix; columns are observations.

    `fweights` are how often each observation occurred, `aweights` its importance.

    Raises:
        RuntimeError: more than two dimensions, or weights of another size.

    Example:
        >>> torch.cov(torch.tensor([[1.0, 2.0, 3.0]]))
        tensor(1.)
    """
    result_dtype = self.dtype if CATEGORY[self.dtype] >= 2 else default_dtype()
    result_dtype = result_dtype if aweights is None else promote_types(self.dtype, aweights.dtype)
    table = prims.cast(_table("cov", self), compute_dtype(result_dtype))
    result = covariance(table, correction, fweights, aweights)
    if self.ndim < 2 or _one_row(self):
        result = prims.reshape(result, ())
    return prims.cast(result, result_dtype)


def _within_one(x: Node) -> Node:
    limit = prims.full_like(1, x)
    return prims.where(x > 1, limit, prims.where(x < -1, -limit, x))


def _one_row(x: Node) -> bool:
    return layout.same(x.shape[0], 1)


@op(
    autocast=lower_result,
    unsaved="self",
    samples=lambda: [sample(T(3, 7)), sample(T(7))],
    reference="numpy.corrcoef",
)
def corrcoef(self: Tensor) -> Tensor:
    """Pearson's correlations of the variables in the rows of a matrix.

    Example:
        >>> torch.corrcoef(torch.tensor([[1.0, 2.0], [2.0, 1.0]]))
        tensor([[ 1., -1.],
                [-1.,  1.]])
    """
    x = _table("corrcoef", self)
    c = covariance(x, 1)
    same = prims.eq(prims.iota(c.shape, 0), prims.iota(c.shape, 1))
    own = prims.sum(prims.where(same, c, prims.zeros_like(c)), 1)
    parts = CATEGORY[x.dtype] == 3
    deviation = prims.cast(prims.sqrt(prims.real(own) if parts else own), c.dtype)
    result = c / prims.spread(deviation, c, 1) / prims.spread(deviation, c, 0)
    if parts:
        result = prims.complex(_within_one(prims.real(result)), _within_one(prims.imag(result)))
    else:
        result = _within_one(result)
    if self.ndim < 2 or _one_row(self):
        result = prims.reshape(result, ())
    return prims.cast(result, self.dtype) if CATEGORY[self.dtype] == 2 else result
