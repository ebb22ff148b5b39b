"""`torch._dynamo.utils`: counters of what was compiled, and small helpers.

Importing this module starts the counting.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from flambeau.capture import breaks, flushes, stream
from flambeau.ir.lock import late
from flambeau.utils._pytree import tree_leaves

__all__ = ["CompileProfiler", "clone_input", "compile_times", "counters", "is_compile_supported",
           "maybe_enable_compiled_autograd", "same"]  # fmt: skip

counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
"""Counts by kind: "stats" has `unique_graphs` and `calls_captured` (programs compiled and their
operators), "graph_break" why parts of regions ended early; "compiled_autograd" has `captures`, the
backwards that were new, and `compiles`, programs of `maybe_enable_compiled_autograd`."""


def _count_flush(event: flushes.Flush) -> None:
    if event.reason == breaks.END:
        counters["frames"]["total"] += 1
        counters["frames"]["ok"] += 1
    elif event.reason not in breaks.INTERNAL:
        counters["graph_break"][event.reason] += 1
    if not event.known and event.records:
        counters["stats"]["unique_graphs"] += 1
        counters["stats"]["calls_captured"] += event.records


flushes.count_flushes(_count_flush)


def maybe_enable_compiled_autograd(
    should_enable: bool, fullgraph: bool = True, dynamic: bool = True
) -> AbstractContextManager[None]:
    """A `with` block in which each backward is one program, whose programs are counted.

    Args:
        should_enable: False: a block without effect.
        fullgraph: raise where a hook reads data.
        dynamic: has no effect.

    Example:
        >>> from torch._dynamo.utils import counters, maybe_enable_compiled_autograd
        >>> x = torch.ones(3, requires_grad=True)
        >>> with maybe_enable_compiled_autograd(True):
        ...     (x * 2).sum().backward()
        >>> counters["compiled_autograd"]["captures"] > 0
        True
    """
    if not should_enable:
        return nullcontext()
    backwards = late("flambeau._dynamo.compiled_autograd")
    block: AbstractContextManager[None] = backwards._enable(backwards.counted(fullgraph, dynamic))
    return block


def is_compile_supported(device_type: Any) -> bool:
    """Whether `torch.compile` compiles for a device."""
    return str(device_type).partition(":")[0] == "cpu"


def compile_times(repr: str = "str", aggregate: bool = False) -> Any:  # noqa: A002 - PyTorch's name
    """Times of the compiler: not gathered here; `FLAMBEAU_DEBUG=1` prints them."""
    return "" if repr == "str" else ([], [])


def clone_input(x: Any, *, dtype: Any = None) -> Any:
    """A copy with the same strides and gradient."""
    copy = x.detach().clone() if dtype is None else x.detach().to(dtype)
    copy.requires_grad_(x.requires_grad)
    if x.grad is not None:
        copy.grad = clone_input(x.grad, dtype=dtype)
    return copy


def same(
    ref: Any, res: Any, fp64_ref: Any = None, cos_similarity: bool = False, tol: float = 1e-4,
    equal_nan: bool = False, exact_dtype: bool = True, **options: Any,
) -> bool:  # fmt: skip
    """Whether two results agree within a tolerance.

    Args:
        ref, res: tensors, numbers, or containers of them.
        fp64_ref: results of double precision; not needed here.
        cos_similarity: compare directions: at least 0.99.
        tol: relative and absolute tolerance.
        equal_nan: NaN equals NaN.
        exact_dtype: dtypes must be equal.
        options: of PyTorch's comparison of models; without effect.
    """
    import flambeau as torch

    one, two = tree_leaves(ref), tree_leaves(res)
    if len(one) != len(two):
        return False
    for a, b in zip(one, two, strict=True):
        if not isinstance(a, torch.Tensor):
            if type(a) is float:
                if abs(a - b) > tol * max(1.0, abs(a)) and not (equal_nan and a != a and b != b):
                    return False
            elif a != b:
                return False
            continue
        if a.shape != b.shape or (exact_dtype and a.dtype != b.dtype):
            return False
        if cos_similarity:
            x, y = a.flatten().to(torch.float64), b.flatten().to(torch.float64)
            if torch.nn.functional.cosine_similarity(x, y, dim=0, eps=1e-6).item() < 0.99:
                return False
        elif not torch.allclose(a, b.to(a.dtype), atol=tol, rtol=tol, equal_nan=equal_nan):
            return False
    return True


class CompileProfiler:
    """Counts what is compiled while it is the backend; see `counters`."""

    def __init__(self) -> None:
        self.frame_count = self.op_count = 0

    def __enter__(self) -> CompileProfiler:
        self._watching = stream.watching()
        self._reports = self._watching.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._watching.__exit__(*exception)
        self.frame_count = len(self._reports)

    def report(self) -> str:
        """Programs compiled in the block."""
        return f"{self.frame_count} programs compiled"
