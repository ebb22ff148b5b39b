"""Graphs of exported programs as JSON: closed forms, so that reading one runs no code.

A size is a number, `["symbol", name]`, `["sum", [[factor, [atom, ...]], ...]]`, or an operation
with its operands. An argument of a node is a literal or an object with one key, its kind. A node
calls an operator by name, or one of few functions of numbers.
"""

from __future__ import annotations

import keyword
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import flambeau as torch
from flambeau._higher_order_ops import operators
from flambeau._higher_order_ops.operators import HigherOrderOperator
from flambeau._subclasses.symbolic_calls import made
from flambeau._subclasses.traced_tensor import geometry_of
from flambeau.export._environment import DimEnvironment
from flambeau.fx import Graph, GraphModule
from flambeau.fx.node import Node
from flambeau.ir import size, size_core, size_program
from flambeau.ir.failure import failure
from flambeau.ir.size import Size, SizeExpr
from flambeau.ir.size_program import Condition
from flambeau.library import aten_schemas
from flambeau.runtime.symbolic import SymBool, SymFloat, SymInt, SymNode, is_symbolic
from flambeau.serialization.sources import damaged

__all__ = ["Decoder", "Encoder"]

Value = Any  # an argument of a node
Json = Any

_FUNCTIONS: dict[str, Callable[..., Value]] = {
    name: getattr(operator, name)
    for name in (
        "getitem add sub mul truediv floordiv mod pow neg eq ne lt le gt ge and_ or_ not_ abs"
    ).split()
}
_FUNCTIONS |= {name: getattr(torch, name) for name in ("sym_max", "sym_min", "sym_not", "sym_float",
                                                       "sym_int", "sym_ite")}  # fmt: skip
_FUNCTIONS |= {"floor": math.floor, "ceil": math.ceil}
_NAMES = {id(function): name for name, function in _FUNCTIONS.items()}
_OBJECTS = (torch.dtype, torch.layout, torch.memory_format)
_OBJECT_NAMES = frozenset(
    (
        "float16 float32 float64 bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 "
        "float8_e5m2fnuz float8_e8m0fnu int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool "
        "complex32 complex64 "
        "complex128 strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc jagged "
        "contiguous_format preserve_format channels_last channels_last_3d"
    ).split()
)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_FORBIDDEN = frozenset({"aten::from_file"})  # opens files
_OPERATIONS = {
    "floordiv": size.floordiv, "mod": size.mod, "min": size_core.minimum, "max": size_core.maximum,
}  # fmt: skip
_RELATIONS = ("==", "!=", "<", "<=", "and", "or")
_OPS = ("placeholder", "get_attr", "call_function", "output")
_KINDS = {"int": (SymInt, int), "float": (SymFloat, float), "bool": (SymBool, bool)}


