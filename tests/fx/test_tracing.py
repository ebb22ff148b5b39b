"""What was traced computes what the program computes: bit for bit, by every way of running it."""

from __future__ import annotations

import copy
import operator
import pickle

import pytest

import flambeau as torch
from flambeau import fx, nn
from tests.fx.programs import programs

PROGRAMS = programs(torch)
RANDOM = ("branch training",)
CALLED_WITH_NAMES = {"varargs": {"factor": 3}}
TRACED = [name for name in PROGRAMS if name != "leaf"]


def same(left, right):
    """Whether two results are equal, element by element."""
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def run(program, inputs, named):
    torch.manual_seed(0)
    return program(*inputs, **named)


@pytest.mark.parametrize("name", TRACED)
def test_traced_programs_compute_the_same(name):
    program, inputs = PROGRAMS[name]
    named = CALLED_WITH_NAMES.get(name, {})
    traced = fx.symbolic_trace(program)
    traced.graph.lint()
    expected = run(program, inputs, named)
    assert same(expected, run(traced, inputs, named))
    assert same(expected, run(copy.deepcopy(traced), inputs, named))
    assert same(expected, run(copy.copy(traced), inputs, named))
    if not named:
        assert same(expected, run(fx.Interpreter(traced).run, inputs, {}))
        transformed = fx.Transformer(traced).transform()
        assert transformed.code.count("\n") == traced.code.count("\n")
        assert same(expected, run(transformed, inputs, {}))


@pytest.mark.parametrize("name", [n for n in TRACED if n not in ("annotated", "leaf")])
def test_pickles(name):
    program, inputs = PROGRAMS[name]
    named = CALLED_WITH_NAMES.get(name, {})
    traced = fx.symbolic_trace(program)
    again = pickle.loads(pickle.dumps(traced))
    assert again.code == traced.code
    assert same(run(traced, inputs, named), run(again, inputs, named))
    assert again.state_dict().keys() == traced.state_dict().keys()


def test_compiled_graph_modules_equal_the_program():
    program, inputs = PROGRAMS["stack"]
    traced = fx.symbolic_trace(program)
    assert same(program(*inputs), torch.compile(traced)(*inputs))


def test_gradients_reach_the_parameters():
    program, inputs = PROGRAMS["block"]
    traced = fx.symbolic_trace(program)
    program(*inputs).sum().backward()
    expected = [p.grad.clone() for p in program.parameters()]
    program.zero_grad()
    traced(*inputs).sum().backward()
    assert all(map(torch.equal, expected, [p.grad for p in traced.parameters()]))
    program.zero_grad()


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (lambda x: 1 if x > 0 else 2, fx.proxy.TraceError, "inputs to control flow"),
        (lambda x: [y for y in x], fx.proxy.TraceError, "Proxy object cannot be iterated"),
        (lambda x: x.__len__(), RuntimeError, "'len' is not supported in symbolic tracing"),
        (lambda x: dict(**x), fx.proxy.TraceError, "Proxy object cannot be iterated"),
        (lambda x: x.foo(object()), NotImplementedError, "argument of type"),
        (lambda x: x.foo({x: 1}), RuntimeError, "cannot contain a Node"),
    ],
)
def test_what_depends_on_values_raises(function, error, text):
    with pytest.raises(error, match=text):
        fx.symbolic_trace(function)


def test_modules_are_as_before_when_a_trace_fails():
    before = nn.Module.__call__, nn.Module.__getattr__
    with pytest.raises(fx.proxy.TraceError):
        fx.symbolic_trace(lambda x: 1 if x > 0 else 2)
    assert (nn.Module.__call__, nn.Module.__getattr__) == before
    assert "__call__" in vars(nn.Module) and "__getattr__" not in vars(nn.Module)


def test_concrete_arguments():
    def choose(x, flag, names=None):
        return x if flag else -x

    traced = fx.symbolic_trace(choose, concrete_args={"flag": True, "names": None})
    assert same(traced(torch.ones(1), True), torch.ones(1))
    with pytest.raises(AssertionError, match="flag has been specialized to have value True"):
        traced(torch.ones(1), False)
    with pytest.raises(AssertionError, match="names has been specialized to have value None"):
        traced(torch.ones(1), True, 1)


