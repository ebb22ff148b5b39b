"""Tier 2 and training: whole steps run without their Python, with the bits of eager mode.

Each step runs on a model and on a copy of it, compiled and plain: losses, parameters, gradients,
the optimizer's state and the versions of all of them are compared after every call.
"""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
import flambeau.nn.functional as F  # noqa: N812
from flambeau import _core, nn
from flambeau.capture.frame.learn import learn
from tests.capture.conftest import same_bits

STEPS = 14
Step = Callable[[Any, Any], Any]
Make = Callable[[Any], Any]

OPTIMIZERS: dict[str, Make] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with decay": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "Adam, amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "AdamW, foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
}


def model_of(seed: int = 0) -> Any:
    """A small model."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))


def usual(model: Any, optimizer: Any) -> Step:
    """The step as most programs write it."""

    def step(x: Any, y: Any) -> Any:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def gradients_first(model: Any, optimizer: Any) -> Step:
    """Gradients are dropped before the step, and stay behind after it."""

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def filled_with_zeros(model: Any, optimizer: Any) -> Step:
    """Gradients stay the same tensors."""

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad(set_to_none=False)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def clipped(model: Any, optimizer: Any) -> Step:
    """Gradients are clipped; the norm is a result."""

    def step(x: Any, y: Any) -> Any:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach(), norm

    return step


def with_history(model: Any, optimizer: Any) -> Step:
    """The loss is returned as it is."""

    def step(x: Any, y: Any) -> Any:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        model.zero_grad()
        return loss

    return step


def by_hand(model: Any, optimizer: Any) -> Step:
    """No optimizer."""

    def step(x: Any, y: Any) -> Any:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
        return loss.detach()

    return step


FORMS = (usual, gradients_first, filled_with_zeros, clipped, with_history, by_hand)


class Twins:
    """A step, compiled, and the same on a copy of the model, which stays plain."""

    def __init__(self, form: Callable[[Any, Any], Step], make: Make) -> None:
        self.models = [model_of(), model_of()]
        self.optimizers = [make(model.parameters()) for model in self.models]
        self.steps = [form(m, o) for m, o in zip(self.models, self.optimizers, strict=True)]
        self.compiled = torch.compile(self.steps[0])
        self.steps[0] = self.compiled

    def run(self, seed: int = 0) -> bool:
        """One call of each; whether the compiled one ran without Python."""
        torch.manual_seed(seed)
        x, y, before = torch.randn(4, 6), torch.randn(4, 3), self.compiled._hits
        results = [step(x, y) for step in self.steps]
        self.compare(*results)
        return bool(self.compiled._hits > before)

    def compare(self, first: Any, second: Any) -> None:
        """Equal bits of all that a step changes."""
        assert_same(first, second)
        assert_same(*(list(model.parameters()) for model in self.models))
        assert_same(*([p.grad for p in model.parameters()] for model in self.models))
        assert_same(*(states(optimizer) for optimizer in self.optimizers))


def states(optimizer: Any) -> list[Any]:
    """Groups and states as lists."""
    groups = [[v for k, v in g.items() if k != "params"] for g in optimizer.param_groups]
    return groups + [list(state.values()) for state in optimizer.state.values()]


def assert_same(first: Any, second: Any) -> None:
    """Equal structure, bits, versions and history."""
    if isinstance(first, (list, tuple)):
        assert len(first) == len(second)
        for a, b in zip(first, second, strict=True):
            assert_same(a, b)
    elif isinstance(first, torch.Tensor):
        assert same_bits(first.detach(), second.detach())
        assert first._version == second._version
        assert first.requires_grad == second.requires_grad
        assert type(first.grad_fn) is type(second.grad_fn)
    else:
        assert type(first) is type(second) and first == second


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("form", FORMS)
def test_steps_have_the_bits_of_eager_mode(form: Any, name: str) -> None:
    twins = Twins(form, OPTIMIZERS[name])
    skipped = [twins.run(seed) for seed in range(STEPS)]
    assert twins.compiled._explanations, twins.compiled._reason
    assert skipped[-4:] == [True] * 4, twins.compiled._reason


def trained(form: Any = usual, name: str = "Adam") -> Twins:
    """Twins whose steps run without Python by now."""
    twins = Twins(form, OPTIMIZERS[name])
    for seed in range(STEPS):
        twins.run(seed)
    assert twins.run(), twins.compiled._reason
    return twins


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_options_that_change_are_seen(name: str) -> None:
    twins = trained(name=name)
    for optimizer in twins.optimizers:
        optimizer.param_groups[0]["weight_decay"] = 0.3
    assert not twins.run()
    for seed in range(STEPS):
        twins.run(seed)
    assert twins.run()


def test_gradients_of_the_user_are_added() -> None:
    twins = trained()
    for model in twins.models:
        model[0].weight.grad = torch.ones(8, 6)
    assert not twins.run()
    assert twins.run()


def test_gradients_that_somebody_holds() -> None:
    twins = trained(gradients_first)
    held = [model[0].weight.grad for model in twins.models]
    before = held[0].clone()
    assert twins.run(77)
    assert torch.equal(held[0], before) and same_bits(*held)
    assert twins.models[0][0].weight.grad is not held[0]


def test_parameters_that_are_replaced() -> None:
    twins = trained()
    for model in twins.models:
        model[3].weight = nn.Parameter(torch.ones(3, 8))
    assert not twins.run()
    for seed in range(STEPS):
        twins.run(seed)
    assert twins.run()


def test_parameters_that_are_frozen() -> None:
    twins = trained()
    for model in twins.models:
        model[0].weight.requires_grad_(False)
    assert not twins.run()
    for seed in range(STEPS):
        twins.run(seed)
    assert twins.run()


def test_hooks_run() -> None:
    twins, seen = trained(), []
    handles = [m[0].weight.register_hook(lambda g: g * 2) for m in twins.models]
    handles += [o.register_step_post_hook(lambda *_: seen.append(1)) for o in twins.optimizers]
    for seed in range(STEPS):
        twins.run(seed)
    assert len(seen) == 2 * STEPS
    for handle in handles:
        handle.remove()
    twins.run()


def test_a_state_that_is_loaded() -> None:
    twins = trained()
    for optimizer in twins.optimizers:
        state = copy.deepcopy(optimizer.state_dict())
        optimizer.load_state_dict(state)
    assert not twins.run()
    for seed in range(STEPS):
        twins.run(seed)
    assert twins.run()


def test_counters_that_are_written() -> None:
    twins = trained()
    for optimizer in twins.optimizers:
        for state in optimizer.state.values():
            state["step"].fill_(2.0)
    assert twins.run()
    for optimizer in twins.optimizers:
        for state in optimizer.state.values():
            state["step"].fill_(-1.0)  # a correction of 0, by which Python divides nothing
    twins.run()


def test_a_dry_run_leaves_nothing_behind() -> None:
    model = model_of()
    optimizer = torch.optim.Adam(model.parameters())
    step = usual(model, optimizer)
    x, y = torch.randn(4, 6), torch.randn(4, 3)
    for _ in range(3):
        step(x, y)
    gradients = [torch.ones_like(p) for p in model.parameters()]
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    reached = [*model.parameters(), *gradients]
    reached += [t for state in optimizer.state.values() for t in state.values()]
    before = [(t.clone(), t._version) for t in reached]
    reason = learn(_core.CompiledFunction(step, step, None), False, (x, y), {})
    assert reason is not None and "another program" in reason  # tier 1 never ran it so
    assert all(p.grad is g for p, g in zip(model.parameters(), gradients, strict=True))
    for tensor, (value, version) in zip(reached, before, strict=True):
        assert same_bits(tensor.detach(), value.detach()) and tensor._version == version


def test_memory_of_a_dropped_step_is_freed() -> None:
    twins = trained()
    seen = weakref.ref(twins.models[0][0].weight)
    del twins
    gc.collect()
    assert seen() is None


def test_profiles_show_the_ranges_of_optimizers() -> None:
    twins = trained()
    with torch.profiler.profile() as profile:
        assert not twins.run()
    assert "Optimizer.step#Adam.step" in [event.name for event in profile.events()]
    assert twins.run()


def test_results_with_a_history_that_is_spent() -> None:
    twins = trained(with_history)
    x, y = torch.randn(4, 6), torch.randn(4, 3)
    errors = []
    for step in twins.steps:
        loss = step(x, y)
        with pytest.raises(RuntimeError) as error:
            loss.backward()
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_rates_that_change_in_every_call() -> None:
    twins = Twins(usual, OPTIMIZERS["AdamW"])
    skipped = []
    for seed in range(STEPS):
        for optimizer in twins.optimizers:
            optimizer.param_groups[0]["lr"] = 0.01 / (seed + 1)
        skipped.append(twins.run(seed))
    assert skipped[-6:] == [True] * 6, twins.compiled._reason
    for optimizer in twins.optimizers:
        optimizer.param_groups[0]["lr"] = 1  # no float, which Python computes with as well
    assert not twins.run()


def test_schedules() -> None:
    twins = Twins(usual, OPTIMIZERS["SGD with momentum"])
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.9) for o in twins.optimizers]
    skipped = []
    for seed in range(STEPS):
        skipped.append(twins.run(seed))
        for schedule in schedules:
            schedule.step()
    assert skipped[-6:] == [True] * 6, twins.compiled._reason


class Notes(nn.Module):
    """Writes attributes, items and elements that nothing of it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.items: dict[str, Any] = {}
        self.history: list[Any] = []

    def forward(self, x: Any) -> Any:
        """A result, which also stays behind."""
        y = self.linear(x)
        self.last = y
        self.items["size"] = (len(x), y.detach())
        self.items["twice"] = 1
        self.items["twice"] = 2
        self.history.append(y.detach() * 2)
        self.history.append("text")
        return y


