"""`invoke_subgraph`: a function that is compiled once for all calls of a region."""

from __future__ import annotations

import functools

import flambeau as torch
from flambeau._higher_order_ops import operators
from flambeau._higher_order_ops.flat import Flat, Function, Value
from flambeau.ir.lock import late
from flambeau.runtime import boundaries
from flambeau.utils._pytree import tree_flatten, tree_unflatten

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
    recording = late("flambeau.capture.recording")

    @functools.wraps(fn)
    def marked(*args: Value, **kwargs: Value) -> Value:
        if boundaries.local.recorder is not None:
            return _recorded(fn, args, kwargs)
        return recording.as_one_stream(fn, args, kwargs)

    return marked


def _recorded(function: Function, args: Value, kwargs: Value) -> Value:
    """Calls a function as one node of a graph for a backend, of the tensors among its arguments."""
    leaves, spec = tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def call(*values: Value) -> Value:
        following = iter(values)
        merged = [next(following) if isinstance(x, torch.Tensor) else x for x in leaves]
        inner_args, inner_kwargs = tree_unflatten(merged, spec)
        return function(*inner_args, **inner_kwargs)

    flat = Flat(call, tree_flatten(tuple(tensors))[1])
    return flat.structured(operators.invoke_subgraph(flat, "subgraph", *tensors))
