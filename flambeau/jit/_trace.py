"""`torch.jit._trace`: names of tracing under PyTorch's private module."""

from __future__ import annotations

import textwrap
from typing import Any, NoReturn

from flambeau._core import Tensor
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.jit.markers import is_tracing
from flambeau.jit.recording import TracerWarning
from flambeau.jit.tracing import (
    TopLevelTracedModule,
    TracedModule,
    TracingCheckError,
    trace,
    trace_module,
)

__all__ = [
    "ONNXTracedModule",
    "TopLevelTracedModule",
    "TracedModule",
    "TracerWarning",
    "TracingCheckError",
    "analyze_ts_result_with_export_result",
    "indent",
    "is_tracing",
    "make_module",
    "make_tuple",
    "trace",
    "trace_module",
    "verify",
    "wrap_check_inputs",
]


class ONNXTracedModule:
    """A module traced for ONNX.

    Raises:
        NotImplementedError: always.
    """

    def __init__(self, inner: Any, *options: Any, **named_options: Any) -> None:
        problem = "programs are not exported to ONNX"
        raise failure(NotImplementedError, "ONNXTracedModule", problem, "torch.jit.trace")


def indent(s: str) -> str:
    """A text with a tab before each line."""
    return textwrap.indent(s, "\t", lambda line: True)


def make_tuple(example_inputs: Any) -> tuple[Any, ...]:
    """Inputs as a tuple: of one tensor or dict alone, or of a sequence."""
    if isinstance(example_inputs, (Tensor, dict)):
        return (example_inputs,)
    return tuple(example_inputs)


def wrap_check_inputs(check_inputs: Any) -> Any:
    """Inputs of checks as inputs of `forward`, by name."""
    return None if check_inputs is None else [{"forward": each} for each in check_inputs]


def make_module(mod: Any, _module_class: Any, _compilation_unit: Any) -> NoReturn:
    """Raises: tracing makes its own modules.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError("[jit] make_module has no counterpart\nhint: torch.jit.trace_module")


def verify(model: Any, args: Any, loss_fn: Any = None, devices: Any = None) -> None:
    """Compares a module with its trace, results and gradients.

    Args:
        model: the module.
        args: a tuple of inputs.
        loss_fn: of the results; the sum where it is None.
        devices: None, or a list without GPUs.

    Raises:
        AssertionError: they differ.
    """
    torch = late("flambeau")
    assert_close = late("flambeau.testing").assert_close
    args = make_tuple(args)
    traced = trace(model, args, check_trace=False)
    results = [call(*args) for call in (model, traced)]
    assert_close(results[0], results[1])
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        return
    loss_fn = loss_fn or torch.sum
    grads = [torch.autograd.grad(loss_fn(r), parameters, allow_unused=True) for r in results]
    for one, two in zip(*grads, strict=True):
        assert_close(one, two)


def analyze_ts_result_with_export_result(export: Any, trace: Any) -> bool:
    """Whether two results hold close values."""
    torch = late("flambeau")
    tree_leaves = late("flambeau.utils._pytree").tree_leaves
    pairs = zip(tree_leaves(export), tree_leaves(trace), strict=True)
    return all(torch.allclose(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs)
