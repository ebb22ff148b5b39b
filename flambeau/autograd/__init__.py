"""Differentiation by reverse mode: `backward`, `grad`, gradient modes, hooks, custom functions.

Operations record themselves on a native tape (`flambeau._core`); this package is its public face.
How an operation's backward comes about is `derive.py`'s matter. Nothing here imports the operator
library when it is loaded: that library needs `derive` itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import _core
from flambeau.autograd import anomaly, grad_mode, graph
from flambeau.autograd.anomaly import detect_anomaly, set_detect_anomaly
from flambeau.autograd.function import Function, _transformed, once_differentiable
from flambeau.autograd.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from flambeau.autograd.gradcheck import gradcheck, gradgradcheck
from flambeau.autograd.graph import GradientEdge, RemovableHandle
from flambeau.ir.lock import importing, late

Tensor = Any

__all__ = [
    "Function",
    "NestedIOFunction",
    "anomaly",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "enforce_grad_layout_policy",
    "forward_ad",
    "functional",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "once_differentiable",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
    "variable",
]


def __getattr__(name: str) -> Any:
    """Submodules that few programs use: they are loaded on first access."""
    if name in (
        "profiler",
        "profiler_legacy",
        "profiler_util",
        "forward_ad",
        "functional",
        "anomaly_mode",
    ):
        return late(f"flambeau.autograd.{name}")
    if name in ("NestedIOFunction", "enforce_grad_layout_policy"):
        return getattr(late("flambeau.autograd.older"), name)
    if name == "_profiler_enabled":
        return late("flambeau.autograd.older").profiler_enabled
    from flambeau.runtime import missing

    missing.refuse(__name__, name)


def _tuple(values: Any) -> tuple[Any, ...]:
    if isinstance(values, (_core.Tensor, GradientEdge)):
        return (values,)
    return tuple(values)


def _is_made_of_others(value: Any) -> bool:
    """Whether a tensor (a sparse one) has its place in the graph through another tensor."""
    return type(value) is not _core.Tensor and hasattr(value, "_on_tape")


def _on_tape(values: Sequence[Any]) -> tuple[Any, ...]:
    """Replaces composed tensors by the tensors that the tape records."""
    return tuple(v._on_tape() if _is_made_of_others(v) else v for v in values)


def _seeds(roots: Sequence[Any], grads: Sequence[Any]) -> tuple[Any, ...]:
    """Gradients to start from, as gradients of what is in the graph."""
    return tuple(
        r._values_of_gradient(g) if g is not None and _is_made_of_others(r) else g
        for r, g in zip(roots, grads, strict=True)
    )


def _gradients(name: str, roots: Sequence[Any], grad_outputs: Any) -> tuple[Any, ...]:
    """One gradient or None per root."""
    if grad_outputs is None:
        return (None,) * len(roots)
    values = (grad_outputs,) if isinstance(grad_outputs, _core.Tensor) else tuple(grad_outputs)
    if len(values) != len(roots):
        raise RuntimeError(
            f"[{name}] got {len(roots)} tensors and {len(values)} gradients\n"
            "hint: give one gradient (or None) per tensor"
        )
    for value in values:
        if value is not None and not isinstance(value, _core.Tensor):
            raise TypeError(
                f"[{name}] gradients can be either Tensors or None, but got "
                f"{type(value).__name__}\nhint: pass tensors"
            )
    return values


@_core.shield
def backward(
    tensors: Tensor | Sequence[Tensor] | GradientEdge | Sequence[GradientEdge],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Tensor | Sequence[Tensor | None] | None = None,
    inputs: Tensor | Sequence[Tensor] | GradientEdge | None = None,
) -> None:
    """Add the gradients of the sum of *tensors* to the `.grad` of the leaves.

    Args:
        tensors: what is differentiated.
        grad_tensors: per tensor, the gradient to start from (its shape); None for a tensor of one
            element means 1.
        retain_graph: retain saved tensors for a second backward; default: *create_graph*.
        create_graph: record the backward itself, for higher derivatives.
        grad_variables: the old name of *grad_tensors*.
        inputs: only these tensors get gradients; default: all leaves.

    Raises:
        RuntimeError: nothing requires a gradient, shapes differ, the graph was freed, or a saved
            tensor was written in place.
    """
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError(
                "[backward] `grad_tensors` and `grad_variables` (deprecated) arguments both passed "
                "to `backward()`\nhint: use `grad_tensors`"
            )
        grad_tensors = grad_variables
    targets = None if inputs is None else _tuple(inputs)
    if targets is not None:
        if not targets:
            raise RuntimeError(
                "[backward] `inputs` argument to `backward()` cannot be empty\n"
                "hint: leave it out for all leaves"
            )
        for item in targets:
            if isinstance(item, _core.Tensor) and item.requires_grad and not item.is_leaf:
                item.retain_grad()
        targets = _on_tape(targets)
    roots = _tuple(tensors)
    keep = create_graph if retain_graph is None else retain_graph
    grads = _seeds(roots, _gradients("backward", roots, grad_tensors))
    _core.run_backward(_on_tape(roots), grads, keep, create_graph, targets, True, True)


@_core.shield
def grad(
    outputs: Tensor | Sequence[Tensor] | GradientEdge | Sequence[GradientEdge],
    inputs: Tensor | Sequence[Tensor] | GradientEdge | Sequence[GradientEdge],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """Return the gradients of the sum of *outputs* with respect to *inputs*.

    Args:
        outputs: what is differentiated.
        inputs: leaves or interior tensors; a dict gives a dict.
        grad_outputs: per output, the gradient to start from; None for one element means 1.
        retain_graph: retain saved tensors for a second backward; default: *create_graph*.
        create_graph: record the backward itself, for higher derivatives.
        only_inputs: must be True (the `.grad` of leaves is never touched).
        allow_unused: return None for inputs that the outputs do not depend on, instead of raising;
            default: *materialize_grads*.
        is_grads_batched: the first dimension of every gradient in *grad_outputs* counts
            gradients; so does that of the results.
        materialize_grads: zeros instead of None for unused inputs.

    Returns:
        One tensor (or None) per input.
    """
    if isinstance(inputs, dict):
        named = grad(
            outputs, tuple(inputs.values()), grad_outputs, retain_graph, create_graph, only_inputs,
            allow_unused, is_grads_batched, materialize_grads,
        )  # fmt: skip
        return dict(zip(inputs, named, strict=True))
    asked = (*_tuple(outputs), *_tuple(inputs))
    if _core.has_torch_function(asked):
        grads_of_inputs = _core.handle_torch_function(
            grad, asked, (outputs, inputs, grad_outputs, retain_graph, create_graph),
            {"allow_unused": allow_unused, "is_grads_batched": is_grads_batched,
             "materialize_grads": materialize_grads},
        )  # fmt: skip
        return tuple(grads_of_inputs)
    _check_options(only_inputs, allow_unused, materialize_grads)
    if is_grads_batched:
        return _batched_grad(outputs, inputs, grad_outputs, create_graph, allow_unused)
    roots, targets = _tuple(outputs), _tuple(inputs)
    keep = create_graph if retain_graph is None else retain_graph
    unused = materialize_grads if allow_unused is None else allow_unused
    grads = _gradients("grad", roots, grad_outputs)
    if not targets:
        raise ValueError("[grad] grad requires non-empty inputs.\nhint: pass what to derive by")
    if _transformed((*roots, *targets)):
        with importing:
            from flambeau.autograd.transforms.reverse import gradients

        grads_of_inputs = gradients(roots, grads, targets, create_graph, unused)
    else:
        grads_of_inputs = _taped_gradients(roots, grads, targets, keep, create_graph, unused)
    if not materialize_grads or not any(f is None for f in grads_of_inputs):
        return tuple(grads_of_inputs)
    return tuple(
        _zeros_for(i, create_graph) if f is None else f
        for f, i in zip(grads_of_inputs, targets, strict=True)
    )


def _check_options(only_inputs: bool, allow_unused: bool | None, materialize_grads: bool) -> None:
    if not only_inputs:
        raise NotImplementedError(
            "[grad] only_inputs=False is not supported\nhint: use autograd.backward"
        )
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "[grad] Expected allow_unused to be True or not passed when materialize_grads=True, "
            "but got: allow_unused=False.\nhint: leave allow_unused out"
        )


def _taped_gradients(
    roots: tuple[Any, ...],
    grads: Any,
    targets: tuple[Any, ...],
    keep: bool,
    create_graph: bool,
    unused: bool,
) -> list[Any]:
    """Runs the engine; gradients of sparse and nested tensors are of their kind."""
    seeds, inner = _seeds(roots, grads), _on_tape(targets)
    results = _core.run_backward(_on_tape(roots), seeds, keep, create_graph, inner, unused, False)
    return [
        w._gradient(f) if _is_made_of_others(w) else f
        for w, f in zip(targets, results, strict=True)
    ]


def _batched_grad(
    outputs: Any, inputs: Any, grad_outputs: Any, create_graph: bool, allow_unused: bool | None
) -> tuple[Tensor, ...]:
    """`grad` for a batch of gradients of the outputs."""
    with importing:
        from flambeau.autograd.transforms.vmap import vmap

    cotangents = _gradients("grad", _tuple(outputs), grad_outputs)
    present = [g for g in cotangents if g is not None]
    absent: list[bool] = []

    def row(*grads: Tensor) -> tuple[Tensor, ...]:
        remaining = iter(grads)
        seeds = [None if g is None else next(remaining) for g in cotangents]
        gradients = grad(outputs, inputs, seeds, True, create_graph, allow_unused=allow_unused)
        absent[:] = [g is None for g in gradients]
        return tuple(g for g in gradients if g is not None)

    gradients = iter(vmap(row)(*present))
    return tuple(None if missing else next(gradients) for missing in absent)


def _zeros_for(item: Any, create_graph: bool) -> Tensor:
    if isinstance(item, GradientEdge):
        return _core.node_zeros(item.node, item.output_nr)
    return item.new_zeros(item.shape).requires_grad_(create_graph)


# ---------------------------------------------------------------- methods of Tensor


def _tensor_backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Sequence[Tensor] | None = None,
) -> None:
    """Add the gradient of this tensor to the `.grad` of the leaves; see `autograd.backward`."""
    if inputs is None and (gradient is None or isinstance(gradient, _core.Tensor)):
        keep = create_graph if retain_graph is None else retain_graph
        _core.run_backward((self,), (gradient,), keep, create_graph, None, True, True)
    else:
        backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def _register_hook(self: Tensor, hook: Any) -> RemovableHandle:
    """Call *hook* with the gradient of this tensor when it is computed.

    Args:
        hook: hook(grad) -> Tensor or None; a tensor replaces the gradient.

    Returns:
        A handle that removes the hook.
    """
    return graph._add_hook(_core.tensor_hooks(self), hook)


def _register_post_accumulate_grad_hook(self: Tensor, hook: Any) -> RemovableHandle:
    """Call hook(tensor) after the `.grad` of this leaf was added to."""
    return graph._add_hook(_core.post_accumulate_hooks(self), hook)


def _retain_grad(self: Tensor) -> None:
    """Store the gradient of this interior tensor in its `.grad`."""
    _core.retain_grad(self)


class _Engine:
    """The object behind `Variable._execution_engine`."""

    @staticmethod
    def queue_callback(callback: Any) -> None:
        """Call *callback* when the running backward is done."""
        _core.queue_callback(callback)


class _VariableMeta(type):
    def __instancecheck__(cls, other: object) -> bool:
        return isinstance(other, _core.Tensor)


class Variable(metaclass=_VariableMeta):
    """The old name of a tensor that autograd knows: `Variable(tensor)` returns the tensor."""

    _execution_engine = _Engine

    def __new__(cls, data: Tensor, requires_grad: bool = False) -> Tensor:
        """Return an alias of *data*."""
        alias = data.detach()
        return alias.requires_grad_() if requires_grad else alias


def _install() -> None:
    """Gives Tensor its autograd methods."""
    methods = {
        "backward": _tensor_backward,
        "register_hook": _register_hook,
        "register_post_accumulate_grad_hook": _register_post_accumulate_grad_hook,
        "retain_grad": _retain_grad,
    }
    for name, method in methods.items():
        method.__name__ = name
        method.__qualname__ = f"Tensor.{name}"
        setattr(_core.Tensor, name, _core.shield(method, False, True))


_install()
from flambeau.autograd import variable  # noqa: E402 - needs Variable
