"""Plans that start without compiled kernels: when the compiler is asked, and how it may fail.

The Plans here are compiled ones in disguise: their Execution says that better code is awaited. That
code has the same launches, and waits for kernels that are really missing.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import marshal
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import NamedTuple

import pytest

import flambeau
from flambeau import _core
from flambeau.compiler import (
    cache,
    codegen,
    pipeline,
    stored,
    targets,
    tiers,
    toolchain,
    worker,
)
from flambeau.ir import kernel_bytes
from flambeau.runtime import settings

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the worker is a POSIX process")
_numbers = itertools.count(2)


def kernels_of(function, *args):
    """The kernels that a call needs; none is compiled."""
    flambeau.compiler.reset()
    with codegen.collect() as kernels:
        flambeau.compile(function)(*args)
    _core.stream_clear()
    return list({kernel.text(): kernel for kernel in kernels}.values())


def new_kernel():
    """A kernel that no cache has: a sum of so many sines."""
    count = next(_numbers)

    def function(x):
        y = x
        for _ in range(count):
            y = y.sin() + x
        return y

    (kernel,) = kernels_of(function, flambeau.ones(8))
    return kernel


def same_bits(a, b):
    return bytes(a.numpy().tobytes()) == bytes(b.numpy().tobytes())


class Disguised:
    """A Plan of `softplus` at one size that awaits other code."""

    def __init__(self, kernels, size=1000):
        _core.plan_cache_clear()
        self.x = flambeau.linspace(-4, 4, size)
        self.expected = flambeau.nn.functional.softplus(self.x)
        plans = [p for p in gc.get_objects() if type(p) is _core.Plan and p.name == "softplus"]
        self.plan = max(plans, key=lambda plan: plan.id)
        self.compiled = self.plan.execution
        self.pending = tiers.Pending(kernels, self.assemble)
        self.assembled = 0
        self.plan.replace(self.compiled._replace(pending=self.pending))

    def assemble(self):
        self.assembled += 1
        kernels = [
            kernel_bytes.loads(k) if isinstance(k, bytes) else k for k in self.pending.kernels
        ]
        return None if codegen.present(kernels) is None else self.compiled

    def run(self):
        assert same_bits(flambeau.nn.functional.softplus(self.x), self.expected)


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """An empty cache; temporary files in a folder of their own; no worker of other tests."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with settings.override(CACHE_DIR=str(tmp_path / "cache")):
        Disguised([])  # its kernels are loaded before a test takes the compiler away
        yield temporary
        end_worker()
        assert list(temporary.glob("*")) == []
    toolchain.find.cache_clear()


def end_worker():
    """Ends the worker of this process, as when it has no work, and lets its thread notice."""
    running = tiers._service.worker
    if running is not None:
        running.close()


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def compiler_script(tmp_path, body):
    """A compiler that says who it is, and else does what a shell script does."""
    path = tmp_path / "compiler"
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then echo fake {path}; exit 0; fi\n' + body
    )
    path.chmod(0o755)
    return str(path)


# ------------------------------------------------------------------------------- kernels as bytes


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(-1),
        lambda x: (x @ x.T + 1.5).relu(),
        lambda x: x.cumsum(0).sum(0),
        lambda x: x[:, :3].T.contiguous() * float("nan"),
        lambda x: x.to(flambeau.bfloat16) @ x.to(flambeau.bfloat16).T,
        lambda x: x.argmax(1) + x.long().sum(),
        lambda x: x.gather(1, x.long()) / 3,
    ],
)
def test_kernels_survive_bytes(function):
    kernels = kernels_of(function, flambeau.ones(8, 8))
    assert kernels
    for kernel in kernels:
        copy = kernel_bytes.loads(kernel_bytes.dumps(kernel))
        assert copy == kernel and copy.text() == kernel.text()


def test_a_long_chain_survives_bytes():
    def function(x):
        for number in range(400):
            x = (x + number).sin() if number % 50 == 0 else x.abs() * x
        return x

    for kernel in kernels_of(function, flambeau.ones(8)):
        assert kernel_bytes.loads(kernel_bytes.dumps(kernel)) == kernel


# ------------------------------------------------------------------------------- policy


