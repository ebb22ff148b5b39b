"""Random indices, right, negative and out of range, for every operator that follows them.

A right index gives what plain Python gives; a wrong one raises IndexError or RuntimeError, and
what follows still works. Runs under the sanitizers, which see any access outside (`./go sanitize`).
"""

from __future__ import annotations

import random

import pytest

import flambeau as torch

F = torch.nn.functional
ROUNDS = 6
WRONG = (1, 2, 1000, 2**31, 2**40, 2**62)


class Fuzz:
    """Random sizes and indices, some of which are spoilt."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def size(self, low: int = 1, high: int = 9) -> int:
        return self.random.randint(low, high)

    def index(self, count: int, extent: int, negative: bool = True) -> list[int]:
        low = -extent if negative else 0
        return [self.random.randrange(low, extent) for _ in range(count)]

    def spoilt(self, index: list[int], extent: int) -> list[int]:
        """Indices of which one lies outside of [-extent, extent)."""
        wrong = list(index)
        beyond = extent - 1 + self.random.choice(WRONG)
        below = -self.random.choice(WRONG) - extent
        wrong[self.random.randrange(len(wrong))] = self.random.choice([beyond, below])
        return wrong


def rows(x):
    return [row.tolist() for row in x]


def _added(base, index, source):
    found = [list(row) for row in base]
    for i, row in zip(index, source):
        found[i] = [a + b for a, b in zip(found[i], row)]
    return found


# name: (function of (table, index, source), the same on lists, whether negative indices are right)
CASES = {
    "index_select": (
        lambda t, i, s: t.index_select(0, i), lambda t, i, s: [t[k] for k in i], False),
    "subscript": (lambda t, i, s: t[i], lambda t, i, s: [t[k] for k in i], True),
    "embedding": (lambda t, i, s: F.embedding(i, t), lambda t, i, s: [t[k] for k in i], False),
    "take": (
        lambda t, i, s: torch.stack([t.take(i * t.shape[1] + c) for c in range(t.shape[1])], 1),
        lambda t, i, s: [t[k] for k in i], False),
    "gather": (
        lambda t, i, s: t.gather(0, i.unsqueeze(1).expand(-1, t.shape[1])),
        lambda t, i, s: [t[k] for k in i], False),
    "index_add": (lambda t, i, s: t.index_add(0, i, s), _added, False),
    "index_put": (lambda t, i, s: t.index_put((i,), s, True), _added, True),
    "scatter_add": (
        lambda t, i, s: t.scatter_add(0, i.unsqueeze(1).expand(-1, t.shape[1]), s), _added, False),
    "dense scatter_add": (
        lambda t, i, s: t.scatter_add(0, i.unsqueeze(1).repeat(1, t.shape[1]), s), _added, False),
    "embedding_bag": (
        lambda t, i, s: F.embedding_bag(i.unsqueeze(1), t, mode="sum"),
        lambda t, i, s: [t[k] for k in i], False),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_rows(name, seed):
    function, plain, negative = CASES[name]
    fuzz = Fuzz(seed)
    for _ in range(ROUNDS):
        extent, width, count = fuzz.size(), fuzz.size(2), fuzz.size(2, 20)
        table = torch.randint(-9, 9, (extent, width)).float()
        source = torch.randint(-9, 9, (count, width)).float()
        if fuzz.random.random() < 0.3:
            table = table.t().contiguous().t()
        good = fuzz.index(count, extent, negative)
        wanted = plain(rows(table), good, rows(source))
        found = function(table, torch.tensor(good), source)
        assert rows(found) == wanted
        bad = torch.tensor(fuzz.spoilt(good, extent))
        with pytest.raises((IndexError, RuntimeError)):
            function(table, bad, source).sum().item()
        assert rows(function(table, torch.tensor(good), source)) == wanted


@pytest.mark.parametrize("seed", range(3))
def test_writes_change_nothing_outside(seed):
    fuzz = Fuzz(seed)
    for _ in range(ROUNDS):
        extent, width = fuzz.size(2), fuzz.size(2)
        whole = torch.zeros(3, extent, width)
        index = fuzz.index(6, extent, False)
        source = torch.ones(6, width)
        whole[1].index_add_(0, torch.tensor(index), source)
        assert whole[0].sum() == 0 and whole[2].sum() == 0 and whole.sum() == 6 * width
        with pytest.raises((IndexError, RuntimeError)):
            whole[1].index_add_(0, torch.tensor(fuzz.spoilt(index, extent)), source)
        assert whole[0].sum() == 0 and whole[2].sum() == 0


@pytest.mark.parametrize("seed", range(3))
def test_targets_and_classes(seed):
    fuzz = Fuzz(seed)
    for _ in range(ROUNDS):
        classes, count = fuzz.size(2), fuzz.size(2)
        x = torch.randn(count, classes, requires_grad=True)
        good = fuzz.index(count, classes, False)
        loss = F.cross_entropy(x, torch.tensor(good))
        plain = -sum(x.log_softmax(1)[k, c].item() for k, c in enumerate(good)) / count
        assert abs(loss.item() - plain) < 1e-5
        loss.backward()
        beyond = torch.tensor([c + classes for c in good])
        for function in (F.cross_entropy, F.nll_loss):
            with pytest.raises((IndexError, RuntimeError)):
                function(x, beyond).item()
        with pytest.raises((IndexError, RuntimeError)):
            F.one_hot(beyond, classes).sum().item()


def test_pooling_of_nothing_but_the_least_value():
    """Padding must not be chosen: its position lies outside of the input."""
    x = torch.full((1, 1, 5, 5), -float("inf"), requires_grad=True)
    values, places = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    values.sum().backward()
    assert places.min() >= 0 and places.max() < 25 and x.grad.sum() == 9
    y = torch.full((1, 1, 40, 40), -float("inf"), requires_grad=True)
    F.max_pool2d(y, 9, 4, 4, ceil_mode=True).sum().backward()
    assert y.grad.sum() == 11 * 11 or y.grad.sum() == 100


def test_unpooling_outside():
    x, places = torch.ones(1, 1, 2, 2), torch.tensor([[[[0, 3], [12, 16]]]])
    with pytest.raises((IndexError, RuntimeError)):
        F.max_unpool2d(x, places, 2).sum().item()


HUGE = 2**62


@pytest.mark.parametrize(
    "call",
    (
        lambda: torch.zeros(HUGE),
        lambda: torch.empty(2**40, 2**40),
        lambda: torch.ones(2).expand(HUGE, 2).contiguous(),
        lambda: torch.ones(1).expand(HUGE, 4),
        lambda: torch.ones(1, 1).expand(2**32, 2**31),
        lambda: torch.randn(2**33, 2**33),
        lambda: torch.arange(HUGE),
        lambda: F.interpolate(torch.ones(1, 1, 2, 2), size=(2**31, 2**31)),
        lambda: F.pad(torch.ones(2, 2), (2**61, 2**61)),
        lambda: torch.ones(1, 1, 4).repeat(2**31, 2**31, 2),
    ),
)
def test_sizes_that_overflow(call):
    with pytest.raises((RuntimeError, MemoryError)):
        call()
