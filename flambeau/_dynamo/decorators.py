"""`torch._dynamo.decorators`: marks of functions and tensors for `torch.compile`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flambeau import _core
from flambeau.capture import flushes, recording
from flambeau.capture.regions import disable
from flambeau.ir.lock import late
from flambeau.runtime import boundaries
from flambeau.utils.compiler_names import (
    allow_in_graph,
    assume_constant_result,
    set_stance,
    substitute_in_graph,
)

__all__ = [
    "allow_c_slot", "allow_in_graph", "assume_constant_result", "disable",
    "disable_nested_graph_breaks", "disallow_in_graph", "dont_skip_tracing",
    "error_on_graph_break", "forbid_in_graph", "graph_break", "is_dynamo_disable_recursive",
    "leaf_function", "mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked",
    "maybe_mark_dynamic", "nonstrict_trace", "override_cudagraphs", "override_optimization_hint",
    "patch_dynamo_config", "run", "set_stance", "skip", "skip_frame", "step_unsupported",
    "substitute_in_graph",
]  # fmt: skip


def graph_break(msg: str = "") -> None:
    """Ends the recorded part of a region here: what was recorded runs now.

    Args:
        msg: shown by `explain`.

    Example:
        >>> def f(x):
        ...     y = x + 1
        ...     torch._dynamo.graph_break()
        ...     return y * 2
        >>> torch.compiler.explain(f, torch.ones(2)).graph_break_count
        1
    """
    problem = f"calls torch._dynamo.graph_break(){f': {msg}' if msg else ''}"
    flushes.require_no_break(problem, "drop the call")
    boundaries.crossing(msg or "torch._dynamo.graph_break()")
    if _core.is_recording():
        _core.record_flush(msg or "torch._dynamo.graph_break()")


def skip_frame(msg: str = "") -> None:
    """As `graph_break`: regions are not divided by functions."""
    graph_break(msg or "torch._dynamo.skip_frame()")


def step_unsupported(msg: str = "") -> None:
    """As `graph_break`."""
    graph_break(msg or "torch._dynamo.step_unsupported()")


def disallow_in_graph(fn: Any) -> Any:
    """A function that runs outside of regions.

    Args:
        fn: a function, or a list of them.
    """
    if isinstance(fn, (list, tuple)):
        return [disallow_in_graph(each) for each in fn]
    return disable(fn)


def forbid_in_graph(fn: Any) -> Any:
    """A function that raises inside of regions.

    Args:
        fn: a function, or a list of them.

    Raises:
        AssertionError: when it is called in a region.
    """
    if isinstance(fn, (list, tuple)):
        return [forbid_in_graph(each) for each in fn]
    if not callable(fn):
        raise AssertionError("forbid_in_graph expects a callable")

    @functools.wraps(fn)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if recording.is_compiling():
            raise AssertionError(
                f"[forbid_in_graph] {getattr(fn, '__name__', fn)} is called in a compiled region\n"
                "hint: call it outside of the compiled function"
            )
        return fn(*args, **kwargs)

    guarded._dynamo_forbidden = True  # type: ignore[attr-defined]
    return guarded


def _unchanged(fn: Any = None) -> Any:
    """Returns a function as it is: what this mark changes in PyTorch does not exist here."""
    return (lambda inner: inner) if fn is None else fn


def nonstrict_trace(traceable_fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function as it is: every function is recorded by running it."""
    return traceable_fn


leaf_function = nonstrict_trace
disable_nested_graph_breaks = dont_skip_tracing = run = _unchanged


def skip(fn: Any = None) -> Any:
    """A function that runs eagerly, while what it calls may be compiled."""
    return disable(fn)


def allow_c_slot(tp: type, *, tp_hash: bool = True, tp_richcompare: bool = True) -> type:
    """Returns a type as it is: objects are used as Python uses them."""
    return tp


def is_dynamo_disable_recursive(method: Callable[[Any], Any]) -> bool | None:
    """Whether a method was disabled together with what it calls; None where it was not."""
    return True if getattr(method, "_torchdynamo_disable", False) else None


class ErrorOnGraphBreakDecoratorContextManager(contextlib.ContextDecorator):
    """A `with` block, or a decorator, in which parts of a region may or must not end early.

    Args:
        error_on_graph_break: raise where one does.
    """

    def __init__(self, error_on_graph_break: bool) -> None:
        self.error_on_graph_break = error_on_graph_break

    def __enter__(self) -> None:
        self._listening = flushes.refusing(self.error_on_graph_break)
        self._listening.__enter__()

    def __exit__(self, *exception: Any) -> None:
        self._listening.__exit__(*exception)


def error_on_graph_break(
    error_on_graph_break: bool,
) -> ErrorOnGraphBreakDecoratorContextManager:
    """A `with` block, or a decorator, in which a graph break raises, or no longer does.

    The innermost block counts, but for functions compiled with `fullgraph=True`: there a graph
    break raises in any case.

    Args:
        error_on_graph_break: whether it raises.

    Example:
        >>> @torch.compile
        ... def f(x):
        ...     with torch._dynamo.error_on_graph_break(True):
        ...         y = x * 2
        ...     torch._dynamo.graph_break()
        ...     return y
        >>> f(torch.ones(1))
        tensor([2.])
    """
    return ErrorOnGraphBreakDecoratorContextManager(error_on_graph_break)


