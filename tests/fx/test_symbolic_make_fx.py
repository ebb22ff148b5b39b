"""`make_fx(tracing_mode="symbolic")`: graphs that hold for sizes they were not made with."""

from __future__ import annotations

import math
import operator

import pytest

import flambeau as torch
from flambeau._subclasses import FakeTensorMode
from flambeau.fx.experimental import proxy_tensor
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.fx.experimental.symbolic_shapes import (
    GuardOnDataDependentSymNode,
    ShapeEnv,
    free_symbols,
    guard_or_false,
    has_free_unbacked_symbols,
    is_symbolic,
    statically_known_true,
)
from tests.fx.symbolic_programs import OTHER_SIZES, programs

X = torch.arange(20.0).reshape(5, 4) / 7 - 1.3


def recorded(function, *args):
    return make_fx(function, tracing_mode="symbolic")(*args)


def same(results, expected):
    pairs = zip(*map(torch.utils._pytree.tree_leaves, (results, expected)), strict=True)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


@pytest.mark.parametrize("name", programs(torch))
def test_graphs_hold_for_other_sizes(name):
    function, args = programs(torch)[name]
    module = recorded(function, *args)
    sizes = OTHER_SIZES.get(name, ((5, 4), (7, 6), (12, 3), (4, 9)))
    for rows, columns in ((5, 4), *sizes):
        _, others = programs(torch, rows, columns)[name]
        assert same(module(*others), function(*others)), (rows, columns)
        tensors = [x for x in others if isinstance(x, torch.Tensor)]
        held = [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]
        assert module.shape_env.evaluate_guards_for_args(held, others), (rows, columns, tensors)


def test_guards_say_for_which_sizes_a_graph_holds():
    module = recorded(lambda x: x * 2 if x.shape[0] > 2 else x, X)
    held = [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]
    assert [str(guard.expr) for guard in module.shape_env.guards] == ["3 <= s0"]
    assert module.shape_env.evaluate_guards_for_args(held, [torch.ones(3, 9)])
    assert not module.shape_env.evaluate_guards_for_args(held, [torch.ones(2, 9)])
    assert not module.shape_env.evaluate_guards_for_args(held, [torch.ones(5, 1)])
    lines = module.shape_env.produce_guards(held, ["x"])
    assert lines[:2] == ["2 <= x.size()[0]", "2 <= x.size()[1]"]
    assert lines[-1] == "3 <= x.size()[0]"
    code = module.shape_env.produce_guards_expression(held)
    assert module.shape_env.evaluate_guards_expression(code, [torch.ones(3, 9)])
    assert not module.shape_env.evaluate_guards_expression(code, [torch.ones(2, 9)])


def test_sizes_of_nodes_are_symbols():
    module = recorded(lambda x: (x.t() @ x).sum(0), X)
    values = {n.name: n.meta["val"] for n in module.graph.nodes if n.op != "output"}
    assert str(values["x_1"].shape) == "torch.Size([s0, s1])"
    assert str(values["t"].shape) == "torch.Size([s1, s0])"
    assert str(values["mm"].shape) == "torch.Size([s1, s1])"
    assert isinstance(values["sum_1"].shape[0], torch.SymInt)
    assert free_symbols(values["sum_1"]) and is_symbolic(values["sum_1"].shape[0])


def test_sizes_of_zero_and_one_are_numbers_and_equal_sizes_one_symbol():
    module = recorded(lambda x, y: x + y, torch.ones(1, 5), torch.ones(5, 5))
    shapes = [n.meta["val"].shape for n in module.graph.nodes if n.op == "placeholder"]
    assert str(shapes) == "[torch.Size([1, s0]), torch.Size([s0, s0])]"


def test_numbers_of_python_are_taken_from_the_example_and_guarded():
    module = recorded(lambda x: [x[k] for k in range(x.shape[0])], X)
    assert [str(guard) for guard in module.shape_env.guards] == ["s0 == 5"]
    seen = []

    def used(x):
        seen.append([0] * x.shape[1])
        return x * math.log(x.shape[0])

    module = recorded(used, X)
    assert len(seen[0]) == 4
    assert {str(guard) for guard in module.shape_env.guards} == {"s0 == 5", "s1 == 4"}


def test_integers_among_the_arguments_are_symbols():
    module = recorded(lambda x, n: x.repeat(n, 1) * n, X, 3)
    assert torch.equal(module(X, 6), X.repeat(6, 1) * 6)


