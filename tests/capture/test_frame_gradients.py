"""Tier 2 with gradients: results of explained calls have the history that tier 1 gives them.

Every gradient is compared bit for bit with that of the plain function, which is called in the same
state: also second derivatives, for which the tape of an explained call is made again.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
import flambeau.nn.functional as F  # noqa: N812
from flambeau import nn
from tests.capture.frames import CALLS, explained, skips

Inputs = Callable[[], tuple[Any, ...]]


def leaf(*shape: int) -> Any:
    """A tensor whose gradient is computed."""
    return torch.randn(*shape, requires_grad=True)


def half_without_gradient(x: Any) -> Any:
    """A product of which one factor is a constant."""
    with torch.no_grad():
        weight = x.exp()
    return (weight * x).sum()


def detached_twice(x: Any) -> Any:
    """A value that is read with its history, and without."""
    y = x * 2
    return y * y.detach().exp() + y.detach().view(-1).sum()


def twin() -> tuple[Any, ...]:
    """One tensor as two arguments."""
    x = leaf(3)
    return x, x


class Several(nn.Module):
    """Results of every kind: a dict, views, integers, what needs no gradient, an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        """A dict of results."""
        y = self.linear(x)
        z = x * 2
        return {"y": y, "view": z.t(), "best": y.argmax(1), "plain": y.detach() + 1, "x": x}


MODULES: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "layers": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)),
        lambda: (leaf(3, 8),),
    ),
    "constant input": (lambda: nn.Linear(8, 4), lambda: (torch.randn(3, 8),)),
    "dropout": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 4), nn.Dropout(0.3)),
        lambda: (leaf(3, 8),),
    ),
    "in place": (
        lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(True), nn.Linear(8, 4), nn.ReLU(True)),
        lambda: (leaf(3, 8),),
    ),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
        ),
        lambda: (leaf(2, 3, 8, 8),),
    ),
    "encoder": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2, enable_nested_tensor=False
        ),
        lambda: (leaf(2, 5, 16),),
    ),
    "several": (Several, lambda: (leaf(3, 8),)),
}
FUNCTIONS: dict[str, tuple[Callable[..., Any], Inputs]] = {
    "no_grad inside": (half_without_gradient, lambda: (leaf(3, 8),)),
    "detached": (detached_twice, lambda: (leaf(3, 8),)),
    "twins": (lambda a, b: a * b + a, twin),
    "views": (lambda x: ((x * 2).view(-1), (x + 1).t()), lambda: (leaf(3, 8),)),
    "parts": (lambda x: x[0] * x[1:].cumsum(0), lambda: (leaf(4, 3),)),
    "interior": (torch.sin, lambda: (leaf(3) * 2,)),
    "unused": (lambda a, b: a.sin(), lambda: (leaf(3), leaf(3))),
    "row": (lambda table, i: F.embedding(i, table), lambda: (leaf(7, 4), torch.tensor([1, 6]))),
}


def tensors_of(result: Any) -> list[Any]:
    """The tensors of a result."""
    if isinstance(result, dict):
        result = tuple(result.values())
    parts = result if isinstance(result, (tuple, list)) else (result,)
    return [x for x in parts if isinstance(x, torch.Tensor)]


def outcome(call: Callable[..., Any], seed: int, parameters: list[Any], inputs: Inputs) -> Any:
    """Results, gradients, gradients of gradients, and the next random number."""
    torch.manual_seed(seed)
    args = inputs()
    results = tensors_of(call(*args))
    roots = [x for x in results if x.requires_grad]
    # Results are used twice, and inputs beside them: sums of gradients have an order.
    loss = sum(((x * x).sin() + x).sum() + (3 * x).sum() for x in roots)
    sources = [x for x in (*dict.fromkeys(args), *parameters) if x.requires_grad]
    loss = loss + sum((x * x).sum() for x in sources)
    first = torch.autograd.grad(loss, sources, retain_graph=True)
    second = torch.autograd.grad(loss, sources, create_graph=True)
    third = torch.autograd.grad(sum((g * g).sum() for g in second), sources)
    return [*results, *first, *second, *third, torch.rand(2)]


def check(function: Callable[..., Any], parameters: list[Any], inputs: Inputs) -> None:
    """Compares calls of a function with compiled ones, the last ones of which are explained."""
    compiled = torch.compile(function)
    for seed in range(2 * CALLS):
        expected = outcome(function, seed, parameters, inputs)
        results = outcome(compiled, seed, parameters, inputs)
        assert all(map(torch.equal, results, expected)), seed
    assert compiled._hits > CALLS, compiled._reason


@pytest.mark.parametrize("name", MODULES)
def test_gradients_of_modules(name: str) -> None:
    make, inputs = MODULES[name]
    torch.manual_seed(0)
    module = make()
    check(module.__call__, list(module.parameters()), inputs)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_functions(name: str) -> None:
    check(FUNCTIONS[name][0], [], FUNCTIONS[name][1])


