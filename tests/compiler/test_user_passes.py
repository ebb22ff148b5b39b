"""Passes of users: over graphs of compiled functions, and over the compiler's own programs."""

from __future__ import annotations

import copy

import pytest

import flambeau as torch
from flambeau import prims
from flambeau._inductor import config
from flambeau._inductor import pattern_matcher as m
from flambeau._inductor.compile_fx import compile_fx, compile_fx_inner
from flambeau._inductor.custom_graph_pass import (
    CustomGraphPass,
    CustomInferenceAwareGraphPass,
    get_hash_for_files,
)
from flambeau.capture import stream
from flambeau.compiler import passes, stored
from flambeau.runtime import settings

aten = torch.ops.aten
X = torch.arange(12.0).reshape(3, 4) / 7 - 0.8

RELU = m.PatternMatcherPass("relu")
m.register_replacement(lambda x: x.relu(), lambda x: x.tanh(), [X], m.fwd_only, RELU)


def by_tanh(graph):
    """A pass: every relu becomes a tanh."""
    RELU.apply(graph)


def function(x):
    return x.relu() * 2


EXPECTED, CHANGED = X.relu() * 2, X.tanh() * 2
AFTER_GRADIENTS = (
    "joint_custom_pre_pass", "joint_custom_post_pass", "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass",
)  # fmt: skip

# ------------------------------------------------------------------------------- graphs


@pytest.mark.parametrize("name", AFTER_GRADIENTS)
def test_options(name):
    compiled = torch.compile(function, options={name.replace("_", "-"): by_tanh})
    assert torch.equal(compiled(X), CHANGED) and torch.equal(compiled(X[:2]), CHANGED[:2])
    assert torch.equal(torch.compile(function)(X), EXPECTED)


def test_settings_hold_when_a_function_is_compiled_and_while_they_are_set():
    before = torch.compile(function)
    assert torch.equal(before(X), EXPECTED)
    with config.patch(post_grad_custom_pre_pass=by_tanh):
        within = torch.compile(function)
        assert torch.equal(within(X), CHANGED) and torch.equal(before(X), CHANGED)
        assert torch.equal(torch.compile(function, backend="aot_eager")(X), EXPECTED)
    assert torch.equal(within(X), CHANGED) and torch.equal(before(X), EXPECTED)
    config.joint_custom_post_pass = [by_tanh]
    try:
        assert torch.equal(before(X), CHANGED)
    finally:
        config.joint_custom_post_pass = None
    assert torch.equal(before(X), EXPECTED)


def test_the_pass_before_gradients_gets_the_functions_own_operators():
    targets = []

    def drop(graph):
        targets.extend(n.target for n in graph.nodes if n.op.startswith("call"))
        for node in graph.find_nodes(op="call_method", target="relu"):
            assert node.meta["example_value"].shape == X.shape
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)

    compiled = torch.compile(function, options={"pre_grad_custom_pass": drop})
    assert torch.equal(compiled(X), X * 2)
    assert targets[0] == "relu" and len(targets) == 2


class Recording(CustomInferenceAwareGraphPass):
    """Notes the operators of the graphs that it gets."""

    def __init__(self):
        self.graphs = []

    def __call__(self, graph, is_inference=None):
        names = [str(n.target) for n in graph.nodes if n.op == "call_function"]
        self.graphs.append((names, is_inference))

    def uuid(self):
        return get_hash_for_files((__file__,))


def test_graphs_of_training():
    joint, late = Recording(), Recording()
    options = {"joint_custom_pre_pass": joint, "post_grad_custom_pre_pass": [late]}
    compiled = torch.compile(lambda w: (w.sin() * 2).sum(), options=options)
    w = X.clone().requires_grad_()
    loss = compiled(w)
    assert [len(late.graphs), len(joint.graphs)] == [1, 1]
    loss.backward()
    expected = torch.autograd.grad((w.sin() * 2).sum(), w)[0]
    assert torch.equal(w.grad, expected)
    (both, _), ((forward, inference), (backward, _)) = joint.graphs[0], late.graphs
    assert inference is False
    assert forward == ["aten.sin.default", "aten.mul.Tensor", "aten.sum.default"]
    assert "aten.cos.default" in backward and set(both) == set(forward + backward)
    with torch.no_grad():
        compiled(w)
    assert late.graphs[-1] == (forward, True)


