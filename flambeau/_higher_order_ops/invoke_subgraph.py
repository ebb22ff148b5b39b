"""`invoke_subgraph`: a function that is compiled once for all calls of a region."""

from __future__ import annotations

import functools

from flambeau._higher_order_ops import operators
from flambeau._higher_order_ops.flat import Function, Value
from flambeau.ir.lock import late

__all__ = ["invoke_subgraph", "mark_compile_region"]

invoke_subgraph = operators.invoke_subgraph


def mark_compile_region(fn: Value = None, **options: Value) -> Function:
    """A function whose calls inside of a compiled region are programs of their own, compiled once.

    `torch.compiler.nested_compile_region` is the public name.

    Args:
        fn: the function; None returns a decorator.
        options: PyTorch's, without effect.
    """
    if fn is None:
        return lambda function: mark_compile_region(function, **options)
    if not callable(fn):
        raise TypeError(
            f"[nested_compile_region] expected a function, got {fn!r}\nhint: a function"
        )
    regions = late("flambeau.capture.regions")

    @functools.wraps(fn)
    def marked(*args: Value, **kwargs: Value) -> Value:
        return regions.as_one_stream(fn, args, kwargs)

    return marked
