"""`TORCH_LOGS` and `torch._logging.set_logs`: each kind of output by itself."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau.reports import region_logs
from flambeau.runtime import logs

PREFIX = re.compile(r"^[VIWE]\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ (\S+):(\d+)\](?: \[__(\w+)\])? ?(.*)$")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is shown before and after a test."""
    monkeypatch.delenv("TORCH_LOGS", raising=False)
    logs.switch(logs.State())
    yield
    logs.switch(logs.State())


class Shown:
    """What was written to the standard error stream, by artifact."""

    def __init__(self, text: str) -> None:
        self.lines = [match.groups() for match in map(PREFIX.match, text.splitlines()) if match]
        assert len(self.lines) == len([x for x in text.splitlines() if "[compile]" not in x]), text

    @property
    def artifacts(self) -> set[str | None]:
        return {artifact for _, _, artifact, _ in self.lines}

    def text(self, artifact: str | None) -> str:
        return "\n".join(line for _, _, name, line in self.lines if name == artifact)


def shown(capsys: pytest.CaptureFixture[str], function: Any, *calls: Any, **names: Any) -> Shown:
    """What a compiled function's calls show."""
    torch._logging.set_logs(**names)
    compiled = torch.compile(function)
    for arguments in calls:
        compiled(*arguments)
    return Shown(capsys.readouterr().err)


def branches(x: Any) -> Any:
    y = x * 2
    if y.sum() > 1e9:
        return y
    return y + y.mean().item()