def test_a_pass_over_the_joint_graph_changes_gradients():
    patterns = m.PatternMatcherPass()
    example = [X.clone().requires_grad_()]
    m.register_replacement(lambda x: x.sin(), lambda x: x.exp(), example, m.joint_fwd_bwd, patterns)
    compiled = torch.compile(
        lambda w: (w.sin() * 2).sum(), options={"joint_custom_pre_pass": patterns.apply}
    )
    w = X.clone().requires_grad_()
    result, expected = compiled(w), (w.exp() * 2).sum()
    assert torch.equal(result, expected)
    assert torch.equal(*(torch.autograd.grad(y, w)[0] for y in (result, expected)))


def test_passes_change_the_kernels():
    torch.compiler.reset()
    with stream.watching() as reports:
        torch.compile(function, options={"post_grad_custom_post_pass": by_tanh})(X)
    [report] = reports
    assert {"tanh", "mul"} <= {node.op for node in report.graph.nodes()}
    assert report.launches == 1


def test_lowering_patterns_are_compiled_with_what_is_around():
    patterns = m.PatternMatcherPass()
    pattern = m.CallFunction(aten.relu.default, m.KeywordArg("x"))

    @m.register_lowering_pattern(pattern, pass_dict=patterns)
    def by_sine(match, x):
        return x.sin() + 1

    options = {"post_grad_custom_post_pass": patterns.apply}
    torch.compiler.reset()
    with stream.watching() as reports:
        assert torch.equal(torch.compile(function, options=options)(X), (X.sin() + 1) * 2)
    assert [report.launches for report in reports] == [1]


def nothing(graph):
    """A pass that changes nothing."""


MODELS = {
    "normalised": lambda: torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)),
    "attention": lambda: torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True).eval(),
    "softmax": lambda: torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Softmax(-1)),
    "gelu": lambda: torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.SiLU()),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_pass_that_changes_nothing(name):
    """Results and effects on buffers are those of eager mode."""
    torch.manual_seed(1)
    model = MODELS[name]()
    other, x = (
        copy.deepcopy(model),
        torch.randn(2, 8, 4) if name == "attention" else torch.randn(8, 4),
    )
    compiled = torch.compile(model, options={"post_grad_custom_pre_pass": nothing})
    for _ in range(2):
        result, expected = compiled(x), other(x)
        assert torch.allclose(result, expected, rtol=1e-5, atol=1e-6)
        result.square().sum().backward()
        expected.square().sum().backward()
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad, rtol=1e-4, atol=1e-5)
    for a, b in zip(model.buffers(), other.buffers(), strict=True):
        assert torch.allclose(a, b)


def test_bits_of_a_pass_that_changes_nothing():
    def chain(x, w):
        hidden = torch.softmax(torch.nn.functional.linear(x, w).relu(), -1)
        return (torch.nn.functional.gelu(hidden) + hidden.exp().log1p()).sum(0)

    compiled = torch.compile(chain, options={"joint_custom_post_pass": nothing})
    w = torch.ones(4, 4, requires_grad=True)
    assert torch.equal(compiled(X, w), chain(X, w))


def test_writes_to_arguments():
    def write(x, y):
        x.add_(1)
        return x * y

    compiled = torch.compile(write, options={"post_grad_custom_pre_pass": nothing})
    a, b = X.clone(), X.clone()
    for _ in range(2):
        assert torch.equal(compiled(a, X), write(b, X)) and torch.equal(a, b)


def test_random_numbers():
    compiled = torch.compile(
        lambda x: torch.nn.functional.dropout(x, 0.5),
        options={"post_grad_custom_pre_pass": nothing},
    )
    torch.manual_seed(3)
    result = compiled(X), compiled(X)
    torch.manual_seed(3)
    expected = [torch.nn.functional.dropout(X, 0.5) for _ in result]
    assert all(map(torch.equal, result, expected))


def test_data_inside_of_a_graph():
    def branching(x):
        return x.relu() if x.sum().item() > 100 else x.relu() - 1

    compiled = torch.compile(branching, options={"post_grad_custom_pre_pass": by_tanh})
    assert torch.equal(compiled(X), X.tanh() - 1)


