"""Derivatives of gradients of small networks: PyTorch's numbers, and the same bits eager or
compiled, on one thread or two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import flambeau
from tests.capture.conftest import same_bits

oracle = pytest.importorskip("torch")

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    """Tests change the number of threads."""
    before = flambeau.get_num_threads()
    yield
    flambeau.set_num_threads(before)


def mlp(torch: Any, x: Any, w: Any, v: Any) -> Any:
    """A linear layer, a gelu, a norm over the features, a linear layer."""
    functional = torch.nn.functional
    return functional.layer_norm(functional.gelu(functional.linear(x, w)), (8,)) @ v


def convolution(torch: Any, x: Any, w: Any, scale: Any) -> Any:
    """A convolution, a norm over the batch, a relu."""
    functional = torch.nn.functional
    h = functional.conv2d(x, w, padding=1)
    return functional.relu(functional.batch_norm(h, None, None, scale, training=True))


def attention(torch: Any, x: Any, w: Any, v: Any) -> Any:
    """Softmax attention of one head with itself."""
    query, key = x @ w, x @ v
    return torch.softmax(query @ key.transpose(-1, -2), -1) @ x


def classifier(torch: Any, x: Any, w: Any) -> Any:
    """Softmax cross entropy."""
    functional = torch.nn.functional
    return functional.cross_entropy(functional.linear(x, w), torch.arange(len(x)) % 3)


NETWORKS = {
    "mlp": (mlp, ((96, 6), (8, 6), (8, 3))),
    "convolution": (convolution, ((3, 2, 6, 6), (4, 2, 3, 3), (4,))),
    "attention": (attention, ((24, 8), (8, 8), (8, 8))),
    "classifier": (classifier, ((96, 6), (3, 6))),
}


def leaves(torch: Any, shapes: Any, dtype: str) -> list[Any]:
    """The same leaves each time."""
    generator = np.random.default_rng(4)
    values = [generator.normal(size=shape).astype(dtype) for shape in shapes]
    return [torch.tensor(x).requires_grad_() for x in values]


def derivatives(torch: Any, function: Function, args: list[Any]) -> list[Any]:
    """A step with a gradient penalty whose result is used in the gradient and beside it, and
    Hessian-vector products through two calls."""
    result = function(*args).square()
    slopes = torch.autograd.grad(result.sum(), args, create_graph=True)
    (result.sum() + sum((g * g).sum() for g in slopes)).backward()
    twice = function(*args) + function(*args[:-1], args[-1] * 0.5)
    more = torch.autograd.grad(twice.square().sum(), args, create_graph=True)
    products = torch.autograd.grad(more, args, [x.detach() for x in args])
    return [x.detach() for x in (*slopes, *(x.grad for x in args), *products)]


def measured(function: Function, shapes: Any, dtype: str) -> list[Any]:
    """The derivatives, checked to have the same bits every way."""
    compiled = flambeau.compile(function)
    results = []
    for threads in (1, 2):
        flambeau.set_num_threads(threads)
        results += [
            derivatives(flambeau, f, leaves(flambeau, shapes, dtype)) for f in (function, compiled)
        ]
    for other in results[1:]:
        assert all(same_bits(a, b) for a, b in zip(results[0], other, strict=True))
    return results[0]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", NETWORKS)
def test_network(name: str, dtype: str) -> None:
    network, shapes = NETWORKS[name]
    found = measured(lambda *args: network(flambeau, *args), shapes, dtype)
    if dtype == "float32":
        return
    args = leaves(oracle, shapes, dtype)
    expected = derivatives(oracle, lambda *args: network(oracle, *args), args)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-8, atol=1e-8)


def test_attention_kernel() -> None:
    """PyTorch's has no second derivative on the CPU."""
    function = flambeau.nn.functional.scaled_dot_product_attention
    measured(function, [(1, 2, 5, 8)] * 3, "float32")
