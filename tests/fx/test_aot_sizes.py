"""`aot_function(dynamic=True)`: graphs of forward and backward whose sizes are symbols."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau._functorch.aot_autograd import aot_function, aot_module
from flambeau._functorch.partitioners import min_cut_rematerialization_partition
from flambeau.nn import functional


class Graphs:
    """A compiler that stores graphs and runs them as they are."""

    def __init__(self):
        self.modules = []

    def __call__(self, module, inputs):
        self.modules.append(module)
        return module


def matrix(n, m=3):
    return (torch.arange(n * m) * 0.37 - 1).sin().reshape(n, m)


W = matrix(3, 4)
PROGRAMS = {
    "pointwise": lambda x: x.sin() * x.shape[0] + x.shape[1],
    "product": lambda x: functional.gelu(x @ W) @ W.T,
    "joined": lambda x: torch.cat([x, x[1:]]).tanh().mean(0),
    "reshaped": lambda x: x.reshape(-1).softmax(0) * x.numel(),
    "normalized": lambda x: functional.layer_norm(x, (3,)) / x.shape[0],
    "slices": lambda x: (x[: x.shape[0] // 2] * 2, x[-1].exp()),
    "squares": lambda x: (x @ x.T).relu().sum(1),
    "attention": lambda x: functional.scaled_dot_product_attention(*[x[None, None]] * 3),
    "reductions": lambda x: (x - x.amax(0)).exp().sum(0, keepdim=True).log() + x.std(0),
    "loss": lambda x: functional.cross_entropy(x, torch.zeros(x.shape[0], dtype=torch.int64)),
    "repeated": lambda x: x.repeat(2, 1).cumsum(0)[:, None].expand(-1, 2, -1),
    "views": lambda x: x.t().unsqueeze(0).flatten(1) * x.view(-1),
}


def values(function, x):
    results = torch.utils._pytree.tree_leaves(function(x))
    if not x.requires_grad:
        return results
    loss = sum((y * y).sum() for y in results)
    return [*results, torch.autograd.grad(loss, x)[0]]


@pytest.mark.parametrize("partition", [None, min_cut_rematerialization_partition])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_for_all_sizes(name, training, partition):
    function, compiler = PROGRAMS[name], Graphs()
    options = {} if partition is None else {"partition_fn": partition}
    compiled = aot_function(function, compiler, dynamic=True, **options)
    for n in (4, 6, 7, 9):
        x = matrix(n).requires_grad_(training)
        expected = values(aot_function(function, Graphs(), **options), x)
        for one, two in zip(values(compiled, x), expected, strict=True):
            assert torch.equal(one, two) and one.stride() == two.stride()
    assert len(compiler.modules) == (2 if training else 1)


def test_guards_choose_the_graph():
    compiler = Graphs()
    compiled = aot_function(
        lambda x: x.sin() if x.shape[0] > 5 else x.cos(), compiler, dynamic=True
    )
    for n in (4, 5, 6, 7, 4, 1, 1):
        x = matrix(n)
        assert torch.equal(compiled(x), x.sin() if n > 5 else x.cos())
    assert len(compiler.modules) == 3
    assert torch.equal(compiled(matrix(4).double()), matrix(4).double().cos())
    assert torch.equal(compiled(matrix(4)[None]), matrix(4)[None].cos())  # another rank
    assert torch.equal(compiled(matrix(3, 8).t()), matrix(3, 8).t().sin())  # other strides
    assert len(compiler.modules) == 6


def test_integers_and_containers():
    compiler = Graphs()
    compiled = aot_function(
        lambda x, n, named: {"y": (x * n).sum(0) + named["z"][0], "n": n + 1},
        compiler,
        dynamic=True,
    )
    for n in (5, 6, 7):
        result = compiled(matrix(n), n + 4, {"z": [matrix(1)[0]]})
        assert torch.equal(result["y"], (matrix(n) * (n + 4)).sum(0) + matrix(1)[0])
        assert result["n"] == n + 5
    assert len(compiler.modules) == 1


def test_arguments_that_are_written():
    compiler = Graphs()
    compiled = aot_function(lambda x: x.mul_(x.shape[0]).sum(), compiler, dynamic=True)
    for n in (5, 4):
        x, y = matrix(n), matrix(n)
        assert torch.equal(compiled(x), y.mul_(n).sum()) and torch.equal(x, y)
    assert len(compiler.modules) == 1
    view = aot_function(lambda x: x.add_(1)[: x.shape[0] // 2], Graphs(), dynamic=True)
    with pytest.raises(NotImplementedError, match="a view of a written argument"):
        view(matrix(4))


def test_a_module():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.ReLU(), torch.nn.Linear(5, 2)
    ).eval()
    compiler = Graphs()
    compiled = aot_module(model, compiler, dynamic=True)
    for n in (4, 5, 6):
        compiled.zero_grad()
        compiled(matrix(n)).square().mean().backward()
        first = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model(matrix(n)).square().mean().backward()
        for grad, p in zip(first, model.parameters(), strict=True):
            assert torch.allclose(grad, p.grad, rtol=1e-5, atol=1e-6)
    assert len(compiler.modules) == 2
