"""Tier 2 and parts of training programs: steps of an optimizer, gradients of gradients, masks.

A part reads what calls outside of it left: gradients, which are other tensors in each call. Each
part runs on a model and on a copy of it, compiled and plain, and both are compared bit by bit.
"""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from tests.capture.conftest import same_bits

CALLS = 14
Part = Callable[[], Any]
Make = Callable[[Any, Any], Part]  # of a model and its optimizer


def model_of() -> Any:
    """A small model."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))


def step(model: Any, optimizer: Any) -> Part:
    """The step alone."""
    return lambda: optimizer.step()


def step_and_zeros(model: Any, optimizer: Any) -> Part:
    """A step that drops the gradients."""

    def part() -> None:
        optimizer.step()
        optimizer.zero_grad()

    return part


def zeros_in_place(model: Any, optimizer: Any) -> Part:
    """A step that writes zeros to the gradients."""

    def part() -> None:
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    return part


def clipping(model: Any, optimizer: Any) -> Part:
    """Gradients are scaled in place; the norm is a result."""
    return lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def noted(model: Any, optimizer: Any) -> Part:
    """The gradients themselves are results, and are replaced."""
    weight = model[0].weight

    def part() -> Any:
        before = weight.grad
        weight.grad = None if before is None else before * 2
        return before

    return part


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
}


class Twins:
    """A model and its copy, one with a compiled part."""

    def __init__(self, make: Make, optimizer: str = "AdamW") -> None:
        model = model_of()
        self.models = [copy.deepcopy(model) for _ in range(2)]
        optimizers = [OPTIMIZERS[optimizer](m.parameters()) for m in self.models]
        self.optimizers = optimizers
        parts = [make(m, o) for m, o in zip(self.models, optimizers, strict=True)]
        self.compiled: Any = torch.compile(parts[0])
        self.parts = [self.compiled, parts[1]]

    def run(self, seed: int, backward: Callable[[Any, Any], None] | None = None) -> bool:
        """A backward outside, and the part, for both; whether Python was skipped."""
        results = []
        hits = self.compiled._hits
        for model, part in zip(self.models, self.parts, strict=True):
            torch.manual_seed(seed)
            x = torch.randn(4, 6)
            (backward or _backward)(model, x)
            results.append(part())
        assert (results[0] is None) == (results[1] is None)
        assert results[0] is None or same_bits(results[0], results[1])
        for p, q in zip(*(m.parameters() for m in self.models), strict=True):
            assert same_bits(p, q) and p._version == q._version
            assert (p.grad is None) == (q.grad is None)
            assert p.grad is None or same_bits(p.grad, q.grad)
        return bool(self.compiled._hits > hits)


def _backward(model: Any, x: Any) -> None:
    model.zero_grad()
    model(x).square().sum().backward()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("make", [step, step_and_zeros, zeros_in_place, clipping, noted])
def test_parts_run_without_their_python(make: Make, optimizer: str) -> None:
    twins = Twins(make, optimizer)
    skipped = [twins.run(seed) for seed in range(CALLS)]
    assert skipped[-4:] == [True] * 4, twins.compiled._reason


def test_gradients_that_add_up() -> None:
    def add(model: Any, x: Any) -> None:
        model(x).square().sum().backward()

    twins = Twins(step)
    skipped = [twins.run(seed, add) for seed in range(CALLS)]
    assert skipped[-4:] == [True] * 4, twins.compiled._reason


def test_gradients_with_other_facts_are_noticed() -> None:
    twins = Twins(step, "SGD")
    assert [twins.run(seed) for seed in range(CALLS)][-1]

    def absent(model: Any, x: Any) -> None:
        _backward(model, x)
        model[0].weight.grad = None

    def transposed(model: Any, x: Any) -> None:
        _backward(model, x)
        model[0].weight.grad = model[0].weight.grad.t().contiguous().t()

    def shared(model: Any, x: Any) -> None:
        _backward(model, x)
        model[1].weight.grad = model[0].bias.grad

    def parameter(model: Any, x: Any) -> None:
        _backward(model, x)
        model[1].weight.grad = model[1].bias.data

    for backward in (absent, transposed, shared, parameter):
        assert not twins.run(3, backward)
    assert twins.run(4)


def test_gradients_are_not_owned() -> None:
    twins = Twins(step_and_zeros)
    assert [twins.run(seed) for seed in range(CALLS)][-1]
    _backward(twins.models[0], torch.ones(4, 6))
    seen = weakref.ref(twins.models[0][0].weight.grad)
    twins.compiled()
    gc.collect()
    assert seen() is None


def test_the_usual_split() -> None:
    """A compiled model, a backward outside of it, a compiled step."""
    models, losses = [model_of(), model_of()], []
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in models]
    forward = torch.compile(models[0].forward)
    compiled = torch.compile(step_and_zeros(models[0], optimizers[0]))
    steps = [compiled, step_and_zeros(models[1], optimizers[1])]
    for number in range(CALLS):
        torch.manual_seed(number)
        x = torch.randn(4, 6)
        for function, run in zip((forward, models[1]), steps, strict=True):
            loss = function(x).square().mean()
            loss.backward()
            run()
            losses.append(loss.detach())
        assert same_bits(losses[-1], losses[-2])
    assert forward._hits > 4 and compiled._hits > 4
    assert all(same_bits(p, q) for p, q in zip(*(m.parameters() for m in models), strict=True))


# ------------------------------------------------------------------ gradients of gradients


def derivative(model: Any) -> Callable[[Any], Any]:
    """The gradient by the input, with a history."""

    def function(x: Any) -> Any:
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return gradient

    return function


def second_derivative(model: Any) -> Callable[[Any], Any]:
    """A gradient of a gradient, with a history."""

    def function(x: Any) -> Any:
        (first,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
        return second

    return function


def penalty(model: Any) -> Callable[[Any], Any]:
    """A step whose loss has the norm of a gradient, at leaves that the call makes."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def function(x: Any) -> Any:
        leaf = x.detach().clone().requires_grad_()
        value = model(leaf).sum()
        (gradient,) = torch.autograd.grad(value, leaf, create_graph=True)
        ((gradient.norm() - 1) ** 2 + value).backward()
        optimizer.step()
        optimizer.zero_grad()
        return value.detach() + leaf.grad.sum()

    return function


