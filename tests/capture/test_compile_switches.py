"""Switches of `torch.compile` that programs use: stances, ranges of sizes, artifacts, backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau._dynamo import testing
from flambeau.fx.experimental.symbolic_shapes import ConstraintViolationError


def double(x: Any) -> Any:
    return x * 2


@pytest.mark.parametrize("backend", ["inductor", testing.EagerAndRecordGraphs()])
def test_fail_on_recompile(backend: Any) -> None:
    compiled = torch.compile(double, backend=backend)
    compiled(torch.ones(3))
    with torch.compiler.set_stance("fail_on_recompile"):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
        with pytest.raises(RuntimeError, match="Detected recompile.*function name: 'double'"):
            compiled(torch.ones(3, dtype=torch.float64))
        assert torch.ones(4, dtype=torch.float64).sinh().shape == (4,)  # eager mode goes on
    assert compiled(torch.ones(3, dtype=torch.float64)).tolist() == [2.0, 2.0, 2.0]


def test_error_on_recompile() -> None:
    compiled = torch.compile(double)
    with torch._dynamo.config.patch(error_on_recompile=True):
        compiled(torch.ones(3))
        compiled(torch.ones(5))  # another size is no other program
        with pytest.raises(torch._dynamo.exc.RecompileError, match="dtype mismatch"):
            compiled(torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("backend", ["inductor", "aot_eager", testing.CompileCounter()])
def test_ranges_of_sizes(backend: Any) -> None:
    compiled, x = torch.compile(double, backend=backend), torch.ones(20)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=10)
    with pytest.raises(ConstraintViolationError, match=r"20 not in range \[2, 10\]"):
        compiled(x)
    y = torch.ones(5)
    torch._dynamo.mark_dynamic(y, 0, min=2, max=10)
    assert compiled(y).shape == (5,)


def test_marks_that_are_no_functions() -> None:
    with pytest.raises(AssertionError, match="expects a callable"):
        torch.compiler.allow_in_graph(3)
    with pytest.raises(TypeError, match="expects a function but got <class 'int'>"):
        torch.compiler.substitute_in_graph(3)
    with pytest.raises(TypeError, match="expects a function"):
        torch.compiler.substitute_in_graph(double)(3)
    assert torch.compiler.allow_in_graph([double]) == [double]


def test_a_graph_break_is_named_where_a_backend_is_a_function() -> None:
    def broken(x: Any) -> Any:
        torch._dynamo.graph_break()
        return x

    with pytest.raises(torch._dynamo.exc.Unsupported, match="graph_break"):
        torch.compile(broken, backend="eager", fullgraph=True)(torch.ones(2))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="branches on data"):
        torch.compile(lambda x: x if x.sum() > 0 else -x, backend="eager", fullgraph=True)(
            torch.ones(2)
        )


def test_public_names() -> None:
    assert all(hasattr(torch.compiler, name) for name in torch.compiler.__all__)
    assert "save_cache_artifacts" in torch.compiler.__all__


def test_backends_that_record_graphs() -> None:
    x = torch.ones(3, requires_grad=True)
    backend = testing.AotEagerAndRecordGraphs()
    torch.compile(lambda x: x.sin().sum(), backend=backend)(x).backward()
    counts = [len(each) for each in (backend.graphs, backend.fw_graphs, backend.bw_graphs)]
    assert counts == [1, 1, 1] and torch.equal(x.grad, torch.ones(3).cos())
    inductor = testing.InductorAndRecordGraphs()
    assert torch.compile(double, backend=inductor)(torch.ones(2)).tolist() == [2, 2]
    assert len(inductor.graphs) == 1
    result, graphs, forward = testing.extract_graph(double, torch.ones(2))
    assert result.tolist() == [2, 2] and len(graphs) == len(forward) == 1
    assert testing.reduce_to_scalar_loss([torch.ones(2), torch.ones(3)]).item() == 1.0
    assert testing.requires_bwd_pass([torch.ones(2), x]) and not testing.requires_bwd_pass(3)
    text = testing.normalize_gm("class A:  # here\n    # there\n    pass")
    assert text == "class A:\n    pass\n"


@pytest.mark.parametrize("kind", ["binary", "unpacked"])
def test_standalone_artifacts(kind: Any, tmp_path: Path) -> None:
    module = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()))
    x = torch.randn(4, 3)
    artifact = torch._inductor.standalone_compile(module, [x], dynamic_shapes="from_graph")
    expected = artifact(x)
    assert torch.equal(expected, module(x))
    path = str(tmp_path / "artifact")
    artifact.save(path=path, format=kind)
    again = torch._inductor.CompiledArtifact.load(path=path, format=kind)
    assert torch.equal(again(x), expected)
    with pytest.raises(RuntimeError, match="format"):
        artifact.save(path=path, format="text")
    with pytest.raises(TypeError, match="unexpected keyword"):
        torch._inductor.standalone_compile(module, [x], nothing=1)


def test_modes_list_what_they_select() -> None:
    modes = torch._inductor.list_mode_options()
    assert modes["lite"]["use_dce"] is False and modes["default"] == {}


def test_ranges_are_of_tensors_only() -> None:
    """Other arguments may answer to any name."""

    class Answers:
        def __getattr__(self, name: str) -> str:
            return name * 2

    x = torch.ones(3)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=10)
    assert torch.compile(lambda x, y: (x * 2, y.name))(x, Answers())[1] == "namename"
