"""From the description of a native call to the nodes an op's body works on.

A call's sizes, strides, offsets and run-time integers become symbols, numbered in the order of the
native call's registers (docs/design.md § 6). Sizes 0 and 1 are constants: the native class key
tells them apart. Two sizes share a symbol only where the body needs them equal (a guard holds it),
so a plan stays as general as its op: a first trace finds the equalities, a second one uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau._core import GeneratorArgument, IntegerArgument, ScalarArgument, TensorArgument
from flambeau.ir.environment import pop_environment, push_environment
from flambeau.ir.lock import late
from flambeau.ir.node import Node, attributes, node
from flambeau.ir.size import Size, symbol
from flambeau.ir.size_program import ShapeEnvironment, eq, le
from flambeau.language.layout import argument_offsets, contiguous_strides, dense_strides

_SCALAR_DTYPES = {bool: "bool", int: "i64", float: "f64", complex: "c128"}


class Trace:
    """The traced arguments of one call; use as a context manager while a body runs.

    Args:
        call: description by the native core, docs/design.md § 7.
        aligned: unify sizes that stand at equal places from the right (broadcasting ops).
        first: an earlier trace of the same call whose equalities hold from the start.

    Attributes:
        environment: symbols, hints and guards.
        arguments: per schema argument: node, list of nodes, number, Size or constant.
        inputs: `input` nodes per tensor slot.
        scalars: `scalar` nodes per scalar slot.
        symbols: names in register order.
        offsets: storage offset per tensor slot.
        requires_grad: per tensor slot.
    """

    def __init__(
        self, call: tuple[Any, ...], aligned: bool = False, first: Trace | None = None
    ) -> None:
        self.environment: ShapeEnvironment = first.environment if first else ShapeEnvironment()
        self.symbols: list[str] = []
        self.inputs: list[Node] = []
        self.scalars: list[Node] = []
        self.offsets: dict[int, Size] = {}
        self.requires_grad: list[bool] = []
        self.generators = 0
        self._aligned: dict[tuple[int, int], Size] | None = {} if aligned else None
        self._replaced: set[str] = set()  # symbols that no node ever saw
        self._again = first is not None
        push_environment(self.environment)
        try:
            tensors = [self._tensors(entry) for entry in call]
            integers = [self._integers(entry) for entry in call]
            self.arguments = [
                self._argument(entry, nodes, sizes)
                for entry, nodes, sizes in zip(call, tensors, integers, strict=True)
            ]
        finally:
            pop_environment()

    def __enter__(self) -> Trace:
        push_environment(self.environment)
        self._outer = argument_offsets.set(self.offsets)
        return self

    def __exit__(self, *exception: object) -> None:
        argument_offsets.reset(self._outer)
        pop_environment()

    @property
    def unified(self) -> bool:
        """Whether the body found sizes that must be equal but had different symbols."""
        env = self.environment
        return not self._again and any(
            env.resolve(symbol(n, minimum=m)) is not symbol(n, minimum=m)
            for n in self.symbols
            if n in env.hints and n not in self._replaced
            for m in (0, 2)
        )

    def _symbol(self, hint: int, specialise: bool) -> Size:
        """A new register of the call."""
        name = f"s{len(self.symbols)}"
        self.symbols.append(name)
        if self._again:
            if specialise and hint in (0, 1):
                return hint
            fresh = symbol(name, minimum=2 if specialise else 0)
            return self.environment.resolve(fresh)
        if specialise and hint in (0, 1):
            self.environment.hints[name] = hint
            return hint
        return self.environment.create_symbol(hint, name, specialise=specialise)

    def _size(self, hint: int, place: int) -> Size:
        created = self._symbol(hint, specialise=True)
        if self._aligned is None or isinstance(created, int):
            return created
        shared = self._aligned.setdefault((place, hint), created)
        if shared is not created:
            self.environment.learn(eq(created, shared))
            self._replaced.add(self.symbols[-1])
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
        slot = len(self.inputs)
        self.offsets[slot] = self._symbol(entry.offset, specialise=False)
        self.requires_grad.append(entry.requires_grad)
        leaf = node("input", (), attributes(slot=slot, strides=steps), entry.dtype, shape)
        self.inputs.append(leaf)
        return leaf

    def _strides(
        self, shape: tuple[Size, ...], strides: Sequence[int], layout: str | tuple[int, ...]
    ) -> tuple[Size, ...]:
        if layout == "strided":
            return tuple(
                self._symbol(s, specialise=False) if s > 1 else self._skipped(s) for s in strides
            )
        for _ in strides:
            self._skipped(0)
        if layout == "contiguous":
            return contiguous_strides(shape)
        assert isinstance(layout, tuple)
        return dense_strides(shape, layout)

    def _skipped(self, value: int) -> int:
        self.symbols.append(f"s{len(self.symbols)}")
        return value

    def _integers(self, entry: Any) -> Any:
        if type(entry) is IntegerArgument:
            return self._integer(entry.value)
        if type(entry) is list and entry and type(entry[0]) is IntegerArgument:
            return tuple(self._integer(item.value) for item in entry)
        return None

    def _integer(self, value: int) -> Size:
        if value > 1:
            created = self._symbol(value, specialise=True)
            if not self._again:
                self.environment.truth(le(2, symbol(self.symbols[-1])))
            return created
        name = f"s{len(self.symbols)}"
        self.symbols.append(name)
        if not self._again:
            self.environment.hints[name] = value
            self.environment.truth(eq(symbol(name, minimum=min(value, 0)), value))
        return value

    def _argument(self, entry: Any, tensors: Any, integers: Any) -> Any:
        if tensors is not None:
            return tensors
        if integers is not None:
            return integers
        if type(entry) is ScalarArgument:
            packed = attributes(slot=entry.slot)
            self.scalars.append(node("scalar", (), packed, _SCALAR_DTYPES[entry.type], ()))
            return self.scalars[-1]
        if type(entry) is GeneratorArgument:
            self.generators += 1
            return entry.slot
        return entry


def traced(call: tuple[Any, ...], aligned: bool, run: Callable[[Trace], Any]) -> Any:
    """Runs `run(trace)`; a second time when the first one found sizes that must be equal."""
    with late("flambeau.core.warned").held() as told:
        with Trace(call, aligned) as trace:
            result = run(trace)
        if not trace.unified:
            return result
        told.clear()
    with Trace(call, False, trace) as again:
        return run(again)