def test_containers_of_inputs():
    def both(inputs):
        return {"sum": inputs["a"] + inputs["b"][0]}

    traced = fx.symbolic_trace(both, concrete_args={"inputs": {"a": fx.PH, "b": [fx.PH]}})
    inputs = {"a": torch.ones(1), "b": [torch.ones(1)]}
    assert same(traced(inputs), both(inputs))
    assert same(fx.Interpreter(traced).run(inputs), both(inputs))
    assert same(copy.deepcopy(traced)(inputs), both(inputs))
    assert same(pickle.loads(pickle.dumps(traced))(inputs), both(inputs))


def helper(x, y):
    """Would not be traceable inside."""
    return x + 1 if x.sum() > 0 else y


fx.wrap("helper")
fx.wrap("len")


def calls_helper(x):
    return helper(x, x * 2) * len(x)


def test_wrapped_functions_are_one_node():
    traced = fx.symbolic_trace(calls_helper)
    assert [n.name for n in traced.graph.nodes] == [
        "x",
        "mul",
        "helper",
        "len_1",
        "mul_1",
        "output",
    ]
    assert same(traced(torch.ones(2)), calls_helper(torch.ones(2)))
    with pytest.raises(NotImplementedError, match="top level of a module"):
        fx.wrap("other")


class Whole(fx.Tracer):
    """Nothing is a leaf."""

    def is_leaf_module(self, m, module_qualified_name):
        return False


def test_modules_of_nn_can_be_traced_inside():
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Dropout(0.1), nn.Hardtanh()).eval()
    graph = Whole().trace(model)
    kinds = {n.op for n in graph.nodes}
    assert kinds == {"placeholder", "get_attr", "call_function", "output"}
    x = torch.randn(2, 4)
    assert same(fx.GraphModule(model, graph)(x), model(x))


class Names(fx.Tracer):
    """Remembers which module each node comes from, as feature extractors do."""

    def __init__(self):
        super().__init__()
        self.paths = {}

    def call_module(self, m, forward, args, kwargs):
        before, self.current = getattr(self, "current", ""), self.path_of_module(m)
        try:
            return super().call_module(m, forward, args, kwargs)
        finally:
            self.current = before

    def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, *rest):
        proxy = super().create_proxy(kind, target, args, kwargs, name, type_expr)
        self.paths[proxy.node.name] = getattr(self, "current", "")
        return proxy


def test_subclasses_see_modules_and_nodes():
    model, inputs = PROGRAMS["block"]
    tracer = Names()
    graph = tracer.trace(model)
    assert tracer.paths["layers_0"] == "layers.0" and tracer.paths["add"] == ""
    assert same(fx.GraphModule(tracer.root, graph)(*inputs), model(*inputs))
    assert [*graph.nodes][2].meta["nn_module_stack"]["layers"][0] == "layers"


class Length(fx.Proxy):
    """A proxy with a length, as tracers of language models have."""

    def __len__(self):
        return 3

    def __iter__(self):
        return iter([self[0], self[1], self[2]])


class Lengths(fx.Tracer):
    def proxy(self, node):
        return Length(node, self)

    def to_bool(self, obj):
        return True


def test_proxies_of_ones_own():
    graph = Lengths().trace(lambda x: sum(x) * len(x) if x.sum() > 0 else x)
    module = fx.GraphModule(nn.Module(), graph)
    assert same(module(torch.arange(3.0)), torch.tensor(9.0))


def test_parameters_with_known_shapes():
    class Square(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(2, 2))

        def forward(self, x):
            return x @ self.w if self.w.shape[0] == self.w.size(1) else x

    graph = fx.Tracer(param_shapes_constant=True).trace(Square())
    assert "get_attr" in {n.op for n in graph.nodes}
    with pytest.raises(fx.proxy.TraceError):
        fx.Tracer().trace(Square())


def test_tensor_methods_are_told_from_functions():
    t = torch.ones(2)
    graph = fx.symbolic_trace(lambda x: (t + x, torch.add(t, x), t.add(x), t[x > 0], t * x)).graph
    calls = [(n.op, n.target) for n in graph.nodes if n.op.startswith("call")]
    assert calls == [
        ("call_method", "add"),
        ("call_function", torch.add),
        ("call_method", "add"),
        ("call_function", operator.gt),
        ("call_method", "__getitem__"),
        ("call_method", "mul"),
    ]
