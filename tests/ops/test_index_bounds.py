"""Indices outside: who raises what, and who takes negative ones, as PyTorch has it; operators of
nothing, which read nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch

F = torch.nn.functional
X = torch.arange(12.0).reshape(3, 4)

# name -> (call with an index, exception)
STRICT: dict[str, tuple[Callable[[int], Any], type[Exception]]] = {
    "gather": (lambda i: X.gather(0, torch.tensor([[i, 0]])), RuntimeError),
    "scatter": (lambda i: X.scatter(0, torch.tensor([[i, 0]]), X[:1, :2]), RuntimeError),
    "scatter_add": (lambda i: X.scatter_add(0, torch.tensor([[i]]), X[:1, :1]), RuntimeError),
    "scatter_reduce": (
        lambda i: X.scatter_reduce(0, torch.tensor([[i]]), X[:1, :1], "amax"),
        RuntimeError,
    ),
    "index_add": (lambda i: X.index_add(0, torch.tensor([i]), X[:1]), RuntimeError),
    "index_copy": (lambda i: X.index_copy(0, torch.tensor([i]), X[:1]), IndexError),
    "index_select": (lambda i: X.index_select(0, torch.tensor([i])), IndexError),
    "embedding": (lambda i: F.embedding(torch.tensor([i]), X), IndexError),
    "embedding_bag": (lambda i: F.embedding_bag(torch.tensor([[i]]), X), RuntimeError),
    "nll_loss": (lambda i: F.nll_loss(X.T, torch.tensor([i, 0, 0, 0])), IndexError),
    "cross_entropy": (lambda i: F.cross_entropy(X.T, torch.tensor([0, i, 0, 0])), IndexError),
    "multi_margin_loss": (
        lambda i: F.multi_margin_loss(X.T, torch.tensor([i, 0, 0, 0])),
        RuntimeError,
    ),
    "max_unpool2d": (
        lambda i: F.max_unpool2d(torch.ones(1, 1, 1), torch.tensor([[[i]]]), (1, 3), (1, 3)),
        RuntimeError,
    ),
    "max_pool2d_with_indices_backward": (
        lambda i: torch.ops.aten.max_pool2d_with_indices_backward(
            torch.ones(1, 1, 1), torch.ones(1, 1, 3), (1, 3), (1, 3), 0, 1, False,
            torch.tensor([[[i]]]),
        ),
        RuntimeError,
    ),
}  # fmt: skip
LENIENT: dict[str, Callable[[int], Any]] = {
    "index": lambda i: X[torch.tensor([i])],
    "index_fill": lambda i: X.index_fill(0, torch.tensor([i]), 1.0),
    "index_put": lambda i: X.index_put((torch.tensor([i]),), torch.tensor(1.0)),
    "take": lambda i: X.flatten()[:3].take(torch.tensor([i])),
    "put": lambda i: X.flatten()[:3].put(torch.tensor([i]), torch.tensor([1.0])),
    "take_along_dim": lambda i: X.take_along_dim(torch.tensor([[i] * 4]), 0),
}


@pytest.mark.parametrize("name", STRICT)
@pytest.mark.parametrize("index", [-1, -3, 4, 1 << 40, -(1 << 62)])
def test_strict(name: str, index: int) -> None:
    call, error = STRICT[name]
    call(2)
    with pytest.raises(error):
        call(index)


@pytest.mark.parametrize("name", LENIENT)
def test_lenient(name: str) -> None:
    call = LENIENT[name]
    assert torch.equal(call(-1), call(2)) and torch.equal(call(-3), call(0))
    for index in (3, -4, 1 << 40):
        with pytest.raises((IndexError, RuntimeError)):
            call(index)


@pytest.mark.parametrize("compiled", [False, True])
def test_an_empty_dimension_has_no_places(compiled: bool) -> None:
    def function(x: Any, index: Any) -> Any:
        return x[index]

    call = torch.compile(function) if compiled else function
    for shape in ((0,), (0, 0), (0, 3)):
        assert call(torch.zeros(shape), torch.zeros(0, dtype=torch.int64)).shape == shape
        with pytest.raises(IndexError, match="out of bounds"):
            call(torch.zeros(shape), torch.tensor([0]))


NOTHING: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "rows of an empty index": (
        lambda index, table: F.embedding(index.reshape(-1).reshape(4, 0), table).sum(1),
        (torch.zeros((4, 0), dtype=torch.int64), torch.ones(6, 3)),
        torch.zeros(4, 3),
    ),
    "sums of an empty batch": (
        lambda x: x.reshape(0, 2, 2, 5).sum(3).sum(2),
        (torch.zeros(0, 4, 5),),
        torch.zeros(0, 2),
    ),
    "products and sums of nothing": (
        lambda x: x.exp().prod(1) + x.sum(1),
        (torch.zeros(3, 0),),
        torch.ones(3),
    ),
    "any and all of nothing": (
        lambda x: (x > 0).any(0) | ~(x > 0).all(0),
        (torch.zeros(0, 2),),
        torch.zeros(2, dtype=torch.bool),
    ),
}


@pytest.mark.parametrize("name", NOTHING)
@pytest.mark.parametrize("compiled", [False, True])
def test_nothing(name: str, compiled: bool) -> None:
    function, arguments, expected = NOTHING[name]
    result = (torch.compile(function) if compiled else function)(*arguments)
    assert result.dtype == expected.dtype and torch.equal(result, expected)


def test_copies_of_windows_stay_in_the_storage() -> None:
    """`as_strided_copy` shows what `as_strided` shows, and no more."""
    base = torch.arange(8.0)
    assert torch.as_strided_copy(base[3:], (2, 2), (1, 2), 0).tolist() == [[0.0, 2.0], [1.0, 3.0]]
    for size, stride, offset in (((3, 3), (3, 3), 0), ((2,), (1,), 7), ((16, 16), (3, 2), 3)):
        with pytest.raises(RuntimeError, match="out of bounds"):
            torch.as_strided_copy(base[3:], size, stride, offset)
        with pytest.raises(RuntimeError, match="out of bounds"):
            torch.compile(lambda x: torch.as_strided_copy(x * 2, size, stride, offset))(base)  # noqa: B023


@pytest.mark.parametrize("compiled", [False, True])
def test_parts_are_replaced_inside_of_the_tensor(compiled: bool) -> None:
    wrap = torch.compile if compiled else lambda function: function
    for index in (3, 4, 1000, -4, 1 << 40, -(1 << 62)):
        with pytest.raises(IndexError, match="out of range"):
            wrap(lambda x: torch.select_scatter(x, torch.zeros(4), 0, index))(X)  # noqa: B023
    assert torch.equal(wrap(lambda x: x.select_scatter(-x[0], 0, -3))(X)[0], -X[0])
    for size, stride, offset in (((2, 2), (-1, 5), 0), ((2, 2), (5, -1), 0), ((2,), (11,), 1)):
        with pytest.raises(RuntimeError, match="out of bounds"):
            wrap(lambda x: x.as_strided_scatter(torch.zeros(size), size, stride, offset))(X)  # noqa: B023
