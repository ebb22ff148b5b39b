"""Primitives that native routines compute: matrix products, sorting, Fourier transforms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.ir.environment import same_shape, same_size
from flambeau.ir.geometry import Shape, count
from flambeau.ir.node import Node
from flambeau.ir.size import Size, floordiv, mul, prod
from flambeau.prims import pointwise, shape
from flambeau.prims.common import (
    BOOL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    NUMBERS,
    Gradients,
    Type,
    check_axis,
    check_count,
    check_dtype,
    show,
)
from flambeau.prims.create import iota, zeros_like
from flambeau.prims.record import (
    NOT_DIFFERENTIABLE,
    Arguments,
    Batched,
    Primitive,
    Routine,
    any_strides,
    axis_of,
    bind,
    leading,
    next_axis,
    register,
)

Samples = Iterator[tuple[list[Any], dict[str, Any]]]

# ------------------------------------------------------------------------------------ matmul


_WIDENED = {"f32": ("f16", "bf16"), "i32": ("i8", "u8")}


def _infer_matmul(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("matmul", operands, 2)
    a, b = operands
    check_dtype("matmul", a, NUMBERS)
    bytes_of_both = (a.dtype, b.dtype, constants.get("dtype")) == ("u8", "i8", "i32")
    check_dtype("matmul", b, frozenset({"i8" if bytes_of_both else a.dtype}))
    if a.ndim < 2 or a.ndim != b.ndim or not same_shape(a.shape[:-2], b.shape[:-2]):
        raise ValueError(
            f"[matmul] operands are not equal batches of matrices: {show(a.shape)}, "
            f"{show(b.shape)}\nhint: broadcast the batch dimensions first"
        )
    if not same_size(a.shape[-1], b.shape[-2]):
        raise ValueError(
            f"[matmul] inner dimensions differ: input is {show(a.shape)}, mat2 is "
            f"{show(b.shape)}: {a.shape[-1]} != {b.shape[-2]}\n"
            "hint: transpose mat2, or check the order of its dimensions"
        )
    wide = constants.get("dtype", a.dtype)
    if wide != a.dtype and a.dtype not in _WIDENED.get(wide, ()):
        raise TypeError(
            f"[matmul] no products of {a.dtype} have the dtype {wide}\n"
            "hint: half types may give f32, bytes i32; cast the operands otherwise"
        )
    return wide, (*a.shape[:-1], b.shape[-1])


def adjoint(x: Node) -> Node:
    """Conjugate transpose of the matrices."""
    order = [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2]
    return shape.permute(pointwise.conj(x), order)


def _matmul_rule(g: Node, y: Node, a: Node, b: Node) -> Gradients:
    if y.dtype == a.dtype:
        return matmul(g, adjoint(b)), matmul(adjoint(a), g)
    if g.op == "cast" and g.inputs[0].dtype == a.dtype:  # nothing is lost by products of halves
        narrow = g.inputs[0]
        gradients = matmul(narrow, adjoint(b), y.dtype), matmul(adjoint(a), narrow, y.dtype)
    else:
        left, right = (pointwise.cast(adjoint(x), y.dtype) for x in (a, b))
        gradients = matmul(g, right), matmul(left, g)
    return pointwise.cast(gradients[0], a.dtype), pointwise.cast(gradients[1], a.dtype)


def _numpy_matmul(arrays: list[Any], constants: dict[str, Any]) -> Any:
    if "dtype" in constants:
        wide = "float32" if constants["dtype"] == "f32" else "int32"
        arrays = [x.astype(wide) for x in arrays]
    return arrays[0] @ arrays[1]


def _matmul_samples() -> Samples:
    a, b = [[1.0, 2.0, 3.0], [4.0, 5.0, -6.0]], [[0.5, 1.0], [-2.0, 3.0], [1.5, 0.7]]
    yield [a, b], {}
    yield [[a, a], [b, b]], {}


def _batch_matmul(b: Batched) -> Node:
    left, right = b.operands
    if b.flags[0] and not b.flags[1] and right.ndim == 2:  # more rows of one product
        rows = mul(b.extent, left.shape[1])
        joined = b.same(shape.reshape(left, (rows, left.shape[2])), right)
        return shape.reshape(joined, (b.extent, *b.node.shape))
    return b.same(*b.all())


def _product_space(value: Node) -> Shape:
    """Batches, as prepared with as few dimensions as strides allow, rows and columns."""
    return (*value.attribute("batch"), *value.shape[-2:])


register(
    Primitive(
        "matmul",
        "routine",
        _infer_matmul,
        _matmul_rule,
        routine=Routine(
            "matmul",
            any_strides,
            any_strides,
            _product_space,
            several=True,
            matrices=True,
            tuned=True,
        ),
        cost=64,
        reference=_numpy_matmul,
        samples=_matmul_samples,
        linear="each",
        batch=_batch_matmul,
    )
)


def matmul(a: Node, b: Node, dtype: str | None = None) -> Node:
    """Matrix products [*B, M, K] x [*B, K, N] -> [*B, M, N]; half types accumulate in f32.

    `dtype` "f32": products of halves are not rounded to their own type; "i32": those of bytes do
    not wrap, and unsigned ones may meet signed ones.
    """
    if dtype is None or dtype == a.dtype:
        return bind("matmul", a, b)
    return bind("matmul", a, b, dtype=dtype)


# ------------------------------------------------------------------------------------ sort


def _infer_sort(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("sort", operands, 1)
    [x] = operands
    check_dtype("sort", x, INTEGERS | FLOATS | BOOL)
    check_axis("sort", constants["axis"], x.ndim)
    return x.dtype, x.shape


def _infer_sort_indices(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    return "i64", _infer_sort(operands, constants)[1]


def _sort_rule(g: Node, y: Node, x: Node) -> Gradients:
    from flambeau.prims.scatter import scatter

    places = bind("sort_indices", x, **dict(y.attributes))
    return (scatter(zeros_like(x), places, g, y.attribute("axis"), "set"),)


def _numpy_sort_indices(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    [x] = arrays
    axis = constants["axis"]
    if not constants["descending"]:
        return numpy.argsort(x, axis=axis, kind="stable")
    backwards = numpy.argsort(numpy.flip(x, axis), axis=axis, kind="stable")
    return numpy.flip(x.shape[axis] - 1 - backwards, axis)


def _numpy_sort(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    return numpy.take_along_axis(
        arrays[0], _numpy_sort_indices(arrays, constants), constants["axis"]
    )


def _sort_samples() -> Samples:
    matrix = [[3.0, 1.0, 2.0, 1.5], [4.0, -5.0, 6.0, 0.5]]
    yield [matrix], {"axis": 1, "descending": False, "stable": True}
    yield [matrix], {"axis": 0, "descending": True, "stable": True}


register(
    Primitive(
        "sort",
        "routine",
        _infer_sort,
        _sort_rule,
        routine=Routine("sort", last_axis=True),
        cost=32,
        reference=_numpy_sort,
        samples=_sort_samples,
        batch=next_axis,
    )
)
register(
    Primitive(
        "sort_indices",
        "routine",
        _infer_sort_indices,
        NOT_DIFFERENTIABLE,
        routine=Routine("sort", last_axis=True),
        positions=axis_of,
        cost=32,
        reference=_numpy_sort_indices,
        samples=_sort_samples,
        batch=next_axis,
    )
)


def sort(x: Node, axis: int, descending: bool = False, stable: bool = True) -> tuple[Node, Node]:
    """Sorted values and their indices; NaN counts as greatest."""
    constants = {"axis": axis, "descending": descending, "stable": stable}
    return bind("sort", x, **constants), bind("sort_indices", x, **constants)


# ------------------------------------------------------------------------------------ selection

SELECT_RESULTS = ("values", "places")
TIES = ("first", "topk", "unordered")  # among equal elements; numbered as in routines_sort.cpp


def _infer_select(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("select", operands, 1)
    [x] = operands
    check_dtype("select", x, INTEGERS | FLOATS | BOOL)
    check_axis("select", 0, x.ndim)
    if constants["result"] not in SELECT_RESULTS:
        raise ValueError(f"[select] no result {constants['result']!r}\nhint: values or places")
    if constants["ties"] not in TIES:
        raise ValueError(f"[select] no order {constants['ties']!r}\nhint: one of {TIES}")
    dtype = x.dtype if constants["result"] == "values" else "i64"
    return dtype, (*x.shape[:-1], constants["count"])


def _select_rule(g: Node, y: Node, x: Node) -> Gradients:
    from flambeau.prims.scatter import scatter

    if y.attribute("result") == "places":
        return (None,)
    places = bind("select", x, **(dict(y.attributes) | {"result": "places"}))
    return (scatter(zeros_like(x), places, g, x.ndim - 1, "set"),)


def _numpy_select(arrays: list[Any], constants: dict[str, Any]) -> Any:
    order = {"axis": arrays[0].ndim - 1, "descending": constants["descending"]}
    function = _numpy_sort if constants["result"] == "values" else _numpy_sort_indices
    first = constants["first"]
    return function(arrays, order)[..., first : first + constants["count"]]


def _select_samples() -> Samples:
    matrix = [[3.0, 1.0, 2.0, 1.5], [4.0, -5.0, 6.0, 0.5]]
    common = {"result": "values", "ties": "first"}
    yield [matrix], {"first": 0, "count": 2, "descending": True} | common
    yield [matrix], {"first": 2, "count": 1, "descending": False} | common


register(
    Primitive(
        "select",
        "routine",
        _infer_select,
        _select_rule,
        routine=Routine("select"),
        positions=lambda value: -1 if value.attribute("result") == "places" else None,
        cost=32,
        reference=_numpy_select,
        samples=_select_samples,
        batch=leading,
    )
)


def select(
    x: Node, first: Size, count: Size, descending: bool = False, ties: str = "first"
) -> tuple[Node, Node]:
    """Values and indices at positions first .. first + count of each sorted row (last axis).

    Equal elements stay in order, or have the order of PyTorch's `topk`: by value, or not at all
    (`ties`: "topk", "unordered"; first is 0).
    """
    constants = {"first": first, "count": count, "descending": descending, "ties": ties}
    return bind("select", x, result="values", **constants), bind(
        "select", x, result="places", **constants
    )


# ------------------------------------------------------------------------------------ Fourier


_COMPLEX_OF = {"f32": "c64", "f64": "c128"}


def _fft_arguments(value: Node) -> Arguments:
    [shape] = value.attribute("shapes")
    axis, full = value.attribute("axis"), value.attribute("whole")
    length = value.attribute("length", shape[axis])
    flags = [int(flag) for flag in (value.attribute("inverse"), full) if flag is not None]
    sizes = (count(shape[:axis]), length, count(shape[axis + 1 :]), *flags)
    function = f"{value.op}_{value.inputs[0].dtype}"
    return Arguments(function, sizes, mul(count(value.shape), 4), (value.attribute("scale"),))


def _infer_fft(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("fft", operands, 1)
    [x] = operands
    check_dtype("fft", x, COMPLEX)
    check_axis("fft", constants["axis"], x.ndim)
    return x.dtype, x.shape


def _fft_rule(g: Node, y: Node, x: Node) -> Gradients:
    return (fft(g, y.attribute("axis"), not y.attribute("inverse"), y.attribute("scale")),)


def _numpy_fft(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    axis, scale = constants["axis"], constants["scale"]
    if constants["inverse"]:
        return numpy.fft.ifft(arrays[0], axis=axis, norm="forward") * scale
    return numpy.fft.fft(arrays[0], axis=axis) * scale


def _fft_samples() -> Samples:
    row = [1.0 + 0.5j, -0.3 + 2.0j, 0.7 - 1.0j]
    yield [row], {"axis": 0, "inverse": False, "scale": 1.0}
    yield [[row, row[::-1]]], {"axis": 1, "inverse": True, "scale": 0.5}
    yield [[row, row[::-1]]], {"axis": 0, "inverse": False, "scale": 1.0}


register(
    Primitive(
        "fft",
        "routine",
        _infer_fft,
        _fft_rule,
        routine=Routine("fft", arguments=_fft_arguments),
        cost=32,
        reference=_numpy_fft,
        samples=_fft_samples,
        batch=next_axis,
    )
)


def fft(x: Node, axis: int, inverse: bool = False, scale: float = 1.0) -> Node:
    """Discrete Fourier transform along an axis, times `scale`.

    Sum over k of x[k] * exp(-2 pi i j k / n), with + for the inverse.
    """
    return bind("fft", x, axis=axis, inverse=inverse, scale=scale)


def _infer_real_fft(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("real_fft", operands, 1)
    [x] = operands
    check_dtype("real_fft", x, frozenset(_COMPLEX_OF))
    axis = constants["axis"]
    check_axis("real_fft", axis, x.ndim)
    length = x.shape[axis]
    count = length if constants["whole"] else floordiv(length, 2) + 1
    return _COMPLEX_OF[x.dtype], (*x.shape[:axis], count, *x.shape[axis + 1 :])


def _real_fft_rule(g: Node, y: Node, x: Node) -> Gradients:
    axis, inverse, scale = y.attribute("axis"), y.attribute("inverse"), y.attribute("scale")
    if y.attribute("whole"):
        return (pointwise.real(fft(g, axis, not inverse, scale)),)
    length = x.shape[axis]
    return (half_fft(_pairs_times(g, axis, length, 0.5), axis, length, not inverse, scale),)


def _pairs_times(x: Node, axis: int, length: Size, factor: float) -> Node:
    """Half a spectrum of `length` points, those that also have a mirror image times a factor."""
    place = iota(x.shape, axis)
    last = floordiv(length - 1, 2)
    paired = (place > 0) & (place <= last)
    return pointwise.where(paired, x * factor, x)


def _numpy_real_fft(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    axis, length = constants["axis"], arrays[0].shape[constants["axis"]]
    spectrum = numpy.fft.fft(arrays[0], axis=axis) * constants["scale"]
    spectrum = spectrum.conj() if constants["inverse"] else spectrum
    return spectrum if constants["whole"] else spectrum.take(range(length // 2 + 1), axis)


def _real_fft_samples() -> Samples:
    rows = [[1.0, -0.3, 0.7, 2.0], [0.5, 0.1, -2.0, 1.5], [0.2, 0.4, 0.9, -1.0]]
    constants = {"axis": 1, "inverse": False, "whole": False, "scale": 1.0}
    yield [rows], constants
    yield [rows], constants | {"axis": 0, "inverse": True, "scale": 0.5}
    yield [rows], constants | {"whole": True}


register(
    Primitive(
        "real_fft",
        "routine",
        _infer_real_fft,
        _real_fft_rule,
        routine=Routine("real_fft", arguments=_fft_arguments),
        cost=16,
        reference=_numpy_real_fft,
        samples=_real_fft_samples,
        batch=next_axis,
    )
)


def real_fft(
    x: Node, axis: int, inverse: bool = False, whole: bool = False, scale: float = 1.0
) -> Node:
    """`fft` of real numbers: the first n // 2 + 1 results; the `whole` of them if so wanted."""
    return bind("real_fft", x, axis=axis, inverse=inverse, whole=whole, scale=scale)


