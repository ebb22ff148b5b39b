"""Plans of operators, of their gradients and of streams print, and pass the verifier."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau import _core
from flambeau.compiler.baseline.text import plan_text
from flambeau.ir.plan import packed, unpacked_execution, unpacked_spec
from flambeau.ir.plan_grammar import verify_plan

X = torch.arange(24.0).reshape(2, 3, 4)
CALLS: dict[str, Callable[[Any], Any]] = {
    "pointwise": lambda x: x.exp() * 2 + x.sigmoid(),
    "views": lambda x: x.transpose(0, 1)[1:].reshape(-1) + x.diagonal(0, 1, 2).sum(),
    "reductions": lambda x: (x.sum(1), x.std(-1), x.argmax(-1), x.cumsum(0)),
    "softmax": lambda x: torch.softmax(x, -1).log(),
    "products": lambda x: torch.matmul(x, x.mT) @ torch.ones(3, 5),
    "convolution": lambda x: torch.nn.functional.conv1d(x, torch.ones(5, 3, 2)),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x),
    "indices": lambda x: x.gather(2, torch.zeros(2, 3, 1, dtype=torch.int64)).topk(1, 1),
    "random": lambda x: torch.nn.functional.dropout(x, 0.5) + torch.rand(4),
    "linear algebra": lambda x: torch.linalg.qr(x[0].T),
    "in place": lambda x: x.clone().add_(1).clamp_(0, 5),
    "checks": lambda x: torch.nn.functional.embedding(torch.tensor([1, 2]), x[0]),
}


def _plans() -> list[Any]:
    gc.collect()
    return [each for each in gc.get_objects() if type(each) is _core.Plan]


def _run(call: Callable[[Any], Any], compiled: bool) -> None:
    x = X.clone().requires_grad_()
    results = (torch.compile(call) if compiled else call)(x)
    results = results if isinstance(results, (tuple, list)) else (results,)
    losses = [r.sum() for r in results if r.requires_grad]
    torch.autograd.backward(losses)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_every_plan(name: str, compiled: bool) -> None:
    _core.plan_cache_clear()
    before = {id(plan) for plan in _plans()}
    _run(CALLS[name], compiled)
    plans = [plan for plan in _plans() if id(plan) not in before]
    assert plans
    for plan in plans:
        spec, execution = plan.spec, plan.execution
        verify_plan(spec, execution)
        text = plan.text()
        assert text == plan_text(spec, execution)
        assert text.startswith(f"plan {plan.name}: ")
        assert ("execution:" in text) == plan.compiled == (execution is not None)
        stored = None if execution is None else execution._replace(keepalive=())
        again = None if stored is None else unpacked_execution(packed(stored))
        assert plan_text(unpacked_spec(packed(spec)), again) == text
