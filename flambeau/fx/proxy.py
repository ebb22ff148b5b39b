"""`Proxy`: represents a value while a function is traced, and records what is done with it."""

from __future__ import annotations

import collections
import copy
import dis
import enum
import inspect
import operator
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NoReturn

import flambeau as torch
import flambeau.fx.traceback as fx_traceback
from flambeau.fx import _calls, config
from flambeau.fx._compatibility import compatibility
from flambeau.fx.graph import Graph, magic_methods, reflectable_magic_methods
from flambeau.fx.node import Argument, Node, Target, base_types, map_aggregate
from flambeau.fx.operator_schemas import check_for_mutable_operation

__all__ = [
    "Attribute",
    "GraphAppendingTracer",
    "MetaProxy",
    "ParameterProxy",
    "Proxy",
    "Scope",
    "ScopeContextManager",
    "TraceError",
    "TracerBase",
]

_COPY_META_FIELDS = [
    "nn_module_stack", "torch_fn", "source_fn_stack", "original_aten", "recompute", "from_node",
    "quantization_tag", "custom",
]  # fmt: skip

_NOT_ITERABLE = (
    "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as "
    "a *args or **kwargs function argument. See the torch.fx docs on pytorch.org for a more "
    "detailed explanation of what types of control flow can be traced, and check out the Proxy "
    "docstring for help troubleshooting Proxy iteration errors"
)
_NOT_A_BRANCH = "symbolically traced variables cannot be used as inputs to control flow"
_NO_LENGTH = (
    "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, "
    "please call torch.fx.wrap('len') at module scope"
)


@compatibility(is_backward_compatible=False)
class Scope:
    """The module that is being traced.

    Attributes:
        module_path: its name in the root.
        module_type: its class.
    """

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path = module_path
        self.module_type = module_type


@compatibility(is_backward_compatible=False)
class ScopeContextManager:
    """A `with` block in which a tracer's scope is another module's.

    Args:
        scope: the tracer's scope, which is changed and restored.
        current_scope: what it is meanwhile.
    """

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._before = copy.copy(scope)
        scope.module_path = current_scope.module_path
        scope.module_type = current_scope.module_type
        self._scope = scope

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *args: object) -> None:
        self._scope.module_path = self._before.module_path
        self._scope.module_type = self._before.module_type


@compatibility(is_backward_compatible=False)
class TraceError(ValueError):
    """Raised where control flow depends on a traced value."""


def assert_fn(x: object) -> None:
    """`assert`, as a function that graphs can call."""
    if not x:
        raise AssertionError("assertion failed")


_PACKAGE = __name__.rpartition(".")[0]


