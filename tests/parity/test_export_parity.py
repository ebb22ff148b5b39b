"""Exported programs beside PyTorch's: nodes, names, signatures, ranges of sizes, errors."""

from __future__ import annotations

import importlib
import re

import pytest

torch = pytest.importorskip("torch", reason="the oracle, PyTorch 2.13, is not installed")
flambeau = pytest.importorskip("flambeau")

for library in (torch, flambeau):
    importlib.import_module(f"{library.__name__}.export")


@pytest.fixture(autouse=True)
def forgotten():
    """PyTorch remembers sizes of functions that an export called: later graphs would vary."""
    yield
    torch._dynamo.reset()


def functions(library):
    """name: (function of tensors, shapes of its arguments), each the forward of a module."""
    functional = library.nn.functional

    def filled(x, i):
        y = library.zeros(4, 3)
        y[1:3] = x[1:3]
        y[i] = 0
        return y, x[i], x[:, 0], x.masked_fill(x > 0, 1.0), library.stack([x, x])

    def views(x):
        y = x.view(2, -1).transpose(0, 1).contiguous().reshape(-1)
        y = y.unsqueeze(0).expand(3, -1)[:, 1:3]
        z = library.cat([y, y], dim=1).sum(dim=1, keepdim=True)
        return (z @ z.T).mean(), x[0], x[..., None], x.chunk(2), x.split(2), 2 - x, x / 2, x**2, -x

    def drawn(x):
        y = x + library.arange(x.shape[0]) + library.zeros(x.shape[0]) + library.ones_like(x)
        return y + library.full((4,), 2.0) + library.randn(4) + library.rand_like(x)

    def written(x):
        x.add_(1)
        return x * 2

    def branch(x):
        return library.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    def loop(x):
        step = lambda n, x: (n + 1, x * 2)  # noqa: E731
        return library.while_loop(lambda n, x: n < 3, step, (library.tensor(0), x))

    def without_gradients(x):
        with library.no_grad():
            y = (x * 2).sin()
        return y + x.detach()

    def attention(q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return {
        "filled": (filled, (4, 3), "indices"),
        "views": (views, (4, 3)),
        "drawn": (drawn, (4,)),
        "written": (written, (3,)),
        "branch": (branch, (3,)),
        "loop": (loop, (3,)),
        "without_gradients": (without_gradients, (4, 3)),
        "attention": (attention, (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)),
        "einsum": (lambda x, y: library.einsum("ij,kj->ik", x, y), (2, 3), (4, 3)),
        "where": (lambda x: library.where(x > 0, x, 0.0), (4, 3)),
        "reduced": (lambda x: (x.max(1)[0], x.argmax(), x.var(0), x.cumsum(0)), (4, 3)),
        "cross": (lambda x: functional.cross_entropy(x, library.tensor([0, 1])), (2, 4)),
    }


def modules(library):
    """name: (module, shapes of its arguments)."""
    nn = library.nn
    conv = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)
    )
    pointwise = nn.Sequential(
        nn.GELU(), nn.SiLU(), nn.Softmax(-1), nn.LogSoftmax(-1), nn.Hardswish(), nn.Sigmoid(),
        nn.Tanh(), nn.LeakyReLU(),
    )  # fmt: skip
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    mlp = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2))
    return {
        "linear": (nn.Linear(3, 4), (2, 3)),
        "mlp": (mlp.eval(), (2, 3)),
        "conv": (conv, (2, 3, 8, 8)),
        "conv1d": (nn.Conv1d(3, 4, 2, stride=2, padding=1), (2, 3, 8)),
        "batch_norm": (nn.BatchNorm2d(3).eval(), (2, 3, 4, 4)),
        "batch_norm_training": (nn.BatchNorm2d(3), (2, 3, 4, 4)),
        "layer_norm": (nn.LayerNorm(4), (2, 4)),
        "group_norm": (nn.GroupNorm(2, 4), (2, 4, 3)),
        "embedding": (nn.Embedding(5, 3), "indices"),
        "lstm": (nn.LSTM(3, 4, batch_first=True), (2, 5, 3)),
        "gru": (nn.GRU(3, 4, num_layers=2), (2, 5, 3)),
        "rnn": (nn.RNN(3, 4), (2, 5, 3)),
        "pointwise": (pointwise, (2, 4)),
        "dropout": (nn.Dropout(0.5), (2, 3)),
        "pooling": (nn.Sequential(nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1)), (2, 3, 4, 4)),
        "transposed": (nn.ConvTranspose2d(3, 4, 2), (2, 3, 4, 4)),
        "shuffle": (nn.Sequential(nn.PixelShuffle(2), nn.ZeroPad2d(1)), (2, 4, 4, 4)),
        "tied": (tied, (2, 3)),
        "mean_squares": (nn.MSELoss(), (4, 5), (4, 5)),
        "huber": (nn.HuberLoss(delta=0.5), (4, 5), (4, 5)),
        "log_sigmoid": (nn.LogSigmoid(), (4, 5)),
        "same": (nn.Conv1d(4, 6, 3, padding="same", dilation=2), (2, 4, 9)),
        "bilinear": (nn.Bilinear(3, 4, 5), (6, 3), (6, 4)),
        "instance_norm": (nn.InstanceNorm2d(4, affine=True), (3, 4, 5, 2)),
        "fold": (nn.Sequential(nn.Unfold(2), nn.Fold((4, 4), 2)), (1, 2, 4, 4)),
        "similarity": (nn.CosineSimilarity(), (4, 5), (4, 5)),
        "glu": (nn.Sequential(nn.GLU(), nn.PReLU(), nn.Softsign(), nn.Hardtanh()), (4, 6)),
        "flat": (nn.Sequential(nn.Flatten(), nn.Unflatten(1, (3, 2))), (2, 6)),
    }


