"""PyTorch's private names of `torch.compile` as views of ours: `torch._dynamo` and its kin."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.runtime import config_modules


def broken(x):
    y = x + 1
    torch._dynamo.graph_break("here")
    return y * 2


def test_every_name_is_there():
    for module in (torch._dynamo, torch._dynamo.decorators, torch._inductor, torch._dynamo.exc):
        for name in module.__all__:
            assert getattr(module, name) is not None
    for name in dir(torch.compiler.config):
        getattr(torch.compiler.config, name)


def test_settings_have_defaults_and_second_names():
    config = torch._dynamo.config
    assert (config.recompile_limit, config.verbose, config.capture_scalar_outputs) == (8, False, 0)
    with config.patch(cache_size_limit=99):
        assert config.recompile_limit == torch.compiler.config.recompile_limit == 99
    assert config.cache_size_limit == 8
    with pytest.raises(AttributeError, match=r"torch\._dynamo\.config\.nope does not exist"):
        config.nope = 1
    with pytest.raises(AttributeError), config.patch({"nope": 1}):
        pass


def test_patch_is_a_decorator_and_sections_are_objects():
    config = torch._inductor.config

    @config.patch({"triton.cudagraphs": True})
    def inner():
        return config.triton.cudagraphs

    assert inner() is True and config.triton.cudagraphs is False
    before = config.save_config()
    config.triton.cudagraphs = True
    config.load_config(before)
    assert config.triton.cudagraphs is False
    assert config_modules.value("torch._inductor.config", "max_autotune") is False


def test_disable_leaves_functions_uncompiled():
    with torch._dynamo.config.patch(disable=True):
        assert torch.compile(broken) is broken


def test_graph_breaks_are_explained_refused_and_counted():
    report = torch._dynamo.explain(broken)(torch.ones(2))
    assert (report.graph_count, report.graph_break_count, report.op_count) == (2, 1, 2)
    assert report.break_reasons[0].reason == "here"
    with pytest.raises(torch._dynamo.exc.Unsupported, match="here"):
        torch.compile(broken, fullgraph=True)(torch.ones(2))
    with torch._dynamo.error_on_graph_break(True), pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(broken)(torch.ones(2))
    from flambeau._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    compiled = torch._dynamo.optimize("inductor")(broken)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
    assert counters["graph_break"] == {"here": 1}
    assert counters["stats"] == {"unique_graphs": 2, "calls_captured": 2}
    assert torch._dynamo.eval_frame.innermost_fn(compiled) is broken


@pytest.mark.parametrize("stance", ["force_eager", "default", "eager_on_recompile"])
def test_stances(stance):
    compiled = torch.compile(lambda x: (x + 1, torch.compiler.is_compiling()))
    with torch.compiler.set_stance(stance):
        assert compiled(torch.ones(1))[1] is (stance != "force_eager")
    assert compiled(torch.ones(1))[1] is True
    decorated = torch.compiler.set_stance(stance)(lambda: compiled(torch.ones(1))[1])
    assert decorated() is (stance != "force_eager")
    assert compiled(torch.ones(1))[1] is True
    with pytest.raises(NotImplementedError):
        torch.compiler.set_stance("no_such_stance")


def test_marks_of_tensors_and_functions():
    x = torch.ones(3, 3)
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.mark_static(x, 1)
    torch._dynamo.mark_static_address(x)
    assert (x._dynamo_dynamic_indices, x._dynamo_static_indices) == ({0}, {1})
    assert x._dynamo_static_input_type == "unguarded"
    with pytest.raises(TypeError, match="expects a tensor"):
        torch._dynamo.mark_static_address(3)
    forbidden = torch._dynamo.forbid_in_graph(lambda x: x + 1)
    forbidden(x)
    with pytest.raises(AssertionError, match="compiled region"):
        torch.compile(lambda x: forbidden(x))(x)
    outside = torch._dynamo.disallow_in_graph(lambda: torch.compiler.is_compiling())
    assert torch.compile(lambda x: (x * 2, outside()))(x)[1] is False


def test_eager_backend_wraps_modules():
    model = torch.nn.Linear(2, 2)
    compiled = torch.compile(model, backend="eager")
    assert isinstance(compiled, torch._dynamo.OptimizedModule) and compiled._orig_mod is model
    x = torch.ones(1, 2)
    assert torch.equal(compiled(x), model(x))


def test_backends_by_name():
    seen = []

    @torch._dynamo.register_backend
    def counting(gm, example_inputs):
        seen.append(gm)
        return gm.forward

    assert torch._dynamo.lookup_backend("counting") is counting
    assert {"counting", "inductor"} <= set(torch._dynamo.list_backends())
    with pytest.raises(torch._dynamo.exc.InvalidBackend, match="list_backends"):
        torch._dynamo.lookup_backend("none of this name")
    graph = torch.fx.symbolic_trace(lambda x: x.sin() + 1)
    x = torch.ones(3)
    compiled = torch._dynamo.lookup_backend("inductor")(graph, [x])
    assert torch.equal(compiled(x), x.sin() + 1)


def test_options_are_the_settings_of_inductor():
    torch.compile(broken, options={"triton.cudagraphs": True, "group_fusion": True})
    with pytest.raises(RuntimeError, match="unexpected optimization option nope"):
        torch.compile(broken, options={"nope": True})
    with pytest.raises(RuntimeError, match="unexpected type of option max_autotune"):
        torch.compile(broken, options={"max_autotune": 1})
    assert torch._inductor.list_mode_options("max-autotune")["max_autotune"] is True
    assert "max_autotune" in torch._inductor.list_options()


def test_results_are_compared():
    from flambeau._dynamo.testing import CompileCounter, rand_strided, same

    x = rand_strided((2, 3), (1, 2))
    assert x.stride() == (1, 2)
    assert same([x, 1.0], [x + 1e-6, 1.0]) and not same(x, x + 1)
    assert not same(x, x.double())
    counter = CompileCounter()
    counter(torch.fx.symbolic_trace(lambda x: x.sin() + 1), [x])
    assert (counter.frame_count, counter.op_count) == (1, 2)