def test_a_broken_graph_is_reported():
    def undefined(graph):
        [node] = [n for n in graph.nodes if n.op == "output"]
        node.args = ((node.args[0][0], 3),)

    compiled = torch.compile(function, options={"post_grad_custom_pre_pass": undefined})
    with pytest.raises(RuntimeError, match="2 results in place of 1"):
        compiled(X)

    def raising(graph):
        raise ValueError("no")

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="ValueError: no"):
        torch.compile(function, options={"joint_custom_pre_pass": raising})(X)


def test_passes_over_the_scheduler_are_refused():
    with pytest.raises(NotImplementedError, match="flambeau.compiler.passes"):
        torch.compile(function, options={"_post_fusion_custom_pass": lambda nodes: nodes})


def test_as_a_backend():
    module = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    patches = {"post_grad_custom_pre_pass": by_tanh}
    [result] = compile_fx(_tuple_of(module), [X], config_patches=patches)(X)
    assert torch.equal(result, X.tanh() + 1)
    assert torch.equal(compile_fx_inner(module, [X])(X)[0], X.relu() + 1)
    graphs = []

    def inner(module, inputs, *, is_inference):
        graphs.append((len(inputs), is_inference))
        return module

    assert torch.equal(compile_fx(_tuple_of(module), [X], inner)(X)[0], X.relu() + 1)
    assert graphs == [(1, True)]
    with config.patch(post_grad_custom_post_pass=by_tanh):
        assert torch.equal(compile_fx_inner(_aten(X), [X])(X)[0], X.tanh())


def _aten(x):
    return _tuple_of(m.fwd_only(torch.relu, [x]))


def _tuple_of(module):
    output = module.graph.output_node()
    if not isinstance(output.args[0], tuple):
        output.args = ((output.args[0],),)
        module.recompile()
    return module


class Named(CustomGraphPass):
    """A pass with an identity."""

    def __init__(self, name):
        self.name, self.calls = name, 0

    def __call__(self, graph):
        self.calls += 1

    def uuid(self):
        return self.name


def test_passes_of_one_uuid_are_one():
    compiled, first, second, other = torch.compile(function), Named("a"), Named("a"), Named("b")
    for each in (first, second, other, first):
        with config.patch(post_grad_custom_post_pass=each):
            compiled(X)
    assert [first.calls, second.calls, other.calls] == [1, 0, 1]


# ------------------------------------------------------------------------------- programs


def sine(value):
    """A rule: a cosine becomes a sine."""
    return prims.sin(*value.inputs) if value.op == "cos" else None


def sines(graph):
    return passes.rewrite(graph, sine)


def waves(x):
    return (x.cos() * 2).sum(1)


def printed(*args):
    return {name: text for name, _, text in torch.compiler.stages(waves, *args)}["print"]


def test_before_fusion():
    compiled, before = torch.compile(waves), printed(X)
    expected = compiled(X)
    with passes.register(sines, before="fusion") as registration:
        assert torch.equal(X.cos(), X.sin())
        assert torch.equal(compiled(X), (X.sin() * 2).sum(1))
        assert "fb_sin" in printed(X) and "fb_cos" not in printed(X)
        assert passes.registered() == [registration]
    assert torch.equal(compiled(X), expected) and printed(X) == before
    assert passes.registered() == []


def test_after_fusion():
    seen = []

    @passes.register(after="fusion")
    def kernels(kernels):
        seen.extend(kernels)
        return [passes.rewrite(kernel, sine) for kernel in kernels]

    try:
        result = torch.compile(waves)(X)
        assert [kernel.form for kernel in seen] == ["row"]
        assert torch.equal(result, (X.sin() * 2).sum(1))
        assert kernels.name.endswith("kernels") and kernels(seen)[0].text() != seen[0].text()
    finally:
        kernels.remove()
    kernels.remove()
    assert torch.equal(torch.compile(waves)(X), waves(X))