def tensors(library, shapes):
    made = []
    for shape in shapes:
        if shape == "indices":
            made.append(library.tensor([1, 2]))
        else:
            count = 1
            for n in shape:
                count *= n
            made.append((library.arange(float(count)) * 0.37 - 1).sin().reshape(shape))
    return tuple(made)


def program(library, name):
    if name in functions(library):
        function, *shapes = functions(library)[name]

        class Model(library.nn.Module):
            def forward(self, *args):
                return function(*args)

        model = Model()
    else:
        model, *shapes = modules(library)[name]
    return library.export.export(model, tensors(library, shapes))


def nodes(exported):
    return [(n.name, str(n.target)) for n in exported.graph.nodes if n.op == "call_function"]


NAMES = [*functions(flambeau), *modules(flambeau)]


def test_enough_modules():
    assert len(NAMES) >= 25


@pytest.mark.parametrize("name", NAMES)
def test_nodes_and_signatures(name):
    ours, theirs = (program(library, name) for library in (flambeau, torch))
    if name == "without_gradients":  # PyTorch calls the node after a result
        assert [x[1] for x in nodes(ours)] == [x[1] for x in nodes(theirs)]
    else:
        assert nodes(ours) == nodes(theirs)
    assert str(ours.graph_signature) == str(theirs.graph_signature)
    assert list(ours.state_dict) == list(theirs.state_dict)
    assert set(ours.constants) == set(theirs.constants)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("loop", "branch")])
def test_outputs_of_decomposed_programs(name):
    ours, theirs = (program(library, name).run_decompositions() for library in (flambeau, torch))

    def kinds(exported):
        return [(s.kind.name, s.target) for s in exported.graph_signature.output_specs]

    assert kinds(ours) == kinds(theirs)
    assert [str(s) for s in ours.graph_signature.input_specs] == [
        str(s) for s in theirs.graph_signature.input_specs
    ]


# ------------------------------------------------------------------------------ arguments
def containers(library):
    class Model(library.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", library.zeros(()))
            self.register_buffer("loose", library.ones(3), persistent=False)
            self.plain = library.ones(3)

        def forward(self, x, pair, *, d, flag=True, k=3):
            self.count.add_(1)
            y = x + pair[0] * self.loose + self.plain + library.tensor([1.0, 2.0, 3.0])
            return {"o": (y * k, d["b"]), "n": x.shape[0], "s": "text", "none": None}

    x = library.ones(3)
    named = {"d": {"b": library.ones(2), "A": library.ones(1)}, "flag": False}
    return library.export.export(Model(), (x, [x.clone(), 2]), named)


def test_containers():
    ours, theirs = containers(flambeau), containers(torch)
    assert nodes(ours) == nodes(theirs)
    assert str(ours.graph_signature) == str(theirs.graph_signature)
    assert set(ours.constants) == set(theirs.constants)
    assert [n.name for n in ours.graph.nodes] == [n.name for n in theirs.graph.nodes]


def calls_of_inner_modules(library, calls):
    nn = library.nn

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x, pair, *, scale):
            return {"a": self.linear(x) * scale, "b": (pair[0] + pair[1], 3)}

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.other = Inner(), nn.Linear(3, 3)

        def forward(self, x, y):
            for _ in range(calls):
                parts = self.inner(x, [x, y], scale=3.0)
                x = parts["a"] + parts["b"][0]
            return x + self.other(y)

    return Outer(), (library.ones(2, 3), library.ones(2, 3))