def accumulated(model: Any) -> Callable[[Any], Any]:
    """`backward` with create_graph: the gradients of leaves have a history."""

    def function(x: Any) -> Any:
        model(x).sum().backward(create_graph=True)
        return x.grad * 2

    return function


@pytest.mark.filterwarnings("ignore:.*create_graph")
@pytest.mark.parametrize("make", [derivative, second_derivative, penalty, accumulated])
def test_gradients_of_gradients(make: Callable[[Any], Any]) -> None:
    models = [model_of(), model_of()]
    compiled: Any = torch.compile(make(models[0]))
    functions = [compiled, make(models[1])]
    for number in range(CALLS):
        rows = []
        for model, function in zip(models, functions, strict=True):
            torch.manual_seed(number)
            x = torch.randn(5, 6, requires_grad=True)
            result = function(x)
            if result.requires_grad:
                result.square().sum().backward()
            rows.append([result, x.grad, *(p.grad for p in model.parameters())])
            model.zero_grad()
        for a, b in zip(*rows, strict=True):
            assert (a is None) == (b is None)
            assert a is None or same_bits(a, b)
    assert compiled._hits > 4, compiled._reason


# ------------------------------------------------------------------ masks


def test_masks_from_outside() -> None:
    mask = torch.tensor([True, False, True, True])
    labels = torch.tensor([1, 2, 0, 1])

    def function(x: Any) -> Any:
        return (
            (x * 2)[mask] + labels[mask][:, None],
            x.masked_select(x.detach() == x),
            mask.nonzero(),
        )

    torch._dynamo.utils.counters.clear()
    compiled: Any = torch.compile(lambda x: ((x * 2)[mask] + labels[mask][:, None], mask.nonzero()))
    plain = compiled._function
    for number in range(8):
        x = torch.randn(4, 3) + number
        assert all(map(same_bits, compiled(x), plain(x)))
    assert compiled._hits > 2, compiled._reason
    hits = compiled._hits
    mask[1] = True  # more elements
    assert all(map(same_bits, compiled(x), plain(x))) and compiled._hits == hits
    mask[0] = False  # as many as before, at other places
    assert all(map(same_bits, compiled(x), plain(x))) and compiled._hits == hits + 1
    assert torch.compiler.explain(compiled, x).plans == 1
    assert all(map(same_bits, torch.compile(function)(x), function(x)))


