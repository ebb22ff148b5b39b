# ruff: noqa: E501 - a table of programs, one a line
"""Graphs, generated code and names of `torch.fx` beside PyTorch's, for the same programs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")

from examples.models import CLASSES, build  # noqa: E402
from tests.fx.programs import programs  # noqa: E402

OURS, THEIRS = programs(flambeau), programs(torch)


def facts(graph):
    """Everything about a graph that has a text."""
    return [
        (
            node.op,
            node.name,
            node._pretty_print_target(node.target),
            node.format_node(),
            [user.name for user in node.users],
            [each.name for each in node.all_input_nodes],
            [(k, path) for k, (path, _) in node.meta.get("nn_module_stack", {}).items()],
        )
        for node in graph.nodes
    ]


@pytest.mark.parametrize("name", [name for name in THEIRS if name != "leaf"])
def test_same_graph_and_code(name):
    ours = flambeau.fx.symbolic_trace(OURS[name][0])
    theirs = torch.fx.symbolic_trace(THEIRS[name][0])
    assert str(ours.graph) == str(theirs.graph)
    assert ours.code == theirs.code
    assert facts(ours.graph) == facts(theirs.graph)
    assert str(ours) == str(theirs)
    code = [m.graph.python_code("self") for m in (ours, theirs)]
    assert code[0]._lineno_map == code[1]._lineno_map
    assert list(code[0].globals) == list(code[1].globals)


@pytest.mark.parametrize("name", CLASSES)
def test_same_graph_of_example_models(name):
    results = []
    for library, fx in (("flambeau", flambeau.fx), ("torch", torch.fx)):
        try:
            traced = fx.symbolic_trace(build(name, library))
            results.append((str(traced.graph), traced.code))
        except Exception as error:
            results.append((type(error).__name__, str(error).splitlines()[0]))
    assert results[0] == results[1]


def rewrite(torch):
    """Code after replacements, and what each replaced."""
    F = torch.nn.functional
    cases = [
        (lambda x, v, w: torch.relu(x + v) + torch.relu(x + w), lambda a, b: torch.relu(a + b), lambda a, b: torch.tanh(a * b)),
        (lambda x: torch.cat([x, x]).sum(), lambda a, b: torch.cat([a, b]).sum(), lambda a, b: torch.stack([a, b])),
        (lambda x: torch.relu(torch.relu(torch.relu(torch.relu(x)))), lambda a: torch.relu(torch.relu(a)), lambda a: torch.tanh(a)),
        (lambda x: torch.add(x, 2) * torch.add(x, 3), lambda a: torch.add(a, 2), lambda a: a - 1),
        (lambda x: torch.relu(x + 1) + torch.relu(x + 2), lambda a, b: torch.relu(a + b), lambda a, b: a - b),
        (lambda x: (torch.relu(x) + 1, torch.relu(x) * 2), lambda a: torch.relu(a), lambda a: torch.sigmoid(a)),
        (lambda x: (x + 1, x * 2), lambda a: (a + 1, a * 2), lambda a: (a - 1, a - 2)),
        (lambda x: (lambda r: (r, r + 1))(torch.relu(x)), lambda a: torch.relu(a) + 1, lambda a: a - 1),
        (lambda x: x.view(1, -1).relu(), lambda a: a.view(1, -1).relu(), lambda a: a.flatten()),
        (lambda x: F.softmax(x, dim=1), lambda a: F.softmax(a, dim=1), lambda a: F.log_softmax(a, 1)),
        (lambda x: torch.relu(x) + 1, lambda a: torch.relu(a), lambda a: a),
    ]  # fmt: skip
    results = []
    for program, pattern, replacement in cases:
        module = torch.fx.symbolic_trace(program)
        matches = torch.fx.replace_pattern(module, pattern, replacement)
        pairs = [(m.anchor.name, {a.name: str(b) for a, b in m.nodes_map.items()}) for m in matches]
        results.append((module.code, pairs))
    return results


def test_same_replacements():
    assert rewrite(flambeau) == rewrite(torch)


def splits(library, model):
    """Code of the parts that passes split a model into."""
    passes = __import__(f"{library.__name__}.fx.passes.split_module", fromlist=["split_module"])
    names = f"{library.__name__}.fx.passes"
    partitioner = __import__(f"{names}.infra.partitioner", fromlist=["x"])
    support = __import__(f"{names}.operator_support", fromlist=["x"])
    traced = library.fx.symbolic_trace(model)
    parts: dict[str, int] = {}
    split = passes.split_module(traced, model, lambda n: parts.setdefault(n.name, len(parts) // 3))
    functions = support.create_op_support(lambda _, node: node.op == "call_function")
    fused = partitioner.CapabilityBasedPartitioner(
        library.fx.symbolic_trace(model), functions, allows_single_node_partition=True
    ).partition_and_fuse()
    return [
        (name, module.code)
        for whole in (split, fused)
        for name, module in whole.named_modules()
        if hasattr(module, "code")
    ]


@pytest.mark.parametrize("name", ["members", "block", "stack", "branch"])
def test_same_parts(name):
    assert splits(flambeau, OURS[name][0]) == splits(torch, THEIRS[name][0])


def calls(library, path, name):
    """How calls of a public function with traced arguments are recorded."""
    fx = library.fx
    space = library
    for part in path.split(".")[1:]:
        space = getattr(space, part)
    function = getattr(space, name)
    recorded = []
    for count in (1, 2, 3):
        tracer = fx.Tracer()
        tracer.graph, tracer.root = fx.Graph(), library.nn.Module()
        tracer.tensor_attrs, tracer.module_stack = {}, {}
        inputs = [tracer.create_proxy("placeholder", f"p{i}", (), {}) for i in range(count)]
        try:
            function(*inputs)
        except Exception:
            recorded.append(None)
            continue
        nodes = [n for n in tracer.graph.nodes if n.op != "placeholder"]
        recorded.append([(n.op, n._pretty_print_target(n.target), n.name, str(n.args),
                          str(dict(n.kwargs))) for n in nodes])  # fmt: skip
    return recorded


# One object here, two functions in PyTorch: recorded under the other name (docs/fx.md).
SECOND_NAMES = set("""
    absolute arccos arccos_ arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan_
    arctanh arctanh_ clip clip_ concat concatenate divide fix fix_ ger greater greater_equal less
    less_equal moveaxis multiply native_channel_shuffle negative negative_ not_equal row_stack
    subtract trapz true_divide det matmul matrix_exp matrix_power slogdet
    adaptive_max_pool1d group_norm layer_norm max_pool1d max_pool1d_with_indices max_pool2d
    max_pool3d rms_norm
    grouped_mm upsample upsample_bilinear upsample_nearest segment_reduce
""".split())  # fmt: skip

PATHS = ("torch", "torch.nn.functional", "torch.linalg", "torch.fft")


def test_calls_of_every_function():
    """Every public function that records a call in PyTorch records it here, alike.

    A function that is one object under several names has one of them (docs/fx.md); it must still
    be recorded as one call of itself.
    """
    overridable = flambeau.overrides._functions()
    other, missing, equal = [], [], 0
    for path in PATHS:
        for name in sorted(overridable[path]):
            if not hasattr(eval(path, {"torch": torch}), name):
                continue
            ours, theirs = calls(flambeau, path, name), calls(torch, path, name)
            for mine, their in zip(ours, theirs, strict=True):
                if their is None or their == []:
                    continue
                if mine is None:
                    missing.append(f"{path}.{name}")
                elif mine == their:
                    equal += 1
                else:
                    other.append((f"{path}.{name}", mine, their))
    assert not missing, sorted(set(missing))
    others = {name.rsplit(".", 1)[-1] for name, *_ in other}
    assert others <= SECOND_NAMES, [each for each in other if each[0] not in SECOND_NAMES]
    assert equal > 900
