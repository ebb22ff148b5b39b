"""`make_fx` and its relatives: graphs of inner operators (aten), recorded while a function runs."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import flambeau as torch
from flambeau._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from flambeau.fx import Graph, GraphModule, Tracer
from flambeau.fx._symbolic_trace import PH
from flambeau.fx.experimental._operator_trace import (
    Function,
    OperatorMode,
    OperatorTracer,
    Value,
    with_named_parameters,
)
from flambeau.fx.experimental._shape_env import ShapeEnv
from flambeau.fx.interpreter import Interpreter
from flambeau.ir.failure import failure
from flambeau.runtime.symbolic import SymBool, SymFloat, SymInt, is_symbolic
from flambeau.utils import _pytree as pytree
from flambeau.utils._python_dispatch import _get_current_dispatch_mode_stack, _set_modes

__all__ = [
    "DecompositionInterpreter",
    "PythonKeyTracer",
    "dispatch_trace",
    "get_innermost_proxy_mode",
    "get_proxy_mode",
    "handle_sym_dispatch",
    "make_fx",
    "maybe_disable_thunkify",
    "maybe_enable_thunkify",
    "py_sym_types",
    "selective_decompose",
]

py_sym_types = (SymInt, SymFloat, SymBool)


def _refuse(op: str) -> NoReturn:
    raise NotImplementedError(
        f"[{op}] graphs of inner operators (aten) are not made here\n"
        "hint: torch.fx.symbolic_trace records functions and modules, torch.compile compiles them"
    )


def make_fx(
    f: Callable[..., Any],
    decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
    tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False,
    *,
    pre_dispatch: bool = False,
    record_module_stack: bool = False,
    **options: Any,
) -> Callable[..., GraphModule]:
    """A function that records what a function does with its arguments.

    It runs the function once, and gives a module of the operators (`torch.ops.aten`) that ran,
    those of gradients that the function computes included. Branches and loops are not recorded:
    the module does what this run did. Numbers among the arguments are constants of the module.

    Args:
        f: the function or module.
        decomposition_table: per overload a function of other operators that replaces it.
        tracing_mode: "real" runs on the arguments, "fake" on tensors of their shapes without data,
            "symbolic" on such whose sizes are symbols (`torch.SymInt`): the graph holds for other
            sizes that satisfy the guards of its `shape_env`. There, integers among the arguments
            are symbols, too.
        pre_dispatch: in PyTorch, whether operators are recorded before autograd.
        record_module_stack: in PyTorch, whether modules are remembered.
        options: further ones of PyTorch, without effect.

    Returns:
        a function that takes the arguments of *f* and gives a `torch.fx.GraphModule`.

    Raises:
        ValueError: an unknown mode.
        NotImplementedError: `pre_dispatch`.
        RuntimeError: when *f* reads a value of its inputs' data; with symbols, when it branches on
            one.

    Example:
        >>> from torch.fx.experimental.proxy_tensor import make_fx
        >>> module = make_fx(lambda x: x.sin() * 2)(torch.ones(3))
        >>> [node.name for node in module.graph.nodes]
        ['x_1', 'sin', 'mul', 'output']
    """
    if tracing_mode not in ("real", "fake", "symbolic"):
        problem = f"tracing_mode is {tracing_mode!r}"
        raise failure(ValueError, "make_fx", problem, 'one of "real", "fake", "symbolic"')
    if pre_dispatch:
        problem, hint = "pre_dispatch is not recorded", "record the operators below gradients"
        raise failure(NotImplementedError, "make_fx", problem, hint)

    @functools.wraps(f)
    def wrapped(*args: Any) -> GraphModule:
        table = {} if decomposition_table is None else decomposition_table
        return _Recording(f, table, tracing_mode).run(args)

    return wrapped


class _Recording:
    """One run of a function that is recorded."""

    def __init__(self, function: Value, table: Mapping[Value, Function], tracing: str) -> None:
        self.function = function
        self.shape_env = ShapeEnv() if tracing == "symbolic" else None
        self.fakes = None
        if tracing != "real":
            self.fakes = FakeTensorMode(allow_non_fake_inputs=True, shape_env=self.shape_env)
        self.tracer = OperatorTracer()
        self.mode = OperatorMode(self.tracer, table, self.fakes)

    def run(self, args: tuple[Value, ...]) -> GraphModule:
        """The module of what the function did with these arguments."""
        named = with_named_parameters(self._body, self.function, len(args))
        leaves, spec = pytree.tree_flatten(args)
        inputs = [self._input(value, number) for number, value in enumerate(leaves)]
        self.args = pytree.tree_unflatten(inputs, spec)
        holes = pytree.tree_map(lambda _: PH, args)
        graph = self.tracer.trace(named, holes)
        self.mode.sizes.drop_unused()
        name = self.function.__class__.__name__
        if isinstance(self.function, types.FunctionType):
            name = self.function.__name__
        module = GraphModule(self.tracer.root, graph, name)
        module.shape_env = self.shape_env
        return module

    def _input(self, value: Value, number: int) -> Value:
        if type(value) is int and self.shape_env is not None:
            symbol = self.shape_env.create_symbol(value, f"input{number}")
            return self.shape_env.create_symintnode(symbol)
        if self.fakes is None or not isinstance(value, torch.Tensor):
            return value
        if isinstance(value, FakeTensor) and value.fake_mode is self.fakes:
            return value
        return self.fakes.from_tensor(value, source=f"input{number}")

    def _body(self, *proxies: Value) -> Value:
        """Runs the function, each tensor of its arguments standing for a placeholder."""
        leaves = pytree.tree_leaves(self.args)
        for value, proxy in zip(leaves, pytree.tree_leaves(proxies), strict=True):
            if isinstance(value, torch.Tensor):
                self.mode._track(value, proxy)
            elif is_symbolic(value):
                self.mode.sizes.leaf(value, proxy)
            else:
                proxy.node.meta["val"] = value
        with contextlib.ExitStack() as stack:
            if self.fakes is not None:  # which would answer before an operator comes here
                stack.enter_context(torch._C.DisableTorchFunctionSubclass())
            stack.enter_context(self.mode)
            if self.shape_env is not None:
                self.shape_env.recorder = self.mode.sizes
                stack.callback(setattr, self.shape_env, "recorder", None)
            results = self.function(*self.args)
        return pytree.tree_map(self._result, results)

    def _result(self, value: Value) -> Value:
        if is_symbolic(value):
            return self.mode.sizes.proxy(value)
        entry = self.mode.tracking.find(value) if isinstance(value, torch.Tensor) else None
        return value if entry is None else entry.proxy


def dispatch_trace(
    root: torch.nn.Module | Callable[..., Any],
    tracer: Tracer,
    concrete_args: tuple[Any, ...] | None = None,
) -> GraphModule:
    """Traces by a tracer.

    Args:
        root: module or function.
        tracer: the tracer.
        concrete_args: arguments with fixed values.
    """
    graph = tracer.trace(root, concrete_args)  # type: ignore[arg-type]
    name = root.__class__.__name__ if isinstance(root, torch.nn.Module) else root.__name__
    return GraphModule(tracer.root, graph, name)


PythonKeyTracer = OperatorTracer
ProxyTorchDispatchMode = OperatorMode


class DecompositionInterpreter(Interpreter):
    """In PyTorch: runs a graph by decompositions of its operators.

    Args:
        module: the module.
        new_graph: what is recorded.
        decomposition_table: operators in terms of others.
        kwargs: further options.

    Raises:
        NotImplementedError: always.
    """

    def __init__(
        self,
        module: GraphModule,
        new_graph: Graph,
        decomposition_table: Any = None,
        **kwargs: Any,
    ) -> None:
        _refuse("DecompositionInterpreter")


def selective_decompose(joint_gm: GraphModule, *args: Any, **kwargs: Any) -> NoReturn:
    """In PyTorch: a graph by decompositions of some operators. Refused."""
    _refuse("selective_decompose")


def get_proxy_mode() -> OperatorMode | None:
    """The mode that records inner operators now, or None."""
    modes = [x for x in _get_current_dispatch_mode_stack() if isinstance(x, OperatorMode)]
    return modes[-1] if modes else None


get_innermost_proxy_mode = get_proxy_mode


def handle_sym_dispatch(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Calls a function of sizes, which becomes a node where a node reads its result."""
    return func(*args, **kwargs)


@contextlib.contextmanager
def maybe_disable_thunkify() -> Iterator[None]:
    """A `with` block that changes nothing: no computation of sizes is put off."""
    yield


@contextlib.contextmanager
def maybe_enable_thunkify() -> Iterator[None]:
    """A `with` block that changes nothing: no computation of sizes is put off."""
    yield


@contextlib.contextmanager
def disable_proxy_modes_tracing() -> Iterator[None]:
    """A `with` block in which nothing is recorded."""
    before = _get_current_dispatch_mode_stack()
    _set_modes([mode for mode in before if not isinstance(mode, OperatorMode)])
    try:
        yield
    finally:
        _set_modes(before)


def is_sym_node(node: Any) -> bool:
    """Whether a node's value is a symbolic number."""
    return isinstance(getattr(node, "meta", {}).get("val"), py_sym_types)
