"""Frozen programs: what depends on weights alone is computed once (`config.freezing`).

A stream that is recorded without gradients by a function compiled with `freezing` has constants:
parameters, and buffers of the modules that the function reaches. Its Graph is split in two. The
constant part computes values from constants; it runs at the first call, and again when a constant
was written to or is another tensor (`native/plan/constants.cpp`). The rest reads those values
beside the tensors of the call, and is what runs at every call. Before that, batch norms after
convolutions and linear layers become part of their weights (`norm_folding.py`).

Splitting changes no bits: constant values are computed by the same primitives. Folding does.

With `freezing_discard_parameters` every constant that a call reads is a value, too, so that the
program owns all that it needs. After a call that computed the values the modules get parameters
without memory in place of theirs. Recording such a parameter is possible, reading it raises.
"""

from __future__ import annotations

import functools
import itertools
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from flambeau import _core, prims
from flambeau._core import Constants, ExternalTensor
from flambeau.capture.norm_folding import fold_norms, rebuilt
from flambeau.driver.planner import graph_op
from flambeau.ir.graph_grammar import symbols_of
from flambeau.ir.lock import importing, late
from flambeau.ir.node import ITEM_SIZE, Graph, GraphOutput, Node, topological
from flambeau.ir.plan import BackwardSpec, ConstantsSpec, PlanSpec
from flambeau.ir.size import SizeExpr, prod
from flambeau.prims.record import record_of

if TYPE_CHECKING:
    from flambeau._core import Tensor
    from flambeau.driver.specify import Frozen
    from flambeau.nn import Module

Function = Callable[..., object]

_NAME = "constants"
_GROWTH = 4  # a constant that is larger than what it is computed from, by more, is not stored
_SMALL = 1 << 14  # bytes that it may have in any case


# ------------------------------------------------------------------------------- calls


class _Scope(threading.local):
    """Per thread: the frozen function that is called, and the constants of its programs."""

    def __init__(self) -> None:
        self.function: Function | None = None
        self.programs: _Programs | None = None


class _Programs:
    """The constants of a function's programs: forgotten when the function dies."""

    def __init__(self) -> None:
        self._constants: list[Constants] = []
        self._owner = next(_owners)
        self.computed = False  # since `discard`

    def add(self, constants: Constants) -> None:
        """Notes what a program remembers."""
        self.computed = True
        if not any(each is constants for each in self._constants):
            self._constants.append(constants)

    def clear(self) -> None:
        """Forgets the values of all of them."""
        for constants in self._constants:
            constants.clear(self._owner)

    def discard(self, function: Function) -> None:
        """Takes the parameters and buffers that programs own from the function's modules."""
        self.computed = False
        replaced: dict[int, object] = {}
        for module in {id(x): x for top in _modules(function) for x in top.modules()}.values():
            for tensors in (module._parameters, module._buffers):
                for name, tensor in tensors.items():
                    if tensor is not None and id(tensor) not in replaced:
                        replaced[id(tensor)] = self._discarded(tensor)
                    if tensor is not None:
                        tensors[name] = replaced[id(tensor)]

    def _discarded(self, tensor: Tensor) -> Tensor:
        """A tensor without memory that programs take for one they own; else the tensor itself."""
        parameter = late("flambeau.nn").Parameter
        empty = _core.discarded_like(tensor)
        if isinstance(tensor, parameter):
            empty = parameter(empty, tensor.requires_grad)
        adopted = [x.adopt(tensor, empty, self._owner) for x in self._constants]
        return empty if any(adopted) else tensor


_owners = itertools.count(1)
_scope = _Scope()


def frozen_calls(function: Function, recorded: Function, discards: bool) -> Function:
    """A function whose calls record frozen streams.

    Args:
        function: the user's function, which says what is constant.
        recorded: records a call of it.
        discards: whether modules lose the parameters that programs own.
    """
    programs = _Programs()

    @functools.wraps(recorded)
    def call(*args: object, **kwargs: object) -> object:
        before = _scope.function, _scope.programs
        _scope.function, _scope.programs = function, programs
        try:
            result = recorded(*args, **kwargs)
        finally:
            _scope.function, _scope.programs = before
        if discards and programs.computed:
            programs.discard(function)
        return result

    weakref.finalize(call, programs.clear)
    return call


def constant_slots(externals: Sequence[ExternalTensor], written: Iterable[int]) -> list[int]:
    """The external tensors of a frozen stream that are constants.

    Args:
        externals: of the stream.
        written: those that it updates.
    """
    parameter = late("flambeau.nn").Parameter
    buffers = {id(x) for module in _modules(_scope.function) for x in module.buffers()}
    updated = set(written)
    return [
        slot
        for slot, external in enumerate(externals)
        if slot not in updated
        and (isinstance(external.source, parameter) or id(external.source) in buffers)
        and _core.can_freeze(external.source)
    ]


def _modules(function: object) -> Iterator[Module]:
    """The modules that a function is a method of, or that it names."""
    module = late("flambeau.nn").Module
    for value in (function, *_reached(function)):
        if isinstance(value, module):
            yield value


def _reached(function: object) -> Iterator[object]:
    if isinstance(function, functools.partial):
        yield from (function.func, *function.args, *function.keywords.values())
        function = function.func
    if isinstance(function, types.MethodType):
        yield function.__self__
        function = function.__func__
    if isinstance(function, types.FunctionType):
        cells = function.__closure__ or ()
        yield from (cell.cell_contents for cell in cells if cell != types.CellType())
        names = function.__code__.co_names
        yield from (function.__globals__[n] for n in names if n in function.__globals__)
        yield from function.__defaults__ or ()


# ------------------------------------------------------------------------------- programs


