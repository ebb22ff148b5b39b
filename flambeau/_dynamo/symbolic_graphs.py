"""Graphs whose sizes are symbols, from what a recorder delayed on the sizes of one call.

The operators run again, on tensors without data whose sizes are symbols. That gives the graph, its
symbols as inputs, and the guards of the environment. Two calls whose graphs and guards have equal
texts share a compiled graph.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from flambeau import _core
from flambeau._dynamo.recorder import Call, Reference, Segment
from flambeau._dynamo.sizes import RECORDED, Leaf, SizeReads
from flambeau._subclasses.fake_tensor import FakeTensorMode
from flambeau._subclasses.symbolic_calls import Answering
from flambeau._subclasses.traced_tensor import geometry_of
from flambeau.fx import Graph, GraphModule, Tracer
from flambeau.fx.experimental._shape_env import ShapeEnv
from flambeau.fx.experimental._symbolic_nodes import SizeNodes
from flambeau.fx.experimental.symbolic_shapes import (
    ConstraintViolationError,
    DimDynamic,
    StatelessSymbolicContext,
)
from flambeau.fx.node import Node, map_arg
from flambeau.fx.proxy import Proxy
from flambeau.ir.size import SizeExpr
from flambeau.nn import Module
from flambeau.nn.parameter import Parameter
from flambeau.runtime.symbolic import SymInt, SymNode, is_symbolic, text_of

__all__ = ["Replay", "replayed"]

_log = logging.getLogger(__name__)

Value = Any  # an argument or a result of a call
Names = Mapping[int | str, str]
_Decisions = Sequence[tuple[Callable[..., Value], Sequence[Value], bool]]


def replayed(
    segment: Segment, reads: SizeReads, decisions: _Decisions, names: Names
) -> Iterator[Replay]:
    """A segment with symbols in place of sizes that vary.

    First with those that varied when a graph was compiled last, for which there may be one; then
    with those that this call shows to vary. Nothing where no size varies.

    Args:
        segment, reads, names: of `Replay`.
        decisions: of `Replay.run`.
    """
    before = None
    for noted in (True, False):
        signature = reads.signature(segment.inputs, noted)
        static = all(kind == "STATIC" for kinds in signature for kind in kinds)
        if static or signature == before:
            continue
        before, replay = signature, Replay(segment, reads, noted, names)
        try:
            replay.run(decisions)
        except ConstraintViolationError:
            raise
        except Exception as error:  # an operator without rules for symbols, say
            _log.debug("sizes stay numbers: %s", error)
            continue
        yield replay


class Unsymbolic(Exception):  # noqa: N818 - control flow between modules
    """A segment whose sizes stay those of its call."""


class Replay:
    """A segment that runs again, on symbols.

    Args:
        segment: the segment.
        reads: numbers of the call.
        noted: whether the sizes that were noted so far decide what varies; see `SizeReads.kinds`.
        names: of placeholders, by identity of a tensor, or source of an integer.

    Attributes:
        env: the environment of the symbols.
        graph: the graph, without output.
        slots: per placeholder whether it is a tensor, and the number of that input of the segment,
            or the value of the symbol.
    """

    def __init__(self, segment: Segment, reads: SizeReads, noted: bool, names: Names) -> None:
        self.segment, self._reads, self._noted, self._names = segment, reads, noted, names
        self.env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        self._tracer = Tracer()
        self._tracer.root, self.graph = Module(), Graph()
        self._tracer.graph = self.graph
        self._proxies: dict[int, Proxy] = {}
        self._sizes = SizeNodes(self._tracer, lambda x: self._proxies.get(id(x)))
        self._numbers: dict[int, Value] = {}
        self._symbols: dict[str, Value] = {}
        self._symbol_nodes: dict[str, Node] = {}
        self._inputs: list[Value] = []
        self._results: list[Value] = []
        self._nodes: list[Value] = []
        self._input_nodes: list[Value] = []
        self.slots: list[tuple[bool, int]] = []

    def run(self, decisions: _Decisions) -> None:
        """Makes the nodes, and the guards of comparisons.

        Raises:
            Unsymbolic: the graph cannot have symbols.
            ConstraintViolationError: a size is a number that was said to vary.
        """
        for tensor in self.segment.inputs:
            self._input(tensor)
        with _core.set_grad_enabled(self.segment.grad), Answering(self.mode):
            for call in self.segment.calls:
                self._call(call)
        for function, operands, answer in decisions:
            self._decide(function, operands, answer)
        self._sizes.drop_unused()
        self._drop_resolved()
        self._require_marked()

    # ---- inputs
    def _input(self, tensor: Value) -> None:
        kinds = self._reads.kinds(tensor, self._noted)
        varies = any(kind != "STATIC" for kind in kinds)
        source = self._reads.source(tensor)
        context = StatelessSymbolicContext(tuple([DimDynamic[kind] for kind in kinds]))
        fake = self.mode.from_tensor(
            tensor, static_shapes=not varies, source=source, symbolic_context=context
        )
        geometry = geometry_of(fake)
        for extent in (*geometry.sizes, *geometry.strides, geometry.offset):
            if isinstance(extent, SizeExpr) and extent.kind == "symbol":
                self._symbol(extent)
        name = self._names.get(id(tensor), f"L_tensor_{len(self._inputs)}_")
        kind = Parameter if isinstance(tensor, Parameter) else _core.Tensor
        node = self.graph.placeholder(name, type_expr=kind)
        node.meta["example_value"] = fake
        self.slots.append((True, len(self._inputs)))
        self._proxies[id(fake)] = Proxy(node, self._tracer)
        self._inputs.append(fake)
        self._input_nodes.append(node)

    def _symbol(self, symbol: SizeExpr, name: str = "") -> Value:
        """The number of a symbol, which is an input of the graph."""
        number = self._symbols.get(symbol.name)
        if number is None:
            number = self._symbols[symbol.name] = SymInt(SymNode(symbol, self.env, int))
            first = self._nodes[0] if self._nodes else None
            with contextlib.nullcontext() if first is None else self.graph.inserting_before(first):
                node = self.graph.placeholder(name or symbol.name, type_expr=SymInt)
            node.meta["example_value"] = number
            self._symbol_nodes[symbol.name] = node
            self._sizes.leaf(number, Proxy(node, self._tracer))
            self.slots.append((False, int(self.env.value(symbol))))
        return number

    # ---- calls
    def _call(self, call: Call) -> None:
        args, kwargs = self._mapped(call.args, self._value), self._mapped(call.kwargs, self._value)
        if call.kind == "call_method":
            result = getattr(args[0], call.target)(*args[1:], **kwargs)
        else:
            result = call.target(*args, **kwargs)
        if result is not None and not _is_structure(result):
            raise Unsymbolic(f"{call.target} returns a {type(result).__name__}")
        shown = [self._mapped(x, self._node) for x in (call.args, call.kwargs)]
        self._results.append(result)
        self._nodes.append(self.graph.create_node(call.kind, call.target, *shown, call.name))

    def _mapped(self, value: Value, change: Callable[[Value], Value]) -> Value:
        if type(value) in (tuple, list):
            return type(value)([self._mapped(item, change) for item in value])
        if type(value) is dict:
            return {key: self._mapped(item, change) for key, item in value.items()}
        if type(value) is slice:
            parts = (value.start, value.stop, value.step)
            return slice(*[self._mapped(part, change) for part in parts])
        if type(value).__name__ == "Subgraph":
            raise Unsymbolic("an operator takes a function")
        return change(value)

    def _value(self, value: Value) -> Value:
        if isinstance(value, Reference):
            return self._of(value)
        return self.number(value) if type(value) in RECORDED else value

    def _of(self, reference: Reference) -> Value:
        index = reference.index
        return self._results[index] if index >= 0 else self._inputs[~index]

    def _node(self, value: Value) -> Value:
        if isinstance(value, Reference):
            index = value.index
            return self._nodes[index] if index >= 0 else self._input_nodes[~index]
        if type(value) not in RECORDED:
            return value
        number = self.number(value)
        return self._sizes.proxy(number).node if is_symbolic(number) else number

    # ---- numbers
    def number(self, value: Value) -> Value:
        """The symbolic number of a recorded one; a number of Python where guards determine it."""
        if type(value) not in RECORDED:
            return value
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = self._resolved(value)
        single = is_symbolic(number) and isinstance(number.node.expr, (int, float))
        return number.node.expr if single else number

    def _resolved(self, value: Value) -> Value:
        if isinstance(value.origin, Leaf):
            return self._leaf(value.origin)
        function, operands = value.origin
        return function(*map(self.number, operands))

    def _leaf(self, leaf: Leaf) -> Value:
        tensor = self._read(leaf)
        if tensor is not None:
            return getattr(tensor, leaf.reader or "")(*leaf.dims)
        kind = self._reads.number_kind(leaf, self._noted)
        extent = self.env.create_symbol(leaf.value, leaf.source, DimDynamic[kind])
        name = self._names.get(leaf.source, "")
        return self._symbol(extent, name) if isinstance(extent, SizeExpr) else extent

    def _read(self, leaf: Leaf) -> Value:
        """The tensor that a number was read of, where this segment has it."""
        if leaf.segment is self.segment:
            return self._of(leaf.reference)
        tensor = None if leaf.tensor is None else leaf.tensor()
        if tensor is None:
            return None
        for number, operand in enumerate(self.segment.inputs):
            if operand is tensor:
                return self._inputs[number]
        return None

    def _decide(self, function: Value, operands: Sequence[Value], answer: bool) -> None:
        if not all(map(self._is_known, operands)):
            return
        if bool(function(*map(self.number, operands))) != answer:
            raise Unsymbolic("a comparison of sizes has another result")

    def _is_known(self, value: Value) -> bool:
        """Whether a number depends on what the graph has."""
        if type(value) not in RECORDED or id(value) in self._numbers:
            return True
        if isinstance(value.origin, Leaf):
            return value.origin.reader is None or self._read(value.origin) is not None
        return all(map(self._is_known, value.origin[1]))

    def _drop_resolved(self) -> None:
        """Takes out symbols that guards give another value: a number, or another symbol."""
        for number, (name, symbol) in reversed(list(enumerate(self._symbols.items()))):
            other = self.env.resolve(symbol.node._expression)
            if isinstance(other, SizeExpr):
                if other.kind != "symbol" or other.name == name:
                    continue
                other = self._symbol_nodes[other.name]
            node = self._symbol_nodes.pop(name)
            for user in list(node.users):
                user.args = map_arg(user.args, lambda x, a=node, b=other: b if x is a else x)
                user.kwargs = map_arg(user.kwargs, lambda x, a=node, b=other: b if x is a else x)
            self.graph.erase_node(node)
            del self._symbols[name]
            numbers = [k for k, (is_tensor, _) in enumerate(self.slots) if not is_tensor]
            del self.slots[numbers[number]]

    def _require_marked(self) -> None:
        """Raises where a size that `mark_dynamic` names is a number."""
        for tensor, fake in zip(self.segment.inputs, self._inputs, strict=True):
            for dim in getattr(tensor, "_dynamo_dynamic_indices", ()):
                extent = self.env.resolve(geometry_of(fake).sizes[dim])
                if isinstance(extent, int) and extent > 1:
                    raise ConstraintViolationError(
                        f"Constraints violated! dimension {dim} of {self._reads.source(tensor)!r} "
                        f"was marked as dynamic, but the function needs it to be {extent}\n"
                        "hint: mark_static, or no code that needs this size"
                    )

    # ---- results
    def key(self) -> tuple[Value, ...]:
        """Equal for graphs that do the same for the same sizes, and have the same guards."""
        lines = []
        for node in self.graph.nodes:
            options = {name: node.kwargs[name] for name in sorted(node.kwargs)}
            lines.append((node.op, node.target, repr(node.args), repr(options)))
        shapes = [tuple(map(text_of, self._parts(x))) for x in self._inputs]
        guards = [*map(str, self.env.guards), *map(str, self.env._definitions.items())]
        return tuple(lines), tuple(shapes), tuple(sorted(guards))

    def _parts(self, fake: Value) -> list[Value]:
        geometry = geometry_of(fake)
        parts = (*geometry.sizes, *geometry.strides, geometry.offset)
        return [self.env.resolve(part) for part in parts]

    def holds_for(self, other: Replay) -> bool:
        """Whether the guards of this graph, those of its backend included, hold in another call.

        Args:
            other: has an equal key.
        """
        values = other.env.environment.hints
        return all(self.env.evaluated(guard.expr, values) for guard in self.env.guards)

    def module(self, outputs: Sequence[int]) -> GraphModule:
        """The graph as a module.

        Args:
            outputs: numbers of the calls whose results it gives.
        """
        self.graph.output(tuple([self._nodes[index] for index in outputs]))
        return GraphModule(self._tracer.root, self.graph)

    def finish(self) -> None:
        """Drops what only the recorded run needed: tensors of the call among it."""
        self.segment = self._reads = None  # type: ignore[assignment]
        self._numbers.clear()
        self._results.clear()

    def example_inputs(self) -> list[Value]:
        """Values of the placeholders: symbolic numbers, and the tensors of the call."""
        numbers = iter(self._symbols.values())
        return [
            self.segment.inputs[value] if is_tensor else next(numbers)
            for is_tensor, value in self.slots
        ]


def _is_structure(result: Value) -> bool:
    """Whether a result is a tensor, or a list of these and others."""
    return isinstance(result, (_core.Tensor, tuple, list))