@pytest.mark.parametrize("calls", [1, 2])
def test_calls_of_inner_modules(calls):
    entries = []
    for library in (torch, flambeau):
        module, arguments = calls_of_inner_modules(library, calls)
        program = library.export.export(
            module, arguments, preserve_module_call_signature=("inner", "other")
        )
        entries.append([re.sub(r"\s+", " ", str(x)) for x in program.module_call_graph])
    assert entries[0] == entries[1]


@pytest.mark.parametrize("name", ["branch", "count", "sizes", "plain"])
def test_draft_export(name):
    kinds = []
    for library in (torch, flambeau):

        class Model(library.nn.Module):
            def forward(self, x):
                if name == "branch":
                    return x + 1 if x.sum() > 0 else x - 1
                if name == "count":
                    for _ in range(int((x > 0).sum().item())):
                        x = x + 1
                if name == "sizes":
                    return x.view(2, -1) if x.shape[0] > 3 else x
                return x * 2

        shapes = ({0: library.export.Dim("n")},) if name == "sizes" else None
        program = library.export.draft_export(Model(), (library.ones(4),), dynamic_shapes=shapes)
        report = program._report
        kinds.append((report.successful(), {str(x.failure_type) for x in report.failures}))
        assert program.module()(library.ones(4)).shape == ((2, 2) if name == "sizes" else (4,))
    assert kinds[0] == kinds[1]


def test_assigned_buffers():
    def exported(library):
        class Model(library.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("b", library.ones(3))

            def forward(self, x):
                self.b = self.b + x
                return self.b * 2

        return library.export.export(Model(), (library.ones(3),)).run_decompositions()

    ours, theirs = exported(flambeau), exported(torch)
    assert nodes(ours) == nodes(theirs)
    assert str(ours.graph_signature) == str(theirs.graph_signature)


# ------------------------------------------------------------------------------ sizes
def sized(library):
    """name: (forward, arguments, dynamic shapes)."""
    Dim = library.export.Dim  # noqa: N806
    x, weight = library.ones(4, 3), library.ones(3, 2)
    batch, d = Dim("batch"), Dim("d")
    two = (x, x.clone())

    def branch(x):
        return x + 1 if x.shape[0] > 3 else x - 1

    def special(x):
        return x + 1 if x.shape[0] == 4 else x - 1

    def product(x):
        return x @ weight

    def flat(x):
        return x.reshape(x.shape[0] * x.shape[1]) * x.shape[0]

    def shifted(x, y):
        return x[1:] + y

    add = lambda x, y: x + y  # noqa: E731
    doubled = lambda x, y: library.cat([x, x]) + y  # noqa: E731
    five, eight = (library.ones(5), library.ones(4)), (library.ones(5), library.ones(10))
    return {
        "named": (product, (x,), ({0: batch},)),
        "range": (product, (x,), ({0: Dim("batch", min=2, max=16)},)),
        "auto": (product, (x,), ({0: Dim.AUTO},)),
        "dynamic": (product, (x,), ({0: Dim.DYNAMIC, 1: Dim.STATIC},)),
        "auto_constant": (product, (x,), ({1: Dim.AUTO},)),
        "dynamic_constant": (product, (x,), ({1: Dim.DYNAMIC},)),
        "named_constant": (product, (x,), ({1: d},)),
        "equal": (add, two, ({0: batch}, {0: batch})),
        "equal_to_constant": (add, two, ({0: batch}, None)),
        "two_equal": (add, two, ({0: batch}, {0: d})),
        "auto_equal": (add, two, ({0: Dim.AUTO}, {0: Dim.AUTO})),
        "flat": (flat, (x,), ({0: batch, 1: d},)),
        "branch": (branch, (x,), ({0: batch},)),
        "branch_auto": (branch, (x,), ({0: Dim.AUTO},)),
        "branch_range": (branch, (x,), ({0: Dim("b", min=4)},)),
        "special": (special, (x,), ({0: batch},)),
        "shifted": (shifted, five, ({0: d + 1}, {0: d})),
        "related": (shifted, five, ({0: batch}, {0: d})),
        "doubled": (doubled, eight, ({0: d}, {0: 2 * d})),
        "no_multiple": (shifted, five, ({0: 2 * d}, {0: d})),
        "divisible": (lambda x: x.view(-1, 2), (library.ones(4),), ({0: d},)),
        "one": (product, (library.ones(1, 3),), ({0: batch},)),
        "outside": (product, (library.ones(32, 3),), ({0: Dim("batch", max=16)},)),
        "structure": (product, (x,), ({0: batch}, {0: batch})),
        "names": (product, (x,), {"z": {0: batch}}),
        "kind": (product, (x,), {"x": {0: 3.5}}),
        "number": (product, (x,), {"x": {0: 5}}),
        "data": (lambda x: x + 1 if x.sum() > 0 else x, (x,), None),
        "integer": (lambda x, n: x + n, (x, 3), (None, Dim.DYNAMIC)),
        "constant_integer": (lambda x, n: x + n, (x, 3), None),
    }


def sized_program(library, name):
    function, args, shapes = sized(library)[name]
    parameters = ", ".join(["x", "y" if name != "integer" else "n"][: len(args)])
    if name == "constant_integer":
        parameters = "x, n"
    scope = {"function": function, "Module": library.nn.Module}
    exec(  # so that parameters have the names that messages show
        f"class Model(Module):\n    def forward(self, {parameters}):\n"
        f"        return function({parameters})",
        scope,
    )
    return library.export.export(scope["Model"](), args, dynamic_shapes=shapes), args


def outcome(library, name):
    """Ranges, or the class of the error and the lines of its message that say what is wrong."""
    try:
        exported, _ = sized_program(library, name)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.startswith("  - ")]
        fixes = [line for line in str(error).splitlines() if re.match(r"  \w+ = ", line)]
        if name == "divisible":
            lines, fixes = lines[:1], fixes[-1:]
        return type(error).__name__, lines, fixes
    ranges = {}
    for symbol, limits in exported.range_constraints.items():
        text = re.sub(r"\b[su]\d+", "s", str(symbol))
        ranges.setdefault(text, []).append((str(limits.lower), str(limits.upper)))
    return {text: sorted(values) for text, values in ranges.items()}


