"""`torch.func.functionalize` under `make_fx`: graphs without writes, of the same results."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau._subclasses.functional_storage import VIEWS
from flambeau.fx.experimental.proxy_tensor import make_fx
from tests.fx.functional_programs import programs

X = torch.arange(12.0).reshape(3, 4) / 7 - 0.8
REMOVED = ("mutations", "mutations_and_views")


def recorded(function, *args, remove="mutations", mode="real"):
    functional = torch.func.functionalize(function, remove=remove)
    return make_fx(functional, tracing_mode=mode)(*args)


def operators(module):
    return [node.target for node in module.graph.nodes if node.op == "call_function"]


def writes(module):
    """Operators that write, but for the copies into arguments at the end."""
    names = [getattr(target, "__name__", "") for target in operators(module)]
    while names and names[-1] == "copy_.default":
        names.pop()
    return [name for name in names if name.partition(".")[0].endswith("_")]


def same(results, expected):
    pairs = zip(*map(torch.utils._pytree.tree_leaves, (results, expected)), strict=True)
    return all(a is b or (torch.equal(a, b) and a.dtype == b.dtype) for a, b in pairs)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("remove", REMOVED)
@pytest.mark.parametrize("name", programs(torch))
def test_graphs_do_what_functions_do(name, remove, mode):
    function, args = programs(torch)[name]
    before = [x.clone() for x in args]
    module = recorded(function, *before, remove=remove, mode=mode)
    assert not writes(module)
    for scale in (1.0, 0.5):
        ours, theirs = [x * scale for x in args], [x * scale for x in args]
        assert same(module(*ours), function(*theirs))
        assert same(ours, theirs)


@pytest.mark.parametrize("name", programs(torch))
def test_graphs_without_views(name):
    function, args = programs(torch)[name]
    module = recorded(function, *[x.clone() for x in args], remove="mutations_and_views")
    names = {target.__name__.partition(".")[0] for target in operators(module)
             if hasattr(target, "overloadpacket")}  # fmt: skip
    assert not names & (VIEWS.keys() - {"_unsafe_view"})


def test_where_nothing_records_the_function_runs_as_it_is():
    def written(x):
        x.add_(1)
        return x.view(-1)

    x = X.clone()
    y = torch.func.functionalize(written)(x)
    assert torch.equal(x, X + 1) and y.data_ptr() == x.data_ptr()


def test_recording_writes_the_arguments_once():
    x = X.clone()
    recorded(lambda x: x.mul_(2), x)
    assert torch.equal(x, X * 2)
    y = X.clone()
    recorded(lambda x: x.mul_(2), y, mode="fake")
    assert torch.equal(y, X)


def test_gradients_of_and_inside_of_functions_that_write():
    def written(x):
        y = x.clone()
        y[0].mul_(x[1])
        return y.sin().sum()

    module = recorded(torch.func.grad(written), X)
    assert same(module(X * 2), torch.func.grad(written)(X * 2)) and not writes(module)


def test_what_is_refused():
    other = X.clone()
    with pytest.raises(RuntimeError, match="no input of the function"):
        recorded(lambda x: other.add_(x), X)
    with pytest.raises(NotImplementedError, match="memory another input shares"):
        recorded(lambda x, y: x.add_(1).view(4, 3) + y, other, other.view(4, 3))
    with pytest.raises(NotImplementedError, match="windows share elements"):
        recorded(lambda x: x.clone().unfold(1, 2, 1).add_(1), X)
    with pytest.raises(RuntimeError, match="remove"):
        torch.func.functionalize(lambda x: x, remove="views")


def test_inputs_that_share_memory_may_be_read():
    module = recorded(lambda x, y: x.t() + y.view(4, 3), X, X.view(-1))
    assert same(module(X, X.view(-1)), X.t() + X.view(4, 3))