@compatibility(is_backward_compatible=True)
class TracerBase:
    """The base of tracers: creates nodes, proxies and arguments."""

    graph: Graph
    record_stack_traces: bool = False
    _record_forward_stack_traces_only: bool = False
    check_mutable_operations: bool = False
    trace_asserts: bool = False
    proxy_buffer_attributes: bool = False
    traced_func_name: str = "forward"
    scope: Scope
    module_stack: collections.OrderedDict[str, tuple[str, Any]]
    node_name_to_scope: dict[str, tuple[str, type]]

    @compatibility(is_backward_compatible=True)
    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Adds a node to the graph, with what is known of where it comes from.

        Args:
            kind: its `op`.
            target: its target.
            args: its arguments, without proxies.
            kwargs: likewise, by name.
            name: a name for its value.
            type_expr: type of its value.
        """
        if kind == "call_function" and self.check_mutable_operations:
            check_for_mutable_operation(target, args, kwargs)  # type: ignore[arg-type]
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        scope = getattr(self, "scope", None)
        if scope is not None:
            self.node_name_to_scope[node.name] = (scope.module_path, scope.module_type)
        if fx_traceback.has_preserved_node_meta():
            self._copy_meta(node)
        elif getattr(self, "module_stack", None):
            node.meta["nn_module_stack"] = copy.copy(self.module_stack)
        if self.record_stack_traces and not config.do_not_emit_stack_traces:
            summary = self._user_stack()
            if summary:
                node.stack_trace = "".join(summary.format()).strip()
        return node

    def _copy_meta(self, node: Node) -> None:
        current = fx_traceback.get_current_meta()
        stack_trace = current.get("stack_trace")
        if stack_trace:
            node.stack_trace = stack_trace
        for field in _COPY_META_FIELDS:
            if field in current:
                node.meta[field] = copy.copy(current[field])
        if getattr(self, "module_stack", None):
            node.meta["nn_module_stack"] = copy.copy(self.module_stack)

    def _user_stack(self) -> traceback.StackSummary:
        frame = self._find_user_frame()
        summary = traceback.StackSummary.extract(traceback.walk_stack(frame))
        summary.reverse()
        return self._filter_traceback_frames(summary)

    def _filter_traceback_frames(
        self, user_stack_summary: traceback.StackSummary
    ) -> traceback.StackSummary:
        """The lines of users' code in a stack."""
        own = ("/flambeau/fx/", "/flambeau/nn/modules/module.py")
        lines = [line for line in user_stack_summary if not any(p in line.filename for p in own)]
        return traceback.StackSummary.from_list(lines)

    def _find_user_frame(self) -> types.FrameType | None:
        """The innermost frame that is none of this package."""
        frame = inspect.currentframe()
        while frame is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
            frame = frame.f_back
        return frame

    @compatibility(is_backward_compatible=True)
    def proxy(self, node: Node) -> Proxy:
        """The proxy of a node. Subclasses return their own kind here."""
        return Proxy(node, self)

    @compatibility(is_backward_compatible=True)
    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any | None = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Adds a node whose arguments are proxies, and returns its proxy.

        Args:
            kind: the node's `op`.
            target: its target.
            args: its arguments.
            kwargs: likewise, by name.
            name: a name for its value.
            type_expr: type of its value.
            proxy_factory_fn: makes the proxy; the default is `proxy`.
        """
        node_args, node_kwargs = self.create_arg(args), self.create_arg(kwargs)
        if not isinstance(node_args, tuple) or not isinstance(node_kwargs, dict):
            raise AssertionError("arguments of a node are a tuple and a dict")
        node = self.create_node(kind, target, node_args, node_kwargs, name, type_expr)
        return proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)

    @compatibility(is_backward_compatible=True)
    def create_arg(self, a: Any) -> Argument:
        """The argument of a node that represents a value: proxies become nodes.

        Args:
            a: a proxy, a constant, or containers of them.

        Raises:
            NotImplementedError: a value that a graph cannot hold.
        """
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return self.create_node("call_function", type(a), tuple(map(self.create_arg, a)), {})
        if isinstance(a, (tuple, list)):
            values = [self.create_arg(item) for item in a]
            return tuple(values) if isinstance(a, tuple) else values
        if isinstance(a, dict):
            return self._dictionary(a)
        if isinstance(a, slice):
            return slice(*map(self.create_arg, (a.start, a.stop, a.step)))
        if isinstance(a, range):
            return range(*map(self.create_arg, (a.start, a.stop, a.step)))
        if is_dataclass(a) and not isinstance(a, type):
            values = {field.name: self.create_arg(getattr(a, field.name)) for field in fields(a)}
            return self.create_node("call_function", type(a), (), values)
        if isinstance(a, (*base_types, enum.Enum)) or a is None or a is ...:
            return a
        if _calls.is_constant(a):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _dictionary(self, a: dict[Any, Any]) -> dict[Any, Argument]:
        values = {}
        for key, value in a.items():
            new_key = self.create_arg(key)
            if isinstance(new_key, Node):
                raise _node_in_key(new_key)
            map_aggregate(new_key, _refuse_node)
            values[new_key] = self.create_arg(value)
        return values

    @compatibility(is_backward_compatible=True)
    def to_bool(self, obj: Proxy) -> bool:
        """Called where the truth of a proxy is needed, in `if` say.

        Raises:
            TraceError: always; subclasses may know the answer.
        """
        raise TraceError(_NOT_A_BRANCH)

    @compatibility(is_backward_compatible=True)
    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Called where a proxy is iterated over.

        Raises:
            TraceError: always; subclasses may know how many elements there are.
        """
        raise TraceError(_NOT_ITERABLE)

    @compatibility(is_backward_compatible=True)
    def keys(self, obj: Proxy) -> Any:
        """Called for `**proxy` and `proxy.keys()`: a proxy of the keys."""
        return Attribute(obj, "keys")()