def test_policy():
    with settings.override(COMPILER="background"):
        assert tiers.policy() == "background"
        assert tiers.policy(tuned=True) == "wait"
        with codegen.collect():
            assert tiers.policy() == "wait"
    with settings.override(COMPILER="never"):
        assert tiers.policy() == tiers.policy(tuned=True) == "never"
    with settings.override(COMPILER="wait"):
        assert tiers.policy() == "wait"


def test_the_setting_is_checked():
    knob = settings.KNOBS["COMPILER"]
    assert knob.parse("never") == "never"
    with pytest.raises(ValueError, match="background"):
        knob.parse("later")


# ------------------------------------------------------------------------------- time


def test_compiled_plans_are_not_timed():
    x = flambeau.ones(1000)
    flambeau.nn.functional.softplus(x)
    plans = [p for p in gc.get_objects() if type(p) is _core.Plan and p.compiled]
    assert plans and all(plan.baseline_time is None for plan in plans)
    assert "compiled" in [tiers.tier(plan) for plan in plans if plan.name == "softplus"]


def test_time_on_the_baseline_adds_up(empty):
    plan = Disguised([new_kernel()])
    assert plan.plan.baseline_time == 0
    assert tiers.tier(plan.plan) == "baseline"
    times = []
    for _ in range(3):
        plan.run()
        times.append(plan.plan.baseline_time)
    assert 0 < times[0] < times[1] < times[2] < tiers.THRESHOLD
    assert plan.plan in _core.baseline_plans()
    plan.plan.replace(plan.compiled)
    assert plan.plan.baseline_time is None and plan.plan not in _core.baseline_plans()


def test_a_plan_that_is_gone_is_not_listed(empty):
    plan = Disguised([new_kernel()])
    number = plan.plan.id
    del plan
    _core.plan_cache_clear()
    gc.collect()
    assert number not in [each.id for each in _core.baseline_plans()]


# ------------------------------------------------------------------------------- the swap


def test_a_hot_plan_is_compiled(empty):
    """Nobody asks for it: its runs take so long that it is queued."""
    plan = Disguised([new_kernel()], size=1 << 20)
    wait_for(lambda: plan.run() or plan.pending.state != "new")
    wait_for(lambda: plan.run() or plan.plan.baseline_time is None)
    assert plan.pending.state in ("queued", "done") and plan.assembled == 1
    assert tiers.tier(plan.plan) == "compiled"
    assert cache.stats()["kernels"] >= 1
    plan.run()


