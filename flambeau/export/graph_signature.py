"""Signatures of exported graphs: where each input comes from, and what each output is for."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ArgumentSpec", "ConstantArgument", "CustomObjArgument", "ExportBackwardSignature",
    "ExportGraphSignature", "InputKind", "InputSpec", "OutputKind", "OutputSpec", "SymBoolArgument",
    "SymFloatArgument", "SymIntArgument", "TensorArgument", "TokenArgument",
]  # fmt: skip


Value = Any  # of Python: a number, a string


@dataclass
class TensorArgument:
    """A tensor.

    Attributes:
        name: of its node.
    """

    name: str


@dataclass
class TokenArgument:
    """A token that orders effects; no graph here has one."""

    name: str


@dataclass
class SymIntArgument:
    """A symbolic integer.

    Attributes:
        name: of its node.
    """

    name: str


@dataclass
class SymFloatArgument:
    """A symbolic float."""

    name: str


@dataclass
class SymBoolArgument:
    """A symbolic truth value."""

    name: str


@dataclass
class CustomObjArgument:
    """An object of a class of TorchScript; no graph here has one."""

    name: str
    class_fqn: str
    fake_val: Value = None


@dataclass
class ConstantArgument:
    """A value of Python.

    Attributes:
        name: of its node; empty for outputs.
        value: the value.
    """

    name: str
    value: Value


ArgumentSpec = (
    TensorArgument | SymIntArgument | SymFloatArgument | SymBoolArgument | ConstantArgument
    | CustomObjArgument | TokenArgument
)  # fmt: skip


class InputKind(enum.Enum):
    """Where an input comes from."""

    USER_INPUT = enum.auto()
    PARAMETER = enum.auto()
    BUFFER = enum.auto()
    CONSTANT_TENSOR = enum.auto()
    CUSTOM_OBJ = enum.auto()
    TOKEN = enum.auto()


class OutputKind(enum.Enum):
    """Where an output goes."""

    USER_OUTPUT = enum.auto()
    LOSS_OUTPUT = enum.auto()
    BUFFER_MUTATION = enum.auto()
    PARAMETER_MUTATION = enum.auto()
    GRADIENT_TO_PARAMETER = enum.auto()
    GRADIENT_TO_USER_INPUT = enum.auto()
    USER_INPUT_MUTATION = enum.auto()
    TOKEN = enum.auto()


def _line(name: str, kind: enum.Enum, target: str | None) -> str:
    return f"{name}: {kind.name}" + (f" target={target!r}" if target is not None else "")


@dataclass
class InputSpec:
    """One input of a graph.

    Attributes:
        kind: where it comes from.
        arg: its node.
        target: the name of the parameter, buffer or constant.
        persistent: of a buffer: whether it is in the state dict.
    """

    kind: InputKind
    arg: ArgumentSpec
    target: str | None
    persistent: bool | None = None

    def __post_init__(self) -> None:
        if self.kind is InputKind.BUFFER and self.persistent is None:
            raise AssertionError("Failed to specify persistent flag on BUFFER.")

    def __str__(self) -> str:
        line = _line(self.arg.name, self.kind, self.target)
        return line if self.persistent is None else f"{line} persistent={self.persistent}"


@dataclass
class OutputSpec:
    """One output of a graph.

    Attributes:
        kind: where it goes.
        arg: its node, or a value.
        target: the name of the buffer or parameter, or of the input, that it is the new value of.
    """

    kind: OutputKind
    arg: ArgumentSpec
    target: str | None

    def __str__(self) -> str:
        return _line(self.arg.name, self.kind, self.target)


@dataclass
class ExportBackwardSignature:
    """Gradients among the outputs of a joint graph.

    Attributes:
        gradients_to_parameters: names of parameters by output.
        gradients_to_user_inputs: names of inputs by output.
        loss_output: the loss.
    """

    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


_MUTATIONS = (
    OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION, OutputKind.PARAMETER_MUTATION,
)  # fmt: skip


@dataclass
class ExportGraphSignature:
    """The inputs and outputs of a graph, in order.

    Inputs are parameters, buffers, constants, then those of the user; outputs are new values of
    buffers, parameters and inputs that the program writes, then those of the user.

    Attributes:
        input_specs: the inputs.
        output_specs: the outputs.

    Example:
        >>> program = torch.export.export(nn.Linear(2, 3), (torch.ones(1, 2),))
        >>> program.graph_signature.inputs_to_parameters
        {'p_weight': 'weight', 'p_bias': 'bias'}
    """

    input_specs: list[InputSpec] = field(default_factory=list)
    output_specs: list[OutputSpec] = field(default_factory=list)

    def _inputs(self, kind: InputKind) -> list[InputSpec]:
        return [spec for spec in self.input_specs if spec.kind is kind]

    def _targets(self, kind: InputKind) -> dict[str, str]:
        return {spec.arg.name: str(spec.target) for spec in self._inputs(kind)}

    def _outputs(self, *kinds: OutputKind) -> dict[str, str]:
        specs = [spec for spec in self.output_specs if spec.kind in kinds]
        return {spec.arg.name: str(spec.target) for spec in specs}

    @property
    def parameters(self) -> Collection[str]:
        """Names of the parameters."""
        return tuple(self.inputs_to_parameters.values())

    @property
    def buffers(self) -> Collection[str]:
        """Names of the buffers."""
        return tuple(self.inputs_to_buffers.values())

    @property
    def non_persistent_buffers(self) -> Collection[str]:
        """Names of the buffers that are not in the state dict."""
        specs = self._inputs(InputKind.BUFFER)
        return tuple(str(spec.target) for spec in specs if spec.persistent is False)

    @property
    def lifted_tensor_constants(self) -> Collection[str]:
        """Names of the constants."""
        return tuple(self.inputs_to_lifted_tensor_constants.values())

    @property
    def lifted_custom_objs(self) -> Collection[str]:
        """Names of custom objects: none."""
        return tuple(str(spec.target) for spec in self._inputs(InputKind.CUSTOM_OBJ))

    @property
    def user_inputs(self) -> Collection[Value]:
        """Nodes of the user's inputs; values of those that are constants."""
        return tuple(_shown(spec.arg) for spec in self._inputs(InputKind.USER_INPUT))

    @property
    def user_outputs(self) -> Collection[Value]:
        """Nodes of the user's outputs; values of those that are constants."""
        kinds = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
        return tuple(_shown(spec.arg) for spec in self.output_specs if spec.kind in kinds)

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        """Names of parameters by node."""
        return self._targets(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        """Names of buffers by node."""
        return self._targets(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        """Names of constants by node."""
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def inputs_to_lifted_custom_objs(self) -> Mapping[str, str]:
        """Names of custom objects by node: none."""
        return self._targets(InputKind.CUSTOM_OBJ)

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        """By output, the buffer that it is the new value of."""
        return self._outputs(OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self) -> Mapping[str, str]:
        """By output, the parameter that it is the new value of."""
        return self._outputs(OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        """By output, the user's input that it is the new value of."""
        return self._outputs(OutputKind.USER_INPUT_MUTATION)

    @property
    def input_tokens(self) -> Collection[str]:
        """Tokens: none."""
        return tuple(spec.arg.name for spec in self._inputs(InputKind.TOKEN))

    @property
    def output_tokens(self) -> Collection[str]:
        """Tokens: none."""
        return tuple(self._outputs(OutputKind.TOKEN))

    @property
    def backward_signature(self) -> ExportBackwardSignature | None:
        """Gradients among the outputs; None: there are none."""
        losses = tuple(self._outputs(OutputKind.LOSS_OUTPUT))
        if not losses:
            return None
        return ExportBackwardSignature(
            self._outputs(OutputKind.GRADIENT_TO_PARAMETER),
            self._outputs(OutputKind.GRADIENT_TO_USER_INPUT),
            losses[0],
        )

    @property
    def assertion_dep_token(self) -> Mapping[int, str] | None:
        """A token of assertions: none."""
        return None

    def replace_all_uses(self, old: str, new: str) -> None:
        """Renames a node.

        Args:
            old: its name before.
            new: its name.
        """
        specs: Iterable[Value] = (*self.input_specs, *self.output_specs)
        for spec in specs:
            if spec.arg.name == old:
                spec.arg.name = new

    def get_replace_hook(self, replace_inputs: bool = False) -> Value:
        """A function `(old, new, user)` that renames the outputs whose nodes are replaced.

        Args:
            replace_inputs: whether inputs are renamed, too.
        """

        def replace(old: Value, new: str, user: Value) -> None:
            if user.op == "output" or replace_inputs:
                self.replace_all_uses(old.name, new)

        return replace

    def __str__(self) -> str:
        inputs = "".join(f"{spec}\n" for spec in self.input_specs)
        outputs = "".join(f"{spec}\n" for spec in self.output_specs)
        return f"\n# inputs\n{inputs}\n# outputs\n{outputs}"


def is_mutation(spec: OutputSpec) -> bool:
    """Whether an output is a new value of an input."""
    return spec.kind in _MUTATIONS


def _shown(argument: ArgumentSpec) -> Value:
    return argument.value if isinstance(argument, ConstantArgument) else argument.name


@dataclass
class ModuleCallSignature:
    """How a module is called.

    Attributes:
        inputs, outputs: its arguments and results in the graph.
        in_spec, out_spec: their structure.
        forward_arg_names: names of the parameters of `forward` that were passed.
    """

    inputs: list[Value]
    outputs: list[Value]
    in_spec: Value
    out_spec: Value
    forward_arg_names: list[str] | None = None


@dataclass
class ModuleCallEntry:
    """A module that ran.

    Attributes:
        fqn: its path; empty for the exported module.
        signature: of the exported module.
    """

    fqn: str
    signature: ModuleCallSignature | None = None
