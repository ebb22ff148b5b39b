"""`Graph`: nodes in the order in which they run."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import flambeau as torch
from flambeau.fx import _function_names
from flambeau.fx._codegen import (
    CodeGen,
    PythonCode,
    TransformCodeFunc,
    _color_codes,
    _color_fns,
    _format_target,
    _identity,
    _make_color_fn,
    _origin_type_map,
    _parse_stack_trace,
    _ParsedStackTrace,
    _PyTreeInfo,
    inplace_methods,
    magic_methods,
    reflectable_magic_methods,
)
from flambeau.fx._compatibility import compatibility
from flambeau.fx._names import (
    _custom_builtins,
    _CustomBuiltin,
    _illegal_names,
    _is_from_torch,
    _is_magic,
    _Namespace,
    _register_custom_builtin,
    _snake_case,
)
from flambeau.fx._pytree_codegen import _BoxedCodeGen, _PyTreeCodeGen
from flambeau.fx.node import (
    Argument,
    Node,
    Target,
    _get_qualified_name,
    _type_repr,
    dtype_abbrs,
    map_arg,
)
from flambeau.ir.lock import late

if TYPE_CHECKING:
    from flambeau.fx._symbolic_trace import Tracer
    from flambeau.fx.graph_module import GraphModule

__all__ = ["CodeGen", "Graph", "PythonCode"]

# Names of this module in PyTorch that are written elsewhere here.
_ELSEWHERE = (
    _BoxedCodeGen, _CustomBuiltin, _ParsedStackTrace, _PyTreeCodeGen, _PyTreeInfo, _color_codes,
    _color_fns, _custom_builtins, _format_target, _get_qualified_name, _identity, _illegal_names,
    _is_from_torch, _make_color_fn, _origin_type_map, _parse_stack_trace, _register_custom_builtin,
    _type_repr, dtype_abbrs, inplace_methods, magic_methods, reflectable_magic_methods,
)  # fmt: skip

_legal_ops = dict.fromkeys(
    ["call_function", "call_method", "get_attr", "call_module", "placeholder", "output"]
)
_MISSING: Any = object()


class _InsertPoint:
    """A `with` block whose new nodes go to a chosen place."""

    def __init__(self, graph: Graph, new_insert: Callable[..., None]) -> None:
        self.graph = graph
        self.orig_insert, graph._insert = graph._insert, new_insert

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        self.graph._insert = self.orig_insert


class _node_list:
    """The nodes of a graph: a view that follows its changes."""

    def __init__(self, graph: Graph, direction: Literal["_prev", "_next"] = "_next") -> None:
        if direction not in ("_next", "_prev"):
            raise AssertionError("direction must be '_next' or '_prev'")
        self.graph = graph
        self.direction = direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Any]:
        root, direction = self.graph._root, self.direction
        current = getattr(root, direction)
        while current is not root:
            if not current._erased:
                yield current
            current = getattr(current, direction)

    def __reversed__(self) -> Iterator[Any]:
        other: Literal["_prev", "_next"] = "_next" if self.direction == "_prev" else "_prev"
        return iter(_node_list(self.graph, other))


class _FindNodesLookupTable:
    """Nodes by kind, functions by target too: `find_nodes` without a walk."""

    def __init__(self) -> None:
        self.table: dict[tuple[str, Target | None], dict[Node, None]] = {}

    def _key(self, node: Node) -> tuple[str, Target | None]:
        return node.op, node.target if node.op == "call_function" else None

    def __contains__(self, node: Node) -> bool:
        return node in self.table.get(self._key(node), ())

    def insert(self, node: Node) -> None:
        """Adds a node."""
        self.table.setdefault(self._key(node), {})[node] = None

    def remove(self, node: Node) -> None:
        """Takes a node away."""
        self.table[self._key(node)].pop(node)

    def find_nodes(self, *, op: str, target: Target | None = None) -> list[Any]:
        """Nodes of a kind and target, in the order of their creation."""
        if op == "call_function":
            if target is None:
                raise AssertionError("target must not be None for call_function op")
            return [*self.table.get((op, target), ())]
        nodes = [*self.table.get((op, None), ())]
        return nodes if target is None else [node for node in nodes if node.target == target]


@compatibility(is_backward_compatible=True)
class Graph:
    """A program as a list of nodes, which can be changed and printed as Python source.

    Example:
        >>> graph = torch.fx.Graph()
        >>> x = graph.placeholder("x")
        >>> y = graph.call_function(torch.relu, (x,))
        >>> _ = graph.output(y)
        >>> print(graph)
        graph():
            %x : [num_users=1] = placeholder[target=x]
            %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), kwargs = {})
            return relu
    """

    def __init__(
        self,
        owning_module: GraphModule | None = None,
        tracer_cls: type[Tracer] | None = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:
        self._root: Node = Node(self, "", "root", "", (), {})
        self._used_names: dict[str, int] = {}
        self._insert = self._root.prepend
        self._len = 0
        self._positions_hold = True
        self._graph_namespace = _Namespace()
        self._owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen = CodeGen()
        self._co_fields: dict[str, Any] = {}
        self._find_nodes_lookup_table = _FindNodesLookupTable()

    # ------------------------------------------------------------------------ nodes
    @property
    def owning_module(self) -> GraphModule | None:
        """The module that runs this graph, if any."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: GraphModule | None) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> Any:
        """All nodes in order. The view can be walked in reverse and has a length."""
        return _node_list(self)

    @compatibility(is_backward_compatible=False)
    def output_node(self) -> Node:
        """The output, which is the last node."""
        last = next(iter(reversed(self.nodes)))
        if last.op != "output":
            raise AssertionError(f"Expected output node, got op={last.op}")
        return last

    @compatibility(is_backward_compatible=False)
    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Any]:
        """Nodes of one kind.

        Args:
            op: the kind, "call_function" say.
            target: the function, or the name of method, module or attribute.
            sort: whether they come in the order of the graph.

        Returns:
            list: the nodes.
        """
        nodes = self._find_nodes_lookup_table.find_nodes(op=op, target=target)
        return sorted(nodes) if sort else nodes

    def _insert_position(self, node: Node) -> None:
        if node._next is self._root and self._positions_hold:
            node._position = node._prev._position + 1
        else:
            self._positions_hold = False

    def _position_of(self, node: Node) -> int:
        """The index of a node; all are numbered anew after nodes were inserted between others."""
        if not self._positions_hold:
            for index, each in enumerate(self.nodes, 1):
                each._position = index
            self._positions_hold = True
        return node._position

    @compatibility(is_backward_compatible=True)
    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Argument | None:
        """Copies the nodes of a graph into this one.

        Args:
            g: the graph.
            val_map: filled with a node of this graph for each of the other; placeholders may be
                in it before, which are not copied then.
            return_output_node: whether the output node is returned as well.

        Returns:
            Argument: the value that the graph returns; None if it has no output.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                value = map_arg(node.args[0], lambda n: val_map[n])
                return (value, node) if return_output_node else value
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        """A copy without the owning module."""
        memo = {} if memo is None else memo
        duplicate = Graph(tracer_cls=self._tracer_cls)
        extras = duplicate.graph_copy(self, val_map := {}, return_output_node=True)
        duplicate._codegen = copy.deepcopy(self._codegen)
        if extras is not None:
            value, old = extras
            new = duplicate.output(value, type_expr=getattr(old, "type", None))
            new.meta = copy.copy(old.meta)
            new.name = old.name
        memo.update({id(old): new for old, new in val_map.items()})
        return duplicate

    @compatibility(is_backward_compatible=True)
    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Adds a node at the insert point.

        Args:
            op: its kind.
            target: function, or name of method, module, attribute or input.
            args: positional arguments.
            kwargs: arguments by name.
            name: a name for its value; made unique.
            type_expr: the type of its value.
        """
        args, kwargs = args or (), kwargs or {}
        if not isinstance(args, tuple):
            raise AssertionError(f"args must be a tuple, got {type(args)}")
        if not isinstance(kwargs, dict):
            raise AssertionError(f"kwargs must be a dict, got {type(kwargs)}")
        candidate = name if name is not None else self._target_to_str(target)
        unique = self._graph_namespace.create_name(candidate, None)
        node = Node(self, unique, op, target, args, kwargs, type_expr)
        for hook in getattr(self.owning_module, "_create_node_hooks", None) or ():
            hook(node)
        self._graph_namespace.associate_name_with_obj(unique, node)
        self._insert(node)
        self._find_nodes_lookup_table.insert(node)
        self._len += 1
        return node

    @compatibility(is_backward_compatible=False)
    def process_inputs(self, *args: Any) -> Any:
        """The values of the placeholders, from the arguments of a call."""
        return self._codegen.process_inputs(*args)

    @compatibility(is_backward_compatible=False)
    def process_outputs(self, out: Any) -> Any:
        """The result of a call, from the value of the output node."""
        return self._codegen.process_outputs(out)

    @compatibility(is_backward_compatible=True)
    def erase_node(self, to_erase: Node) -> None:
        """Removes a node that nothing uses.

        Args:
            to_erase: a node of this graph.

        Raises:
            RuntimeError: it has users.
        """
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} "
                f"users in the graph: {to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            _warn(f"erase_node({to_erase}) on an already erased node")
            return
        for hook in getattr(self.owning_module, "_erase_node_hooks", None) or ():
            hook(to_erase)
        self._find_nodes_lookup_table.remove(to_erase)
        before, after = to_erase._prev, to_erase._next
        before._next, after._prev = after, before  # an iterator at the erased node can continue
        to_erase._erased = True
        self._len -= 1
        to_erase._update_args_kwargs((), {})

    @compatibility(is_backward_compatible=True)
    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """A `with` block whose new nodes go in front of a node.

        Args:
            n: the node; None: the beginning of the graph.
        """
        if n is None:
            return self.inserting_after(self._root)
        if n.graph != self:
            raise AssertionError("Node to insert before is not in graph.")
        return _InsertPoint(self, n.prepend)

    @compatibility(is_backward_compatible=True)
    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """A `with` block whose new nodes go behind a node, in their order.

        Args:
            n: the node; None: the end of the graph.
        """
        if n is None:
            return self.inserting_before(self._root)
        if n.graph != self:
            raise AssertionError("Node to insert after is not in graph.")
        return _InsertPoint(self, n.append)

    def _clear_nodes(self) -> None:
        for node in reversed(list(self.nodes)):
            node.users = {}
            self.erase_node(node)

    # ------------------------------------------------------------------------ kinds of nodes
    @compatibility(is_backward_compatible=True)
    def placeholder(
        self, name: str, type_expr: Any | None = None, default_value: Any = _MISSING
    ) -> Node:
        """Adds an input.

        Args:
            name: its name.
            type_expr: its type.
            default_value: the default of the parameter, if it has one.
        """
        args = () if default_value is _MISSING else (default_value,)
        return self.create_node("placeholder", name, args=args, type_expr=type_expr)

    @compatibility(is_backward_compatible=True)
    def get_attr(self, qualified_name: str, type_expr: Any | None = None) -> Node:
        """Adds a read of a parameter, buffer or other attribute of the module.

        Args:
            qualified_name: such as "layer.weight".
            type_expr: its type.
        """
        if self.owning_module is not None and not _has_attribute(
            self.owning_module, qualified_name
        ):
            warnings.warn(
                "Attempted to insert a get_attr Node with no underlying reference in the owning "
                "GraphModule! Call GraphModule.add_submodule to add the necessary submodule, "
                "GraphModule.add_parameter to add the necessary Parameter, or "
                "nn.Module.register_buffer to add the necessary buffer",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    @compatibility(is_backward_compatible=True)
    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Adds a call of a submodule.

        Args:
            module_name: such as "encoder.layer".
            args: positional arguments.
            kwargs: arguments by name.
            type_expr: type of the result.
        """
        if self.owning_module and self.owning_module.get_submodule(module_name) is None:
            warnings.warn(
                "Attempted to insert a call_module Node with no underlying reference in the "
                "owning GraphModule! Call GraphModule.add_submodule to add the necessary submodule",
                stacklevel=2,
            )
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    @compatibility(is_backward_compatible=True)
    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Adds a call of a method.

        Args:
            method_name: its name.
            args: positional arguments, the object first.
            kwargs: arguments by name.
            type_expr: type of the result.
        """
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    @compatibility(is_backward_compatible=True)
    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any | None = None,
        name: str | None = None,
    ) -> Node:
        """Adds a call of a function.

        Args:
            the_function: any callable; PyTorch's, Python's or one of your own.
            args: positional arguments.
            kwargs: arguments by name.
            type_expr: type of the result.
            name: a name for the result.
        """
        return self.create_node(
            "call_function", the_function, args, kwargs, name=name, type_expr=type_expr
        )

    @compatibility(is_backward_compatible=True)
    def node_copy(
        self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x
    ) -> Node:
        """Adds a copy of a node, usually of another graph.

        Args:
            node: the node.
            arg_transform: maps the nodes in its arguments to nodes of this graph.
        """
        args = map_arg(node.args, arg_transform)
        kwargs = map_arg(node.kwargs, arg_transform)
        if not isinstance(args, tuple) or not isinstance(kwargs, dict):
            raise AssertionError("arguments of a node are a tuple and a dict")
        duplicate = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        duplicate.meta = copy.copy(node.meta)
        return duplicate

    @compatibility(is_backward_compatible=True)
    def output(self, result: Argument, type_expr: Any | None = None) -> Node:
        """Adds the return of a value.

        Args:
            result: a node, or containers of nodes and constants.
            type_expr: its type.
        """
        return self.create_node("output", "output", args=(result,), type_expr=type_expr)

    def create_size_node(self, tensor_node: Node, dim: int) -> Node:
        """Adds the size of a dimension of a tensor.

        Args:
            tensor_node: the tensor.
            dim: the dimension.
        """
        return self.call_function(torch.ops.aten.sym_size.int, (tensor_node, dim))

    def create_stride_node(self, tensor_node: Node, dim: int) -> Node:
        """Adds the stride of a dimension of a tensor."""
        return self.call_function(torch.ops.aten.sym_stride.int, (tensor_node, dim))

    def create_storage_offset_node(self, tensor_node: Node) -> Node:
        """Adds the offset of a tensor in its storage."""
        return self.call_function(torch.ops.aten.sym_storage_offset.default, (tensor_node,))

    def materialize_symint(self, value: Any) -> Node | int:
        """A node for a size; sizes are numbers here, which stand for themselves."""
        return int(value)

    def materialize_symints(self, values: Sequence[Any]) -> list[Node | int]:
        """`materialize_symint` of each."""
        return [self.materialize_symint(value) for value in values]

    def _target_to_str(self, target: Target | None) -> str:
        if callable(target):
            public = _function_names.public_name(target)
            text = public.rsplit(".", 1)[-1] if public else target.__name__
        else:
            if not isinstance(target, str):
                raise AssertionError(f"Expected target to be str, got {type(target)}")
            text = target
        return _snake_case(text[2:-2] if _is_magic(text) else text)

    # ------------------------------------------------------------------------ text
    @compatibility(is_backward_compatible=True)
    def python_code(
        self,
        root_module: str,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
        additional_meta: list[str] | None = None,
    ) -> PythonCode:
        """The graph as the source of a function.

        Args:
            root_module: the name of the module in it, usually "self".
            verbose: adds types, and the lines that nodes come from.
            include_stride: adds strides to types.
            include_device: adds devices to types.
            colored: adds colors of terminals.
            expanded_def: writes each parameter on a line of its own.
            record_func: accepted; profiles name the lines themselves.
            additional_meta: keys of `Node.meta` that are shown.

        Returns:
            PythonCode: `src` and `globals`.
        """
        namespace = _Namespace()

        def name_of(node: Node) -> str:
            return namespace.create_name(node.name, node)

        nodes = list(self.nodes)
        before = [node._repr_fn for node in nodes]
        try:
            for node in nodes:
                node._repr_fn = name_of
            return self._codegen._gen_python_code(
                _node_list(self),
                root_module,
                namespace,
                verbose=verbose,
                include_stride=include_stride,
                include_device=include_device,
                colored=colored,
                expanded_def=expanded_def,
                record_func=record_func,
                additional_meta=additional_meta,
            )
        finally:
            for node, function in zip(nodes, before, strict=True):
                node._repr_fn = function

    def __str__(self) -> str:
        lines = [node.format_node() for node in self.nodes]
        return "graph():" + "".join(f"\n    {line}" for line in lines if line)

    @compatibility(is_backward_compatible=True)
    def print_tabular(self) -> None:
        """Prints the nodes as a table, with the package `tabulate`."""
        try:
            from tabulate import tabulate  # type: ignore[import-untyped]
        except ImportError:
            print(
                "`print_tabular` relies on the library `tabulate`, which could not be found on "
                "this machine. Run `pip install tabulate` to install the library."
            )
            raise
        rows = [[n.op, n.name, n.target, n.args, n.kwargs] for n in self.nodes]
        print(tabulate(rows, headers=["opcode", "name", "target", "args", "kwargs"]))

    # ------------------------------------------------------------------------ checks, clean-up
    @compatibility(is_backward_compatible=True)
    def lint(self) -> None:
        """Checks that values are defined before they are used, and that targets exist.

        Raises:
            RuntimeError: the first violation.
        """
        late("flambeau.fx._lint").check(self)

    @compatibility(is_backward_compatible=True)
    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Removes nodes that nothing uses and that do nothing else.

        Args:
            is_impure_node: says which nodes stay; the default is `Node.is_impure`.

        Returns:
            bool: whether nodes were removed.
        """
        self.lint()

        def stays(node: Node) -> bool:
            if is_impure_node is not None:
                return is_impure_node(node)
            if node.op == "call_module" and self.owning_module is None:
                return True
            return node.is_impure()

        removed = False
        for node in reversed(self.nodes):
            if not node.users and not stays(node):
                self.erase_node(node)
                removed = True
        return removed

    # ------------------------------------------------------------------------ code generation
    @compatibility(is_backward_compatible=False)
    def set_codegen(self, codegen: CodeGen) -> None:
        """Chooses how source is written.

        Args:
            codegen: an object of a subclass of `CodeGen`.
        """
        self._codegen = codegen

    @compatibility(is_backward_compatible=False)
    def on_generate_code(
        self, make_transformer: Callable[[TransformCodeFunc | None], TransformCodeFunc]
    ) -> contextlib.AbstractContextManager[None]:
        """Lets a function change the lines of generated code.

        Args:
            make_transformer: takes the function that is in force (or None), returns one from list
                of lines to list of lines.

        Returns:
            context manager: at whose end the former function is in force again.
        """
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)

        @contextlib.contextmanager
        def restore() -> Iterator[None]:
            try:
                yield
            finally:
                self._codegen._body_transformer = before

        return restore()


def _has_attribute(module: Any, qualified_name: str) -> bool:
    value = module
    for part in qualified_name.split("."):
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True


def _warn(text: str) -> None:
    """Warns at the line of the caller's caller."""
    warnings.warn(text, stacklevel=3)