class Encoder:
    """Writes graphs.

    Attributes:
        symbols: least value, extent and example of each symbol.
    """

    def __init__(self, env: DimEnvironment | None) -> None:
        self.env = env
        self.symbols: dict[str, Json] = {}

    # ---- sizes
    def size(self, value: Size) -> Json:
        """A size."""
        if not isinstance(value, SizeExpr):
            return int(value)
        if value.kind == "symbol":
            return self._symbol(value)
        if value.kind == "sum":
            pairs = size_core.sorted_terms(value)
            return ["sum", [[factor, [self.size(x) for x in atoms]] for atoms, factor in pairs]]
        return [value.kind, *map(self.size, value.operands)]

    def _symbol(self, value: SizeExpr) -> Json:
        env = self.env
        if env is not None and value.name in env._definitions:
            problem = f"a size of the program is {env._definitions[value.name]}"
            raise failure(NotImplementedError, "export.save", problem, "an integer of other sizes")
        example = 2 if env is None else env.environment.hints.get(value.name, 2)
        limits = [value.least, value.extent if isinstance(value.extent, int) else None]
        if value.name not in self.symbols or limits != [0, None]:
            self.symbols[value.name] = [*limits, example]
        return ["symbol", value.name]

    def condition(self, value: Condition) -> Json:
        """A condition on sizes."""
        if value.conditions:
            return [value.operator, [self.condition(x) for x in value.conditions]]
        return [value.operator, self.size(value.left), self.size(value.right)]

    # ---- values
    def value(self, value: Value) -> Json:
        """The value of a node: a tensor without data, a number, a sequence of them."""
        if isinstance(value, torch.Tensor):
            geometry = geometry_of(value)
            device = getattr(value, "fake_device", value.device)
            return {
                "tensor": [
                    str(value.dtype), str(device), [self.size(x) for x in geometry.sizes],
                    [self.size(x) for x in geometry.strides], bool(value.requires_grad),
                ]
            }  # fmt: skip
        if is_symbolic(value):
            expression = value.node.expr
            kind = value.node.pytype.__name__
            if isinstance(expression, Condition):
                return {"symbolic": [kind, self.condition(expression)]}
            if isinstance(expression, SizeExpr | int):
                return {"symbolic": [kind, self.size(expression)]}
            return None
        if isinstance(value, tuple | list):
            return {"sequence": [self.value(x) for x in value]}
        return {"constant": self.argument(value)}

    def argument(self, value: Value) -> Json:
        """An argument of a node."""
        if value is None or isinstance(value, bool | int | str) and not is_symbolic(value):
            return value
        if isinstance(value, Node):
            return {"node": value.name}
        if isinstance(value, float):
            return {"float": value.hex()}
        if isinstance(value, complex):
            return {"complex": [value.real.hex(), value.imag.hex()]}
        if isinstance(value, tuple | list):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [self.argument(x) for x in value]}
        if isinstance(value, Mapping):
            return {"dict": [[str(k), self.argument(x)] for k, x in value.items()]}
        if isinstance(value, slice):
            return {"slice": [self.argument(x) for x in (value.start, value.stop, value.step)]}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        if isinstance(value, _OBJECTS):
            return {"object": str(value)}
        problem = f"a node has an argument of type {type(value)}"
        raise failure(NotImplementedError, "export.save", problem, "tensors, numbers and strings")

    def target(self, node: Node) -> Json:
        """The function of a node."""
        target = node.target
        if isinstance(target, str):
            return target
        if isinstance(target, HigherOrderOperator):
            return {"higher_order": target.name()}
        name = _NAMES.get(id(target))
        if name is not None:
            return {"function": name}
        if hasattr(target, "overloadpacket"):
            packet = target.overloadpacket
            text = f"{packet._qualified_op_name}.{target._overloadname or 'default'}"
            return {"operator": text}
        problem = f"a node calls {target}"
        raise failure(NotImplementedError, "export.save", problem, "operators of torch.ops")

    def graph(self, module: GraphModule) -> Json:
        """A graph, and those that it reads."""
        nodes = []
        for node in module.graph.nodes:
            nodes.append({
                "name": node.name, "op": node.op, "target": self.target(node),
                "args": self.argument(tuple(node.args)), "kwargs": self.argument(node.kwargs),
                "val": self.value(node.meta["val"]) if "val" in node.meta else None,
                "modules": [list((k, *v)) for k, v in node.meta.get("nn_module_stack", {}).items()],
            })  # fmt: skip
        inner = {
            name: self.graph(child)
            for name, child in module.named_children() if isinstance(child, GraphModule)
        }  # fmt: skip
        return {"nodes": nodes, "graphs": inner}


