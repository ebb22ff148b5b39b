"""Every operator of the table under `vmap` and `jvp`, on tensors without data.

Its programs are traced, transformed and checked for their sizes; nothing is compiled. What they
compute is the matter of tests/prims/test_transformed.py (every primitive) and, with kernels, of
tests/parity/test_transformed_table.py.
"""

import pytest

import flambeau as torch
from flambeau.func import jvp, vmap
from tests.func.table import CHECKED, arguments_of, is_tensor, rebuilt, results

B = 3


def on_meta(value):
    return value.detach().to("meta")


@pytest.mark.filterwarnings("ignore:.*is deprecated")
@pytest.mark.parametrize("key", CHECKED)
def test_sizes_under_vmap(key):
    entry = CHECKED[key]
    for sample in entry.samples(1):
        args, kwargs, tensors = arguments_of(sample, "f32")
        if not tensors:
            continue
        kwargs = {k: on_meta(v) if is_tensor(v) else v for k, v in kwargs.items()}
        metas = [on_meta(t) for t in tensors]
        expected = results(entry.function(*rebuilt(args, metas), **kwargs))
        batches = [t.expand(B, *t.shape) for t in metas]

        def function(*given, args=args, kwargs=kwargs):
            return results(entry.function(*rebuilt(args, given), **kwargs))

        found = vmap(function, randomness="different")(*batches)
        assert [x.shape for x in found] == [(B, *x.shape) for x in expected]
        assert [x.dtype for x in found] == [x.dtype for x in expected]


@pytest.mark.filterwarnings("ignore:.*is deprecated")
@pytest.mark.parametrize("key", sorted(CHECKED.keys()))
def test_sizes_under_jvp(key):
    entry = CHECKED[key]
    for sample in entry.samples(1):
        args, kwargs, tensors = arguments_of(sample, "f32")
        moving = [t for t in tensors if t.dtype.is_floating_point]
        if not moving:
            continue
        kwargs = {k: on_meta(v) if is_tensor(v) else v for k, v in kwargs.items()}
        metas = [on_meta(t) for t in tensors]

        def function(*given, metas=metas, args=args, kwargs=kwargs):
            rest = iter(given)
            full = [next(rest) if t.dtype.is_floating_point else t for t in metas]
            out = results(entry.function(*rebuilt(args, full), **kwargs))
            return [x for x in out if x.dtype.is_floating_point]

        primals = tuple(on_meta(t) for t in moving)
        out, moved = jvp(function, primals, primals)
        assert [x.shape for x in out] == [x.shape for x in moved]
        assert all(is_tensor(x) and x.dtype == y.dtype for x, y in zip(moved, out))


def test_table_is_large():
    assert len(CHECKED) > 400
    assert torch.func.vmap is torch.vmap
