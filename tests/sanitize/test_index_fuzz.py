"""Routines and kernels that follow indices: random ones, right and wrong, on random layouts.

Right indices give what NumPy gives; a wrong one raises and touches nothing.
"""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch

ROUNDS = 40
SEEDS = range(6)


class Case:
    """Random arrays and the same as tensors."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def shape(self, low: int = 1, high: int = 9, ndim: int | None = None) -> tuple[int, ...]:
        count = int(self.random.integers(1, 4)) if ndim is None else ndim
        return tuple(int(n) for n in self.random.integers(low, high, count))

    def tensor(self, shape: tuple[int, ...], dtype: str = "float32") -> tuple[np.ndarray, object]:
        array = (self.random.normal(size=shape) * 10).astype(dtype)
        tensor = torch.from_numpy(array.copy())
        layout = int(self.random.integers(4))
        if layout == 1 and len(shape) > 1:
            tensor = tensor.transpose(0, -1).contiguous().transpose(0, -1)
        elif layout == 2:
            wide = torch.zeros(*shape[:-1], 2 * shape[-1] + 1, dtype=tensor.dtype)
            wide[..., 1::2] = tensor
            tensor = wide[..., 1::2]
        elif layout == 3:
            tensor = tensor.flip(0).contiguous().flip(0)
        return array, tensor

    def indices(self, shape: tuple[int, ...], size: int) -> np.ndarray:
        return self.random.integers(0, size, shape)

    def spoilt(self, indices: np.ndarray, size: int) -> np.ndarray:
        wrong = indices.copy()
        at = int(self.random.integers(wrong.size))
        wrong.reshape(-1)[at] = self.random.choice([size, size + 1, -size - 1, 2**40, -(2**62)])
        return wrong


def equal(tensor: object, array: np.ndarray) -> None:
    np.testing.assert_array_equal(tensor.numpy(), array)


@pytest.mark.parametrize("seed", SEEDS)
def test_reads(seed: int) -> None:
    case = Case(seed)
    for _ in range(ROUNDS):
        shape = case.shape()
        array, tensor = case.tensor(shape, str(case.random.choice(["float32", "int64", "int8"])))
        dim = int(case.random.integers(len(shape)))
        size = shape[dim]
        line = case.indices((int(case.random.integers(1, 12)),), size)
        equal(tensor.index_select(dim, torch.from_numpy(line)), np.take(array, line, dim))
        like = case.indices(tuple(n if d != dim else 5 for d, n in enumerate(shape)), size)
        gathered = np.take_along_axis(array, like, dim)
        equal(torch.gather(tensor, dim, torch.from_numpy(like)), gathered)
        pair = case.indices((2, 3), shape[0])
        equal(tensor[torch.from_numpy(pair)], array[pair])
        wrong = torch.from_numpy(case.spoilt(line, size))
        with pytest.raises((IndexError, RuntimeError), match="index"):
            tensor.index_select(dim, wrong)
        with pytest.raises((IndexError, RuntimeError), match="index"):
            torch.gather(tensor, dim, torch.from_numpy(case.spoilt(like, size)))
        with pytest.raises((IndexError, RuntimeError), match="index"):
            tensor[torch.from_numpy(case.spoilt(pair, shape[0]))]


@pytest.mark.parametrize("seed", SEEDS)
def test_writes(seed: int) -> None:
    case = Case(seed)
    for _ in range(ROUNDS):
        shape = case.shape()
        array, tensor = case.tensor(shape, "int64")
        dim = int(case.random.integers(len(shape)))
        like = case.indices(shape, shape[dim])
        values, source = case.tensor(shape, "int64")
        expected = array.copy()
        places = list(np.indices(shape))
        places[dim] = like
        np.add.at(expected, tuple(places), values)
        added = tensor.clone().scatter_add_(dim, torch.from_numpy(like), source)
        equal(added, expected)
        before = tensor.clone()
        with pytest.raises((IndexError, RuntimeError), match="index"):
            tensor.scatter_(dim, torch.from_numpy(case.spoilt(like, shape[dim])), source)
        rows = case.indices((6,), shape[0])
        put = array.copy()
        np.add.at(put, rows, 3)
        filled = before.clone()
        filled.index_put_((torch.from_numpy(rows),), torch.tensor(3), accumulate=True)
        equal(filled, put)
        with pytest.raises((IndexError, RuntimeError), match="index"):
            filled[torch.from_numpy(case.spoilt(rows, shape[0]))] = 1


@pytest.mark.parametrize("seed", SEEDS)
def test_sorting_and_searching(seed: int) -> None:
    case = Case(seed)
    for _ in range(ROUNDS // 2):
        shape = case.shape(high=40)
        array, tensor = case.tensor(shape)
        dim = int(case.random.integers(len(shape)))
        equal(tensor.sort(dim).values, np.sort(array, dim))
        equal(tensor.argsort(dim, stable=True), np.argsort(array, dim, kind="stable"))
        k = int(case.random.integers(1, shape[dim] + 1))
        largest = np.flip(np.sort(array, dim), dim).take(range(k), dim)
        equal(tensor.topk(k, dim).values, largest)
        edges = np.sort(array.reshape(-1))
        places = torch.searchsorted(torch.from_numpy(edges), tensor)
        equal(places, np.searchsorted(edges, array))
        counts = case.indices((30,), 9)
        equal(
            torch.bincount(torch.from_numpy(counts), minlength=5), np.bincount(counts, minlength=5)
        )
        equal(tensor[tensor > 0], array[array > 0])
        equal(torch.nonzero(tensor > 0), np.argwhere(array > 0))
        equal(torch.unique(tensor.round()), np.unique(array.round() + 0.0))


@pytest.mark.parametrize("seed", SEEDS)
def test_embedding_and_its_gradient(seed: int) -> None:
    case = Case(seed)
    for _ in range(ROUNDS // 2):
        rows, width = case.shape(high=30, ndim=2)
        array, weight = case.tensor((rows, width))
        words = case.indices(case.shape(), rows)
        leaf = weight.detach().clone().requires_grad_()
        found = torch.nn.functional.embedding(torch.from_numpy(words), leaf)
        equal(found.detach(), array[words])
        found.sum().backward()
        equal(leaf.grad[:, 0], np.bincount(words.reshape(-1), minlength=rows).astype("float32"))
        with pytest.raises((IndexError, RuntimeError), match="index"):
            torch.nn.functional.embedding(torch.from_numpy(case.spoilt(words, rows)), leaf)


@pytest.mark.parametrize("seed", SEEDS)
def test_windows_of_storage(seed: int) -> None:
    """as_strided within the storage works, beyond it raises."""
    case = Case(seed)
    base = torch.arange(200.0)
    array = np.arange(200.0, dtype="float32")
    for _ in range(4 * ROUNDS):
        sizes = case.shape(0, 12, 2)
        strides = case.shape(0, 12, 2)
        offset = int(case.random.integers(0, 150))
        last = offset + sum((n - 1) * s for n, s in zip(sizes, strides))
        if 0 in sizes or last < 200:
            view = base.as_strided(sizes, strides, offset)
            index = offset + np.add.outer(np.arange(sizes[0]) * strides[0],
                                          np.arange(sizes[1]) * strides[1])  # fmt: skip
            equal(view.clone(), array[index.astype(int)])
            assert float(view.sum()) == float(array[index.astype(int)].sum(dtype="float64"))
        else:
            with pytest.raises(RuntimeError):
                base.as_strided(sizes, strides, offset)