class Decoder:
    """Reads graphs.

    Args:
        symbols: as an encoder has them.
    """

    def __init__(self, symbols: Json) -> None:
        self.env = DimEnvironment()
        self.fakes = torch._subclasses.FakeTensorMode(
            allow_non_fake_inputs=True, shape_env=self.env
        )
        self.symbols: dict[str, SizeExpr] = {}
        for name, (least, extent, example) in symbols.items():
            if not re.fullmatch(r"[su]\d+", name) or not isinstance(example, int):
                raise damaged(f"{name[:40]!r} is no symbol")
            self.env.environment.create_symbol(max(example, least), name, minimum=least)
            self.symbols[name] = size.symbol(name, minimum=least, extent=extent)
            if name[0] == "u":
                self.env._unbacked.add(name)
            self.env._counts[name[0]] = max(self.env._counts[name[0]], int(name[1:]) + 1)

    # ---- sizes
    def size(self, value: Json) -> Size:
        """A size."""
        if isinstance(value, int):
            return value
        kind, *operands = value
        if kind == "symbol":
            return self.symbols[operands[0]]
        if kind == "sum":
            total: Size = 0
            for factor, atoms in operands[0]:
                total = size.add(total, size.mul(size.prod(map(self.size, atoms)), int(factor)))
            return total
        return _OPERATIONS[kind](*map(self.size, operands))

    def condition(self, value: Json) -> Condition:
        """A condition on sizes."""
        relation = value[0]
        if relation not in _RELATIONS:
            raise damaged(f"{relation!r} is no relation")
        if relation in ("and", "or"):
            return size_program._intern(relation, 0, 0, tuple(map(self.condition, value[1])))
        return size_program._intern(relation, self.size(value[1]), self.size(value[2]))

    # ---- values
    def value(self, value: Json) -> Value:
        """The value of a node."""
        if value is None:
            return None
        ((kind, content),) = value.items()
        if kind == "tensor":
            dtype, device, sizes, strides, grad = content
            numbers = [[self._number(x) for x in group] for group in (sizes, strides)]
            tensor = made(
                self.fakes, numbers[0], self._object(dtype), torch.device(device), numbers[1]
            )
            return tensor.requires_grad_() if grad else tensor
        if kind == "symbolic":
            symbolic, plain = _KINDS[content[0]]
            relation = isinstance(content[1], list) and content[1][0] in _RELATIONS
            expression = (self.condition if relation else self.size)(content[1])
            if isinstance(expression, int):
                return plain(expression)
            return symbolic(SymNode(expression, self.env, plain))
        if kind == "sequence":
            return tuple([self.value(x) for x in content])
        return self.argument(content, {})

    def _number(self, value: Json) -> Value:
        expression = self.size(value)
        if isinstance(expression, int):
            return expression
        return SymInt(SymNode(expression, self.env, int))

    def _object(self, name: str) -> Value:
        plain = str(name).removeprefix("torch.")
        if plain not in _OBJECT_NAMES:  # other names might be those of modules, which are imported
            raise damaged(f"{str(name)[:40]!r} is no dtype, layout or memory format")
        return getattr(torch, plain)

    def argument(self, value: Json, nodes: Mapping[str, Node]) -> Value:
        """An argument of a node.

        Args:
            value: its form.
            nodes: those before it, by name.
        """
        if not isinstance(value, dict):
            if isinstance(value, list | float):
                raise damaged("an argument has no kind")
            return value
        ((kind, content),) = value.items()
        if kind == "node":
            return nodes[content]
        if kind in ("tuple", "list"):
            items = [self.argument(x, nodes) for x in content]
            return tuple(items) if kind == "tuple" else items
        if kind == "dict":
            return {_identifier(k): self.argument(x, nodes) for k, x in content}
        if kind == "slice":
            return slice(*[self.argument(x, nodes) for x in content])
        simple: dict[str, Callable[[Value], Value]] = {
            "float": float.fromhex,
            "complex": lambda x: complex(*map(float.fromhex, x)),
            "device": torch.device,
            "object": self._object,
        }
        return simple[kind](content)

    def graph(self, form: Json) -> GraphModule:
        """A graph as a module."""
        graph = Graph()
        nodes: dict[str, Node] = {}
        attributes = {_identifier(name): self.graph(x) for name, x in form["graphs"].items()}
        for entry in form["nodes"]:
            name, kind = _identifier(entry["name"]), entry["op"]
            if kind not in _OPS or name in nodes:
                raise damaged(f"{kind!r} is no kind of node, or two have the name {name!r}")
            target = self._target(kind, entry["target"], attributes)
            args = self.argument(entry["args"], nodes)
            kwargs = self.argument(entry["kwargs"], nodes)
            node = graph.create_node(kind, target, args, kwargs, name=name)
            node.name = name
            graph._graph_namespace._rename_object(node, name)
            if entry["val"] is not None:
                node.meta["val"] = self.value(entry["val"])
            if entry["modules"]:
                stack = {str(k): (str(a), str(b)) for k, a, b in entry["modules"]}
                node.meta["nn_module_stack"] = stack
            nodes[name] = node
        return GraphModule(attributes, graph)

    def _target(self, kind: str, form: Json, attributes: Mapping[str, Value]) -> Value:
        if kind != "call_function":
            target = _identifier(form)
            if kind == "get_attr" and target not in attributes:
                raise damaged(f"there is no graph {target!r}")
            return target
        ((home, name),) = form.items()
        if home == "function":
            return _FUNCTIONS[name]
        if home == "higher_order":
            if name not in operators.__all__:
                raise damaged(f"{str(name)[:40]!r} is no operator")
            return getattr(operators, name)
        return _operator(name)


def _identifier(name: Json) -> str:
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name) or keyword.iskeyword(name):
        raise damaged(f"{str(name)[:40]!r} is no name")
    return name


def _operator(text: str) -> Value:
    """An overload by name.

    Raises:
        RuntimeError: there is no such operator, or it is none that graphs may call.
    """
    match = re.fullmatch(r"(\w+)::(\w+)\.(\w+)", text)
    if match is None:
        raise damaged(f"{text[:80]!r} is no operator")
    home, name, overload = match.groups()
    entry = aten_schemas.entry(name, overload) if home == "aten" else None
    if f"{home}::{name}" in _FORBIDDEN or (entry is not None and entry.scripted):
        raise damaged(f"{text[:80]!r} is no operator that graphs may call")
    try:
        target = getattr(getattr(getattr(torch.ops, home), name), overload)
    except AttributeError:
        raise failure(
            RuntimeError, "export.load", f"there is no operator {text[:80]!r}",
            "import the package that defines it first",
        ) from None  # fmt: skip
    if not hasattr(target, "overloadpacket"):
        raise damaged(f"{text[:80]!r} is no operator")
    return target
