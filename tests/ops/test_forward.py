"""Forward results equal the NumPy/SciPy reference, on every sample."""

from __future__ import annotations

import importlib
import inspect
from itertools import islice

import numpy
import pytest

from tests.ops.exercise import DOUBLE_SAMPLES, run
from tests.ops.inputs import arguments, array, array_builder, leaves
from tests.ops.table import TABLE, UNINITIALISED

COUNT = {"f32": None, "f64": DOUBLE_SAMPLES}  # samples of a signature
TOLERANCE = {"f32": 2e-5, "f64": 1e-10}
# PyTorch's names for what NumPy calls otherwise; None: of no matter for the values.
RENAMED = {"dim": "axis", "keepdim": "keepdims", "correction": "ddof", "dtype": None,
           "end": "stop", "steps": "num", "unbiased": "ddof"}  # fmt: skip
# What NumPy says to calls that only PyTorch knows.
BEYOND_NUMPY = (
    "too deep",  # searchsorted in rows
    "out of bounds for array of dimension 0",  # dim=0 of a number
    "only integer scalar arrays",  # max of two tensors
)
REFERENCED = [
    (key, number)
    for key, entry in TABLE.items()
    for number, overload in enumerate(entry.overloads)
    if overload.options.reference is not None
]


class NoReference(Exception):
    """NumPy's function has no such argument."""


def reference_of(entry, overload):
    """The reference as a function of a sample's arguments."""
    reference = overload.options.reference
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.rpartition(".")
    function = getattr(importlib.import_module(module), name)
    if isinstance(function, numpy.ufunc):
        return _ufunc(function)
    schemas = [
        ([a.name for a in o.schema.arguments if not a.keyword_only], o.schema)
        for o in entry.definition.overloads
    ]

    def call(*args, **kwargs):
        last = max((i for i, a in enumerate(args) if not _plain(a)), default=-1)
        rest = args[last + 1 :]
        names = next((n for n, schema in schemas if _takes(n, schema, args, kwargs)), ())
        named = dict(zip(names[last + 1 :], rest)) | kwargs
        renamed = {RENAMED.get(k, k): v for k, v in named.items() if RENAMED.get(k, k)}
        parameters = inspect.signature(function).parameters
        if renamed.keys() - parameters.keys():
            if kwargs:
                raise NoReference
            return function(*args)
        return function(*args[: last + 1], **renamed)

    return call


def _ufunc(function):
    def call(*args, **kwargs):
        if kwargs:  # rounding_mode, alpha: NumPy has nothing like them
            raise NoReference
        return function(*args)

    return call


def _takes(names, schema, args, kwargs):
    known = {a.name for a in schema.arguments}
    return len(names) >= len(args) and not kwargs.keys() - known


def _plain(value):
    if isinstance(value, (list, tuple)):
        return all(_plain(item) for item in value)
    return not isinstance(value, (numpy.ndarray, numpy.generic))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("key", "number"), REFERENCED)
def test_reference(key, number, dtype):
    entry = TABLE[key]
    overload = entry.overloads[number]
    if overload.options.dtypes and dtype not in overload.options.dtypes:
        pytest.skip(f"not for {dtype}")
    reference = reference_of(entry, overload)
    for sample in islice(overload.options.samples(), COUNT[dtype]):
        found = run(entry, sample, dtype)
        args, kwargs = arguments(sample, array_builder, dtype)
        with numpy.errstate(all="ignore"):
            try:
                expected = reference(*args, **kwargs)
            except NoReference:
                continue
            except (ValueError, TypeError) as error:
                assert any(text in str(error) for text in BEYOND_NUMPY), sample
                continue
        compare(found, expected, TOLERANCE[dtype], sample)


def compare(found, expected, tolerance, sample):
    """Asserts that two results have equal shapes and close values."""
    ours, theirs = leaves(found), leaves(expected)
    if hasattr(found, "indices") and len(theirs) == 1:
        ours = ours[:1]  # NumPy gives the values alone
    assert len(ours) == len(theirs), f"{len(ours)} results, expected {len(theirs)}: {sample}"
    for result, wanted in zip(ours, theirs):
        a, b = array(result), numpy.asarray(wanted)
        if a.ndim == 0 and b.size == 1:
            b = b.reshape(())  # NumPy scans numbers as vectors
        assert a.shape == b.shape, f"shape {a.shape}, expected {b.shape}: {sample}"
        bound = max(tolerance, TOLERANCE["f32"] if a.dtype in ("float32", "complex64") else 0)
        numpy.testing.assert_allclose(
            a, b, rtol=bound, atol=bound, equal_nan=True, err_msg=str(sample)
        )


@pytest.mark.parametrize("key", [k for k in TABLE if k not in UNINITIALISED])
def test_samples_run(key):
    """Every sample runs in single precision; the same call gives the same bits again."""
    from tests.ops.inputs import same_bits

    entry = TABLE[key]
    for sample in entry.samples():
        assert same_bits(run(entry, sample, "f32"), run(entry, sample, "f32")), sample
