"""The module of an exported program: its graph with the state as attributes, and checks of inputs.

A call is refused whose arguments have another structure, or sizes for which the graph does not
hold. The message is the condition, in terms of the arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import flambeau as torch
from flambeau._subclasses.traced_tensor import geometry_of
from flambeau.export._environment import shown
from flambeau.export.dynamic_shapes import int_oo
from flambeau.export.graph_signature import (
    ConstantArgument,
    InputKind,
    OutputKind,
)
from flambeau.fx import Graph, GraphModule
from flambeau.fx import _pytree as fx_pytree
from flambeau.fx._codegen import _PyTreeInfo
from flambeau.fx._pytree_codegen import _PyTreeCodeGen
from flambeau.fx.node import Node
from flambeau.ir import size
from flambeau.ir.size import Size, SizeExpr
from flambeau.ir.size_program import evaluate_condition
from flambeau.utils import _pytree as pytree

__all__ = ["GuardsFn", "lowered_module"]

Value = Any  # an argument of a program
_CONSTANTS = (int, float, bool, str, type(None))
_STATE = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


class GuardsFn(torch.nn.Module):
    """Checks that a graph holds for arguments.

    Args:
        program: the exported program.
    """

    def __init__(self, program: Value) -> None:
        super().__init__()
        nodes = program.graph.find_nodes(op="placeholder")
        self.inputs: list[tuple[str, Value]] = []
        for spec, node in zip(program.graph_signature.input_specs, nodes, strict=True):
            if spec.kind is InputKind.USER_INPUT:
                value = node.meta.get("val")
                if isinstance(spec.arg, ConstantArgument):
                    value = spec.arg.value
                self.inputs.append((spec.arg.name, value))
        self.ranges = dict(program.range_constraints)
        self.conditions = list(program._conditions)

    def forward(self, *args: Value) -> None:
        """Raises unless the graph holds.

        Args:
            args: the arguments, flat.

        Raises:
            AssertionError: it does not.
        """
        values: dict[str, int] = {}
        texts: dict[str, str] = {}
        pairs = list(self._pairs(args))
        for expression, text, number in pairs:
            if isinstance(expression, SizeExpr) and expression.kind == "symbol":
                values.setdefault(expression.name, number)
                texts.setdefault(expression.name, text)
        for expression, text, number in pairs:
            if isinstance(expression, SizeExpr):
                _solve(expression, text, number, values, texts)
        for expression, text, number in pairs:
            _check(expression, text, number, values, texts)
        self._check_ranges(values, texts)
        for condition in self.conditions:
            names = size_names(condition)
            if names <= values.keys() and not evaluate_condition(condition, values):
                _fail(shown(condition, texts))

    def _pairs(self, args: Sequence[Value]) -> Iterator[tuple[Value, str, Value]]:
        for (name, expected), value in zip(self.inputs, args, strict=True):
            if isinstance(expected, torch.Tensor):
                if not isinstance(value, torch.Tensor):
                    _fail(f"isinstance({name}, torch.Tensor)")
                sizes = geometry_of(expected).sizes
                if len(sizes) != value.ndim:
                    _fail(f"len({name}.size()) == {len(sizes)}")
                for dim, (extent, number) in enumerate(zip(sizes, value.shape, strict=True)):
                    yield extent, f"{name}.size()[{dim}]", number
            elif hasattr(expected, "node"):
                yield expected.node.expr, name, value
            elif isinstance(expected, _CONSTANTS):
                if type(value) is not type(expected) or value != expected:
                    _fail(f"{name} == {expected!r}")

    def _check_ranges(self, values: dict[str, int], texts: dict[str, str]) -> None:
        for expression, (lower, upper) in self.ranges.items():
            if not size.free_symbols(expression) <= values.keys():
                continue
            number = size.evaluate(expression, values)
            text = _renamed(str(expression), texts)
            if number < lower and lower > 2:
                _fail(f"{text} >= {lower}")
            if upper != int_oo and number > upper:
                _fail(f"{text} <= {upper}")


def size_names(condition: Value) -> frozenset[str]:
    """Names of the symbols in a condition."""
    names: frozenset[str] = frozenset()
    for part in condition.conditions:
        names |= size_names(part)
    for side in (condition.left, condition.right):
        names |= size.free_symbols(side)
    return names


def _solve(
    expression: SizeExpr, text: str, number: int, values: dict[str, int], texts: dict[str, str]
) -> None:
    """Finds the symbol of a linear expression, where nothing else says it."""
    names = size.free_symbols(expression) - values.keys()
    if len(names) != 1:
        return
    (name,) = names
    affine = size.affine_in(expression, [name])
    if affine is None or not isinstance(affine[1], int):
        return
    factor, offset = affine[0][name], affine[1]
    if not isinstance(factor, int):
        return
    if (number - offset) % factor:
        shown = text if not offset else f"({text} - {offset})"
        _fail(f"{shown} % {factor} == 0")
    values[name] = (number - offset) // factor
    texts[name] = text if not offset else f"({text} - {offset})"
    if factor != 1:
        texts[name] = f"({texts[name]} // {factor})"


def _check(
    expression: Size, text: str, number: int, values: dict[str, int], texts: dict[str, str]
) -> None:
    if isinstance(expression, int):
        if expression != number:
            _fail(f"{text} == {expression}")
    elif size.free_symbols(expression) <= values.keys():
        if size.evaluate(expression, values) != number:
            _fail(f"{text} == {_renamed(str(expression), texts)}")


def _renamed(text: str, texts: dict[str, str]) -> str:
    return re.sub(r"\b[sud]\d+\b", lambda match: texts.get(match[0], match[0]), text)


def _fail(condition: str) -> NoReturn:
    raise AssertionError(
        f"Guard failed: {condition}\n"
        "hint: pass arguments for which this is true, or export with other dynamic_shapes"
    )


# ------------------------------------------------------------------------------ the module


def lowered_module(program: Value, check_guards: bool) -> GraphModule:
    """A module that computes what the exported one did, on the state of the program.

    Args:
        program: the exported program.
        check_guards: whether each call checks sizes.
    """
    signature, root = program.graph_signature, torch.nn.Module()
    graph = Graph()
    states: dict[str, Node] = {}
    users: list[Node] = []
    copies: dict[Node, Node] = {}
    for spec, node in zip(
        signature.input_specs, program.graph.find_nodes(op="placeholder"), strict=True
    ):
        if spec.kind in _STATE:
            _assign(root, spec.target, program._tensor(spec), spec)
            copies[node] = graph.create_node(
                "get_attr", spec.target, name=_identifier(str(spec.target))
            )
            states[spec.target] = copies[node]
        else:
            copies[node] = graph.create_node("placeholder", node.target, name=node.name)
            users.append(copies[node])
        copies[node].meta.update(node.meta)
    if check_guards:
        root.add_module("_guards_fn", GuardsFn(program))
        graph.create_node("call_module", "_guards_fn", tuple(users), name="_guards_fn")
    for name, child in program.graph_module.named_children():
        root.add_module(name, child)
    (output,) = program.graph.find_nodes(op="output")
    for node in program.graph.nodes:
        if node not in copies and node is not output:
            copies[node] = graph.node_copy(node, lambda x: copies[x])
    results = _written(
        graph, signature, [_copied(x, copies) for x in output.args[0]], states, users
    )
    graph.output(tuple(results))
    entry = program.module_call_graph[0].signature
    names = entry.forward_arg_names or [node.name for node in users]
    graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, entry.in_spec, entry.out_spec)))
    _set_parameters(graph, entry, names)
    module = GraphModule(root, graph)
    _let_flatten(entry.in_spec)
    module.register_forward_pre_hook(_checked(entry.in_spec), with_kwargs=True)
    module.train = _refuse_mode("train")  # type: ignore[method-assign]
    module.eval = _refuse_mode("eval")  # type: ignore[method-assign]
    return module


def _set_parameters(graph: Graph, entry: Value, names: Sequence[str]) -> None:
    """Lets generated code take positional arguments and those by name."""
    positional, named = entry.in_spec.children_specs
    keys = list(named.context or [])
    count = positional.num_children
    plain = [name for name in names if name not in keys]
    if len(plain) < count:
        plain = [*plain, *[f"arg{k}" for k in range(len(plain), count)]]
    graph.set_codegen(_ArgumentCode(plain[:count], keys, entry.in_spec, entry.out_spec))


class _ArgumentCode(_PyTreeCodeGen):
    """Code of a function of positional arguments, and others by name."""

    def __init__(self, plain: Sequence[str], keys: Sequence[str], *specs: Value) -> None:
        super().__init__(_PyTreeInfo([*plain, *keys], *specs))
        self.plain, self.keys = list(plain), list(keys)

    def gen_var_bindings(self, fn_args: list[str], free_vars: list[str], expanded_def: bool) -> str:
        """The statement that flattens the arguments."""
        names = [name.split(":")[0].split("=")[0].strip() for name in free_vars]
        named = ", ".join(f"{key!r}: {key}" for key in self.keys)
        inputs = f"([{', '.join(self.plain)}], {{{named}}})"
        return f"\n    {', '.join(names)}, = fx_pytree.tree_flatten_spec({inputs}, self._in_spec)"


def _let_flatten(spec: Value) -> None:
    """Lets generated code flatten the classes in a structure, as `torch.utils._pytree` does."""
    if spec.type is not None and spec.type not in fx_pytree.SUPPORTED_NODES:
        fx_pytree.register_pytree_flatten_spec(spec.type, _items)
    for child in spec.children_specs:
        _let_flatten(child)


def _items(value: Value, spec: Value) -> list[Value]:
    return pytree.tree_leaves(value, is_leaf=lambda x: x is not value)


def _identifier(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _copied(value: Value, copies: dict[Node, Node]) -> Value:
    return copies[value] if isinstance(value, Node) else value


def _written(
    graph: Graph, signature: Value, values: Sequence[Value], states: dict[str, Node],
    users: Sequence[Node],
) -> list[Value]:  # fmt: skip
    """Writes new values of state and inputs, and returns the user's results."""
    results: list[Value] = []
    inputs = {node.target: node for node in users}
    for spec, value in zip(signature.output_specs, values, strict=True):
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
            graph.call_function(torch.ops.aten.copy_.default, (states[spec.target], value))
        elif spec.kind is OutputKind.USER_INPUT_MUTATION:
            graph.call_function(torch.ops.aten.copy_.default, (inputs[spec.target], value))
        else:
            results.append(value)
    return results


