"""One run of a module on tensors without data, recorded as an exported program.

Parameters, buffers and inputs are replaced by tensors whose sizes are numbers or symbols; each is
a placeholder of the graph. The module itself is left as it was.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import flambeau as torch
from flambeau._dynamo.exc import UserError
from flambeau._subclasses.fake_tensor import FakeTensorMode
from flambeau.export import dynamic_shapes
from flambeau.export._environment import DimEnvironment
from flambeau.export._grad_mode import enclose
from flambeau.export._inner_calls import InnerCalls
from flambeau.export._recorder import CallMode, CallTracer, FunctionCalls
from flambeau.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from flambeau.fx import Graph, GraphModule
from flambeau.fx._names import _Namespace
from flambeau.fx._symbolic_trace import PH
from flambeau.fx.experimental._operator_trace import with_named_parameters
from flambeau.fx.node import Node
from flambeau.nn.modules import module as modules
from flambeau.runtime.symbolic import SymBool, SymFloat, SymInt, SymNode, is_symbolic
from flambeau.utils import _pytree as pytree

__all__ = ["Trace", "argument_of"]

Value = Any  # of a module: a tensor, a number, a container of them
Module = torch.nn.Module
_PLAIN = (int, float, bool, str, type(None), complex)


class _State(NamedTuple):
    """A parameter or buffer.

    Attributes:
        name: its path in the module.
        kind: PARAMETER or BUFFER.
        slots: the dictionary of its module that has it, and the key.
        tensor: itself.
        persistent: of a buffer: whether it is in the state dict.
    """

    name: str
    kind: InputKind
    slots: dict[str, Value]
    key: str
    tensor: Value
    persistent: bool | None


class Trace:
    """A recorded run.

    Args:
        module: the module.
        args, kwargs: its arguments.
        shapes: which sizes vary, in any form that `export` takes.
        preserved: paths of inner modules whose calls have signatures.
        env: its symbols.

    Attributes:
        root: a module of the graph.
        signature: of the graph.
        constants: tensors that are no state, by name.
        in_spec, out_spec: structure of `(args, kwargs)` and of the result.
        called: paths of the modules that ran.
        inner: calls that have signatures.
    """

    def __init__(
        self, module: Module, args: tuple[Value, ...], kwargs: Mapping[str, Value], shapes: Value,
        preserved: Sequence[str] = (), env: DimEnvironment | None = None,
    ) -> None:  # fmt: skip
        self.module = module
        self.inner = InnerCalls(module, preserved)
        if isinstance(shapes, dynamic_shapes.ShapesCollection | dynamic_shapes.AdditionalInputs):
            shapes = shapes.dynamic_shapes(module, args, dict(kwargs))
        inputs = dynamic_shapes.combined(module, args, kwargs)
        self.kwargs = {k: kwargs[k] for k in (*inputs, *kwargs) if k in kwargs}
        leaves = list(dynamic_shapes.leaves_of(inputs, shapes))
        self.names = [_input_name(path) for path, _ in pytree.tree_flatten_with_path(inputs)[0]]
        self.forward_arg_names = list(inputs)
        values, self.in_spec = pytree.tree_flatten((args, self.kwargs))
        if len(values) != len(leaves):
            raise AssertionError("[export] the arguments have another structure by name")
        self.env = env or DimEnvironment()
        self.fakes = FakeTensorMode(allow_non_fake_inputs=True, shape_env=self.env)
        self.state = list(_states(module))
        self.tracer = CallTracer()
        self.mode = CallMode(self.tracer, self.fakes)
        self.called: dict[str, None] = {"": None}
        self.constants: dict[str, Value] = {}
        self.values = values
        self.fake_state = [self._static(state.tensor) for state in self.state]
        self.fake_inputs = [self._input(source, value, said) for source, value, said in leaves]
        self.env.begin(self)
        self._run()

    def _static(self, tensor: Value) -> Value:
        return self.fakes.from_tensor(tensor, static_shapes=True)

    def _input(self, source: str, value: Value, said: Value) -> Value:
        """The value that represents an input in the run."""
        if type(value) is int and said is not None:
            return self.env.create_number(value, source, said)
        if not isinstance(value, torch.Tensor):
            if not isinstance(value, (*_PLAIN, torch.dtype, torch.device)):
                raise UserError(
                    f"Unsupported input type {type(value)}. Export only supports pytree containers "
                    "of basic types (Tensor, int, float, ...) as input. To register a custom "
                    "dataclass, use torch.export.register_dataclass."
                )
            return value
        for dim, each in said.items():
            self.env.said[f"{source}.size()[{dim}]"] = each
        return self.fakes.from_tensor(value.detach() if said else value, source=source)

    # ---- the run
    def _run(self) -> None:
        fakes = [*self.fake_state, *self.fake_inputs]
        named = with_named_parameters(self._body, _nothing, len(fakes))
        holes: Value = (PH,) * len(fakes)
        graph = self.tracer.trace(named, holes)
        self.mode.sizes.drop_unused()
        self.env.check()
        self._finish(graph)

    def _body(self, *proxies: Value) -> Value:
        fakes = [*self.fake_state, *self.fake_inputs]
        for value, proxy in zip(fakes, proxies, strict=True):
            if isinstance(value, torch.Tensor):
                self.mode._track(value, proxy)
            elif is_symbolic(value):
                self.mode.sizes.leaf(value, proxy)
            else:
                proxy.node.meta["val"] = value
        args, kwargs = pytree.tree_unflatten(self.fake_inputs, self.in_spec)
        with contextlib.ExitStack() as stack:
            stack.enter_context(_restored(self.module))
            for state, fake in zip(self.state, self.fake_state, strict=True):
                state.slots[state.key] = fake
            stack.enter_context(self._watched())
            stack.enter_context(self.inner.watched(self._record))
            stack.enter_context(torch._C.DisableTorchFunctionSubclass())
            stack.enter_context(self.mode)
            stack.enter_context(FunctionCalls())
            self.env.recorder = self.mode.sizes
            stack.callback(setattr, self.env, "recorder", None)
            results = self.module(*args, **kwargs)
            self._write_assigned()
            self._assert()
        leaves, self.out_spec = pytree.tree_flatten(results)
        return tuple(map(self._result, leaves))

    def _record(self, function: Value, args: tuple[Value, ...]) -> None:
        """Adds the call of a function that computes nothing."""
        proxies = pytree.tree_map(self._result, args)
        self.tracer.create_proxy("call_function", function, proxies, {})

    def _write_assigned(self) -> None:
        """Writes buffers to which the module assigned another tensor."""
        for state, fake in zip(self.state, self.fake_state, strict=True):
            value = state.slots.get(state.key)
            if value is not fake and isinstance(value, torch.Tensor):
                torch.ops.aten.copy_.default(fake, value)

    def _assert(self) -> None:
        """Records the checks of numbers that data decide."""
        for checks in self.env.deferred_runtime_asserts.values():
            for check in checks:
                number = SymBool(SymNode(check.expr, self.env, bool))
                text = f"Runtime assertion failed for expression {check.expr}"
                condition = self.mode.sizes.proxy(number)
                proxy = self.tracer.create_proxy(
                    "call_function", torch.ops.aten._assert_scalar.default,
                    (condition, check.msg or text), {},
                )  # fmt: skip
                condition.node.append(proxy.node)

    def _result(self, value: Value) -> Value:
        if is_symbolic(value):
            return self.mode.sizes.proxy(value)
        if not isinstance(value, torch.Tensor):
            if not isinstance(value, _PLAIN):
                raise UserError(
                    f"Unsupported output type {type(value)}. Export only supports pytree "
                    "containers of basic types (Tensor, int, float, ...) as output."
                )
            return value
        entry = self.mode.tracking.find(value)
        return value if entry is None else entry.proxy

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """A `with` block that notes which modules run, and shows dropout that does nothing."""
        names = {id(each): name for name, each in self.module.named_modules()}
        running, stack = self.tracer.modules, list[dict[str, tuple[str, str]]]()
        counts: dict[str, int] = {}
        thread = threading.get_ident()

        def enter(module: Module, args: Value) -> None:
            if threading.get_ident() != thread:
                return
            name = names.get(id(module))
            stack.append(dict(running))
            if name is not None:
                count = counts[name] = counts.get(name, -1) + 1
                self.called[name] = None
                key = "L__self__" + name.replace(".", "_") + (f"@{count}" if count else "")
                running[key] = (f"{name}@{count}" if count else name, _class_name(module))

        def leave(module: Module, args: Value, result: Value) -> None:
            if threading.get_ident() != thread:
                return
            before = stack.pop()
            running.clear()
            running.update(before)

        handles = [
            modules.register_module_forward_pre_hook(enter),
            modules.register_module_forward_hook(leave, always_call=True),
        ]
        for each in self.module.modules():
            if type(each) is torch.nn.Dropout and not each.training:
                each.__dict__["forward"] = _idle(each)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    # ---- the program
    def _finish(self, graph: Graph) -> None:
        nodes = list(graph.find_nodes(op="placeholder"))
        count = len(self.state)
        specs = [
            InputSpec(state.kind, TensorArgument(_state_name(state)), state.name, state.persistent)
            for state in self.state
        ]
        lifted = list(self._lift(graph, nodes))
        for node, spec in lifted:
            specs.append(spec)
            nodes.insert(count, node)
            count += 1
        for node, name, value in zip(nodes[count:], self.names, self.fake_inputs, strict=True):
            argument = argument_of(node)
            if isinstance(argument, ConstantArgument):
                argument.value = value
            argument.name = name
            specs.append(InputSpec(InputKind.USER_INPUT, argument, None))
        _rename(graph, nodes, specs)
        attributes: dict[str, Value] = {
            node.target: getattr(self.tracer.root, node.target)
            for node in graph.find_nodes(op="get_attr")
        }
        enclose(graph, attributes, torch.is_grad_enabled())
        self.inner.read(graph, attributes, argument_of)
        (output,) = graph.find_nodes(op="output")
        outputs = [OutputSpec(OutputKind.USER_OUTPUT, argument_of(x), None) for x in output.args[0]]
        self.signature = ExportGraphSignature(specs, outputs)
        self.root = GraphModule(attributes, graph)

    def _lift(self, graph: Graph, nodes: Sequence[Node]) -> Iterator[tuple[Node, InputSpec]]:
        """Makes placeholders of the tensors that the graph reads from its root."""
        paths = {id(x): name for name, x in _tensor_attributes(self.module)}
        after: dict[int, Node] = {}
        first = nodes[len(self.state)] if len(nodes) > len(self.state) else None
        first = first or next(node for node in graph.nodes if node not in nodes)
        for node in graph.find_nodes(op="get_attr"):
            tensor = getattr(self.tracer.root, node.target)
            if not isinstance(tensor, torch.Tensor):
                continue
            placeholder = after.get(id(tensor))
            if placeholder is None:
                name = paths.get(id(tensor)) or f"lifted_tensor_{self._number()}"
                self.constants[name] = tensor
                with graph.inserting_before(first):
                    placeholder = graph.placeholder(f"c_{_identifier(name)}")
                placeholder.meta.update({**node.meta, "val": self._static(tensor)})
                after[id(tensor)] = placeholder
                argument = TensorArgument(placeholder.name)
                yield placeholder, InputSpec(InputKind.CONSTANT_TENSOR, argument, name)
            node.replace_all_uses_with(placeholder)
            graph.erase_node(node)

    def _number(self) -> int:
        return sum(name.startswith("lifted_tensor_") for name in self.constants)

    def state_dict(self) -> dict[str, Value]:
        """The parameters and buffers of the module by name."""
        state: dict[str, Value] = self.module.state_dict(keep_vars=True)
        return {name: x for name, x in state.items() if isinstance(x, torch.Tensor)}

    def all_constants(self) -> dict[str, Value]:
        """Constants, and buffers that are not in the state dict."""
        loose = {s.name: s.tensor for s in self.state if s.persistent is False}
        return {**self.constants, **loose}


def _nothing() -> None:
    """A function without parameters."""


def _states(module: Module) -> Iterator[_State]:
    owned = dict(module.named_modules(remove_duplicate=False))
    for name, tensor in module.named_parameters(remove_duplicate=False):
        owner, _, key = name.rpartition(".")
        yield _State(name, InputKind.PARAMETER, owned[owner]._parameters, key, tensor, None)
    for name, tensor in module.named_buffers(remove_duplicate=False):
        owner, _, key = name.rpartition(".")
        loose = key in owned[owner]._non_persistent_buffers_set
        yield _State(name, InputKind.BUFFER, owned[owner]._buffers, key, tensor, not loose)


def _tensor_attributes(module: Module) -> Iterator[tuple[str, Value]]:
    """Tensors of modules that are neither parameters nor buffers."""
    for prefix, each in module.named_modules():
        for name, value in vars(each).items():
            if isinstance(value, torch.Tensor):
                yield f"{prefix}.{name}" if prefix else name, value


@contextlib.contextmanager
def _restored(module: Module) -> Iterator[None]:
    """A `with` block after which modules have the attributes that they had."""
    tables = ("_parameters", "_buffers", "_modules")
    before = [
        (each, dict(vars(each)), [dict(vars(each)[name]) for name in tables])
        for each in module.modules()
    ]
    try:
        yield
    finally:
        for each, attributes, entries in before:
            each.__dict__.clear()
            each.__dict__.update(attributes)
            for name, entry in zip(tables, entries, strict=True):
                table = each.__dict__[name]
                table.clear()
                table.update(entry)


def _idle(module: Module) -> Callable[[Value], Value]:
    """The forward of a dropout that does nothing, as the call that PyTorch makes."""

    def forward(input: Value) -> Value:  # noqa: A002
        return torch.ops.aten.dropout.default(input, module.p, False)

    return forward


def _class_name(module: Module) -> str:
    kind = type(module)
    return re.sub(r"^flambeau\b", "torch", f"{kind.__module__}.{kind.__qualname__}")


# ------------------------------------------------------------------------------ names


def _identifier(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9]", "_", name.removeprefix("self_"))


def _state_name(state: _State) -> str:
    return f"{'p' if state.kind is InputKind.PARAMETER else 'b'}_{_identifier(state.name)}"


def _input_name(path: Sequence[Value]) -> str:
    """The name of an input, from its path in the arguments."""
    keys = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", "")))) for key in path]
    return _identifier("_".join(keys).lower())


def _rename(graph: Graph, nodes: Sequence[Node], specs: Sequence[InputSpec]) -> None:
    """Gives placeholders the names of their specs, and other nodes that have these a number."""
    used: set[str] = set()

    def unique(name: str) -> str:
        base, number = name, 0
        numbered = re.fullmatch(r"(.+)_(\d+)", name)
        if name in used and numbered is not None:
            base, number = numbered[1], int(numbered[2])
        while name in used:
            number += 1
            name = f"{base}_{number}"
        used.add(name)
        return name

    for node, spec in zip(nodes, specs, strict=True):
        node.name = node.target = spec.arg.name = unique(spec.arg.name)
    unchanged = {*nodes, *graph.find_nodes(op="output")}
    for node in graph.nodes:
        if node not in unchanged:
            node.name = unique(node.name)
    graph._graph_namespace = _Namespace()
    for node in graph.nodes:
        graph._graph_namespace._rename_object(node, node.name)


def argument_of(value: Value) -> Value:
    """The description of a node, or of a value that is none."""
    if not isinstance(value, Node):
        return ConstantArgument("", value)
    held = value.meta.get("val")
    kinds = {
        torch.Tensor: TensorArgument, SymInt: SymIntArgument, SymFloat: SymFloatArgument,
        SymBool: SymBoolArgument,
    }  # fmt: skip
    for kind, argument in kinds.items():
        if isinstance(held, kind):
            return argument(value.name)
    return ConstantArgument(value.name, held)
