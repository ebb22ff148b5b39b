"""The dispatch mode behind `make_fx`: operators become nodes of a graph as they run.

A function runs on real tensors, below gradients. Each tensor that the mode has seen has a
node, by which arguments of operators are looked up. Nothing of the function's Python is
recorded, so that a graph holds for inputs that take the same branches.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import flambeau as torch
from flambeau._subclasses import fake_calls
from flambeau._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from flambeau._subclasses.identities import Identities
from flambeau._subclasses.symbolic_calls import snapshot
from flambeau._subclasses.traced_tensor import TracedTensor
from flambeau.autograd.transforms.wrappers import levels
from flambeau.decompositions.tables import PENDING, Decomposition, hidden_decomposition, pending
from flambeau.fx._symbolic_trace import Tracer
from flambeau.fx.experimental._symbolic_nodes import SizeNodes
from flambeau.fx.node import Node
from flambeau.fx.passes.shape_prop import _extract_tensor_metadata
from flambeau.fx.proxy import Proxy
from flambeau.ir.failure import failure
from flambeau.runtime.symbolic import is_symbolic
from flambeau.utils import _pytree as pytree
from flambeau.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

Value = Any  # of a recorded function: a tensor, a number, a container of them
Function = Callable[..., Value]
CONSTANT_ELEMENTS = 1  # of a tensor whose value is followed, so that `item` of it is a number
_READS = ("aten._local_scalar_dense.default", "aten.equal.default", "aten.is_nonzero.default")
_LIFTS = ("aten.lift_fresh.default", "aten.lift_fresh_copy.default")


_tags: ContextVar[tuple[tuple[str, Value], ...]] = ContextVar("tags", default=())


@contextmanager
def tagged(**tags: Value) -> Iterator[None]:
    """Inside, nodes that are recorded have these entries in `meta`."""
    token = _tags.set((*_tags.get(), *tags.items()))
    try:
        yield
    finally:
        _tags.reset(token)


class OperatorTracer(Tracer):
    """A tracer without leaf modules, whose root gets what the function reads beside its inputs."""

    def __init__(self) -> None:
        super().__init__(autowrap_modules=())
        self.names: dict[int, str] = {}
        self.held: list[Value] = []

    def call_module(
        self, m: torch.nn.Module, forward: Function, args: Value, kwargs: Value
    ) -> Value:
        """Records what a module does."""
        return forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Value, parameter_proxy_cache: dict[str, Value]) -> Value:
        """An attribute as it is."""
        return attr_val

    def create_arg(self, a: Value) -> Value:
        """The argument of a node; a parameter becomes one of the root."""
        if isinstance(a, torch.nn.Parameter):
            node = self.create_node("get_attr", self._parameter(a), (), {})
        else:
            node = super().create_arg(a)
        if isinstance(a, torch.Tensor) and isinstance(node, Node):
            node.meta.update(_described(a))
        return node

    def _parameter(self, parameter: torch.nn.Parameter) -> str:
        name = self.names.get(id(parameter))
        if name is None:
            name = self.names[id(parameter)] = self.get_fresh_qualname("_param_constant")
            self.held.append(parameter)
            setattr(self.root, name, parameter)
        return name


class Tracked(NamedTuple):
    """A tensor that is a node's.

    Attributes:
        tensor: the tensor, which stays alive so that its identity does.
        proxy: the node's.
        constant: its value, where that follows from the program alone.
    """

    tensor: Value
    proxy: Proxy
    constant: Value = None


class Tracking(Identities[Tracked]):
    """The nodes of tensors."""

    def add(self, tensor: Value, proxy: Proxy, constant: Value = None) -> None:
        """Lets a tensor stand for a node from now on."""
        self.set(tensor, Tracked(tensor, proxy, constant))

    def forget(self, nodes: set[Node], mark: int) -> None:
        """Tensors of erased nodes get the nodes that they had at a mark."""
        self.revert(mark, lambda entry: entry.proxy.node in nodes)


class OperatorMode(TorchDispatchMode):
    """Records every operator that runs inside.

    Args:
        tracer: owns the graph.
        table: operators that are replaced by functions of other operators.
        fakes: the mode of tensors without data, where they are traced.
    """

    def __init__(
        self, tracer: OperatorTracer, table: Mapping[Value, Function], fakes: Value = None
    ) -> None:
        super().__init__()
        self.tracer = tracer
        self.table = table
        self.fakes = fakes
        self.tracking = Tracking()
        self.sizes = SizeNodes(tracer, self._node_of)
        self._replacing: list[Value] = []

    def __torch_dispatch__(
        self, func: Value, types: Value, args: tuple[Value, ...] = (), kwargs: Value = None
    ) -> Value:
        """Runs an operator and records it, or what it is replaced by."""
        kwargs = kwargs or {}
        if func.overloadpacket.__name__ in PENDING:
            return self._recorded(func, args, kwargs, shown=pending(func, self.table))
        replacement = self.table.get(func) if func not in self._replacing else None
        if replacement is None and func not in self._replacing:
            replacement = hidden_decomposition(func, self.table)
        if replacement is not None:
            result = self._replaced(func, replacement, args, kwargs)
            if result is not NotImplemented:
                return result
        if str(func) in _READS:
            return self._read(func, args, kwargs)
        return self._recorded(func, args, kwargs)

    def _replaced(self, func: Value, replacement: Value, args: Value, kwargs: Value) -> Value:
        self._replacing.append(func)
        before = (next(iter(reversed(self.tracer.graph.nodes)), None), self.tracking.mark())
        try:
            with self:
                result = replacement(*args, **kwargs)
        finally:
            self._replacing.pop()
        if not isinstance(replacement, Decomposition):
            return result
        tensors = [x for x in pytree.tree_leaves(result) if _is_tensor(x)]
        if any(self.tracking.find(x) is None for x in tensors):
            result = NotImplemented  # made by something that no mode sees
        self._drop_unused(result, *before)
        return result

    def _drop_unused(self, result: Value, last: Node | None, mark: int) -> None:
        """Erases nodes after *last* that nothing reads: what a derivation computed on its way."""
        entries = [self.tracking.find(x) for x in pytree.tree_leaves(result) if _is_tensor(x)]
        results = {entry.proxy.node for entry in entries if entry is not None}
        erased: set[Node] = set()
        for node in reversed(self.tracer.graph.nodes):
            if node is last:
                break
            writes = node.op == "call_function" and _writes(node.target)
            if not node.users and node not in results and not writes:
                self.tracer.graph.erase_node(node)
                erased.add(node)
        self.tracking.forget(erased, mark)

    def _read(self, func: Value, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
        """A value of data; allowed where it depends on no input."""
        if self._is_unknown(func, args):
            return self._number(func, args)

        def constant(x: Value) -> Value:
            entry = self.tracking.find(x) if isinstance(x, torch.Tensor) else None
            if entry is not None and entry.constant is None:
                problem = f"a value of data is read by {func}: the graph would hold for it alone"
                hint = "make it an input, or use torch.where instead of a branch"
                raise failure(RuntimeError, "make_fx", problem, hint)
            return x if entry is None else entry.constant

        return func(*pytree.tree_map(constant, args), **pytree.tree_map(constant, kwargs))

    def _is_unknown(self, func: Value, args: tuple[Value, ...]) -> bool:
        """Whether a number of data is read that becomes a symbol."""
        if self.shape_env is None or func.overloadpacket.__name__ != "_local_scalar_dense":
            return False
        entry = self.tracking.find(args[0])
        return entry is not None and entry.constant is None

    def _number(self, func: Value, args: tuple[Value, ...]) -> Value:
        """A symbol for the only element of a tensor."""
        env, dtype = self.shape_env, args[0].dtype
        if dtype.is_complex:
            problem = "a complex number of data is read"
            raise failure(NotImplementedError, "make_fx", problem, "view_as_real, then item()")
        if dtype.is_floating_point:
            number = env.create_unbacked_symfloat()
        elif dtype == torch.bool:
            number = env.create_unbacked_symbool()
        else:
            number = env.create_unbacked_symint()
        proxies = tuple(self.tracking.find(x).proxy for x in args)
        name = self.tracer.graph._target_to_str(func.overloadpacket.__name__)
        proxy = self.tracer.create_proxy("call_function", func, proxies, {}, name=name)
        self.sizes.leaf(number, proxy)
        return number

    def _node_of(self, tensor: Value) -> Proxy | None:
        """The node of a tensor whose sizes are read; None: the graph does not have it."""
        entry = self.tracking.find(tensor)
        return None if entry is None else entry.proxy

    @property
    def shape_env(self) -> Value:
        """The environment of symbolic sizes, if any."""
        return None if self.fakes is None else self.fakes.shape_env

    def _restored(self, tensor: Value) -> Value:
        return tensor if self.shape_env is None else self.tracking.original(tensor)

    def _recorded(
        self, func: Value, args: tuple[Value, ...], kwargs: dict[str, Value], shown: Value = None
    ) -> Value:
        """Runs an operator and makes its node, which calls *shown* instead where that is given."""
        if levels():
            problem = f"{func} runs inside torch.func.vmap or jvp, which have calls of their own"
            hint = "record the function for a batch instead of mapping one for a row"
            raise failure(NotImplementedError, "make_fx", problem, hint)
        if str(func) in _LIFTS and self.tracking.find(args[0]) is None:
            return self._lifted(args[0])
        operands = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        entries = {id(x): self.tracking.find(x) for x in operands}
        nodes = {id(x): self._proxy_of(x, entries[id(x)]) for x in operands}
        nodes = {key: proxy for key, proxy in nodes.items() if proxy is not None}

        def node_of(value: Value) -> Value:
            value = nodes.get(id(value), value)
            return self.sizes.proxy(value) if is_symbolic(value) else value

        proxies, named = pytree.tree_map(node_of, (args, kwargs))
        target = shown or func
        name = self.tracer.graph._target_to_str(target.overloadpacket.__name__)
        proxy = self.tracer.create_proxy("call_function", target, proxies, named, name=name)
        proxy.node.meta.update(_tags.get())
        result = self._run(func, args, kwargs)
        self._track(result, proxy, self._constant(func, args, kwargs, entries, result))
        self._track_written(func, args, result, proxy)
        return result

    def _proxy_of(self, tensor: Value, entry: Tracked | None) -> Proxy | None:
        return self.unknown(tensor) if entry is None else entry.proxy

    def unknown(self, tensor: Value) -> Proxy | None:
        """The node of a tensor that the function did not make; None: a constant of the module."""
        return None

    def _run(self, func: Value, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
        if self.fakes is None:
            return func(*args, **kwargs)
        args, kwargs = pytree.tree_map(self._fake, (args, kwargs))
        return fake_calls.answer(self.fakes, func.overloadpacket._function, args, kwargs)

    def _fake(self, value: Value) -> Value:
        """A tensor without data in place of one that the function reads beside its inputs."""
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            return value
        entry = self.tracking.find(value)  # what a backward reads again has lost its type
        return self._constant_fake(value) if entry is None else entry.tensor

    def _constant_fake(self, tensor: Value) -> Value:
        """A tensor without data in place of one of the program, whose sizes are numbers."""
        return self.fakes.from_tensor(tensor, static_shapes=True)

    def _lifted(self, tensor: Value) -> Value:
        """A tensor of the program's own data: an attribute, of which each run gets a copy."""
        with _disable_current_modes():
            constant = tensor.clone()
        func = torch.ops.aten.lift_fresh_copy.default
        proxy = self.tracer.create_proxy(
            "call_function", func, (constant,), {}, name="lift_fresh_copy"
        )
        result = tensor if self.fakes is None else self._constant_fake(tensor)
        self._track(result, proxy, constant if _is_small(tensor) else None)
        return result

    def _constant(
        self, func: Value, args: Value, kwargs: Value, entries: Mapping[int, Value], result: Value
    ) -> Value:
        """The value of a small result that follows from constants alone."""
        constants = [None if entry is None else entry.constant for entry in entries.values()]
        plain = isinstance(result, torch.Tensor) and _is_small(result)
        if not plain or not constants or any(value is None for value in constants):
            return None
        if any(result is entry.tensor for entry in entries.values()):
            return None  # written in place
        values = dict(zip(entries, constants, strict=True))
        args, kwargs = pytree.tree_map(lambda x: values.get(id(x), x), (args, kwargs))
        with _disable_current_modes():
            return func(*args, **kwargs)

    def _track(self, result: Value, proxy: Proxy, constant: Value = None) -> None:
        """Lets results stand for a node, those of a list for its items."""
        if isinstance(result, torch.Tensor):
            proxy.node.meta.update(_described(result))
            self.tracking.add(result, proxy, constant)
            self.sizes.tensor(result, proxy)
        elif isinstance(result, (tuple, list)):
            proxy.node.meta["val"] = tuple(map(_value, result))
            for number, item in enumerate(result):
                if isinstance(item, torch.Tensor):
                    part = proxy[number]
                    part.node.meta.update(_tags.get())
                    self._track(item, part)

    def _track_written(
        self, func: Value, args: Sequence[Value], result: Value, proxy: Proxy
    ) -> None:
        """The tensor that an operator wrote: its result's node is its own."""
        if _writes(func) and args:
            target = args[0]
            if isinstance(target, torch.Tensor) and target is not result:
                self.tracking.add(target, proxy)


