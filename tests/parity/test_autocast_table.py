"""Every operator of the table under `autocast`: dtypes, values and gradients beside PyTorch's."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")

from tests.ops.inputs import arguments, leaves, tensor_builder, translated  # noqa: E402
from tests.ops.table import TABLE, resolve  # noqa: E402
from tests.parity.test_op_table import CASES  # noqa: E402

# The dtype of the operands, and that of the region.
SETTINGS = (("f32", "bfloat16"), ("f32", "float16"), ("bf16", "bfloat16"), ("f16", "bfloat16"))
TOLERANCE = {"bfloat16": 0.06, "float16": 0.01}

# Operators whose values are not compared, and why.
OTHER_VALUE = {
    "linalg.eig": "eigenvectors have any scale and order",
    "linalg.svd": "singular vectors have any sign",
    "svd": "singular vectors have any sign",
    "svd_lowrank": "singular vectors have any sign",
    "pca_lowrank": "singular vectors have any sign",
    "matrix_exp": "PyTorch's is wrong for bfloat16, without autocast too",
    "linalg.matrix_exp": "PyTorch's is wrong for bfloat16, without autocast too",
}
# Refused for the half types, without autocast too.
REFUSED = ("histogram", "histogramdd")


def call(library: Any, name: str, sample: Any, dtype: str, region: str, grad: bool = False) -> Any:
    """The results' tensors and the operands of a call under autocast, or the exception."""
    library.manual_seed(11)
    args, kwargs = arguments(sample, tensor_builder(library, grad=grad), dtype)
    if library is torch:
        args = translated(args, flambeau, torch)
        kwargs = {k: translated(v, flambeau, torch) for k, v in kwargs.items()}
    operands = [x for x in leaves([args, [*kwargs.values()]]) if isinstance(x, library.Tensor)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with library.autocast("cpu", getattr(library, region)):
                results = leaves(resolve(library, name)(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the caller looks at it
            return error, operands
    return [x for x in results if isinstance(x, library.Tensor)], operands


def text(x: Any) -> str:
    return str(x.dtype).rpartition(".")[2]


def far(ours: Any, theirs: Any, region: str) -> str | None:
    """What is different between two tensors beyond the accuracy of the region's dtype."""
    if ours.shape != theirs.shape:
        return f"shape {ours.shape}, expected {theirs.shape}"
    if theirs.layout != torch.strided or theirs.numel() == 0:
        return None
    wide = torch.complex128 if theirs.is_complex() else torch.float64
    a = torch.tensor(ours.resolve_conj().tolist(), dtype=wide)
    b = theirs.resolve_conj().to(wide)
    scale = max(float(b.abs().nan_to_num(0, 0, 0).max()), 1.0)
    close = torch.isclose(a, b, rtol=0, atol=TOLERANCE[region] * scale, equal_nan=True)
    return None if bool(close.all()) else f"{a}, expected {b}"


@pytest.mark.parametrize(("key", "name"), CASES, ids=[name for _, name in CASES])
def test_results(key: str, name: str) -> None:
    for sample in TABLE[key].samples(3):
        for dtype, region in SETTINGS:
            theirs, _ = call(torch, name, sample, dtype, region)
            if isinstance(theirs, Exception) or (name in REFUSED and dtype != "f32"):
                continue
            ours, _ = call(flambeau, name, sample, dtype, region)
            where = f"{sample}, {dtype} in {region}"
            assert not isinstance(ours, Exception), f"{where}: {ours!r}"
            expected = [text(x) for x in theirs]
            assert [text(x) for x in ours] == expected, where
            if name in OTHER_VALUE or TABLE[key].random:
                continue
            for mine, other in zip(ours, theirs, strict=True):
                wrong = far(mine, other, region)
                assert wrong is None, f"{where}: {wrong}"


def gradients(library: Any, name: str, sample: Any, region: str) -> list[Any] | None:
    """The gradients of float32 operands, by a backward after the region; None: there are none."""
    results, operands = call(library, name, sample, "f32", region, grad=True)
    operands = [x for x in operands if x.requires_grad]
    if isinstance(results, Exception):
        return None
    results = [x for x in results if x.requires_grad]
    if not results or not operands:
        return None
    total = sum((x.real if x.is_complex() else x).float().sum() for x in results)
    try:
        return list(library.autograd.grad(total, operands, allow_unused=True))
    except (RuntimeError, NotImplementedError):
        return None


# Gradients are not compared, and why.
OTHER_GRADIENT = OTHER_VALUE | {
    "polar": "PyTorch divides by |abs|: another sign where abs is negative, without autocast too",
    "as_strided_scatter": "a difference without autocast, too: known_differences.py",
}


@pytest.mark.parametrize(("key", "name"), CASES, ids=[name for _, name in CASES])
def test_gradients(key: str, name: str) -> None:
    if TABLE[key].random or name in OTHER_GRADIENT:
        return
    for sample in TABLE[key].samples(2):
        theirs = gradients(torch, name, sample, "bfloat16")
        if theirs is None:
            continue
        ours = gradients(flambeau, name, sample, "bfloat16")
        assert ours is not None, f"{sample}: no gradient"
        for mine, other in zip(ours, theirs, strict=True):
            if other is None or mine is None:
                assert other is None or not bool(other.any()), f"{sample}: no gradient"
                continue
            assert text(mine) == text(other), f"{sample}: {mine.dtype}, expected {other.dtype}"
            wrong = far(mine, other, "bfloat16")
            assert wrong is None, f"{sample}: {wrong}"
