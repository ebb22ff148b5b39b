"""The op table against PyTorch: values, dtypes, shapes, strides, and which calls are refused.

Every sample of every operator that PyTorch has by the same name runs in both. Where the two differ
on purpose, or PyTorch lacks a dtype that flambeau has, the tables below say so.
"""

from __future__ import annotations

import warnings

import numpy
import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")

from flambeau.language.definition import REGISTRY  # noqa: E402
from tests.ops.inputs import (  # noqa: E402
    IR_NAMES,
    arguments,
    array,
    leaves,
    tensor_builder,
    translated,
)
from tests.ops.table import TABLE, UNINITIALISED, resolve  # noqa: E402

TOLERANCE = {"f32": 2e-5, "f64": 1e-9, "f16": 4e-3, "bf16": 3.2e-2, "c64": 2e-5, "c128": 1e-9}
# Names that PyTorch keeps for a lower-level function with other arguments.
OTHER_FUNCTION = {
    "max_pool1d": "torch.max_pool1d returns no indices",
    "max_pool2d": "torch.max_pool2d returns no indices",
    "max_pool3d": "torch.max_pool3d returns no indices",
    "max_pool1d_with_indices": "torch.max_pool1d_with_indices has no such flag",
    "adaptive_max_pool1d": "torch.adaptive_max_pool1d returns indices always",
}
# Results whose strides differ from PyTorch's.
OTHER_STRIDES = {
    "nn.functional.logsigmoid": "PyTorch gives contiguous results, ours follow the operand",
    "einsum": "PyTorch returns a view where nothing is summed",
    "unravel_index": "PyTorch returns columns of one matrix",
    "rsub": "PyTorch follows the second operand",
    "rot90": "PyTorch returns a transposed flip",
}
# (operator, dtype): values that differ by more than rounding, and why.
OTHER_VALUES = {
    ("div", "bf16"): "PyTorch divides in bfloat16 before it rounds to an integer",
    ("histc", "bf16"): "PyTorch computes the bin in bfloat16",
    ("histc", "f16"): "PyTorch computes the bin in float16",
}
# (operator, dtype): computed by PyTorch in float32 and rounded once.
IN_FLOAT32 = {
    ("conv_transpose3d", "f16"): "PyTorch adds the bias and the products in float16",
    ("conv_transpose3d", "bf16"): "without AVX-512, PyTorch adds the products in bfloat16",
}


def names(key):
    """The public names of an operator that PyTorch has too."""
    definition = REGISTRY[key]
    found = []
    for home in definition.options.where:
        prefix = {"torch": "", "method": "Tensor."}.get(home, f"{home}.")
        if home != "private" and not definition.name.startswith("_"):
            found.append(prefix + definition.name)
    return [n for n in found if resolve(torch, n) is not None]


CASES = [
    (key, name)
    for key in TABLE
    if key not in UNINITIALISED
    for name in names(key)
    if not (name in OTHER_FUNCTION or (name.startswith("Tensor.") and len(names(key)) > 1))
]


def in_float32(call):
    """A call of PyTorch that takes and gives halves and computes in float32."""

    def computed(x, *args):
        floats = (a.float() if isinstance(a, torch.Tensor) else a for a in args)
        return call(x.float(), *floats).to(x.dtype)

    return computed


def attempt(library, name, sample, dtype, key=""):
    """The leaves of a result of operator `key` by a public name, or the exception."""
    library.manual_seed(11)
    args, kwargs = arguments(sample, tensor_builder(library), dtype)
    if library is torch:
        args = translated(args, flambeau, torch)
        kwargs = {k: translated(v, flambeau, torch) for k, v in kwargs.items()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call = resolve(library, name)
            if library is torch and (key, dtype) in IN_FLOAT32:
                call = in_float32(call)
            return leaves(call(*args, **kwargs))
    except Exception as error:  # noqa: BLE001 - the type is what is compared
        return error


def dtype_of(value):
    return IR_NAMES.get(str(value.dtype).rpartition(".")[2])


def difference(ours, theirs, dtype, key):
    """What is different between two results, or None."""
    if len(ours) != len(theirs):
        return f"{len(ours)} results, expected {len(theirs)}"
    for a, b in zip(ours, theirs):
        if not isinstance(b, torch.Tensor):
            if a != b and str(a) != str(b):
                return f"{a!r}, expected {b!r}"
            continue
        for what in ("dtype", "shape"):
            mine, wanted = str(getattr(a, what)), str(getattr(b, what))
            if mine != wanted:
                return f"{what} {mine}, expected {wanted}"
        tolerance = TOLERANCE.get(dtype_of(b), 0)
        if (key, dtype) not in OTHER_VALUES:
            x, y = array(a), array(b)
            if not numpy.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True):
                return f"values {x}, expected {y}"
        pairs = zip(a.stride(), b.stride(), a.shape)
        strided = key not in OTHER_STRIDES and b.numel() > 0
        if strided and any(p != q and n > 1 for p, q, n in pairs):
            return f"strides {a.stride()}, expected {b.stride()} of {tuple(a.shape)}"
    return None


