"""Operands of different dtypes: what PyTorch refuses is refused, and results have its dtype.

The first samples of every operator run with one operand in another dtype than the rest. Ours run on
the meta device where that decides alike, so that nothing is compiled.
"""

from __future__ import annotations

import warnings
from itertools import islice
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")

from flambeau.language.samples import Sample, TensorSpec  # noqa: E402
from tests.ops.inputs import PUBLIC, arguments, leaves, specs, tensor_builder, translated  # noqa: E402
from tests.ops.table import TABLE, resolve  # noqa: E402
from tests.parity.test_op_table import CASES  # noqa: E402

OTHERS = ("bf16", "i64", "bool", "c64")
# Refused here with an error that says what to do, taken by PyTorch.
REFUSED_HERE = dict.fromkeys(
    (
        "binary_cross_entropy_with_logits", "gaussian_nll_loss", "multilabel_soft_margin_loss",
        "normal", "poisson_nll_loss",
    ),
    "complex numbers are not implemented",
) | {
    "conv_tbc": "PyTorch adds a bias of another dtype here, in no other convolution",
    "linalg.solve_triangular": "PyTorch does not look at the dtypes and reads other memory",
    "lu_unpack": "a factorisation in masks means nothing",
    "masked.logaddexp": "logaddexp of integers is not implemented",
}  # fmt: skip
# Taken here, refused by PyTorch.
TAKEN_HERE = dict.fromkeys(
    (
        "multi_margin_loss", "multilabel_margin_loss", "special.chebyshev_polynomial_t",
        "special.chebyshev_polynomial_u", "special.chebyshev_polynomial_v",
        "special.chebyshev_polynomial_w", "special.hermite_polynomial_h",
        "special.hermite_polynomial_he", "special.laguerre_polynomial_l",
        "special.legendre_polynomial_p", "special.shifted_chebyshev_polynomial_t",
        "special.shifted_chebyshev_polynomial_u", "special.shifted_chebyshev_polynomial_v",
        "special.shifted_chebyshev_polynomial_w", "ops.aten.convolution_backward",
        "ops.aten.max_pool2d_with_indices_backward",
    ),
    "PyTorch has no kernel for half types",
) | dict.fromkeys(
    ("max_unpool1d", "max_unpool2d", "max_unpool3d"), "PyTorch has no kernel for integers"
)  # fmt: skip


def exchanged(value: Any, target: TensorSpec, dtype: str) -> Any:
    """`value` with one of its specs in another dtype."""
    if value is target:
        return TensorSpec(**vars(target) | {"dtype": dtype})
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(exchanged(item, target, dtype) for item in value)
    return value


def variants(sample: Sample) -> list[Sample]:
    """The sample with one operand in another dtype, one after the other."""
    tensors = specs(sample)[:4]
    if len(tensors) < 2:
        return []
    return [
        Sample(
            exchanged(sample.args, spec, dtype),
            {name: exchanged(value, spec, dtype) for name, value in sample.kwargs.items()},
        )
        for spec in tensors
        if spec.dtype is None
        for dtype in OTHERS
    ]


def on_meta(spec: TensorSpec, position: int, dtype: str) -> Any:
    """An operand of ours that has no memory."""
    kind = getattr(flambeau, PUBLIC[spec.dtype or dtype])
    return flambeau.empty(spec.shape, dtype=kind, device="meta")


def outcome(library: Any, name: str, sample: Sample, builder: Any) -> str:
    """The dtypes of the results, or "refused"."""
    args, kwargs = arguments(sample, builder, "f32")
    if library is torch:
        args = translated(args, flambeau, torch)
        kwargs = {k: translated(v, flambeau, torch) for k, v in kwargs.items()}
    try:
        results = leaves(resolve(library, name)(*args, **kwargs))
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        return "meta" if "meta" in str(error) else "refused"
    kinds = [x.dtype if isinstance(x, library.Tensor) else type(x).__name__ for x in results]
    return " ".join(str(kind).rpartition(".")[2] for kind in kinds)


def ours(name: str, sample: Sample, theirs: str) -> str:
    """What happens here; with memory where the meta device has another answer than PyTorch."""
    answer = outcome(flambeau, name, sample, on_meta)
    return answer if answer == theirs else outcome(flambeau, name, sample, tensor_builder(flambeau))


def excused(name: str, theirs: str, answer: str) -> bool:
    """Whether a table above names the difference."""
    table = TAKEN_HERE if theirs == "refused" else REFUSED_HERE if answer == "refused" else {}
    return name.removeprefix("nn.functional.") in table


@pytest.mark.parametrize(("key", "name"), CASES, ids=[name for _, name in CASES])
def test_one_operand_of_another_dtype(key: str, name: str) -> None:
    differences = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in islice(TABLE[key].samples(1), 1):
            for variant in variants(sample):
                theirs = outcome(torch, name, variant, tensor_builder(torch))
                answer = ours(name, variant, theirs)
                if theirs != answer and not excused(name, theirs, answer):
                    differences.append(f"{variant}: {theirs}, here {answer}")
    assert not differences, "\n".join(differences[:5])
