"""Matches of patterns beside PyTorch's: their number, their nodes, what the handlers get."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")
sys.path.insert(0, str(Path(__file__).parents[1] / "fx"))
from matched import CASES, REPLACEMENTS, Library, matches, replaced  # noqa: E402

THEIRS, OURS = Library("torch"), Library("flambeau")


@pytest.mark.parametrize("name", CASES)
def test_matches(name):
    assert matches(OURS, name) == matches(THEIRS, name)


@pytest.mark.parametrize("name", REPLACEMENTS)
def test_replacements(name):
    number, counts, calls, _ = replaced(OURS, name)
    expected = replaced(THEIRS, name)
    assert (number, counts) == expected[:2]
    if not name.startswith("joint"):  # derivatives are written with other operators
        assert calls == expected[2]


def calls_of_passes(library, training):
    """Which passes a compiled call has, in order, and the matches of a pattern in each graph."""
    lib = library.torch
    compile_fx = importlib.import_module(f"{lib.__name__}._inductor.compile_fx").compile_fx
    boxed = importlib.import_module(f"{lib.__name__}._functorch.aot_autograd").make_boxed_func
    matcher, calls = library.matcher, []
    patterns = matcher.PatternMatcherPass()
    pattern = matcher.CallFunction(library.aten.sin.default, matcher.KeywordArg("x"))
    matcher.register_graph_pattern(pattern, pass_dict=patterns)(lambda match, x: None)

    def noting(name):
        return lambda graph: calls.append((name, patterns.apply(graph)))

    def backend(module, inputs):
        settings = {name: noting(name) for name in PASSES}
        return compile_fx(
            module, inputs, lambda gm, inputs, **more: boxed(gm), config_patches=settings
        )

    def function(x, w):
        return (x.sin() * w.sin()).exp().sum()

    x, w = library.tensor(3, 4), library.tensor(3, 4, grad=training)
    result = lib.compile(function, backend=backend)(x, w)
    if training:
        result.backward()
    return calls


PASSES = (
    "pre_grad_custom_pass", "joint_custom_pre_pass", "joint_custom_post_pass",
    "post_grad_custom_pre_pass", "post_grad_custom_post_pass",
)  # fmt: skip


@pytest.mark.parametrize("training", [False, True])
def test_passes_are_called_in_order(training):
    validates = torch.distributions.Distribution._validate_args
    try:
        theirs = calls_of_passes(THEIRS, training)
    finally:
        torch.distributions.Distribution._validate_args = validates
        torch._dynamo.reset()
    assert calls_of_passes(OURS, training) == theirs