def _node_in_key(key: Node) -> RuntimeError:
    return RuntimeError(
        f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {key}"
    )


def _refuse_node(value: Any) -> Any:
    if isinstance(value, Node):
        raise _node_in_key(value)
    return value


def _no_nodes_error(arg: Argument) -> NoReturn:
    raise _node_in_key(arg)


@compatibility(is_backward_compatible=True)
class GraphAppendingTracer(TracerBase):
    """A tracer that adds to a graph that exists: what proxies made by hand use."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.scope = Scope("", None)
        self.module_stack = collections.OrderedDict()
        self.node_name_to_scope = {}


def _instruction(frame: types.FrameType) -> dis.Instruction | None:
    """Returns the instruction that a frame executes."""
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset == frame.f_lasti:
            return instruction
    return None


@compatibility(is_backward_compatible=True)
class Proxy:
    """A value of a traced function. The graph records all operations on it.

    Operators, attributes, methods and functions of torch return proxies. Uses of the value itself
    (conditions, loops, lengths) raise `TraceError`. Make such a value a concrete argument, or
    put the code in a function marked by `torch.fx.wrap`, or in a leaf module.

    Example:
        >>> graph = torch.fx.Graph()
        >>> x = torch.fx.Proxy(graph.placeholder("x"))
        >>> (torch.relu(x) + 1).node
        add
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        if k == "tracer":  # of an object that is being copied or unpickled
            raise AttributeError(k)
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, d: dict[str, Any]) -> None:
        self.__dict__ = d

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        state = {key: copy.deepcopy(value, memo) for key, value in self.__dict__.items()}
        duplicate = Proxy.__new__(type(self))
        duplicate.__dict__.update(state)
        return duplicate

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        """Records a call of the value."""
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        frame = sys._getframe(1)
        instruction = _instruction(frame)
        if instruction is not None and instruction.opname == "UNPACK_SEQUENCE":
            return (self[index] for index in range(instruction.argval))
        return self.tracer.iter(self)

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and _asserts(sys._getframe(1)):
            self.tracer.create_proxy("call_function", assert_fn, (self,), {})
            return True
        return self.tracer.to_bool(self)

    @compatibility(is_backward_compatible=True)
    def keys(self) -> Any:
        """The keys, if the value is a dictionary."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(_NO_LENGTH)

    @classmethod
    def __torch_function__(
        cls,
        orig_method: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Records a call of a function of torch."""
        args, kwargs = args or (), kwargs or {}
        tracer = _only_tracer(orig_method, args, kwargs)
        kind, target, args, kwargs, name = _calls.record(
            orig_method, args, kwargs, sys._getframe(1), Proxy
        )
        if kind == "call_method":
            return tracer.create_proxy(kind, target, args, kwargs)
        return tracer.create_proxy(
            kind, target, args, kwargs, name=tracer.graph._target_to_str(name)
        )


