"""Plans of operators that outlive their process.

A cleared plan cache stands for a new process where that is enough: everything else that a process
remembers is keyed by content. Traces are counted; what is computed must have the same bits.
"""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
import threading

import pytest

import flambeau as torch
from flambeau import _core, runtime
from flambeau.compiler import cache, codegen, debug, postponed, shipped, stored, targets, toolchain
from flambeau.core.install import install_definition
from flambeau.derivation import derive
from flambeau.driver import calls, planner, specify
from flambeau.driver.dispatch import builder
from flambeau.ir.plan import PlanSpec
from flambeau.ir.printer import print_graph
from flambeau.language.definition import REGISTRY, op
from flambeau.runtime import settings
from tests.stress.random_programs import flags_at


class Machine:
    """A machine with an empty cache, on which processes begin."""

    def __init__(self, monkeypatch):
        self.traces = []
        for name in ("specify_call", "specify_graph"):
            original = getattr(specify, name)
            monkeypatch.setattr(specify, name, self._counted(original))

    def _counted(self, original):
        def specified(*arguments):
            self.traces.append(arguments)
            return original(*arguments)

        return specified

    def process(self, call):
        """(what `call` gives, number of traces) in a new process."""
        runtime.plan_cache_clear()
        codegen._handles.clear()
        cache._libraries.clear()
        cache._levels.clear()
        self.traces.clear()
        try:
            return call(), len(self.traces)
        finally:
            postponed.finish()
            runtime.plan_cache_clear()  # leaves no plan of this cache behind

    def blobs(self):
        return [path for path in (cache.directory() / "blobs").glob("??/*")]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "package_stamp", lambda: "the same sources")
    stored._environment.cache_clear()
    monkeypatch.setattr(planner, "MAX_STORED", 1 << 20)  # these processes never end
    monkeypatch.setattr(targets, "COMMON_FLAGS", flags_at("0"))  # nothing here depends on speed
    with settings.override(VERIFY=False, CACHE_DIR=tmp_path / "cache"):
        yield Machine(monkeypatch)
    runtime.plan_cache_clear()
    for known in (cache._libraries, cache._levels, codegen._handles):
        known.clear()
    stored._environment.cache_clear()


def bits(result):
    """Everything there is to know about results, comparable."""
    if isinstance(result, torch.Tensor):
        data = [complex(x) for x in result.detach().flatten().to(torch.complex128).tolist()]
        return (
            str(result.dtype), tuple(result.shape), result.stride(), result.storage_offset(),
            result.requires_grad, result.is_leaf or type(result.grad_fn).__name__,
            [(repr(x.real), repr(x.imag)) for x in data],
        )  # fmt: skip
    if isinstance(result, (list, tuple)):
        names = getattr(type(result), "_fields", type(result).__name__)
        return names, [bits(item) for item in result]
    return result


def numbers(*shape, dtype=torch.float32):
    count = 1
    for size in shape:
        count *= size
    return torch.tensor([(k * 7 % 11) / 4 - 1 for k in range(count)]).reshape(shape).to(dtype)


def random_draws():
    torch.manual_seed(3)
    return torch.rand(5), torch.randint(0, 9, (4,)), torch.nn.functional.dropout(numbers(8), 0.5)


def written_out():
    out = torch.zeros(3, 4)
    torch.add(numbers(3, 4), numbers(4), out=out)
    return out


def in_place():
    x = numbers(3, 4)
    x.add_(numbers(4), alpha=2).mul_(1.5)
    x.t().clamp_(min=0)
    x[1] = 5
    return x


def half_types():
    x = numbers(5, 6, dtype=torch.bfloat16)
    return x.softmax(-1), x + 1, x.to(torch.float16).sum(), x > 0


def layouts():
    x = numbers(4, 6)
    return x.t() + 1, x[:, ::2].exp(), x[:1].expand(3, 6) * x[:3], x.t().contiguous(), x.t() @ x


def with_numbers():
    x = numbers(4, 4)
    return x + 2, x + 2.5, x * True, x + 1j, x.pow(3), x.clamp(-0.5, 0.5), torch.full((3,), 7)


