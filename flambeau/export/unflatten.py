"""Exported programs as trees of modules again: each part of the graph in the module that ran it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.export._guards import GuardsFn
from flambeau.export.exported_program import ExportedProgram, ModuleCallSignature
from flambeau.export.graph_signature import ConstantArgument, InputKind, OutputKind
from flambeau.fx import Graph, Interpreter
from flambeau.fx.experimental._operator_trace import _writes
from flambeau.fx.node import Node, map_arg
from flambeau.ir.failure import failure
from flambeau.runtime.symbolic import is_symbolic
from flambeau.utils import _pytree as pytree

__all__ = ["FlatArgsAdapter", "InterpreterModule", "UnflattenedModule", "unflatten"]

Value = Any  # an argument of a module
_STATE = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


class FlatArgsAdapter:
    """Changes the arguments of a call to those that a program was exported with."""

    def adapt(
        self, target_spec: Value, input_spec: Value, input_args: list[Value],
        metadata: dict[str, Value] | None = None, obj: Value = None,
    ) -> list[Value]:  # fmt: skip
        """The arguments that fit.

        Args:
            target_spec: structure that the program takes.
            input_spec: structure of the call.
            input_args: the call's leaves.
            metadata, obj: of the program, in PyTorch.
        """
        raise NotImplementedError("[FlatArgsAdapter] adapt is not defined\nhint: derive a class")


class InterpreterModule(torch.nn.Module):
    """A module that runs a graph; its children are those that the graph calls.

    Attributes:
        graph: the graph.
        signature: the form of its calls, where the program has it.
    """

    def __init__(self, graph: Graph | None = None) -> None:
        super().__init__()
        self.graph = graph
        self.signature: ModuleCallSignature | None = None

    def forward(self, *args: Value, **kwargs: Value) -> Value:
        """Runs the graph.

        Raises:
            TypeError: arguments of another structure than in the program.
            ValueError: another number or text than in the program, which is a constant of it.
        """
        assert self.graph is not None
        signature = self.signature
        if signature is None:
            return Interpreter(self, graph=self.graph).run(*args)
        leaves = _leaves((args, _ordered(kwargs, signature.in_spec)), signature.in_spec)
        for leaf, argument in zip(leaves, signature.inputs, strict=True):
            if isinstance(argument, ConstantArgument) and leaf != argument.value:
                raise ValueError(f"expected {argument.value!r} as in the program, got {leaf!r}")
        results = Interpreter(self, graph=self.graph).run(*leaves)
        return pytree.tree_unflatten(results, signature.out_spec)


class UnflattenedModule(torch.nn.Module):
    """A program as a tree of modules. See `unflatten`.

    Attributes:
        graph: of the outermost module.
    """

    def __init__(
        self, export_module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None
    ) -> None:
        super().__init__()
        self.graph = Graph()
        self.flat_args_adapter = flat_args_adapter
        spec = export_module.call_spec
        self._in_spec, self._out_spec = spec.in_spec, spec.out_spec
        self._guards = [GuardsFn(export_module)]  # in a list: it is no child
        self._outer = InterpreterModule()
        del self._modules["_outer"]
        _Builder(export_module, self).build()

    def forward(self, *args: Value, **kwargs: Value) -> Value:
        """Runs the program.

        Raises:
            TypeError: arguments of another structure.
            AssertionError: sizes for which the program does not hold.
        """
        leaves, spec = pytree.tree_flatten((args, _ordered(kwargs, self._in_spec)))
        if spec != self._in_spec:
            if self.flat_args_adapter is None:
                raise TypeError(
                    "There is no flat args adapter specified. Are you sure you are calling this "
                    f"with the right arguments?\nhint: expected {self._in_spec}, got {spec}"
                )
            leaves = self.flat_args_adapter.adapt(self._in_spec, spec, leaves)
        self._guards[0](*leaves)
        results = Interpreter(self, graph=self.graph).run(*leaves)
        return pytree.tree_unflatten(results, self._out_spec)


def unflatten(
    module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None
) -> UnflattenedModule:
    """A program as a tree of modules of the shape that the exported one had.

    A module that ran several times has a child for each call: `layer`, `layer@1`. Parameters are
    those of the program. Modules in `preserve_module_call_signature` are called with the arguments
    that they had, so that another module may take their place.

    Args:
        module: the program.
        flat_args_adapter: changes arguments of another structure.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        >>> program = torch.export.export(model, (torch.ones(2, 3),))
        >>> tree = torch.export.unflatten(program)
        >>> [name for name, _ in tree.named_children()]
        ['0', '1']
        >>> torch.equal(tree(torch.ones(2, 3)), model(torch.ones(2, 3)))
        True
    """
    return UnflattenedModule(module, flat_args_adapter)


class _Builder:
    """Divides a graph.

    Args:
        program: the program.
        root: gets the modules.
    """

    def __init__(self, program: ExportedProgram, root: UnflattenedModule) -> None:
        self.program, self.root = program, root
        self.states: dict[Node, str] = {}
        self.named = {node.name: node for node in program.graph.nodes}
        self.signatures = {x.fqn: x.signature for x in program.module_call_graph if x.fqn}
        self.inputs: list[Node] = []
        (self.output,) = program.graph.find_nodes(op="output")
        outer = {*program.graph.find_nodes(op="placeholder"), self.output}
        self.nodes = [n for n in program.graph.nodes if n not in outer]
        self.called: set[str] = set()
        self.written = {
            value: str(spec.target)
            for spec, value in zip(program.graph_signature.output_specs, self.output.args[0])
            if spec.kind is OutputKind.BUFFER_MUTATION and isinstance(value, Node)
        }
        self.stacks: dict[Node, list[str]] = {}
        for node in reversed(self.nodes):  # a size belongs to its first user
            stack = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
            self.stacks[node] = stack or next((self.stacks.get(n, []) for n in node.users), [])

    def build(self) -> None:
        """Makes the modules."""
        signature = self.program.graph_signature
        placeholders = self.program.graph.find_nodes(op="placeholder")
        for entry in self.program.module_call_graph:
            self._module_at(entry.fqn)
        for spec, node in zip(signature.input_specs, placeholders, strict=True):
            if spec.kind in _STATE:
                self.states[node] = str(spec.target)
                self._assign(str(spec.target), self.program._tensor(spec), spec)
            else:
                self.inputs.append(node)
        for node in self.nodes:
            written = node.args[0] if node.args and _writes(node.target) else None
            if isinstance(written, Node) and written in self.states:
                self.states[node] = self.states[written]
        copies: dict[Node, Node] = {}
        for node in self.inputs:
            copies[node] = self.root.graph.placeholder(node.name)
        self._fill(self.root, self.root.graph, "", 0, self.nodes, copies)
        self._finish(copies)

    def _finish(self, copies: dict[Node, Node]) -> None:
        graph, results = self.root.graph, []
        targets = {node.name: node for node in self.inputs}
        specs = self.program.graph_signature.output_specs
        for spec, value in zip(specs, self.output.args[0], strict=True):
            mutation = spec.kind is OutputKind.BUFFER_MUTATION
            if (
                mutation and self.states.get(value) == spec.target
            ):  # the module that has it wrote it
                continue
            value = self._read(value, self.root, graph, "", copies)
            if spec.kind is OutputKind.USER_OUTPUT:
                results.append(value)
                continue
            if spec.kind is OutputKind.USER_INPUT_MUTATION:
                target = copies[targets[str(spec.target)]]
            else:
                target = graph.get_attr(str(spec.target))
            graph.call_function(torch.ops.aten.copy_.default, (target, value))
        graph.output(tuple(results))

    def _module_at(self, path: str) -> Value:
        module: Value = self.root
        for part in path.split(".") if path else ():
            if part not in module._modules:
                module.add_module(part, InterpreterModule())
            module = module._modules[part]
        return module

    def _assign(self, name: str, tensor: Value, spec: Value) -> None:
        path, _, key = name.rpartition(".")
        owner = self._module_at(path)
        if isinstance(tensor, torch.nn.Parameter):
            owner.register_parameter(key, tensor)
        else:
            owner.register_buffer(key, tensor, persistent=bool(spec.persistent))

    # ---- parts
    def _fill(
        self, module: Value, graph: Graph, path: str, depth: int, nodes: Sequence[Node],
        copies: dict[Node, Node],
    ) -> None:  # fmt: skip
        """Copies nodes to the graph of a module; those of its children become calls."""
        position = 0
        while position < len(nodes):
            inner = self._call_at(nodes[position], depth + 1)
            end = position + 1
            if inner is None or inner in self.called:  # what follows its call is not in it
                self._copy(nodes[position], module, graph, path, copies)
            else:
                self.called.add(inner)
                while end < len(nodes) and self._call_at(nodes[end], depth + 1) == inner:
                    end += 1
                self._call(inner, module, graph, path, depth + 1, nodes[position:end], copies)
            position = end

    def _call_at(self, node: Node, depth: int) -> str | None:
        """The call, at a depth of the tree, of which a node is a part."""
        stack = self.stacks[node]
        return stack[depth] if depth < len(stack) else None

    def _copy(
        self, node: Node, module: Value, graph: Graph, path: str, copies: dict[Node, Node]
    ) -> None:
        if isinstance(node.target, str):  # a graph that an operator takes
            child = getattr(self.program.graph_module, str(node.target))
            module.add_module(str(node.target), child)
            copies[node] = graph.create_node("get_attr", node.target, name=node.name)
            return
        args, kwargs = (
            map_arg(x, lambda n: self._read(n, module, graph, path, copies))
            for x in (node.args, node.kwargs)
        )
        copies[node] = graph.create_node(node.op, node.target, args, kwargs, name=node.name)
        copies[node].meta.update(node.meta)

    def _read(
        self, value: Value, module: Value, graph: Graph, path: str, copies: dict[Node, Node]
    ) -> Value:
        """A node of this graph in place of one of the program's."""
        if not isinstance(value, Node):
            return value
        if value not in copies:
            name = self.states[value]
            prefix = f"{path.split('@')[0]}." if path else ""
            copies[value] = graph.get_attr(name.removeprefix(prefix))
        return copies[value]

    def _call(
        self, inner: str, module: Value, graph: Graph, path: str, depth: int,
        nodes: Sequence[Node], copies: dict[Node, Node],
    ) -> None:  # fmt: skip
        """A call of a child that has these nodes."""
        name = inner.partition("@")[0]
        child = self._child(inner, module)
        relative = inner.removeprefix(f"{path.partition('@')[0]}.") if path else inner
        if (signature := self.signatures.get(inner)) is not None:
            child.graph, child.signature = Graph(), signature
            self._fill_signature(child, inner, depth, nodes)
            self._call_signature(relative, signature, module, graph, path, nodes, copies)
            return
        inside = set(nodes)
        outer: list[Node] = []
        for node in nodes:
            for source in node.all_input_nodes:
                own = source in self.states and self.states[source].startswith(f"{name}.")
                if source not in inside and not own and source not in outer:
                    outer.append(source)
        results = [n for n in nodes if any(user not in inside for user in n.users)]
        child.graph = Graph()
        within: dict[Node, Node] = {n: child.graph.placeholder(n.name) for n in outer}
        self._fill(child, child.graph, inner, depth, nodes, within)
        values = tuple([within[n] for n in results])
        child.graph.output(values[0] if len(values) == 1 else values)
        args = tuple([self._read(n, module, graph, path, copies) for n in outer])
        call = graph.create_node("call_module", relative, args)
        if len(results) == 1:
            copies[results[0]] = call
            return
        for number, node in enumerate(results):
            copies[node] = graph.call_function(_item, (call, number))

    def _fill_signature(
        self, child: InterpreterModule, inner: str, depth: int, nodes: Sequence[Node]
    ) -> None:
        """Copies nodes to a child whose inputs are the leaves of its arguments."""
        signature, graph = child.signature, child.graph
        assert signature is not None and graph is not None
        within: dict[Node, Node] = {}
        for number, argument in enumerate(signature.inputs):
            placeholder = graph.placeholder(argument.name or f"constant_{number}")
            if argument.name:
                within[self.named[argument.name]] = placeholder
        inside, own = set(nodes), f"{inner.partition('@')[0]}."
        for node in nodes:
            for source in node.all_input_nodes:
                if source not in inside and not self.states.get(source, "").startswith(own):
                    self._recompute(source, inner, graph, within)
        self._fill(child, graph, inner, depth, nodes, within)
        for node in inside & self.written.keys():
            target = self.written[node]
            if target.startswith(own):
                buffer = graph.get_attr(target.removeprefix(own))
                graph.call_function(torch.ops.aten.copy_.default, (buffer, within[node]))
                self.states[node] = target
        graph.output(tuple([self._leaf(x, child, graph, inner, within) for x in signature.outputs]))

    def _recompute(self, node: Node, inner: str, graph: Graph, copies: dict[Node, Node]) -> None:
        """Computes a size again in another graph than the program's first use of it."""
        if node in copies:
            return
        if node.op != "call_function" or not is_symbolic(node.meta.get("val")):
            problem = f"{inner} or what follows it uses {node.name}, which its call does not pass"
            hint = "export without preserve_module_call_signature for this module"
            raise failure(NotImplementedError, "unflatten", problem, hint)
        at = _size_among(copies, node.meta["val"].node.expr)
        if at is not None:
            copies[node] = graph.call_function(torch.ops.aten.sym_size.int, at)
            return
        for source in node.all_input_nodes:
            self._recompute(source, inner, graph, copies)
        copies[node] = graph.node_copy(node, lambda x: copies[x])

    def _leaf(
        self, argument: Value, module: Value, graph: Graph, path: str, copies: dict[Node, Node]
    ) -> Value:
        """A leaf of arguments or results, in a graph."""
        if isinstance(argument, ConstantArgument) and not argument.name:
            return argument.value
        node = self.named[argument.name]
        if node not in copies and node not in self.states:
            problem = f"the call of {path or 'the program'} needs {node.name}, which is not in it"
            hint = "export without preserve_module_call_signature for this module"
            raise failure(NotImplementedError, "unflatten", problem, hint)
        return self._read(node, module, graph, path, copies)

    def _call_signature(
        self, target: str, signature: ModuleCallSignature, module: Value, graph: Graph, path: str,
        nodes: Sequence[Node], copies: dict[Node, Node],
    ) -> None:  # fmt: skip
        """The call of a child in the form that the exported module had."""
        leaves = [self._leaf(x, module, graph, path, copies) for x in signature.inputs]
        specs = []
        for spec in (signature.in_spec, signature.out_spec):
            name = f"_spec_{sum(key.startswith('_spec_') for key in vars(module))}"
            setattr(module, name, spec)
            specs.append(graph.get_attr(name))
        both = graph.call_function(pytree.tree_unflatten, (leaves, specs[0]))
        positional, named = (graph.call_function(_item, (both, k)) for k in range(2))
        args_spec, kwargs_spec = signature.in_spec.children_specs
        args = [graph.call_function(_item, (positional, k)) for k in range(args_spec.num_children)]
        kwargs = {key: graph.call_function(_item, (named, key)) for key in kwargs_spec.context}
        call = graph.create_node("call_module", target, tuple(args), kwargs)
        results = graph.call_function(_leaves, (call, specs[1]))
        for number, argument in enumerate(signature.outputs):
            if argument.name:
                item = graph.call_function(_item, (results, number))
                copies[self.named[argument.name]] = item
        inside = set(nodes)
        for node in nodes:
            if node not in self.states and any(user not in inside for user in node.users):
                self._recompute(node, target, graph, copies)

    def _child(self, inner: str, parent: Value) -> Value:
        """The module of a call; of a further call of a module one that shares its state."""
        name, _, number = inner.partition("@")
        first = self._module_at(name)
        if not number:
            return first
        child = InterpreterModule()
        parent.add_module(f"{name.rpartition('.')[2]}@{number}", child)
        for table in ("_parameters", "_buffers"):
            getattr(child, table).update(getattr(first, table))
        for key, each in first.named_children():
            child.add_module(key, each)
        return child


def _size_among(copies: dict[Node, Node], expression: Value) -> tuple[Node, int] | None:
    """A tensor of a graph, and its dimension that has a size; None: there is none."""
    for source, copy in copies.items():
        value = source.meta.get("val")
        for dim, extent in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if is_symbolic(extent) and extent.node.expr == expression:
                return copy, dim
    return None


def _item(value: Value, key: Value) -> Value:
    return value[key]


def _ordered(kwargs: dict[str, Value], spec: Value) -> dict[str, Value]:
    """Arguments by name in the order of a structure of `(args, kwargs)`."""
    keys = list(spec.children_specs[1].context or [])
    return {key: kwargs[key] for key in (*keys, *kwargs) if key in kwargs}


def _leaves(value: Value, spec: Value) -> list[Value]:
    """The leaves of a value of a structure.

    Raises:
        TypeError: it has another one.
    """
    leaves, actual = pytree.tree_flatten(value)
    if actual != spec:
        raise TypeError(f"expected {spec}, got {actual}\nhint: the structure in the program")
    return leaves
