"""Tier 2 and hooks of saved tensors: checkpoints, and functions of users that pack and unpack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
import flambeau.nn.functional as F  # noqa: N812
from flambeau import _core, nn
from flambeau.autograd.graph import save_on_cpu, saved_tensors_hooks
from flambeau.utils import checkpoint as checkpoints
from flambeau.utils.checkpoint import checkpoint, checkpoint_sequential
from tests.capture.test_frame_functions import Cube, Twins

Part = Callable[[Any], Any]


def block(x: Any) -> Any:
    """A part that saves several tensors."""
    return F.gelu(x.tanh() * x).sin()


def two(x: Any, y: Any, *, scale: float) -> Any:
    """A part of two tensors and a number by name."""
    return (x * y).exp() * scale


def nested(x: Any) -> Any:
    """A checkpoint inside of a checkpoint."""
    return checkpoint(block, x, use_reentrant=False) * x


def mixed(x: Any) -> Any:
    """A checkpoint in a region of autocast."""
    with torch.autocast("cpu", torch.bfloat16):
        return checkpoint(lambda v: (v @ v.T @ v).tanh(), x * 0.1, use_reentrant=False).float()


def packed(x: Any) -> Any:
    """Saved tensors in a lower dtype."""
    with saved_tensors_hooks(lambda t: (t.bfloat16(), t.dtype), lambda p: p[0].to(p[1])):
        return block(x)


def on_cpu(x: Any) -> Any:
    """Saved tensors elsewhere."""
    with save_on_cpu():
        return block(x)


PARTS: dict[str, Part] = {
    "block": lambda x: checkpoint(block, x, use_reentrant=False),
    "without random state": lambda x: checkpoint(
        block, x, use_reentrant=False, preserve_rng_state=False
    ),
    "two tensors": lambda x: checkpoint(two, x, x * 0.5, scale=0.5, use_reentrant=False),
    "nested": lambda x: checkpoint(nested, x, use_reentrant=False),
    "several": lambda x: checkpoint(block, nested(x), use_reentrant=False),
    "whole": lambda x: checkpoint(block, x, use_reentrant=False, early_stop=False),
    "function": lambda x: checkpoint(Cube.apply, x, use_reentrant=False),
    "autocast": mixed,
    "packed": packed,
    "on cpu": on_cpu,
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_have_the_bits_of_eager_mode(name: str) -> None:
    Twins(PARTS[name]).settle()


class Model(nn.Module):
    """A model whose blocks are checkpointed."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU()) for _ in range(3)
        )

    def forward(self, x: Any) -> Any:
        """The blocks, one after the other."""
        for part in self.blocks:
            x = checkpoint(part, x, use_reentrant=False)
        return x


