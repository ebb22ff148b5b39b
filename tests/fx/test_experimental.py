"""Experimental changes of graphs, and questions about sizes."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import fx, nn
from flambeau.fx.experimental import meta_tracer, proxy_tensor, symbolic_shapes
from flambeau.fx.experimental.const_fold import split_const_subgraphs
from flambeau.fx.experimental.merge_matmul import merge_matmul
from flambeau.fx.experimental.normalize import NormalizeArgs, NormalizeOperators
from flambeau.fx.experimental.optimization import fuse, optimize_for_inference, remove_dropout
from flambeau.fx.experimental.rewriter import RewritingTracer
from flambeau.fx.tensor_type import Dyn, TensorType, is_consistent, is_more_precise

X = torch.arange(6.0).reshape(2, 3) - 2


def trained(model, x):
    """A model whose batch norms have seen something, in evaluation mode."""
    torch.manual_seed(0)
    model.train()
    model(x)
    return model.eval()


def test_batch_norms_are_folded():
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4),
        nn.BatchNorm1d(4), nn.Dropout(0.5),
    )  # fmt: skip
    image = torch.randn(5, 2, 4, 4)
    trained(model, image)
    fused = fuse(model)
    kinds = [type(each).__name__ for each in fused.children()]
    assert kinds == ["Conv2d", "ReLU", "Flatten", "Linear", "Dropout"]
    assert torch.allclose(fused(image), model(image), atol=1e-5)
    ready = optimize_for_inference(model)
    assert [type(each).__name__ for each in ready.children()] == kinds[:-1]
    assert torch.equal(ready(image), fused(image))
    assert torch.equal(remove_dropout(model)(image), model(image))


def test_a_layer_that_is_read_twice_keeps_its_batch_norm():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)

        def forward(self, x):
            y = self.linear(x)
            return self.norm(y) + y

    model = trained(Twice(), X)
    assert torch.equal(fuse(model)(X), model(X))


def test_constant_parts_are_computed_once():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))
            self.register_buffer("shift", torch.arange(3.0))

        def forward(self, x):
            return x * (self.scale + self.shift) + torch.relu(self.shift), self.scale

    model = Scaled()
    folded = split_const_subgraphs(model)
    names = [n.target for n in folded.graph.nodes if n.op == "get_attr"]
    assert all(
        name.startswith(("_FX_CONST_FOLDED_ATTRS", "_tensor")) or name == "scale" for name in names
    )
    assert torch.equal(folded(X)[0], model(X)[0]) and folded.has_folding_been_run


def test_products_are_joined():
    def program(a, b, w):
        return torch.matmul(a, w) + 1, torch.matmul(b, w)

    module = merge_matmul(Function(program))
    assert [n.target for n in module.graph.nodes].count(torch.matmul) == 1
    w = torch.randn(3, 4)
    for left, right in zip(module(X, X * 2, w), program(X, X * 2, w), strict=True):
        assert torch.allclose(left, right)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, a, b, w):
        return self.function(a, b, w)


def test_arguments_by_name_and_operators():
    def program(x):
        return torch.add(torch.flatten(x, 0), torch.nn.functional.relu(x).flatten())

    named = NormalizeArgs(fx.symbolic_trace(program)).transform()
    flatten = next(n for n in named.graph.nodes if n.target is torch.flatten)
    assert flatten.args == () and list(flatten.kwargs) == ["input", "start_dim", "end_dim"]
    operators = NormalizeOperators(fx.symbolic_trace(program)).transform()
    assert "add = flatten + flatten_1" in operators.code or " + " in operators.code
    assert torch.equal(operators(X), program(X))


def test_asserts_are_rewritten():
    def program(x):
        assert x.sum() > -100, "too small"
        y: torch.Tensor = x + 1
        return y

    graph = RewritingTracer().trace(program)
    module = fx.GraphModule(nn.Module(), graph)
    assert "torch._assert" in module.code and torch.equal(module(X), X + 1)
    with pytest.raises(AssertionError, match="too small"):
        module(X - 1000)


def test_shapes_while_tracing():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 4)

        def forward(self, x):
            y = self.linear(x)
            return y.relu() if y.shape[-1] == 4 and y.dim() == 2 else y

    model = Model()
    traced = meta_tracer.symbolic_trace(model, {"x": torch.empty(2, 3, device="meta")})
    assert "relu" in traced.code and torch.equal(traced(X), model(X))


def test_sizes_outside_of_a_trace_are_numbers():
    size = torch.ones(2).shape[0]
    assert symbolic_shapes.is_concrete_int(size) and not symbolic_shapes.free_symbols(size)
    assert symbolic_shapes.statically_known_true(size == 2)
    assert not symbolic_shapes.guard_or_false(size > 2)
    with pytest.raises(NotImplementedError, match="pre_dispatch"):
        proxy_tensor.make_fx(lambda x: x, pre_dispatch=True)


def test_types_of_tensors():
    assert is_consistent(TensorType((1, Dyn)), TensorType((1, 3)))
    assert not is_consistent(TensorType((2, Dyn)), TensorType((1, 3)))
    assert is_more_precise(TensorType((1, 3)), TensorType((1, Dyn)))
    assert not is_more_precise(TensorType((1, Dyn)), TensorType((1, 3)))


def test_nothing_of_fx_is_loaded_by_an_import():
    import subprocess
    import sys

    code = "import flambeau, sys; print([n for n in sys.modules if n.startswith('flambeau.fx')])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
