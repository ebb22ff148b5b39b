"""Graphs of operators beside PyTorch's: nodes, names, operators and what reads what."""

from __future__ import annotations

import importlib

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")
for library in ("torch", "flambeau"):
    for module in ("_functorch.aot_autograd", "fx.experimental.proxy_tensor"):
        importlib.import_module(f"{library}.{module}")


def tensor(library, *shape, grad=False):
    """Small numbers of a shape, equal in both libraries."""
    count = 1
    for size in shape:
        count *= size
    x = (library.arange(float(count)) * 0.37 - 1).sin().reshape(shape)
    return x.requires_grad_(grad)


def programs(library):
    """name: (function, arguments)"""
    functional = library.nn.functional
    x, w = tensor(library, 3, 4), tensor(library, 4, 4, grad=True)
    image, taps = tensor(library, 1, 3, 8, 8), tensor(library, 4, 3, 3, 3)
    constant = tensor(library, 4)
    library.manual_seed(0)
    layers = library.nn
    model = layers.Sequential(layers.Linear(4, 8), layers.LayerNorm(8), layers.GELU())

    def gradient(x, w):
        loss = functional.linear(x, w).relu().sum()
        return (loss, *library.autograd.grad(loss, w))

    def step(x):
        loss = model(x).tanh().sum()
        return library.autograd.grad(loss, list(model.parameters()))

    def second(x):
        w = x.clone().requires_grad_()
        (first,) = library.autograd.grad((w**3).sum(), w, create_graph=True)
        return library.autograd.grad(first.sum(), w)

    def containers(d):
        return {"a": d["x"].max(0), "b": [d["y"] + 1]}

    return {
        "gradient": (gradient, (x, w)),
        "module": (model, (x,)),
        "step": (step, (x,)),
        "second": (second, (x,)),
        "containers": (containers, ({"x": x, "y": x},)),
        "constants": (lambda x: x + constant + library.tensor([1.0, 2, 3, 4]), (x,)),
        "in place": (lambda x: x.clone().add_(1).mul_(x), (x,)),
        "views": (lambda x: x[:, 1:3].t().reshape(-1) + x.view(-1)[:6], (x,)),
        "joined": (lambda x: library.cat([*x.split(2, 1), x], 1).chunk(2, 0), (x,)),
        "loss": (
            lambda x: functional.cross_entropy(x, library.tensor([0, 1, 2])),
            (x,),
        ),
        "convolution": (lambda x, w: functional.conv2d(x, w, padding=1).relu(), (image, taps)),
        "attention": (
            lambda q: functional.scaled_dot_product_attention(q, q, q, is_causal=True),
            (tensor(library, 1, 2, 8, 4),),
        ),
        "embedding": (
            lambda w: functional.embedding(library.tensor([0, 1]), w).softmax(-1).log(),
            (w,),
        ),
        "dtypes": (lambda x: x.sum(1, keepdim=True).to(library.float64).mean(), (x,)),
    }


def facts(graph):
    """Nodes as texts: the name, what it calls, and the nodes it reads."""
    return [
        (node.op, node.name, str(node.target), [each.name for each in node.all_input_nodes])
        for node in graph.nodes
    ]


@pytest.mark.parametrize("name", programs(torch))
def test_make_fx(name):
    graphs = []
    for library in (flambeau, torch):
        function, args = programs(library)[name]
        graphs.append(library.fx.experimental.proxy_tensor.make_fx(function)(*args).graph)
    assert facts(graphs[0]) == facts(graphs[1])


def compiled(library):
    """Graphs of forward and backward of a few functions, as `aot_function` gives them."""
    graphs = []

    def keep(module, inputs):
        graphs.append(facts(module.graph))
        return module

    functional = library.nn.functional
    x, w = tensor(library, 3, 4), tensor(library, 4, 4, grad=True)
    functions = (
        lambda x, w: functional.linear(x, w).relu().sum(),
        lambda x, w: (x @ w).softmax(-1).max(0),
        lambda x, w: [functional.gelu(x * w[:3]).exp(), x + 1],
        lambda x, w: functional.layer_norm(x @ w, (4,)).sigmoid(),
    )
    for function in functions:
        results = library._functorch.aot_autograd.aot_function(function, keep)(x, w)
        first = results if isinstance(results, library.Tensor) else results[0]
        first.sum().backward()
    return graphs


def test_aot_function():
    assert compiled(flambeau) == compiled(torch)