def _infer_half_fft(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("half_fft", operands, 1)
    [x] = operands
    check_dtype("half_fft", x, COMPLEX)
    axis, length = constants["axis"], constants["length"]
    check_axis("half_fft", axis, x.ndim)
    if not same_size(x.shape[axis], floordiv(length, 2) + 1):
        raise ValueError(
            f"[half_fft] {show(x.shape)} is not half of a spectrum of {length} points\n"
            "hint: length // 2 + 1 along the axis"
        )
    real = {c: r for r, c in _COMPLEX_OF.items()}[x.dtype]
    return real, (*x.shape[:axis], length, *x.shape[axis + 1 :])


def _half_fft_rule(g: Node, y: Node, x: Node) -> Gradients:
    axis, length, scale = y.attribute("axis"), y.attribute("length"), y.attribute("scale")
    spectrum = real_fft(g, axis, not y.attribute("inverse"), scale=scale)
    return (_pairs_times(spectrum, axis, length, 2.0),)


def _numpy_half_fft(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    axis, length, scale = constants["axis"], constants["length"], constants["scale"]
    x = arrays[0] if constants["inverse"] else arrays[0].conj()
    signal = numpy.fft.irfft(x, length, axis, norm="forward") * scale
    return signal.astype(arrays[0].real.dtype)


def _half_fft_samples() -> Samples:
    rows = [[1.0 + 0.5j, -0.3 + 2.0j, 0.7 - 1.0j], [0.5 - 1.0j, 0.1 + 0.2j, -2.0 + 3.0j]]
    yield [rows], {"axis": 1, "length": 4, "inverse": True, "scale": 1.0}
    yield [rows], {"axis": 1, "length": 5, "inverse": False, "scale": 0.5}
    yield [rows], {"axis": 0, "length": 2, "inverse": True, "scale": 1.0}


register(
    Primitive(
        "half_fft",
        "routine",
        _infer_half_fft,
        _half_fft_rule,
        routine=Routine("half_fft", arguments=_fft_arguments),
        cost=16,
        reference=_numpy_half_fft,
        samples=_half_fft_samples,
        batch=next_axis,
    )
)


def half_fft(x: Node, axis: int, length: Size, inverse: bool = True, scale: float = 1.0) -> Node:
    """`fft` of the spectrum of which x is the first half: `length` real numbers.

    The rest is the conjugate mirror image; imaginary parts of what has none are not read.
    """
    return bind("half_fft", x, axis=axis, length=length, inverse=inverse, scale=scale)


# ------------------------------------------------------------------------------------ searching


def _infer_search(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("searchsorted", operands, 2)
    boundaries, values = operands
    check_dtype("searchsorted", values, frozenset({boundaries.dtype}))
    if boundaries.ndim != 1 and not same_shape(boundaries.shape[:-1], values.shape[:-1]):
        raise ValueError(
            f"[searchsorted] {show(boundaries.shape)} and {show(values.shape)} have other rows\n"
            "hint: all but the last size must agree, or the boundaries have one dimension"
        )
    return "i64", values.shape


def _numpy_search(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    boundaries, values = arrays
    side: Any = "right" if constants["right"] else "left"
    if boundaries.ndim == 1:
        return numpy.searchsorted(boundaries, values, side)
    rows = zip(boundaries.reshape(-1, boundaries.shape[-1]), values.reshape(-1, values.shape[-1]))
    return numpy.stack([numpy.searchsorted(b, v, side) for b, v in rows]).reshape(values.shape)


def _search_samples() -> Samples:
    yield [[1.0, 2.0, 2.0, 5.0], [[0.5, 2.0], [3.0, 9.0]]], {"right": False}
    yield [[[1.0, 2.0], [3.0, 4.0]], [[2.0], [3.5]]], {"right": True}


def _batch_searchsorted(b: Batched) -> Node:
    boundaries, values = b.operands
    if not b.flags[0] and boundaries.ndim == 1:
        return b.same(boundaries, values)
    boundaries, values = b.all()
    if boundaries.ndim > 2 or values.ndim == 2:
        return b.same(boundaries, values)
    flat = shape.reshape(values, (b.extent, prod(values.shape[1:])))
    return shape.reshape(b.same(boundaries, flat), values.shape)


def _search_arguments(value: Node) -> Arguments:
    boundaries, queries = value.attribute("shapes")
    length, right = boundaries[-1], int(value.attribute("right"))
    sizes = (1, length, count(queries), right, 0)
    if len(boundaries) > 1:
        sizes = (count(queries[:-1]), length, queries[-1], right, length)
    work = mul(count(queries), 20)
    return Arguments(f"searchsorted_{value.inputs[0].dtype}", sizes, work)


register(
    Primitive(
        "searchsorted",
        "routine",
        _infer_search,
        NOT_DIFFERENTIABLE,
        routine=Routine("searchsorted", arguments=_search_arguments),
        cost=16,
        reference=_numpy_search,
        samples=_search_samples,
        batch=_batch_searchsorted,
    )
)


def searchsorted(boundaries: Node, values: Node, right: bool = False) -> Node:
    """Where to insert values so that the (rows of) boundaries stay sorted; before equals, or after.

    Boundaries: [N], or [*B, N] for values [*B, K].
    """
    return bind("searchsorted", boundaries, values, right=right)
