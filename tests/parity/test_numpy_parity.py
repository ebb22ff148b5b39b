"""NumPy's functions in compiled functions beside PyTorch's: elements, shapes, types, gradients."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")
from tests.capture.numpy_programs import operands, programs  # noqa: E402

for library in ("torch", "flambeau"):
    importlib.import_module(f"{library}.compiler")
pytestmark = pytest.mark.filterwarnings("ignore")

PROGRAMS = programs()
# A choice: PyTorch takes a second for each, and lacks translations of some.
NAMES = (
    "operators", "comparisons", "in place", "dtypes", "integer mean", "clip", "where", "shapes",
    "transpose", "joined", "stacked", "flip", "like", "created", "slices", "index arrays",
    "keepdims", "cumulative", "dot", "einsum", "inverse", "norms", "fourier", "statistics",
    "normalized", "softmax",
)  # fmt: skip


def compiled(library: Any, name: str) -> Any:
    """The program as a function of tensors, compiled."""
    library._dynamo.reset()
    wrapped = library.compiler.wrap_numpy(lambda *args: PROGRAMS[name](np, *args))
    return library.compile(wrapped, backend="eager")


@pytest.mark.parametrize("name", NAMES)
def test_elements(name: str) -> None:
    ours, theirs = [
        compiled(library, name)(*[library.tensor(x) for x in operands()])
        for library in (flambeau, torch)
    ]
    assert str(ours.dtype) == str(theirs.dtype) and tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["softmax", "keepdims", "dot", "einsum", "normalized", "norms"])
def test_gradients(name: str) -> None:
    results = []
    for library in (flambeau, torch):
        values = [library.tensor(x) for x in operands()]
        values[0].requires_grad_()
        result = compiled(library, name)(*values)
        weights = library.cos(library.arange(result.numel()).double()).reshape(result.shape)
        results.append(library.autograd.grad((result * weights).sum(), values[0])[0].numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-9, atol=1e-11)


def test_arrays_as_arguments() -> None:
    results = []
    for library in (flambeau, torch):
        library._dynamo.reset()
        function = library.compile(lambda a, b: np.exp(a).sum(axis=0) + b[1:], backend="eager")
        results.append(function(operands()[0], np.arange(4.0)))
    assert type(results[0]) is type(results[1]) is np.ndarray
    np.testing.assert_allclose(results[0], results[1], rtol=1e-12)
