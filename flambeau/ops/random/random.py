"""Random numbers: the streams of PyTorch's CPU generator, as described in docs/random.md.

A tensor that is not row-major is filled in the order of its memory, so its values are drawn in
that order and permuted. Bounds of parameters are checked by the native routines, where their
values are known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.core.devices import has_data
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size
from flambeau.language import layout
from flambeau.language.definition import op
from flambeau.language.dtypes import object_of
from flambeau.language.promotion import PARTS
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.ops.broadcasting import insist
from flambeau.ops.common import dtype_or, is_one, same_sizes, strides_of
from flambeau.ops.creation.creation import (
    OPTIONS,
    check_layout,
    check_sizes,
    creation,
    with_format,
    with_requires_grad,
)
from flambeau.ops.special.gamma_gradient import gamma_gradient
from flambeau.prims.record import record_of

Samples = Iterator[Sample]
FLOATS = ("f16", "bf16", "f32", "f64")
FLOAT_NAMES = " ".join(FLOATS)
# random_() and random_(low, None): the largest integer drawn.
LARGEST = {
    "bool": 1, "u8": 255, "i8": 127, "i16": 2**15 - 1, "i32": 2**31 - 1, "i64": 2**63 - 1,
    "f16": 2**11, "bf16": 2**8, "f32": 2**24, "f64": 2**53,
}  # fmt: skip


def _slot(generator: Any) -> int:
    """Slot of a generator argument."""
    return int(generator)


def _number(value: Any) -> Any:
    """A parameter as the float64 scalar the routines take."""
    return prims.cast(value, "f64") if isinstance(value, Node) else float(value)


def _integer(value: Any) -> Any:
    return prims.cast(value, "i64") if isinstance(value, Node) else int(value)


def _gamma_rule(grad: Node, out: Node, *operands: Node) -> tuple[Node, ...]:
    (shape,) = operands
    return (grad * prims.cast(gamma_gradient(out, shape), grad.dtype),)


# A draw depends on its parameters in steps, if at all: its gradient is zero, as in PyTorch.
prims.register_rule("draw", lambda grad, out, *xs: tuple(prims.zeros_like(x) for x in xs))
prims.register_rule("gamma draw", _gamma_rule)


def check_floating(dtype: str, name: str) -> None:
    """Raises NotImplementedError for dtypes that hold no fractions."""
    if dtype not in FLOATS:
        problem = f"not implemented for {dtype}"
        raise failure(NotImplementedError, name, problem, "draw floats and convert, or use randint")


def memory_order(x: Node) -> list[int]:
    """Dimensions of x from the largest stride to the smallest (guards when symbolic).

    A repeated dimension (stride 0) stays where it is.
    """
    strides = strides_of(
        x.inputs[0] if record_of(x).converts else x
    )  # half types are computed in f32
    order = list(range(x.ndim))
    for start in range(1, x.ndim):
        position = start
        while position > 0:
            outer, inner = (strides[d] for d in order[position - 1 : position + 1])
            if outer == 0 or inner == 0 or not less(outer, inner):
                break
            order[position - 1], order[position] = order[position], order[position - 1]
            position -= 1
    return order


# Distributions whose complex numbers are pairs of real ones.
_OF_PAIRS = frozenset({"uniform", "normal", "normal_sequential"})


def drawn_like(
    x: Node, distribution: str, *parameters: Any, generator: Any, dense: bool = False
) -> Node:
    """Draws with the shape and dtype of x, in the order of its memory.

    Args:
        x: gives shape, dtype and order.
        distribution: see `prims.random`.
        parameters: numbers, or nodes of x's shape for distributions with one per element.
        generator: the argument of the op.
        dense: the numbers go to a new dense tensor in x's order, not to x itself.
    """
    order = memory_order(x)
    plain = order == list(range(x.ndim))
    if not plain or not (dense or _row_major(x)):
        distribution = {"normal": "normal_sequential"}.get(distribution, distribution)
    arguments = [
        prims.permute(p, order) if isinstance(p, Node) and p.shape and not plain else p
        for p in parameters
    ]
    shape = tuple(x.shape[d] for d in order)
    if x.dtype in PARTS and distribution in _OF_PAIRS:
        value = _complex_draw(distribution, shape, x.dtype, *arguments, _slot(generator))
    else:
        value = prims.random(distribution, shape, x.dtype, *arguments, generator=_slot(generator))
    if plain:
        return value
    inverse = sorted(range(x.ndim), key=order.__getitem__)
    return prims.permute(value, inverse)


def _row_major(x: Node) -> bool:
    expected = layout.contiguous_strides(x.shape)
    dims = [d for d, n in enumerate(x.shape) if not is_one(n)]
    strides = strides_of(x)
    return same_sizes([strides[d] for d in dims], [expected[d] for d in dims])


def _complex_draw(
    distribution: str, shape: Any, dtype: str, low: Any, high: Any, slot: int
) -> Node:
    """Complex numbers drawn as pairs of real ones; `high` of normal ones is their deviation."""
    computed = isinstance(high, Node) and distribution.startswith("normal")
    bounds = (0.0, 1.0) if computed else (low, high)
    if distribution.startswith("normal") and not computed:
        bounds = (low, high / math.sqrt(2.0))  # not * sqrt(0.5), which differs in the last bit
    part = PARTS[dtype]
    pairs = prims.random(distribution, (*shape, 2), part, *bounds, generator=slot)
    if computed:
        deviation = prims.cast(high / math.sqrt(2.0), part)
        pairs = pairs * deviation + (prims.cast(low, part) if isinstance(low, Node) else low)
    real, imaginary = (
        prims.reshape(prims.slice(pairs, len(shape), place, 1), shape) for place in (0, 1)
    )
    return prims.complex(real, imaginary)


# ------------------------------------------------------------------------------------ new tensors

GENERATOR = "generator? generator=None"


def _size_samples() -> Samples:
    yield sample((3, 4))
    yield sample(20)
    yield sample(())
    yield sample((0, 3))


@creation(f"rand(SymInt[] size, *, {GENERATOR}", samples=_size_samples)
def rand(
    size: Sequence[Size], generator: Any, dtype: Any, layout: Any, device: Any, pin_memory: Any
) -> Node:
    """Numbers drawn uniformly from [0, 1).

    Raises:
        NotImplementedError: an integer dtype.

    Example:
        >>> torch.rand(2, 3).shape
        torch.Size([2, 3])
    """
    check_layout(layout, "rand", pin_memory)
    shape, target = check_sizes(size, "rand"), dtype_or(dtype)
    if target in PARTS:
        return _complex_draw("uniform", shape, target, 0.0, 1.0, _slot(generator))
    check_floating(target, "rand")
    return prims.random("uniform", shape, target, 0.0, 1.0, generator=_slot(generator))


@creation(f"randn(SymInt[] size, *, {GENERATOR}", samples=_size_samples)
def randn(
    size: Sequence[Size], generator: Any, dtype: Any, layout: Any, device: Any, pin_memory: Any
) -> Node:
    """Numbers drawn from the standard normal distribution.

    Raises:
        NotImplementedError: an integer dtype.

    Example:
        >>> torch.randn(2, 3).shape
        torch.Size([2, 3])
    """
    check_layout(layout, "randn", pin_memory)
    shape, target = check_sizes(size, "randn"), dtype_or(dtype)
    if target in PARTS:
        return _complex_draw("normal", shape, target, 0.0, 1.0, _slot(generator))
    check_floating(target, "randn")
    return prims.random("normal", shape, target, 0.0, 1.0, generator=_slot(generator))


def _randint(low: Any, high: Any, size: Sequence[Size], generator: Any, dtype: Any) -> Node:
    shape, target = check_sizes(size, "randint"), dtype_or(dtype, "i64")
    bounds = (_integer(low), _integer(high))
    return prims.random("integers", shape, target, *bounds, generator=_slot(generator))


@creation(
    f"randint(int high, SymInt[] size, *, {GENERATOR}",
    runtime="high",
    samples=lambda: [sample(10, (3, 4)), sample(5, 10, (7,))],
)
def randint(
    high: Any,
    size: Sequence[Size],
    generator: Any,
    dtype: Any,
    layout: Any,
    device: Any,
    pin_memory: Any,
) -> Node:
    """Integers drawn uniformly from [low, high); low is 0 unless given.

    Raises:
        RuntimeError: low >= high, or bounds that the dtype cannot hold.

    Example:
        >>> torch.randint(2, 5, (3,)).shape
        torch.Size([3])
    """
    return _randint(0, high, size, generator, dtype)


@randint.overload(
    f"randint.low(int low, int high, SymInt[] size, *, {GENERATOR}, {OPTIONS}) -> Tensor",
    runtime="low high",
    samples=None,
)
def _randint_low(
    low: Any,
    high: Any,
    size: Sequence[Size],
    generator: Any,
    dtype: Any,
    layout: Any,
    device: Any,
    pin_memory: Any,
) -> Node:
    return _randint(low, high, size, generator, dtype)


@creation(f"randperm(SymInt n, *, {GENERATOR}", samples=lambda: [sample(9), sample(0)])
def randperm(
    n: Size, generator: Any, dtype: Any, layout: Any, device: Any, pin_memory: Any
) -> Node:
    """A random order of the numbers 0 to n - 1, int64 unless told otherwise.

    Raises:
        RuntimeError: negative n.

    Example:
        >>> torch.randperm(4).sort().values
        tensor([0, 1, 2, 3])
    """
    shape = check_sizes((n,), "randperm")
    order = prims.random("permutation", shape, "i64", generator=_slot(generator))
    return prims.cast(order, dtype_or(dtype, "i64"))


def _like_samples() -> Samples:
    yield sample(T(3, 8))
    yield sample(T(4, 6, layout="transposed"))
    yield sample(T(2))


def _like(x: Node, distribution: str, low: Any, high: Any, dtype: Any, generator: Any) -> Node:
    target = dtype_or(dtype, x.dtype)
    order = memory_order(x)
    shape = tuple(x.shape[d] for d in order)
    plain = order == list(range(x.ndim))
    if not plain and distribution == "normal":
        distribution = "normal_sequential"
    if target in PARTS:
        value = _complex_draw(distribution, shape, target, low, high, _slot(generator))
    else:
        value = prims.random(distribution, shape, target, low, high, generator=_slot(generator))
    return value if plain else prims.permute(value, sorted(range(x.ndim), key=order.__getitem__))


def _define_like(name: str, distribution: str, text: str) -> None:
    def body(
        self: Node, generator: Any, dtype: Any, layout: Any, device: Any, pin_memory: Any
    ) -> Node:
        target = dtype_or(dtype, self.dtype)
        check_floating(PARTS.get(target, target), name)
        return _like(self, distribution, 0.0, 1.0, dtype, generator)

    body.__doc__ = f"""{text} in the shape, dtype and memory order of a tensor.

    Raises:
        NotImplementedError: an integer dtype.

    Example:
        >>> torch.{name}(torch.zeros(2, 3)).shape
        torch.Size([2, 3])
    """
    definition = op(
        f"{name}(Tensor self, *, {GENERATOR}, {OPTIONS}) -> Tensor",
        where="torch",
        layout="follow",
        differentiable=False,
        samples=_like_samples,
        dtypes=FLOAT_NAMES,
    )(body)
    with_format(definition, f"Tensor self, *, {GENERATOR}")


_define_like("rand_like", "uniform", "Numbers drawn uniformly from [0, 1)")
_define_like("randn_like", "normal", "Standard normal numbers")


@op(
    f"randint_like(Tensor self, int high, *, {GENERATOR}, {OPTIONS}) -> Tensor",
    where="torch",
    layout="follow",
    runtime="high",
    differentiable=False,
    samples=lambda: [sample(T(3, 8), 5), sample(T(3, 8), 2, 5)],
)
def randint_like(
    self: Node, high: Any, generator: Any, dtype: Any, layout: Any, device: Any, pin_memory: Any
) -> Node:
    """Integers from [low, high) in the shape, dtype and memory order of a tensor.

    Example:
        >>> torch.randint_like(torch.zeros(2, 3), 5).shape
        torch.Size([2, 3])
    """
    return _like(self, "integers", 0, _integer(high), dtype, generator)


@randint_like.overload(
    f"randint_like.low(Tensor self, int low, int high, *, {GENERATOR}, {OPTIONS}) -> Tensor",
    runtime="low high",
)
def _randint_like_low(
    self: Node,
    low: Any,
    high: Any,
    generator: Any,
    dtype: Any,
    layout: Any,
    device: Any,
    pin_memory: Any,
) -> Node:
    return _like(self, "integers", _integer(low), _integer(high), dtype, generator)


with_format(randint_like, f"Tensor self, int high, *, {GENERATOR}")


# ------------------------------------------------------------------------------------ filling


def _fill_samples() -> Samples:
    yield sample(T(3, 8))
    yield sample(T(3))
    yield sample(T(4, 6, layout="transposed"))
    yield sample(T(4, 6, layout="sliced"))


def _define_fill(
    schema: str, runtime: str, distribution: str, text: str, floats: bool = True
) -> None:
    name = schema.partition("(")[0]

    def body(self: Node, *arguments: Any) -> Node:
        *parameters, generator = arguments
        complex_ = self.dtype in PARTS and distribution in _OF_PAIRS
        if not complex_ and (floats or self.dtype == "bool"):
            check_floating(self.dtype, name)
        numbers = [_number(p) for p in parameters]
        return drawn_like(self, distribution, *numbers, generator=generator)

    body.__doc__ = f"""Fills the tensor with {text}.

    Raises:
        NotImplementedError: a dtype the distribution does not have.
        RuntimeError: parameters out of their range.

    Example:
        >>> torch.empty(3).{name}({"0.5" if name == "geometric_" else ""}).shape
        torch.Size([3])
    """
    samples = _fill_samples if name != "geometric_" else lambda: [sample(T(3, 8), 0.3)]
    op(
        f"{schema}, *, {GENERATOR}) -> Tensor",
        where="method",
        pointwise=True,
        fits=runtime if distribution == "uniform" else (),
        runtime=runtime,
        differentiable=False,
        samples=samples,
        dtypes=FLOAT_NAMES if floats else FLOAT_NAMES + " u8 i8 i16 i32 i64",
    )(body)


_define_fill(
    "uniform_(Tensor! self, float from=0, float to=1",
    "from to",
    "uniform",
    "numbers drawn uniformly from [from, to)",
)
_define_fill(
    "normal_(Tensor! self, float mean=0, float std=1",
    "mean std",
    "normal",
    "normal numbers of the given mean and standard deviation",
)
_define_fill(
    "exponential_(Tensor! self, float lambd=1",
    "lambd",
    "exponential",
    "numbers of density lambd * exp(-lambd * x)",
)
_define_fill(
    "cauchy_(Tensor! self, float median=0, float sigma=1",
    "median sigma",
    "cauchy",
    "numbers of the Cauchy distribution",
)
_define_fill(
    "log_normal_(Tensor! self, float mean=1, float std=2",
    "mean std",
    "log_normal",
    "numbers whose logarithms are normal",
)
_define_fill(
    "geometric_(Tensor! self, float p",
    "p",
    "geometric",
    "numbers of trials until a success of probability p",
    floats=False,
)


@op(
    f"random_(Tensor! self, int from, int? to, *, {GENERATOR}) -> Tensor",
    where="method",
    runtime="from to",
    differentiable=False,
    samples=lambda: [sample(T(3, 8)), sample(T(5), 10), sample(T(5), 3, 10)],
    pointwise=True,
)
def random_(self: Node, low: Any, high: Any, generator: Any) -> Node:
    """Fills the tensor with integers from [from, to); from is 0 unless given.

    Without `to` all integers from `from` to the largest one the dtype holds exactly.

    Raises:
        RuntimeError: from >= to, or bounds that the dtype cannot hold.

    Example:
        >>> torch.empty(3).random_(5).shape
        torch.Size([3])
    """
    if high is None:
        top = LARGEST[self.dtype]
        return drawn_like(self, "integers_from", _integer(low), top, generator=generator)
    return drawn_like(self, "integers", _integer(low), _integer(high), generator=generator)


@random_.overload(f"random_.to(Tensor! self, int to, *, {GENERATOR}) -> Tensor", runtime="to")
def _random_to(self: Node, high: Any, generator: Any) -> Node:
    return drawn_like(self, "integers", 0, _integer(high), generator=generator)


@random_.overload(f"random_.full(Tensor! self, *, {GENERATOR}) -> Tensor")
def _random_full(self: Node, generator: Any) -> Node:
    return drawn_like(self, "any_integer", generator=generator)


# ------------------------------------------------------------------------------------ bernoulli


def _probabilities(p: Node, name: str) -> Node:
    """Probabilities in the dtype that decides which words are drawn."""
    check_floating(p.dtype, name)
    return p if p.dtype == "f64" else prims.cast(p, "f32")


@op(
    f"bernoulli(Tensor self, *, {GENERATOR}) -> Tensor",
    out="any",
    overlap="partial",
    dtypes=FLOAT_NAMES,
    samples=lambda: [
        sample(T(3, 8, low=0.0, high=1.0)),
        sample(T(4, 6, low=0.0, high=1.0, layout="transposed")),
    ],
    pointwise=True,
)
def bernoulli(self: Node, generator: Any) -> Node:
    """Ones with the probabilities that the tensor holds (or with probability `p`), else zeros.

    Raises:
        RuntimeError: a probability outside of [0, 1].
        NotImplementedError: probabilities of an integer dtype.

    Example:
        >>> torch.bernoulli(torch.ones(2))
        tensor([1., 1.])
    """
    p = _probabilities(self, "bernoulli")
    draw = prims.random("bernoulli_each", self.shape, self.dtype, p, generator=_slot(generator))
    return prims.with_derivative(draw, self, rule="draw")


@bernoulli.overload(
    f"bernoulli.p(Tensor self, Scalar p, *, {GENERATOR}) -> Tensor",
    runtime="p",
    samples=None,
)
def _bernoulli_p(self: Node, p: Any, generator: Any) -> Node:
    share, slot = _number(p), _slot(generator)  # in logical order, whatever the layout of self
    draw = prims.random("bernoulli", self.shape, self.dtype, share, generator=slot)
    return prims.with_derivative(draw, self, rule="draw")


@op(
    f"bernoulli_(Tensor! self, Tensor p, *, {GENERATOR}) -> Tensor",
    where="method",
    differentiable=False,
    samples=lambda: [sample(T(3, 8)), sample(T(3, 8), 0.2)],
    pointwise=True,
)
def bernoulli_(self: Node, p: Node, generator: Any) -> Node:
    """Fills the tensor with ones, of probability `p` (a number, 0.5 by default, or a tensor), and
    zeros.

    Raises:
        RuntimeError: a probability outside of [0, 1].

    Example:
        >>> torch.empty(2).bernoulli_(1.0)
        tensor([1., 1.])
    """
    each = prims.broadcast_to(_probabilities(p, "bernoulli_"), self.shape)
    return drawn_like(self, "bernoulli_each", each, generator=generator)


@bernoulli_.overload(
    f"bernoulli_.p(Tensor! self, Scalar p=0.5, *, {GENERATOR}) -> Tensor", runtime="p"
)
def _bernoulli_fill(self: Node, p: Any, generator: Any) -> Node:
    return drawn_like(self, "bernoulli", _number(p), generator=generator)


# ------------------------------------------------------------------------------------ normal


@op(
    f"normal(Tensor mean, Tensor std, *, {GENERATOR}) -> Tensor",
    where="torch",
    out=True,
    overlap="partial",
    dtypes=FLOAT_NAMES,
    samples=lambda: [
        sample(T(3, 8), T(8, low=0.5, high=1.0)),
        sample(T(3), 2.0),
        sample(1.0, T(20, low=0.5, high=1.0)),
        sample(1.0, 2.0, (4, 5)),
    ],
)
def normal(mean: Node, std: Node, generator: Any) -> Node:
    """Normal numbers; mean and std are tensors, numbers, or one of each.

    With two numbers give a size: `normal(0.0, 1.0, (2, 3))`.

    Raises:
        RuntimeError: a negative standard deviation.

    Example:
        >>> torch.normal(0.0, 1.0, (2, 3)).shape
        torch.Size([2, 3])
    """
    check_floating(mean.dtype, "normal")
    shape = prims.broadcast_shapes(mean.shape, std.shape)
    draw = prims.random("normal", shape, mean.dtype, 0.0, 1.0, generator=_slot(generator))
    width = prims.broadcast_to(prims.cast(_spread(std), mean.dtype), shape)
    value = draw * width + prims.broadcast_to(mean, shape)
    return prims.with_derivative(value, mean, std, rule="draw")


def _spread(std: Node) -> Node:
    text = "[normal] normal expects all elements of std >= 0.0\nhint: a standard deviation"
    return insist(std, std < 0, "normal", text)


@normal.overload(
    f"normal.mean(Tensor mean, Scalar std=1, *, {GENERATOR}) -> Tensor", runtime="std", samples=None
)
def _normal_mean(mean: Node, std: Any, generator: Any) -> Node:
    check_floating(mean.dtype, "normal")
    width = _number(std)
    draw = prims.random("normal", mean.shape, mean.dtype, 0.0, width, generator=_slot(generator))
    return prims.with_derivative(draw + mean, mean, rule="draw")


@normal.overload(
    f"normal.std(Scalar mean, Tensor std, *, {GENERATOR}) -> Tensor", runtime="mean", samples=None
)
def _normal_std(mean: Any, std: Node, generator: Any) -> Node:
    check_floating(std.dtype, "normal")
    draw = prims.random("normal", std.shape, std.dtype, 0.0, 1.0, generator=_slot(generator))
    value = draw * _spread(std) + prims.constant(mean, std)
    return prims.with_derivative(value, std, rule="draw")


_NORMAL_SIZE = f"(Scalar mean, Scalar std, SymInt[] size, *, {GENERATOR}, {OPTIONS}) -> Tensor"


@normal.overload(f"normal.size{_NORMAL_SIZE}", runtime="mean std", samples=None)
def _normal_size(
    mean: Any,
    std: Any,
    size: Sequence[Size],
    generator: Any,
    dtype: Any,
    layout: Any,
    device: Any,
    pin_memory: Any,
) -> Node:
    shape, target = check_sizes(size, "normal"), dtype_or(dtype)
    check_floating(target, "normal")
    numbers = (_number(mean), _number(std))
    return prims.random("normal", shape, target, *numbers, generator=_slot(generator))


with_requires_grad(normal, f"normal.leaf{_NORMAL_SIZE}")


# ------------------------------------------------------------------------------------ multinomial


def _multinomial_errors() -> Iterator[ErrorSample]:
    weights = T(3, values=[1.0, 1.0, 1.0])
    yield ErrorSample(sample(weights, 4), RuntimeError, "without replacement")
    yield ErrorSample(sample(weights, 0), RuntimeError, "n_sample <= 0")
    negative = T(2, values=[1.0, -1.0])
    yield ErrorSample(sample(negative, 1), RuntimeError, "element < 0")


@op(
    f"multinomial(Tensor self, int num_samples, bool replacement=False, *, {GENERATOR}) -> Tensor",
    out=True,
    host=True,
    dtypes="f32 f64",
    samples=lambda: [
        sample(T(5, low=0.1, high=1.0), 1),
        sample(T(3, 5, low=0.1, high=1.0), 4),
        sample(T(3, 5, low=0.1, high=1.0), 8, True),
    ],
    errors=_multinomial_errors,
)
def multinomial(
    input: Any,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Any = None,
    out: Any = None,
) -> Any:
    """Indices drawn with probabilities proportional to the weights in each row.

    Shapes: (n,) or (rows, n) to (num_samples,) or (rows, num_samples), int64.

    Raises:
        RuntimeError: weights that are negative or not finite, rows without weight, more samples
            than weights without replacement.

    Example:
        >>> torch.multinomial(torch.tensor([0., 1.]), 1)
        tensor([1])
    """
    _check_multinomial(input, num_samples, replacement)
    if out is not None and out.dtype is not object_of("i64"):
        problem = f"multinomial expects Long tensor out, got: {out.dtype}"
        raise failure(RuntimeError, "multinomial", problem, "int64")
    if replacement and num_samples > 1:
        result = _multinomial_many(input, num_samples, generator=generator)
    else:
        race = input / _exponential_like(input, generator=generator)
        if num_samples == 1:
            result = race.argmax(-1, True)
        else:
            result = race.topk(num_samples, -1).indices
    return result if out is None else out.resize_(result.shape).copy_(result)


def _check_multinomial(weights: Any, num_samples: int, replacement: bool) -> None:
    problem = ""
    if weights.ndim not in (1, 2) or not weights.is_floating_point():
        problem = (
            "prob_dist must be 1 or 2 dim and of a floating dtype: got "
            f"{weights.ndim} dim, {weights.dtype}"
        )
    elif num_samples <= 0:
        problem = "cannot sample n_sample <= 0 samples"
    elif not replacement and num_samples > weights.shape[-1]:
        problem = "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
    elif not has_data(weights):
        return
    elif weights.numel() and not bool(((weights >= 0) & (weights < math.inf)).all()):
        problem = "probability tensor contains either `inf`, `nan` or element < 0"
    elif weights.numel() and not bool((weights.sum(-1) > 0).all()):
        problem = "invalid multinomial distribution (sum of probabilities <= 0)"
    if problem:
        raise RuntimeError(f"[multinomial] {problem}\nhint: weights are finite and not negative")


@op(
    f"_exponential_like(Tensor self, *, {GENERATOR}) -> Tensor",
    where="torch",
    layout="follow",
    differentiable=False,
)
def _exponential_like(self: Node, generator: Any) -> Node:
    """Standard exponential numbers in the shape of a tensor."""
    return drawn_like(self, "exponential", 1.0, generator=generator, dense=True)


@op(
    f"_multinomial_many(Tensor self, SymInt num_samples, *, {GENERATOR}) -> Tensor",
    where="torch",
    differentiable=False,
)
def _multinomial_many(self: Node, num_samples: Size, generator: Any) -> Node:
    """Places of uniform numbers in the normalised running sums of the rows."""
    weights = prims.cast(self, "f32") if self.dtype in ("f16", "bf16") else self
    lead, n = self.shape[:-1], self.shape[-1]
    running = prims.cumsum(weights, self.ndim - 1)
    total = prims.slice(running, self.ndim - 1, n - 1, 1)
    share = prims.cast(running / total, "f64")
    last = prims.eq(
        prims.iota(share.shape, self.ndim - 1), prims.constant(n - 1, prims.iota(share.shape, 0))
    )
    share = prims.where(last, prims.full(1.0, share.shape, "f64"), share)
    shape = (*lead, num_samples)
    draw = prims.random("uniform", shape, "f64", 0.0, 1.0, generator=_slot(generator))
    wide = (*shape, n)
    below = prims.lt(
        prims.broadcast(share, wide, (*range(len(lead)), len(lead) + 1)),
        prims.broadcast(draw, wide, range(len(shape))),
    )
    return prims.sum(prims.cast(below, "i64"), axis=len(shape))
