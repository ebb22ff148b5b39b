"""The one tracer: inputs, numbers and symbols of a program, from example values.

A program's sizes, strides, offsets and run-time integers arrive as registers, numbered in the order
in which the native core has them (docs/design.md § 6). A register stays a symbol, becomes a
constant, or is a size that is there already. What a subclass adds is the choice among these: a call
of an operator (`driver/trace.py`), a recorded stream (`capture/stream.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, TypeVar

from flambeau.ir.environment import pop_environment, push_environment
from flambeau.ir.node import Node, attributes, node
from flambeau.ir.size import Size, SizeExpr, symbol
from flambeau.ir.size_program import ShapeEnvironment, Truth, eq

MAX_TRACES = 5  # of one program, see `traced_until_settled`


class Tracer:
    """The leaves of a program that is being traced; a context manager while its values are made.

    Args:
        first: an earlier trace of the same program, whose equalities hold from the start.

    Attributes:
        environment: symbols, hints and guards.
        symbols: names in the order of the registers.
        inputs: `input` nodes per tensor slot.
        scalars: `scalar` nodes per scalar slot.
        generators: how many slots of generators there are.
    """

    def __init__(self, first: Tracer | None) -> None:
        earlier: ShapeEnvironment | None = first.environment if first else None
        self.environment: ShapeEnvironment = earlier or ShapeEnvironment()
        self.symbols: list[str] = []
        self.inputs: list[Node] = []
        self.scalars: list[Node] = []
        self.generators = 0
        self._handed_out: list[SizeExpr] = []  # symbols, as the program uses them

    def __enter__(self) -> Self:
        push_environment(self.environment)
        return self

    def __exit__(self, *exception: object) -> None:
        pop_environment()

    def settled(self) -> bool:
        """Whether all symbols still stand for what they did when they were handed out."""
        return all(self.environment.resolve(size) == size for size in self._handed_out)

    def register(self) -> str:
        """A register that nothing is known of yet."""
        self.symbols.append(f"s{len(self.symbols)}")
        return self.symbols[-1]

    def symbol(self, value: int) -> Size:
        """A register that stays symbolic; 0 and 1 are constants, which classes of calls tell."""
        name, hints = self.register(), self.environment.hints
        if value in (0, 1):
            hints[name] = value
            return value
        if name in hints:  # an earlier trace, which may have ended early
            return self._hand_out(self.environment.resolve(symbol(name, minimum=2)))
        return self._hand_out(self.environment.create_symbol(value, name, specialise=True))

    def free(self, value: int) -> Size:
        """A register without any knowledge: an offset, a stride."""
        name = self.register()
        if name in self.environment.hints:
            return self._hand_out(self.environment.resolve(symbol(name)))
        return self._hand_out(self.environment.create_symbol(value, name))

    def constant(self, value: int) -> int:
        """A register that must keep its value."""
        name = self.register()
        self.environment.hints[name] = value
        self.require(eq(symbol(name, minimum=min(value, 0)), value))
        return value

    def require(self, condition: Truth) -> None:
        """Makes a condition that holds a guard of the program."""
        self.environment.truth(condition)

    def input(self, shape: tuple[Size, ...], strides: tuple[Size, ...], dtype: str) -> Node:
        """The tensor in the next slot."""
        packed = attributes(slot=len(self.inputs), strides=strides)
        self.inputs.append(node("input", (), packed, dtype, shape))
        return self.inputs[-1]

    def scalar(self, dtype: str, slot: int | None = None) -> Node:
        """The number in this slot, or in the next one."""
        packed = attributes(slot=len(self.scalars) if slot is None else slot)
        self.scalars.append(node("scalar", (), packed, dtype, ()))
        return self.scalars[-1]

    def _hand_out(self, size: Size) -> Size:
        if isinstance(size, SizeExpr):
            self._handed_out.append(size)
        return size


OneTracer = TypeVar("OneTracer", bound=Tracer)
Result = TypeVar("Result")


def traced_until_settled(
    trace: Callable[[OneTracer | None], tuple[OneTracer, Result]],
) -> tuple[OneTracer, Result]:
    """Traces a program again while it finds sizes that must be equal but had different symbols.

    Args:
        trace: traces once, from what an earlier trace knows.

    Returns:
        The last trace and what it gave.
    """
    tracer, result = trace(None)
    for _ in range(1, MAX_TRACES):
        if tracer.settled():
            break
        tracer, result = trace(tracer)
    return tracer, result
