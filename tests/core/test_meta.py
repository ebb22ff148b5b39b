"""Every operator of the table on the meta device: sizes, dtypes and strides of the CPU's results.

With fake tensors the same, and they say that they are on the CPU.

The calls on the CPU are recorded and their results dropped, so nothing is computed for them.
"""

from itertools import islice

import pytest

import flambeau as torch
from flambeau import _core
from flambeau._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from flambeau.utils._pytree import tree_map_only
from tests.ops.inputs import arguments, leaves, tensor_builder
from tests.ops.table import TABLE, seed

# What a call must know the data for; the same raise in PyTorch.
DATA_DEPENDENT = frozenset(
    "bincount unique unique_consecutive _unique _unique2 allclose equal is_nonzero nonzero "
    "argwhere masked_select embedding_renorm_".split()
)
SAMPLES = 2


def is_tensor(value):
    return isinstance(value, torch.Tensor)


def on_meta(value):
    if is_tensor(value) and value.layout == torch.strided:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if is_tensor(value):
        return value.to("meta")
    if isinstance(value, (list, tuple)):
        return type(value)(on_meta(item) for item in value)
    return value


def recorded(function, args, kwargs):
    """Geometries of a call's results; the call itself is recorded and never run."""
    _core.record_begin()
    try:
        return geometries(function(*args, **kwargs))
    finally:
        _core.record_end("end of region")


def geometries(result):
    return [(x.shape, x.dtype, x.stride()) if is_tensor(x) else type(x) for x in leaves(result)]


def on_meta_device(entry, args, kwargs):
    if any(is_tensor(x) for x in leaves([args, *kwargs.values()])):
        return entry.function(*on_meta(args), **{k: on_meta(v) for k, v in kwargs.items()})
    with torch.device("meta"):
        return entry.function(*args, **kwargs)


def with_fakes(entry, args, kwargs):
    with FakeTensorMode() as mode:
        args, kwargs = tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
        return entry.function(*args, **kwargs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", sorted(TABLE.keys() - DATA_DEPENDENT))
def test_same_geometry(key):
    entry = TABLE[key]
    for sample in islice(entry.samples(), SAMPLES):
        args, kwargs = arguments(sample, tensor_builder(torch), "f32")
        if key == "nn.functional.one_hot" and len(args) == 1:
            continue  # the number of classes is in the data
        found = on_meta_device(entry, args, kwargs)
        assert all(x.is_meta for x in leaves(found) if is_tensor(x))
        wanted = geometries(found)
        found = with_fakes(entry, args, kwargs)
        tensors = [x for x in leaves(found) if is_tensor(x)]
        assert all(isinstance(x, FakeTensor) and str(x.device) == "cpu" for x in tensors)
        assert geometries(found) == wanted
        seed()
        assert wanted == recorded(entry.function, args, kwargs)


@pytest.mark.parametrize("key", sorted(DATA_DEPENDENT & TABLE.keys()))
def test_data_dependent(key):
    entry = TABLE[key]
    args, kwargs = arguments(next(iter(entry.samples())), tensor_builder(torch), "f32")
    kinds = RuntimeError if key in ("allclose", "is_nonzero") else NotImplementedError
    with pytest.raises(kinds):
        on_meta_device(entry, args, kwargs)
    with pytest.raises((DataDependentOutputException, DynamicOutputShapeException)):
        with_fakes(entry, args, kwargs)


def test_sizes_that_arguments_tell():
    counts = torch.tensor([1, 2, 1]).to("meta")
    x = torch.ones(3, device="meta")
    assert torch.repeat_interleave(x, counts, output_size=4).shape == (4,)
    with pytest.raises(RuntimeError, match="without output_size"):
        torch.repeat_interleave(x, counts)
    assert torch.nn.functional.one_hot(counts, 5).shape == (3, 5)
    with pytest.raises(RuntimeError, match="meta tensors"):
        torch.nn.functional.one_hot(counts)
    with pytest.raises(NotImplementedError, match="Meta tensors"):
        _ = x[x > 0]
    assert torch.tril_indices(3, 3, device="meta").is_meta
