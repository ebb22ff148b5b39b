"""Long lists of tensors: any number of them without a plan, with the bits of short lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import flambeau as torch
from flambeau import _core

LONG = 19  # more than a Plan takes; short lists of at most 8 make the same result
JOINS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "cat": (torch.cat, [(3,), (2, 3), (2, 3, 4, 5)]),
    "cat last": (lambda xs: torch.cat(xs, -1), [(2, 3), (4, 0)]),
    "hstack": (torch.hstack, [(), (3,), (2, 3)]),
    "vstack": (torch.vstack, [(), (3,), (2, 3)]),
    "dstack": (torch.dstack, [(), (3,), (2, 3), (2, 3, 4)]),
    "column_stack": (torch.column_stack, [(), (3,), (2, 3)]),
}
PARTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "unbind": (lambda x: x.unbind(1), lambda x: [x.select(1, i) for i in range(20)]),
    "split": (lambda x: x.split(2, 1), lambda x: _slices(x, [2] * 10)),
    "split uneven": (lambda x: torch.split(x, 2, 0), lambda x: _rows(x, [2] * 9 + [1])),
    "sizes": (
        lambda x: x.split([3, 0, 1, 1, 1, 1, 2, 5, 6], 1),
        lambda x: _slices(x, [3, 0, 1, 1, 1, 1, 2, 5, 6]),
    ),
    "chunk": (lambda x: x.chunk(11, 1), lambda x: _slices(x, [2] * 10)),
    "tensor_split": (lambda x: x.tensor_split(9, 1), lambda x: _slices(x, [3, 3] + [2] * 7)),
    "indices": (
        lambda x: x.tensor_split((1, 2, 3, 5, 8, 9, -4, 17, 40), 1),
        lambda x: _slices(x, [1, 1, 1, 2, 3, 1, 7, 1, 3, 0]),
    ),
}


def _slices(x: Any, lengths: Sequence[int], dim: int = 1) -> list[Any]:
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    return [x.narrow(dim, s, n) for s, n in zip(starts, lengths, strict=True)]


def _rows(x: Any, lengths: Sequence[int]) -> list[Any]:
    return _slices(x, lengths, 0)


def _bits(x: Any) -> Any:
    return x.detach().contiguous().view(torch.uint8).tolist() if x.ndim else x.tolist()


def _nested(function: Callable[..., Any], xs: list[Any]) -> Any:
    """The same by short lists."""
    return function([function(xs[i : i + 7]) for i in range(0, len(xs), 7)])


@contextmanager
def no_new_plans() -> Iterator[None]:
    """Nothing in the block builds a plan."""
    before = _core.plan_cache_stats()["builds"]
    yield
    assert _core.plan_cache_stats()["builds"] == before


@pytest.mark.parametrize("name", JOINS)
def test_joined_like_short_lists(name: str) -> None:
    function, shapes = JOINS[name]
    for shape in shapes:
        xs = [torch.randn(shape).requires_grad_() for _ in range(LONG)]
        with no_new_plans():
            joined = function(xs)
        reference = _nested(function, xs)
        assert joined.stride() == reference.stride()
        assert _bits(joined) == _bits(reference)
        weight = torch.randn(joined.shape)
        with no_new_plans():
            grads = torch.autograd.grad(joined, xs, weight)
        for a, b in zip(grads, torch.autograd.grad(reference, xs, weight), strict=True):
            assert a.shape == b.shape
            assert _bits(a) == _bits(b)


def test_stacked_like_unsqueezed() -> None:
    for dim in (0, 1, -1):
        xs = [torch.randn(2, 3).t().requires_grad_() for _ in range(LONG)]
        stacked = torch.stack(xs, dim)
        reference = torch.cat([x.unsqueeze(dim) for x in xs], dim)
        assert _bits(stacked) == _bits(reference)
        assert stacked.stride() == reference.stride()
        for grad in torch.autograd.grad(stacked.sum(), xs):
            assert _bits(grad) == _bits(torch.ones(3, 2))


def test_mixed_sources() -> None:
    """Empty ones left out, promoted dtypes, channels last, lengths that differ."""
    xs = [torch.randn(2, 1 + i % 3) for i in range(LONG)] + [torch.empty(0)]
    xs[5] = torch.arange(4).reshape(2, 2)
    xs[6] = torch.randn(2, 2).double().requires_grad_()
    xs[7] = torch.randn(2, 3).half().requires_grad_()
    joined = torch.cat(xs, 1)
    assert joined.dtype == torch.float64
    reference = _nested(lambda parts: torch.cat(parts, 1), [x.double() for x in xs])
    assert _bits(joined) == _bits(reference)
    joined.sum().backward()
    assert xs[7].grad.dtype == torch.float16
    images = [torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last) for _ in range(LONG)]
    assert torch.cat(images, 1).is_contiguous(memory_format=torch.channels_last)
    assert _bits(torch.cat(images, 1)) == _bits(torch.cat([x.contiguous() for x in images], 1))
    assert torch.cat([*images, torch.randn(2, 3, 4, 5)], 1).is_contiguous()


def test_errors_are_those_of_short_lists() -> None:
    xs = [torch.zeros(2, 3)] * LONG
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        torch.cat([*xs, torch.zeros(3, 4)], 1)
    with pytest.raises(RuntimeError, match="expects each tensor to be equal size"):
        torch.stack([*xs, torch.zeros(3, 4)])
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.cat(xs, 2)
    with pytest.raises(RuntimeError, match="to sum exactly to"):
        torch.zeros(20).split([1] * 19)
    with pytest.raises(RuntimeError, match="out=... arguments don't support"):
        torch.cat([torch.zeros(2, requires_grad=True)] * LONG, out=torch.empty(0))


def test_out_takes_a_long_list() -> None:
    out = torch.empty(2 * LONG, dtype=torch.float64)
    assert torch.cat([torch.full((2,), float(i)) for i in range(LONG)], out=out) is out
    assert out.tolist() == [float(i // 2) for i in range(2 * LONG)]


@pytest.mark.parametrize("name", PARTS)
def test_parts_like_single_views(name: str) -> None:
    function, single = PARTS[name]
    x = torch.randn(19, 20, requires_grad=True)
    with no_new_plans():
        parts = function(x)
    references = single(x)
    assert len(parts) == len(references)
    for a, b in zip(parts, references, strict=True):
        assert (a.shape, a.stride(), a.storage_offset()) == (
            b.shape,
            b.stride(),
            b.storage_offset(),
        )
        assert a._base is x
    weights = [torch.randn(p.shape) for p in parts]
    for step in (1, 3):  # all of them; some, so that others have no gradient
        with no_new_plans():
            (grad,) = torch.autograd.grad(parts[::step], x, weights[::step], retain_graph=True)
        (want,) = torch.autograd.grad(references[::step], x, weights[::step], retain_graph=True)
        assert grad.tolist() == want.tolist()


def test_second_derivatives() -> None:
    x = torch.randn(11, 3, dtype=torch.float64, requires_grad=True)

    def cubes(x: Any) -> Any:
        return torch.cat([row**3 for row in x.unbind()])

    assert torch.autograd.gradcheck(cubes, x)
    assert torch.autograd.gradgradcheck(cubes, x)


def test_writing_to_a_part_is_refused() -> None:
    x = torch.zeros(20, requires_grad=True) * 1
    with pytest.raises(RuntimeError, match="returns multiple views"):
        x.split(1)[0].add_(1)
    plain = torch.zeros(20)
    plain.split(2)[3].add_(1)
    assert plain.sum() == 2


def test_a_new_count_builds_nothing() -> None:
    for count in (9, 57, 1000, 10_000):
        xs = [torch.ones(2, requires_grad=True) for _ in range(count)]
        with no_new_plans():
            whole = torch.stack(xs)
            parts = whole.unbind()
            torch.autograd.grad(parts, xs, parts)


def test_one_node_per_call() -> None:
    xs = [torch.ones(2, requires_grad=True) for _ in range(LONG)]
    node = torch.cat(xs).grad_fn
    assert node.name() == "CatBackward0"
    assert len(node.next_functions) == LONG
    assert torch.stack(xs).unbind()[3].grad_fn.name() == "UnbindBackward0"


def test_gradients_of_parts_keep_negative_zeros() -> None:
    """Joined, not added to zeros: short and long lists, eager and compiled."""

    def gradient(x: Any, count: int) -> Any:
        parts = x.chunk(count)
        return torch.autograd.grad(parts, x, [torch.full_like(p, -0.0) for p in parts])[0]

    for count in (2, 10):
        x = torch.ones(10, requires_grad=True)
        assert bool(torch.signbit(gradient(x, count)).all())
        assert bool(torch.signbit(torch.compile(gradient)(x, count)).all())


def test_recorded_joins_are_trees_of_short_ones() -> None:
    """Another count needs no plan of its own for the call, only the region's."""
    for name in ("cat", "stack"):
        function = getattr(torch, name)
        compiled = torch.compile(lambda xs, function=function: function(xs, -1) * 2)
        for count in (9, 65, 130):
            xs = [torch.randn(2, 3, requires_grad=True) for _ in range(count)]
            before = _core.plan_cache_stats()["builds"]
            joined = compiled(xs)
            assert _core.plan_cache_stats()["builds"] - before <= 8
            assert _bits(joined) == _bits(function(xs, -1) * 2)


def test_long_lists_in_a_region() -> None:
    """A recorded call is one of the region's program, with the same bits."""
    xs = [torch.randn(3, requires_grad=True) for _ in range(12)]

    def function(xs: list[Any]) -> Any:
        return torch.stack([part * 2 for part in torch.cat(xs).chunk(12)])

    eager, compiled = function(xs), torch.compile(function)(xs)
    assert _bits(eager) == _bits(compiled)
    for a, b in zip(
        torch.autograd.grad(eager.sum(), xs), torch.autograd.grad(compiled.sum(), xs), strict=True
    ):
        assert _bits(a) == _bits(b)
