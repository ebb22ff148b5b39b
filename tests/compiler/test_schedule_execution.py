"""The execution dictionary: registers, buffers and launches agree with the schedule."""

import pytest

from flambeau import prims
from flambeau.compiler import pipeline
from flambeau.compiler.execution import build_execution
from flambeau.compiler.pipeline import schedule
from flambeau.ir import kernel as k
from flambeau.ir.kernel_grammar import KernelError, verify
from flambeau.ir.node import node
from flambeau.ir.size import evaluate, symbol
from flambeau.ir.size_program import run
from tests.prims.composites import layer_norm, make_graph, softmax

S0, S1 = symbol("s0", minimum=2), symbol("s1", minimum=2)


def build(graph, registers=None):
    made = schedule(graph)
    addresses = {x.kernel.text(): 64 + i for i, x in enumerate(made.launches) if x.kernel}
    return made, build_execution(made, graph.symbols, registers, addresses, {}, [])


@pytest.mark.parametrize("metadata", [0, 3])
def test_registers_hold_the_sizes(metadata):
    def function(x, w, b):
        total = prims.reduce_dims("sum", x, [0, 1])
        return layer_norm(x, w, b), softmax(prims.matmul(x, prims.permute(x, (1, 0)))), total

    graph = make_graph(function, ["f32"] * 3, [(S0, S1), (S1,), (S1,)], ("s0", "s1"))
    made, execution = build(graph, 2 + metadata)
    sizes = {"s0": 5, "s1": 9000}
    registers = run(execution.program, [5, 9000] + [-1] * metadata)
    for launch, entry in zip(made.launches, execution.launches):
        assert [registers[r] for r in entry.sizes] == [evaluate(s, sizes) for s in launch.sizes]
        assert registers[entry.work] == evaluate(launch.work, sizes)
        if launch.kernel is not None:
            assert registers[entry.chunks] == evaluate(launch.chunks, sizes)
            assert entry.kernel >= 64
    for buffer, entry in zip(made.buffers, execution.buffers):
        if buffer.kind == "temporary":
            assert registers[entry.nbytes] == evaluate(buffer.where, sizes)
            assert entry.first <= entry.last


def test_stages_are_listed():
    graph = make_graph(softmax, ["f32"], [(S0, S1)], ("s0", "s1"))
    found = pipeline.stages(graph, "lower")
    names = ["simplify", "prepare", "analyse", "cluster", "order", "lower"]
    assert [name for name, _, _ in found] == names
    assert "kernel row" in found[-1][2]
    names += ["tier", "repeat", "print", "compile", "assemble"]
    assert [stage.name for stage in pipeline.STAGES] == names


def test_chunks_cover_all_rows():
    graph = make_graph(softmax, ["f32"], [(S0, S1)], ("s0", "s1"))
    [launch] = schedule(graph).launches
    for rows, columns in ((2, 3), (1000, 7), (7, 100_000)):
        sizes = {"s0": rows, "s1": columns}
        per_chunk = evaluate(launch.sizes[-1], sizes)
        chunks = evaluate(launch.chunks, sizes)
        assert (chunks - 1) * per_chunk < rows <= chunks * per_chunk


def broken(**changes):
    r = symbol("r")
    value = k.load(0, r, "f32")
    parts = {
        "form": "map",
        "parameters": (("f32", "r"), ("f32", "w")),
        "size_count": 1,
        "scalars": (),
        "rows": (),
        "inner": symbol("n0"),
        "body": (k.Pass(((1, r, value),)),),
    }
    return k.Kernel(**(parts | changes))


def test_the_verifier_finds_mistakes():
    verify(broken())
    r = symbol("r")
    early = k.Pass(((1, r, k.reduced("a0", "f32")),))
    wide = k.Pass(((1, r, k.load(0, r, "f64")),))
    mistakes = [
        {"size_count": 0},
        {"parameters": (("f32", "r"), ("f32", "r"))},
        {"parameters": (("f32", "r"), ("f64", "w"))},
        {"body": (early,)},
        {"body": (wide,)},
        {"body": (k.RowStores(()),)},
        {"body": (k.Pass(((1, symbol("k"), k.load(0, r, "f32")),)),)},
        {"body": (k.Pass(((1, r, node("s.ref", (), (), "f32")),)),)},
        {"form": "spiral"},
    ]
    for mistake in mistakes:
        with pytest.raises(KernelError, match="hint"):
            verify(broken(**mistake))


def test_constants_keep_signs_and_types():
    for value, dtype in (
        (-0.0, "f32"),
        (0.0, "f32"),
        (1, "i64"),
        (True, "bool"),
        (1 - 0.0j, "c64"),
    ):
        text = k.encode_constant(value, dtype)
        assert repr(k.decode_constant(text, dtype)) == repr(value)
    assert k.const(0.0, "f32") is not k.const(-0.0, "f32")
    assert k.const(float("nan"), "f32") is k.const(float("nan"), "f32")


def test_every_primitive_has_a_lowering():
    from flambeau.compiler.schedule.candidates import CANDIDATES
    from flambeau.compiler.schedule.launch import TEMPLATES
    from flambeau.compiler.schedule.routines import HANDLERS as ROUTINES
    from flambeau.prims.record import PRIMITIVES

    for name, record in PRIMITIVES.items():
        if record.kind in ("create", "index", "check"):
            assert record.lower is not None, name
        elif record.kind == "shape":
            assert record.reads is not None, name
        elif record.kind in ("scatter", "random", "routine"):
            assert record.routine is not None, name
            assert (record.routine.epilogue is not None) == (name in TEMPLATES), name
            assert record.routine.tuned == (name in CANDIDATES), name
            declared = record.routine.arguments is not None
            assert (name in ROUTINES) + (name in TEMPLATES) + declared == 1, name


def test_all_results_of_a_routine_come_from_one_launch():
    def function(x):
        u, _, vh = prims.svd(x)
        return prims.matmul(u, vh), prims.fft(prims.cast(x, "c64"), 0)

    made = schedule(make_graph(function, ["f32"], [(4, 3)]))
    names = [launch.routine for launch in made.launches if launch.routine]
    assert names.count("svd_f32") == 1 and "fft_c64" in names
    [svd] = [launch for launch in made.launches if launch.routine == "svd_f32"]
    assert len(svd.buffers) == 4 and svd.sizes == [1, 4, 3, 0]


def test_parameters_of_draws():
    def function(x, p):
        kept = prims.random("bernoulli", x.shape, "bool", 1 - p, sequence=1)
        noise = prims.random("normal", x.shape, "f32", -0.0, p, sequence=0)
        return prims.where(kept, x, noise)

    made = schedule(make_graph(function, ["f32"], [(S0, S1)], ("s0", "s1"), scalars=("f64",)))
    draws = [x for x in made.launches if x.routine]
    assert [x.routine for x in draws] == ["random_normal_f32", "random_bernoulli_from_f64_bool"]
    assert draws[0].scalars == [("constant", -0.0, True), ("argument", 0, True)]