def test_what_is_written_and_not_read() -> None:
    notes = Notes()
    compiled = torch.compile(notes.forward)
    with torch.no_grad():
        for _ in range(8):
            x = torch.randn(2, 3)
            before = len(notes.history)
            y = compiled(x)
            assert notes.last is y and torch.equal(y, notes.linear(x))
            size, values = notes.items["size"]
            assert size == 2 and torch.equal(values, y)
            assert list(notes.items) == ["size", "twice"] and notes.items["twice"] == 2
            assert len(notes.history) == before + 2 and notes.history[-1] == "text"
            assert torch.equal(notes.history[-2], y * 2)
    assert compiled._hits > 3, compiled._reason


def test_what_is_read_and_written() -> None:
    notes = Notes()
    notes.calls = 0

    def counted(x: Any) -> Any:
        notes.calls += 1
        return x * notes.calls

    compiled = torch.compile(counted)
    for call in range(8):
        assert compiled(torch.ones(2)).tolist() == [call + 1.0] * 2
    assert notes.calls == 8 and compiled._hits > 3, compiled._reason


def test_gradients_of_an_argument() -> None:
    model = model_of()

    def attributed(x: Any) -> None:
        model(x).square().sum().backward()

    compiled, hits = torch.compile(attributed), 0
    for call in range(STEPS):
        torch.manual_seed(call)
        leaf, other = (torch.randn(2, 6, requires_grad=True) for _ in range(2))
        other.data.copy_(leaf.data)
        hits = compiled._hits
        for function, x in ((compiled, leaf), (attributed, other)):
            model.zero_grad()
            function(x)
            if function is compiled:
                before = [p.grad.clone() for p in model.parameters()]
        assert same_bits(leaf.grad, other.grad)
        assert all(map(same_bits, before, [p.grad for p in model.parameters()]))
    assert compiled._hits > hits
    results = []
    for function in (compiled, attributed):  # of a tensor that is no leaf they go on
        source = torch.ones(2, 6, requires_grad=True)
        function(source * 2)
        results.append(source.grad)
    assert same_bits(*results)


