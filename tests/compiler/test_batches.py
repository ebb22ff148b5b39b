"""Kernels are compiled in batches, while others are planned; shared functions once, apart."""

from __future__ import annotations

import re

import pytest

import flambeau as torch
from flambeau.compiler import cache, codegen, pipeline, targets, toolchain
from flambeau.compiler.codegen import batches
from flambeau.compiler.codegen.c.printer import c_unit
from flambeau.runtime import settings

_DEFINED = re.compile(r"^FB_SHARED .*?(fb_shared_\w+)\(", re.MULTILINE)


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """The sources that the C compiler sees, with an empty cache; it does not optimise them."""
    sources: list[str] = []
    run = toolchain._run

    def noted(command, source):
        sources.append(source)
        return run(command, source)

    monkeypatch.setattr(toolchain, "_run", noted)
    monkeypatch.setattr(cache, "PREFILLED", str(tmp_path / "none"))
    with settings.override(CACHE_DIR=tmp_path / "cache", CC="gcc -O0"):
        known = dict(codegen._handles)
        _forget()
        yield sources
        _forget()
        codegen._handles.update(known)


def _forget():
    codegen._handles.clear()
    toolchain.prefilled_identity.cache_clear()
    toolchain.find.cache_clear()
    toolchain._settings_digest.cache_clear()


def _with(stage):
    """The pipeline with another stage of a name."""
    return tuple(stage if each.name == stage.name else each for each in pipeline.STAGES)


def _functions(sources):
    """Names of the shared functions that are defined."""
    return [name for source in sources for name in _DEFINED.findall(source)]


def test_shared_functions_are_compiled_once(compiled):
    """Products of all kinds: each function they share is defined in one unit, an object."""
    a, b, c = torch.randn(20, 30), torch.randn(30, 40), torch.randn(20, 40)
    assert torch.equal(torch.compile(lambda a, b: (a @ b).relu())(a, b), (a @ b).relu())
    first = _functions(compiled)
    assert first
    compiled.clear()
    function = torch.compile(lambda a, b, c: (torch.addmm(c, a, b) * 2).tanh())
    assert torch.equal(function(a, b, c), (torch.addmm(c, a, b) * 2).tanh())
    functions = _functions(compiled)
    assert len({*first, *functions}) == len(first) + len(functions) < 1.3 * len(first)


def test_shared_functions_come_with_the_package(compiled, tmp_path):
    """With the prefilled objects a new product compiles nothing but its own text."""
    a, b = torch.randn(20, 30), torch.randn(30, 40)
    with codegen.collect() as kernels:
        torch.compile(lambda a, b: (a @ b).sigmoid())(a, b)
    functions = {}
    for kernel in kernels:
        shared = c_unit.separate(codegen.print_kernel(kernel, targets.current()))[1]
        functions.update(dict.fromkeys(c_unit.objects_of(shared), shared))
    for names in functions:
        output = str(tmp_path / "functions.o")
        content = batches.compile_functions(names, functions[names], targets.current(), output)
        cache.write_blob(
            tmp_path / "none", codegen.key_of_functions(targets.current(), names), content
        )
    assert _functions(compiled)
    compiled.clear()
    result = torch.compile(lambda a, b: (a @ b).tanh())(a, b)
    assert compiled and not _functions(compiled)
    assert torch.equal(result, (a @ b).tanh())


def test_kernels_are_compiled_while_others_are_planned(compiled, monkeypatch):
    monkeypatch.setattr(batches, "BATCH", 1)
    underway = []

    def counted(state):
        kernels = {x.kernel.text() for x in state.schedule.launches if x.kernel}
        if state.build is not None and state.build._batches is not None:
            underway.append((len(state.build._batches._libraries), len(kernels)))
        stage.run(state)

    [stage] = [stage for stage in pipeline.STAGES if stage.name == "print"]
    monkeypatch.setattr(pipeline, "STAGES", _with(stage._replace(run=counted)))
    x = torch.randn(8, 8)

    def function(x):
        y = (x * 2).sum(0)
        z = (x - y).cumsum(1)
        return z.softmax(1), z.flip(0).prod(1)

    result = torch.compile(function)(x)
    libraries, kernels = underway[-1]
    assert libraries == kernels > 2
    for one, other in zip(result, function(x), strict=True):
        assert torch.equal(one, other)


def test_errors_of_the_compiler_are_raised(compiled, monkeypatch):
    monkeypatch.setattr(batches, "BATCH", 1)
    run = toolchain._run
    monkeypatch.setattr(toolchain, "_run", lambda command, source: run(command, "#error no\n"))
    function = torch.compile(lambda x: ((x * 3).sum(0), x.cumsum(1)))
    with pytest.raises(toolchain.CompileError, match="the C compiler failed"):
        function(torch.ones(4, 4))
    monkeypatch.setattr(toolchain, "_run", run)
    assert function(torch.ones(4, 4))[0].tolist() == [12.0] * 4


def test_a_failed_plan_leaves_no_work(compiled, monkeypatch):
    monkeypatch.setattr(batches, "BATCH", 1)
    closed = []
    close = batches.Batches.close
    monkeypatch.setattr(batches.Batches, "close", lambda self: closed.append(close(self)))
    with monkeypatch.context() as broken:
        stage = pipeline.Stage("print", lambda state: 1 / 0, str)
        broken.setattr(pipeline, "STAGES", _with(stage))
        with pytest.raises(ZeroDivisionError):
            torch.compile(lambda x: (x * 5).sum(0) + x.cumsum(1))(torch.ones(4, 4)).sum().item()
    assert closed
