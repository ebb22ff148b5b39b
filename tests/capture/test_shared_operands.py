"""Operands of a compiled function that are one another, or views of one another.

The gradient of such an operand leads to another operand's, outside of the region: what the region
hands out must end at its own operands, or gradients are counted twice.
"""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch
from tests.capture.conftest import same_bits

Seen = list[Any]


def program(a: Any, b: Any) -> Any:
    """Uses both operands twice."""
    b = b.reshape(a.shape)
    return (a * b.sin()).sum(0) + b * a


def noted(seen: Seen, t: Any) -> Any:
    """The tensor, with a hook that notes its gradient and changes it."""

    def hook(grad: Any) -> Any:
        seen.append(grad.clone())
        return grad * 1.5

    t.register_hook(hook)
    return t


def pair(x: Any) -> tuple[Any, Any]:
    """A tensor and a view of all of it."""
    return x, x.view(-1)


def written(x: Any, through_view: bool) -> tuple[Any, Any]:
    """A tensor and a view of it, written through one of them."""
    y, v = pair(x * 1.0)
    (v if through_view else y).mul_(0.5)
    return y, v


def watched_nodes(x: Any, seen: Seen) -> tuple[Any, Any]:
    """A pair whose nodes have hooks."""
    y, v = pair(x * 1.1)
    v.grad_fn.register_hook(lambda i, o: seen.append(i[0].clone()))
    y.grad_fn.register_prehook(lambda o: seen.append(o[0].clone()))
    return y, v


def retained(x: Any, seen: Seen) -> tuple[Any, Any]:
    """A pair that keeps its gradients."""
    y, v = pair(x * 1.1)
    for t in (y, v):
        t.retain_grad()
        seen.append(t)
    return y, v


OPERANDS = {
    "leaf_and_view": lambda x, seen: pair(x),
    "view_and_leaf": lambda x, seen: (x.view(-1).view(4, 6), x),
    "view_and_view": lambda x, seen: (x.view(4, 6), x.view(-1)),
    "twice": lambda x, seen: (x, x),
    "inner_and_view": lambda x, seen: pair(x * 1.3),
    "inner_and_its_function": lambda x, seen: (lambda y: (y, y.sin()))(x * 1.3),
    "view_of_view": lambda x, seen: (lambda y: (y.view(4, 6), y))(x.view(24)),
    "written": lambda x, seen: written(x, False),
    "written_through_view": lambda x, seen: written(x, True),
    "hooks_of_leaf": lambda x, seen: (noted(seen, x), noted(seen, x.view(-1))),
    "hooks_of_inner": lambda x, seen: tuple(noted(seen, t) for t in pair(x * 1.1)),
    "hooks_of_nodes": watched_nodes,
    "retained": retained,
}


@pytest.mark.parametrize("name", OPERANDS)
def test_gradient_counts_once(name: str) -> None:
    results = []
    for call in (program, torch.compile(program)):
        torch.manual_seed(1)
        x = torch.randn(4, 6, requires_grad=True)
        seen: Seen = []
        y = call(*OPERANDS[name](x, seen))
        assert call is program or name == "written" or "Compiled" in y.grad_fn.name()
        (y * x + x).sum().backward()
        results.append([x.grad, *(t if t.grad_fn is None else t.grad for t in seen)])
    assert len(results[0]) == len(results[1])
    for a, b in zip(*results, strict=True):
        assert same_bits(a, b)