@pytest.mark.parametrize("name", sized(flambeau))
def test_ranges_and_errors(name):
    assert outcome(flambeau, name) == outcome(torch, name)


def call(library, name, *shapes):
    exported, args = sized_program(library, name)
    inputs = [library.ones(shape) if isinstance(shape, tuple) else shape for shape in shapes]
    try:
        result = exported.module()(*inputs)
    except Exception as error:
        return type(error).__name__, str(error).splitlines()[0].partition(": ")[0]
    return tuple(result.shape)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("range", [(7, 3)]), ("range", [(17, 3)]), ("range", [(1, 3)]), ("range", [(4, 4)]),
        ("named", [(9, 3)]), ("equal", [(5, 3), (5, 3)]), ("equal", [(5, 3), (6, 3)]),
        ("shifted", [(6,), (5,)]), ("shifted", [(6,), (6,)]), ("auto_constant", [(5, 3)]),
        ("branch_range", [(3, 3)]), ("branch_range", [(8, 3)]), ("constant_integer", [(4, 3), 4]),
        ("constant_integer", [(4, 3), 3]), ("integer", [(4, 3), 9]), ("range", [(7, 3), (7, 3)]),
    ],
)  # fmt: skip
def test_calls(name, shapes):
    assert call(flambeau, name, *shapes) == call(torch, name, *shapes)


# ------------------------------------------------------------------------------ names
def test_public_names():
    assert set(flambeau.export.__all__) == set(torch.export.__all__)


def test_dims():
    def facts(library):
        d = library.export.Dim("d", min=3, max=9)
        return repr(d), repr(2 * d + 1), (d - 1).__name__, (2 * d).min, (d + 1).max, repr(d + 1 - 1)

    assert facts(flambeau) == facts(torch)


@pytest.mark.parametrize(
    "make",
    [
        lambda e: e.Dim("3x"), lambda e: e.Dim("b", min=5, max=3),
        lambda e: e.Dim("a") * e.Dim("b"), lambda e: e.Dim("a") * -1, lambda e: 1 - e.Dim("a"),
        lambda e: e.export(len, ()), lambda e: e.register_dataclass(int),
    ],
)  # fmt: skip
def test_wrong_uses(make):
    errors = []
    for library in (flambeau, torch):
        with pytest.raises(Exception) as error:  # noqa: PT011
            make(library.export)
        errors.append(error.type.__name__)
    assert errors[0] == errors[1]
