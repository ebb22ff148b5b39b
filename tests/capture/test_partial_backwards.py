"""Backwards from some results of a compiled call, then from others, without `retain_graph`: what
eager mode still has can be differentiated, and what it freed raises, in both tiers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch

Results = tuple[Any, Any, Any]
Backwards = Callable[[Results, list[Any]], None]

CALLS = 7  # the first few under the recorder, the others without their Python


def three_results(x: Any, weights: list[Any]) -> Results:
    """Two share a product, one is apart."""
    shared = (x * weights[0]).exp()
    return (shared * weights[1]).exp().sum(), (x * weights[2]).exp().sum(), (shared + 1).sum()


def gradients(function: Callable[..., Results], backwards: Backwards) -> list[Any]:
    """The gradients after each call, or the error; numbers have all their bits as text."""
    torch.manual_seed(0)
    weights = [torch.randn(8, requires_grad=True) for _ in range(3)]
    outcome: list[Any] = []
    for _ in range(CALLS):
        x = torch.randn(8)
        try:
            backwards(function(x, weights), weights)
        except RuntimeError as error:
            outcome.append((type(error), str(error)))
        outcome.append([w.grad if w.grad is None else w.grad.tolist() for w in weights])
    return outcome


def one_by_one(results: Results, _: list[Any]) -> None:
    results[1].backward()
    results[0].backward()


def freed(results: Results, _: list[Any]) -> None:
    results[1].backward()
    results[0].backward()
    results[2].backward()


def twice(results: Results, _: list[Any]) -> None:
    results[1].backward()
    results[1].backward()


def retained(results: Results, _: list[Any]) -> None:
    results[0].backward(retain_graph=True)
    results[1].backward()
    results[0].backward(retain_graph=True)
    results[2].backward(retain_graph=True)
    results[0].backward()


def hooks(results: Results, _: list[Any]) -> None:
    results[0].register_hook(lambda gradient: gradient * 2)
    results[1].register_hook(lambda gradient: gradient * 3)
    results[1].backward()
    results[0].backward()


def hooks_of_nodes(results: Results, _: list[Any]) -> None:
    """The node has several results, and stays."""
    results[0].grad_fn.register_hook(lambda inputs, outputs: None)
    results[1].backward()
    results[0].backward()


def together(results: Results, _: list[Any]) -> None:
    results[1].backward()
    (results[0] * results[0] + results[1]).backward()


def written_weight(results: Results, weights: list[Any]) -> None:
    """Of the spent result alone."""
    results[1].backward()
    with torch.no_grad():
        weights[2].add_(1)
    results[0].backward()


def second_derivative(results: Results, weights: list[Any]) -> None:
    torch.autograd.grad(results[1], weights[2])
    (gradient,) = torch.autograd.grad(results[0], weights[0], create_graph=True)
    gradient.sum().backward()


CASES = [
    one_by_one, freed, twice, retained, hooks, hooks_of_nodes, together, written_weight,
    second_derivative,
]  # fmt: skip


@pytest.mark.parametrize("backwards", CASES, ids=lambda case: case.__name__)
def test_as_eager(backwards: Backwards) -> None:
    function = torch.compile(three_results)
    compiled = gradients(function, backwards)
    assert compiled == gradients(three_results, backwards)
    assert function._hits > 0
    if backwards in (freed, twice, together):
        assert any(entry[0] is RuntimeError for entry in compiled)


def test_a_saved_weight_was_written() -> None:
    """Never a wrong gradient: eager mode names the write; here the value cannot be computed."""

    def write(results: Results, weights: list[Any]) -> None:
        results[1].backward()
        with torch.no_grad():
            weights[1].add_(1)
        results[0].backward()

    eager = gradients(three_results, write)
    compiled = gradients(torch.compile(three_results), write)
    assert [e[0] is RuntimeError for e in eager] == [
        e[0] in (RuntimeError, NotImplementedError) for e in compiled
    ]
    assert compiled[1::2] == eager[1::2]  # gradients


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch norm"])
def test_calls_that_share_casts(norm: bool) -> None:
    """Casts of weights are results of the first call in an autocast region."""

    def train(compiled: bool) -> list[Any]:
        torch.manual_seed(0)
        parts = [torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8) if norm else torch.nn.ReLU()]
        model = torch.nn.Sequential(*parts, torch.nn.Linear(8, 8))
        call = torch.compile(model) if compiled else model
        outcome = []
        for _ in range(CALLS):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                for _ in range(3):
                    call(torch.randn(4, 8)).float().sum().backward()
            outcome.append([p.grad.tolist() for p in model.parameters()])
        return outcome

    assert train(True) == train(False)
