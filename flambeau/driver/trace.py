"""From the description of a native call to the nodes an op's body works on.

A call's sizes, strides, offsets and run-time integers become symbols. Sizes 0 and 1 are constants:
the native class key tells them apart. Two sizes share a symbol only where the body needs them equal
(a guard holds it), so a plan stays as general as its op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from flambeau._core import GeneratorArgument, IntegerArgument, ScalarArgument, TensorArgument
from flambeau.driver.tracer import Tracer, traced_until_settled
from flambeau.ir.lock import late
from flambeau.ir.node import Node
from flambeau.ir.size import Size, symbol
from flambeau.ir.size_program import eq, le
from flambeau.language.layout import argument_offsets, contiguous_strides, dense_strides

Result = TypeVar("Result")
_SCALAR_DTYPES = {bool: "bool", int: "i64", float: "f64", complex: "c128"}


class Trace(Tracer):
    """The traced arguments of one call; a context manager while a body runs.

    Args:
        call: description by the native core, docs/design.md § 7.
        aligned: unify sizes that stand at equal places from the right (broadcasting ops).
        first: an earlier trace of the same call, see `Tracer`.

    Attributes:
        arguments: per schema argument: node, list of nodes, number, Size or constant.
        offsets: storage offset per tensor slot.
        requires_grad: per tensor slot.
    """

    def __init__(
        self, call: tuple[Any, ...], aligned: bool = False, first: Trace | None = None
    ) -> None:
        super().__init__(first)
        self.offsets: dict[int, Size] = {}
        self.requires_grad: list[bool] = []
        self._aligned: dict[tuple[int, int], Size] | None = {} if aligned else None
        with self:
            tensors = [self._tensors(entry) for entry in call]
            integers = [self._integers(entry) for entry in call]
            self.arguments = [
                self._argument(entry, nodes, sizes)
                for entry, nodes, sizes in zip(call, tensors, integers, strict=True)
            ]

    def __enter__(self) -> Self:
        self._outer = argument_offsets.set(self.offsets)
        return super().__enter__()

    def __exit__(self, *exception: object) -> None:
        super().__exit__()
        argument_offsets.reset(self._outer)

    def _size(self, hint: int, place: int) -> Size:
        if self._aligned is None or hint in (0, 1):
            return self.symbol(hint)
        shared = self._aligned.get((place, hint))
        if shared is None:
            shared = self._aligned[place, hint] = self.symbol(hint)
        else:
            name = self.register()
            self.environment.hints[name] = hint
            self.environment.learn(eq(symbol(name, minimum=2), shared))
        return shared

    def _tensors(self, entry: Any) -> Any:
        if type(entry) is TensorArgument:
            return self._tensor(entry)
        if type(entry) is list and any(type(item) is TensorArgument for item in entry):
            return [self._tensors(item) for item in entry]
        return None

    def _tensor(self, entry: TensorArgument) -> Node:
        rank = len(entry.sizes)
        shape = tuple(self._size(s, rank - d) for d, s in enumerate(entry.sizes))
        steps = self._strides(shape, entry.strides, entry.layout)
        self.offsets[len(self.inputs)] = self.free(entry.offset)
        self.requires_grad.append(entry.requires_grad)
        return self.input(shape, steps, entry.dtype)

    def _strides(
        self, shape: tuple[Size, ...], strides: Sequence[int], layout: str | tuple[int, ...]
    ) -> tuple[Size, ...]:
        if layout == "strided":
            return tuple(self.free(s) if s > 1 else self._ignored(s) for s in strides)
        for stride in strides:
            self._ignored(stride)
        if layout == "contiguous":
            return contiguous_strides(shape)
        assert isinstance(layout, tuple)
        return dense_strides(shape, layout)

    def _ignored(self, value: int) -> int:
        self.register()
        return value

    def _integers(self, entry: Any) -> Any:
        if type(entry) is IntegerArgument:
            return self._integer(entry.value)
        if type(entry) is list and entry and type(entry[0]) is IntegerArgument:
            return tuple(self._integer(item.value) for item in entry)
        return None

    def _integer(self, value: int) -> Size:
        if value <= 1:
            return self.constant(value)
        created = self.symbol(value)
        self.require(le(2, symbol(self.symbols[-1])))
        return created

    def _argument(self, entry: Any, tensors: Any, integers: Any) -> Any:
        if tensors is not None:
            return tensors
        if integers is not None:
            return integers
        if type(entry) is ScalarArgument:
            return self.scalar(_SCALAR_DTYPES[entry.type], entry.slot)
        if type(entry) is GeneratorArgument:
            self.generators += 1
            return entry.slot
        return entry


def traced(
    call: tuple[Any, ...], aligned: bool, run: Callable[[Trace], Result]
) -> tuple[Trace, Result]:
    """Runs `run(trace)` until sizes that must be equal have one symbol; the last trace's result."""

    def once(first: Trace | None) -> tuple[Trace, Result]:
        told.clear()
        with Trace(call, aligned and first is None, first) as trace:
            return trace, run(trace)

    with late("flambeau.core.warned").held() as told:
        return traced_until_settled(once)
