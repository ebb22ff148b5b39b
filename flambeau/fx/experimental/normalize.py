"""Graphs whose arguments and operators have one form."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.fx import GraphModule, Node, Proxy, Transformer
from flambeau.fx.experimental.schema_type_annotation import AnnotateTypesWithSchema
from flambeau.fx.node import map_aggregate
from flambeau.fx.operator_schemas import create_type_hint, normalize_function, normalize_module


class NormalizeArgs(Transformer):
    """A transformer that passes all arguments by name, defaults included.

    Args:
        module: the module.
        normalize_to_only_use_kwargs: False: required arguments stay by position.
    """

    def __init__(self, module: GraphModule, normalize_to_only_use_kwargs: bool = True) -> None:
        super().__init__(module)
        self.node_map: dict[Proxy, Node] = {}
        self.normalize_to_only_use_kwargs = normalize_to_only_use_kwargs

    def run_node(self, n: Node) -> Any:
        """Copies a node with its arguments in their normal form."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)

        def type_of(argument: Any) -> Any:
            if isinstance(argument, Node):
                return argument.meta.get("type", None)
            return type(argument)

        if n.op == "call_function":
            arg_types = tuple(create_type_hint(map_aggregate(each, type_of)) for each in n.args)
            kwarg_types = {key: type_of(value) for key, value in n.kwargs.items()}
            out = self.call_function(n.target, args, kwargs, arg_types, kwarg_types)
        else:
            out = super().run_node(n)
        if n.op != "output":
            self.node_map[out] = n
            out.node.meta = n.meta.copy()
            out.node.type = n.type
        return out

    def call_function(
        self,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        arg_types: tuple[Any, ...] | None = None,
        kwarg_types: dict[str, Any] | None = None,
    ) -> Any:
        """Copies a call of a function."""
        typed = arg_types is not None and None not in arg_types
        try:
            pair = normalize_function(
                target,
                args,
                kwargs,
                arg_types if typed else None,
                kwarg_types if typed else None,
                self.normalize_to_only_use_kwargs,
            )
        except RuntimeError:  # several overloads fit, and the types are not known
            pair = None
        if pair is None:
            return super().call_function(target, args, kwargs)
        return self.tracer.create_proxy("call_function", target, pair.args, pair.kwargs)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Copies a call of a module."""
        pair = normalize_module(
            self.module, target, args, kwargs, self.normalize_to_only_use_kwargs
        )
        if pair is None:
            return super().call_module(target, args, kwargs)
        return super().call_module(target, pair.args, pair.kwargs)


class NormalizeOperators(AnnotateTypesWithSchema):
    """A transformer that writes `torch.add(x, y)` and its like as operators of Python.

    Args:
        module: the module.
    """

    binary_magic_method_remap: dict[Callable[..., Any], Callable[..., Any]] = {
        torch.add: operator.add, torch.mul: operator.mul, torch.sub: operator.sub,
        torch.div: operator.truediv, torch.floor_divide: operator.floordiv,
        torch.remainder: operator.mod, torch.eq: operator.eq, torch.ne: operator.ne,
        torch.lt: operator.lt, torch.le: operator.le, torch.gt: operator.gt, torch.ge: operator.ge,
    }  # fmt: skip

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Copies a call, by an operator where there is one."""
        mapped = self.binary_magic_method_remap.get(target) if callable(target) else None
        if mapped is not None and len(args) == 2 and not kwargs:
            return super().call_function(mapped, args, {})
        return super().call_function(target, args, kwargs)