def _is_small(tensor: Value) -> bool:
    """Whether the value of a tensor is followed."""
    numel = tensor.numel()
    return isinstance(numel, int) and numel <= CONSTANT_ELEMENTS


def _is_tensor(x: Value) -> bool:
    return isinstance(x, torch.Tensor)


def _writes(func: Value) -> bool:
    """Whether an operator writes its first argument."""
    name = getattr(getattr(func, "overloadpacket", None), "__name__", "")
    return name == "copy_to" or (name.endswith("_") and not name.endswith("__"))


_shown = FakeTensorMode(allow_non_fake_inputs=True)  # of values that nodes show


def _value(x: Value) -> Value:
    """A tensor without data that has another's geometry; other values as they are."""
    if isinstance(x, TracedTensor) and x.geometry is not None:
        return snapshot(x)
    if not isinstance(x, torch.Tensor) or type(x) not in (torch.Tensor, torch.nn.Parameter):
        return x
    if x.layout != torch.strided:
        return x
    with _disable_current_modes():
        hollow = torch.empty_strided(tuple(x.shape), x.stride(), dtype=x.dtype, device="meta")
        return fake_calls.adopted(_shown, hollow, x.device)


def _described(tensor: Value) -> dict[str, Value]:
    """Facts that passes read of a node's value: `val` and `tensor_meta`."""
    if tensor.layout != torch.strided:
        return {"val": tensor}
    with _disable_current_modes():
        return {"val": _value(tensor), "tensor_meta": _extract_tensor_metadata(tensor)}


# ------------------------------------------------------------------------------- functions


def with_named_parameters(body: Function, function: Function, count: int) -> Function:
    """`body` with `count` parameters: those of a function by name, if it has that many."""
    names = _positional(function)
    if len(names) != count:
        names = [f"arg{number}" for number in range(count)]
    scope: dict[str, Value] = {"_body": body}
    listed = ", ".join(names)
    exec(f"def named({listed}):\n    return _body({listed})", scope)  # noqa: S102
    named: types.FunctionType = scope["named"]
    return named


def _positional(function: Function) -> list[str]:
    """Names of a plain function's parameters; none where it takes any number."""
    if not isinstance(function, types.FunctionType):
        return []
    code = getattr(inspect.unwrap(function), "__code__", None)
    if (
        code is None
        or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        or code.co_kwonlyargcount
    ):
        return []
    return list(code.co_varnames[: code.co_argcount])
