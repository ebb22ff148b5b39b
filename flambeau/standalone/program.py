"""An exported program as one Graph of primitives, whose sizes are the program's own symbols.

The graph of an exported program runs once more on tensors without data. Each operator's own
program, at the symbols of its operands, is replayed on what its operands were computed by: no size
is guessed from an example, and kernels are those that the operators have in eager mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flambeau import _core, prims
from flambeau._core import ScalarArgument, Tensor
from flambeau._higher_order_ops.operators import HigherOrderOperator
from flambeau._subclasses import fake_calls, symbolic_calls
from flambeau._subclasses.fake_tensor import FakeTensor
from flambeau._subclasses.traced_tensor import geometry_of
from flambeau.autograd.transforms.programs import program_of
from flambeau.decompositions.programs import described
from flambeau.derivation.replay import replay
from flambeau.driver.calls import entries
from flambeau.driver.specify import ABSENT
from flambeau.export._decomposed import inputs_of
from flambeau.export._environment import DimEnvironment
from flambeau.export.graph_signature import ConstantArgument, InputKind, OutputKind
from flambeau.fx import Interpreter
from flambeau.ir.dtypes import ROWS
from flambeau.ir.environment import pop_environment, push_environment
from flambeau.ir.failure import failure
from flambeau.ir.node import Graph, GraphOutput, Node
from flambeau.ir.size import Size, SizeExpr, estimate, free_symbols
from flambeau.ir.size_program import Condition, ShapeEnvironment, le
from flambeau.language.layout import contiguous_strides
from flambeau.prims.create import input_node, scalar_node
from flambeau.prims.record import record_of
from flambeau.runtime.symbolic import SymInt, is_symbolic, raised
from flambeau.utils import _pytree as pytree

__all__ = ["IR_NAMES", "Constant", "Input", "LoweredProgram", "Output", "lowered"]

Value = Any  # an argument or a result of an operator
IR_NAMES = {row.public: row.name for row in ROWS}
_MUTATIONS = (
    OutputKind.BUFFER_MUTATION,
    OutputKind.PARAMETER_MUTATION,
    OutputKind.USER_INPUT_MUTATION,
)


class Constant(NamedTuple):
    """A tensor that a package holds.

    Attributes:
        name: of the parameter, buffer or constant.
        tensor: its value.
        written: whether runs write it.
    """

    name: str
    tensor: Tensor
    written: bool


class Input(NamedTuple):
    """A tensor that a call passes.

    Attributes:
        name: of the argument.
        position: among the leaves of the arguments.
        dtype: its name in the IR.
        sizes, strides: expressions of symbols.
        written: whether runs write it.
    """

    name: str
    position: int
    dtype: str
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    written: bool


class Output(NamedTuple):
    """A leaf of the result.

    Attributes:
        kind: "tensor" (also of an integer that sizes say, as in PyTorch) or "constant".
        value: the number among the library's outputs, or the constant.
    """

    kind: str
    value: Value


class LoweredProgram(NamedTuple):
    """An exported program, ready for the compiler.

    Attributes:
        graph: its tensors are the constants, then the inputs.
        constants, inputs: these.
        fixed: arguments that are no tensors, by position, with the one value that they have.
        outputs: leaves of the result.
        numbers: values of the graph's run-time numbers.
        conditions: on the symbols, under which the program is right.
        in_spec, out_spec: structure of arguments and result.
    """

    graph: Graph
    constants: list[Constant]
    inputs: list[Input]
    fixed: dict[int, Value]
    outputs: list[Output]
    numbers: list[Value]
    conditions: list[Condition]
    in_spec: Value
    out_spec: Value


def lowered(program: Value) -> LoweredProgram:
    """The Graph of an exported program, and what a package holds beside it.

    Args:
        program: a `torch.export.ExportedProgram`.

    Raises:
        NotImplementedError: it has a value that a package can't compute.
    """
    try:
        return _Lowering(program.run_decompositions({})).result()
    except NotImplementedError as error:
        refusal = error
    try:  # an operator as it is may make a size constant that its decomposition does not
        return _Lowering(program.run_decompositions()).result()
    except NotImplementedError:
        raise refusal from None


class _Lowering:
    """One program on its way to a Graph.

    Args:
        program: an exported program without writes.
    """

    def __init__(self, program: Value) -> None:
        self.program = program
        self.values, self.fakes = inputs_of(program)
        env = self.fakes.shape_env
        self.env: DimEnvironment | None = env if isinstance(env, DimEnvironment) else None
        self.environment = self.env.environment if self.env else ShapeEnvironment()
        self.nodes: dict[int, tuple[Tensor, Node]] = {}  # by the identity of the fake tensor
        self.numbers: list[Value] = []
        self.scalars: list[Node] = []
        self.constants: list[Constant] = []
        self.inputs: list[Input] = []
        self.fixed: dict[int, Value] = {}
        self.slots: dict[str, int] = {}  # by the name of the placeholder
        self.leaves: list[Node] = []  # by slot

    # ---- leaves
    def _add_leaves(self) -> list[Value]:
        """Makes the tensors of the Graph; returns the values of the placeholders."""
        signature = self.program.graph_signature
        written = {spec.target for spec in signature.output_specs if spec.kind in _MUTATIONS}
        users = [s.kind is InputKind.USER_INPUT for s in signature.input_specs]
        values = list(self.values)
        for user in (False, True):
            position = 0
            for spec, is_user, value in zip(signature.input_specs, users, values, strict=True):
                if is_user is not user:
                    continue
                position += 1
                if isinstance(spec.arg, ConstantArgument):
                    self.fixed[position - 1] = spec.arg.value
                elif not isinstance(value, Tensor):
                    problem = f"the argument {spec.arg.name} is a number that varies"
                    raise _refused(problem, "pass a tensor, or export with a constant number")
                elif user:
                    self._add_input(spec, position - 1, value, spec.arg.name in written)
                else:
                    tensor = self.program._tensor(spec)
                    self._add_constant(spec, tensor, value, spec.target in written)
        return values

    def _add_constant(self, spec: Value, tensor: Tensor, value: Tensor, written: bool) -> None:
        dense = tensor.detach()
        strides = contiguous_strides(tuple(dense.shape))
        if not dense.is_contiguous():
            dense = dense.contiguous()
            value.__dict__["geometry"] = geometry_of(value)._replace(strides=strides, offset=0)
        self.slots[spec.arg.name] = self._leaf(value, tuple(dense.shape), strides)
        self.constants.append(Constant(str(spec.target), dense, written))

    def _add_input(self, spec: Value, position: int, value: Tensor, written: bool) -> None:
        geometry = geometry_of(value)
        self.slots[spec.arg.name] = self._leaf(value, geometry.sizes, geometry.strides)
        dtype = self.nodes[id(value)][1].dtype
        self.inputs.append(
            Input(spec.arg.name, position, dtype, geometry.sizes, geometry.strides, written)
        )

    def _leaf(self, value: Tensor, sizes: Sequence[Size], strides: Sequence[Size]) -> int:
        slot = len(self.leaves)
        dtype = IR_NAMES[value.dtype.name]
        self.leaves.append(input_node(slot, dtype, tuple(sizes), tuple(strides)))
        self._bind(value, self.leaves[slot])
        return slot

    # ---- operators
    def _bind(self, tensor: Tensor, node: Node) -> None:
        self.nodes[id(tensor)] = (tensor, node)

    def node_of(self, tensor: Tensor) -> Node:
        """The node that computes a tensor."""
        entry = self.nodes.get(id(tensor))
        if entry is not None:
            return entry[1]
        constant = getattr(tensor, "constant", None) if isinstance(tensor, FakeTensor) else tensor
        if constant is not None and constant.numel() == 1 and not constant.is_complex():
            dtype = IR_NAMES[constant.dtype.name]
            return prims.full(constant.item(), tuple(constant.shape), dtype)
        raise _refused(
            f"a tensor of sizes {tuple(tensor.shape)} is computed in Python",
            "custom operators and data of the trace need this package: use torch.export.save",
        )

    def add_alias(self, name: str, args: Value, result: Value) -> None:
        """Notes that the result of a method is its tensor, outside of the tape."""
        if name == "detach" and isinstance(result, Tensor):
            self._bind(result, self.node_of(args[0]))

    def add(self, func: Value, args: Value, kwargs: Value, result: Value) -> None:
        """Notes what an operator's results are computed by (called by the fake mode)."""
        number, values, out = func.bind(args, kwargs)
        program = program_of(func, number)
        if program.host:
            return  # the operators that it calls were noted
        if out is not None or not hasattr(program.build, "__self__"):
            raise _refused(f"{func.__name__} has no program", "use operators of this package")
        call = described(program, values)
        with _core.no_grad():
            graph = program.source.specify(call).graph
        if any(record_of(x).kind == "random" for x in graph.nodes()):
            problem = f"{func.__name__} draws random numbers"
            raise _refused(problem, "pass them as an argument, or call eval()")
        registers = symbolic_calls.registers_of(self.env, program, values)
        sizes = dict(zip(graph.symbols, registers, strict=True))
        operands = [x for x in pytree.tree_leaves(list(values)) if isinstance(x, Tensor)]
        numbers = _numbers_of(call, values)
        scalars = [self._number(x, y.dtype) for x, y in zip(numbers, graph.scalars, strict=True)]
        outputs = graph.outputs[: graph.visible]
        nodes = [self.node_of(x) for x in operands]
        push_environment(self.environment)
        try:
            replayed = replay(graph.with_outputs(outputs), nodes, scalars, sizes, ())
        finally:
            pop_environment()
        pairs = [(o, n) for o, n in zip(outputs, replayed, strict=True) if o.node is not ABSENT]
        tensors = [x for x in pytree.tree_leaves(result) if isinstance(x, Tensor)]
        for tensor, (output, node) in zip(tensors, pairs, strict=True):
            if output.target is not None:
                self._check_alone(operands[output.target])
                self._bind(operands[output.target], node)
            if node is not None:
                self._bind(tensor, node)

    def _number(self, value: Value, dtype: str) -> Node:
        """A run-time number: a size where it was computed of sizes."""
        symbolic = raised(value)
        if isinstance(symbolic, SymInt):
            return prims.cast(prims.size(symbolic.node.expr), dtype)
        if symbolic is not value or is_symbolic(value):
            problem = "a number that is no integer is computed of sizes"
            raise _refused(problem, "compute it as a tensor")
        self.numbers.append(value)
        self.scalars.append(scalar_node(len(self.scalars), dtype))
        return self.scalars[-1]

    def _check_alone(self, tensor: Tensor) -> None:
        """Refuses a write to memory that another value shows, too."""
        memory = _memory(tensor)
        if any(x is not tensor and _memory(x) == memory for x, _ in self.nodes.values()):
            problem = "an operator writes to a part of a tensor inside of another operator"
            raise _refused(problem, "use torch.export.save")

    def add_special(self, name: str, args: Value, kwargs: Value, result: Value) -> None:
        """Notes what the results of operators that make tensors of given sizes are computed by."""
        for tensor in pytree.tree_leaves(result):
            if not isinstance(tensor, Tensor) or id(tensor) in self.nodes:
                continue
            sizes, dtype = geometry_of(tensor).sizes, IR_NAMES[tensor.dtype.name]
            if name in ("empty", "empty_like", "new_empty"):
                self._bind(tensor, prims.full(0, sizes, dtype))
            elif name == "arange":
                self._bind(tensor, self._range(sizes, dtype, *args))
            else:
                hint = "use a mask and torch.where, whose sizes do not depend on data"
                raise _refused(f"sizes of the result of {name} depend on data", hint)

    def _range(self, sizes: Sequence[Size], dtype: str, *ends: Value) -> Node:
        start, step = (ends[0] if len(ends) > 1 else 0), (ends[2] if len(ends) > 2 else 1)
        node = prims.iota(tuple(sizes), 0)
        for function, number in ((prims.mul, step), (prims.add, start)):
            size = number.node.expr if isinstance(number, SymInt) else int(number)
            node = function(node, prims.broadcast(prims.size(size), tuple(sizes), ()))
        return prims.cast(node, dtype)

    # ---- the whole
    def result(self) -> LoweredProgram:
        """Runs the program."""
        values = self._add_leaves()
        mode = self.fakes
        mode.recorder = self
        try:
            with mode, _core.no_grad():
                results = _Rerun(self.program.graph_module).run(*values)
        finally:
            mode.recorder = None
        outputs, leaves = self._outputs(results)
        names = list(dict.fromkeys(n for x in self.inputs for s in x.sizes for n in _names(s)))
        slots = [k for k, constant in enumerate(self.constants) if not constant.written]
        graph = Graph(
            symbols=tuple(names),
            inputs=tuple(self.leaves),
            scalars=tuple(self.scalars),
            outputs=tuple(outputs),
            visible=len(outputs),
            name="model",
            notes={"weights": slots},
        )
        self._check_symbols(graph)
        return LoweredProgram(
            graph, self.constants, self.inputs, self.fixed, leaves, self.numbers,
            self._conditions(names), self.program.call_spec.in_spec,
            self.program.call_spec.out_spec,
        )  # fmt: skip

    def _outputs(self, results: Sequence[Value]) -> tuple[list[GraphOutput], list[Output]]:
        outputs: list[GraphOutput] = []
        leaves: list[Output] = []
        number = 0
        for spec, value in zip(self.program.graph_signature.output_specs, results, strict=True):
            target = self._target(spec)
            if isinstance(value, SymInt):
                value = value.node.expr
            if isinstance(value, SizeExpr):
                leaves.append(Output("tensor", number))
                number += 1
                outputs.append(GraphOutput(prims.size(value), ()))
            elif not isinstance(value, Tensor):
                leaves.append(Output("constant", value))
            else:
                node = self.node_of(value)
                if target is None:
                    leaves.append(Output("tensor", number))
                    number += 1
                strides = _dense(node.shape, geometry_of(value).strides)
                if target is not None:
                    strides = self._leaf_strides(target)
                outputs.append(GraphOutput(node, strides, target=target))
        return outputs, leaves

    def _target(self, spec: Value) -> int | None:
        """The slot that an output is written to."""
        if spec.kind not in _MUTATIONS:
            return None
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            return self.slots[spec.target]
        return [constant.name for constant in self.constants].index(spec.target)

    def _leaf_strides(self, slot: int) -> tuple[Size, ...]:
        if slot < len(self.constants):
            return contiguous_strides(tuple(self.constants[slot].tensor.shape))
        return self.inputs[slot - len(self.constants)].strides

    def _check_symbols(self, graph: Graph) -> None:
        """Refuses sizes that no input has."""
        for node in graph.nodes():
            used = pytree.tree_leaves([node.shape, dict(node.attributes)])
            for name in (n for x in used if isinstance(x, SizeExpr) for n in _names(x)):
                if name not in graph.symbols:
                    problem = f"the size {name} depends on data"
                    raise _refused(problem, "use a mask and torch.where")

    def _conditions(self, names: Sequence[str]) -> list[Condition]:
        """All that must hold of the symbols."""
        conditions = list(self.program._conditions)
        if self.env is not None:
            for name, value in self.environment._replacements.items():
                if str(value) == str(name):
                    continue  # the same symbol, of which more is known
                problem = f"an operator needs {name} == {value}, which varies in the program"
                raise _refused(problem, "export with this size constant")
            conditions += [x for x in self.env.conditions() if x not in conditions]
        for expression, (lower, upper) in self.program.range_constraints.items():
            if _names(expression) <= set(names):
                limits = [le(int(lower) if lower > 2 else 1, expression)]
                limits += [le(expression, int(upper))] if upper < 1 << 40 else []
                conditions += [x for x in limits if isinstance(x, Condition)]
        return conditions


