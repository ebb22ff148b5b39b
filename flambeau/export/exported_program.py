"""`ExportedProgram`: a graph of operators, its state, and what is known of its inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from flambeau.export._decomposed import Decomposed, has_writes
from flambeau.export._guards import lowered_module
from flambeau.export.decomp_utils import default_decompositions
from flambeau.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    ModuleCallEntry,
    ModuleCallSignature,
)
from flambeau.fx import Graph, GraphModule
from flambeau.fx.node import Node
from flambeau.utils import _pytree as pytree

__all__ = ["ExportedProgram", "ModuleCallEntry", "ModuleCallSignature"]

Value = Any  # a tensor, a number, a container of them


@dataclass
class CallSpec:
    """Structure of the arguments and of the result."""

    in_spec: Value
    out_spec: Value


class ExportedProgram:
    """A program that `export` recorded.

    Attributes:
        graph_module: the graph as a module of flat arguments: state first, then inputs.
        graph: the graph.
        graph_signature: where each input comes from, and what each output is for.
        state_dict: parameters and buffers by name.
        constants: other tensors by name, and buffers that are not in the state dict.
        range_constraints: ranges of the sizes that vary.
        module_call_graph: the modules that ran.
        example_inputs: the arguments `(args, kwargs)` of the recorded run.

    Example:
        >>> program = torch.export.export(nn.Linear(2, 3), (torch.ones(4, 2),))
        >>> print(program.graph_module.code.strip().splitlines()[-2].split(";")[0].strip())
        linear = torch.ops.aten.linear.default(input_1, p_weight, p_bias)
        >>> program.module()(torch.ones(4, 2)).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        root: Value,
        graph: Graph,
        graph_signature: ExportGraphSignature,
        state_dict: dict[str, Value],
        range_constraints: dict[Value, Value],
        module_call_graph: list[ModuleCallEntry],
        example_inputs: tuple[tuple[Value, ...], dict[str, Value]] | None = None,
        constants: dict[str, Value] | None = None,
        *,
        verifiers: list[type] | None = None,
        conditions: Sequence[Value] = (),
    ) -> None:
        same = isinstance(root, GraphModule) and root.graph is graph
        self._graph_module = root if same else GraphModule(root, graph)
        self._graph_signature = graph_signature
        self._state_dict = state_dict
        self._range_constraints = range_constraints
        self._module_call_graph = module_call_graph
        self._example_inputs = example_inputs
        self._constants = constants or {}
        self._conditions = list(conditions)
        self._dialect = "TRAINING"

    graph_module = property(lambda self: self._graph_module, doc="The graph as a module.")
    graph = property(lambda self: self._graph_module.graph, doc="The graph.")
    graph_signature = property(lambda self: self._graph_signature, doc="Its inputs and outputs.")
    state_dict = property(lambda self: self._state_dict, doc="Parameters and buffers by name.")
    constants = property(lambda self: self._constants, doc="Other tensors by name.")
    tensor_constants = property(lambda self: self._constants, doc="Other tensors by name.")
    range_constraints = property(lambda self: self._range_constraints, doc="Ranges of sizes.")
    module_call_graph = property(lambda self: self._module_call_graph, doc="Modules that ran.")
    dialect = property(lambda self: self._dialect, doc='"TRAINING", or "ATEN" once decomposed.')

    @property
    def example_inputs(self) -> Value:
        """The arguments of the recorded run."""
        return self._example_inputs

    @example_inputs.setter
    def example_inputs(self, value: Value) -> None:
        if value is not None:
            _, spec = pytree.tree_flatten(value)
            if spec != self.call_spec.in_spec:
                raise ValueError("Example inputs should have the structure of the program's inputs")
        self._example_inputs = value

    @property
    def call_spec(self) -> CallSpec:
        """Structure of the arguments and of the result."""
        signature = self._module_call_graph[0].signature
        assert signature is not None
        return CallSpec(signature.in_spec, signature.out_spec)

    def __deepcopy__(self, memo: dict[int, Value]) -> ExportedProgram:
        module = copy.deepcopy(self._graph_module, memo)
        for node, other in zip(self.graph.nodes, module.graph.nodes, strict=True):
            other.name = node.name  # also one that no new node may have, as `input`
            module.graph._graph_namespace._rename_object(other, node.name)
        module.recompile()
        program = ExportedProgram(
            module, module.graph, copy.deepcopy(self._graph_signature),
            copy.deepcopy(self._state_dict, memo), dict(self._range_constraints),
            list(self._module_call_graph), self._example_inputs,
            copy.deepcopy(self._constants, memo), conditions=self._conditions,
        )  # fmt: skip
        program._dialect = self._dialect
        return program

    # ---- state
    def _tensor(self, spec: InputSpec) -> Value:
        """The tensor of an input that is state."""
        name = str(spec.target)
        loose = spec.kind is InputKind.CONSTANT_TENSOR or spec.persistent is False
        return (self._constants if loose else self._state_dict)[name]

    def named_parameters(self) -> Iterator[tuple[str, Value]]:
        """Parameters with their names."""
        for name in self._graph_signature.parameters:
            yield name, self._state_dict[name]

    def parameters(self) -> Iterator[Value]:
        """The parameters."""
        for _, parameter in self.named_parameters():
            yield parameter

    def named_buffers(self) -> Iterator[tuple[str, Value]]:
        """Buffers with their names."""
        for spec in self._graph_signature.input_specs:
            if spec.kind is InputKind.BUFFER:
                yield str(spec.target), self._tensor(spec)

    def buffers(self) -> Iterator[Value]:
        """The buffers."""
        for _, buffer in self.named_buffers():
            yield buffer

    # ---- use
    def __call__(self, *args: Value, **kwargs: Value) -> NoReturn:
        """Refused.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` "
            "instead."
        )

    def module(self, check_guards: bool = True) -> GraphModule:
        """A module that does what the exported one did.

        It shares the state of the program. A call raises AssertionError for sizes for which the
        graph does not hold, and ValueError for arguments of another structure.

        Args:
            check_guards: whether calls check sizes.
        """
        return lowered_module(self, check_guards)

    def run_decompositions(
        self,
        decomp_table: dict[Value, Callable[..., Value]] | None = None,
        decompose_custom_triton_ops: bool = False,
    ) -> ExportedProgram:
        """The program without writes, of simpler operators.

        New values of buffers and inputs that the program writes are its first outputs.

        Args:
            decomp_table: per overload a function of other operators; None: core ATen.
            decompose_custom_triton_ops: in PyTorch, whether kernels of Triton are taken apart.
        """
        table = default_decompositions() if decomp_table is None else decomp_table
        program = self._recorded(dict(table))
        if has_writes(program.graph):  # inside of decompositions
            program = program._recorded(dict(table))
        program._dialect = "ATEN"
        return program

    def _recorded(self, table: dict[Value, Callable[..., Value]]) -> ExportedProgram:
        """The program, recorded again without writes."""
        decomposed = Decomposed(self, table)
        graph_module, signature, conditions = decomposed.parts()
        return ExportedProgram(
            graph_module, graph_module.graph, signature, self._state_dict,
            dict(self._range_constraints), decomposed.calls(), self._example_inputs,
            self._constants, conditions=conditions,
        )  # fmt: skip

    def validate(self) -> None:
        """Checks that the graph and the signature fit together.

        Raises:
            RuntimeError: the graph is no graph.
            AssertionError: inputs or outputs of the graph are others than in the signature.
        """
        self.graph.lint()
        names = [node.name for node in self.graph.find_nodes(op="placeholder")]
        expected = [spec.arg.name for spec in self._graph_signature.input_specs]
        if names != expected:
            raise AssertionError(f"the inputs are {names}, in the signature {expected}")
        (output,) = self.graph.find_nodes(op="output")
        names = [x.name if isinstance(x, Node) else "" for x in output.args[0]]
        expected = [spec.arg.name for spec in self._graph_signature.output_specs]
        if names != expected:
            raise AssertionError(f"the outputs are {names}, in the signature {expected}")
        for spec in self._graph_signature.input_specs:
            if spec.kind is not InputKind.USER_INPUT:
                self._tensor(spec)

    def __str__(self) -> str:
        code = self._graph_module.print_readable(print_output=False).replace("\n", "\n    ")
        signature = str(self._graph_signature).replace("\n", "\n    ")
        return (
            f"ExportedProgram:\n    {code}\nGraph signature: {signature}\n"
            f"Range constraints: {self._range_constraints}\n"
        )
