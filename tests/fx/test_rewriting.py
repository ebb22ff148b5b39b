"""Graphs changed by hand and by pattern."""

# ruff: noqa: E501 - a table of programs, one a line

from __future__ import annotations

import copy

import pytest

import flambeau as torch
from flambeau import fx, nn
from flambeau.fx.operator_schemas import normalize_function, normalize_module
from flambeau.fx.subgraph_rewriter import replace_pattern_with_filters

F = nn.functional
X = torch.arange(6.0).reshape(2, 3) - 2


@pytest.mark.parametrize(
    ("program", "pattern", "replacement", "count"),
    [
        (lambda x: torch.relu(x + 1) + torch.relu(x + 2), lambda a, b: torch.relu(a + b), lambda a, b: a - b, 2),
        (lambda x: torch.relu(x + x.neg()), lambda a, b: torch.relu(a + b), lambda a, b: a - b, 1),
        (lambda x: torch.relu(torch.relu(torch.relu(torch.relu(x)))), lambda a: torch.relu(torch.relu(a)), lambda a: a + 1, 2),
        (lambda x: torch.add(x, 2) * torch.add(x, 3), lambda a: torch.add(a, 2), lambda a: a - 1, 1),
        (lambda x: x.view(3, 2).relu(), lambda a: a.view(3, 2).relu(), lambda a: a.flatten(), 1),
        (lambda x: F.softmax(x, dim=1), lambda a: F.softmax(a, dim=1), lambda a: F.log_softmax(a, 1), 1),
        (lambda x: (lambda r: (r, r + 1))(torch.relu(x)), lambda a: torch.relu(a) + 1, lambda a: a - 1, 0),
        (lambda x: torch.relu(x) + 1, lambda a: torch.relu(a), lambda a: a, 1),
    ],
)  # fmt: skip
def test_patterns(program, pattern, replacement, count):
    module = fx.symbolic_trace(program)
    matches = fx.replace_pattern(module, pattern, replacement)
    assert len(matches) == count
    module.graph.lint()
    module(X)
    if count == 0:
        assert str(module.graph) == str(fx.symbolic_trace(program).graph)


def test_filters_and_callbacks():
    module = fx.symbolic_trace(lambda x, y: torch.relu(x) + torch.relu(y))
    replaced = replace_pattern_with_filters(
        module,
        lambda a: torch.relu(a),
        lambda a: a * 2,
        match_filters=[lambda match, graph, pattern: match.placeholder_nodes[0].name == "y"],
    )
    assert [[n.name for n in each.replacements] for each in replaced] == [["mul"]]
    assert torch.equal(module(X, X), torch.relu(X) + X * 2)
    replace_pattern_with_filters(
        module,
        lambda a: torch.relu(a),
        replacement_callback=lambda match, graph, pattern: fx.symbolic_trace(torch_neg).graph,
    )
    assert torch.equal(module(X, X), -X + X * 2)


def torch_neg(x):
    return torch.neg(x)


def test_modules_of_a_replacement_come_along():
    class Old(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            return torch.relu(self.linear(x))

    class New(nn.Module):
        def __init__(self):
            super().__init__()
            self.other = nn.Linear(3, 3)
            self.factor = nn.Parameter(torch.ones(3) * 2)

        def forward(self, x):
            return self.other(x) * self.factor

    class Whole(Old):
        def forward(self, x):
            return super().forward(x) + 1

    module, new = fx.symbolic_trace(Whole()), New()
    assert len(fx.replace_pattern(module, Old(), new)) == 1
    assert sorted(module.state_dict()) == ["factor", "other.bias", "other.weight"]
    assert torch.equal(module(X), new(X) + 1)


def test_users_follow_the_arguments():
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.relu, (x,))
    b = graph.call_function(torch.cat, ([a, x],), {"dim": 0})
    graph.output(b)
    assert list(x.users) == [a, b] and a.all_input_nodes == [x]
    b.args = ([x, x],)
    assert list(a.users) == [] and b.args[0] == [x, x]
    b.kwargs = {"dim": 1}
    b.insert_arg(1, 0)
    b.kwargs = {}
    assert b.format_node().endswith("(args = ([%x, %x], 0), kwargs = {})")
    with pytest.raises(TypeError, match="does not support mutation"):
        b.args[0].append(a)
    with pytest.raises(RuntimeError, match="still had 2 users"):
        graph.erase_node(x)
    assert graph.eliminate_dead_code() and a not in list(graph.nodes)
    assert a._erased and len(graph.nodes) == 3


