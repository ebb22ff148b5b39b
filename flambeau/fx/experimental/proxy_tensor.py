"""`make_fx` and its relatives: graphs of inner operators, which are not made here yet."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import flambeau as torch
from flambeau.fx import Graph, GraphModule, Tracer
from flambeau.fx.interpreter import Interpreter
from flambeau.nested.ragged import SymInt

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

py_sym_types = (SymInt,)


def _refuse(op: str) -> NoReturn:
    raise NotImplementedError(
        f"[{op}] graphs of inner operators (aten) are not made here\n"
        "hint: torch.fx.symbolic_trace records functions and modules, torch.compile compiles them"
    )


def make_fx(
    f: Callable[..., Any],
    decomposition_table: Any = None,
    tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False,
    *,
    pre_dispatch: bool = False,
    record_module_stack: bool = False,
    **options: Any,
) -> Callable[..., GraphModule]:
    """In PyTorch: a function that records what a function does with its arguments.

    Args:
        f: the function.
        decomposition_table: operators in terms of others.
        tracing_mode: "real", "fake" or "symbolic".
        pre_dispatch: whether operators are recorded before autograd.
        record_module_stack: whether modules are remembered.
        options: further ones.

    Raises:
        NotImplementedError: always, with what there is instead.
    """
    _refuse("make_fx")


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


class PythonKeyTracer(Tracer):
    """A tracer without leaf modules, and without what `Tracer` wraps."""

    def __init__(self) -> None:
        super().__init__(autowrap_modules=())

    def call_module(
        self, m: torch.nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Records what a module does."""
        return forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """An attribute as it is."""
        return attr_val


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


def get_innermost_proxy_mode() -> None:
    """The mode that records inner operators: none."""
    return


def get_proxy_mode() -> None:
    """The mode that records inner operators: none."""
    return


def handle_sym_dispatch(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Calls a function of sizes, which are numbers."""
    return func(*args, **kwargs)


@contextlib.contextmanager
def maybe_disable_thunkify() -> Iterator[None]:
    """A `with` block that changes nothing: no computation of sizes is put off."""
    yield


@contextlib.contextmanager
def maybe_enable_thunkify() -> Iterator[None]:
    """A `with` block that changes nothing: no computation of sizes is put off."""
    yield


def disable_proxy_modes_tracing() -> contextlib.AbstractContextManager[None]:
    """A `with` block in which nothing is recorded: nothing is anyway."""
    return contextlib.nullcontext()


def is_sym_node(node: Any) -> bool:
    """Whether a node's value is a symbolic size."""
    return isinstance(getattr(node, "meta", {}).get("val"), SymInt)
