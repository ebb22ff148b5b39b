"""Bags of any sizes: rows added in the order of the indices, to the last bit, at any width."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch

F = torch.nn.functional
STARTS = [0, 0, 3, 40, 40, 299]


def _table(width, dtype="float32"):
    return np.random.default_rng(width).standard_normal((50, width)).astype(dtype)


def _index():
    return np.random.default_rng(1).integers(0, 50, 300)


def _expected(table, index, starts, ends, shares=None, padding=None):
    out = np.zeros((len(starts), table.shape[1]), table.dtype)
    for bag, (start, end) in enumerate(zip(starts, ends)):
        for place in range(start, end):
            if index[place] != padding:
                row = table[index[place]]
                out[bag] += row if shares is None else row * shares[place]
    return out


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [1, 3, 4, 16, 23, 64, 79, 150])
def test_sums(width, dtype):
    table, index = _table(width, dtype), _index()
    shares = np.random.default_rng(2).standard_normal(300).astype(dtype)
    ends = [*STARTS[1:], 300]
    places, weight, offsets = map(torch.from_numpy, (index, table, np.array(STARTS)))
    found = F.embedding_bag(places, weight, offsets, mode="sum")
    np.testing.assert_array_equal(found.numpy(), _expected(table, index, STARTS, ends))
    given = torch.from_numpy(shares)
    found = F.embedding_bag(places, weight, offsets, mode="sum", per_sample_weights=given)
    np.testing.assert_array_equal(found.numpy(), _expected(table, index, STARTS, ends, shares))


def test_padding_and_last_offset():
    table, index = _table(5), _index()
    places, weight, offsets = map(torch.from_numpy, (index, table, np.array(STARTS)))
    padding = int(index[7])
    found = F.embedding_bag(places, weight, offsets, mode="sum", padding_idx=padding)
    expected = _expected(table, index, STARTS, [*STARTS[1:], 300], padding=padding)
    np.testing.assert_array_equal(found.numpy(), expected)
    options = {"include_last_offset": True}
    found = F.embedding_bag(places.int(), weight, offsets.int(), mode="mean", **options)
    starts, ends = np.array(STARTS[:-1]), np.array(STARTS[1:])
    sizes = np.maximum(ends - starts, 1)[:, None].astype("float32")
    expected = _expected(table, index, starts, ends) / sizes
    np.testing.assert_array_equal(found.numpy(), expected)
    nothing = torch.zeros(0, dtype=torch.int64)
    assert tuple(F.embedding_bag(nothing, weight, nothing, mode="sum").shape) == (0, 5)


def test_gradients():
    table = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    shares = torch.randn(9, dtype=torch.float64, requires_grad=True)
    index, offsets = torch.tensor([0, 5, 2, 2, 1, 0, 4, 4, 3]), torch.tensor([0, 2, 2, 7])

    def function(table, shares):
        return F.embedding_bag(index, table, offsets, mode="sum", per_sample_weights=shares)

    assert torch.autograd.gradcheck(function, (table, shares))
    assert torch.autograd.gradgradcheck(function, (table, shares))
    for padding in (None, 2):
        for last in (False, True):
            options = {"mode": "mean", "padding_idx": padding, "include_last_offset": last}
            assert torch.autograd.gradcheck(
                lambda t: F.embedding_bag(index, t, offsets, **options),  # noqa: B023
                (table,),
            )


def test_a_batch_is_a_loop():
    index = torch.from_numpy(_index()).reshape(3, 100)
    offsets, table = torch.tensor([0, 30, 30]), torch.from_numpy(_table(7))

    def function(index):
        return F.embedding_bag(index, table, offsets, mode="sum")

    found = torch.func.vmap(function)(index)
    assert torch.equal(found, torch.stack([function(row) for row in index]))


def test_threads():
    index, table = torch.randint(0, 1000, (60_000,)), torch.randn(1000, 70)
    offsets = torch.arange(0, 60_000, 7)
    found = []
    before = torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(F.embedding_bag(index, table, offsets, mode="mean"))
    torch.set_num_threads(before)
    assert all(torch.equal(found[0], other) for other in found)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_sparse_gradients_are_scaled_by_frequency(mode):
    indices, starts = torch.tensor([3, 1, 3, 0]), torch.tensor([0, 2])
    found = []
    for sparse in (False, True):
        table = torch.arange(8.0).reshape(4, 2).requires_grad_()
        options = {"mode": mode, "scale_grad_by_freq": True, "sparse": sparse}
        F.embedding_bag(indices, table, starts, **options).sum().backward()
        assert table.grad.is_sparse == sparse
        found.append(table.grad.to_dense() if sparse else table.grad)
    assert torch.equal(*found) and found[0][3, 0] == (1.0 if mode == "sum" else 0.5)