def test_masks_among_the_arguments() -> None:
    def function(x: Any, mask: Any) -> Any:
        return x[mask] * 2, x.masked_select(mask)

    compiled: Any = torch.compile(function)
    for number in range(24):
        torch.manual_seed(number)
        x, mask = torch.randn(6), torch.rand(6) < 0.5
        assert all(map(same_bits, compiled(x, mask), function(x, mask)))
    for mask in (torch.ones(6, dtype=torch.bool), torch.zeros(12, dtype=torch.bool)[::2]):
        for _ in range(6):
            assert all(map(same_bits, compiled(x, mask), function(x, mask)))
    assert compiled._hits > 4


def test_a_mask_that_the_call_writes() -> None:
    def function(x: Any, mask: Any) -> Any:
        mask[0] = False
        return x[mask] * 2

    compiled: Any = torch.compile(function)
    for number in range(10):
        x, masks = torch.randn(4) + number, [torch.ones(4, dtype=torch.bool) for _ in range(2)]
        assert same_bits(compiled(x, masks[0]), function(x, masks[1]))
        assert same_bits(masks[0], masks[1])


def in_thread(function: Callable[[], Any]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def flip(mask: Any, place: int) -> Any:
    """The mask, with one element changed in place."""
    mask[place % mask.numel()].logical_not_()
    return mask


def flip_by_numpy(mask: Any, place: int) -> Any:
    """The same through NumPy's view of the memory."""
    array = mask.numpy()
    array[place % array.size] ^= True
    return mask


def flip_in_thread(mask: Any, place: int) -> Any:
    """The same on another thread."""
    in_thread(lambda: flip(mask, place))
    return mask


CHANGES: dict[str, Callable[[Any, int], Any]] = {
    "in place": flip,
    "by NumPy": flip_by_numpy,
    "in a thread": flip_in_thread,
    "other elements": lambda mask, number: torch.arange(6) % 3 == number % 3,
    "other count": lambda mask, number: torch.arange(6) < number % 7,
    "other view": lambda mask, number: (torch.arange(24) % 5 < 2)[number : number + 6],
    "strided": lambda mask, number: (torch.arange(12) < number % 5)[:: 1 + number % 2][:6],
    "numbers": lambda mask, number: torch.arange(6) * (number % 2),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("argument", [False, True])
def test_masks_that_change_between_calls(argument: bool, change: str) -> None:
    state = {"mask": torch.tensor([True, False, True, True, False, True])}

    def function(x: Any, mask: Any = None) -> Any:
        mask = state["mask"] if mask is None else mask
        if mask.dtype != torch.bool:
            return mask.nonzero(), x[mask.nonzero()[:, 0]].exp()
        return (x * 3)[mask].exp(), x[:, 0].masked_select(mask), mask.nonzero(), mask.sum()

    compiled: Any = torch.compile(function)
    for number in range(18):
        if number % 3 == 2:
            state["mask"] = CHANGES[change](state["mask"], number)
        results, gradients = [], []
        for run in (compiled, function):
            x = torch.arange(18.0).view(6, 3).sin().requires_grad_()
            results.append(run(x, state["mask"]) if argument else run(x))
            results[-1][1].square().sum().backward()
            gradients.append(x.grad)
        assert all(map(same_bits, *results)) and same_bits(*gradients)


def test_masks_of_a_call_itself() -> None:
    def function(x: Any, mask: Any) -> Any:
        first = x[mask]
        mask.logical_not_()
        positive = x[x > 0]
        both = x[mask & (x > 0)]
        return first, positive, both, x[mask], mask.nonzero()

    compiled: Any = torch.compile(function)
    for number in range(12):
        torch.manual_seed(number)
        x, masks = torch.randn(9), [torch.arange(9) % 4 < number % 4 for _ in range(2)]
        assert all(map(same_bits, compiled(x, masks[0]), function(x, masks[1])))
        assert same_bits(*masks)


@pytest.mark.parametrize("change", ["by NumPy", "in place"])
def test_masks_that_change_during_a_call(change: str) -> None:
    def function(x: Any, mask: Any) -> Any:
        first = x[mask] * 2
        for place in range(3):
            CHANGES[change](mask, place)
        second = x[mask]
        return first, second, mask.nonzero()

    compiled: Any = torch.compile(function)
    for number in range(10):
        x = torch.arange(6.0) + number
        masks = [torch.arange(6) % 4 == number % 4 for _ in range(2)]
        assert all(map(same_bits, compiled(x, masks[0]), function(x, masks[1])))
        assert same_bits(*masks)


def test_indices_that_a_mask_chooses() -> None:
    mask, labels = torch.arange(6) % 3 > 0, torch.tensor([0, 2, 1, 1, 0, 2])

    def function(logits: Any) -> Any:
        return nn.functional.cross_entropy(logits[mask], labels[mask])

    compiled: Any = torch.compile(function)
    for number in range(12):
        torch.manual_seed(number)
        if number % 5 == 4:
            mask[number % 6].logical_not_()
            labels[number % 6] = number % 3
        logits = torch.randn(6, 3)
        assert same_bits(compiled(logits), function(logits))
    assert compiled._hits > 2, compiled._reason
    mask[0] = False
    labels[0] = 7  # out of range, and not chosen
    assert same_bits(compiled(logits), function(logits))
    mask[0] = True
    for run in (function, compiled):
        with pytest.raises(IndexError, match="7"):
            run(logits)


def test_masks_on_several_threads() -> None:
    def function(x: Any, mask: Any) -> Any:
        return (x * 2)[mask].exp(), mask.nonzero()

    compiled: Any = torch.compile(function)
    wrong: list[int] = []

    def calls(shift: int) -> None:
        for number in range(40):
            x, mask = torch.arange(8.0) + number, torch.arange(8) % 5 < (number + shift) % 4
            if not all(map(same_bits, compiled(x, mask), function(x, mask))):
                wrong.append(number)

    threads = [threading.Thread(target=calls, args=(shift,)) for shift in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ------------------------------------------------------------------ memory of inputs


def test_detached_inputs() -> None:
    def function(x: Any) -> Any:
        return x.detach().clone() + x.detach()

    compiled: Any = torch.compile(lambda x: x.detach() * 2)
    both: Any = torch.compile(function)
    for number in range(8):
        x = torch.full((3,), float(number), requires_grad=True)
        assert same_bits(compiled(x), x.detach() * 2) and not compiled(x).requires_grad
        assert same_bits(both(x), function(x))
    assert compiled._hits > 2, compiled._reason


def test_memory_is_flat_over_guards_that_change() -> None:
    tracemalloc = pytest.importorskip("tracemalloc")
    state = {"calls": 0, "rate": 1.0}

    def function(x: Any, scale: int) -> Any:
        state["calls"] += 1
        state["rate"] *= 0.99999
        if state["calls"] % 7 == 0:
            return x * scale
        return x * state["rate"]

    compiled: Any = torch.compile(function)
    x = torch.ones(3)

    def calls(first: int, count: int) -> None:
        for number in range(first, first + count):
            compiled(x, number % 400)

    calls(0, 6000)
    gc.collect()
    tracemalloc.start()
    calls(6000, 400)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    calls(6400, 4000)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 100_000
