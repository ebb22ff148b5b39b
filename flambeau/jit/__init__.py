"""`torch.jit`: scripted and traced code, for programs that still use TorchScript.

Scripted code has Python's semantics: `script` resolves the names of a function's source and checks
that it is in TorchScript's subset, `trace` records the operators of one run; both give
source text that runs as Python over our operators, with types checked where values enter, and that
an archive stores, so that it loads without the class's source. There is no second compiler: give a
scripted module to `torch.compile` like any other. Deprecated, as in PyTorch.
"""

from __future__ import annotations

import builtins
import enum
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flambeau.futures import Future
from flambeau.jit import names
from flambeau.jit.archive import (
    CompilationUnit,
    export_opnames,
    jit_module_from_flatbuffer,
    load,
    save,
    save_jit_module_to_flatbuffer,
)
from flambeau.jit.freezing import freeze, optimize_for_inference, run_frozen_optimizations
from flambeau.jit.functions import (
    Error,
    ScriptFunction,
    ScriptWarning,
    library_function,
    script_function,
    scripts,
)
from flambeau.jit.markers import (
    Attribute,
    Final,
    _drop,
    _overload,
    _overload_method,
    _unwrap_optional,
    annotate,
    enabled,
    export,
    ignore,
    interface,
    is_scripting,
    is_tracing,
    unused,
)
from flambeau.jit.markers import isinstance_of as isinstance  # noqa: A004 - PyTorch's name
from flambeau.jit.modules import (
    RecursiveScriptModule,
    ScriptModule,
    script_method,
    script_module,
)
from flambeau.jit.recording import TracerWarning
from flambeau.jit.tracing import (
    TopLevelTracedModule,
    TracedModule,
    TracingCheckError,
    script_if_tracing,
    trace,
    trace_module,
)
from flambeau.nn import Module
from flambeau.runtime import missing as _missing

_script_if_tracing = script_if_tracing  # torchvision's name of it

__all__ = [
    "Attribute",
    "CompilationUnit",
    "Error",
    "Future",
    "ScriptFunction",
    "ScriptModule",
    "annotate",
    "enable_onednn_fusion",
    "export",
    "export_opnames",
    "fork",
    "freeze",
    "interface",
    "ignore",
    "isinstance",
    "load",
    "onednn_fusion_enabled",
    "optimize_for_inference",
    "save",
    "script",
    "script_if_tracing",
    "set_fusion_strategy",
    "strict_fusion",
    "trace",
    "trace_module",
    "unused",
    "wait",
]

_is = builtins.isinstance


def script(
    obj: Any,
    optimize: Any = None,
    _frames_up: int = 0,
    _rcb: Any = None,
    example_inputs: Any = None,
) -> Any:
    """Scripts a function, a module or a class.

    Args:
        obj: a function; a module (its `forward` and exported methods); a class that scripted code
            makes objects of (returned as it is).

    Returns:
        A `ScriptFunction`, or a `RecursiveScriptModule` that shares the module's parameters.

    Raises:
        torch.jit.frontend.UnsupportedNodeError: source outside of TorchScript's subset.
        RuntimeError: an undefined name, or a value that scripted code cannot hold.

    Example:
        >>> @torch.jit.script
        ... def clipped(x, low: float = 0.0):
        ...     return x.clamp(min=low)
        >>> clipped(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    warnings.warn(
        "`torch.jit.script` is deprecated. Please switch to `torch.compile` or `torch.export`.",
        DeprecationWarning,
        stacklevel=2,
    )
    if not enabled[0] or _is(obj, (ScriptModule, ScriptFunction)):
        return obj
    if _is(obj, Module):
        return script_module(obj)
    if inspect.isclass(obj):
        return _script_class(obj)
    if _is(obj, (list, dict)):
        return obj.copy()
    if names.is_library(obj):
        return library_function(obj)
    if inspect.isfunction(obj) or inspect.ismethod(obj):
        return script_function(obj)
    raise TypeError(
        f"[jit.script] {type(obj).__name__} cannot be scripted\n"
        "hint: a module, a class, callable, function, method or callable class is needed"
    )


def _script_class(cls: type) -> type:
    if issubclass(cls, Module):
        raise RuntimeError(
            f"Type '{cls}' cannot be compiled since it inherits from nn.Module, consider passing "
            "an instance instead"
        )
    if not issubclass(cls, enum.Enum):
        with scripts.lock:
            scripts.name_of_class(cls)
    return cls


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
    """A future of a call; as in PyTorch outside of scripted code, it runs at once.

    Example:
        >>> torch.jit.wait(torch.jit.fork(torch.add, torch.ones(1), 1))
        tensor([2.])
    """
    future: Future[Any] = Future()
    try:
        future.set_result(func(*args, **kwargs))
    except Exception as error:
        future.set_exception(error)
    return future


def wait(future: Future[Any]) -> Any:
    """The result of a future; raises what its call raised."""
    return future.wait()


_fork, _wait = fork, wait
_fusion_strategy: list[tuple[str, int]] = [("STATIC", 2), ("DYNAMIC", 10)]
_onednn = False


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Stores how often PyTorch's fuser would specialize; returns the setting before."""
    global _fusion_strategy
    before, _fusion_strategy = _fusion_strategy, strategy
    return before


def enable_onednn_fusion(enabled: bool) -> None:
    """Stores the setting: there is no oneDNN here."""
    global _onednn
    _onednn = enabled


def onednn_fusion_enabled() -> bool:
    """The setting of `enable_onednn_fusion`."""
    return _onednn


class strict_fusion:  # noqa: N801 - PyTorch's name
    """A block of scripted code that PyTorch must fuse as a whole; no effect here."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        return None


@contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """A block in which PyTorch's executor optimizes or not; no effect here."""
    yield


def last_executed_optimized_graph() -> Any:
    """PyTorch's graph of the last call, which Flambeau does not have."""
    from flambeau.jit.functions import no_graph

    raise no_graph()


del annotations  # of __future__: the name is a module's
globals()["__getattr__"] = _missing.getter(
    __name__, {}, ("annotations", "mobile", "quantized", "generate_bytecode", "_script", "_state")
)
