"""`compiler.stages` and the FLAMBEAU_DEBUG ladder: every stage's text, level by level."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import flambeau as torch
from flambeau.compiler import debug, pipeline
from flambeau.ir.printer import parse_graph, print_graph
from flambeau.runtime import settings

STAGES = ["record", "trace", *(stage.name for stage in pipeline.STAGES)]


def chain(x, y):
    return (x + y).relu().sum(1)


def texts(function, *arguments) -> dict[str, str]:
    return {name: text for name, _, text in torch.compiler.stages(function, *arguments)}


def test_every_stage_is_timed_and_printed() -> None:
    found = torch.compiler.stages(chain, torch.randn(4, 8), torch.randn(4, 8))
    assert [name for name, _, _ in found] == STAGES
    assert all(milliseconds >= 0 and text for _, milliseconds, text in found)
    shown = dict((name, text) for name, _, text in found)
    assert "t2 = add(t0, t1)" in shown["record"]
    assert "with_derivative" in shown["trace"] and "with_derivative" not in shown["simplify"]
    assert "reduce a0 sum" in shown["lower"]
    assert shown["print"].startswith("void fb_")


def test_texts_are_programs() -> None:
    """The printed graph compiles again, to the same kernels."""
    shown = texts(chain, torch.randn(4, 8), torch.randn(4, 8))
    graph = parse_graph(shown["simplify"])
    assert print_graph(graph) == shown["simplify"]
    again = {name: text for name, _, text in pipeline.stages(graph)}
    assert again["lower"] == shown["lower"]
    assert again["print"] == shown["print"]


def test_stages_of_a_training_step() -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    shown = texts(step, torch.randn(4, 3))
    assert list(shown) == STAGES
    assert "over input" in shown["record"]


def test_a_flush_makes_a_second_program() -> None:
    names = list(texts(lambda x: x.sin() * x.sum().item(), torch.ones(3)))
    assert names == STAGES + [f"{name} (program 2)" for name in STAGES]


def test_stages_leave_compiled_functions_working() -> None:
    compiled = torch.compile(chain)
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    before = compiled(x, y)
    torch.compiler.stages(chain, x, y)
    assert torch.equal(compiled(x, y), before)


@pytest.mark.parametrize("level", range(6))
def test_ladder(level: int, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each level shows what the levels below it show, and its own part."""
    torch.compiler.reset()
    with settings.override(DEBUG=level, CACHE_DIR=tmp_path):
        torch.compile(chain)(torch.ones(5, 9), torch.ones(5, 9))
    shown = capsys.readouterr().err
    marks = [": 1 kernels, 0 routines", ": program\n", ": schedule\n", ": C of its kernels in "]
    marks += [": execution\n"]
    assert [mark in shown for mark in marks] == [place < level for place in range(5)]
    if level >= debug.SOURCES:
        names = re.findall(r"kernels in (\S+)", shown)
        assert names and all("void fb_" in Path(name).read_text() for name in names)


def test_flushes_are_shown_with_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    torch.compiler.reset()
    with settings.override(DEBUG=debug.PLANS):
        torch.compile(lambda x: x * x.sum().item())(torch.ones(6))
    assert re.search(r"test_stages.py:\d+: item\(\) after 1 ops \(new\)", capsys.readouterr().err)


def test_ladder_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "debugging.md").read_text()
    for level, what in debug.LADDER.items():
        assert f"| {level} | {what} |" in page


def test_finished_plans_of_earlier_runs_are_shown_too(tmp_path: Path) -> None:
    """A plan kept on disk would skip the stages: who watches sees them nevertheless."""
    x, y = torch.randn(3, 5), torch.randn(3, 5)
    with settings.override(VERIFY=False, CACHE_DIR=tmp_path):
        torch.compiler.reset()
        torch.compile(chain)(x, y)
        assert list(texts(chain, x, y)) == STAGES


def test_stages_of_a_forward_that_is_differentiated_ahead_of_time() -> None:
    x = torch.randn(4, 8, requires_grad=True)
    shown = texts(lambda x: torch.softmax(x, -1).square().sum(), x)
    assert list(shown) == STAGES
    assert "backward, ahead of time" in shown["record"]
    assert "saved(" in shown["trace"]