def freeze(graph: Graph, slots: Sequence[int], discards: bool = False) -> Frozen:
    """Splits a program. Called in the environment of its trace.

    Args:
        graph: the program.
        slots: of the tensors that are constants.
        discards: whether constants that a call reads are values, too.
    """
    fixed = {x for slot in slots if (x := graph.inputs[slot]) is not None}
    graph, values = fold_norms(graph, fixed)
    graph = _reading(graph, values)
    others = _constant_values(graph, fixed, discards)
    graph = _reading(graph, others)
    values += others
    graph.notes["weights"] = [*slots, *range(len(graph.inputs) - len(values), len(graph.inputs))]
    with importing:
        from flambeau.driver.specify import Frozen  # a stored plan is used without it
    return Frozen(graph, *_constant_part(values, slots))


def _reading(graph: Graph, values: Sequence[Node]) -> Graph:
    """The program with further inputs in place of values."""
    first, stand_ins = len(graph.inputs), dict[Node, Node]()
    for slot, x in enumerate(values, first):
        strides = x.attribute("strides") if x.is_input else prims.contiguous_strides(x.shape)
        stand_ins[x] = prims.input_node(slot, x.dtype, x.shape, strides)
    program = rebuilt(graph, lambda x, _: stand_ins.get(x))
    return Graph(
        program.symbols, (*graph.inputs, *stand_ins.values()), program.scalars, program.outputs,
        program.visible, program.guards, program.generators, program.name, dict(program.notes),
    )  # fmt: skip


def _constant_values(graph: Graph, fixed: set[Node], discards: bool) -> list[Node]:
    """The values of constants that the other part reads, without views of them. Constants
    themselves are among them if they are discarded."""
    sizes: dict[Node, int] = {}  # of the constants behind a value, in bytes
    nodes = graph.nodes()
    for current in nodes:
        if _is_constant(current, fixed, sizes):
            behind = sum(_bytes(x) for x in topological([current]) if x in fixed)
            sizes[current] = behind
    chosen: dict[Node, None] = {}
    read = [x for current in nodes if current not in sizes for x in current.inputs]
    for value in (*read, *(o.node for o in graph.outputs)):
        if value not in sizes:
            continue
        origin = _origin(value)
        if discards if origin in fixed else sizes[origin]:
            chosen[origin] = None
    return list(chosen)


def _is_constant(current: Node, fixed: set[Node], constants: dict[Node, int]) -> bool:
    if current in fixed:
        return True
    record = record_of(current)
    if record.kind in ("none", "random", "check", "annotation") or record.raises:
        return False
    if symbols_of(current) or not all(x in constants for x in current.inputs):
        return False
    behind = sum(constants[x] for x in current.inputs)
    views = record.kind == "shape" and not record.concatenates
    return views or _bytes(current) <= max(_GROWTH * behind, _SMALL)


def _origin(value: Node) -> Node:
    """The computed value that a value shows in another shape."""
    while len(value.inputs) == 1 and record_of(value).kind == "shape":
        value = value.inputs[0]
    return value


def _bytes(value: Node) -> int:
    elements = prod(value.shape)
    return 0 if isinstance(elements, SizeExpr) else elements * ITEM_SIZE[value.dtype]


def _constant_part(values: Sequence[Node], slots: Sequence[int]) -> tuple[Graph, ConstantsSpec]:
    """The program of values, and what it reads."""
    tensors = [x for x in topological(values) if x.is_input]
    numbers = [x for x in topological(values) if x.is_scalar]
    used = [x.attribute("slot") for x in tensors]
    replacements: dict[Node, Node] = {}
    for k, x in enumerate(tensors):
        replacements[x] = prims.input_node(k, x.dtype, x.shape, x.attribute("strides"))
    for k, x in enumerate(numbers):
        replacements[x] = prims.scalar_node(k, x.dtype)
    outputs = tuple(GraphOutput(x, prims.contiguous_strides(x.shape)) for x in values)
    graph = Graph(
        symbols=(),
        inputs=tuple(replacements[x] for x in tensors),
        scalars=tuple(replacements[x] for x in numbers),
        outputs=outputs,
        visible=len(outputs),
        name=_NAME,
    )
    unread = [slot for slot in slots if slot not in used]
    positions = [x.attribute("slot") for x in numbers]
    spec = ConstantsSpec([*used, *unread], positions, len(used))
    return rebuilt(graph, lambda x, _: replacements.get(x)), spec


def constants_of(plan: PlanSpec, graph: Callable[[], Graph]) -> Constants | None:
    """The `_core.Constants` of a plan; None if it is not frozen.

    Args:
        plan: its description.
        graph: gives the constant part, which may not have been traced yet.
    """
    spec = plan.constants
    if spec is None:
        return None
    run = _Computing(spec, graph)
    run.constants = Constants(run, tuple(spec.slots), tuple(spec.numbers), plan.computed)
    return run.constants


class _Computing:
    """Runs the constant part. Called by the core, in a call of the frozen program."""

    def __init__(self, spec: ConstantsSpec, graph: Callable[[], Graph]) -> None:
        signature = spec.tensors, (), len(spec.numbers)
        what = BackwardSpec(
            _NAME, _NAME, signature, targets=[], edges=0, arguments=[],
            fingerprint=spec.fingerprint,
        )  # fmt: skip
        self._tensors = spec.tensors
        self._op = graph_op(what, graph)
        self.constants: Constants | None = None

    def __call__(
        self, tensors: tuple[object, ...], numbers: tuple[float, ...]
    ) -> tuple[object, ...]:
        if _scope.programs is not None and self.constants is not None:
            _scope.programs.add(self.constants)
        suspended = _core.record_suspend()
        try:
            with _core.no_grad():
                results = self._op(*tensors[: self._tensors], *numbers)
        finally:
            _core.record_resume(suspended)
        return tuple(results)
