"""From the description of a native call to the nodes an op's body works on.

A call's sizes, strides, offsets and run-time integers become symbols, numbered in the order of the
native call's registers (docs/design.md § 6). Sizes 0 and 1 are constants (the native class key tells
them apart); sizes that are equal now share a symbol, held by a guard.
"""

from __future__ import annotations

from typing import Any

from flambeau.core.layout import contiguous_strides, dense_strides
from flambeau.ir.environment import pop_environment, push_environment
from flambeau.ir.node import Node, attributes, node
from flambeau.ir.size import Size, symbol
from flambeau.ir.size_program import ShapeEnvironment, eq, le

_SCALAR_DTYPES = {bool: "bool", int: "i64", float: "f64", complex: "c128"}


class Trace:
    """The traced arguments of one call; use as a context manager while a body runs.

    Attributes:
        environment: symbols, hints and guards.
        arguments: per schema argument: node, list of nodes, number, Size or constant.
        inputs: `input` nodes per tensor slot.
        scalars: `scalar` nodes per scalar slot.
        symbols: names in register order.
        offsets: storage offset per tensor slot.
        requires_grad: per tensor slot.
    """

    def __init__(self, call: tuple[Any, ...]) -> None:
        self.environment = ShapeEnvironment()
        self.symbols: list[str] = []
        self.inputs: list[Node] = []
        self.scalars: list[Node] = []
        self.offsets: dict[int, Size] = {}
        self.requires_grad: list[bool] = []
        self.generators = 0
        self._shared: dict[int, Size] = {}
        integers = [entry for entry in call if _is_integer_entry(entry)]
        self._call = call
        push_environment(self.environment)
        try:
            tensors = [self._tensors(entry) for entry in call]
            sizes = {id(entry): self._integers(entry) for entry in integers}
            self.arguments = [
                sizes[id(entry)] if _is_integer_entry(entry) else self._argument(entry, found)
                for entry, found in zip(call, tensors, strict=True)
            ]
        finally:
            pop_environment()

    def __enter__(self) -> Trace:
        push_environment(self.environment)
        return self

    def __exit__(self, *exception: object) -> None:
        pop_environment()

    def _register(self, hint: int, specialise: bool) -> Size:
        """A new register; equal sizes are unified under a guard."""
        name = f"s{len(self.symbols)}"
        self.symbols.append(name)
        return self.environment.create_symbol(hint, name, specialise=specialise)

    def _size(self, hint: int) -> Size:
        created = self._register(hint, specialise=True)
        if isinstance(created, int):
            return created
        if hint not in self._shared:
            self._shared[hint] = created
            return created
        shared = self._shared[hint]
        self.environment.truth(eq(created, shared))
        return shared

    def _tensors(self, entry: Any) -> Any:
        if _is_tensor_entry(entry):
            return self._tensor(entry)
        if isinstance(entry, list):
            return [self._tensors(item) for item in entry]
        return None

    def _tensor(self, entry: tuple[Any, ...]) -> Node:
        _, dtype, sizes, strides, offset, requires_grad, layout, _wrapped, _device = entry
        shape = tuple(self._size(s) for s in sizes)
        if layout == "strided":
            steps = tuple(
                self._register(s, specialise=False) if s > 1 else self._constant(s) for s in strides
            )
        else:
            order = range(len(sizes)) if layout == "contiguous" else layout
            for _ in strides:
                self._skip()
            steps = (
                contiguous_strides(shape)
                if layout == "contiguous"
                else dense_strides(shape, list(order))
            )
        slot = len(self.inputs)
        self.offsets[slot] = self._register(offset, specialise=False)
        self.requires_grad.append(requires_grad)
        found = node("input", (), attributes(slot=slot, strides=steps), dtype, shape)
        self.inputs.append(found)
        return found

    def _skip(self) -> None:
        self.symbols.append(f"s{len(self.symbols)}")

    def _constant(self, value: int) -> int:
        self._skip()
        return value

    def _integers(self, entry: Any) -> Any:
        if isinstance(entry, list):
            return tuple(self._integer(item) for item in entry)
        return self._integer(entry)

    def _integer(self, entry: tuple[Any, ...]) -> Size:
        value = entry[2]
        name = f"s{len(self.symbols)}"
        self.symbols.append(name)
        if value <= 1:
            self.environment.hints[name] = value
            self.environment.truth(eq(symbol(name, minimum=min(value, 0)), value))
            return int(value)
        created = self.environment.create_symbol(value, name, specialise=True)
        self.environment.truth(le(2, symbol(name)))
        if value in self._shared and not isinstance(created, int):
            self.environment.truth(eq(created, self._shared[value]))
            return self._shared[value]
        self._shared.setdefault(value, created)
        return created

    def _argument(self, entry: Any, tensors: Any) -> Any:
        if tensors is not None:
            return tensors
        if isinstance(entry, tuple) and entry and entry[0] == "scalar":
            _, slot, kind, _value = entry
            found = node("scalar", (), attributes(slot=slot), _SCALAR_DTYPES[kind], ())
            self.scalars.append(found)
            return found
        if isinstance(entry, tuple) and entry and entry[0] == "generator":
            self.generators += 1
        return entry


def _is_tensor_entry(entry: Any) -> bool:
    return isinstance(entry, tuple) and len(entry) > 0 and entry[0] == "tensor"


def _is_integer_entry(entry: Any) -> bool:
    if isinstance(entry, list):
        return len(entry) > 0 and _is_integer_entry(entry[0])
    return isinstance(entry, tuple) and len(entry) > 0 and entry[0] == "symint"