def test_a_lowering_changes_the_code():
    def text(x):
        return {n: t for n, _, t in torch.compiler.stages(torch.sigmoid, x)}["print"]

    before = text(X)
    with passes.lowering("sigmoid")(_sigmoid):
        assert "tanh" in text(X) != before
        assert torch.equal(torch.sigmoid(X), torch.tanh(X * 0.5) * 0.5 + 0.5)
        w = X.clone().requires_grad_()
        torch.compile(torch.sigmoid)(w).sum().backward()
    assert text(X) == before


def _sigmoid(x):
    half = prims.full(0.5, x.shape, x.dtype)
    return prims.tanh(x * half) * half + half


def test_gradients_are_programs_too():
    w = X.clone().requires_grad_()
    with passes.register(sines, before="fusion"):
        gradient = torch.autograd.grad(torch.compile(torch.sin)(w).sum(), w)[0]
    assert torch.equal(gradient, X.sin())


@pytest.mark.parametrize(("place", "wrong", "message"), [
    ("before", lambda graph: None, "a NoneType, no Graph"),
    ("before", lambda graph: graph.with_outputs(()), "other inputs or results"),
    ("before", lambda graph: passes.rewrite(graph, _float64), "other inputs or results"),
    ("after", lambda kernels: [], "no list of 1 kernels"),
    ("after", lambda kernels: [1], "a int among the kernels"),
    ("after", lambda kernels: [_reversed(kernels[0])], "loads or stores other elements"),
    ("after", lambda kernels: [_shorter(kernels[0])], "other loops or parameters"),
])  # fmt: skip
def test_what_a_pass_returns_is_verified(place, wrong, message):
    with (
        passes.register(wrong, name="mine", **{place: "fusion"}),
        pytest.raises(passes.PassError, match=f"'mine' returned.*{message}"),
    ):
        torch.compile(waves)(X)


def _float64(value):
    return prims.cast(value, "f64") if value.op == "sum" else None


def _reversed(kernel):
    from flambeau.ir import kernel as k

    def rule(value):
        return k.load(0, 0, value.dtype) if k.LOAD.matches(value) else None

    return passes.rewrite(kernel, rule)


def _shorter(kernel):
    import dataclasses

    return dataclasses.replace(kernel, inner=1)


def test_wrong_registrations():
    for arguments in ({}, {"before": "fusion", "after": "fusion"}, {"before": "lunch"}):
        with pytest.raises(ValueError, match="one of both"):
            passes.register(sines, **arguments)
    with pytest.raises(ValueError, match="no primitive 'sigmoi'\nhint: sigmoid"):
        passes.lowering("sigmoi")
    with passes.lowering("cos")(lambda x: prims.cast(x, "f64")), pytest.raises(TypeError):
        X.cos()
    assert passes.registered() == []


def test_names_of_stored_plans(tmp_path):
    """Plans made with a pass have another name; without a key there is none."""
    with settings.override(VERIFY=False, CACHE_DIR=tmp_path):
        plain = stored.name_of("program")
        assert stored.usable()
        with passes.register(sines, before="fusion", key="sines 1"):
            keyed = stored.name_of("program")
            assert stored.usable() and keyed.own != plain.own and keyed.text != plain.text
            with passes.register(sines, after="fusion"):
                assert not stored.usable()
        with passes.register(sines, before="fusion", key="sines 2"):
            assert stored.name_of("program") != keyed
        assert stored.name_of("program") == plain


def test_stored_plans_are_not_mixed(tmp_path):
    """Each program finds its own plan of an earlier run."""
    with settings.override(VERIFY=False, CACHE_DIR=tmp_path):
        for _ in range(2):
            assert torch.equal(torch.compile(waves)(X), waves(X))
            with passes.register(sines, before="fusion", key="sines"):
                torch.compiler.reset()
                assert torch.equal(torch.compile(waves)(X), (X.sin() * 2).sum(1))
            torch.compiler.reset()


def test_a_plan_that_waits_is_compiled_with_the_present_passes(tmp_path):
    """It is not stored under the name that it had before."""
    with settings.override(VERIFY=False, CACHE_DIR=tmp_path):
        w = X.clone().requires_grad_()
        loss = torch.compile(torch.sin)(w).sum()
        with passes.register(sines, before="fusion"):
            loss.backward()
        torch.compiler.reset()
        again = torch.compile(torch.sin)(v := X.clone().requires_grad_()).sum()
        again.backward()
        assert torch.equal(v.grad, X.cos())
