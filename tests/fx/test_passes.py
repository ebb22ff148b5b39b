"""Passes: shapes, splits, partitions, equal calls, managers; each result computes the same bits."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import fx, nn
from flambeau.fx.passes import splitter_base
from flambeau.fx.passes.annotate_getitem_nodes import annotate_getitem_nodes
from flambeau.fx.passes.dialect.common.cse_pass import CSEPass
from flambeau.fx.passes.fake_tensor_prop import FakeTensorProp
from flambeau.fx.passes.graph_drawer import FxGraphDrawer
from flambeau.fx.passes.graph_manipulation import get_size_of_all_nodes, replace_target_nodes_with
from flambeau.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from flambeau.fx.passes.infra.pass_base import PassBase, PassResult
from flambeau.fx.passes.infra.pass_manager import (
    PassManager,
    pass_result_wrapper,
    this_before_that_pass_constraint,
)
from flambeau.fx.passes.net_min_base import (
    FxNetMinimizerResultMismatchError,
    _MinimizerBase,
    _MinimizerSettingBase,
)
from flambeau.fx.passes.operator_support import create_op_support
from flambeau.fx.passes.param_fetch import extract_attrs_for_lowering
from flambeau.fx.passes.shape_prop import ShapeProp
from flambeau.fx.passes.split_module import split_module
from flambeau.fx.passes.tools_common import legalize_graph
from flambeau.fx.passes.utils import compare_graphs

functions = create_op_support(lambda modules, node: node.op == "call_function")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.ones(2) / 3)
        self.layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    def forward(self, x):
        a = self.linear(x) + self.scale
        b = torch.relu(a)
        c = self.layers(b) * a
        return c.sum() + b + self.scale, (a, c)


MODEL, X = Model(), torch.arange(6.0).reshape(3, 2)


def traced():
    return fx.symbolic_trace(MODEL)


def check(module):
    """The module computes what the model does."""
    expected, results = MODEL(X), module(X)
    assert torch.equal(results[0], expected[0])
    assert all(map(torch.equal, results[1], expected[1]))


def test_shapes_of_all_values():
    module = traced()
    ShapeProp(module).propagate(X)
    metas = {node.name: node.meta["tensor_meta"] for node in module.graph.nodes}
    assert metas["relu"].shape == (3, 2) and metas["sum_1"].shape == ()
    assert metas["output"][1][1].dtype is torch.float32
    assert 'relu: "f32[3, 2]" = torch.relu(add)' in module.print_readable(print_output=False)
    get_size_of_all_nodes(module)
    sizes = {n.name: n.size_bytes for n in module.graph.nodes if n.op != "output"}
    assert sizes["linear"] == (24, 48)


def test_shapes_without_data():
    module = traced()
    FakeTensorProp(module).propagate(X)
    values = {n.name: n.meta["val"] for n in module.graph.nodes if "val" in n.meta}
    assert values["relu"].shape == (3, 2) and values["linear"].dtype is torch.float32


def test_split_module():
    parts: dict[str, int] = {}
    names: dict[str, str] = {}
    module = split_module(
        traced(), MODEL, lambda n: parts.setdefault(n.name, len(parts) // 3), names
    )
    assert [name for name, _ in module.named_children()] == ["submod_0", "submod_1", "submod_2"]
    assert names == {"submod_0.linear": "linear", "submod_1.layers_0": "layers.0",
                     "submod_1.layers_1": "layers.1"}  # fmt: skip
    check(module)
    check(torch.compile(module))
    with pytest.raises(RuntimeError, match="cycle exists between partitions"):
        split_module(traced(), MODEL, lambda n: n.name in ("linear", "layers_0"))


def test_partitions_of_supported_nodes():
    module = traced()
    partitioner = CapabilityBasedPartitioner(module, functions, allows_single_node_partition=True)
    proposed = partitioner.propose_partitions()
    names = [sorted(node.name for node in each.nodes) for each in proposed]
    assert names == [["add_1", "add_2"], ["mul"], ["add", "relu"]]
    check(partitioner.fuse_partitions(proposed))


def test_splitter():
    settings = splitter_base._SplitterSettingBase()
    splitter = splitter_base._SplitterBase(traced(), (X,), functions, settings)
    result = splitter.generate_split_results()
    names = [name for name, _ in result.split_module.named_children()]
    assert names == [f"_run_on_{'acc' if i % 2 else 'cpu'}_{i}" for i in range(6)]
    assert list(result.submodule_inputs) == names
    check(result.split_module)


class Sabotaged(_MinimizerBase):
    def run_a(self, mod, inputs, report_idx=-1):
        return mod(*inputs)

    def run_b(self, mod, inputs, report_idx=-1):
        result = mod(*inputs)
        return result + 1 if any(n.name == "relu" for n in mod.graph.nodes) else result


@pytest.mark.parametrize("method", ["sequential", "binary", "accumulate", "block"])
def test_the_node_that_differs_is_named(method):
    module = fx.symbolic_trace(lambda x: torch.relu(torch.neg(x) * 2) - 1)

    def compare(a, b, names):
        return float((a - b).abs().max()), torch.equal(a, b)

    settings = _MinimizerSettingBase(traverse_method=method)
    minimizer = Sabotaged(module, (X,), compare, settings)
    assert [node.name for node in minimizer.minimize()] == ["relu"]
    with pytest.raises(FxNetMinimizerResultMismatchError):
        minimizer.run_nodes("mul", "sub")


class ReluToTanh(PassBase):
    def call(self, graph_module):
        nodes = graph_module.graph.find_nodes(op="call_function", target=torch.relu)
        for node in nodes:
            node.target = torch.tanh
        return PassResult(graph_module, bool(nodes))


def test_pass_manager():
    order = []

    def first(module):
        order.append("first")

    def second(module):
        order.append("second")
        return PassResult(module, False)

    wrapped = pass_result_wrapper(first)
    constraint = this_before_that_pass_constraint(wrapped, second)
    manager = PassManager([second, wrapped, ReluToTanh()], [constraint], steps=2)
    result = manager(traced())
    assert result.modified and "torch.tanh" in result.graph_module.code
    assert order == ["first", "second", "first", "second"]
    with pytest.raises(RuntimeError, match="Circular dependency"):
        other = this_before_that_pass_constraint(second, wrapped)
        PassManager([second, wrapped], [constraint, other])(traced())
    with pytest.raises(Exception, match="should be type PassResult|An error occurred"):
        PassManager([first])(traced())


def test_equal_calls_are_made_once():
    def program(x):
        return torch.relu(x) + torch.relu(x) * torch.rand(3, 2) * torch.rand(3, 2)

    result = CSEPass()(fx.symbolic_trace(program))
    names = [node.name for node in result.graph_module.graph.nodes]
    assert result.modified and "relu_1" not in names
    recorded = CSEPass()(fx.symbolic_trace(lambda x: torch.rand_like(x) - torch.rand_like(x)))
    assert not recorded.modified


def test_graphs_are_put_in_order():
    module = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    nodes = {node.name: node for node in module.graph.nodes}
    nodes["relu"].prepend(nodes["add"])
    with pytest.raises(RuntimeError, match="used before it has been defined"):
        module.graph.lint()
    legalize_graph(module).graph.lint()
    assert torch.equal(module(X), X + 1)


def test_targets_are_replaced():
    module = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    replace_target_nodes_with(module, "call_function", torch.relu, "call_function", torch.neg)
    assert torch.equal(module(X), 1 - X)


def test_graphs_are_compared():
    same = [
        fx.symbolic_trace(f).graph for f in (lambda x: torch.relu(x) + 1, lambda y: 1 + y.neg())
    ]
    assert compare_graphs(same[0], fx.symbolic_trace(lambda z: torch.relu(z) + 1).graph)
    assert not compare_graphs(same[0], same[1])


def test_types_of_items():
    graph = fx.symbolic_trace(lambda x: x[0]).graph
    next(iter(graph.nodes)).type = tuple[int, str]
    annotate_getitem_nodes(graph)
    assert [node.type for node in graph.nodes][1] is int


def test_attributes_of_modules():
    assert extract_attrs_for_lowering(nn.Linear(2, 3)).keys() == {"name", "weight", "bias"}
    with pytest.raises(RuntimeError, match="module_fetch_book"):
        extract_attrs_for_lowering(nn.Softmax())


def test_pictures_need_pydot():
    try:
        import pydot  # noqa: F401
    except ImportError:
        with pytest.raises(RuntimeError, match="requires the pydot package"):
            FxGraphDrawer(traced(), "model")
    else:
        assert "linear" in FxGraphDrawer(traced(), "model").get_dot_graph().to_string()