def test_gradients_that_are_replaced_are_freed() -> None:
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled, seen = torch.compile(optimizer.step), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).sum().backward()
        seen.append(weakref.ref(model[0].weight.grad))
        compiled()
    assert [reference() is None for reference in seen[:-1]] == [True] * (STEPS - 1)


def test_two_backwards_in_a_step() -> None:
    def twice(model: Any, optimizer: Any) -> Step:
        def step(x: Any, y: Any) -> Any:
            for half in (slice(0, 2), slice(2, 4)):
                loss = F.mse_loss(model(x[half]), y[half])
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step

    assert trained(twice, "AdamW").run()


def test_gradients_that_are_accumulated_over_calls() -> None:
    def adds(model: Any, optimizer: Any) -> Step:
        def step(x: Any, y: Any) -> Any:
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss.detach()

        return step

    twins = trained(adds, "SGD")
    for optimizer in twins.optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    assert twins.run()
    for optimizer in twins.optimizers:
        optimizer.zero_grad()
    assert not twins.run()


def test_groups_and_parameters_without_gradients() -> None:
    def make(parameters: Any) -> Any:
        first, *others = parameters
        groups = [
            {"params": [first], "lr": 0.5},
            {"params": [*others, nn.Parameter(torch.ones(2))]},
        ]
        return torch.optim.AdamW(groups, lr=0.01)

    twins = Twins(usual, make)
    assert [twins.run(seed) for seed in range(STEPS)][-4:] == [True] * 4, twins.compiled._reason


def test_other_optimizers_have_the_bits_of_eager_mode() -> None:
    for kind in (torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.NAdam, torch.optim.RAdam):
        twins = Twins(usual, lambda p, kind=kind: kind(p, lr=0.01))
        for seed in range(8):
            twins.run(seed)


def test_gradients_that_are_dropped_outside_of_the_step() -> None:
    """Calls change what they read, so that they are run dry before."""

    def adds(model: Any, optimizer: Any) -> Step:
        def step(x: Any, y: Any) -> Any:
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        return step

    twins, skipped = Twins(adds, OPTIMIZERS["Adam"]), []
    for seed in range(STEPS):
        skipped.append(twins.run(seed))
        for optimizer in twins.optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert skipped[-4:] == [True] * 4, twins.compiled._reason
