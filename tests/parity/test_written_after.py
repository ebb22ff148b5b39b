"""Which operators read their results and operands in backward: what may be written after a call.

Each differentiable operator runs in both libraries; then one result, or one operand, counts as
written, and backward runs. Results may be written wherever PyTorch allows it.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")

from tests.ops.inputs import arguments, leaves, tensor_builder, translated  # noqa: E402
from tests.ops.table import TABLE, resolve  # noqa: E402
from tests.parity.test_op_table import CASES  # noqa: E402

# Results that our backward reads and PyTorch's does not, and why.
READ_HERE = {
    "nn.functional.scaled_dot_product_attention": "PyTorch's other kernels save it, as ours does",
}

# Views of another dtype: a write through one that needs a gradient is refused, not computed wrong.
REFUSED_HERE = {"view_as_complex", "view_as_real", "real", "imag"}


def attempt(library: Any, name: str, sample: Any, number: int) -> bool | None:
    """Whether backward refuses a result that was written; None: there is nothing to differentiate.

    Args:
        number: of the result.
    """
    library.manual_seed(11)
    args, kwargs = arguments(sample, tensor_builder(library, grad=True), "f32")
    if library is torch:
        args = translated(args, flambeau, torch)
        kwargs = {k: translated(v, flambeau, torch) for k, v in kwargs.items()}
    results = leaves(resolve(library, name)(*args, **kwargs))
    results = [x for x in results if isinstance(x, library.Tensor)]
    wanted = [x for x in results if x.requires_grad]
    if not wanted or number >= len(results):
        return None
    library.autograd.graph.increment_version(results[number])
    sums = [x.sum() for x in wanted]
    try:
        sum(x.real if x.is_complex() else x for x in sums).backward()
    except RuntimeError as error:
        if "modified by an inplace" in str(error) or "is a view" in str(error):
            return True
        raise
    return False


@pytest.mark.parametrize(("key", "name"), CASES, ids=[name for _, name in CASES])
def test_results(key: str, name: str) -> None:
    for sample in TABLE[key].samples(2):
        for number in range(4):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    theirs = attempt(torch, name, sample, number)
            except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
                continue  # PyTorch has no gradient, or refuses the call
            if theirs is not False or name in READ_HERE:
                continue
            try:
                ours = attempt(flambeau, name, sample, number)
            except NotImplementedError as error:
                assert name in REFUSED_HERE and "a view of another dtype" in str(error)
                continue
            assert not ours, f"{sample}, result {number}"