def test_training_is_that_of_eager_mode() -> None:
    def trained(compile_it: bool) -> list[Any]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(True), nn.Dropout(0.2), nn.Linear(16, 1))
        call = torch.compile(model.__call__) if compile_it else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for _ in range(12):
            call(torch.randn(5, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        assert not compile_it or call._hits > CALLS
        return list(model.parameters())

    assert all(map(torch.equal, trained(True), trained(False)))


def test_two_explained_calls_in_one_graph() -> None:
    x = leaf(4)
    function = lambda v: (v * 2).sin()  # noqa: E731
    compiled = explained(function, x * 3)
    for call in (compiled, compiled):
        _, skipped = skips(compiled, x * 3)
        assert skipped
        (g,) = torch.autograd.grad(call(call(x * 3)).sum(), x, create_graph=True)
        (h,) = torch.autograd.grad(g.square().sum(), x)
        (g1,) = torch.autograd.grad(function(function(x * 3)).sum(), x, create_graph=True)
        (h1,) = torch.autograd.grad(g1.square().sum(), x)
        assert torch.equal(g, g1) and torch.equal(h, h1)


def test_arguments_of_one_edge_are_recorded() -> None:
    """Tensors that share a history give another program than those that do not."""
    compiled = explained(lambda a, b: a * b, leaf(3) * 2, leaf(3) * 3)
    x = leaf(3)
    y = (x * 2).sin()
    again = y.grad_fn._saved_self if hasattr(y.grad_fn, "_saved_self") else None
    assert again is not None
    result, skipped = skips(compiled, again, y.grad_fn._saved_self)
    assert not skipped
    (g,) = torch.autograd.grad(result.sum(), x)
    (expected,) = torch.autograd.grad((again * again).sum(), x)
    assert torch.equal(g, expected)


def test_what_is_written_later_is_noticed() -> None:
    compiled = explained(lambda x: x.sin() * 2, torch.ones(3, requires_grad=True))
    x = torch.ones(3, requires_grad=True)
    y, skipped = skips(compiled, x)
    assert skipped
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    y, skipped = skips(compiled, x)
    assert skipped
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


def test_backward_twice() -> None:
    compiled = explained(lambda x: x.sin() * 2, torch.ones(3, requires_grad=True))
    y = compiled(torch.ones(3, requires_grad=True))
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_hooks_of_results() -> None:
    compiled = explained(lambda x: x.sin() * 2, torch.ones(3, requires_grad=True))
    x = torch.ones(3, requires_grad=True)
    y, skipped = skips(compiled, x)
    assert skipped and y.grad_fn.name() == "CompiledFunctionBackward"
    seen: list[Any] = []
    y.register_hook(lambda g: seen.append(g) or g * 10)
    y.retain_grad()
    y.sum().backward()
    assert torch.equal(seen[0], torch.ones(3)) and torch.equal(y.grad, torch.full((3,), 10.0))
    assert torch.equal(x.grad, (torch.ones(3) * 10 * 2) * torch.ones(3).cos())


def test_hooks_of_saved_tensors_see_what_the_region_saves() -> None:
    compiled = explained(lambda x: x.sin() * 2, torch.ones(3, requires_grad=True))
    seen: list[Any] = []

    def pack(x: Any) -> Any:
        seen.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        result, skipped = skips(compiled, torch.ones(3, requires_grad=True))
    result.sum().backward()
    assert seen and not skipped


def test_anomaly_mode_sees_every_operator() -> None:
    compiled = explained(lambda x: (x * 0).sqrt(), torch.ones(3, requires_grad=True))
    x = torch.ones(3, requires_grad=True)
    with torch.autograd.detect_anomaly():
        result, skipped = skips(compiled, x)
        with pytest.raises(RuntimeError, match="nan"):
            result.sum().backward()
    assert not skipped


def test_modes_have_explanations_of_their_own() -> None:
    linear = nn.Linear(4, 4)
    compiled = explained(linear.__call__, torch.ones(2, 4))
    with torch.no_grad():
        for _ in range(CALLS):
            plain = compiled(torch.ones(2, 4))
        assert not plain.requires_grad and skips(compiled, torch.ones(2, 4))[1]
    assert compiled(torch.ones(2, 4)).requires_grad
    linear.requires_grad_(False)
    assert not compiled(torch.ones(2, 4)).requires_grad


def test_a_leaf_that_is_written_later_has_its_history() -> None:
    """A result that is written in place goes on from the region's node."""
    compiled = explained(lambda x: x.exp(), torch.ones(3, requires_grad=True))
    x = torch.ones(3, requires_grad=True)
    y, skipped = skips(compiled, x)
    y.mul_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    assert skipped


def test_graphs_are_freed() -> None:
    compiled = explained(lambda x: (x * 2).exp(), leaf(3))
    for second in (False, True):
        x = leaf(3)
        y = compiled(x)
        node, source = weakref.ref(y.grad_fn), weakref.ref(x)
        torch.autograd.grad(y.sum(), x, create_graph=second)
        del x, y
        gc.collect()
        assert node() is None and source() is None
    before = torch._core.stream_stats()["recorders"]
    for _ in range(50):
        x = leaf(3)
        torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    gc.collect()
    assert torch._core.stream_stats()["recorders"] <= before + 1
