"""`torch._dynamo.eval_frame`: `optimize`, `explain` and their relatives."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from flambeau.capture import breaks, regions
from flambeau.capture.module import OptimizedModule
from flambeau.ir.lock import loaded
from flambeau.reports.explanation import Explanation
from flambeau.reports.explanation import explain as explain_regions
from flambeau.utils.compiler_names import set_stance

__all__ = [
    "ExplainOutput", "OptimizedModule", "explain", "export", "innermost_fn", "is_dynamo_supported",
    "is_inductor_supported", "optimize", "optimize_assert", "remove_from_cache", "replay", "reset",
    "reset_recompile_user_contexts", "run", "set_recursion_limit", "set_stance",
]  # fmt: skip


def optimize(
    backend: Any = "inductor", *, nopython: bool = False, disable: bool = False,
    dynamic: bool | None = None, **hooks: Any,
) -> Callable[[Any], Any]:  # fmt: skip
    """The older form of `torch.compile`: a decorator.

    Args:
        backend: as of `torch.compile`.
        nopython: its `fullgraph`.
        disable, dynamic: as of `torch.compile`.
        hooks: functions that PyTorch calls about guards; there are none.
    """
    return lambda fn: regions.compile(
        fn, backend=backend, fullgraph=nopython, disable=disable, dynamic=dynamic
    )


def optimize_assert(backend: Any = "inductor", **options: Any) -> Callable[[Any], Any]:
    """As `optimize`, with `nopython=True`."""
    return optimize(backend, nopython=True, **options)


def run(fn: Any = None) -> Any:
    """Returns a function as it is: known programs are found by what they record."""
    return (lambda inner: inner) if fn is None else fn


def reset() -> None:
    """`torch.compiler.reset`, which also ends compilation of backwards."""
    regions.reset()
    backwards = loaded("flambeau._dynamo.compiled_autograd")
    if backwards is not None:
        backwards.reset()


def reset_recompile_user_contexts() -> None:
    """Returns: nothing is called when a function is compiled again."""


def set_recursion_limit(limit: int) -> None:
    """Sets Python's limit, if it is lower.

    Raises:
        ValueError: not positive.
    """
    if limit < 1:
        raise ValueError(f"[set_recursion_limit] expected a positive number, got {limit}\nhint: 1")
    sys.setrecursionlimit(max(limit, sys.getrecursionlimit()))


def replay(filename: str) -> NoReturn:
    """Raises: nothing is recorded for it.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "[replay] compiled functions are not recorded in files\nhint: call the function again"
    )


def export(f: Callable[..., Any], *args: Any, **kwargs: Any) -> NoReturn:
    """Raises: programs are not exported yet.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        "[export] torch._dynamo.export is not in Flambeau\n"
        "hint: torch.fx.symbolic_trace gives a graph, torch.jit.trace a program for files"
    )


class GraphCompileReason(NamedTuple):
    """Why a part of a region ended.

    Attributes:
        reason: what needed a value.
        user_stack: the line of the program.
        graph_break: True.
    """

    reason: str
    user_stack: list[str]
    graph_break: bool = True


class ExplainOutput:
    """The result of `explain`.

    Attributes:
        graphs: programs of the plans.
        graph_count: how many.
        graph_break_count: how often a part ended before the function did.
        break_reasons: why.
        op_count: operators recorded.
        ops_per_graph: operators of each part.
        out_guards: empty: programs are found by what they record.
        compile_times: text.
    """

    def __init__(self, explanation: Explanation) -> None:
        flushes = explanation.flushes
        self.graphs = explanation.graphs
        self.graph_count = len(flushes)
        self.graph_break_count = explanation.graph_break_count
        self.break_reasons = [
            GraphCompileReason(flush.reason, [flush.line])
            for flush in flushes
            if flush.reason != breaks.END
        ]
        self.op_count = sum(flush.records for flush in flushes)
        self.ops_per_graph = [flush.records for flush in flushes]
        self.out_guards: list[Any] = []
        self.compile_times = ""

    def __str__(self) -> str:
        lines = [
            f"Graph Count: {self.graph_count}",
            f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}",
            "Break Reasons:",
        ]
        for number, reason in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {number}:", f"    Reason: {reason.reason}"]
            lines += ["    User Stack:", *(f"      {line}" for line in reason.user_stack)]
        return "\n".join(lines)

    __repr__ = __str__


def explain(f: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Any:
    """Runs a function in a region and reports its parts.

    Args:
        f: the function.
        extra_args, extra_kwargs: its arguments; without them a function of the arguments is
            returned.

    Example:
        >>> torch._dynamo.explain(lambda x: x.sin() + 1)(torch.ones(2)).graph_break_count
        0
    """

    def inner(*args: Any, **kwargs: Any) -> ExplainOutput:
        return ExplainOutput(explain_regions(innermost_fn(f), *args, **kwargs))

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner


def innermost_fn(fn: Any) -> Any:
    """The function that was compiled."""
    while True:
        inner = getattr(fn, "_torchdynamo_orig_callable", None)
        if inner is None:
            return fn
        fn = inner


def remove_from_cache(f: Any) -> None:
    """Returns: programs are not stored by function."""


def is_dynamo_supported() -> bool:
    """True."""
    return True


is_inductor_supported = is_dynamo_supported


def check_if_dynamo_supported() -> None:
    """Returns: `torch.compile` works."""


check_if_inductor_supported = check_if_dynamo_supported
