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

from flambeau.runtime import plan_cache_clear  # noqa: E402
from tests.ops.inputs import arguments, leaves, tensor_builder, translated  # noqa: E402
from tests.ops.table import TABLE, resolve  # noqa: E402
from tests.parity.test_op_table import CASES  # noqa: E402

# Results that our backward reads and PyTorch's does not, and why.
READ_HERE = {
    "nn.functional.scaled_dot_product_attention": "PyTorch's other kernels save it, as ours does",
}

# Operands that our backward reads and PyTorch's does not, and why.
OPERANDS_READ_HERE = {
    "gradient": "coordinates are read again; PyTorch saves their differences",
    "kron": "PyTorch reads them, too, through an alias without a version: its gradient is wrong",
    "linalg.matrix_norm": "the nuclear and spectral norms decompose their operand again",
    "masked.std": "the operator's variance reads its operand",
    "masked.var": "the operator's variance reads its operand",
    "nn.functional.kl_div": "with log_target PyTorch saves two values of the operands' size",
    "nn.functional.scaled_dot_product_attention": "PyTorch's other kernels save them, as ours does",
    "norm_except_dim": "PyTorch copies the operand for one choice of dimensions",
    "nuclear_norm": "the general matrix norm reads its operand",
}

# PyTorch multiplies a copy of an operand that it expands, permutes or pads: the copy is saved. Here
# the operand is read where it lies, forward and backward.
OPERANDS_READ_HERE |= dict.fromkeys(
    (
        "conv2d", "conv3d", "einsum", "linalg.matmul", "matmul", "nn.functional.conv2d",
        "nn.functional.conv3d", "tensordot",
    ),
    "PyTorch saves a copy",
)  # fmt: skip


def attempt(library: Any, name: str, sample: Any, number: int, kind: str) -> bool | None:
    """Whether backward refuses a tensor that was written; None: there is nothing to differentiate.

    Args:
        number: of the result or operand.
        kind: "result" or "operand".
    """
    library.manual_seed(11)
    args, kwargs = arguments(sample, tensor_builder(library, grad=True), "f32")
    if library is torch:
        args = translated(args, flambeau, torch)
        kwargs = {k: translated(v, flambeau, torch) for k, v in kwargs.items()}
    operands = [x for x in leaves([args, [*kwargs.values()]]) if isinstance(x, library.Tensor)]
    results = leaves(resolve(library, name)(*args, **kwargs))
    results = [x for x in results if isinstance(x, library.Tensor)]
    wanted = [x for x in results if x.requires_grad]
    written = results if kind == "result" else operands
    if not wanted or number >= len(written):
        return None
    library.autograd.graph.increment_version(written[number])
    sums = [x.sum() for x in wanted]
    try:
        sum(x.real if x.is_complex() else x for x in sums).backward()
    except RuntimeError as error:
        if "modified by an inplace" in str(error) or "is a view" in str(error):
            return True
        raise
    return False


def compare(key: str, name: str, kind: str, excused: dict[str, str]) -> None:
    """Fails where backward here refuses what PyTorch's allows."""
    plan_cache_clear()  # plans of other sizes may save other values
    for sample in TABLE[key].samples(2):
        for number in range(4):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    theirs = attempt(torch, name, sample, number, kind)
            except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
                continue  # PyTorch has no gradient, or refuses the call
            if theirs is not False or name in excused:
                continue
            ours = attempt(flambeau, name, sample, number, kind)
            assert not ours, f"{sample}, {kind} {number}"


@pytest.mark.parametrize(("key", "name"), CASES, ids=[name for _, name in CASES])
def test_results(key: str, name: str) -> None:
    compare(key, name, "result", READ_HERE)


@pytest.mark.parametrize(("key", "name"), CASES, ids=[name for _, name in CASES])
def test_operands(key: str, name: str) -> None:
    compare(key, name, "operand", OPERANDS_READ_HERE)
