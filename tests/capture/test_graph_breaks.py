"""Graph breaks of regions: which lines `fullgraph=True` accepts, what it says about others."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch

dynamo = torch._dynamo
X = torch.arange(6.0).reshape(2, 3)


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()


def sized(x):
    count = x[0, 1].long().item()
    torch._check(count >= 0)
    torch._check(count <= 3)
    return torch.zeros(count + 1) + (x + 1).sum()


# pytest makes other code of assertions in this file
CHECKED = """
def checked(x):
    y = x + 1
    assert y.sum() > 3
    return y * 2
"""
scope: dict[str, Any] = {}
exec(CHECKED, scope)
checked = scope["checked"]


def written(x):
    y = x + 1
    y[y > 3] = 0
    return y


ACCEPTED = {
    "item": lambda x: x * (x + 1).sum().item(),
    "float": lambda x: x * float((x + 1).sum()),
    "int": lambda x: x * int((x + 1).sum()),
    "bool as a number": lambda x: x * bool((x > 1).any()),
    "tolist": lambda x: torch.stack([x * v for v in (x + 1).long()[0].tolist()]),
    "numpy": lambda x: torch.from_numpy((x + 1).numpy() * 2) + x,
    "a branch on a number": lambda x: x + 1 if (x * 2).sum().item() > 3 else x - 1,
    "a size": sized,
    "arange": lambda x: torch.arange((x + 1)[0, 2].long().item()) * 2,
    "an assertion": checked,
    "nonzero": lambda x: ((x + 1) > 2).nonzero() * 2 + 1,
    "where": lambda x: torch.where((x + 1) > 2)[1] * 2,
    "argwhere": lambda x: torch.argwhere((x + 1) > 2) + 1,
    "masked_select": lambda x: torch.masked_select(x, x + 1 > 2).sum() * 2,
    "a mask": lambda x: (x + 1)[x + 1 > 2] * 2,
    "a mask that is written": written,
    "unique": lambda x: (x + 1).long().unique() * 2,
    "bincount": lambda x: torch.bincount((x + 1).long().reshape(-1)) * 2,
    "repeat_interleave": lambda x: torch.repeat_interleave(x[0], (x[0] + 1).long()) * 2,
    "cond": lambda x: torch.cond((x + 1).sum() > 3, torch.sin, torch.cos, (x,)) * 2,
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_numbers_that_python_reads_are_no_breaks(name):
    function = ACCEPTED[name]
    compiled = torch.compile(function, fullgraph=True)
    for x in (X, X + 1, X):
        assert torch.equal(compiled(x), function(x))


def test_writes_to_views_of_arguments_are_no_breaks():
    def f(x):
        y = x.sin()
        x.add_(1)
        x[0].mul_(2)
        return y.sum() + x * x[1]

    results = []
    for function in (f, torch.compile(f, fullgraph=True)):
        for _ in range(2):
            x = X.clone()
            results.append((function(x), x))
    for result, x in results[1:]:
        assert torch.equal(result, results[0][0]) and torch.equal(x, results[0][1])


def test_gradients_go_through_numbers_and_masks():
    def f(x):
        y = x * x
        z = y[y > 2] * y.sum().item()
        return z.sin().sum() + torch.masked_select(y, y > 5).exp().sum() * 1e-3

    gradients = []
    for function in (f, torch.compile(f, fullgraph=True)):
        x = X.clone().requires_grad_()
        gradients.append(torch.autograd.grad(function(x), x)[0])
    assert torch.equal(*gradients)


def branching(x):
    return x + 1 if (x * 2).sum() > 3 else x


def repeating(x):
    while x.sum() < 100:
        x = x * 2 + 1
    return x


def negated(x):
    return x + (not (x + 1).sum())


def breaking(x):
    y = x + 1
    dynamo.graph_break("the reason")
    return y


def printing(x):
    print(x + 1)
    return x


@torch.compiler.disable(reason="it is slow")
def eager(x):
    return x + 1


REFUSED = {
    branching: "branches on data.*\nhint: torch.cond",
    repeating: "branches on data",
    negated: "branches on data",
    breaking: "calls torch._dynamo.graph_break.*the reason\nhint: drop the call",
    printing: "prints a tensor\nhint: ",
    lambda x: eager(x) * 2: "runs eagerly: it is slow\nhint: ",
    lambda x: [row for row in x if row.sum() > 0][0]: "branches on data",
    lambda x: (x + 1).sum() > 0 and x: "branches on data",
}


@pytest.mark.parametrize("function", REFUSED)
def test_breaks_are_refused_with_their_line(function):
    before = X.clone()
    for _ in range(2):
        with pytest.raises(dynamo.exc.Unsupported) as caught:
            torch.compile(function, fullgraph=True)(X)
        line = str(caught.value).splitlines()[0]
        assert line.startswith("[compile] fullgraph=True, but ")
        assert "test_graph_breaks.py:" in line
        caught.match(REFUSED[function])
    assert not torch.compiler.is_compiling() and torch.equal(X, before)
    assert torch.equal(torch.compile(function)(X), function(X))


error_on = dynamo.error_on_graph_break


def stop():
    dynamo.graph_break()


def permitted(x):
    with error_on(False):
        stop()
    return x + 1


def refused(x):
    with error_on(True):
        stop()
    return x + 1


def permitted_inside(x):
    with error_on(True):
        with error_on(False):
            stop()
        return x + 1


def refused_inside(x):
    with error_on(False), error_on(True):
        stop()
    return x + 1


@error_on(False)
def decorated(x):
    stop()
    return x + 1


def left_again(x):
    with error_on(True):
        y = decorated(x) * 2
    stop()
    return y


# function: whether it raises without fullgraph; with it all do
NESTED = {permitted: False, refused: True, permitted_inside: False, refused_inside: True,
          decorated: False, left_again: False}  # fmt: skip


BACKENDS = ("inductor", "eager", "aot_eager")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", NESTED)
def test_the_innermost_block_decides(function, backend):
    if NESTED[function]:
        with pytest.raises(dynamo.exc.Unsupported, match="error_on_graph_break"):
            torch.compile(function, backend=backend)(X)
    else:
        assert torch.equal(torch.compile(function, backend=backend)(X), function(X))
    with pytest.raises(dynamo.exc.Unsupported, match="fullgraph=True"):
        torch.compile(function, fullgraph=True, backend=backend)(X)
    function(X)  # uncompiled code has no graph


@pytest.mark.parametrize("backend", BACKENDS)
def test_blocks_around_a_compiled_function(backend):
    with pytest.raises(dynamo.exc.Unsupported):
        error_on(True)(torch.compile(breaking, backend=backend))(X)
    with pytest.raises(dynamo.exc.Unsupported):
        error_on(False)(torch.compile(breaking, fullgraph=True, backend=backend))(X)
    assert torch.equal(torch.compile(breaking, backend=backend)(X), X + 1)
    assert torch.equal(error_on(True)(torch.compile(torch.sin, backend=backend))(X), X.sin())


@pytest.mark.parametrize("backend", BACKENDS)
def test_code_in_and_behind_blocks_computes_the_same(backend):
    def mixed(x, log):
        with error_on(True):
            y = (x * 3).sin()
            log.append(y)
            x.add_(1)
        stop()
        log.append((y > 0).sum().item())
        if y.sum() > -100:  # a branch outside of the block
            y = y * x
        with pytest.raises(KeyError), error_on(True):
            log.append(y + 1)
            raise KeyError
        return y.sum()

    results = []
    for function in (mixed, torch.compile(mixed, backend=backend)):
        x, log = X.clone().requires_grad_(), []
        data = x * 1
        loss = function(data, log)
        loss.backward()
        results.append([loss, x.grad, data, *log])
    for expected, actual in zip(*results, strict=True):
        assert torch.equal(*map(torch.as_tensor, (expected, actual)))


@pytest.mark.parametrize("function", REFUSED)
def test_every_break_is_refused_in_blocks_of_uncompiled_functions(function):
    with pytest.raises(dynamo.exc.Unsupported) as caught:
        torch.compile(lambda x: error_on(True)(function)(x), backend="eager")(X)
    line = str(caught.value).splitlines()[0]
    assert line.startswith("[compile] error_on_graph_break(True), but ")
    assert "test_graph_breaks.py:" in line
    caught.match(REFUSED[function])
    assert not torch.compiler.is_compiling()


class Layer(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(size), torch.nn.Linear(size, size)

    def forward(self, x):
        return x + torch.nn.functional.gelu(self.linear(self.norm(x)))


def test_equal_regions_are_compiled_once():
    layers = torch.nn.ModuleList(Layer(8) for _ in range(6))

    @torch.compiler.nested_compile_region
    def layer(module, x):
        return module(x)

    def nested(x):
        for module in layers:
            x = layer(module, x)
        return x * 2

    def plain(x):
        for module in layers:
            x = module(x)
        return x * 2

    x = torch.randn(3, 8)
    with torch.no_grad():
        report = torch.compiler.explain(nested, x)
        assert report.plans == 2  # of a layer, and of what follows
        assert torch.equal(torch.compile(nested, fullgraph=True)(x), plain(x))

    def step(function):
        layers.zero_grad()
        loss = function(x).square().sum()
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in layers.parameters())]

    expected = step(plain)
    for _ in range(2):
        found = step(torch.compile(nested, fullgraph=True))
        assert all(map(torch.equal, found, expected))
    assert torch.equal(nested(x), plain(x))
    with pytest.raises(TypeError):
        torch.compiler.nested_compile_region(3)
