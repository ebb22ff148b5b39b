"""Equal layers are planned once: bits of eager mode at every depth, and counts that do not grow."""

from __future__ import annotations

from collections import Counter

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.compiler import debug, equal_layers, passes, pipeline
from flambeau.compiler.repetition import Repetition, Run, runs_of
from flambeau.compiler.simplify import simplify


@pytest.fixture(autouse=True)
def _always_worth_it(monkeypatch) -> None:
    """Programs of few layers are shortened, too."""
    monkeypatch.setattr(equal_layers, "WORTH", 0)


class Normed(nn.Module):
    """A block whose running statistics a training step updates."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x):
        return x + self.norm(self.conv(x)).relu()


class Dropped(nn.Module):
    """A block that draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + nn.functional.dropout(self.linear(x).tanh(), 0.3)


class Looped(nn.Module):
    """A cell over time steps, which share their weights."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.cell, self.steps = nn.GRUCell(8, 8), steps

    def forward(self, x):
        state = torch.zeros_like(x)
        for _ in range(self.steps):
            state = self.cell(x, state)
        return state


class Towers(nn.Module):
    """Two stacks side by side, and a result of every layer of one of them."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.left = nn.ModuleList([nn.Linear(8, 8) for _ in range(depth)])
        self.right = nn.ModuleList([nn.Linear(8, 8) for _ in range(depth)])

    def forward(self, x):
        y, seen = x, []
        for left, right in zip(self.left, self.right):
            x = left(x).sigmoid() + y
            y = right(y).cos()
            seen.append(y.sum())
        return x * y + torch.stack(seen).sum()


def encoder(depth: int):
    layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)


