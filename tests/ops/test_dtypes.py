"""Every dtype: results follow the promotion rule, halves are the rounded single-precision result.

An operator either takes a dtype or refuses it with an error that names the operator and a way out.
"""

from __future__ import annotations

from itertools import islice

import pytest

import flambeau
from flambeau.language import promotion
from flambeau.language.samples import TensorSpec
from tests.ops.exercise import ir_dtype, is_tensor, run
from tests.ops.inputs import PUBLIC, arguments, leaves, same_bits, tensor_builder
from tests.ops.table import TABLE, UNINITIALISED, seed

DTYPES = ("f16", "bf16", "i64", "bool")
SAMPLES = 2
REFUSALS = (NotImplementedError, TypeError, RuntimeError, ValueError, IndexError)
KEYS = [k for k, e in TABLE.items() if k not in UNINITIALISED and not e.mutating]
PROMOTING = [
    k for k in KEYS if TABLE[k].overloads[0].options.promote in ("default", "float", "bool")
]


def attempt(entry, sample, dtype):
    """The result, or None where the dtype is refused in the right form."""
    try:
        return run(entry, sample, dtype)
    except REFUSALS as refusal:
        message = str(refusal)
        assert message.startswith("[") and "\nhint: " in message, f"{dtype}: {message}"
        return None


@pytest.mark.parametrize("key", KEYS)
def test_takes_or_refuses(key):
    for sample in TABLE[key].samples(SAMPLES):
        results = [attempt(TABLE[key], sample, dtype) for dtype in DTYPES]
        if all(result is None for result in results):
            assert attempt(TABLE[key], sample, "f32") is not None


def expected_dtype(overload, sample, dtype):
    """The dtype that promotion gives to the participants of a call."""
    chosen, found = overload.options.participants, []
    for argument, value in zip(overload.schema.arguments, sample.args):
        if chosen and argument.name not in chosen:
            continue
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(item, TensorSpec):
                found.append((item.dtype or dtype, "tensor" if item.shape else "zero_dim"))
            elif isinstance(item, (bool, int, float, complex)) and "Scalar" in argument.kind:
                found.append((promotion.number_dtype(type(item)), "number"))
    common = promotion.result_type(found)
    mode = overload.options.promote
    if mode == "bool":
        return "bool"
    return "f32" if mode == "float" and promotion.CATEGORY[common] < 2 else common


@pytest.mark.parametrize("key", PROMOTING)
def test_result_dtype(key):
    entry = TABLE[key]
    overload = entry.overloads[0]
    for sample in islice(overload.options.samples(), SAMPLES):
        if sample.kwargs:
            continue
        for dtype in (*DTYPES, "f32", "f64"):
            result = attempt(entry, sample, dtype)
            if is_tensor(result):
                assert ir_dtype(result) == expected_dtype(overload, sample, dtype), (sample, dtype)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("key", [k for k in PROMOTING if not TABLE[k].random])
def test_halves_are_rounded_once(key, dtype):
    """Inside an operator half types compute in float32; the result rounds once."""
    entry = TABLE[key]
    half = getattr(flambeau, PUBLIC[dtype])
    for sample in entry.samples(SAMPLES):
        found = attempt(entry, sample, dtype)
        if found is None or key in OWN_ROUNDING:
            continue
        make = tensor_builder(flambeau)

        def build(spec, position, wanted, make=make):
            built = make(spec, position, wanted)
            return built.float() if ir_dtype(built) == dtype else built

        args, kwargs = arguments(sample, build, dtype)
        seed()
        wide = leaves(entry.function(*args, **kwargs))
        wide = [w.to(half) if is_tensor(w) and ir_dtype(w) == "f32" else w for w in wide]
        assert same_bits(found, wide), sample


# Their results depend on the spacing of the dtype itself.
OWN_ROUNDING = {"nextafter": "the next number of the dtype", "nan_to_num": "its largest number"}


@pytest.mark.parametrize("dtype", [flambeau.float16, flambeau.bfloat16])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: flambeau.nn.functional.adaptive_avg_pool3d(x, 2),
        lambda x: flambeau.nn.functional.adaptive_max_pool3d(x, 2),
        lambda x: flambeau.nn.functional.pad(x, (1, 1, 1, 1, 1, 1), "circular"),
        lambda x: x.roll(2),
        lambda x: x[[1, 0]],
    ],
    ids="average maximum pad roll index".split(),
)
def test_results_that_lie_otherwise_in_memory_are_halves(function, dtype):
    x = flambeau.randn(2, 3, 4, 5, 6).to(dtype)
    result = function(x)
    assert result.dtype == dtype
    assert flambeau.equal(result, function(x.float()).to(dtype))