def test_the_hottest_plans_come_first(monkeypatch):
    class Spent(NamedTuple):
        baseline_time: int

    pending = tiers.Pending([b""] * (tiers.UNIT // 2), lambda: None)
    monkeypatch.setattr(tiers, "_waiting", [(Spent(time), pending) for time in (20, 40, 60, 50)])
    taken = [[plan.baseline_time for plan, _ in tiers._take()] for _ in range(3)]
    assert taken == [[60, 50], [40, 20], []]


def test_the_worker_yields_the_processor(empty):
    plan = Disguised([new_kernel()])
    flambeau.compiler.wait()
    assert plan.pending.state == "done"
    process = tiers._service.worker.process.pid
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, process) == min(own + worker.NICENESS, 19)


def test_wait_compiles_what_is_not_hot(empty):
    kernels = [new_kernel() for _ in range(3)]
    plan = Disguised([kernels[0], *map(kernel_bytes.dumps, kernels[1:])])
    flambeau.compiler.wait()
    assert plan.pending.state == "done" and tiers.tier(plan.plan) == "compiled"
    assert codegen.present(kernels) is not None
    flambeau.compiler.wait()
    assert plan.assembled == 1
    plan.run()


def test_kernels_on_disk_are_not_compiled_again(empty):
    """Another process was faster."""
    kernel = new_kernel()
    build = codegen.Build(targets.current())
    build.finish([kernel])
    plan = Disguised([kernel])
    before = set(Path(settings.get("CACHE_DIR")).glob("bundles/*"))
    flambeau.compiler.wait()
    assert plan.pending.state == "done"
    assert set(Path(settings.get("CACHE_DIR")).glob("bundles/*")) == before


def test_debug_tells_of_swaps(empty, capfd):
    plan = Disguised([new_kernel()])
    with settings.override(DEBUG=1):
        flambeau.compiler.wait()
    assert "softplus: 1 kernels compiled after" in capfd.readouterr().err
    assert tiers.tier(plan.plan) == "compiled"


@pytest.mark.parametrize(("tier", "suffix"), [("baseline", " (baseline)"), ("compiled", "")])
def test_profiles_tell_the_tier(tier, suffix):
    _core.plan_cache_clear()
    x = flambeau.ones(8)
    with settings.override(TIER=tier), flambeau.profiler.profile() as profile:
        flambeau.nn.functional.softplus(x)
    names = {event.key for event in profile.key_averages() if "kernel" in event.key}
    assert names == {f"kernel::softplus[where{suffix}]"}
    _core.plan_cache_clear()


@pytest.mark.parametrize("tier", ["baseline", "compiled"])
def test_explain_tells_the_tier(tier):
    _core.stream_clear()
    with settings.override(TIER=tier):
        explanation = flambeau.compiler.explain(lambda x: x.sin() + 1, flambeau.ones(3))
    assert explanation.plans == 1 and explanation.baseline == (tier == "baseline")
    assert ("1 plans (1 on the baseline), " in str(explanation)) == (tier == "baseline")
    _core.stream_clear()


def test_what_was_replaced_meanwhile_stays(empty):
    plan = Disguised([new_kernel()])
    assert tiers._swap(plan.plan, tiers.Pending([], lambda: pytest.fail("not its code")))
    assert plan.plan.execution.pending is plan.pending


def test_a_stored_plan_starts_on_the_baseline(empty, monkeypatch):
    """It has the kernels to compile as bytes. (Its better code is only loaded here.)"""
    monkeypatch.setattr(codegen, "_handles", {})  # of other tests' caches
    plan, kernel = Disguised([]), new_kernel()
    spec = plan.plan.spec
    registers = spec.symbols + len(spec.program)
    _, portable_of = pipeline.compile_portable(plan.plan.graph(), registers)
    portable = portable_of()
    before, keys = portable.execution, portable.kernels
    launches = [launch._replace(kernel=1) for launch in before.launches]
    assert len(launches) == len(keys) == 1
    places = stored.unplaced([keys[0], *pipeline._contents([kernel])])
    assert (
        stored.places_of(pipeline._contents([kernel])) is None and places[0][1] and not places[1][1]
    )
    made = stored.StoredPlan(
        [], spec, registers, "", before._replace(launches=launches), places, before,
        [kernel_bytes.dumps(kernel)],
    )  # fmt: skip
    read = stored.StoredPlan.unpacked(marshal.loads(marshal.dumps(made.packed())))
    with settings.override(COMPILER="wait"):
        assert stored.execution_of(read) is None
    with settings.override(COMPILER="never"):
        execution = stored.execution_of(read)
        assert execution.pending is None
        assert [x.kernel for x in execution.launches] == [x.kernel for x in plan.compiled.launches]
    with settings.override(COMPILER="background"):
        execution = stored.execution_of(read)
        plan.plan.replace(execution)
        plan.run()
        flambeau.compiler.wait()
        (handle,) = codegen.present([kernel])
        assert execution.pending.state == "done"
        assert [launch.kernel for launch in plan.plan.execution.launches] == [handle.address]
        plan.plan.replace(plan.compiled)
    with settings.override(COMPILER="wait"):
        assert [launch.kernel for launch in stored.execution_of(read).launches] == [handle.address]


# ------------------------------------------------------------------------------- failures


def test_a_compiler_that_crashes(empty, tmp_path):
    with settings.override(CC=compiler_script(tmp_path, "kill -9 $$")):
        plan = Disguised([new_kernel()])
        flambeau.compiler.wait()
    assert plan.pending.state == "failed" and tiers.tier(plan.plan) == "baseline"
    flambeau.compiler.wait()  # it is not tried again
    plan.run()


def test_a_compiler_that_hangs(empty, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "PATIENCE", 10.0)
    monkeypatch.setattr(worker, "PATIENCE_PER_KERNEL", 0.0)
    with settings.override(
        CC=compiler_script(tmp_path, f"echo $$ > {tmp_path}/number\nsleep 1000")
    ):
        plan = Disguised([new_kernel()])
        flambeau.compiler.wait()
    assert plan.pending.state == "failed"
    number = int((tmp_path / "number").read_text())
    wait_for(lambda: not alive(number), 20)  # it was killed, which takes a moment
    plan.run()
    good = Disguised([new_kernel()])
    flambeau.compiler.wait()
    assert good.pending.state == "done"


def test_a_kernel_that_cannot_be_compiled_takes_no_other_with_it(empty, tmp_path):
    """The compiler refuses sources with a mark; the others of the same request are fine."""
    body = 'source=$(cat)\ncase "$source" in *fb_MARK*) exit 1;; esac\n'
    body += f'printf "%s\\n" "$source" | {shlex.join(toolchain.find().command)} "$@"'
    good, refused = new_kernel(), new_kernel()
    plans = [Disguised([each]) for each in (good, b"no kernel", refused)]
    with settings.override(CC=compiler_script(tmp_path, body)):
        toolchain.find.cache_clear()
        key = codegen.key_of(refused, targets.current(), toolchain.find().identity)
        compiler_script(tmp_path, body.replace("fb_MARK", codegen.symbol_of(key)))
        flambeau.compiler.wait()
        assert [plan.pending.state for plan in plans] == ["done", "failed", "failed"]


def test_an_error_of_the_assembly(empty):
    plan = Disguised([new_kernel()])
    plan.pending.assemble = lambda: 1 // 0
    flambeau.compiler.wait()
    assert plan.pending.state == "failed"
    plan.run()


def test_no_compiler(empty):
    with settings.override(CC="/nowhere/cc"):
        plan = Disguised([new_kernel()])
        flambeau.compiler.wait()
    assert plan.pending.state == "failed"
    found = Disguised([new_kernel()])  # the user has installed one, or names another
    flambeau.compiler.wait()
    assert found.pending.state == "done"


def test_no_thread(empty, monkeypatch):
    """A process may have as many as it is allowed."""

    def refuse():
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(tiers._service, "wake", refuse)
    plan = Disguised([new_kernel()])
    flambeau.compiler.wait()
    assert plan.pending.state == "failed"
    tiers._waiting.clear()


def test_no_interpreter(empty, monkeypatch):
    """An application that embeds Python may have no executable to start."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    end_worker()
    client = worker.Client(lambda each: None)
    assert client.compile([[kernel_bytes.dumps(new_kernel())]]) == [False]
    assert client.deaths == worker.MAX_DEATHS


def test_a_cache_that_cannot_be_written(empty, tmp_path):
    """The worker hands over the library; it is used from memory."""
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    with settings.override(CACHE_DIR=str(blocked / "cache")):
        kernel = new_kernel()
        plan = Disguised([kernel])
        flambeau.compiler.wait()
        assert plan.pending.state == "done"
        assert codegen.present([kernel]) is not None
    assert blocked.read_text() == "no folder"
    plan.run()


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_that_is_killed(empty):
    """Before, while and after it works: the work is done again, or was done."""
    for round_ in range(20):
        plan = Disguised([new_kernel()])
        tiers._queue([plan.plan])
        tiers._service.wake()
        deadline = time.monotonic() + 0.02 * round_
        while time.monotonic() < deadline and plan.pending.state == "queued":
            time.sleep(0.002)
        running = tiers._service.worker
        if running is not None and plan.pending.state == "queued":
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.process.pid, signal.SIGKILL)
        flambeau.compiler.wait()
        assert plan.pending.state == "done", round_
        plan.run()


# ------------------------------------------------------------------------------- processes

PROGRAM = """
import os, sys, time
sys.path[:0] = {path!r}
import flambeau
from flambeau.compiler import tiers
from tests.compiler import test_tiers as t
plan = t.Disguised([t.new_kernel() for _ in range({kernels})], size={size})
"""


def program(body, kernels=1, size=1000):
    head = PROGRAM.format(path=[str(Path(__file__).parents[2])], kernels=kernels, size=size)
    return [sys.executable, "-c", head + textwrap.dedent(body)]


@pytest.fixture
def environment(tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    return {
        **os.environ,
        "TMPDIR": str(temporary),
        "FLAMBEAU_CACHE_DIR": str(tmp_path / "cache"),
        "FLAMBEAU_VERIFY": "0",
    }


def output(command, environment):
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_processes_on_one_cache(environment):
    body = """
    flambeau.compiler.wait()
    print(plan.pending.state)
    """
    both = [
        subprocess.Popen(
            program(body, 3), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
        for _ in range(2)
    ]
    for each in both:
        out, err = each.communicate(timeout=120)
        assert out.split() == [b"done"], err
    folders_end(environment)


def folders_end(environment):
    wait_for(lambda: not list(Path(environment["TMPDIR"]).glob("*")), 20)


def test_exit_while_queued(environment):
    output(
        program("tiers._queue([plan.plan]); tiers._service.wake(); time.sleep(0.3)", 5), environment
    )
    folders_end(environment)


def test_exit_without_work(environment):
    output(program("plan.run()"), environment)
    folders_end(environment)


def test_fork_while_queued(environment):
    """The child has neither thread nor worker; it compiles for itself, and ends nothing."""
    body = """
    tiers._queue([plan.plan])
    tiers._service.wake()
    while tiers._service.worker is None:
        time.sleep(0.001)
    child = os.fork()
    if child == 0:
        ok = tiers._service.worker is None and plan.pending.state == "new"
        flambeau.compiler.wait()
        plan.run()
        os._exit(0 if ok and plan.pending.state == "done" else 1)
    flambeau.compiler.wait()
    print(plan.pending.state, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert output(program(body, 3), environment).split() == ["done", "0"]
    folders_end(environment)


def test_a_forked_child_compiles_what_becomes_hot_there(environment):
    body = """
    child = os.fork()
    if child == 0:
        end = time.monotonic() + 60
        while plan.plan.baseline_time is not None and time.monotonic() < end:
            plan.run()
        os._exit(plan.plan.baseline_time is not None)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), plan.plan.baseline_time)
    """
    assert output(program(body, size=1 << 20), environment).split() == ["0", "0"]
    folders_end(environment)


def test_a_program_that_is_killed(environment):
    """Its worker and compilers end, and their folder goes; 20 times, ever later."""
    body = """
    for round_ in range(20):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            plan = t.Disguised([t.new_kernel() for _ in range(round_ + 1)])
            tiers._queue([plan.plan])
            tiers._service.wake()
            while tiers._service.worker is None:
                time.sleep(0.001)
            os.write(writing, str(tiers._service.worker.process.pid).encode())
            time.sleep(1000)
        number = int(os.read(reading, 100))
        time.sleep(0.05 * round_)
        os.kill(child, t.signal.SIGKILL)
        os.waitpid(child, 0)
        t.wait_for(lambda: not t.alive(number), 20)
        t.wait_for(lambda: not os.listdir(os.environ["TMPDIR"]), 20)
    """
    output(program(body), environment)


def test_a_program_and_its_worker_that_are_killed(environment):
    """What is left is removed when another worker starts."""
    body = """
    import signal
    tiers._queue([plan.plan])
    tiers._service.wake()
    while tiers._service.worker is None:
        time.sleep(0.001)
    os.kill(tiers._service.worker.process.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run(program(body), capture_output=True, env=environment, check=False)
    assert list(Path(environment["TMPDIR"]).glob(worker.FOLDERS + "*"))
    assert (
        output(program("flambeau.compiler.wait(); print(plan.pending.state)"), environment)
        == "done\n"
    )
    folders_end(environment)


def test_stale_folders(empty, monkeypatch):
    living = tempfile.mkdtemp(prefix=worker.FOLDERS)
    lock = worker._locked(living)
    dead = tempfile.mkdtemp(prefix=worker.FOLDERS)
    os.close(worker._locked(dead))
    beginning = tempfile.mkdtemp(prefix=worker.FOLDERS)
    worker.remove_stale()
    assert [os.path.isdir(each) for each in (living, dead, beginning)] == [True, False, True]
    os.close(lock)
    monkeypatch.setattr(worker, "_STALE", -1.0)
    worker.remove_stale()
    assert not os.path.isdir(living) and not os.path.isdir(beginning)


def test_ctrl_c_does_not_reach_the_worker(empty):
    Disguised([new_kernel()])
    flambeau.compiler.wait()
    running = tiers._service.worker
    assert os.getpgid(running.process.pid) == running.process.pid != os.getpgrp()
