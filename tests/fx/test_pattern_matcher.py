"""`torch._inductor.pattern_matcher`: what matches, and what takes its place.

The cases are those of the comparison with PyTorch (tests/parity/test_pattern_matcher_parity.py).
"""

from __future__ import annotations

import pytest
from matched import CASES, REPLACEMENTS, Library, matches, replaced

import flambeau as torch
from flambeau._inductor import config
from flambeau._inductor import pattern_matcher as m
from flambeau.fx.experimental.proxy_tensor import make_fx

OURS = Library("flambeau")
aten = torch.ops.aten
X = torch.arange(16.0).reshape(4, 4) / 7 - 1

# name: matches, nodes in them
MATCHES = {
    "nested": (2, 4), "any users": (1, 2), "two users": (1, 2), "shared": (1, 3),
    "equal names": (1, 1), "constants": (1, 1), "alpha": (1, 1), "further names": (2, 2),
    "any arguments": (2, 2), "list": (1, 3), "a part of a list": (1, 2), "fixed list": (1, 2),
    "several results": (1, 2), "repeated": (2, 8), "no write": (1, 2),
    "a mode between": (1, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_matches(name):
    number, counts, _, values = matches(OURS, name)
    expected, nodes = MATCHES.get(name, (0, 0))
    assert number == len(values) == expected
    assert counts.get("pattern_matcher_count", 0) == expected
    assert counts.get("pattern_matcher_nodes", 0) == nodes


COUNTS = {
    "pair": 2, "number": 1, "parameter": 2, "sizes": 1, "two results": 1, "different": 1,
    "checked": 1, "joint": 1, "joint one": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", REPLACEMENTS)
def test_replacements(name):
    number, _, calls, module = replaced(OURS, name)
    assert number == COUNTS.get(name, 0)
    module.recompile()
    assert calls


def test_replaced_modules_compute_the_replacement():
    *_, module = replaced(OURS, "pair")
    module.recompile()
    first, second, third = (X + X).amax(1), (X + 2).amax(1), (X * (X + 1)).sum(0)
    assert torch.equal(module(X), first + second + third)
    *_, module = replaced(OURS, "parameter")
    module.recompile()
    assert torch.equal(module(X), (X + 3.0).relu() + (X + 4.0).relu())


def test_replaced_gradients():
    *_, module = replaced(OURS, "joint one")
    module.recompile()
    w = X.clone().requires_grad_()
    result, gradient = module(w, torch.ones(4, 4))
    expected = w.exp() * w.detach()
    assert torch.equal(result, expected)
    assert torch.equal(gradient, torch.autograd.grad(expected.sum(), w)[0])


def test_replace_by_example_has_values():
    patterns = m.PatternMatcherPass()

    @m.register_graph_pattern(
        m.CallFunction(aten.relu.default, m.KeywordArg("x")), pass_dict=patterns
    )
    def by_maximum(match, x):
        match.replace_by_example(lambda x: torch.maximum(x, x * 0), [x])

    module = make_fx(lambda x: x.relu() + 1)(X)
    assert patterns.apply(module) == 1
    module.recompile()
    assert torch.equal(module(X), X.relu() + 1)
    values = [n.meta["val"].shape for n in module.graph.nodes if n.op == "call_function"]
    assert values == [X.shape] * 3


def test_lowering_patterns_run_the_function():
    patterns, seen = m.PatternMatcherPass(), []
    product = m.CallFunction(aten.mm.default, m.KeywordArg("a"), m.Arg())

    @m.register_lowering_pattern(product, pass_dict=patterns)
    def both(match, b, *, a):
        seen.append(type(match).__name__)
        return (a * b).sin()

    module = make_fx(lambda x: torch.mm(x, x + 1) * 2)(X)
    assert patterns.apply(module) == 1
    module.recompile()
    assert torch.equal(module(X), (X * (X + 1)).sin() * 2) and seen == ["Match"]


def test_order_of_entries_and_checks():
    patterns, seen = m.PatternMatcherPass("order"), []
    pattern = m.CallFunction([aten.relu.default, aten.tanh.default], m.KeywordArg("x"))
    for name, options in (
        ("first", {}),
        ("second", {}),
        ("never", {"extra_check": lambda match: False}),
        ("before", {"prepend": True}),
        ("by setting", {"extra_check": m.config_flag("max_autotune")}),
    ):
        decorate = m.register_graph_pattern(pattern, pass_dict=patterns, **options)
        decorate(lambda match, x, name=name: seen.append(name))
    module = make_fx(lambda x: x.relu().tanh())(X)
    assert patterns.apply(module) == 6
    assert seen == ["before", "first", "second"] * 2
    with config.patch(max_autotune=True):
        assert patterns.apply(module.graph) == 8
    patterns.clear()
    assert patterns.apply(module) == 0


def test_why_a_node_does_not_match():
    pattern = m.CallFunction(aten.relu.default, m.CallFunction(aten.add.Tensor, m.Arg(), 1))
    relu = make_fx(lambda x: (x + 2).relu())(X).graph.find_nodes(
        op="call_function", target=aten.relu.default
    )[0]
    failed = pattern.match(relu)
    assert not failed and isinstance(failed, m.FailedMatch) and not m.is_match(failed)
    assert str(failed) == "2 in place of 1"
    assert repr(pattern) == (
        "CallFunction(aten.relu.default, CallFunction(aten.add.Tensor, Arg(), 1))"
    )


def test_methods_and_modules():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.act = torch.nn.ReLU()

        def forward(self, x):
            return self.act(x.view(-1)).view(4, 4)

    traced, values = torch.fx.symbolic_trace(Net()), []
    patterns = m.PatternMatcherPass()
    act = m.CallModule(torch.nn.ReLU, m.CallMethod("view", m.KeywordArg("x"), -1))
    for pattern in (act, m.CallMethodVarArgs("view"), m.CallModuleVarArgs(torch.nn.ReLU)):
        register = m.register_graph_pattern(pattern, pass_dict=patterns)
        register(lambda match, *args, **kwargs: values.append((len(args), list(kwargs))))
    assert patterns.apply(traced) == 4
    assert sorted(values) == [(0, ["x"]), (1, []), (2, []), (3, [])]


def test_duplicates():
    patterns = m.PatternMatcherPass()
    register = (lambda x: x.relu(), lambda x: x.tanh(), [X], m.fwd_only, patterns)
    assert m.register_replacement(*register)
    assert not m.register_replacement(*register, skip_duplicates=True)
    with pytest.raises(RuntimeError, match="has this pattern already"):
        m.gen_register_replacement("relu", *register)


def test_unused_parameters_are_refused():
    patterns = m.PatternMatcherPass()
    m.register_replacement(lambda x, y: x.relu(), lambda x, y: x + y, [X, X], m.fwd_only, patterns)
    with pytest.raises(RuntimeError, match="'y' is not in the pattern"):
        patterns.apply(make_fx(lambda x: x.relu())(X))


def test_patterns_of_methods_and_lists():
    class Searcher:
        def search(self, x, y):
            return torch.cat([x, y.relu()])

    patterns = m.PatternMatcherPass()
    replace = lambda x, y: torch.cat([y, x])  # noqa: E731
    m.register_replacement(Searcher().search, replace, [X, X], m.fwd_only, patterns)
    module = make_fx(lambda x: torch.cat([x, (x + 1).relu()]))(X)
    assert patterns.apply(module) == 1
    module.recompile()
    assert torch.equal(module(X), torch.cat([X + 1, X]))


def test_complex_numbers_are_left_alone():
    patterns = m.PatternMatcherPass()
    pattern = m.CallFunction(aten.sin.default, m.Arg())
    m.register_graph_pattern(pattern, pass_dict=patterns)(lambda match, x: None)
    assert patterns.apply(make_fx(torch.sin)(X.to(torch.complex64))) == 0


def test_order_of_nodes():
    graph = make_fx(lambda x: x.relu().sin().cos())(X).graph
    nodes = list(graph.nodes)
    nodes[1].append(nodes[0])
    nodes[2].prepend(nodes[3])
    m.stable_topological_sort(graph)
    assert list(graph.nodes) == nodes
    nodes[1].args = (nodes[3],)
    with pytest.raises(AssertionError, match="circle"):
        m.stable_topological_sort(graph)


def test_regions_between_writes():
    def function(x):
        first = x.sin()
        first.mul_(2)
        return first.cos()

    graph = make_fx(function)(X).graph
    sine, product, cosine = [n for n in graph.nodes if n.op == "call_function"]
    assert m.is_mutation_op(product) and not m.is_mutation_op(sine)
    assert m.same_mutation_regions(product, cosine) and not m.same_mutation_regions(sine, cosine)


def test_registration_runs_once():
    calls = []

    @m.init_once_fakemode
    def initialise():
        calls.append(torch.ones(2))

    before = OURS.counters["inductor"].copy()
    initialise()
    initialise()
    assert len(calls) == 1 and type(calls[0]).__name__ == "FakeTensor"
    assert OURS.counters["inductor"] == before


def test_helpers():
    module = make_fx(lambda x: torch.add(x, x, alpha=2).relu())(X)
    copy = m.clone_graph(module)
    assert [n.name for n in copy.graph.nodes] == [n.name for n in module.graph.nodes]
    [add] = m.filter_nodes(copy.graph.nodes, aten.add)
    assert m.get_arg_value(add, 1) is add.args[1]
    assert m.get_arg_value(add, 2, "alpha") == 2 and m.get_arg_value(add, 5) is None
    pattern = m.fx_to_pattern(module, argnames=["value"])
    assert (
        pattern.match(m.filter_nodes(copy.graph.nodes, aten.relu)[0]).kwargs["value"].name == "x_1"
    )
    assert pattern.pattern_eq(m.fx_to_pattern(copy, argnames=["value"]))
    assert not pattern.pattern_eq(m.fx_to_pattern(copy, argnames=["other"]))
    assert repr(m.gen_pattern(torch.relu, [X], m.fwd_only)).startswith("CallFunction(aten.relu")
