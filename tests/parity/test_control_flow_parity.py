"""Control flow beside PyTorch: graphs of `make_fx`, values, graph breaks that are refused."""

from __future__ import annotations

import importlib

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")
for library in ("torch", "flambeau"):
    for module in ("fx.experimental.proxy_tensor", "_dynamo", "_higher_order_ops"):
        importlib.import_module(f"{library}.{module}")
LIBRARIES = (flambeau, torch)


def tensor(library, *shape):
    """Small numbers of a shape, equal in both libraries."""
    count = 1
    for size in shape:
        count *= size
    return (library.arange(float(count)) * 0.37 - 1).sin().reshape(shape)


def programs(library):
    """name: function of x (2, 3), y (2, 3) and a condition"""
    hops, ops = library._higher_order_ops, library.ops.higher_order
    constant, linear = tensor(library, 3), library.nn.Linear(3, 3)
    cond = library.cond

    def gradient(function):
        def call(x, y, p):
            x = x.clone().requires_grad_()
            return library.autograd.grad(function(x, y, p).sum(), x)

        return call

    return {
        "cond": lambda x, y, p: cond(x.sum() > 1, lambda a: a.sin() + 1, lambda a: a * 2, (x,)),
        "constants": lambda x, y, p: cond(p, lambda a: a + constant, lambda a: a.cos(), (x,)),
        "two": lambda x, y, p: (
            cond(p, library.sin, library.cos, (x,)) + cond(~p, library.exp, library.log, (y,))
        ),
        "nested": lambda x, y, p: cond(
            p,
            lambda a: cond(a.max() > 1, lambda b: b + 1, lambda b: b - 1, (a,)),
            lambda a: a.cos() * 2,
            (x,),
        ),
        "containers": lambda x, y, p: cond(
            p,
            lambda d: {"a": d["x"].sin(), "b": (d["x"] + 2,)},
            lambda d: {"a": d["x"].cos(), "b": (d["x"] + 1,)},
            ({"x": x},),
        ),
        "while": lambda x, y, p: library.while_loop(
            lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (library.tensor(0), x)
        ),
        "while with a closure": lambda x, y, p: library.while_loop(
            lambda i, a: i < 3, lambda i, a: (i + 1, a * y), (library.tensor(0), x)
        ),
        "scan": lambda x, y, p: hops.scan(lambda c, v: (c + v, c * v), y[0], x),
        "scan with a closure": lambda x, y, p: hops.scan(
            lambda c, v: (c + v * y[0], c * v), y[0] + 1, x
        ),
        "map": lambda x, y, p: hops.map(lambda v, w: (v + w, v * w), x, y[0]),
        "operators": lambda x, y, p: (
            ops.cond(p, lambda a: (a.sin(),), lambda a: (a * 2,), (x,)),
            ops.while_loop(
                lambda i, a, b: i < 3, lambda i, a, b: (i + 1, a * b), (library.tensor(0), x), (y,)
            ),
            ops.scan(lambda c, v, k: [c + v * k, c * v], [y[0]], [x], (y[1],)),
            ops.map_impl(lambda a, b: (a + b,), [x], [y]),
            ops.associative_scan(lambda a, b: [a + b], [x], ()),
        ),
        "gradient of cond": gradient(
            lambda x, y, p: cond(p, lambda a: a.sin() + 1, lambda a: a.cos() * 2, (x,))
        ),
        "a layer": lambda x, y, p: cond(p, lambda a: a @ linear.weight, library.cos, (x,)),
    }


def facts(module):
    """Nodes as texts, with those of the graphs that are attributes."""
    rows = []
    for node in module.graph.nodes:
        inputs = [each.name for each in node.all_input_nodes]
        rows.append((node.op, node.name, str(node.target), inputs))
        inner = getattr(module, str(node.target), None) if node.op == "get_attr" else None
        if hasattr(inner, "graph"):
            rows.append(facts(inner))
    return rows


def numbers(library, result):
    leaves = importlib.import_module(f"{library.__name__}.utils._pytree").tree_leaves(result)
    return [leaf.tolist() for leaf in leaves]