class CudagraphOverrideContextManager(contextlib.ContextDecorator):
    """A `with` block without effect: there are no CUDA graphs."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass


def override_cudagraphs(
    fwd: bool | None = None, bwd: bool | None = None
) -> CudagraphOverrideContextManager:
    """A `with` block without effect: there are no CUDA graphs."""
    return CudagraphOverrideContextManager()


def patch_dynamo_config(arg1: Any = None, arg2: Any = None, **kwargs: Any) -> Any:
    """`torch._dynamo.config.patch`."""
    return late("flambeau._dynamo.config").patch(arg1, arg2, **kwargs)


DynamoConfigPatchProxy = patch_dynamo_config


class _DimRange(NamedTuple):
    dim: int
    min: int | None
    max: int | None


def _mark(t: Any, index: Any, attribute: str) -> None:
    if isinstance(index, (list, tuple)):
        for each in index:
            _mark(t, each, attribute)
        return
    if not isinstance(index, int):
        raise AssertionError(f"[{attribute}] expected an index, got {index!r}\nhint: 0")
    if not hasattr(t, attribute):
        setattr(t, attribute, set())
    getattr(t, attribute).add(index)


def mark_dynamic(
    t: Any, index: int | Sequence[int], *, hint_override: int | None = None,
    min: int | None = None, max: int | None = None, specialize_on: list[Any] | None = None,
) -> None:  # fmt: skip
    """Notes on a tensor that a size varies: it is a symbol in graphs for backends.

    In our compiler's programs sizes of data are symbols in any case.

    Args:
        t: the tensor.
        index: the axis, or several.
        hint_override, specialize_on: stored by PyTorch for its compiler; without effect.
        min, max: the range of the size: a compiled function raises ConstraintViolationError where
            it is recorded with another one.

    Raises:
        AssertionError: `index` is no index.

    Example:
        >>> x = torch.ones(20)
        >>> torch._dynamo.mark_dynamic(x, 0, max=10)
        >>> torch.compile(torch.sin)(x)
        Traceback (most recent call last):
            ...
        flambeau.fx.experimental.symbolic_shapes.ConstraintViolationError: 20 not in range [0, 10]
    """
    _mark(t, index, "_dynamo_dynamic_indices")
    if not hasattr(t, "_dynamo_dynamic_range"):
        t._dynamo_dynamic_range = set()
    axes = index if isinstance(index, (list, tuple)) else [index]
    t._dynamo_dynamic_range |= {_DimRange(axis, min, max) for axis in axes}
    t._has_dynamo_dim_marking = True
    if (min is not None or max is not None) and _check_ranges not in recording.argument_checks:
        recording.argument_checks.append(_check_ranges)


def _check_ranges(args: object, kwargs: object) -> None:
    """Raises where an argument of a compiled function has a size outside of its range."""
    leaves = late("flambeau.utils._pytree").tree_leaves((args, kwargs))
    for leaf in (x for x in leaves if isinstance(x, _core.Tensor)):
        for axis, low, high in getattr(leaf, "_dynamo_dynamic_range", ()):
            size = leaf.shape[axis]
            if (low is not None and size < low) or (high is not None and size > high):
                error = late("flambeau.fx.experimental.symbolic_shapes").ConstraintViolationError
                raise error(f"{size} not in range [{low or 0}, {'inf' if high is None else high}]")


def maybe_mark_dynamic(t: Any, index: int | Sequence[int]) -> None:
    """As `mark_dynamic`, without a promise."""
    _mark(t, index, "_dynamo_weak_dynamic_indices")


def mark_unbacked(
    t: Any, index: int | Sequence[int], hint_override: int | None = None, strict: bool = False,
    specialize_on: list[Any] | None = None, **options: Any,
) -> None:  # fmt: skip
    """Notes on a tensor that nothing is known of a size."""
    _mark(t, index, "_dynamo_strict_unbacked_indices" if strict else "_dynamo_unbacked_indices")


def mark_static(t: Any, index: int | Sequence[int] | None = None) -> None:
    """Notes on a tensor, or a class of modules, that sizes do not vary.

    Args:
        t: the tensor or class.
        index: the axis, or several; None means all.
    """
    if isinstance(t, type):
        t._dynamo_marked_static = True  # type: ignore[attr-defined]
        return
    _mark(t, list(range(t.dim())) if index is None else index, "_dynamo_static_indices")


def mark_static_address(t: Any, guard: bool = False) -> None:
    """Notes on a tensor that its memory stays where it is.

    Raises:
        TypeError: no tensor.
    """
    if not isinstance(t, _core.Tensor):
        raise TypeError(f"mark_static_address expects a tensor but received {type(t)}")
    t._dynamo_static_input_type = "guarded" if guard else "unguarded"


def override_optimization_hint(x: Any, val: int) -> None:
    """Accepts: plans hold for every size."""
