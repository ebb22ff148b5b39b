"""Exported programs as trees of modules again: each part of the graph in the module that ran it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.export._guards import GuardsFn
from flambeau.export.exported_program import ExportedProgram
from flambeau.export.graph_signature import InputKind, OutputKind
from flambeau.fx import Graph, Interpreter
from flambeau.fx.node import Node, map_arg
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
    """

    def __init__(self, graph: Graph | None = None) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, *args: Value) -> Value:
        """Runs the graph."""
        assert self.graph is not None
        return Interpreter(self, graph=self.graph).run(*args)


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
        keys = list(self._in_spec.children_specs[1].context or [])
        ordered = {key: kwargs[key] for key in (*keys, *kwargs) if key in kwargs}
        leaves, spec = pytree.tree_flatten((args, ordered))
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
    those of the program.

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
        self.inputs: list[Node] = []
        (self.output,) = program.graph.find_nodes(op="output")
        outer = {*program.graph.find_nodes(op="placeholder"), self.output}
        self.nodes = [n for n in program.graph.nodes if n not in outer]

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
            inner = _call_at(nodes[position], depth + 1)
            end = position + 1
            if inner is None:
                self._copy(nodes[position], module, graph, path, copies)
            else:
                while end < len(nodes) and _call_at(nodes[end], depth + 1) == inner:
                    end += 1
                self._call(inner, module, graph, path, depth + 1, nodes[position:end], copies)
            position = end

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
        relative = inner.removeprefix(f"{path.partition('@')[0]}.") if path else inner
        args = tuple([self._read(n, module, graph, path, copies) for n in outer])
        call = graph.create_node("call_module", relative, args)
        if len(results) == 1:
            copies[results[0]] = call
            return
        for number, node in enumerate(results):
            copies[node] = graph.call_function(_item, (call, number))

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


def _item(value: Value, number: int) -> Value:
    return value[number]


def _call_at(node: Node, depth: int) -> str | None:
    """The call, at a depth of the tree, of which a node is a part."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    if len(stack) <= depth:
        return None
    return str(stack[depth][0])
