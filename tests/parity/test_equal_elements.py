"""Selection beside PyTorch: which of equal elements `topk` takes, and operands without elements."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the oracle is PyTorch 2.13")

import flambeau  # noqa: E402

LENGTHS = (1, 2, 3, 5, 8, 13, 17, 33, 64, 129, 511, 512, 700, 5000)
COUNTS = (1, 2, 4, 8, 11, 64, 78, 127, 512, 700)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16"])
@pytest.mark.parametrize("levels", [1, 3, 1000])
def test_topk(dtype, levels):
    for length in LENGTHS:
        generator = torch.Generator().manual_seed(length + levels)
        theirs = torch.randint(0, levels, (3, length), generator=generator).float()
        if dtype != "int64" and length > 5:
            theirs[1, 3] = theirs[1, 1] = float("nan")
        ours = flambeau.from_numpy(theirs.numpy()).to(getattr(flambeau, dtype))
        theirs = theirs.to(getattr(torch, dtype))
        for count in {min(length, count) for count in COUNTS}:
            for largest in (True, False):
                for ordered in (True, False):
                    call = (count, -1, largest, ordered)
                    places = theirs.topk(*call).indices
                    assert ours.topk(*call).indices.tolist() == places.tolist(), (length, call)


def test_gradients_reach_operands_without_elements():
    """Results of operands from which nothing is taken have a gradient all the same: zeros."""
    calls = {
        "masked_scatter": lambda t, x, s: x.masked_scatter(t.zeros(2, 3, dtype=t.bool), s),
        "scatter": lambda t, x, s: x.scatter(0, t.zeros(0, 3, dtype=t.long), s),
        "scatter_add": lambda t, x, s: x.scatter_add(0, t.zeros(0, 3, dtype=t.long), s),
        "scatter_reduce": lambda t, x, s: x.scatter_reduce(
            0, t.zeros(0, 3, dtype=t.long), s, "sum"
        ),
    }
    for name, call in calls.items():
        grads = []
        for t in (torch, flambeau):
            weight = t.ones(3, requires_grad=True)
            call(t, t.ones(2, 3), t.zeros(0, 3) * weight).sum().backward()
            grads.append(weight.grad.tolist())
        assert grads[0] == grads[1] == [0.0] * 3, name


def test_masks_without_source():
    for t in (torch, flambeau):
        with pytest.raises(RuntimeError, match="Number of elements of source < number of ones"):
            t.ones(2, 3).masked_scatter(t.ones(2, 3, dtype=t.bool), t.zeros(0))
