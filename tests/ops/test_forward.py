"""Forward results equal the NumPy/SciPy reference, on every sample."""

from __future__ import annotations

import importlib
import inspect

import numpy
import pytest

from tests.ops.exercise import run
from tests.ops.inputs import arguments, array, array_builder, leaves
from tests.ops.table import TABLE, UNINITIALISED

TOLERANCE = {"f32": 2e-5, "f64": 1e-10}
# PyTorch's names for what NumPy calls otherwise; None: NumPy has no such argument.
RENAMED = {"dim": "axis", "keepdim": "keepdims", "correction": "ddof", "input": "a", "dtype": None}
REFERENCED = [
    (key, number)
    for key, entry in TABLE.items()
    for number, overload in enumerate(entry.overloads)
    if overload.options.reference is not None
]


def reference_of(overload):
    """The reference as a function of a sample's arguments."""
    reference = overload.options.reference
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.rpartition(".")
    function = getattr(importlib.import_module(module), name)
    names = [a.name for a in overload.schema.arguments]

    def call(*args, **kwargs):
        last = max((i for i, a in enumerate(args) if not _plain(a)), default=-1)
        named = dict(zip(names[last + 1 :], args[last + 1 :])) | kwargs
        if not _accepts(function, named):
            return function(*args, **kwargs)
        renamed = {RENAMED.get(k, k): v for k, v in named.items() if RENAMED.get(k, k)}
        return function(*args[: last + 1], **renamed)

    return call


def _plain(value):
    if isinstance(value, (list, tuple)):
        return all(_plain(item) for item in value)
    return not isinstance(value, (numpy.ndarray, numpy.generic))


def _accepts(function, named):
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        return all(name in ("dim", "keepdim", "dtype") for name in named)
    return all(RENAMED.get(k, k) in parameters or RENAMED.get(k, k) is None for k in named)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("key", "number"), REFERENCED)
def test_reference(key, number, dtype):
    entry = TABLE[key]
    overload = entry.overloads[number]
    if overload.options.dtypes and dtype not in overload.options.dtypes:
        pytest.skip(f"not for {dtype}")
    reference = reference_of(overload)
    for sample in overload.options.samples():
        found = run(entry, sample, dtype)
        args, kwargs = arguments(sample, array_builder, dtype)
        with numpy.errstate(all="ignore"):
            expected = reference(*args, **kwargs)
        compare(found, expected, TOLERANCE[dtype], sample)


def compare(found, expected, tolerance, sample):
    """Asserts that two results have equal shapes and close values."""
    ours, theirs = leaves(found), leaves(expected)
    assert len(ours) == len(theirs), f"{len(ours)} results, expected {len(theirs)}: {sample}"
    for a, b in zip(map(array, ours), map(array, theirs)):
        assert a.shape == b.shape, f"shape {a.shape}, expected {b.shape}: {sample}"
        numpy.testing.assert_allclose(
            a, b, rtol=tolerance, atol=tolerance, equal_nan=True, err_msg=str(sample)
        )


@pytest.mark.parametrize("key", [k for k in TABLE if k not in UNINITIALISED])
def test_samples_run(key):
    """Every sample runs in single precision; the same call gives the same bits again."""
    from tests.ops.inputs import same_bits

    entry = TABLE[key]
    for sample in entry.samples():
        assert same_bits(run(entry, sample, "f32"), run(entry, sample, "f32")), sample
