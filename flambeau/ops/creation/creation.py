"""New tensors: from data, filled with numbers, ranges, and like another tensor.

`requires_grad=True` is rare in calls that must be fast: the native signature does not know it, and
a second one, in Python, serves it. `empty` allocates at once: there is nothing to compute.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.core import tensors
from flambeau.ir.environment import less
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size, ceildiv
from flambeau.language.definition import Body, OpDefinition, op
from flambeau.language.dtypes import object_of
from flambeau.language.promotion import CATEGORY, default_complex, default_dtype
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Mutable, Scalar, Tensor
from flambeau.ops.common import dtype_or

Samples = Iterator[Sample]
OPTIONS = "dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=None"


def check_sizes(size: Sequence[Size], name: str) -> tuple[Size, ...]:
    """The sizes, none of them negative.

    Raises:
        RuntimeError: a negative size.
    """
    for n in size:
        if isinstance(n, int) and n < 0:
            problem = f"Trying to create tensor with negative dimension {n}: {list(size)}"
            raise failure(RuntimeError, name, problem, "sizes count elements")
    return tuple(size)


def check_layout(layout: Any, name: str, pin_memory: Any = None) -> None:
    """Refuses what memory of the CPU has not.

    Raises:
        NotImplementedError: another layout than strided.
        RuntimeError: pinned memory.
    """
    if pin_memory:
        problem = "pin_memory=True requires an accelerator; there is none"
        raise failure(RuntimeError, name, problem, "leave pin_memory out")
    if layout is not None and layout is not tensors.strided:
        raise failure(NotImplementedError, name, f"layout {layout} is not supported", "use strided")


def with_requires_grad(definition: OpDefinition, schema: str) -> None:
    """Adds the signature that takes `requires_grad`, served in Python."""

    def body(*args: Any, requires_grad: Any, **options: Any) -> Any:
        result = definition.native(*args, **options)
        return result.requires_grad_() if requires_grad else result

    head, _, tail = schema.rpartition(") ->")
    definition.overload(
        f"{head}, bool requires_grad) ->{tail}", host=True, samples=None, errors=None
    )(body)


def creation(
    arguments: str, where: str = "torch", **options: Any
) -> Callable[[Body], OpDefinition]:
    """Defines an op that makes a tensor from nothing: `name(...)` gets the usual options."""
    separator = ", " if "*" in arguments else ", *, "

    def decorate(body: Body) -> OpDefinition:
        schema = f"{arguments}{separator}{OPTIONS}) -> Tensor"
        options.setdefault("out", where == "torch")
        definition = op(schema, where=where, differentiable=False, **options)(body)
        with_requires_grad(definition, schema)
        return definition

    return decorate


# ------------------------------------------------------------------------------------ constants


def _size_samples() -> Samples:
    yield sample((2, 3))
    yield sample(2, 3)
    yield sample(())
    yield sample((0, 3))


@creation("zeros(SymInt[] size", repeats=True, samples=_size_samples)
def zeros(size: Sequence[Size], dtype: Any, layout: Any, device: Any, pin_memory: Any) -> Node:
    """A tensor of zeros.

    Args:
        size: sizes, as one sequence or as arguments.
        dtype: of the elements; the default float dtype when None.

    Raises:
        RuntimeError: a negative size.

    Example:
        >>> torch.zeros(2, 3).shape
        torch.Size([2, 3])
    """
    check_layout(layout, "zeros", pin_memory)
    return prims.full(0, check_sizes(size, "zeros"), dtype_or(dtype))


@creation("ones(SymInt[] size", repeats=True, samples=_size_samples)
def ones(size: Sequence[Size], dtype: Any, layout: Any, device: Any, pin_memory: Any) -> Node:
    """A tensor of ones; see `zeros`.

    Example:
        >>> torch.ones(2)
        tensor([1., 1.])
    """
    check_layout(layout, "ones", pin_memory)
    return prims.full(1, check_sizes(size, "ones"), dtype_or(dtype))


def number_dtype(value: Any) -> str:
    """The dtype that `full` infers from a number: bool, int64, or the default (complex) dtype."""
    if isinstance(value, Node):
        return default_dtype() if value.dtype == "f64" else value.dtype
    if isinstance(value, int):  # from 2^63 on, known before the call
        return "i64"
    return default_complex() if isinstance(value, complex) else default_dtype()


def filled(value: Any, shape: Sequence[Size], dtype: str) -> Node:
    """A number, given at run time or now, in every place."""
    if isinstance(value, Node):
        return prims.broadcast_to(prims.cast(value, dtype), shape)
    if isinstance(value, complex) and CATEGORY[dtype] < 3:
        if value.imag:
            problem = f"value cannot be converted to type {dtype} without overflow: {value}"
            raise failure(RuntimeError, "full", problem, "choose a complex dtype")
        value = value.real
    return prims.full(value, tuple(shape), dtype)


@creation(
    "full(SymInt[] size, Scalar fill_value",
    repeats=True,
    fits="fill_value",
    runtime="fill_value",
    samples=lambda: [sample((2, 3), 1.5), sample((2,), 7), sample((), True)],
)
def full(
    size: Sequence[Size], fill_value: Any, dtype: Any, layout: Any, device: Any, pin_memory: Any
) -> Node:
    """A tensor of one number; without dtype that of the number (bool, int64, default float).

    Example:
        >>> torch.full((2,), 7)
        tensor([7, 7])
    """
    check_layout(layout, "full", pin_memory)
    shape = check_sizes(size, "full")
    return filled(fill_value, shape, dtype_or(dtype, number_dtype(fill_value)))


@creation("scalar_tensor(Scalar s", fits="s", runtime="s", samples=lambda: [sample(3.5)], out=False)
def scalar_tensor(s: Any, dtype: Any, layout: Any, device: Any, pin_memory: Any) -> Node:
    """A tensor without dimensions; of the default float dtype unless told otherwise.

    Example:
        >>> torch.scalar_tensor(3)
        tensor(3.)
    """
    return filled(s, (), dtype_or(dtype))


@creation("eye(SymInt n", samples=lambda: [sample(3)])
def eye(n: Size, dtype: Any, layout: Any, device: Any, pin_memory: Any) -> Node:
    """A matrix with ones on its main diagonal.

    Raises:
        RuntimeError: a negative size.

    Example:
        >>> torch.eye(2)
        tensor([[1., 0.],
                [0., 1.]])
    """
    return _eye(n, n, dtype, layout)


def _eye(n: Size, m: Size, dtype: Any, layout: Any) -> Node:
    check_layout(layout, "eye")
    for name, extent in (("n", n), ("m", m)):
        if isinstance(extent, int) and extent < 0:
            problem = f"{name} must be greater or equal to 0, got {extent}"
            raise failure(RuntimeError, "eye", problem, "a row count")
    shape = (n, m)
    on = prims.eq(prims.iota(shape, 0), prims.iota(shape, 1))
    return prims.cast(on, dtype_or(dtype))


@eye.overload(f"eye.m(SymInt n, SymInt m, *, {OPTIONS}) -> Tensor", samples=None)
def _eye_m(n: Size, m: Size, dtype: Any, layout: Any, device: Any, pin_memory: Any) -> Node:
    return _eye(n, m, dtype, layout)


with_requires_grad(eye, f"eye.m(SymInt n, SymInt m, *, {OPTIONS}) -> Tensor")


# ------------------------------------------------------------------------------------ ranges


def _arange_samples() -> Samples:
    yield sample(5)
    yield sample(2, 7)
    yield sample(7, 2, -2)
    yield sample(0.0, 1.0, 0.25)
    yield sample(0)


def _arange_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(3, 1), RuntimeError, "inconsistent with step sign")
    yield ErrorSample(sample(0, 3, 0), RuntimeError, "step must be nonzero")


def _inconsistent() -> RuntimeError:
    return RuntimeError(
        "[arange] upper bound and lower bound inconsistent with step sign\n"
        "hint: a negative step counts down from start to end"
    )


def _integer_range(start: Size, end: Size, step: Size, dtype: Any, layout: Any) -> Node:
    check_layout(layout, "arange")
    if isinstance(step, int) and step == 0:
        raise failure(RuntimeError, "arange", "step must be nonzero", "use full for equal numbers")
    down = isinstance(step, int) and step < 0
    if less(start, end) if down else less(end, start):
        raise _inconsistent()
    count = ceildiv(start - end, -step) if down else ceildiv(end - start, step)
    places = prims.iota((count,), 0)
    if not (isinstance(step, int) and step == 1):
        places = places * prims.constant(step, places)
    if not (isinstance(start, int) and start == 0):
        places = places + prims.constant(start, places)
    return prims.cast(places, dtype_or(dtype, "i64"))


def _number_range(start: Any, end: Any, step: Any, dtype: Any, layout: Any) -> Node:
    numbers = (start, end, step)
    if all(isinstance(n, int) for n in numbers):
        return _integer_range(int(start), int(end), int(step), dtype, layout)
    check_layout(layout, "arange")
    if step == 0:
        raise failure(RuntimeError, "arange", "step must be nonzero", "use full for equal numbers")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"[arange] unsupported range: {start} -> {end}\nhint: finite bounds")
    if (end - start) * step < 0:
        raise _inconsistent()
    target = dtype_or(dtype)
    if target == "i64" and -1 < step < 1:
        raise ValueError("[arange] step must be nonzero\nhint: a whole step for whole numbers")
    if target == "i64":  # PyTorch counts the numbers after the cast here, and only here
        return _integer_range(int(start), int(end), int(step), dtype, layout)
    count = math.ceil((end - start) / step)
    if CATEGORY[target] == 1:
        start, step = int(start), int(step)
    kind = "i64" if CATEGORY[target] == 1 else "f64"
    places = prims.iota((count,), 0, kind)
    values = prims.constant(start, places) + places * prims.constant(step, places)
    return prims.cast(values, target)


@creation("arange(SymInt end", varying=True, samples=_arange_samples, errors=_arange_errors)
def arange(end: Size, dtype: Any, layout: Any, device: Any, pin_memory: Any) -> Node:
    """Numbers from start (0) to before end by step (1): `ceil((end - start) / step)` of them.

    dtype: int64 for integer arguments, else the default float dtype. Values are computed as
    `start + i * step` in int64 or float64 and rounded once.

    Raises:
        RuntimeError: step 0, or of the wrong sign.

    Example:
        >>> torch.arange(1, 7, 2)
        tensor([1, 3, 5])
    """
    return _integer_range(0, end, 1, dtype, layout)


@arange.overload(f"arange.start(SymInt start, SymInt end, SymInt step=1, *, {OPTIONS}) -> Tensor")
def _arange_start(
    start: Size, end: Size, step: Size, dtype: Any, layout: Any, device: Any, pin_memory: Any
) -> Node:
    return _integer_range(start, end, step, dtype, layout)


@arange.overload(f"arange.end(Scalar end, *, {OPTIONS}) -> Tensor")
def _arange_end(end: Any, dtype: Any, layout: Any, device: Any, pin_memory: Any) -> Node:
    return _number_range(0, end, 1, dtype, layout)


@arange.overload(f"arange.numbers(Scalar start, Scalar end, Scalar step=1, *, {OPTIONS}) -> Tensor")
def _arange_numbers(
    start: Any, end: Any, step: Any, dtype: Any, layout: Any, device: Any, pin_memory: Any
) -> Node:
    return _number_range(start, end, step, dtype, layout)


for _arguments in ("SymInt start, SymInt end, SymInt step=1", "Scalar end"):
    with_requires_grad(arange, f"arange.grad({_arguments}, *, {OPTIONS}) -> Tensor")
with_requires_grad(
    arange, f"arange.grad(Scalar start, Scalar end, Scalar step=1, *, {OPTIONS}) -> Tensor"
)


@op(
    "range(Scalar start, Scalar end, Scalar step=1, *, dtype? dtype=None, "
    "bool requires_grad=False) -> Tensor",
    where="torch",
    out=True,
    host=True,
    samples=lambda: [sample(1, 4), sample(0.0, 2.0, 0.5)],
)
def range_(start: float, end: float, step: float = 1, *, dtype: Any = None, **options: Any) -> Any:
    """Numbers from start to end, end included, in the default float dtype; use `arange`.

    Example:
        >>> torch.range(1, 3)
        tensor([1., 2., 3.])
    """
    warnings.warn(
        "torch.range is deprecated and will be removed in a future release because its behavior "
        "is inconsistent with Python's range builtin. Instead, use torch.arange, which produces "
        "values in [start, end).",
        UserWarning,
        stacklevel=2,
    )
    count = math.floor((end - start) / step) + 1
    values = arange(count, dtype=object_of("f64")) * step + start
    result = values.to(object_of(dtype_or(dtype)))
    return result.requires_grad_() if options.get("requires_grad") else result


# ------------------------------------------------------------------------------------ like another


def _like_samples() -> Samples:
    yield sample(T(2, 3))
    yield sample(T(4, 6, layout="transposed"))
    yield sample(T())
    yield sample(T(0, 2))


def with_format(definition: OpDefinition, arguments: str) -> None:
    """Adds the signature of a `*_like` op that takes memory_format and requires_grad."""

    def body(self: Any, *args: Any, memory_format: Any = None, **options: Any) -> Any:
        requires_grad = options.pop("requires_grad", False)
        result = definition.native(self, *args, **options)
        if memory_format is not None and memory_format is not tensors.preserve_format:
            result = result.contiguous(memory_format=memory_format)
        return result.requires_grad_() if requires_grad else result

    definition.overload(
        f"{definition.name}.format({arguments}, {OPTIONS}, memory_format? memory_format=None, "
        "bool requires_grad=False) -> Tensor",
        host=True,
        samples=None,
    )(body)


def like(arguments: str, **options: Any) -> Callable[[Body], OpDefinition]:
    """Defines a `*_like` op: shape, dtype, device and order in memory of a tensor by default."""

    def decorate(body: Body) -> OpDefinition:
        schema = f"{arguments}, *, {OPTIONS}) -> Tensor"
        definition = op(
            schema,
            where="torch",
            layout="follow",
            differentiable=False,
            samples=options.pop("samples", _like_samples),
            **options,
        )(body)
        with_format(definition, arguments.partition("(")[2] + ", *")
        return definition

    return decorate


@like("zeros_like(Tensor self")
def zeros_like(self: Node, dtype: Any, layout: Any, device: Any, pin_memory: Any) -> Node:
    """Zeros with the shape, dtype, device and memory order of a tensor.

    Example:
        >>> torch.zeros_like(torch.tensor([1, 2]))
        tensor([0, 0])
    """
    check_layout(layout, "zeros_like", pin_memory)
    return prims.full(0, self.shape, dtype_or(dtype, self.dtype))


@like("ones_like(Tensor self")
def ones_like(self: Node, dtype: Any, layout: Any, device: Any, pin_memory: Any) -> Node:
    """Ones with the shape, dtype, device and memory order of a tensor.

    Example:
        >>> torch.ones_like(torch.tensor([3, 2]))
        tensor([1, 1])
    """
    check_layout(layout, "ones_like", pin_memory)
    return prims.full(1, self.shape, dtype_or(dtype, self.dtype))


@like(
    "full_like(Tensor self, Scalar fill_value",
    fits="fill_value",
    runtime="fill_value",
    samples=lambda: [sample(T(2, 3), 1.5)],
)
def full_like(
    self: Node, fill_value: Any, dtype: Any, layout: Any, device: Any, pin_memory: Any
) -> Node:
    """One number in the shape, dtype, device and memory order of a tensor.

    Example:
        >>> torch.full_like(torch.tensor([1., 2.]), 7)
        tensor([7., 7.])
    """
    check_layout(layout, "full_like", pin_memory)
    return filled(fill_value, self.shape, dtype_or(dtype, self.dtype))


def _new_samples() -> Samples:
    yield sample(T(2), (2, 3))
    yield sample(T(2), 4)


@creation("new_zeros(Tensor self, SymInt[] size", where="method", samples=_new_samples)
def new_zeros(
    self: Node, size: Sequence[Size], dtype: Any, layout: Any, device: Any, pin_memory: Any
) -> Node:
    """Zeros of the tensor's dtype and device.

    Example:
        >>> torch.tensor([1]).new_zeros(2)
        tensor([0, 0])
    """
    return prims.full(0, check_sizes(size, "new_zeros"), dtype_or(dtype, self.dtype))


@creation("new_ones(Tensor self, SymInt[] size", where="method", samples=_new_samples)
def new_ones(
    self: Node, size: Sequence[Size], dtype: Any, layout: Any, device: Any, pin_memory: Any
) -> Node:
    """Ones of the tensor's dtype and device.

    Example:
        >>> torch.tensor([3]).new_ones(2)
        tensor([1, 1])
    """
    return prims.full(1, check_sizes(size, "new_ones"), dtype_or(dtype, self.dtype))


@creation(
    "new_full(Tensor self, SymInt[] size, Scalar fill_value",
    fits="fill_value",
    where="method",
    runtime="fill_value",
    samples=lambda: [sample(T(2), (2, 3), 1.5)],
)
def new_full(
    self: Node,
    size: Sequence[Size],
    fill_value: Any,
    dtype: Any,
    layout: Any,
    device: Any,
    pin_memory: Any,
) -> Node:
    """One number, in the tensor's dtype and on its device.

    Example:
        >>> torch.tensor([3.]).new_full((2,), 7)
        tensor([7., 7.])
    """
    return filled(fill_value, check_sizes(size, "new_full"), dtype_or(dtype, self.dtype))


# ------------------------------------------------------------------------------------ filling


def number(value: Any, shape: Sequence[Size], dtype: str, name: str) -> Node:
    """A number, or a tensor without dimensions, in every place.

    Raises:
        RuntimeError: a tensor with dimensions.
    """
    if isinstance(value, Node) and value.ndim:
        problem = f"{name} only supports 0-dimension value tensor but got tensor with "
        problem += f"{value.ndim} dimensions."
        raise failure(RuntimeError, name, problem, "copy_ and where take whole tensors")
    return filled(value, shape, dtype)


@op(
    layout="follow",
    inplace=True,
    fits="value",
    runtime="value",
    overlap="fill",
    samples=lambda: [sample(T(2, 3), 1.5), sample(T(4, 6, layout="transposed"), 2)],
)
def fill(self: Tensor, value: Tensor | Scalar) -> Tensor:
    """One number in every place; the dtype stays.

    Example:
        >>> torch.zeros(2).fill_(3)
        tensor([3., 3.])
    """
    filled_value = number(value, self.shape, self.dtype, "fill_")
    if isinstance(value, Node) and not value.is_scalar:
        return prims.with_derivative(filled_value, self, value, rule="fill")
    return prims.with_derivative(filled_value, self, rule="flat")


def _fill_rule(grad: Node, out: Node, x: Node, value: Node) -> tuple[Node, Node]:
    total = prims.reduce_dims("sum", grad, tuple(range(grad.ndim)), False)
    return prims.zeros_like(x), prims.reshape(prims.cast(total, value.dtype), value.shape)


prims.register_rule("fill", _fill_rule)


@op(overlap="fill", samples=_like_samples, pointwise=True)
def zero_(self: Mutable[Tensor]) -> Tensor:
    """Zeros in every place.

    Example:
        >>> torch.ones(2).zero_()
        tensor([0., 0.])
    """
    return prims.full(0, self.shape, self.dtype)


# ------------------------------------------------------------------------------------ indices


def _triangle_indices(
    row: int, col: int, offset: int, lower: bool, dtype: Any, requires_grad: bool, **options: Any
) -> Any:
    name = "tril_indices" if lower else "triu_indices"
    if row < 0 or col < 0:
        problem = f"{'row' if row < 0 else 'col'} must be non-negative"
        raise failure(RuntimeError, name, problem, ">= 0")
    square = ones((row, col), dtype=object_of("bool"), device="cpu")
    triangle = square.tril(offset) if lower else square.triu(offset)
    places = triangle.nonzero().t().contiguous()
    places = places if dtype is None else places.to(dtype)
    places = places.to(ones((0,), **options).device)  # the default one, if none is given
    return places.requires_grad_() if requires_grad else places


def _define_triangle(name: str, lower: bool, side: str, shown: str) -> None:
    def body(
        row: int,
        col: int,
        offset: int = 0,
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        pin_memory: bool = False,
        requires_grad: bool = False,
    ) -> Any:
        options = {"layout": layout, "device": device, "pin_memory": pin_memory}
        return _triangle_indices(row, col, offset, lower, dtype, requires_grad, **options)

    body.__name__ = body.__qualname__ = name
    body.__doc__ = f"""Rows and columns of the places on and {side} a diagonal, row by row.

    Shape: (2, count).

    Example:
        >>> torch.{name}(2, 2)
        {shown}
    """
    op(
        f"{name}(int row, int col, int offset=0, *, dtype? dtype=None, layout? layout=None, "
        "device? device=None, bool pin_memory=False, bool requires_grad=False) -> Tensor",
        where="torch",
        host=True,
        samples=lambda: [sample(3, 4), sample(3, 3, 1 - 2 * lower), sample(4, 2, 2 * lower - 1)],
    )(body)


_define_triangle("tril_indices", True, "below", "tensor([[0, 1, 1],\n                [0, 0, 1]])")
_define_triangle("triu_indices", False, "above", "tensor([[0, 0, 1],\n                [0, 1, 1]])")


# ------------------------------------------------------------------------------------ complex


@op(
    name="complex",
    where="torch",
    layout="follow",
    out="exact",
    samples=lambda: [sample(T(2, 3), T(3))],
    dtypes="f32 f64",
)
def complex_(real: Tensor, imag: Tensor) -> Tensor:
    """Complex numbers from their parts, which have one real dtype.

    Raises:
        RuntimeError: dtypes differ or are not float16, float32 or float64.

    Example:
        >>> torch.complex(torch.tensor(1.), torch.tensor(2.))
        tensor(1.+2.j)
    """
    if real.dtype not in ("f16", "f32", "f64") or imag.dtype != real.dtype:
        problem = "Expected both inputs to be Half, Float or Double tensors of one type but got "
        problem += f"{real.dtype} and {imag.dtype}"
        raise failure(RuntimeError, "complex", problem, "convert them first")
    half = real.dtype == "f16"
    parts = [prims.cast(x, "f32") if half else x for x in (real, imag)]
    value = prims.complex(*prims.broadcast_all(*parts))
    return prims.cast(value, "c32") if half else value