def _assign(root: Value, target: str, value: Value, spec: Value) -> None:
    """Makes a tensor an attribute of a tree of modules."""
    *path, name = target.split(".")
    for part in path:
        if part not in root._modules:
            root.add_module(part, torch.nn.Module())
        root = root._modules[part]
    if spec.kind is InputKind.PARAMETER and isinstance(value, torch.nn.Parameter):
        root.register_parameter(name, value)
    else:
        root.register_buffer(name, value, persistent=bool(spec.persistent))


def _checked(in_spec: Value) -> Value:
    """A hook that compares the structure of arguments with the recorded one."""

    def check(module: Value, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
        keys = list(in_spec.children_specs[1].context or [])
        if set(kwargs) != set(keys):
            raise ValueError(
                "Ran into a kwarg keyword mismatch: Got the following keywords "
                f"{list(kwargs)} but expected {keys}\nhint: pass arguments as they were exported"
            )
        kwargs = {key: kwargs[key] for key in keys}
        _, spec = pytree.tree_flatten((args, kwargs))
        if spec != in_spec:
            raise ValueError(
                f"Trying to flatten user inputs with exported input tree spec: \n{in_spec}\n"
                f"but actually got inputs with tree spec of: \n{spec}.\nPlease check that the "
                "inputs have the same number and type of args and kwargs as the ones you used "
                "when tracing."
            )
        return args, kwargs

    return check


def _refuse_mode(name: str) -> Value:
    def refuse(*args: Value) -> NoReturn:
        raise NotImplementedError(
            f"Calling {name}() is not supported: an exported program does what the module did in "
            f"its mode\nhint: export the module after {name}()"
        )

    return refuse