def test_graph_breaks(capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(capsys, branches, (torch.ones(3),), (torch.ones(3),), graph_breaks=True)
    assert found.artifacts == {"graph_breaks"}
    text = found.text("graph_breaks")
    assert text.count("Graph break in user code at") == 1  # the second call shows nothing new
    assert "bool() of a tensor" in text and "Hint: torch.cond" in text
    assert "item() after 1 operators divides the region" in text
    line = branches.__code__.co_firstlineno + 2
    path, number, _, _ = found.lines[0]
    assert path.endswith("test_logs.py") and int(number) == line


def test_names_have_effect_until_the_next_call(capsys: pytest.CaptureFixture[str]) -> None:
    torch._logging.set_logs(graph_breaks=True)
    assert shown(capsys, branches, (torch.ones(3),)).lines == []


def recompiled(capsys: pytest.CaptureFixture[str], function: Any, *calls: Any) -> str:
    with torch.no_grad():
        return shown(capsys, function, *calls, recompiles=True).text("recompiles")


def test_recompiles_of_dtypes_ranks_and_gradients(capsys: pytest.CaptureFixture[str]) -> None:
    def scaled(x: Any, y: Any) -> Any:
        return x * y

    ones = torch.ones(3, 2)
    text = recompiled(capsys, scaled, (ones, torch.ones(2)), (ones.double(), torch.ones(2)))
    where = f"scaled in {__file__}:{scaled.__code__.co_firstlineno}"
    assert f"Recompiling function {scaled.__qualname__} in {where[10:]}" in text
    reason = "tensor 'x' dtype mismatch. expected torch.float32, actual torch.float64"
    assert f"    - 0/0: {reason}" in text
    torch.compiler.reset()
    text = recompiled(capsys, scaled, (ones, torch.ones(2)), (ones, torch.ones(3, 2)))
    assert "rank mismatch. expected 1, actual 2" in text
    torch.compiler.reset()
    text = recompiled(capsys, scaled, (ones, torch.ones(3, 2)), (ones, torch.ones(3, 1)))
    assert "tensor 'y' size mismatch at index 1. expected 2, actual 1" in text


def test_a_size_that_varies_is_no_recompile(capsys: pytest.CaptureFixture[str]) -> None:
    calls = [(torch.ones(n, 2),) for n in (3, 4, 5, 6)]
    assert recompiled(capsys, lambda x: x * 2, *calls) == ""


def test_recompiles_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    def configured(x: Any, flag: bool, rows: int) -> Any:
        if flag:
            x = x.sin()
        return x.view(rows, -1) + 1

    x = torch.ones(4, 3)
    text = recompiled(capsys, configured, (x, True, 2), (x, False, 2), (x, False, 6))
    first, second = text.split("Recompiling")[1:]
    assert "operator 0 is view, was sin" in first
    assert "- 0/1: integers of operator 0, view. expected [2, -1], actual [6, -1]" in second
    assert "- 0/0: operator 0 is view" in second


def test_recompiles_verbose_has_every_reason(capsys: pytest.CaptureFixture[str]) -> None:
    calls = (torch.ones(3, 2),), (torch.ones(2).double(),)
    found = shown(capsys, lambda x: x * 2, *calls, recompiles_verbose=True)
    text = found.text("recompiles_verbose")
    assert "dtype mismatch" in text and "rank mismatch" in text


def test_rounds_of_a_loop_are_no_recompiles(capsys: pytest.CaptureFixture[str]) -> None:
    def loop(x: Any) -> Any:
        for _ in range(4):
            x = x / x.sum().item()
        return x

    names = {"recompiles": True, "perf_hints": True}
    found = shown(capsys, loop, (torch.ones(3),), (torch.ones(3),), **names)
    assert found.text("recompiles") == ""
    hint = "item() runs the region in parts again and again, as in a loop"
    assert found.text("perf_hints").count(hint) == 1


FACTOR = 2


def test_recompiles_of_globals(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program holds for every number; what is learnt again is the explanation of calls."""
    torch._logging.set_logs(recompiles=True, guards=True)
    compiled = torch.compile(lambda x: x * FACTOR)
    if not hasattr(compiled, "_hits"):
        pytest.skip("calls are not explained in this version of Python")
    with torch.no_grad():
        for _ in range(4):
            compiled(torch.ones(3))
        monkeypatch.setitem(globals(), "FACTOR", 3)
        for _ in range(8):
            compiled(torch.ones(3))
    found = Shown(capsys.readouterr().err)
    assert re.search(r"- globals of .*\['FACTOR'\] == 2", found.text("recompiles"))
    assert "['FACTOR']) is int" in found.text("guards")  # it is an input by then


def test_the_limit_of_explanations(capsys: pytest.CaptureFixture[str]) -> None:
    torch._logging.set_logs(recompiles=True)
    compiled = torch.compile(lambda x, n: (x * n).sum().item())
    if not hasattr(compiled, "_hits"):
        pytest.skip("calls are not explained in this version of Python")
    for n in range(region_logs.MAX_FAILURES + 2):
        for _ in range(3):
            compiled(torch.ones(3), n)
    text = Shown(capsys.readouterr().err).text("recompiles")
    assert text.count("hit the limit of 8 calls without an explanation") == 1
    assert "last reason: it reads item of a tensor" in text


def trained(x: Any, w: Any) -> Any:
    return torch.softmax(x @ w.T, -1).square().sum()


PROGRAMS = {
    "graph": "t4 = softmax(t3)",
    "graph_code": "prims.matmul(",
    "graph_sizes": "input 1: f32[s5, 8] = [4, 8]",
    "aot_graphs": "backward graph",
    "aot_joint_graph": "saved(",
    "pre_grad_graphs": "prims.with_derivative(",
    "post_grad_graphs": "prims.matmul(",
    "ir_pre_fusion": " to output 0 strides",
    "ir_post_fusion": "matmul",
    "fusion": "are apart: ",
    "schedule": "launch 0: kernel",
    "output_code": ".c\n",
    "kernel_code": "long",
    "inductor_metrics": "bytes moved, ",
}


@pytest.mark.parametrize("artifact", PROGRAMS)
def test_programs(artifact: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch._logging.set_logs(**{artifact: True})
    x, w = torch.ones(4, 8), torch.ones(5, 8, requires_grad=True)
    torch.compile(trained)(x, w).backward()
    found = Shown(capsys.readouterr().err)
    assert found.artifacts == {artifact}
    assert PROGRAMS[artifact] in found.text(artifact)


def test_eager_mode_is_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    torch._logging.set_logs(output_code=True, schedule=True, graph_code=True)
    torch.ones(3, 5).sinh().erfc()
    assert "__" not in capsys.readouterr().err


def test_dynamic(capsys: pytest.CaptureFixture[str]) -> None:
    calls = (torch.ones(4, 3), torch.ones(3))
    text = shown(capsys, lambda x, y: x + y, calls, dynamic=logging.INFO).text(None)
    assert "input 0: f32[s0, s1] = [4, 3]" in text and "guard: s1 == s5" in text


def test_copies_are_hints(capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(capsys, lambda x: x.sort(0).values, (torch.ones(6, 4),), perf_hints=True)
    text = "an operand of sort is copied to memory of its own: permute f32[s1, s0]"
    assert text in found.text("perf_hints")
    torch.compiler.reset()
    assert (
        shown(capsys, lambda x: x.sort(1).values, (torch.ones(6, 4),), perf_hints=True).lines == []
    )


def test_components(capsys: pytest.CaptureFixture[str]) -> None:
    call = (torch.ones(3),)
    found = shown(capsys, branches, call, inductor=logging.INFO)
    assert found.artifacts == {None} and "kernels, " in found.text(None)
    torch.compiler.reset()
    found = shown(capsys, branches, call, dynamo=logging.DEBUG)
    assert {"graph_breaks", "graph_code", "graph", None} <= found.artifacts
    assert not found.artifacts & {"recompiles_verbose", "verbose_guards", "output_code"}
    torch.compiler.reset()
    assert shown(capsys, branches, call, dynamo=logging.ERROR).lines == []


def test_handlers_of_programs_get_the_records(caplog: pytest.LogCaptureFixture) -> None:
    logger = torch._logging.getArtifactLogger("torch._dynamo", "graph_breaks")
    torch._logging.set_logs(graph_breaks=True)
    logger.addHandler(caplog.handler)
    try:
        torch.compile(branches)(torch.ones(3))
    finally:
        logger.removeHandler(caplog.handler)
    assert any("Graph break in user code" in record.getMessage() for record in caplog.records)
    assert {record.name for record in caplog.records} == {"torch._dynamo.__graph_breaks"}


def test_wrong_names() -> None:
    with pytest.raises(ValueError, match="Unrecognized log or artifact name passed to set_logs: x"):
        torch._logging.set_logs(x=True)
    with pytest.raises(ValueError, match="Expected bool to enable artifact guards, received 10"):
        torch._logging.set_logs(guards=10)
    with pytest.raises(ValueError, match="Unrecognized log level for log dynamo: 17"):
        torch._logging.set_logs(dynamo=17)
    with pytest.raises(ValueError, match="not registered"):
        torch._logging.getArtifactLogger("torch._dynamo", "nothing")


@pytest.mark.parametrize(
    ("text", "levels", "artifacts"),
    [
        ("graph_breaks,recompiles", {}, {"graph_breaks", "recompiles"}),
        ("+schedule", {}, {"schedule"}),
        ("+dynamo, guards", {"torch._dynamo": 10}, {"guards"}),
        ("-inductor", {"torch._inductor": 40}, set()),
        ("aot", {"torch._functorch.aot_autograd": 20}, set()),
        ("all", {"torch": 20}, set()),
        ("+json.decoder", {"json.decoder": 10}, set()),
        ("torch._dynamo.utils", {"torch._dynamo.utils": 20}, set()),
    ],
)
def test_the_form_of_the_variable(text: str, levels: Any, artifacts: set[str]) -> None:
    state = logs.parse(text)
    assert levels.items() <= state.levels.items() and state.artifacts == artifacts


@pytest.mark.parametrize("text", ["nothing", "dynamo,,guards", "dynamo guards", "graph_breaks,no"])
def test_the_error_of_the_variable(text: str) -> None:
    with pytest.raises(ValueError) as error:
        logs.parse(text)
    message = str(error.value)
    assert f"Invalid log settings: {text}, must be a comma separated list of fully" in message
    assert 'try TORCH_LOGS="help"' in message
    assert "all, annotation, aot, aot_graphs" in message


def test_help() -> None:
    with pytest.raises(ValueError, match="graph_breaks"):
        logs.parse("help")
    with pytest.raises(ValueError, match="trace_source +nothing here"):
        logs.parse("+help")


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    arguments = [sys.executable, "-c", program]
    return subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False)


PROGRAM = """
import flambeau as torch
torch._logging.set_logs(output_code=True)
torch.compile(lambda x: (x + 1).sum().item())(torch.ones(3))
"""


def test_the_variable_in_a_process(tmp_path: Path) -> None:
    path = tmp_path / "logs.txt"
    variables = {"TORCH_LOGS_OUT": str(path), "TORCH_LOGS_FORMAT": "short"}
    result = run(PROGRAM, TORCH_LOGS="graph_breaks", **variables)
    assert result.returncode == 0, result.stderr
    head = "DEBUG:torch._dynamo.__graph_breaks:"
    assert head in result.stderr and "item() after" in result.stderr
    assert "so set_logs() has no effect" in result.stderr and "output_code" not in result.stderr
    assert head in path.read_text()


def test_a_wrong_variable_is_an_error_at_import() -> None:
    result = run("import flambeau", TORCH_LOGS="graph_brakes")
    assert result.returncode == 1 and "Invalid log settings: graph_brakes" in result.stderr