def test_nodes_go_where_they_are_inserted():
    module = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    relu = module.graph.find_nodes(op="call_function", target=torch.relu)[0]
    with module.graph.inserting_after(relu):
        neg = module.graph.call_function(torch.neg, (relu,))
    relu.replace_all_uses_with(neg, lambda user: user is not neg)
    with module.graph.inserting_before(relu):
        module.graph.call_method("clone", (relu.args[0],))
    assert [n.name for n in module.graph.nodes] == ["x", "clone", "relu", "neg", "add", "output"]
    assert relu < neg and not neg <= relu and sorted([neg, relu]) == [relu, neg]
    module.recompile()
    assert torch.equal(module(X), 1 - torch.relu(X))
    duplicate = copy.deepcopy(module.graph)
    assert str(duplicate) == str(module.graph) and duplicate.owning_module is None


def test_a_long_graph_is_numbered_once():
    """Comparing nodes walks the graph once, not once for each comparison."""
    graph = fx.Graph()
    node = graph.placeholder("x")
    for _ in range(500):
        node = graph.call_function(torch.neg, (node,))
    walks = 0
    plain = type(graph).nodes.fget

    class Counting(fx.Graph):
        @property
        def nodes(self):
            nonlocal walks
            walks += 1
            return plain(self)

    graph.__class__ = Counting
    first = next(iter(plain(graph)))
    first.append(node)
    assert len(graph.find_nodes(op="call_function", target=torch.neg)) == 500
    assert walks == 1


def test_arguments_in_normal_form():
    x = torch.ones(2)
    assert normalize_function(F.max_pool2d, (x, 2)).kwargs["dilation"] == 1
    pair = normalize_function(torch.flatten, (x, 1), normalize_to_only_use_kwargs=True)
    assert pair.args == () and list(pair.kwargs) == ["input", "start_dim", "end_dim"]
    with pytest.raises(RuntimeError, match="ambiguous"):
        normalize_function(torch.add, (x, x))
    types = (torch.Tensor, torch.Tensor)
    assert normalize_function(torch.add, (x, x), arg_types=types).kwargs == {"alpha": 1}
    root = nn.Sequential(nn.Linear(2, 2))
    assert list(normalize_module(root, "0", (x,), None, True).kwargs) == ["input"]


def test_written_folders_can_be_imported(tmp_path, monkeypatch):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)
            self.act = nn.ReLU()
            self.scale = nn.Parameter(torch.ones(2) * 3)

        def forward(self, x):
            return self.act(self.linear(x)) * self.scale

    module = fx.symbolic_trace(Model())
    module.to_folder(tmp_path / "written_by_fx", "Written")
    monkeypatch.syspath_prepend(tmp_path)
    from written_by_fx import Written

    assert torch.equal(Written()(X), module(X))


def test_code_generators_of_ones_own():
    class List(fx.CodeGen):
        def gen_fn_def(self, free_vars, maybe_return_annotation):
            head = f"def forward(self, args_list){maybe_return_annotation}:"
            return f"{head}\n    {', '.join(free_vars)}, = args_list"

        def process_inputs(self, *inputs):
            return inputs[0]

    module = fx.symbolic_trace(lambda x, y: x - y)
    module.graph.set_codegen(List())
    module.recompile()
    assert torch.equal(module([X, X]), X - X)
    assert torch.equal(fx.Interpreter(module).run([X, X]), X - X)
    module.graph.set_codegen(fx.graph._BoxedCodeGen())
    module.recompile()
    inputs = [X, X]
    assert torch.equal(module(inputs), X - X) and inputs == []
    with module.graph.on_generate_code(lambda before: lambda body: ["# first\n", *body]):
        assert "# first" in module.recompile().src
    assert "# first" not in module.recompile().src


def test_errors_name_the_line(capsys):
    module = fx.symbolic_trace(lambda x: torch.add(x, torch.ones(5)))
    with pytest.raises(RuntimeError):
        module(X)
    text = capsys.readouterr().err
    assert "Call using an FX-traced Module, line 6" in text and "<--- HERE" in text
    with pytest.raises(RuntimeError, match="While executing %add"):
        fx.Interpreter(module).run(X)
