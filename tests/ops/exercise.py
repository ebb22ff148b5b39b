"""Runs an entry of the op table in every way the checks do, and returns what came out.

The checks compare these results; `warm` calls the same functions only to learn which kernels they
need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import flambeau
from flambeau.language.samples import Sample, TensorSpec
from tests.ops.inputs import INEXACT, IR_NAMES, arguments, leaves, specs, tensor_builder
from tests.ops.table import Entry, seed

DOUBLE_SAMPLES = 4  # of each signature, in double precision
GRADIENT_SAMPLES = 3  # of each signature, with derivatives


def is_tensor(value: Any) -> bool:
    """Whether a leaf of a result is a tensor."""
    return isinstance(value, flambeau.Tensor)


def ir_dtype(tensor: Any) -> str:
    """IR name of a tensor's dtype."""
    return IR_NAMES[str(tensor.dtype).rpartition(".")[2]]


def run(entry: Entry, sample: Sample, dtype: str) -> Any:
    """The result of one call."""
    args, kwargs = arguments(sample, tensor_builder(flambeau), dtype)
    seed()
    return entry.function(*args, **kwargs)


def relaid(sample: Sample, layout: str) -> Sample:
    """A sample whose plain operands lie in memory differently."""

    def change(value: Any) -> Any:
        if isinstance(value, TensorSpec):
            return value.relaid(layout) if value.layout == "contiguous" else value
        if isinstance(value, (list, tuple)):
            return type(value)(change(item) for item in value)
        return value

    return Sample(tuple(map(change, sample.args)), {k: change(v) for k, v in sample.kwargs.items()})


def size(sample: Sample) -> int:
    """Number of elements of the largest operand."""
    largest = 0
    for spec in specs(sample):
        count = 1
        for extent in spec.shape:
            count *= extent
        largest = max(largest, count)
    return largest


def differentiable_outputs(result: Any) -> list[Any]:
    """The tensors of a result that carry a gradient."""
    return [r for r in leaves(result) if is_tensor(r) and r.requires_grad]


def starts(outputs: Sequence[Any]) -> list[Any]:
    """Gradients to start backward from, made without a kernel: 1, 1.25, 1.5, ... in turn."""
    made = []
    for output in outputs:
        values = [1.0 + 0.25 * (i % 7) for i in range(output.numel())]
        flat = flambeau.tensor(values, dtype=output.dtype)
        made.append(flat.reshape(output.shape))
    return made


def with_gradients(entry: Entry, sample: Sample, dtype: str, call: Any = None) -> list[Any]:
    """The tensors of a result, then the gradient of every operand that requires one."""
    args, kwargs = arguments(sample, tensor_builder(flambeau, grad=True), dtype)
    operands = [a for a in leaves([args, list(kwargs.values())]) if is_tensor(a)]
    operands = [a for a in operands if a.requires_grad]
    seed()
    result = (call or entry.function)(*args, **kwargs)
    outputs = differentiable_outputs(result)
    found = [r.detach() if is_tensor(r) else r for r in leaves(result)]
    if outputs and operands:
        found += flambeau.autograd.grad(outputs, operands, starts(outputs), allow_unused=True)
    return found


def fused(entry: Entry) -> Any:
    """A function with the operator in the middle of others, for the compiler to fuse."""

    def function(*args: Any, **kwargs: Any) -> list[Any]:
        before = [_scaled(a) for a in args]
        outputs = leaves(entry.function(*before, **kwargs))
        return [o * 0.75 if is_tensor(o) and ir_dtype(o) in INEXACT else o for o in outputs]

    return function


def _scaled(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_scaled(item) for item in value)
    return value * 1.0 if is_tensor(value) and ir_dtype(value) in INEXACT else value


def everything(entry: Entry) -> Iterator[Any]:
    """Calls that together need nearly all kernels of the checks."""
    for dtype, count in (("f32", None), ("f64", DOUBLE_SAMPLES)):
        for sample in entry.samples(count):
            yield lambda s=sample, d=dtype: run(entry, s, d)
    for sample in entry.samples(2):
        yield lambda s=sample: with_gradients(entry, s, "f32", fused(entry))
        yield lambda s=sample: with_gradients(entry, s, "f32", flambeau.compile(fused(entry)))
        for dtype in ("f16", "bf16", "i64", "bool"):
            yield lambda s=sample, d=dtype: run(entry, s, d)
    for sample in entry.samples(1):
        for layout in ("transposed", "sliced"):
            moved = relaid(sample, layout)
            yield lambda s=moved: run(entry, s, "f32")
    for sample in entry.samples(GRADIENT_SAMPLES):
        yield lambda s=sample: second(entry, s)


def second(entry: Entry, sample: Sample) -> None:
    """Forward, backward and double backward in double precision."""
    args, kwargs = arguments(sample, tensor_builder(flambeau, grad=True), "f64")
    operands = [a for a in leaves([args, list(kwargs.values())]) if is_tensor(a)]
    operands = [a for a in operands if a.requires_grad]
    outputs = differentiable_outputs(entry.function(*args, **kwargs))
    found = flambeau.autograd.grad(
        outputs, operands, starts(outputs), create_graph=True, allow_unused=True
    )
    again = [g for g in found if g is not None and g.requires_grad]
    flambeau.autograd.grad(again, operands, starts(again), allow_unused=True)
