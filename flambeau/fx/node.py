"""`Node`: one operation of a graph, with the nodes that it reads and those that read it."""

from __future__ import annotations

import builtins
import inspect
import operator
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import flambeau as torch
from flambeau.autograd import set_grad_enabled
from flambeau.fx import _function_names
from flambeau.fx._compatibility import compatibility
from flambeau.fx.immutable_collections import immutable_dict, immutable_list
from flambeau.ir.lock import late
from flambeau.nested.ragged import SymInt
from flambeau.runtime import symbolic
from flambeau.runtime.checks import _assert, _assert_async

if TYPE_CHECKING:
    from flambeau.fx.graph import Graph
    from flambeau.fx.operator_schemas import ArgsKwargsPair

__all__ = ["Node", "has_side_effect", "map_aggregate", "map_arg"]

Target = Callable[..., Any] | str
Argument = Any
BaseArgumentTypes = Any

base_types = (
    str, int, float, bool, complex, torch.dtype, torch.Tensor, torch.device,
    torch.memory_format, torch.layout, SymInt,
)  # fmt: skip

_legal_ops = dict.fromkeys(
    ["placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root"]
)

_side_effectful_need_to_be_preserved_pre_dispatch: list[Callable[..., Any]] = []

_CHECKS = ("_assert_", "sym_constrain_range")  # operators that raise, and return nothing
_side_effectful_functions: set[Callable[..., Any]] = {
    _assert,
    _assert_async,
    operator.setitem,
    set_grad_enabled,
}

dtype_abbrs = {
    getattr(torch, name): short
    for name, short in {
        "bfloat16": "bf16", "float64": "f64", "float32": "f32", "float16": "f16",
        "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2", "float8_e4m3fnuz": "f8e4m3fnuz",
        "float8_e5m2fnuz": "f8e5m2fnuz", "float8_e8m0fnu": "f8e8m0fnu",
        "float4_e2m1fn_x2": "f4e2m1fnx2", "complex32": "c32", "complex64": "c64",
        "complex128": "c128", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
        "bool": "b8", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
        "bits1x8": "b1x8", "bits2x4": "b2x4", "bits4x2": "b4x2", "bits8": "b8x1",
        "bits16": "b16x1",
    }.items()
    if name in vars(torch)
}  # fmt: skip

_Function = TypeVar("_Function", bound=Callable[..., Any])


@compatibility(is_backward_compatible=False)
def has_side_effect(fn: _Function) -> _Function:
    """Says that calls of a function stay in graphs even if nothing uses their results.

    Args:
        fn: the function.

    Returns:
        Callable: the same function.

    Example:
        >>> @torch.fx.has_side_effect
        ... def log(x):
        ...     print(x)
    """
    _side_effectful_functions.add(fn)
    return fn


def _find_module_of_method(orig_method: Callable[..., Any]) -> str:
    """The public module that has a function under its own name."""
    name = orig_method.__name__
    module = getattr(orig_method, "__module__", None)
    if module is not None:
        return _function_names.upstream(module)
    for guess in (torch, torch.nn.functional):
        if getattr(guess, name, None) is orig_method:
            return _function_names.upstream(guess.__name__)
    raise RuntimeError(f"cannot find module for {orig_method}")


def _type_repr(obj: object) -> str:
    """The text of an annotation."""
    if isinstance(obj, type) and not isinstance(obj, types.GenericAlias):
        if obj.__module__ == "builtins":
            return obj.__qualname__
        if obj in symbolic.TYPES:
            return f"torch.{obj.__name__}"
        return f"{_function_names.upstream(obj.__module__)}.{obj.__qualname__}"
    if obj is ...:
        return "..."
    if isinstance(obj, types.FunctionType):
        return obj.__name__
    return repr(obj)


def _get_qualified_name(func: Callable[..., Any]) -> str:
    """PyTorch's full name of a function, as generated code has it."""
    if isinstance(func, type) and func in symbolic.TYPES:
        return f"torch.{func.__name__}"
    public = _function_names.public_name(func)
    if public is not None:
        return public
    if getattr(builtins, getattr(func, "__name__", ""), None) is func:
        return func.__name__
    name = func.__name__
    if name == "<lambda>":
        try:
            name = inspect.getsource(func).split("=")[0].strip()
        except Exception as error:
            raise RuntimeError("Unable to represent lambda") from error
    module = _find_module_of_method(func)
    return f"{module.replace('torch._ops', 'torch.ops')}.{name}"


