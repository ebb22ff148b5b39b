"""Values made from nothing: constants, indices, sizes; the graph's inputs and run-time numbers.

A constant's value is normalised per dtype, because Python holds 1, 1.0 and True (and 0.0 and -0.0)
for equal and nodes are shared by equality. Minus zero is `neg(full(0.0))`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flambeau.ir.dtypes import CATEGORY, TABLE
from flambeau.ir.geometry import Index
from flambeau.ir.node import DTYPES, Node, attributes, node
from flambeau.ir.size import Size
from flambeau.prims.common import (
    INTEGER_BITS,
    INTEGERS,
    TO_REAL,
    Type,
    UndefinedDtype,
    check_axis,
    check_count,
)
from flambeau.prims.record import (
    NOT_DIFFERENTIABLE,
    Elements,
    Lower,
    Primitive,
    bind,
    register,
)

Number = bool | int | float | complex


def _infer_declared(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("create", operands, 0)
    if constants["dtype"] not in DTYPES:
        raise TypeError(f"[create] unknown dtype {constants['dtype']!r}\nhint: see ir.node.DTYPES")
    return constants["dtype"], constants["shape"]


def _infer_iota(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_axis("iota", constants["dimension"], len(constants["shape"]))
    return _infer_declared(operands, constants)


def _infer_size(operands: tuple[Node, ...], constants: dict[str, Any]) -> Type:
    check_count("size", operands, 0)
    return "i64", ()


def _numpy_full(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    value = constants["value"]
    if constants["dtype"] in INTEGERS:
        return numpy.full(constants["shape"], value, "int64")
    return numpy.full(constants["shape"], value)


def _numpy_iota(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    shape, dimension = constants["shape"], constants["dimension"]
    line = numpy.arange(shape[dimension], dtype="int64")
    sizes = [-1 if d == dimension else 1 for d in range(len(shape))]
    return numpy.broadcast_to(line.reshape(sizes), shape)


def _numpy_size(arrays: list[Any], constants: dict[str, Any]) -> Any:
    import numpy

    return numpy.asarray(constants["value"], "int64")


def _full_samples() -> Iterator[tuple[list[Any], dict[str, Any]]]:
    yield [], {"value": 2.5, "shape": (2, 3), "dtype": "f32"}
    yield [], {"value": True, "shape": (), "dtype": "bool"}
    yield [], {"value": -3, "shape": (4,), "dtype": "i64"}


def _iota_samples() -> Iterator[tuple[list[Any], dict[str, Any]]]:
    yield [], {"shape": (2, 3), "dimension": 1, "dtype": "i64"}
    yield [], {"shape": (3, 2), "dimension": 0, "dtype": "f32"}


def _size_samples() -> Iterator[tuple[list[Any], dict[str, Any]]]:
    yield [], {"value": 7}


def _lower_full(elements: Elements, value: Node, index: Index, mask: Node | None) -> Node:
    return elements.constant(value.attribute("value"), value.dtype)


def _lower_iota(elements: Elements, value: Node, index: Index, mask: Node | None) -> Node:
    return elements.index_value(index[value.attribute("dimension")], value.dtype)


def _lower_size(elements: Elements, value: Node, index: Index, mask: Node | None) -> Node:
    return elements.index_value(value.attribute("value"))


def _create(
    name: str,
    infer: Any,
    reference: Any,
    samples: Any,
    lower: Lower,
    constant: bool = False,
) -> None:
    register(
        Primitive(
            name,
            "create",
            infer,
            NOT_DIFFERENTIABLE,
            cost=0,
            reference=reference,
            samples=samples,
            lower=lower,
            constant=constant,
        )
    )


_create("full", _infer_declared, _numpy_full, _full_samples, _lower_full, constant=True)
_create("iota", _infer_iota, _numpy_iota, _iota_samples, _lower_iota)
_create("size", _infer_size, _numpy_size, _size_samples, _lower_size)


def normal_value(value: Number, dtype: str) -> Number:
    """Return `value` as the one Python number that represents it in `dtype`.

    Raises:
        TypeError: if a number with a fraction is meant as an integer.
    """
    if dtype == "bool":
        return bool(value)
    if dtype in INTEGER_BITS:
        if isinstance(value, complex) or not math.isfinite(value) or value != int(value):
            raise UndefinedDtype(
                f"[full] {value} is no {dtype}\nhint: cast the tensor operand first"
            )
        bits = INTEGER_BITS[dtype]
        low = -(1 << (bits - 1)) if TABLE[dtype].signed else 0
        return (int(value) - low) % (1 << bits) + low
    if CATEGORY[dtype] == 2:
        if isinstance(value, complex):
            raise TypeError(f"[full] {value} is no {dtype}\nhint: cast the operand to complex")
        number = float(value)
        return math.nan if number != number else number
    return complex(value)


def full(value: Number, shape: tuple[Size, ...], dtype: str) -> Node:
    """A tensor of one value; integers wrap around like a conversion from i64."""
    shape = tuple(shape)
    number = normal_value(value, dtype)
    if isinstance(number, complex):
        return _full_complex(number, shape, dtype)
    if CATEGORY[dtype] == 2 and number == 0 and math.copysign(1.0, number) < 0:
        return bind("neg", bind("full", value=0.0, shape=shape, dtype=dtype))
    return bind("full", value=number, shape=shape, dtype=dtype)


def _full_complex(number: complex, shape: tuple[Size, ...], dtype: str) -> Node:
    parts = (number.real, number.imag)
    plain = all(p == p and (p != 0 or math.copysign(1.0, p) > 0) for p in parts)
    if plain:
        return bind("full", value=number, shape=shape, dtype=dtype)
    real, imag = (full(p, shape, TO_REAL[dtype]) for p in parts)
    return bind("complex", real, imag)


def iota(shape: tuple[Size, ...], dimension: int, dtype: str = "i64") -> Node:
    """Each element's own index along `dimension`."""
    return bind("iota", shape=tuple(shape), dimension=dimension, dtype=dtype)


def size(value: Size) -> Node:
    """A size as an i64 scalar node."""
    if isinstance(value, int):
        return full(value, (), "i64")
    return bind("size", value=value)


def full_like(value: Number, like: Node, dtype: str | None = None) -> Node:
    """A tensor of one value with the shape (and dtype) of `like`."""
    return full(value, like.shape, dtype or like.dtype)


def zeros_like(like: Node, dtype: str | None = None) -> Node:
    """Zeros (False) with the shape and dtype of `like`."""
    return full(0, like.shape, dtype or like.dtype)


def input_node(slot: int, dtype: str, shape: tuple[Size, ...], strides: tuple[Size, ...]) -> Node:
    """The tensor in `slot` of a graph's call."""
    return node("input", (), attributes(slot=slot, strides=tuple(strides)), dtype, tuple(shape))


def scalar_node(slot: int, dtype: str) -> Node:
    """The run-time Python number in `slot`: dtype f64, i64 or bool."""
    return node("scalar", (), attributes(slot=slot), dtype, ())
