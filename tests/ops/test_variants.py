"""Methods, in-place variants, `out=` and layouts all give the bits of the plain call."""

from __future__ import annotations

from itertools import islice

import pytest

import flambeau
from flambeau.core.install import INPLACE
from flambeau.language.samples import TensorSpec
from tests.ops.exercise import ir_dtype, is_tensor, relaid, run
from tests.ops.inputs import arguments, same_bits, tensor_builder
from tests.ops.table import TABLE, UNINITIALISED, seed

SAMPLES = 3
PURE = [k for k, e in TABLE.items() if k not in UNINITIALISED and not e.mutating]


def cases(keys, wanted):
    """(key, number of the overload) of signatures for which `wanted(options)` holds."""
    return [
        (key, number)
        for key in keys
        for number, overload in enumerate(TABLE[key].overloads)
        if wanted(overload)
    ]


def call(function, sample):
    args, kwargs = arguments(sample, tensor_builder(flambeau), "f32")
    seed()
    return function(*args, **kwargs)


def is_method(overload):
    arguments = overload.schema.arguments
    first = arguments and arguments[0].kind == "Tensor"
    return first and "method" in overload.options.where


@pytest.mark.parametrize(("key", "number"), cases(PURE, is_method))
def test_method(key, number):
    """`x.name(...)` is `name(x, ...)`; aliases are the same."""
    overload = TABLE[key].overloads[number]
    for name in (TABLE[key].definition.name, *overload.options.aliases):
        method = getattr(flambeau.Tensor, name)
        for sample in islice(overload.options.samples(), SAMPLES):
            if isinstance(sample.args[0] if sample.args else None, TensorSpec):
                plain = run(TABLE[key], sample, "f32")
                assert same_bits(call(method, sample), plain), (name, sample)


@pytest.mark.parametrize(("key", "number"), cases(PURE, lambda o: o.options.inplace))
def test_inplace(key, number):
    """`name_` changes its first argument, returns it, and counts the write."""
    overload = TABLE[key].overloads[number]
    function = INPLACE[TABLE[key].definition.name + "_"]
    for sample in islice(overload.options.samples(), SAMPLES):
        if not isinstance(sample.args[0], TensorSpec) or sample.args[0].layout == "expanded":
            continue
        plain = run(TABLE[key], sample, "f32")
        args, kwargs = arguments(sample, tensor_builder(flambeau), "f32")
        other = overload.options.out_rule == "exact" and plain.dtype != args[0].dtype
        if other or not _fits(plain, args[0]):
            with pytest.raises(RuntimeError):
                function(*args, **kwargs)
            continue
        before = args[0]._version
        seed()
        result = function(*args, **kwargs)
        assert result is args[0]
        assert args[0]._version > before
        assert same_bits(result, plain.to(args[0].dtype)), sample


def _fits(result, target):
    if not is_tensor(result) or result.shape != target.shape:
        return False
    rank = "b", "u", "i", "f", "c"
    source, goal = ir_dtype(result), ir_dtype(target)
    kind = [("b" if d == "bool" else "f" if d == "bf16" else d[0]) for d in (source, goal)]
    return rank.index(kind[0]) <= rank.index(kind[1])


@pytest.mark.parametrize(("key", "number"), cases(PURE, lambda o: o.options.out))
def test_out(key, number):
    """`out=` is filled with the result, resized where it is empty, and returned."""
    overload = TABLE[key].overloads[number]
    if overload.options.host:
        pytest.skip("written in Python")
    for sample in islice(overload.options.samples(), SAMPLES):
        plain = run(TABLE[key], sample, "f32")
        if not is_tensor(plain):
            continue
        args, kwargs = arguments(sample, tensor_builder(flambeau), "f32")
        out = flambeau.empty(plain.shape, dtype=plain.dtype)
        seed()
        result = TABLE[key].function(*args, **kwargs, out=out)
        assert result is out
        assert same_bits(out, plain), sample


# They tell or depend on where numbers lie in memory.
ABOUT_STRIDES = frozenset(
    "as_strided is_contiguous view view_as stride data_ptr contiguous is_set_to is_same_size "
    "as_strided_copy view_copy slice_inverse "
    "view_as_complex view_as_complex_copy private._adam_step".split()
)


@pytest.mark.parametrize("layout", ["transposed", "sliced"])
@pytest.mark.parametrize("key", [k for k in PURE if k not in ABOUT_STRIDES and not TABLE[k].random])
def test_layouts(key, layout):
    """Where the numbers lie in memory does not change a bit of the result."""
    for sample in TABLE[key].samples(1):
        plain = run(TABLE[key], sample, "f32")
        assert same_bits(run(TABLE[key], relaid(sample, layout), "f32"), plain), sample
