"""Elements that a mask selects: values, gradients, and the memory that finding them takes."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau import runtime

COUNT = 1 << 20
SHAPES = [(), (7,), (3, 5), (4, 1, 6), (70_000,), (300, 500), (0, 3)]


def _peak(call):
    """Bytes at the peak beside the result, after a first call made the programs."""
    call()
    runtime.reset_peak_memory_stats()
    before = runtime.memory_stats()["allocated_bytes.all.current"]
    result = call()
    peak = runtime.memory_stats()["allocated_bytes.all.peak"]
    return peak - before - result.numel() * result.element_size()


@pytest.mark.parametrize("shape", [(COUNT,), (1024, COUNT // 1024)])
@pytest.mark.parametrize("probability", [0.01, 1.0])
def test_a_byte_per_element(shape, probability):
    mask = torch.rand(shape) < probability
    x = torch.rand(shape)
    dense = x * mask
    for call in (
        lambda: mask.nonzero(),
        lambda: dense.nonzero(),
        lambda: x[mask],
        lambda: x.masked_select(mask),
        lambda: torch.nonzero_static(mask, size=9),
    ):
        assert _peak(call) <= COUNT + COUNT // 16  # blocks are rounded up


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("probability", [0.0, 0.01, 0.5, 1.0])
def test_the_same_as_numpy(shape, probability):
    torch.manual_seed(3)
    mask, x = torch.rand(shape) < probability, torch.randn(shape)
    expected = np.argwhere(mask.numpy())
    np.testing.assert_array_equal(mask.nonzero().numpy(), expected)
    np.testing.assert_array_equal(x[mask].numpy(), x.numpy()[mask.numpy()])
    np.testing.assert_array_equal(x.masked_select(mask).numpy(), x.numpy()[mask.numpy()])
    if shape:
        static = torch.nonzero_static(mask, size=4, fill_value=-7).numpy()
        np.testing.assert_array_equal(static[: len(expected)], expected[:4])
        assert (static[len(expected) :] == -7).all()


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "float64", "complex64", "complex128"])
def test_entries_of_every_width(dtype):
    x = (torch.randn(6, 5) * 9).to(getattr(torch, dtype))
    mask = torch.tensor([True, False, True, True, False, True])
    np.testing.assert_array_equal(x[mask].numpy(), x.numpy()[mask.numpy()])
    np.testing.assert_array_equal(
        x.t()[:5, 0][mask[:5]].numpy(), x.numpy().T[:5, 0][mask[:5].numpy()]
    )


def test_gradient():
    x = torch.randn(6, 5, requires_grad=True)
    mask = torch.tensor([True, False, True, True, False, True])
    (slope,) = torch.autograd.grad((x[mask] * 3).sum(), x)
    assert torch.equal(slope, mask.unsqueeze(1).expand(6, 5) * 3.0)


def test_masks_of_a_batch():
    masks = torch.rand(3, 6) < 0.5
    found = torch.vmap(lambda mask: torch.nonzero_static(mask, size=4))(masks)
    for mask, mine in zip(masks, found, strict=True):
        assert torch.equal(mine, torch.nonzero_static(mask, size=4))
