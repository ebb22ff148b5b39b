"""What `torch.compile` accepts and refuses, and the module that it returns."""

from __future__ import annotations

import pytest

import flambeau as torch


def double(x):
    return x * 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"fast": True}, TypeError),
        ({"mode": "default", "options": {"max_autotune": True}}, RuntimeError),
        ({"mode": "default", "options": {}}, RuntimeError),
        ({"mode": "fastest"}, RuntimeError),
        ({"mode": 3}, RuntimeError),
        ({"options": {"no_such_option": 1}}, RuntimeError),
        ({"options": {"max_autotune": "yes"}}, RuntimeError),
        ({"options": {"max_autotune": 1}}, RuntimeError),
        ({"options": [1]}, TypeError),
        ({"options": {1: True}}, TypeError),
        ({"dynamic": "yes"}, AssertionError),
        ({"backend": "nvfuser"}, RuntimeError),
        ({"shapes_spec": {}}, NotImplementedError),
        ({"disable": True, "mode": "fastest"}, RuntimeError),
    ],
)
def test_refused(arguments, error):
    with pytest.raises(error):
        torch.compile(double, **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"mode": "lite"},
        {"mode": "reduce-overhead"},
        {"options": {}},
        {"options": {"epilogue_fusion": True, "trace.enabled": False}},
        {"options": {"triton.cudagraphs": True}},
        {"dynamic": False, "fullgraph": True, "name": "step"},
        {"recompile_limit": 1, "isolate_recompiles": True},
        {"backend": "eager", "mode": "fastest"},
        {"backend": "aot_eager", "options": {"anything": 1}},
        {"backend": "inductor"},
    ],
)
def test_accepted(arguments):
    assert torch.compile(double, **arguments)(torch.ones(2)).tolist() == [2.0, 2.0]
    assert torch.compile(**arguments)(double)(torch.ones(2)).tolist() == [2.0, 2.0]


def test_not_callable():
    with pytest.raises(AssertionError, match="callable"):
        torch.compile(3)


def test_option_tunes():
    from flambeau.capture.options import tunes

    assert tunes(None, {"max-autotune": True})
    assert tunes("max-autotune", None)
    assert not tunes(None, {"max_autotune": False})
    assert not tunes("reduce-overhead", None)


def test_attributes_are_those_of_the_wrapped_module():
    model = torch.nn.Linear(2, 2)
    compiled = torch.compile(model)
    compiled.flag = 5
    assert model.flag == 5
    model.flag = 9
    assert compiled.flag == 9
    compiled.extra = torch.nn.Parameter(torch.ones(1))
    assert dict(model.named_parameters())["extra"] is compiled.extra
    assert {"weight", "flag", "_orig_mod"} <= set(dir(compiled))
    del compiled.flag
    assert not hasattr(model, "flag")
    compiled.weight = torch.nn.Parameter(torch.zeros(2, 2))
    assert model.weight.tolist() == [[0, 0], [0, 0]]


def test_training_is_that_of_the_wrapped_module():
    model = torch.nn.Dropout()
    compiled = torch.compile(model)
    compiled.eval()
    assert not model.training
    model.train()
    assert compiled.training
    compiled.training = False
    assert not model.training


def test_hooks_of_the_wrapper_run():
    model, calls = torch.nn.Linear(2, 2), []
    compiled = torch.compile(model)
    compiled.register_forward_pre_hook(lambda module, args: calls.append("before"))
    compiled.register_forward_hook(lambda module, args, result: result + 1)
    model.register_forward_hook(lambda module, args, result: calls.append("inner"))
    x = torch.ones(1, 2)
    assert torch.equal(compiled(x), model(x) + 1)
    assert calls == ["before", "inner", "inner"]  # the last one is of `model(x)`
