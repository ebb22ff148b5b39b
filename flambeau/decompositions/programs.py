"""The program of a call of an operator, at the sizes of that call.

Decompositions are read from it: one definition of an operator serves its kernels and its
decompositions. The core describes the call, the operator's source traces it, and its sizes and
numbers become constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flambeau import _core, prims
from flambeau._core import ScalarArgument, TensorArgument
from flambeau.autograd.transforms.programs import Program, program_of
from flambeau.derivation.replay import replay
from flambeau.driver.calls import Call, entries, numbers_of
from flambeau.driver.errors import first_device
from flambeau.driver.specify import ABSENT, Specification
from flambeau.ir.lock import late
from flambeau.ir.node import Graph, GraphOutput, Node, node, topological
from flambeau.ir.size import substitute
from flambeau.prims.record import record_of
from flambeau.prims.simplification import full_like
from flambeau.runtime.symbolic import has_symbols
from flambeau.utils._pytree import tree_leaves

Value = Any  # an argument or a result of an operator

__all__ = ["CallProgram", "Result", "described", "program_of_call"]

_NUMBERS = (bool, int, float, complex)


class Result(NamedTuple):
    """One result of a program.

    Attributes:
        node: its value.
        strides: of the result; None: it is an operand itself.
        alias: slot of the tensor whose memory it shares, or None.
        target: slot of the tensor that it overwrites, or None.
        offset: in the memory of `alias`.
    """

    node: Node
    strides: tuple[int, ...] | None
    alias: int | None
    target: int | None
    offset: int


class CallProgram(NamedTuple):
    """The program of one call.

    Attributes:
        results: in order; None for those that the call has not.
        tensors: the call's tensors by slot.
        returns: how the results are given: "single", "tuple", "list", "nothing", "named".
        structure: the type of results with names, if there is one.
        device: where new results go.
        generator: the generator of its draws, or None.
    """

    results: tuple[Result | None, ...]
    tensors: tuple[Value, ...]
    returns: str
    structure: Value
    device: Value
    generator: Value

    def structured(self, values: Sequence[Value]) -> Value:
        """The results as the operator gives them."""
        if self.returns == "single":
            return values[0]
        if self.returns == "nothing":
            return None
        if self.returns == "named" and self.structure is not None:
            return self.structure()(tuple(values))
        return list(values) if self.returns == "list" else tuple(values)


class _DescribedError(Exception):
    """Ends a call whose description is all that was needed."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call


def _describe(call: Call) -> Value:
    raise _DescribedError(call)


def described(program: Program, values: Sequence[Value]) -> Call:
    """The core's description of a call."""
    ops: dict[int, Value] = program.op.__dict__.setdefault("_describing", {})
    op = ops.get(program.number)
    if op is None:
        arguments = tuple(a._replace(keyword_only=False) for a in program.arguments)
        flags = tuple(flag for flag in program.flags if not flag.startswith("list:"))
        op = _core.Op(program.op.__name__, [(arguments, _describe, flags)])
        ops[program.number] = op
    dispatch = late("flambeau.utils._python_dispatch")
    below = late("flambeau._subclasses.fake_calls").below
    with dispatch._disable_current_modes(), below(), _core.no_grad():
        try:
            op(*values)
        except _DescribedError as error:
            return error.call
    raise RuntimeError(
        f"[{program.op.__name__}] a call has no description\nhint: report this as an error"
    )


def program_of_call(
    op: Value, args: Sequence[Value], kwargs: dict[str, Value]
) -> CallProgram | None:
    """The program of a call; None where the operator has none, or `out=` or a symbol is given.

    Args:
        op: a native operator.
        args, kwargs: the call's arguments.
    """
    if has_symbols(tree_leaves([list(args), dict(kwargs)])):
        return None  # programs have numbers
    number, values, out = op.bind(args, kwargs)
    program = program_of(op, number)
    if out is not None or program.host or not hasattr(program.build, "__self__"):
        return None
    call = described(program, values)
    source = program.source
    with _core.no_grad():
        specification = source.specify(call)
    results = _results(specification, call)
    tensors = tuple(x for x in tree_leaves(list(values)) if isinstance(x, _core.Tensor))
    generators = [x for x in values if isinstance(x, _core.Generator)]
    placed = [o.device for o in specification.spec.outputs if o.device is not None]
    return CallProgram(
        results,
        tensors,
        specification.spec.returns,
        source.structure,
        _core.device(placed[0]) if placed else first_device(call),
        generators[0] if generators else None,
    )


