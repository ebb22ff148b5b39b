"""Bitwise and logical operators of two operands, and shifts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flambeau import prims
from flambeau.ir.node import Node
from flambeau.language.definition import OpDefinition, op
from flambeau.language.promotion import CATEGORY
from flambeau.language.samples import Sample, T, binary_samples, sample
from flambeau.ops.broadcasting import as_node, broadcast_sizes, together, unsupported

Value = Any  # a Node or a Python number


def _integer_samples(low: int = -9, high: int = 9) -> Callable[[], Iterator[Sample]]:
    def make() -> Iterator[Sample]:
        for shape in ((), (7,), (3, 4), (0, 3)):
            left = T(*shape, dtype="i32", low=-9, high=9)
            yield sample(left, T(*shape, dtype="i32", low=low, high=high))
            yield sample(left, 3)
        yield sample(T(3, 1, dtype="i64", low=-9, high=9), T(4, dtype="i64", low=low, high=high))

    return make


def _whole(name: str, values: tuple[Value, ...], bools: bool) -> tuple[Node, ...]:
    nodes = together(name, *values)
    dtype = nodes[0].dtype
    if CATEGORY[dtype] >= 2 or (dtype == "bool" and not bools):
        raise unsupported(name, nodes[0], "convert to an integer type first")
    return nodes


def _bitwise(name: str, text: str, primitive: str, bools: bool, reference: str) -> OpDefinition:
    function: Callable[[Node, Node], Node] = getattr(prims, primitive)

    def body(self: Node, other: Value) -> Node:
        return function(*_whole(name, (self, other), bools))

    body.__doc__ = f"""{text} Operands broadcast and promote.

    Raises:
        NotImplementedError: floating-point or complex tensors.

    Example:
        >>> torch.{name}(torch.tensor([6]), 1).shape
        torch.Size([1])
    """
    definition = op(
        f"{name}(Tensor self, Tensor|Scalar other) -> Tensor",
        kind="pointwise",
        runtime="other",
        samples=_integer_samples() if bools else _integer_samples(0, 40),
        dtypes="bool u8 i8 i16 i32 i64" if bools else "u8 i8 i16 i32 i64",
        reference=reference,
    )(body)

    def scalar(self: Value, other: Node) -> Node:
        return body(as_node(self, other.dtype), other)

    signature = f"{name}.Scalar(Scalar self, Tensor other) -> Tensor"
    definition.overload(signature, runtime="self", inplace=False)(scalar)
    return definition


# fmt: off
bitwise_and = _bitwise("bitwise_and", "Bits set in both; `and` of bools.", "bitwise_and", True,
                       "numpy.bitwise_and")
bitwise_or = _bitwise("bitwise_or", "Bits set in either; `or` of bools.", "bitwise_or", True,
                      "numpy.bitwise_or")
bitwise_xor = _bitwise("bitwise_xor", "Bits set in just one; `xor` of bools.", "bitwise_xor", True,
                       "numpy.bitwise_xor")
bitwise_left_shift = _bitwise(
    "bitwise_left_shift", "self * 2**other; a count out of range shifts all bits out.",
    "shift_left", False, "numpy.left_shift")
bitwise_right_shift = _bitwise(
    "bitwise_right_shift", "self / 2**other rounded down; signs are kept.",
    "shift_right", False, "numpy.right_shift")
# fmt: on


def _reflected(name: str, primitive: str) -> OpDefinition:
    function: Callable[[Node, Node], Node] = getattr(prims, primitive)

    def body(self: Node, other: Value) -> Node:
        a, b = _whole(name, (self, other), False)
        return function(b, a)

    body.__doc__ = f"""`{name}` of Python's reflected operator."""
    return op(
        f"{name}(Tensor self, Tensor|Scalar other) -> Tensor",
        kind="pointwise",
        where="method",
        inplace=False,
        runtime="other",
    )(body)


_rlshift = _reflected("_rlshift", "shift_left")
_rrshift = _reflected("_rrshift", "shift_right")


def _logical(name: str, text: str, primitive: str) -> OpDefinition:
    function: Callable[[Node, Node], Node] = getattr(prims, primitive)

    def body(self: Node, other: Node) -> Node:
        shape = broadcast_sizes(name, self.shape, other.shape)
        truths = [prims.broadcast_to(prims.cast(x, "bool"), shape) for x in (self, other)]
        return function(*truths)

    body.__doc__ = f"""{text} An element is true when it is not zero; the result is `bool`.

    Example:
        >>> torch.{name}(torch.tensor([0, 2]), torch.tensor([1, 1])).dtype
        torch.bool
    """
    return op(
        f"{name}(Tensor self, Tensor other) -> Tensor",
        kind="pointwise",
        promote="none",
        samples=binary_samples(scalar=None),
        reference="numpy." + name,
    )(body)


logical_and = _logical("logical_and", "Whether both elements are true.", "bitwise_and")
logical_or = _logical("logical_or", "Whether either element is true.", "bitwise_or")
logical_xor = _logical("logical_xor", "Whether just one element is true.", "ne")
