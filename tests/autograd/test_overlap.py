"""Writes whose operands share memory with the target, refused where PyTorch refuses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau.nn import functional as F


def assign(target: Any, value: Any) -> None:
    target[:] = value


REFUSED: dict[str, Callable[[Any], Any]] = {
    "add_": lambda x: x[1:].add_(x[:-1]),
    "copy_": lambda x: x[1:].copy_(x[:-1]),
    "assignment": lambda x: assign(x[1:], x[:-1]),
    "transposed": lambda x: x[:4].view(2, 2).add_(x[:4].view(2, 2).t()),
    "one element": lambda x: x[:2].add_(x[0]),
    "broadcast": lambda x: x[:2].mul_(x[:1]),
    "lerp_": lambda x: x[1:].lerp_(x[:-1], 0.5),
    "out": lambda x: torch.add(x[1:], x[1:], out=x[:-1]),
    "exp out": lambda x: torch.exp(x[1:], out=x[:-1]),
    "cat": lambda x: torch.cat([x[:2], x[2:3]], out=x[1:4]),
    "cat all": lambda x: torch.cat([x[:2], x[2:3]], out=x[:3]),
    "index_add_": lambda x: x[:3].index_add_(0, torch.tensor([0, 1, 2]), x[2:5]),
    "scatter_ all": lambda x: x.scatter_(0, torch.arange(6), x),
    "index_put_": lambda x: x.index_put_((torch.arange(6),), x),
    "cumsum": lambda x: torch.cumsum(x[1:], 0, out=x[:-1]),
}
TAKEN: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "all of it": (lambda x: x.view(2, 3).add_(x.view(2, 3)), [0, 2, 4, 6, 8, 10]),
    "the same object": (lambda x: x.mul_(x), [0, 1, 4, 9, 16, 25]),
    "gaps": (lambda x: x[:4:2].add_(x[1:3]), [1, 1, 4, 3, 4, 5]),
    "interleaved": (lambda x: x[::2].add_(x[1::2]), [1, 1, 5, 3, 9, 5]),
    "apart": (lambda x: x[3:].sub_(x[:3]), [0, 1, 2, 3, 3, 3]),
    "out": (lambda x: torch.add(x[:5], x[:5], out=x[:5]), [0, 2, 4, 6, 8, 5]),
    "fill_": (lambda x: x[:1].expand(3).fill_(3), [3, 1, 2, 3, 4, 5]),
    "zero_": (lambda x: x[1:2].expand(3).zero_(), [0, 0, 2, 3, 4, 5]),
    "masked_fill_": (lambda x: x[:3].masked_fill_(x[:3] > 1, x[2]), [0, 1, 2, 3, 4, 5]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    x = torch.arange(6.0)
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        REFUSED[name](x)
    assert x.tolist() == [0, 1, 2, 3, 4, 5]

    def compiled(x: Any) -> Any:
        y = x + 0
        REFUSED[name](y)
        return y

    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        torch.compile(compiled)(x).tolist()


ONES = torch.ones(3, 3)
OUT_REFUSED: dict[str, Callable[[Any], Any]] = {
    "addmm": lambda x: torch.addmm(square(x, 6), ONES, ONES, out=square(x, 3)),
    "addmv": lambda x: torch.addmv(x[1:4], ONES, ONES[0], out=x[:3]),
    "addbmm": lambda x: torch.addbmm(square(x, 6), ONES[None], ONES[None], out=square(x, 3)),
    "baddbmm": lambda x: torch.baddbmm(
        square(x, 6)[None], ONES[None], ONES[None], out=square(x, 3)[None]
    ),
    "linear": lambda x: F.linear(ONES[0], ONES, x[1:4], out=x[:3]),
    "solve_triangular": lambda x: torch.linalg.solve_triangular(
        ONES, square(x, 3), upper=True, out=square(x, 0)
    ),
    "normal": lambda x: torch.normal(x[1:9], 1.0, out=x[:8]),
    "normal of deviations": lambda x: torch.normal(0.0, x[1:9], out=x[:8]),
    "bernoulli": lambda x: torch.bernoulli(x[1:9], out=x[:8]),
    "normalize": lambda x: F.normalize(square(x, 3), out=square(x, 0)),
    "stack": lambda x: torch.stack([x[:2], x[2:4]], out=x[:4].view(2, 2)),
    "hstack": lambda x: torch.hstack([x[:2], x[2:4]], out=x[1:5]),
    "vstack": lambda x: torch.vstack([x[:2], x[2:4]], out=x[:4].view(2, 2)),
    "dstack": lambda x: torch.dstack([x[:2], x[2:4]], out=x[:4].view(1, 2, 2)),
    "column_stack": lambda x: torch.column_stack([x[:2], x[2:4]], out=x[:4].view(2, 2)),
    "baddbmm of a matrix": lambda x: torch.baddbmm(
        square(x, 6), ONES[None], ONES[None], out=square(x, 3)[None]
    ),
    "addr": lambda x: torch.addr(square(x, 11), x[1:4], ONES[0], out=square(x, 0)),
    "diff": lambda x: torch.diff(x[1:4], out=x[:2]),
    "aminmax": lambda x: torch.aminmax(square(x, 1), dim=0, out=(x[:3], x[16:19])),
    "max": lambda x: torch.max(square(x, 1), 0, out=(x[:3], torch.empty(3, dtype=torch.int64))),
    "topk": lambda x: torch.topk(x[1:6], 2, out=(x[:2], torch.empty(2, dtype=torch.int64))),
    "mode": lambda x: torch.mode(square(x, 1), 0, out=(x[:3], torch.empty(3, dtype=torch.int64))),
    "first power": lambda x: torch.matrix_power(square(x, 1), 1, out=square(x, 0)),
    "inner of numbers": lambda x: torch.inner(x[1], x[2:5], out=x[1:4]),
    "chain_matmul of one": lambda x: torch.chain_matmul(square(x, 1), out=square(x, 0)),
    "split_copy": lambda x: torch.split_copy(x[1:7], 3, out=[x[:3], x[10:13]]),
}
OUT_TAKEN: dict[str, Callable[[Any], Any]] = {
    "addmm of its factor": lambda x: torch.addmm(
        square(x, 11), square(x, 0), ONES, out=square(x, 2)
    ),
    "addmm expanded": lambda x: torch.addmm(x[:3], ONES, ONES, out=square(x, 0)),
    "addmm all": lambda x: torch.addmm(square(x, 0), ONES, ONES, out=square(x, 0)),
    "linear": lambda x: F.linear(ONES, ONES, x[:3], out=square(x, 0)),
    "ndtr": lambda x: torch.special.ndtr(x[1:9], out=x[:8]),
    "addmm of a row": lambda x: torch.addmm(x[1:4].view(1, 3), ONES, ONES, out=square(x, 0)),
    "addr of a row": lambda x: torch.addr(x[1:4], ONES[0], ONES[0], out=square(x, 0)),
    "second differences": lambda x: torch.diff(x[1:6], n=2, out=x[:3]),
    "second power": lambda x: torch.matrix_power(square(x, 1), 2, out=square(x, 0)),
    "ldexp": lambda x: torch.ldexp(ONES[0], x[1:4], out=x[:3]),
}

EXPECTED: dict[str, Callable[[Any], Any]] = {
    "addmm of its factor": lambda x: torch.addmm(square(x, 11), square(x, 0), ONES),
    "addmm expanded": lambda x: torch.addmm(x[:3], ONES, ONES),
    "addmm all": lambda x: torch.addmm(square(x, 0), ONES, ONES),
    "linear": lambda x: F.linear(ONES, ONES, x[:3]),
    "ndtr": lambda x: torch.special.ndtr(x[1:9]),
    "addmm of a row": lambda x: torch.addmm(x[1:4].view(1, 3), ONES, ONES),
    "addr of a row": lambda x: torch.addr(x[1:4], ONES[0], ONES[0]),
    "second differences": lambda x: torch.diff(x[1:6], n=2),
    "second power": lambda x: torch.matrix_power(square(x, 1), 2),
    "ldexp": lambda x: torch.ldexp(ONES[0], x[1:4]),
}


def square(x: Any, start: int) -> Any:
    return x[start : start + 9].view(3, 3)


@pytest.mark.parametrize("name", OUT_REFUSED)
def test_refused_out(name: str) -> None:
    x = torch.arange(20.0) / 20
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        OUT_REFUSED[name](x)
    assert x.tolist() == (torch.arange(20.0) / 20).tolist()


# Of expanded tensors those elements are written that change.
REPEATED: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "masked_fill_": (
        lambda x: x.expand(2, 3).masked_fill_(
            torch.tensor([[True, False, False], [False, False, True]]), 7
        ),
        [7, 1, 7],
    ),
    "index_fill_": (lambda x: x.expand(2, 3).index_fill_(0, torch.tensor([1]), 5), [5, 5, 5]),
    "tril_": (lambda x: x[:, None].expand(3, 3).tril_(), [0, 0, 2]),
    "fill_diagonal_": (lambda x: x.expand(3, 3).fill_diagonal_(9), [9, 9, 9]),
    "threshold_": (lambda x: F.threshold_(x.expand(2, 3), 1, 8), [8, 8, 2]),
    "full": (lambda x: torch.full((2, 3), 2.0, out=x.expand(2, 3)), [2, 2, 2]),
    "empty": (lambda x: torch.empty(2, 3, out=x.expand(2, 3)), [0, 1, 2]),
}


@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.parametrize("compiled", [False, True])
def test_repeated_targets(name: str, compiled: bool) -> None:
    call, expected = REPEATED[name]
    x = torch.arange(3.0)
    before = x._version
    (torch.compile(call) if compiled else call)(x)
    assert x.tolist() == expected
    assert x._version == before + (name != "empty")


def test_repeated_targets_have_no_gradient() -> None:
    x = torch.arange(3.0, requires_grad=True) * 1
    with pytest.raises(RuntimeError, match="refers to a single memory location"):
        x.expand(2, 3).masked_fill_(torch.tensor(True), 7)


def test_resize_of_the_same_sizes_keeps_strides() -> None:
    x = torch.arange(6.0).view(2, 3)
    assert x.t().resize_(3, 2).stride() == (1, 3)
    assert x[:1].expand(2, 3).resize_as_(x).stride() == (0, 1)
    assert x.t().resize_(3, 2, memory_format=torch.contiguous_format).stride() == (2, 1)


def test_refused_out_of_places() -> None:
    x = torch.arange(6)
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        torch.nonzero(x[1:4], out=x[1:4].view(3, 1))
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        torch.nonzero_static(x[1:4], size=3, out=x[:3].view(3, 1))
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", OUT_TAKEN)
def test_taken_out(name: str) -> None:
    """The result is that of operands with memory of their own."""
    call, x = OUT_TAKEN[name], torch.arange(20.0) / 20
    result = call(x).tolist()
    assert result == EXPECTED[name](torch.arange(20.0) / 20).tolist()


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name: str) -> None:
    call, expected = TAKEN[name]
    x = torch.arange(6.0)
    call(x)
    assert x.tolist() == expected


def test_expanded_targets() -> None:
    for write in (lambda x: x.add_(1), lambda x: x.copy_(torch.ones(3)), lambda x: x.relu_()):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            write(torch.ones(1).expand(3))