def _results(specification: Specification, call: Call) -> tuple[Result | None, ...]:
    graph = specification.graph
    sizes = dict(zip(graph.symbols, numbers_of(call), strict=False))
    inputs = _inputs(graph, call)
    numbers = sorted(entries(call, ScalarArgument), key=lambda entry: entry.slot)
    scalars = [
        prims.full(entry.value, (), leaf.dtype)
        for entry, leaf in zip(numbers, graph.scalars, strict=True)
    ]
    outputs = graph.outputs[: graph.visible]
    replayed = replay(graph.with_outputs(outputs), inputs, scalars, sizes)
    folded = folded_constants([x for x in replayed if x is not None])
    return tuple(
        None if value is None or output.node is ABSENT else _result(output, folded[value], sizes)
        for output, value in zip(outputs, replayed, strict=True)
    )


def _inputs(graph: Graph, call: Call) -> list[Node | None]:
    """Leaves of the call's sizes."""
    inputs: list[Node | None] = []
    for slot, tensor in enumerate(entries(call, TensorArgument)):
        inputs.append(prims.input_node(slot, tensor.dtype, tensor.sizes, tensor.strides))
    return inputs


def _result(output: GraphOutput, value: Node, sizes: dict[str, Value]) -> Result:
    strides = output.strides
    numbers = None if strides is None else tuple(int(substitute(s, sizes)) for s in strides)  # type: ignore[arg-type]
    offset = int(substitute(output.offset, sizes))  # type: ignore[arg-type]
    return Result(value, numbers, output.alias, output.target, offset)


# ------------------------------------------------------------------------------ constants
def folded_constants(outputs: Sequence[Node]) -> dict[Node, Node]:
    """Nodes without marks for derivatives, and with casts of numbers made; by the old node."""
    memo: dict[Node, Node] = {}
    for current in topological(outputs):
        operands = tuple(memo[x] for x in current.inputs)
        memo[current] = _folded(current, operands)
    return memo


def _folded(current: Node, operands: tuple[Node, ...]) -> Node:
    if record_of(current).kind == "annotation":
        return operands[0]
    fold = _FOLDS.get(current.op)
    if fold is not None and all(record_of(x).constant for x in operands):
        constant = fold(current, operands)
        if constant is not None:
            return constant
    if operands == current.inputs:
        return current
    return node(current.op, operands, current.attributes, current.dtype, current.shape)


def _spread_constant(current: Node, operands: tuple[Node, ...]) -> Node:
    return full_like(operands[0].attribute("value"), current)


def _cast_constant(current: Node, operands: tuple[Node, ...]) -> Node | None:
    number = _converted(operands[0], current.dtype)
    return None if number is None else full_like(number, current)


# What a primitive of constants is; None: it is computed.
_FOLDS: dict[str, Callable[[Node, tuple[Node, ...]], Node | None]] = {
    "size": lambda current, _: prims.full(int(current.attribute("value")), (), "i64"),
    "broadcast": _spread_constant,
    "reshape": _spread_constant,
    "cast": _cast_constant,
}


def _converted(constant: Node, dtype: str) -> Value:
    """A constant's number in another dtype, where one rounding of the number gives it."""
    number, source = constant.attribute("value"), constant.dtype
    if dtype == "bool":
        return None if number != number else bool(number)
    if isinstance(number, (bool, int)) and abs(number) < 1 << 24:
        small = 0 <= number < 128
        return number if dtype[0] in "fbc" or dtype in ("i32", "i64") or small else None
    if isinstance(number, float) and source == "f64" and dtype in ("f32", "f16", "bf16"):
        return number
    return None
