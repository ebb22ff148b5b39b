"""`Interpreter` runs a graph node by node; `Transformer` makes another graph of one."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import flambeau as torch
from flambeau.fx import traceback as fx_traceback
from flambeau.fx._compatibility import compatibility
from flambeau.fx._symbolic_trace import Tracer
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Argument, Node, Target, map_aggregate, map_arg
from flambeau.fx.proxy import Proxy

__all__ = ["Interpreter", "Transformer"]


def _format_fx_node(n: Node) -> str:
    """A short description of a node."""
    values = [str(value) for value in n.args]
    values += [f"{key}={value}" for key, value in n.kwargs.items()]
    return f"{n.name}: {n._pretty_print_target(n.target)}({', '.join(values)})"


@compatibility(is_backward_compatible=True)
class Interpreter:
    """Runs the nodes of a graph one by one. Subclasses change what the kinds of nodes do.

    Args:
        module: the module whose graph it is.
        garbage_collect_values: whether a value is dropped after its last use.
        graph: another graph than the module's own.

    Example:
        >>> class Counting(torch.fx.Interpreter):
        ...     count = 0
        ...     def call_function(self, target, args, kwargs):
        ...         self.count += 1
        ...         return super().call_function(target, args, kwargs)
        >>> counting = Counting(torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1))
        >>> counting.run(torch.ones(1)), counting.count
        (tensor([2.]), 2)
    """

    def __init__(
        self,
        module: torch.nn.Module,
        garbage_collect_values: bool = True,
        graph: Graph | None = None,
    ) -> None:
        self.module = module
        self.submodules = dict(self.module.named_modules())
        self.graph: Graph = graph if graph is not None else self.module.graph  # type: ignore
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        if garbage_collect_values:
            self.user_to_last_uses = _last_uses(self.graph)

    @compatibility(is_backward_compatible=True)
    def run(
        self,
        *args: Any,
        initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """Runs the graph.

        Args:
            args: the inputs.
            initial_env: values of nodes that are not run.
            enable_io_processing: whether inputs and outputs pass the graph's `CodeGen`.

        Returns:
            Any: what the graph returns.
        """
        self.env = {} if initial_env is None else initial_env
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter: Iterator[Any] = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    _add_node(error, node)
                raise
            if self.garbage_collect_values:
                for last in self.user_to_last_uses.get(node, ()):
                    del self.env[last]
            if node.op == "output":
                value = self.env[node]
                return self.graph.process_outputs(value) if enable_io_processing else value
        return None

    @compatibility(is_backward_compatible=True)
    def boxed_run(self, args_list: list[Any]) -> Any:
        """`run` with all inputs in a list, which is emptied.

        Args:
            args_list: the inputs.
        """
        environment: dict[Node, Any] = {}
        inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        for node, value in zip(inputs, args_list, strict=False):
            environment[node] = value
        args_list.clear()
        return self.run(initial_env=environment)

    @contextmanager
    def _set_current_node(self, node: Node) -> Iterator[None]:
        with fx_traceback.set_current_meta(node, f"Interpreter_{self.__class__.__name__}"):
            yield

    @compatibility(is_backward_compatible=True)
    def run_node(self, n: Node) -> Any:
        """Runs one node.

        Args:
            n: the node.

        Returns:
            Any: its value.
        """
        with self._set_current_node(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            if not isinstance(args, tuple) or not isinstance(kwargs, dict):
                raise AssertionError("arguments of a node are a tuple and a dict")
            return getattr(self, n.op)(n.target, args, kwargs)

    # ------------------------------------------------------------------------ kinds of nodes
    @compatibility(is_backward_compatible=True)
    def placeholder(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The next input, or its default.

        Raises:
            RuntimeError: there is neither.
        """
        if not isinstance(target, str):
            raise AssertionError(f"Expected target to be str, got {type(target)}")
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration as error:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from error

    @compatibility(is_backward_compatible=True)
    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """An attribute of the module."""
        if not isinstance(target, str):
            raise AssertionError(f"Expected target to be str, got {type(target)}")
        return self.fetch_attr(target)

    @compatibility(is_backward_compatible=True)
    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of a function."""
        if isinstance(target, str):
            raise AssertionError(f"Expected callable target, got str: {target}")
        return target(*args, **kwargs)

    @compatibility(is_backward_compatible=True)
    def call_method(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of a method of the first argument."""
        first, *operands = args
        if not isinstance(target, str):
            raise AssertionError(f"Expected target to be str, got {type(target)}")
        return getattr(first, target)(*operands, **kwargs)

    @compatibility(is_backward_compatible=True)
    def call_module(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of a submodule."""
        if not isinstance(target, str):
            raise AssertionError(f"Expected target to be str, got {type(target)}")
        return self.fetch_attr(target)(*args, **kwargs)

    @compatibility(is_backward_compatible=True)
    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The value that is returned."""
        return args[0]

    # ------------------------------------------------------------------------ values
    @compatibility(is_backward_compatible=True)
    def fetch_attr(self, target: str) -> Any:
        """An attribute of the module by its dotted name.

        Raises:
            RuntimeError: it does not exist.
        """
        parts = target.split(".")
        value: Any = self.module
        for index, part in enumerate(parts):
            if not hasattr(value, part):
                path = ".".join(parts[: index + 1])
                raise RuntimeError(f"Node referenced nonexistent target {path}")
            value = getattr(value, part)
        return value

    @compatibility(is_backward_compatible=True)
    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node with the values of the nodes in them.

        Args:
            n: the node.
        """
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    @compatibility(is_backward_compatible=True)
    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """Containers with values in place of nodes.

        Args:
            args: containers of nodes.
            n: the node whose arguments they are, for messages.

        Raises:
            RuntimeError: a node has no value yet.
        """

        def load(argument: Node) -> Any:
            if argument not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {argument}! Run Graph.lint() to "
                    "diagnose such issues"
                )
            return self.env[argument]

        return map_arg(args, load)


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """The values that each node is the last to read."""
    last: dict[Node, Node] = {}
    uses: dict[Node, list[Node]] = {}
    for user in reversed(graph.nodes):
        for node in user.all_input_nodes:
            if node not in last:
                last[node] = user
                uses.setdefault(user, []).append(node)
    return uses


def _add_node(error: Exception, node: Node) -> None:
    """Names the node in an error's message."""
    text = f"While executing {node.format_node()}"
    text = f"{error.args[0]}\n\n{text}" if error.args else text
    text += f"\nOriginal traceback:\n{node.stack_trace}"
    text += (
        "\nUse tlparse to see full graph. "
        "(https://github.com/pytorch/tlparse?tab=readme-ov-file#tlparse-parse-structured-pt2-logs)"
    )
    error.args = (text, *error.args[1:])
    if isinstance(error, KeyError):
        raise RuntimeError(*error.args) from error


@compatibility(is_backward_compatible=True)
class Transformer(Interpreter):
    """An interpreter whose values are proxies: its operations become another graph.

    Args:
        module: the module to transform.

    Example:
        >>> class Smooth(torch.fx.Transformer):
        ...     def call_function(self, target, args, kwargs):
        ...         target = torch.tanh if target is torch.relu else target
        ...         return super().call_function(target, args, kwargs)
        >>> smooth = Smooth(torch.fx.symbolic_trace(lambda x: torch.relu(x))).transform()
        >>> print(smooth.code.strip())
        def forward(self, x):
            tanh = torch.tanh(x);  x = None
            return tanh
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)

        class TransformerTracer(Tracer):
            """Adds to the new graph; modules stay calls."""

            def __init__(self, graph: Graph) -> None:
                super().__init__()
                self.graph = graph
                self.tensor_attrs = {}
                self.root = module

            def is_leaf_module(self, _: torch.nn.Module, __: str) -> bool:
                return True

        self.tracer = TransformerTracer(self.new_graph)

    @compatibility(is_backward_compatible=True)
    def placeholder(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Proxy:
        """An input of the new graph."""
        if not isinstance(target, str):
            raise AssertionError(f"Expected target to be str, got {type(target)}")
        default = next(iter(args)) if args else inspect.Signature.empty
        arguments = () if default is inspect.Signature.empty else (default,)
        return Proxy(self.new_graph.create_node("placeholder", target, arguments), self.tracer)

    @compatibility(is_backward_compatible=True)
    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """A read of an attribute in the new graph."""
        if not isinstance(target, str):
            raise AssertionError(f"Expected target to be str, got {type(target)}")
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    @compatibility(is_backward_compatible=True)
    def call_module(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call of a submodule in the new graph."""
        if not isinstance(target, str):
            raise AssertionError(f"Expected target to be str, got {type(target)}")
        submodule = self.fetch_attr(target)
        return self.tracer.call_module(submodule, submodule.forward, args, kwargs)

    @compatibility(is_backward_compatible=True)
    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call of a function in the new graph."""
        if isinstance(target, str):
            raise AssertionError(f"Expected callable target, got str: {target}")
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    @compatibility(is_backward_compatible=True)
    def transform(self) -> GraphModule:
        """Runs the old graph with proxies.

        Returns:
            GraphModule: the new graph, with the old module's parameters and submodules.
        """
        with fx_traceback.preserve_node_meta():
            result = super().run(enable_io_processing=False)
        if result is not None:

            def strip(value: Any) -> Any:
                return value.node if isinstance(value, Proxy) else value

            new_output = self.new_graph.output(map_aggregate(result, strip))
            old_output = next(iter(reversed(self.graph.nodes)))
            new_output.meta.update(old_output.meta)
        return GraphModule(self.module, self.new_graph)