class _Rerun(Interpreter):
    """Runs a graph on tensors without data."""

    def call_function(self, target: Value, args: tuple[Value, ...], kwargs: Value) -> Value:
        """Calls a function."""
        unrolled = (
            "scan",
            "associative_scan",
        )  # as often as the size, which becomes constant, says
        if isinstance(target, HigherOrderOperator) and target.__name__ not in unrolled:
            problem = f"{target} has functions as arguments"
            raise _refused(problem, "use torch.where, or torch.export.save")
        return super().call_function(target, args, kwargs)


def _numbers_of(call: Value, values: Sequence[Value]) -> list[Value]:
    """The run-time numbers of a call, by slot, as the caller gave them."""
    numbers: dict[int, Value] = {}
    for entry, value in zip(call, values, strict=True):
        places = list(entries([entry], ScalarArgument))
        if places:
            leaves = pytree.tree_leaves([value])
            numbers.update(zip([x.slot for x in places], leaves, strict=True))
    return [numbers[slot] for slot in sorted(numbers)]


def _memory(tensor: Tensor) -> int:
    """The identity of a tensor's storage."""
    with fake_calls.below():
        return int(tensor.untyped_storage()._cdata)


def _names(size: Size) -> frozenset[str]:
    return free_symbols(size)


def _dense(sizes: Sequence[Size], strides: Sequence[Size]) -> tuple[Size, ...]:
    """Strides of a result: those it has in eager mode where these fill its memory."""
    order = sorted(range(len(sizes)), key=lambda d: _rank(strides[d]), reverse=True)
    expected = contiguous_strides(tuple([sizes[d] for d in order]))
    dense = [expected[order.index(d)] for d in range(len(sizes))]
    if all(d == s or n == 1 for d, s, n in zip(dense, strides, sizes, strict=True)):
        return tuple(dense)
    return contiguous_strides(tuple(sizes))


def _rank(stride: Size) -> int:
    return estimate(stride, {}, 64)


def _refused(problem: str, hint: str) -> Exception:
    return failure(NotImplementedError, "aoti_compile_and_package", problem, hint)