def twins_of_models() -> tuple[list[Any], list[Any]]:
    """Two models and their steps, of which the first one is compiled."""
    models, steps = [], []
    for _ in range(2):
        torch.manual_seed(0)
        model = Model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

        def step(x: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        models.append(model)
        steps.append(step)
    return models, [torch.compile(steps[0]), steps[1]]


def test_modules_train_with_the_bits_of_eager_mode() -> None:
    models, functions = twins_of_models()
    compiled = functions[0]
    for seed in range(14):
        torch.manual_seed(seed)
        x, before = torch.randn(5, 8), compiled._hits
        assert torch.equal(*(function(x) for function in functions))
        for a, b in zip(*(model.parameters() for model in models), strict=True):
            assert torch.equal(a, b) and a._version == b._version
    assert compiled._hits > before, compiled._reason
    models[0].blocks[1].append(nn.Tanh())
    models[1].blocks[1].append(nn.Tanh())
    before = compiled._hits
    assert torch.equal(*(function(x) for function in functions))
    assert compiled._hits == before
    group = checkpoints.GraphExecGroup()
    with group:
        assert torch.equal(*(function(x) for function in functions))
    assert compiled._hits == before


def test_sequences() -> None:
    stages = [block, torch.tanh, block, torch.sin]
    twins = Twins(lambda x: checkpoint_sequential(stages, 2, x, use_reentrant=False))
    for seed in range(14):
        twins.run(seed)


def test_draws_are_recorded() -> None:
    """A recomputation draws the numbers of the first run again."""
    weights = [torch.ones(8, requires_grad=True) for _ in range(2)]

    def step_of(weight: Any) -> Any:
        def step(x: Any) -> Any:
            part = checkpoint(
                lambda v: F.dropout(v, 0.5).tanh() * v, x * weight, use_reentrant=False
            )
            part.sum().backward()
            return part.detach()

        return step

    compiled, plain = torch.compile(step_of(weights[0])), step_of(weights[1])
    for seed in range(8):
        results = []
        for step in (compiled, plain):
            torch.manual_seed(seed)
            results.append((step(torch.ones(8)), torch.rand(2)))
        assert all(map(torch.equal, *results))
        assert torch.equal(weights[0].grad, weights[1].grad)
    assert not compiled._explanations


def test_settings_that_change() -> None:
    twins = Twins(PARTS["block"]).settle()
    with checkpoints.set_checkpoint_early_stop(False):
        assert not twins.run()
        twins.settle()
    assert twins.run()


def test_a_policy_is_recorded() -> None:
    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        save = op is torch.ops.aten.tanh.default
        kind = checkpoints.CheckpointPolicy
        return kind.MUST_SAVE if save else kind.PREFER_RECOMPUTE

    def contexts() -> Any:
        return checkpoints.create_selective_checkpoint_contexts(policy)

    twins = Twins(lambda x: checkpoint(block, x, use_reentrant=False, context_fn=contexts))
    for seed in range(10):
        twins.run(seed)


def test_a_function_that_does_not_repeat() -> None:
    calls: list[int] = []

    def changing(x: Any) -> Any:
        calls.append(0)
        return x.tanh() * x.sin() if len(calls) % 2 else x.tanh()

    def step(x: Any) -> Any:
        leaf = (x * 1).detach().requires_grad_()
        checkpoint(changing, leaf, use_reentrant=False).sum().backward()

    compiled = torch.compile(step)
    for _ in range(6):
        with pytest.raises(checkpoints.CheckpointError):
            compiled(torch.ones(3))


def test_hooks_that_are_left_active() -> None:
    def step(x: Any) -> Any:
        hooks = saved_tensors_hooks(lambda t: t, lambda t: t)
        hooks.__enter__()
        return x * 2

    compiled = torch.compile(step)
    for _ in range(6):
        compiled(torch.ones(3))
        assert _core.saved_hooks_depth() == 1
        _core.pop_saved_hooks()
    assert not compiled._explanations and _core.saved_hooks_depth() == 0


def test_a_dry_run_that_ends_under_hooks_drops_them() -> None:
    import random

    def step(x: Any) -> Any:
        with saved_tensors_hooks(lambda t: t, lambda t: t):
            random.random()
            return x * 2

    compiled = torch.compile(step)
    for _ in range(6):
        compiled(torch.ones(3))
        assert _core.saved_hooks_depth() == 0
    assert not compiled._explanations


def test_hooks_around_a_call_see_what_it_saves() -> None:
    twins, seen = Twins(block).settle(), [[], []]  # type: ignore[var-annotated]
    torch.manual_seed(0)
    x, y = torch.randn(4, 6), torch.randn(4, 3)
    for step, notes in zip(twins.steps, seen, strict=True):

        def pack(t: Any, notes: list[Any] = notes) -> Any:
            notes.append(t.shape)
            return t

        with saved_tensors_hooks(pack, lambda t: t):
            step(x, y)
    assert seen[0] and seen[1]


def test_effects_of_hooks() -> None:
    shapes: list[Any] = []

    def part(x: Any) -> Any:
        with saved_tensors_hooks(lambda t: (shapes.append(t.ndim), t)[1], lambda t: t):
            return x.tanh()

    twins = Twins(part).settle()
    count = len(shapes)
    twins.run()
    assert len(shapes) == count + 2


STATES: dict[str, Part] = {
    "returned": lambda x: (x * 2, torch.get_rng_state()),
    "read": lambda x: x * float(torch.get_rng_state().float().mean()),
    "typed": lambda x: x * 2 if isinstance(torch.get_rng_state(), torch.Tensor) else x,
    "attributes": lambda x: x * len(getattr(torch.get_rng_state(), "shape", ())),
    "a handle": lambda x: (x * 2, (x * 1).register_hook(lambda grad: grad)),
    "a number": lambda x: x * ((x * 1).register_hook(lambda grad: grad).id >= 0),
}


@pytest.mark.parametrize("name", STATES)
def test_values_of_one_call_are_not_remembered(name: str) -> None:
    compiled = torch.compile(STATES[name])
    for _ in range(8):
        x = torch.rand(3, requires_grad=name.startswith("a "))
        state = torch.get_rng_state()
        result = compiled(x)
        if name == "returned":
            assert torch.equal(result[1], state)
        elif name == "a handle":
            assert type(result[1]) is torch.utils.hooks.RemovableHandle
        else:
            torch.set_rng_state(state)
            assert torch.equal(result, STATES[name](x))
    assert not compiled._explanations


def test_contexts_that_leave_a_call() -> None:
    contexts: list[Any] = []

    class Leaving(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            contexts.append(ctx)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    compiled = torch.compile(lambda x: Leaving.apply(x).detach())
    for number in range(8):
        compiled(torch.ones(3))
        assert len(contexts) == number + 1 and contexts[-1].needs_input_grad == (False,)
    assert len({id(context) for context in contexts}) == 8
