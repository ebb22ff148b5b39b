"""Pooled and resized images lie in memory as PyTorch's do: channels last where they came so."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the oracle is PyTorch 2.13")

import flambeau  # noqa: E402

CALLS = [
    "max_pool2d(x, 2)",
    "max_pool2d(x, 2, return_indices=True)[1]",
    "avg_pool2d(x, 2)",
    "interpolate(x, scale_factor=2)",
    "interpolate(x, scale_factor=2, mode='bilinear')",
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("last", [False, True])
def test_strides_and_values(call, last):
    x = torch.rand(2, 3, 6, 8, generator=torch.Generator().manual_seed(0))
    results = []
    for package, image in ((torch, x), (flambeau, flambeau.from_numpy(x.numpy()))):
        if last:
            image = image.contiguous(memory_format=package.channels_last)
        results.append(eval(f"f.{call}", {"f": package.nn.functional, "x": image}))
    theirs, ours = results
    assert ours.stride() == theirs.stride()
    torch.testing.assert_close(torch.from_numpy(ours.numpy()), theirs)
    if last:
        again = flambeau.compile(
            lambda x: eval(f"f.{call}", {"f": flambeau.nn.functional, "x": x})
        )(image)
        assert again.stride() == ours.stride() and bool((again == ours).all())
