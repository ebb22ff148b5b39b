"""Exported graphs without writes, of simpler operators: a second recorded run.

The run has symbols of its own, because a decomposition may need more of sizes than the program did.
If it needs one of them to be a number, the program would be wrong for others: that is an error.
The result is checked on tensors without data of other sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import flambeau as torch
from flambeau._functorch.aot_autograd import _Run
from flambeau._higher_order_ops.operators import (
    HigherOrderOperator,
    wrap_with_set_grad_enabled,
)
from flambeau._subclasses.functional_storage import Alias, Base
from flambeau._subclasses.functional_tensor import FunctionalTensorMode
from flambeau._subclasses.traced_tensor import geometry_of
from flambeau.export._encoding import Decoder, Encoder
from flambeau.export._environment import DimEnvironment, shown
from flambeau.export._recorder import CustomCalls, unguarded
from flambeau.export._trace import argument_of
from flambeau.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    ModuleCallEntry,
    OutputKind,
    OutputSpec,
)
from flambeau.fx import GraphModule, Interpreter
from flambeau.fx.experimental._operator_trace import (
    OperatorTracer,
    _writes,
    tagged,
)
from flambeau.fx.experimental.proxy_tensor import _Recording
from flambeau.fx.node import Node
from flambeau.ir import size
from flambeau.ir.failure import failure
from flambeau.ir.size import SizeExpr
from flambeau.ir.size_program import evaluate_condition
from flambeau.runtime.symbolic import is_symbolic
from flambeau.utils import _python_dispatch as dispatch
from flambeau.utils import _pytree as pytree

__all__ = ["Decomposed", "has_writes", "inputs_of"]

Value = Any  # a tensor, a number, a container of them


class _Rerun(Interpreter):
    """Runs a graph on tensors without writes; operators that take functions get what these hold.

    Attributes:
        check: records that a number of data has to be true.
    """

    check: Callable[[Value, str], None]

    def run_node(self, n: Node) -> Value:
        """Runs a node; those that are recorded for it remember its modules."""
        with tagged(nn_module_stack=n.meta.get("nn_module_stack", {})):
            return super().run_node(n)

    def call_function(self, target: Value, args: tuple[Value, ...], kwargs: Value) -> Value:
        """Calls a function."""
        mode = dispatch._get_current_dispatch_mode()
        if target is wrap_with_set_grad_enabled:
            rerun = _Rerun(args[1])
            rerun.check = self.check
            return rerun.run(*args[2:])
        if target is torch.ops.aten._assert_scalar.default and is_symbolic(args[0]):
            return self.check(*args)
        if not isinstance(mode, FunctionalTensorMode):
            return super().call_function(target, args, kwargs)
        if not isinstance(target, HigherOrderOperator) and not hasattr(target, "shape_function"):
            with unguarded(mode.fakes.shape_env, target):
                return super().call_function(target, args, kwargs)
        plain = pytree.tree_map(mode.value, args)
        with dispatch._pop_mode_temporarily():
            results = super().call_function(target, plain, kwargs)
        return pytree.tree_map(lambda x: _inside(mode, x), results)


def _inside(mode: FunctionalTensorMode, value: Value) -> Value:
    """A result as a tensor that a program without writes computes with."""
    if not isinstance(value, torch.Tensor):
        return value
    return mode._inside(value, Alias(value, Base(value)))


def inputs_of(program: Value) -> tuple[list[Value], Value]:
    """The values of a program's placeholders, with symbols of their own, and the mode of these."""
    values = [node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")]
    for k, spec in enumerate(program.graph_signature.input_specs):
        if isinstance(spec.arg, ConstantArgument):
            values[k] = spec.arg.value
    modes = [x.fake_mode for x in values if hasattr(x, "fake_mode")]
    env = modes[0].shape_env if modes else DimEnvironment()
    if not isinstance(env, DimEnvironment):
        return values, modes[0]
    encoder = Encoder(env)
    forms = [
        encoder.value(x) if isinstance(x, torch.Tensor) or hasattr(x, "node") else None
        for x in values
    ]
    decoder = Decoder(encoder.symbols)
    for k, form in enumerate(forms):
        if form is not None:
            values[k] = decoder.value(form)
    return values, decoder.fakes


class Decomposed:
    """The graph of a program, recorded again without writes.

    Args:
        program: the program.
        table: decompositions.
    """

    def __init__(self, program: Value, table: dict[Value, Value]) -> None:
        self.program = program
        self.values, self.fakes = inputs_of(program)
        self.tracer = OperatorTracer()
        self.mode = CustomCalls(self.tracer, table, self.fakes)
        self.effects: Value = None
        self.marked = dict.fromkeys(_marked(program))
        self.sources: dict[str, Value] = {}
        self.checked: frozenset[str] = frozenset()  # numbers of data

    def _recording(self) -> Value:
        recording: Value = object.__new__(_Recording)
        recording.function = self._function
        recording.shape_env, recording.fakes = self.fakes.shape_env, self.fakes
        recording.tracer, recording.mode = self.tracer, self.mode
        recording._input = lambda value, number: value
        return recording

    def _function(self, *values: Value) -> Value:
        def interpreted(*inside: Value) -> Value:
            rerun = _Rerun(self.program.graph_module, garbage_collect_values=not self.marked)
            rerun.check = self._check
            results = rerun.run(*inside)
            return (*results, *[rerun.env[node] for node in self.marked])

        run = _Run(interpreted, values)
        self.effects = run.effects
        order = sorted(range(len(run.effects.written)), key=lambda k: run.effects.written[k])
        outputs = run.outputs()
        count = len(order)
        self.written = [run.effects.written[k] for k in order]
        return (*[outputs[k] for k in order], *outputs[count:])

    def _check(self, number: Value, message: str) -> None:
        env, condition = number.node.shape_env, number.node.expr
        self.checked |= env.free_symbols(condition)
        env.expect_true(condition, message)
        proxy, target = self.mode.sizes.proxy(number), torch.ops.aten._assert_scalar.default
        self.tracer.create_proxy("call_function", target, (proxy, message), {})

    def parts(self) -> tuple[GraphModule, ExportGraphSignature, list[Value]]:
        """The graph, its signature, and the conditions on which it depends."""
        before = [spec.arg.name for spec in self.program.graph_signature.input_specs]
        with torch.no_grad():
            module = self._recording().run(tuple(self.values))
        graph = module.graph
        for node, name in zip(graph.find_nodes(op="placeholder"), before, strict=True):
            node.name = node.target = name
        (output,) = graph.find_nodes(op="output")
        written = [_source(x) for x in output.args[0][: len(self.written)]]
        output.args = ((*written, *output.args[0][len(self.written) :]),)
        graph.eliminate_dead_code()
        count = len(output.args[0]) - len(self.marked)
        self.sources = dict(zip([x.name for x in self.marked], output.args[0][count:], strict=True))
        output.args = (output.args[0][:count],)
        specs = []
        for number, value in enumerate(output.args[0]):
            kind, target = self._target(number)
            specs.append(OutputSpec(kind, argument_of(value), target))
        inputs = list(self.program.graph_signature.input_specs)
        signature = ExportGraphSignature(inputs, specs)
        module.recompile()
        conditions = self._conditions()
        _Trial(module, self.fakes.shape_env, conditions, self.program.range_constraints).run()
        return module, signature, conditions

    def calls(self) -> list[Value]:
        """The calls of inner modules, whose signatures name nodes of the new graph."""
        entries = []
        for entry in self.program.module_call_graph:
            if entry.fqn and entry.signature is not None:
                before = entry.signature
                inputs, outputs = (
                    [self._argument(x) for x in side] for side in (before.inputs, before.outputs)
                )
                signature = replace(before, inputs=inputs, outputs=outputs)
                entry = ModuleCallEntry(entry.fqn, signature)
            entries.append(entry)
        return entries

    def _argument(self, argument: Value) -> Value:
        node = self.sources.get(argument.name)
        return argument if node is None else argument_of(node)

    def _conditions(self) -> list[Value]:
        """Conditions of the program and of the second run.

        Raises:
            NotImplementedError: a size that varies has to be a number, or another one.
        """
        env, conditions = self.fakes.shape_env, list(self.program._conditions)
        if not isinstance(env, DimEnvironment):
            return conditions
        for symbol, value in env.environment._replacements.items():
            if symbol.name in self.checked and env.is_unbacked_symint(symbol):
                continue
            problem = f"a decomposition needs {symbol} == {value}, which varies in the program"
            hint = "leave its operator out of the table, or export with this size constant"
            raise failure(NotImplementedError, "run_decompositions", problem, hint)
        return conditions + [x for x in env.conditions() if x not in conditions]

    def _target(self, number: int) -> tuple[Value, Value]:
        if number >= len(self.written):
            before = self.program.graph_signature.output_specs[number - len(self.written)]
            return before.kind, before.target
        spec = self.program.graph_signature.input_specs[self.written[number]]
        kinds = {
            InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
            InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
            InputKind.CONSTANT_TENSOR: OutputKind.BUFFER_MUTATION,
        }
        kind = kinds.get(spec.kind, OutputKind.USER_INPUT_MUTATION)
        target = spec.arg.name if kind is OutputKind.USER_INPUT_MUTATION else spec.target
        return kind, target


def _marked(program: Value) -> Iterator[Node]:
    """The nodes that signatures of inner modules name, without inputs of the program."""
    nodes = {x.name: x for x in program.graph.nodes if x.op not in ("placeholder", "output")}
    for entry in program.module_call_graph:
        if entry.fqn and entry.signature is not None:
            for argument in (*entry.signature.inputs, *entry.signature.outputs):
                if argument.name in nodes:
                    yield nodes[argument.name]


def _source(value: Value) -> Value:
    """The node that an output copies, where the copy has the same elements."""
    if not isinstance(value, Node) or value.target is not torch.ops.aten.copy.default:
        return value
    source = value.args[1]
    old, new = value.meta.get("val"), source.meta.get("val")
    if old is None or new is None or old.dtype != new.dtype:
        return value
    return source if geometry_of(old).sizes == geometry_of(new).sizes else value


def has_writes(graph: Value) -> bool:
    """Whether an operator of a graph writes its first argument."""
    nodes = [node for node in graph.nodes if not isinstance(node.target, str)]
    return any(_writes(node.target) for node in nodes)


class _Trial:
    """A run on tensors without data of other sizes than the example's.

    Args:
        module: the graph.
        env: its symbols.
        conditions: on which it depends.
        ranges: of sizes.
    """

    def __init__(
        self, module: GraphModule, env: Value, conditions: list[Value], ranges: Value
    ) -> None:
        self.module, self.env, self.conditions = module, env, conditions
        self.ranges: Mapping[Value, Value] = ranges
        self.nodes = module.graph.find_nodes(op="placeholder")

    def run(self) -> None:
        """Compares sizes of results with what their symbols say.

        Raises:
            NotImplementedError: they differ.
        """
        values = next(self._values(), None)
        if values is None or any(
            isinstance(node.target, HigherOrderOperator) for node in self.module.graph.nodes
        ):
            return
        mode = torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)
        with mode, torch.no_grad():
            inputs = [self._input(node.meta.get("val"), values) for node in self.nodes]
            try:
                results = Interpreter(self.module).run(*inputs)
            except (RuntimeError, ValueError, IndexError) as error:
                self._refuse(values, str(error))
        (output,) = self.module.graph.find_nodes(op="output")
        for node, result in zip(output.args[0], results, strict=True):
            if isinstance(node, Node) and isinstance(result, torch.Tensor):
                sizes = geometry_of(node.meta["val"]).sizes
                expected = [size.evaluate(x, values) for x in sizes]
                if list(result.shape) != expected:
                    self._refuse(values, f"{node.name} has sizes {list(result.shape)}")

    def _values(self) -> Iterator[dict[str, int]]:
        """Other sizes for which the graph should hold."""
        if not isinstance(self.env, DimEnvironment) or self.env._unbacked:
            return
        hints = self.env.environment.hints
        if not hints:
            return
        for factor, step in ((1, 1), (1, 2), (2, 0), (1, 3), (3, 0), (2, 2), (4, 0), (1, -1)):
            values = {
                name: number * factor + step * (k + 1)
                for k, (name, number) in enumerate(hints.items())
            }
            if self._holds(values):
                yield values

    def _holds(self, values: dict[str, int]) -> bool:
        if any(number < 2 for number in values.values()):
            return False
        for expression, (lower, upper) in self.ranges.items():
            if size.free_symbols(expression) <= values.keys():
                if not lower <= size.evaluate(expression, values) <= (upper or math.inf):
                    return False
        return all(evaluate_condition(x, values) for x in self.conditions)

    def _input(self, value: Value, values: dict[str, int]) -> Value:
        if isinstance(value, torch.Tensor):
            geometry = geometry_of(value)
            sizes, strides = (
                [size.evaluate(x, values) for x in group]
                for group in (geometry.sizes, geometry.strides)
            )
            return torch.empty_strided(sizes, strides, dtype=value.dtype)
        expression = getattr(getattr(value, "node", None), "expr", None)
        return size.evaluate(expression, values) if isinstance(expression, SizeExpr) else value

    def _refuse(self, values: dict[str, int], reason: str) -> None:
        texts = [shown(x, {}) for x in self.conditions]
        problem = f"the decomposed graph does not hold for {values} ({reason}); conditions: {texts}"
        hint = "leave operators out of the table, or export with constant sizes"
        raise failure(NotImplementedError, "run_decompositions", problem, hint)