class Linear(nn.Module):
    """A block of elementary functions."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        return x + nn.functional.gelu(self.linear(self.norm(x)))


PROGRAMS = {
    "encoder": (encoder, (2, 5, 16)),
    "linear": (lambda n: nn.Sequential(*[Linear() for _ in range(n)]), (3, 8)),
    "normed": (lambda n: nn.Sequential(*[Normed() for _ in range(n)]), (2, 4, 6, 6)),
    "dropped": (lambda n: nn.Sequential(*[Dropped() for _ in range(n)]), (3, 8)),
    "looped": (Looped, (3, 8)),
    "towers": (Towers, (3, 8)),
}


def training_step(model, x, clip: bool):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step():
        loss = model(x).square().mean()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def inference(model, x):
    def step():
        with torch.no_grad():
            return model(x)

    return step


def state_after(name: str, depth: int, kind: str, compiled: bool):
    torch.manual_seed(0)
    make, shape = PROGRAMS[name]
    model, x = make(depth), torch.randn(*shape)
    if kind == "inference":
        step = inference(model, x)
    else:
        step = training_step(model, x, kind == "clipped")
    if compiled:
        step = torch.compile(step)
    results = [step() for _ in range(3)]
    return results, [*model.parameters(), *model.buffers()]


def assert_same(ours, eager) -> None:
    for x, y in zip(ours, eager, strict=True):
        assert x.detach().numpy().tobytes() == y.detach().numpy().tobytes()


@pytest.mark.parametrize("kind", ["inference", "training", "clipped"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_of_eager_mode(name: str, kind: str) -> None:
    for depth in (14,) if kind == "clipped" else (9, 14):
        (results, state), (eager, expected) = (
            state_after(name, depth, kind, compiled) for compiled in (True, False)
        )
        assert_same(results, eager)
        assert_same(state, expected)


@pytest.mark.parametrize("depth", range(1, 13))
def test_every_depth(depth: int) -> None:
    for kind in ("inference", "training") if depth > 8 else ("inference",):
        ours, eager = (state_after("encoder", depth, kind, compiled) for compiled in (True, False))
        assert_same(ours[0] + ours[1], eager[0] + eager[1])


@pytest.mark.parametrize("name", PROGRAMS)
def test_backward_outside(name: str) -> None:
    gradients = []
    for compiled in (True, False):
        torch.manual_seed(0)
        make, shape = PROGRAMS[name]
        model, x = make(12), torch.randn(*shape)
        forward = torch.compile(model) if compiled else model
        forward(x).square().mean().backward()
        gradients.append([p.grad for p in model.parameters()])
    assert_same(*gradients)


def clusters(step) -> list[int]:
    """How many clusters each program of a step had."""
    counts: list[int] = []

    def watch(report) -> None:
        if report.stage == "order":
            counts.append(len(report.state.clusters))

    debug.watchers.append(watch)
    try:
        step()
    finally:
        debug.watchers.remove(watch)
    return counts


def test_clusters_do_not_grow() -> None:
    """The program that is planned has as many clusters for 16 layers as for 12."""
    counts = []
    for depth in (12, 16):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(64, 2, 256, 0.0, batch_first=True)
        model = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        x = torch.randn(4, 32, 64)
        steps = inference(model, x), training_step(model, x, False)
        counts.append([max(clusters(torch.compile(step))) for step in steps])
    assert counts[0] == counts[1]


def refuse(*_):
    raise equal_layers.NotEqualError


def test_programs_that_do_not_repeat_are_planned_whole(monkeypatch) -> None:
    monkeypatch.setattr(pipeline, "Extension", refuse)
    stages: list[str] = []

    def watch(report) -> None:
        stages.append(report.stage)

    torch.manual_seed(0)
    model, x = encoder(13), torch.randn(2, 5, 16)
    debug.watchers.append(watch)
    try:
        with torch.no_grad():
            ours = torch.compile(model)(x)
    finally:
        debug.watchers.remove(watch)
    assert stages.count("simplify") == 2 and stages.count("repeat") == 1
    with torch.no_grad():
        assert_same([ours], [model(x)])


def test_user_passes_see_all_layers() -> None:
    """A pass before fusion gets the whole program."""
    sizes: list[int] = []
    torch.manual_seed(0)
    model, x = encoder(14), torch.randn(2, 5, 16)

    def count(graph):
        sizes.append(sum(value.op == "attention" for value in graph.nodes()))
        return graph

    with passes.register(count, before="fusion"), torch.no_grad():
        torch.compile(model)(x)
    assert 14 in sizes


def test_few_equal_layers_are_not_worth_it(monkeypatch) -> None:
    """Where layers may differ for kernels, less is planned in vain than the program has."""
    monkeypatch.setattr(equal_layers, "WORTH", 0.6)
    sizes = []
    for depth in (12, 40):
        model, x = encoder(depth), torch.randn(2, 5, 16)
        sizes.append(max(clusters(torch.compile(inference(model, x)))))
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("kind", ["inference", "training"])
def test_schedules_are_equal(kind: str) -> None:
    """The launches of a repeated schedule are those of the program that is planned whole."""
    states = []

    def watch(report) -> None:
        if report.stage == "repeat" and report.state.short is not None:
            states.append(report.state)

    torch.manual_seed(0)
    model, x = encoder(15), torch.randn(2, 5, 16)
    step = inference(model, x) if kind == "inference" else training_step(model, x, False)
    debug.watchers.append(watch)
    try:
        torch.compile(step)()
    finally:
        debug.watchers.remove(watch)
    (state,) = states
    repeated = state.schedule if state.later is None else state.later
    expected = pipeline.schedule(simplify(state.program))
    assert state.short.removed >= 4 and repeated.written == expected.written
    assert uses(repeated) == uses(expected)


def uses(schedule) -> Counter:
    """What is launched, how often, with which inputs and results. The order of launches that do not
    depend on each other may differ."""
    return Counter(
        repr((launch.name, launch.sizes, launch.scalars, memory_of(schedule, launch)))
        for launch in schedule.launches
    )


def memory_of(schedule, launch) -> list:
    buffers = [schedule.buffers[number] for number in launch.buffers]
    return [(b.kind, b.where, access) for b, access in zip(buffers, launch.accesses())]


# ------------------------------------------------------------------ runs


def test_runs() -> None:
    layer = [1, 2, 2, 3, 4, 5, 6]
    assert runs_of([9, *layer * 6, 8], 6) == [Run(1, 7, 6)]
    assert runs_of([9, *layer * 5, 8], 6) == []
    inner = [*range(10, 20), *[7] * 9]  # a run within each period of another
    assert runs_of(inner * 7, 6) == [Run(0, 19, 7)]


def test_directions() -> None:
    """A forward run, and one that reads it from its end to its begin."""
    reads = [(), *((i - 1,) for i in range(1, 40))]
    forward = [100 + i % 4 for i in range(40)]
    backward = [200 + i % 4 for i in range(40)]
    for i in range(40):
        reads.append((39 + i, 39 - i // 4 * 4))
    repetition = Repetition([*forward, *backward], reads, 6)
    one, other = (repetition.directions[number].sign for number in (0, 1))
    assert one == -other
    assert repetition.high - repetition.low >= 7
    first, second = repetition.locate(20), repetition.locate(40 + 19)
    assert first is not None and second is not None
    assert abs(first.coordinate - second.coordinate) <= 1