@pytest.mark.parametrize("name", programs(torch))
def test_graphs(name):
    graphs, values = [], []
    for library in LIBRARIES:
        function = programs(library)[name]
        x, y = tensor(library, 2, 3), tensor(library, 2, 3) + 1
        arguments = (x, y, library.tensor(True))
        module = library.fx.experimental.proxy_tensor.make_fx(function)(*arguments)
        graphs.append(facts(module))
        if name != "a layer":  # random weights
            values.append(
                [numbers(library, module(x * 2, y, library.tensor(p))) for p in (1 > 0, 0 > 1)]
            )
    assert graphs[0] == graphs[1]
    for ours, theirs in zip(*values, strict=True) if values else ():
        for first, second in zip(ours, theirs, strict=True):
            assert flambeau.allclose(
                flambeau.tensor(first), flambeau.tensor(second), equal_nan=True
            )


def breaks(library):
    """name: a function of x, and a compiled one's `fullgraph`"""
    dynamo = library._dynamo

    def branch(x):
        return x + 1 if x.sum() > 3 else x

    def stop(x):
        dynamo.graph_break()
        return x + 1

    def printing(x):
        print(x + 1)
        return x

    @library.compiler.disable
    def eager(x):
        return x + 1

    def within(setting, function):
        def call(x):
            with dynamo.error_on_graph_break(setting):
                return function(x)

        return call

    functions = {
        "branch": branch,
        "graph_break": stop,
        "print": printing,
        "disabled": lambda x: eager(x) * 2,
        "item": lambda x: x * (x + 1).sum().item(),
        "float": lambda x: x * float((x + 1).sum()),
        "bool": lambda x: x * bool((x > 1).any()),
        "nonzero": lambda x: ((x + 1) > 2).nonzero() * 2,
        "masked_select": lambda x: library.masked_select(x, x + 1 > 2) * 2,
        "unique": lambda x: (x + 1).long().unique() * 2,
        "cond": lambda x: library.cond(x.sum() > 3, lambda a: a + 1, lambda a: a * 2, (x,)),
        "and": lambda x: (x + 1).sum() > 0 and x,
        "permitted": within(False, stop),
        "refused": within(True, stop),
        "permitted inside": within(True, within(False, stop)),
        "refused inside": within(False, within(True, stop)),
    }
    return {(name, full): f for name, f in functions.items() for full in (True, False)}


@pytest.mark.parametrize("case", breaks(torch), ids=str)
def test_graph_breaks(case):
    results = []
    for library in LIBRARIES:
        library._dynamo.reset()
        x = library.arange(6.0).reshape(2, 3)
        options = {"backend": "eager"} if library is torch else {}
        compiled = library.compile(breaks(library)[case], fullgraph=case[1], **options)
        try:
            results.append(compiled(x).tolist())
        except library._dynamo.exc.Unsupported as error:
            results.append("refused")
            assert "test_control_flow_parity.py" in str(error)
    assert results[0] == results[1]


def backend_graphs(library, function):
    """What a backend gets: kinds and names of nodes, of the functions' graphs, too."""
    seen = []

    def rows(module):
        found = []
        for node in module.graph.nodes:
            if node.op == "call_function":
                found.append(node.target.__name__)
            elif node.op == "get_attr":
                found.append((node.target, rows(getattr(module, node.target))))
            else:
                found.append(node.op)
        return found

    def backend(module, inputs):
        seen.append(rows(module))
        return module

    library._dynamo.reset()
    library.compile(function, backend=backend, fullgraph=True)(tensor(library, 2, 3))
    return seen


@pytest.mark.parametrize("name", ["cond", "scan", "map", "while", "region"])
def test_graphs_of_backends(name):
    graphs = []
    for library in LIBRARIES:
        hops = library._higher_order_ops

        @library.compiler.nested_compile_region
        def layer(x):
            return x.sin() + 1

        functions = {
            "cond": lambda x: library.cond(  # noqa: B023
                x.sum() > 1, lambda a: a.sin() + 1, lambda a: a.cos() * 2, (x,)
            ),
            "scan": lambda x: hops.scan(lambda c, v: (c + v, c * v), x[0] + 1, x),  # noqa: B023
            "map": lambda x: hops.map(lambda v: v.sin() + 1, x),  # noqa: B023
            "while": lambda x: library.while_loop(  # noqa: B023
                lambda a: a.sum() < 9, lambda a: (a + 1,), (x,)
            ),
            "region": lambda x: layer(layer(x)),  # noqa: B023
        }
        graphs.append(backend_graphs(library, functions[name]))
    assert graphs[0] == graphs[1]