def _only_tracer(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TracerBase:
    """The tracer of the proxies in the arguments of a call."""
    tracers: dict[Any, None] = {}

    def collect(value: Any) -> Any:
        if isinstance(value, Proxy):
            tracers[value.tracer] = None
        return value

    map_aggregate(args, collect)
    map_aggregate(kwargs, collect)
    if len(tracers) > 1:
        raise RuntimeError(
            f"Found multiple different tracers {list(tracers)} while "
            f"trying to trace operations {function}"
        )
    return next(iter(tracers))


def _asserts(frame: types.FrameType) -> bool:
    """Whether a frame tests the condition of an `assert`."""
    instructions = list(dis.get_instructions(frame.f_code))
    for index, instruction in enumerate(instructions):
        if instruction.offset == frame.f_lasti:
            following = [each.opname for each in instructions[index : index + 3]]
            return "LOAD_ASSERTION_ERROR" in following
    return False


@compatibility(is_backward_compatible=False)
class MetaProxy(Proxy):
    """A proxy that also runs each call on fake tensors and stores the result in `meta["val"]`.

    Args:
        node: the node.
        tracer: what records.
        fake_mode: a `FakeTensorMode` in which calls are run.
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None, fake_mode: Any = None) -> None:
        super().__init__(node, tracer)
        self.fake_mode = fake_mode

    def __repr__(self) -> str:
        return f"MetaProxy({self.node.name})"

    @classmethod
    def __torch_function__(
        cls,
        orig_method: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Records a call and runs it in the fake mode."""
        args, kwargs = args or (), kwargs or {}
        proxies = [value for value in args if isinstance(value, MetaProxy)]
        if not proxies:
            raise AssertionError("no MetaProxy found in args")
        proxy = super().__torch_function__(orig_method, types, args, kwargs)
        mode = proxies[0].fake_mode

        def value_of(each: Any) -> Any:
            return each.node.meta["val"] if isinstance(each, MetaProxy) else each

        with mode:
            proxy.node.meta["val"] = orig_method(
                *map_aggregate(args, value_of), **map_aggregate(kwargs, value_of)
            )
        return MetaProxy(proxy.node, proxy.tracer, mode)


@compatibility(is_backward_compatible=True)
class Attribute(Proxy):
    """An attribute of a proxy. Its node is made when it is used as a value; a call needs none."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root = root
        self.attr = attr
        self.tracer = root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that reads the attribute."""
        if self._node is None:
            self._node = self.tracer.create_proxy(
                "call_function", getattr, (self.root, self.attr), {}
            ).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        """Records a call of the method."""
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


@compatibility(is_backward_compatible=False)
class ParameterProxy(Proxy):
    """A proxy of a parameter whose sizes are numbers, so that conditions may use them."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        if not isinstance(param, torch.nn.Parameter):
            raise AssertionError(f"Expected nn.Parameter, got {type(param)}")
        self.param = param
        self.name = name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> torch.Size:
        """The parameter's sizes."""
        return self.param.shape

    def size(self, *dim: int) -> Any:
        """Its sizes, or the size of a dimension."""
        return self.param.size(*dim)

    def dim(self) -> int:
        """Its number of dimensions."""
        return self.param.dim()

    @property
    def ndim(self) -> int:
        """Its number of dimensions."""
        return self.param.ndim

    def numel(self) -> int:
        """Its number of elements."""
        return self.param.numel()

    def nelement(self) -> int:
        """Its number of elements."""
        return self.param.nelement()


def _operation(name: str) -> Callable[..., Any]:
    target = getattr(operator, name, None)

    def operation(*args: Any, **kwargs: Any) -> Any:
        return args[0].tracer.create_proxy("call_function", target, args, kwargs)

    operation.__name__ = f"__{name.strip('_')}__"
    return operation


def _reflected(name: str) -> Callable[..., Any]:
    target = getattr(operator, name, None)

    def operation(self: Proxy, rhs: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (rhs, self), {})

    operation.__name__ = f"__r{name.strip('_')}__"
    return operation


for _name in magic_methods:
    setattr(Proxy, f"__{_name.strip('_')}__", _operation(_name))
for _name in reflectable_magic_methods:
    setattr(Proxy, f"__r{_name.strip('_')}__", _reflected(_name))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]