def _format_arg(arg: object, max_list_len: float = float("inf")) -> str:
    """The text of an argument in `str(graph)`."""
    if hasattr(arg, "_custom_fx_repr_fn"):
        return str(arg._custom_fx_repr_fn())
    if isinstance(arg, (list, tuple)):
        texts = [_format_arg(item) for item in arg[: int(min(len(arg), max_list_len))]]
        if len(arg) > max_list_len:
            texts.append(f"...[total_len={len(arg)}]")
        inner = ", ".join(texts)
        if isinstance(arg, list):
            return f"[{inner}]"
        return f"({inner},)" if len(arg) == 1 else f"({inner})"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{key}: {_format_arg(value)}" for key, value in arg.items()) + "}"
    return f"%{arg.name}" if isinstance(arg, Node) else str(arg)


@compatibility(is_backward_compatible=True)
class Node:
    """One operation of a graph.

    `op` says what kind: a `placeholder` (input), `get_attr`, `call_function`, `call_module`,
    `call_method` or the `output`. `target` is the function, or the name of the method, module,
    attribute or input; `args` and `kwargs` hold the arguments, in which other nodes stand for their
    results. `users` are the nodes that read this one; `meta` belongs to passes.

    Example:
        >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
        >>> [(node.op, node.name) for node in traced.graph.nodes][:3]
        [('placeholder', 'x'), ('call_function', 'relu'), ('call_function', 'add')]
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        return_type: Any | None = None,
    ) -> None:
        if op not in _legal_ops:
            raise AssertionError(f"op {op!r} is not in _legal_ops")
        if op == "call_function":
            if not callable(target):
                raise ValueError(
                    f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                    f"{torch.typename(target)} but a Callable is expected"
                )
        elif not isinstance(target, str):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type "
                f"{torch.typename(target)} but a str is expected"
            )
        fields = self.__dict__
        fields.update(graph=graph, name=name, op=op, target=target, users={}, type=return_type)
        fields.update(_args=(), _kwargs=immutable_dict(), _input_nodes={}, meta={})
        fields.update(_prev=self, _next=self, _erased=False, _position=0, _repr_fn=None)
        self._update_args_kwargs(args, kwargs)

    # ------------------------------------------------------------------------ neighbours
    @property
    def next(self) -> Node:
        """The node after this one."""
        following: Node = self._next
        return following

    @property
    def prev(self) -> Node:
        """The node before this one."""
        preceding: Node = self._prev
        return preceding

    def prepend(self, x: Node) -> None:
        """Moves a node in front of this one.

        Args:
            x: a node of the same graph.
        """
        if self.graph != x.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if self is x:
            return
        x._remove_from_list()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x
        self.graph._insert_position(x)

    def append(self, x: Node) -> None:
        """Moves a node behind this one."""
        self._next.prepend(x)

    def _remove_from_list(self) -> None:
        before, after = self._prev, self._next
        before._next, after._prev = after, before
        self._prev = self._next = self

    @property
    def _sort_key(self) -> tuple[int, ...]:
        return (self.graph._position_of(self),)

    def __lt__(self, other: Node) -> bool:
        return self._sort_key < other._sort_key

    def __gt__(self, other: Node) -> bool:
        return self._sort_key > other._sort_key

    def __le__(self, other: Node) -> bool:
        return self._sort_key <= other._sort_key

    def __ge__(self, other: Node) -> bool:
        return self._sort_key >= other._sort_key

    # ------------------------------------------------------------------------ arguments
    @property
    def args(self) -> tuple[Argument, ...]:
        """Positional arguments. An assignment updates the users of the nodes in them."""
        values: tuple[Argument, ...] = self._args
        return values

    @args.setter
    def args(self, values: tuple[Argument, ...]) -> None:
        self._update_args_kwargs(values, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """Arguments by name. An assignment updates the users of the nodes in them."""
        values: dict[str, Argument] = self._kwargs
        return values

    @kwargs.setter
    def kwargs(self, values: dict[str, Argument]) -> None:
        self._update_args_kwargs(self._args, values)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes in the arguments, each once, in order."""
        return list(self._input_nodes)

    def _update_args_kwargs(
        self, args: tuple[Argument, ...], kwargs: Mapping[str, Argument]
    ) -> None:
        inputs: dict[Node, None] = {}

        def remember(node: Node) -> Node:
            inputs[node] = None
            return node

        new_args = map_aggregate(tuple(args), _on_nodes(remember))
        new_kwargs = map_aggregate(dict(kwargs), _on_nodes(remember))
        for node in self._input_nodes:
            node.users.pop(self, None)
        self._args, self._kwargs, self._input_nodes = new_args, new_kwargs, inputs
        for node in inputs:
            node.users[self] = None

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replaces one positional argument."""
        values = list(self.args)
        values[idx] = arg
        self.args = tuple(values)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Inserts a positional argument.

        Args:
            idx: its index, from 0 to the number of arguments.
            arg: its value.
        """
        if not 0 <= idx <= len(self.args):
            raise AssertionError("insert_args index must be between 0 and len(self.args)")
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Replaces or adds one argument by name."""
        self.kwargs = {**self.kwargs, key: arg}

    @property
    def stack_trace(self) -> str | None:
        """Where the operation was recorded, if the tracer stored it: `meta["stack_trace"]`."""
        return self.meta.get("stack_trace", None)

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    # ------------------------------------------------------------------------ text
    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn else self.name

    @staticmethod
    def _pretty_print_target(target: object) -> str:
        """The name of a target as `str(graph)` prints it."""
        if isinstance(target, str):
            return target
        name = getattr(target, "__name__", None)
        if getattr(target, "__module__", None) == "_operator":
            return f"operator.{name}"
        if getattr(target, "__module__", None) == "builtins":
            return f"builtins.{name}"
        return _get_qualified_name(target)  # type: ignore[arg-type]

    @compatibility(is_backward_compatible=True)
    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """A line that describes the node.

        Args:
            placeholder_names: a list to which a placeholder adds its name; then it has no line.
            maybe_return_typename: a list whose first element becomes the output's annotation.
            include_tensor_metadata: whether shapes and dtypes are shown.
        """
        if self.op == "placeholder":
            if not isinstance(self.target, str):
                raise AssertionError(f"Expected target to be str, got {type(self.target)}")
            text = self.target + (f": {_type_repr(self.type)}" if self.type else "")
            if placeholder_names is not None:
                placeholder_names.append(text)
                return None
            default = f"(default={self.args[0]})" if self.args else ""
            return f"{self._head(include_tensor_metadata)}[target={self.target}]{default}"
        if self.op == "output":
            if self.type and maybe_return_typename:
                maybe_return_typename[0] = f" -> {_type_repr(self.type)}"
            return f"return {self.args[0]}"
        target = self._pretty_print_target(self.target)
        head = f"{self._head(include_tensor_metadata)}[target={target}]"
        if self.op == "get_attr":
            return head
        return f"{head}(args = {_format_arg(self.args)}, kwargs = {_format_arg(self.kwargs)})"

    def _head(self, metadata: bool) -> str:
        kind = f": {_type_repr(self.type)} " if self.type else ": "
        tensor = self._tensor_text() if metadata else ""
        return f"%{self.name} {kind}{tensor}[num_users={len(self.users)}] = {self.op}"

    def _tensor_text(self) -> str:
        value = self.meta.get("val", self.meta.get("tensor_meta"))
        if not hasattr(value, "shape") or not hasattr(value, "dtype"):
            return ""
        sizes = ", ".join(map(str, value.shape))
        return f'"{dtype_abbrs.get(value.dtype, value.dtype)}[{sizes}]"'

    # ------------------------------------------------------------------------ changes
    @compatibility(is_backward_compatible=True)
    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] | None = None,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Lets the users of this node read another one.

        Args:
            replace_with: the node that they read instead.
            delete_user_cb: called with each user; False leaves it as it is.
            propagate_meta: whether the new node takes over `meta`, which must be empty there.

        Returns:
            list: the users that were changed.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but "
                    "replace_with already has .meta keys"
                )
            replace_with.meta.update(self.meta)
        module = self.graph.owning_module
        hooks = getattr(module, "_replace_hooks", None) or ()
        changed = []
        for user in list(self.users):
            if delete_user_cb is not None and not delete_user_cb(user):
                continue
            for hook in hooks:
                hook(old=self, new=replace_with.name, user=user)
            changed.append(user)
            user._substitute(self, replace_with)
        return changed

    def _substitute(self, old: Node, new: Node) -> None:
        swap = _on_nodes(lambda node: new if node is old else node)
        self._update_args_kwargs(map_aggregate(self.args, swap), map_aggregate(self.kwargs, swap))

    @compatibility(is_backward_compatible=False)
    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Replaces a node in the arguments.

        Args:
            old_input: the node that is read now.
            new_input: what is read instead.
        """
        module = self.graph.owning_module
        for hook in getattr(module, "_replace_hooks", None) or ():
            hook(old=old_input, new=new_input.name, user=self)
        self._substitute(old_input, new_input)

    def _rename(self, candidate: str) -> None:
        if candidate == self.name:
            return
        self.name = self.graph._graph_namespace.create_name(candidate, None)
        self.graph._graph_namespace._rename_object(self, self.name)

    @compatibility(is_backward_compatible=False)
    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node does something beside its result, so that it stays when unused.

        Args:
            impure_random: whether functions that draw random numbers count.
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            name = getattr(self.target, "__name__", "")
            schema = getattr(self.target, "_schema", None)
            if schema is not None and schema.is_mutable:
                return True
            if getattr(self.target, "_opname", "").startswith(_CHECKS):
                return True
            random = impure_random and _function_names.draws_random_numbers(self.target)
            return random or self.target in _side_effectful_functions or _writes_input(name, self)
        if self.op == "call_method":
            return str(self.target).endswith("_") and not str(self.target).endswith("__")
        if self.op == "call_module":
            owner = self.graph.owning_module
            if owner is None:
                raise AssertionError("self.graph.owning_module not set for purity check")
            module = owner.get_submodule(self.target)
            if module is None:
                raise AssertionError(f"Did not find expected submodule target {self.target}")
            return getattr(module, "_is_impure", False)
        return False

    @compatibility(is_backward_compatible=False)
    def normalized_arguments(
        self,
        root: torch.nn.Module,
        arg_types: tuple[Any, ...] | None = None,
        kwarg_types: dict[str, Any] | None = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> ArgsKwargsPair | None:
        """The arguments in the form of the target's signature, defaults included.

        Args:
            root: the module in which `call_module` targets are.
            arg_types: types of the positional arguments, where overloads need them.
            kwarg_types: types of the arguments by name.
            normalize_to_only_use_kwargs: whether all arguments are passed by name.

        Returns:
            ArgsKwargsPair: None if the signature is not known.
        """
        schemas = late("flambeau.fx.operator_schemas")
        only = normalize_to_only_use_kwargs
        if self.op == "call_function":
            return schemas.normalize_function(
                self.target,  # type: ignore[arg-type]
                self.args,
                self.kwargs,
                arg_types,
                kwarg_types,
                normalize_to_only_use_kwargs=only,
            )
        if self.op == "call_module":
            return schemas.normalize_module(
                root,
                str(self.target),
                self.args,
                self.kwargs,
                normalize_to_only_use_kwargs=only,
            )
        return None

    # ------------------------------------------------------------------------ fields
    def __setattr__(self, name: str, value: Any) -> None:
        if name == "name" and "name" in self.__dict__:
            module = self.graph.owning_module
            for hook in getattr(module, "_replace_hooks", None) or ():
                for user in self.users:
                    hook(old=self, new=value, user=user)
        if name in ("op", "target") and name in self.__dict__:
            table = self.graph._find_nodes_lookup_table
            listed = self in table
            if listed:
                table.remove(self)
            object.__setattr__(self, name, value)
            if listed:
                table.insert(self)
            return
        object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without those that only hold within a graph's list."""
        return {key: value for key, value in self.__dict__.items() if key != "_position"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _position=0)


def _writes_input(name: str, node: Node) -> bool:
    """Functions whose name ends in one underscore write their first argument; so does `out=`."""
    if node.kwargs.get("inplace") is True or node.kwargs.get("out") is not None:
        return True
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place and getattr(node.target, "__module__", None) != "_operator"


def _on_nodes(fn: Callable[[Node], Any]) -> Callable[[Any], Any]:
    return lambda value: fn(value) if isinstance(value, Node) else value


@compatibility(is_backward_compatible=True)
def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """Applies a function to every node in nested lists, tuples, dictionaries and slices.

    Args:
        a: a node, or containers of nodes and other values.
        fn: what is applied to a node.

    Returns:
        Argument: the same structure, with immutable lists and dictionaries.
    """
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, _on_nodes(fn))


@compatibility(is_backward_compatible=True)
def map_aggregate(a: Argument, fn: Callable[[Argument], Argument]) -> Argument:
    """Applies a function to every leaf in nested lists, tuples, dictionaries and slices.

    Args:
        a: a leaf, or containers of them.
        fn: what is applied to a leaf.
    """
    if isinstance(a, tuple):
        values = tuple(map_aggregate(item, fn) for item in a)
        return type(a)(*values) if hasattr(a, "_fields") else values
    if isinstance(a, list):
        return immutable_list([map_aggregate(item, fn) for item in a])
    if isinstance(a, dict):
        return immutable_dict({key: map_aggregate(value, fn) for key, value in a.items()})
    if isinstance(a, slice):
        bounds = (map_aggregate(part, fn) for part in (a.start, a.stop, a.step))
        return slice(*bounds)
    return fn(a)
