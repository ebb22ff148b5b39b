"""`checkpoint`: saves memory by computing a part of the forward pass again in the backward pass.

The part runs without a graph; only its inputs are kept (Chen et al. 2016). The backward pass runs
it once more, with the generator's state of the first time, and differentiates that run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import flambeau as torch
from flambeau.utils import _pytree

__all__ = ["checkpoint", "checkpoint_sequential", "noop_context_fn"]

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


def noop_context_fn() -> Contexts:
    """No context around the forward pass, none around the recomputation."""
    return nullcontext(), nullcontext()


class _Recorded:
    """One checkpointed call: what it needs to run again.

    Attributes:
        function: the user's.
        template, tensors: its arguments, tensors taken out.
        contexts: around the first run and the second.
    """

    def __init__(
        self, function: Any, args: Any, kwargs: Any, contexts: Contexts, keep: bool
    ) -> None:
        leaves, self.spec = _pytree.tree_flatten((args, kwargs))
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = [leaves[i] for i in self.places]
        self.template = [None if isinstance(v, torch.Tensor) else v for v in leaves]
        self.function, self.contexts = function, contexts
        self.state = torch.get_rng_state() if keep else None
        self.result_spec: Any = None
        self.result_places: list[int] = []
        self.result_template: list[Any] = []

    def run(self, tensors: Sequence[Any], second: bool) -> list[Any]:
        """The leaves of the result for these tensors."""
        leaves = list(self.template)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = _pytree.tree_unflatten(leaves, self.spec)
        with self.contexts[1 if second else 0]:
            results, spec = _pytree.tree_flatten(self.function(*args, **kwargs))
        if not second:
            self.result_spec = spec
            self.result_places = [
                i for i, leaf in enumerate(results) if isinstance(leaf, torch.Tensor)
            ]
            self.result_template = list(results)
        return results

    def again(self, tensors: Sequence[Any]) -> list[Any]:
        """The tensors of the result, computed with the random numbers of the first run."""
        if self.state is None:
            results = self.run(tensors, True)
        else:
            now = torch.get_rng_state()
            torch.set_rng_state(self.state)
            try:
                results = self.run(tensors, True)
            finally:
                torch.set_rng_state(now)
        found = [leaf for leaf in results if isinstance(leaf, torch.Tensor)]
        if len(found) != len(self.result_places):
            raise RuntimeError(
                "[checkpoint] the recomputation returned another number of tensors than the "
                f"forward pass: {len(found)} instead of {len(self.result_places)}\n"
                "hint: the function must do the same both times"
            )
        return found


def _check_same(first: Sequence[Any], again: Sequence[Any]) -> None:
    for position, ((shape, dtype), tensor) in enumerate(zip(first, again, strict=True)):
        if tuple(tensor.shape) != shape or tensor.dtype is not dtype:
            raise RuntimeError(
                f"[checkpoint] Recomputed values for result {position} have different metadata "
                f"than during the forward pass: {tuple(tensor.shape)} {tensor.dtype} instead of "
                f"{shape} {dtype}\nhint: the function must do the same both times"
            )


class _Checkpoint(torch.autograd.Function):
    """Forward without a graph, backward through a second forward.

    `anchor` is a tensor that needs a gradient even if no argument does: the function may use
    parameters that are no arguments of it.
    """

    @staticmethod
    def forward(ctx: Any, recorded: _Recorded, check: bool, anchor: Any, *tensors: Any) -> Any:
        ctx.recorded = recorded
        ctx.save_for_backward(*tensors)
        with torch.no_grad():
            results = recorded.run(tensors, False)
        found = [results[i] for i in recorded.result_places]
        ctx.expected = [(tuple(t.shape), t.dtype) for t in found] if check else None
        ctx.mark_non_differentiable(*(t for t in found if not t.dtype.is_floating_point))
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        recorded: _Recorded = ctx.recorded
        saved = ctx.saved_tensors
        inputs = [t.detach().requires_grad_(t.requires_grad) for t in saved]
        with torch.enable_grad():
            results = recorded.again(inputs)
        if ctx.expected is not None:
            _check_same(ctx.expected, results)
        pairs = [
            (tensor, grad)
            for tensor, grad in zip(results, grads, strict=True)
            if tensor.requires_grad and grad is not None
        ]
        if pairs:
            torch.autograd.backward([t for t, _ in pairs], [g for _, g in pairs])
        return None, None, None, *(t.grad for t in inputs)


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, whose intermediate results are computed again in backward.

    Args:
        function: must do the same every time; it may use parameters and random numbers.
        use_reentrant: accepted for PyTorch's sake; there is one implementation.
        context_fn: gives two context managers, around the run and around the recomputation.
        determinism_check: "default" compares shapes and dtypes of the results, "none" does not.
        debug, early_stop: accepted for PyTorch's sake.
        preserve_rng_state: the recomputation draws the same random numbers.

    Raises:
        ValueError: another `determinism_check`.
        RuntimeError: the recomputation gave other results (found in backward).

    Example:
        >>> x = torch.ones(3, requires_grad=True)
        >>> checkpoint(lambda v: v.exp().sin(), x, use_reentrant=False).sum().backward()
    """
    del use_reentrant, debug, early_stop
    if determinism_check not in ("default", "none"):
        raise ValueError(
            f"[checkpoint] determinism_check should be one of 'default', 'none', got "
            f"{determinism_check!r}\nhint: 'default'"
        )
    if not torch.is_grad_enabled():
        return function(*args, **kwargs)
    recorded = _Recorded(function, args, kwargs, context_fn(), preserve_rng_state)
    anchor = torch.empty(0, requires_grad=True)
    check = determinism_check == "default"
    found = _Checkpoint.apply(recorded, check, anchor, *recorded.tensors)
    results = list(recorded.result_template)
    found = found if isinstance(found, (tuple, list)) else (found,)
    for place, tensor in zip(recorded.result_places, found, strict=True):
        results[place] = tensor
    recorded.tensors = []  # the graph holds them; a function without gradients drops them
    recorded.result_template = [
        None if isinstance(value, torch.Tensor) else value for value in recorded.result_template
    ]
    return _pytree.tree_unflatten(results, recorded.result_spec)


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,  # noqa: A002 - PyTorch's name
    use_reentrant: bool | None = None,
    **kwargs: Any,
) -> Any:
    """A sequence of functions in `segments` parts, all but the last one checkpointed.

    Args:
        functions: a `Sequential` or a list of functions, each given the result of the one before.
        segments: number of parts.
    """
    chain = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = max(len(chain) // segments, 1)

    def part(start: int, end: int) -> Callable[[Any], Any]:
        def run(value: Any) -> Any:
            for step in chain[start:end]:
                value = step(value)
            return value

        return run

    last = size * (segments - 1)
    for start in range(0, last, size):
        input = checkpoint(  # noqa: A001
            part(start, start + size), input, use_reentrant=use_reentrant, **kwargs
        )
    return part(last, len(chain))(input)