def integers():
    x = numbers(4, 6)
    return x.view(8, 3), x.narrow(0, 1, 2), x.roll(2, 1), x.sum((0, 1)), torch.arange(2, 11, 3)


def several_results():
    x = numbers(4, 6)
    return x.max(1), x.sort(-1), torch.cat([x, x[:1]]), x.split(4, 1), torch.std_mean(x, 0)


def factories():
    return (
        torch.zeros(2, 3),
        torch.ones(4, dtype=torch.int64),
        torch.eye(3),
        torch.linspace(0, 1, 5),
    )


def optionals():
    x, w = numbers(2, 6), numbers(6)
    norm = torch.nn.functional.layer_norm
    return norm(x, (6,)), norm(x, (6,), w), norm(x, (6,), w, w), x.clamp(min=0), x.clamp(max=0)


CALLS = [
    random_draws, written_out, in_place, half_types, layouts, with_numbers, integers,
    several_results, factories, optionals,
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_the_next_process_does_not_trace(machine, call):
    with settings.override(VERIFY=True):
        expected = machine.process(lambda: bits(call()))[0]
    first, traced = machine.process(lambda: bits(call()))
    second, again = machine.process(lambda: bits(call()))
    assert traced > 0
    assert again == 0
    assert expected == first == second


def gradients():
    x, w = numbers(4, 6).requires_grad_(), numbers(6, 3).requires_grad_()
    loss = torch.nn.functional.gelu(x) @ w
    loss = torch.nn.functional.cross_entropy(loss, torch.tensor([0, 2, 1, 1])) * 2
    loss.backward()
    (slope,) = torch.autograd.grad((x * x * w.sum(1)).sum(), x, create_graph=True)
    slope.sin().sum().backward()
    return loss, x.grad, w.grad, slope


def test_backward_of_a_stored_plan(machine):
    first, traced = machine.process(lambda: bits(gradients()))
    second, again = machine.process(lambda: bits(gradients()))
    assert traced > again == 0
    assert first == second


def test_a_backward_that_was_not_kept_is_derived_as_it_was(machine):
    """Only the forward ran in the first process: the second traces it to get the same backward."""

    def forward():
        x = numbers(4, 6).requires_grad_()
        return x, (x.softmax(-1) * x.exp()).sum()

    def both():
        x, loss = forward()
        loss.backward()
        return bits(x.grad)

    expected, _ = machine.process(both)
    cache.clear()
    machine.process(forward)
    found, traced = machine.process(both)
    assert traced > 0
    assert found == expected


# ------------------------------------------------------------------------------- validity


def test_guards_choose_among_plans(machine):
    """One class of calls, programs of its own for equal and for different sizes."""

    def reshaped(*shapes):
        return [bits(numbers(*a).view(b)) for a, b in shapes]

    def grown(*sizes):
        return [bits(torch.cat([numbers(n, 3), numbers(m, 3)])) for n, m in sizes]

    shapes = [((4, 6), (2, 12)), ((5, 6), (10, 3)), ((4, 6), (8, 3)), ((7, 2), (2, 7))]
    sizes = [(2, 2), (2, 5), (7, 3)]
    with settings.override(VERIFY=True):
        expected = machine.process(lambda: (reshaped(*shapes), grown(*sizes)))[0]
    machine.process(lambda: (reshaped(*shapes[:2]), grown(*sizes[:1])))
    found, _ = machine.process(lambda: (reshaped(*shapes), grown(*sizes)))
    again, traced = machine.process(lambda: (reshaped(*shapes), grown(*sizes)))
    assert found == again == expected
    assert traced == 0


def test_few_plans_are_kept_under_one_name(machine):
    spec = PlanSpec("one", 1, 0, [], 0, program=[(0, 3, 0), (8, 0, 1)], guards=[2])
    plan, name = stored.StoredPlan([3], spec, 3), stored.Name("ab" * 16, "one")
    for size in range(2 * stored.MAX_PLANS):
        other = spec._replace(program=[(0, size, 0), (8, 0, 1)])
        stored.save(name, stored.StoredPlan([size], other, 3))
    assert len(stored.load(name)) == stored.MAX_PLANS
    assert stored.find(name, [3]) is None
    assert stored.find(name, [stored.MAX_PLANS]) is not None
    assert plan.holds([3]) and not plan.holds([4])


def test_values_that_never_repeat_are_not_kept_for_ever(machine, monkeypatch):
    monkeypatch.setattr(planner, "MAX_STORED", 3)
    x = numbers(2, 3, 2, 3, 2, 3)
    machine.process(lambda: [x.cumsum(k) for k in range(6)])
    _, traced = machine.process(lambda: [x.cumsum(k) for k in range(6)])
    assert traced >= 3


def test_default_dtype_is_part_of_the_name(machine):
    def call():
        return bits(torch.arange(3) / 2), bits(torch.zeros(2)), bits(torch.ones(2).int() * 1.5)

    narrow, _ = machine.process(call)
    torch.set_default_dtype(torch.float64)
    wide, traced = machine.process(call)
    again, none = machine.process(call)
    torch.set_default_dtype(torch.float32)
    assert traced > none == 0
    assert "torch.float64" in str(wide) and "torch.float64" not in str(narrow)
    assert wide == again and machine.process(call) == (narrow, 0)


def test_the_graph_is_traced_under_the_old_default_dtype(machine):
    integers = torch.tensor([1, 2, 3])
    seen = _argument("i64", (3,), (1,))
    divide = REGISTRY["div"].overloads[0]
    machine.process(lambda: integers / integers)
    machine.traces.clear()
    plan = builder(divide, "functional")((seen, seen))
    torch.set_default_dtype(torch.float64)
    try:
        assert not machine.traces
        assert plan.graph().outputs[0].node.dtype == "f32"
        assert machine.traces
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_pending_graph_is_the_traced_one(machine):
    x = _argument("f32", (4, 8), (8, 1))._replace(requires_grad=True)
    build = builder(REGISTRY["exp"].overloads[0], "functional")
    machine.process(lambda: numbers(4, 8).requires_grad_().exp())
    machine.traces.clear()
    other = x._replace(sizes=(5, 9), strides=(9, 1))
    plan = build((other,))
    assert (plan.name, machine.traces) == ("exp", [])
    graph = plan.graph()
    assert plan.graph() is graph
    with settings.override(VERIFY=True):
        traced = build((other,)).graph()
    assert stored.fingerprint(graph) == stored.fingerprint(traced)
    assert print_graph(graph) == print_graph(traced)
    assert type(graph) is type(traced)
    assert graph == traced
    assert derive.derive(graph, (True,)) is not None


def test_another_trace_than_the_stored_one_is_an_error(machine, monkeypatch):
    x = _argument("f32", (4, 8), (8, 1))
    machine.process(lambda: numbers(4, 8).exp())
    plan = builder(REGISTRY["exp"].overloads[0], "functional")((x,))
    sine = specify.specify_call(REGISTRY["sin"].overloads[0], "functional", (x,))
    monkeypatch.setattr(specify, "specify_call", lambda *_: sine)
    with pytest.raises(RuntimeError, match="its stored plan is not what is traced now"):
        plan.graph()


# ------------------------------------------------------------------------------- names


def test_every_signature_has_an_identity_of_its_own():
    found = {}
    for name, definition in REGISTRY.items():
        for number, overload in enumerate(definition.overloads):
            for variant in ("functional", "inplace"):
                source = builder(overload, variant).__self__
                if source.identity is not None:
                    where = (name, number, variant)
                    assert found.setdefault(source.identity, where) == where


def test_changed_sources_change_every_name(machine, monkeypatch):
    machine.process(lambda: numbers(4).exp())
    assert machine.process(lambda: numbers(4).exp())[1] == 0
    monkeypatch.setattr(shipped, "package_stamp", lambda: "a line was changed")
    stored._environment.cache_clear()
    assert machine.process(lambda: numbers(4).exp())[1] > 0


def test_the_stamp_sees_every_source(tmp_path):
    (tmp_path / "compiler").mkdir()
    (tmp_path / "_kernels").mkdir()
    for name in ("a.py", "compiler/b.py", "compiler/c.c.in", "_kernels/c.py", "compiler/notes.txt"):
        (tmp_path / name).write_text("1")

    def found():
        shipped._add_sources(str(tmp_path), files := [])
        return sorted(files)

    before = found()
    assert [os.path.relpath(path, tmp_path) for path, *_ in before] == [
        "a.py", "compiler/b.py", "compiler/c.c.in",
    ]  # fmt: skip
    times = (tmp_path / "a.py").stat()
    (tmp_path / "a.py").write_text("2")  # of the same size, and the old time of modification
    os.utime(tmp_path / "a.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert found() != before


def test_whatever_makes_a_plan_is_in_the_stamp(machine):
    """Bodies of operators, and every module of which a function runs while plans are made."""
    running = set()

    def called(frame, event, _):
        running.add(frame.f_code.co_filename)

    def step():
        model = torch.nn.Sequential(torch.nn.GELU(), torch.nn.LayerNorm(6))
        loss = torch.compile(lambda x: model(x).square().mean())
        loss(numbers(4, 6)).backward()

    sys.setprofile(called)
    try:
        with settings.override(COMPILER="never", TIER="baseline"):
            for call in (in_place, integers, several_results, step):
                machine.process(call)
    finally:
        sys.setprofile(None)
    bodies = {o.body.__module__ for d in REGISTRY.values() for o in d.overloads}
    running |= {sys.modules[name].__file__ for name in bodies if name.startswith("flambeau.")}
    package = os.path.dirname(torch.__file__)
    stamped = {path for path, *_ in shipped._files()}
    others = {os.path.relpath(path, package) for path in running - stamped}
    # Users' names of what runs, and layers and tapes, which call operators; what counts programs.
    users = ("__init__.py", "_dynamo/", "autograd/", "nn/", "func/", "optim/", "utils/")
    assert {x for x in others if not x.startswith(("..", "<", *users))} == set()


def test_a_source_younger_than_the_process_stops_it(machine, monkeypatch):
    monkeypatch.undo()
    shipped.package_stamp.cache_clear()
    stored._environment.cache_clear()
    assert stored.name_of("a") is not None
    monkeypatch.setattr(torch, "_began", 0)
    shipped.package_stamp.cache_clear()
    stored._environment.cache_clear()
    assert stored.name_of("a") is None
    assert bits(numbers(3).exp()) and machine.blobs() == []
    shipped.package_stamp.cache_clear()


def test_names_need_no_compiler(machine):
    with_one = stored.name_of("a")
    with settings.override(CC="no-such-compiler"):
        assert toolchain.stamp() == ""
        assert stored.name_of("a") not in (None, with_one)
    with settings.override(CC="gcc 'unbalanced"):
        assert stored.name_of("a") is None
    assert stored.name_of("a") == with_one


def test_definitions_outside_of_the_package_are_not_kept(machine):
    @op("_test_stored_double(Tensor self) -> Tensor", where="private")
    def double(self):
        """Twice the operand."""
        return self + self

    try:
        install_definition(double)
        for _ in range(2):
            made, traced = machine.process(lambda: double.native(torch.empty(2)).shape)
            assert (made, traced) == ((2,), 1)
    finally:
        del REGISTRY["private." + double.name]


def _argument(dtype, sizes, strides, offset=0, layout="contiguous"):
    device = torch.device("cpu")
    return _core.TensorArgument((dtype, sizes, strides, offset, False, layout, device))


def test_what_has_no_text_has_no_class():
    tensor = _argument("f32", (2,), (1,))
    assert calls.class_of((tensor, [tensor, None], 1.5, "x", torch.float32)) is not None
    assert calls.class_of((tensor, object())) is None
    assert calls.class_of((0.0,)) != calls.class_of((-0.0,))
    assert calls.class_of((True,)) != calls.class_of((1,)) != calls.class_of((1.0,))
    assert calls.class_of(("torch.float32",)) != calls.class_of((torch.float32,))
    assert calls.class_of((tensor,)) == calls.class_of((tensor._replace(sizes=(7,)),))
    assert calls.class_of((tensor,)) != calls.class_of((tensor._replace(sizes=(1,)),))


def test_numbers_of_a_call_are_replaced_in_their_order():
    def call(a, b, c, d, e, f):
        integers = [_core.IntegerArgument((n,)) for n in (e, f)]
        tensor = _argument("f32", (a, b), (c, 1), d, "strided")
        return ([tensor, None], integers[0], (2, 3), [integers[1]])

    old, new = call(2, 3, 4, 5, 6, 7), call(12, 13, 14, 15, 16, 17)
    assert calls.numbers_of(old) == [2, 3, 4, 1, 5, 6, 7]
    assert calls.with_numbers(old, calls.numbers_of(new)) == new


# ------------------------------------------------------------------------------- the disk


@pytest.fixture
def no_installed_kernels(monkeypatch, tmp_path):
    """Kernels come from the user's cache alone."""
    monkeypatch.setattr(cache, "PREFILLED", tmp_path / "nothing")
    toolchain.prefilled_identity.cache_clear()
    yield
    toolchain.prefilled_identity.cache_clear()


@pytest.mark.usefixtures("no_installed_kernels")
def test_evicted_kernels_are_built_again(machine):
    first, _ = machine.process(lambda: bits(numbers(4, 4).softmax(-1)))
    for bundle in (cache.directory() / "bundles").iterdir():
        bundle.unlink()
    second, traced = machine.process(lambda: bits(numbers(4, 4).softmax(-1)))
    third, again = machine.process(lambda: bits(numbers(4, 4).softmax(-1)))
    assert traced > 0 and again == 0
    assert first == second == third


@pytest.mark.usefixtures("no_installed_kernels")
def test_kernels_that_moved_are_found_by_their_keys(machine):
    first, _ = machine.process(lambda: bits(numbers(4, 4).softmax(-1)))
    exported = cache.directory().parent / "exported"
    cache.export(exported)
    for name in ("bundles", "index"):
        for path in (cache.directory() / name).rglob("*"):
            if path.is_file():
                path.unlink()
    cache._levels.clear()
    assert cache.import_(exported) > 0
    assert machine.process(lambda: bits(numbers(4, 4).softmax(-1))) == (first, 0)


def rewritten(path, change):
    """Replaces a blob's content under a right checksum."""
    cache.put_blob(path.name, change(cache.get_blob(path.name)))


DAMAGE = {
    "a flipped bit": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?"),
    "an empty file": lambda path: path.write_bytes(b""),
    "half a file": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "no plans at all": lambda path: rewritten(path, lambda _: b"not marshalled"),
    "half of the plans": lambda path: rewritten(path, lambda value: value[: len(value) // 2]),
    "another form": lambda path: rewritten(path, lambda _: marshal.dumps([(1, 2)])),
    "a number": lambda path: rewritten(path, lambda _: marshal.dumps(3)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_plans_count_as_absent(machine, damage):
    first, traced = machine.process(lambda: bits(numbers(4).exp()))
    for path in machine.blobs():
        DAMAGE[damage](path)
    assert machine.process(lambda: bits(numbers(4).exp())) == (first, traced)
    assert machine.process(lambda: bits(numbers(4).exp())) == (first, 0)


def test_a_cache_that_cannot_be_written_is_no_obstacle(machine, tmp_path):
    (tmp_path / "file").write_text("not a directory")
    with settings.override(CACHE_DIR=tmp_path / "file" / "cache"):
        first, traced = machine.process(lambda: bits(numbers(4).exp()))
        assert machine.process(lambda: bits(numbers(4).exp())) == (first, traced)


# ------------------------------------------------------------------------------- who looks on


def test_verification_and_watchers_see_every_program(machine):
    machine.process(lambda: numbers(4).exp())
    with settings.override(VERIFY=True):
        assert machine.process(lambda: numbers(4).exp())[1] > 0
    seen = []
    with debug.watch(seen.append):
        assert machine.process(lambda: numbers(4).exp())[1] > 0
    assert {report.program for report in seen} >= {"exp"}
    with codegen.collect() as kernels:
        assert machine.process(lambda: numbers(4).exp())[1] > 0
    assert kernels


def test_debugging_names_stored_plans(machine, capsys):
    machine.process(lambda: numbers(4).exp())
    with settings.override(DEBUG=1):
        machine.process(lambda: numbers(4).exp())
    assert "[flambeau] exp: a finished plan of an earlier run" in capsys.readouterr().err


def test_errors_stay_the_same(machine):
    def messages():
        found = []
        for call in (
            lambda: numbers(4, 3).index_select(0, torch.tensor([0, 9])),
            lambda: torch.nn.functional.embedding(torch.tensor([[7]]), numbers(4, 3)),
            lambda: numbers(4, 3) + numbers(5, 3),
            lambda: numbers(3).add_(numbers(4, 3)),
            lambda: numbers(4, 3).view(5, 5),
            lambda: torch.linalg.cholesky(-torch.eye(3)),
        ):
            with pytest.raises((IndexError, RuntimeError, ValueError)) as caught:
                call()
            found.append((caught.type, str(caught.value)))
        return found

    with settings.override(VERIFY=True):
        expected = machine.process(messages)[0]
    first, second = machine.process(messages)[0], machine.process(messages)[0]
    assert expected == first == second


def test_other_devices_are_not_kept(machine):
    def shapes():
        return (torch.ones(2, device="meta") + 1).shape, torch.zeros(3, device="null").exp().shape

    machine.process(shapes)
    assert machine.process(shapes)[1] > 0


def test_recorded_programs_are_not_traced_again(machine):
    def recorded():
        torch.compiler.reset()
        return bits(torch.compile(lambda x: (x * 2 + 1).softmax(-1).cumsum(0))(numbers(4, 6)))

    first, traced = machine.process(recorded)
    second, again = machine.process(recorded)
    torch.compiler.reset()
    assert traced > again == 0
    assert first == second


# ------------------------------------------------------------------------------- at once


def test_threads_that_meet_the_same_call(machine):
    machine.process(lambda: numbers(64, 64).softmax(-1))

    def together():
        found, threads = [], []
        gate = threading.Barrier(4)

        def one():
            gate.wait()
            found.append(bits(numbers(64, 64).softmax(-1)))

        for _ in range(4):
            threads.append(threading.Thread(target=one))
            threads[-1].start()
        for thread in threads:
            thread.join()
        return found

    found, _ = machine.process(together)
    assert len(found) == 4 and all(x == found[0] for x in found)


PROGRAM = """
import sys
import flambeau as torch
x = (torch.arange(12).reshape(3, 4) / 7).requires_grad_()
y = x.softmax(-1) @ x.exp().t()
y.sum().backward()
print([v.hex() for v in x.grad.flatten().tolist()])
loaded = [n for n in ("driver.specify", "compiler.pipeline", "compiler.codegen",
                      "derivation.derive")
          if "flambeau." + n in sys.modules]
loaded += [n for n in ("pathlib", "ctypes", "hashlib", "tempfile") if n in sys.modules]
print(loaded)
"""


def start(directory):
    environment = os.environ | {"FLAMBEAU_CACHE_DIR": str(directory), "FLAMBEAU_VERIFY": "0"}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_processes_share_plans_and_load_no_compiler(tmp_path):
    outputs = [child.communicate()[0].splitlines() for child in [start(tmp_path) for _ in "abc"]]
    assert len({lines[0] for lines in outputs}) == 1
    assert not list(tmp_path.glob("**/*.tmp"))
    last = start(tmp_path).communicate()[0].splitlines()
    assert last == [outputs[0][0], "[]"]