def compare(key, name, sample, dtype, strict):
    """Asserts that both libraries agree on one call.

    Args:
        strict: refusals must agree as well; otherwise a call that PyTorch refuses may work.
    """
    ours, theirs = (attempt(library, name, sample, dtype, key) for library in (flambeau, torch))
    if isinstance(theirs, Exception):
        lacking = isinstance(theirs, NotImplementedError) or "not implemented for" in str(theirs)
        if strict and not lacking:
            assert type(ours) is type(theirs), f"{sample}: {ours!r}, expected {theirs!r}"
        return
    assert not isinstance(ours, Exception), f"{sample}: refused: {ours!r}"
    wrong = difference(ours, theirs, dtype, key)
    assert wrong is None, f"{sample}: {wrong}"


@pytest.mark.parametrize(("key", "name"), CASES, ids=[name for _, name in CASES])
def test_float32(key, name):
    for sample in TABLE[key].samples():
        compare(key, name, sample, "f32", strict=True)


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16", "i64", "bool", "c64"])
@pytest.mark.parametrize(("key", "name"), CASES, ids=[name for _, name in CASES])
def test_dtypes(key, name, dtype):
    for sample in TABLE[key].samples(3):
        compare(key, name, sample, dtype, strict=False)


def _failing():
    for key, definition in REGISTRY.items():
        for name in names(key):
            seen = set()
            for overload in definition.overloads:
                make = overload.options.errors
                if make is None or id(make) in seen or name in OTHER_FUNCTION:
                    continue
                seen.add(id(make))
                for number, error in enumerate(make()):
                    yield pytest.param(name, error.sample, id=f"{name}-{number}")


@pytest.mark.parametrize(("name", "sample"), list(_failing()))
def test_exception_types(name, sample):
    """What fails here fails there, with the same type of exception."""
    ours, theirs = (attempt(library, name, sample, "f32") for library in (flambeau, torch))
    assert isinstance(theirs, Exception), f"{sample}: PyTorch takes it; ours: {ours!r}"
    assert type(ours) is type(theirs), f"{sample}: {ours!r}, expected {theirs!r}"


@pytest.mark.parametrize(("key", "name"), CASES, ids=[name for _, name in CASES])
def test_gradients(key, name):
    """First gradients of every sample equal PyTorch's in double precision."""
    for sample in TABLE[key].samples(3):
        found = [gradients(library, name, sample) for library in (flambeau, torch)]
        if found[1] is None:
            continue
        if found[0] is None:  # zero everywhere
            assert not any(g is not None and g.any() for g in found[1]), f"{sample}: no gradient"
            continue
        for ours, theirs in zip(*found):
            mine, wanted = (0 if g is None else array(g) for g in (ours, theirs))
            single = getattr(wanted, "dtype", None) == numpy.float32  # grouped_mm has no other
            close = {"rtol": 2e-5, "atol": 2e-5} if single else {"rtol": 1e-8, "atol": 1e-8}
            assert numpy.allclose(mine, wanted, equal_nan=True, **close), (
                f"{sample}: gradient {mine}, expected {wanted}"
            )


def gradients(library, name, sample):
    """Gradients of a result's sum (of squares), or None if PyTorch has none."""
    library.manual_seed(11)
    args, kwargs = arguments(sample, tensor_builder(library, grad=True), "f64")
    if library is torch:
        args = translated(args, flambeau, torch)
        kwargs = {k: translated(v, flambeau, torch) for k, v in kwargs.items()}
    operands = [a for a in leaves([args, list(kwargs.values())]) if isinstance(a, library.Tensor)]
    operands = [a for a in operands if a.requires_grad]
    try:
        outputs = leaves(resolve(library, name)(*args, **kwargs))
    except Exception:  # noqa: BLE001 - test_float32 compares refusals
        return None
    outputs = [o for o in outputs if isinstance(o, library.Tensor) and o.requires_grad]
    if not outputs or not operands or any(o.is_complex() for o in outputs):
        return None
    starts = [
        library.arange(1, o.numel() + 1, dtype=library.float64).reshape(o.shape).to(o.dtype) / 8
        for o in outputs
    ]
    return library.autograd.grad(outputs, operands, starts, allow_unused=True)