def test_data_decide_sizes():
    module = recorded(lambda x: x[x > 0], X)
    value = next(n.meta["val"] for n in module.graph.nodes if n.name == "index")
    assert str(value.shape) == "torch.Size([u0])" and has_free_unbacked_symbols(value)
    with pytest.raises(GuardOnDataDependentSymNode, match="data-dependent"):
        recorded(lambda x: x if x[x > 0].shape[0] > 3 else -x, X)
    module = recorded(lambda x: x if guard_or_false(x[x > 0].shape[0] == 3) else -x, X)
    assert torch.equal(module(X), -X)


def test_checks_of_numbers_that_data_decide():
    def counted(x):
        n = (x > 0).sum().item()
        torch._check(n >= 0)
        torch._check(n < 100)
        assert statically_known_true(n < 200)
        return torch.zeros(n, 2)

    module = recorded(counted, X)
    assert module(X).shape == counted(X).shape
    asserts = module.shape_env.deferred_runtime_asserts["u0"]
    assert [str(entry.expr) for entry in asserts] == ["0 <= u0", "u0 <= 99"]

    def equal(x):
        n = (x > -100).sum().item()
        torch._check(n == x.numel())
        return torch.ones(n) + x.flatten()

    assert same(recorded(equal, X)(X * 2), equal(X * 2))


def test_arithmetic_of_sizes():
    env = ShapeEnv()
    n = env.create_symintnode(env.create_symbol(6, source="n"), hint=6)
    m = env.create_symintnode(env.create_symbol(7, source="m"), hint=7)
    expressions = {
        "2*s0 + 1": 2 * n + 1, "s0*s1": n * m, "s0//2": n // 2, "s0 % 4": n % 4, "-s0": -n,
        "max(s0, s1)": torch.sym_max(n, m), "min(4, s0)": torch.sym_min(4, n), "4*s0": n << 2,
        "(s0 / s1)": n / m, "sym_float(s0)": torch.sym_float(n), "6 - s0": 6 - n,
    }  # fmt: skip
    assert {str(x): text for text, x in expressions.items()} == {x: x for x in expressions}
    values = {"2*s0 + 1": 13, "s0 % 4": 2, "(s0 / s1)": 6 / 7, "-s0": -6}
    for text, value in values.items():
        assert expressions[text].node.hint == value
    assert not env.guards and n * 1 is n and (n - n) == 0
    assert isinstance(n > 3, torch.SymBool) and isinstance(n / 2, torch.SymFloat)
    assert bool((n > 3) & (m < 9)) and int(n & 3) == 2 and math.floor(n / 4) == 1
    assert operator.index(n) == 6 and n + 1 == 7
    with pytest.raises(TypeError, match="unhashable"):
        hash(m)


def test_sizes_of_tensors_that_are_written():
    def turned(x):
        y = x.clone()
        y.t_().unsqueeze_(0)
        return torch.zeros(y.shape) + y.nbytes

    assert same(recorded(turned, X)(X[:3]), turned(X[:3]))
    with pytest.raises(NotImplementedError, match="changes sizes"):
        recorded(lambda x: x.clone().resize_(3), X)


def test_the_mode_that_records():
    modes = []

    def asking(x):
        modes.append(proxy_tensor.get_proxy_mode())
        with proxy_tensor.disable_proxy_modes_tracing():
            modes.append(proxy_tensor.get_proxy_mode())
        return x + 1

    recorded(asking, X)
    assert isinstance(modes[0], proxy_tensor.ProxyTorchDispatchMode) and modes[1] is None
    assert proxy_tensor.get_proxy_mode() is None


def test_a_mode_of_fake_tensors_with_symbols():
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    x = mode.from_tensor(X)
    with mode:
        y = torch.cat([x, x]).view(-1, 2)
    assert str(tuple(y.shape)) == "(s0*s1, 2)" and len(env.guards) == 0
    assert mode.from_tensor(X, static_shapes=True) is x


def test_a_training_step():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    def step(x, y):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        return (loss, *torch.autograd.grad(loss, list(model.parameters())))

    module = recorded(step, X, torch.tensor([0, 1, 0, 1, 1]))
    for rows in (5, 9):
        x, y = torch.ones(rows, 4).cumsum(0) / 10, torch.arange(rows) % 2
        assert same(module(x, y), step(x, y))


def test_functionalized_programs_have_symbols_too():
    def written(x):
        x[0].mul_(x.shape[0])
        return x.view(-1).add_(1)

    module = make_fx(torch.func.functionalize(written), tracing_mode="symbolic")(X.clone())
    for rows, columns in ((5, 4), (3, 7)):
        one, other = torch.ones(rows, columns), torch.ones(rows, columns)
        assert torch.equal(module(one), written(other)) and torch.equal(one, other)
