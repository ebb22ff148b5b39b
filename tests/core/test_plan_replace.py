"""New code for a Plan while it is in use: `Plan.replace`."""

import gc
import threading
import time
import weakref

import pytest

import flambeau
from flambeau import _core
from flambeau.compiler import pipeline
from flambeau.runtime import settings


def plan_of(name):
    """The newest Plan of a name."""
    plans = [p for p in gc.get_objects() if type(p) is _core.Plan and p.name == name]
    return max(plans, key=lambda plan: plan.id)


def same_bits(a, b):
    return bytes(a.numpy().tobytes()) == bytes(b.numpy().tobytes())


@pytest.fixture
def softplus():
    """A call of an operator: its input, result and Plan."""
    _core.plan_cache_clear()
    x = flambeau.linspace(-4, 4, 1000)
    result = flambeau.nn.functional.softplus(x)
    return x, result, plan_of("softplus")


def test_the_same_code_again(softplus):
    x, result, plan = softplus
    execution, before = plan.execution, _core.plan_cache_stats()
    plan.replace(execution)
    assert plan.compiled and plan.execution is execution
    assert same_bits(flambeau.nn.functional.softplus(x), result)
    after = _core.plan_cache_stats()
    assert after["builds"] == before["builds"]
    assert after["exact_hits"] == before["exact_hits"] + 1
    assert after["entries"] == before["entries"]


def test_other_code_runs_from_the_next_call_on(softplus):
    """Without launches nothing is written: the proof that the new code ran, at known sizes too."""
    x, result, plan = softplus
    execution = plan.execution
    plan.replace(execution._replace(launches=[]))
    assert plan.launches == ()
    assert "0 launches" in repr(plan)
    flambeau.nn.functional.softplus(x)
    assert flambeau.nn.functional.softplus(x[:10]).shape == (10,)
    plan.replace(execution)
    assert same_bits(flambeau.nn.functional.softplus(x), result)
    assert plan.launches and "not compiled" not in repr(plan)
    assert execution.launches[0].name in plan.text()


def test_wrong_code_is_refused(softplus):
    x, result, plan = softplus
    execution = plan.execution
    launch = execution.launches[0]._replace(sizes=[10_000])
    with pytest.raises(ValueError, match="register"):
        plan.replace(execution._replace(launches=[launch]))
    with pytest.raises(TypeError, match="named tuple"):
        plan.replace({})
    assert plan.execution is execution
    assert same_bits(flambeau.nn.functional.softplus(x), result)


def test_code_for_a_plan_that_was_never_run():
    _core.plan_cache_clear()
    x = flambeau.linspace(-1, 1, 100)
    expected = flambeau.nn.functional.softplus(x)
    execution = plan_of("softplus").execution
    _core.plan_cache_clear()
    result = flambeau.nn.functional.softplus(x)
    plan = plan_of("softplus")
    fresh = _core.Plan(plan.spec, compile=lambda: pytest.fail("it has code"))
    fresh.replace(execution)
    fresh.prepare()
    assert fresh.compiled and fresh.execution is execution
    assert same_bits(result, expected)


def test_a_stream_is_known_after_the_code_of_its_calls_changed():
    """Keys of streams name Instances; the new ones stand for the same sizes."""
    _core.plan_cache_clear()
    x = flambeau.linspace(-1, 1, 100)
    function = flambeau.compile(lambda x: flambeau.nn.functional.softplus(x) * 2)
    flambeau.nn.functional.softplus(x)
    expected = function(x)
    before = _core.stream_stats()
    plan = plan_of("softplus")
    plan.replace(plan.execution)
    assert same_bits(function(x), expected)
    after = _core.stream_stats()
    assert after["builds"] == before["builds"]
    assert after["exact_hits"] == before["exact_hits"] + 1


def test_a_stream_gets_new_code():
    x = flambeau.linspace(-1, 1, 100)
    function = flambeau.compile(lambda x: (x * 3).sin() + 1)
    expected = function(x)
    plans = [p for p in gc.get_objects() if type(p) is _core.Plan and p.compiled]
    plan = max(plans, key=lambda plan: plan.id)
    execution = plan.execution
    plan.replace(execution._replace(launches=[]))
    function(x)
    plan.replace(execution)
    assert same_bits(function(x), expected)


def test_packed_weights_stay_packed():
    """They are kept with the storage, under the kernel and its sizes, not with the code."""
    _core.plan_cache_clear()
    flambeau.runtime.empty_cache()
    weight = flambeau.randn(256, 256)
    x = flambeau.randn(64, 256)
    for _ in range(4):
        expected = flambeau.nn.functional.linear(x, weight)
    plan = plan_of("linear")
    hits = flambeau.runtime.memory_stats()
    plan.replace(plan.execution)
    assert same_bits(flambeau.nn.functional.linear(x, weight), expected)
    after = flambeau.runtime.memory_stats()
    names = [name for name in after if "pack" in name and "hits" in name]
    assert all(after[name] > hits[name] for name in names)


@pytest.mark.parametrize("size", [100, 1 << 18])
def test_replace_while_another_thread_runs_it(softplus, size):
    """Short runs have the interpreter's lock, long ones do not."""
    x = flambeau.linspace(-4, 4, size)
    expected, plan = flambeau.nn.functional.softplus(x), softplus[2]
    execution, stop, wrong, runs = plan.execution, threading.Event(), [], [0]

    def run():
        while not stop.is_set():
            if not same_bits(flambeau.nn.functional.softplus(x), expected):
                wrong.append(runs[0])
            runs[0] += 1

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    replaced = 0
    while runs[0] < 20 or replaced < 100:
        replaced += 1
        plan.replace(execution._replace(keepalive=[*execution.keepalive, replaced]))
        if replaced % 10 == 0:
            time.sleep(0.001)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_old_code_goes_with_its_last_run(softplus):
    class Mark:
        pass

    x, _, plan = softplus
    marks = [Mark() for _ in range(3)]
    execution = plan.execution
    for mark in marks:
        plan.replace(execution._replace(keepalive=[*execution.keepalive, mark]))
        flambeau.nn.functional.softplus(x)
    del mark
    references = [weakref.ref(mark) for mark in marks]
    marks.clear()
    assert [reference() is not None for reference in references] == [False, False, True]
    plan.replace(execution)
    assert references[2]() is None


def test_an_evicted_plan_may_be_replaced(softplus):
    x, result, plan = softplus
    _core.plan_cache_clear()
    plan.replace(plan.execution)
    assert same_bits(flambeau.nn.functional.softplus(x), result)


FUNCTIONS = {
    "softplus": flambeau.nn.functional.softplus,
    "softmax": lambda x: x.softmax(-1),
    "sum": lambda x: x.sum(0),
    "cumsum": lambda x: x.cumsum(0),
    "index": lambda x: x[x.argmax(0) % 7],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_from_the_baseline_to_compiled_code(name):
    """Programs of blocks, kernels, and programs again, while a thread runs them."""
    _core.plan_cache_clear()
    x, before = flambeau.randn(300, 200), {id(p) for p in gc.get_objects() if type(p) is _core.Plan}
    with settings.override(TIER="baseline"):
        expected = FUNCTIONS[name](x)
    codes = []
    for plan in [p for p in gc.get_objects() if type(p) is _core.Plan and id(p) not in before]:
        if plan.execution is not None and any(x.program for x in plan.execution.launches):
            registers = plan.spec.symbols + len(plan.spec.program)
            compiled = pipeline.compile_graph(plan.graph(), registers)
            assert not any(launch.program for launch in compiled.launches)
            codes.append((plan, plan.execution, compiled))
    assert codes
    stop, wrong, runs = threading.Event(), [], [0]

    def run():
        while not stop.is_set():
            if not same_bits(FUNCTIONS[name](x), expected):
                wrong.append(runs[0])
            runs[0] += 1

    thread = threading.Thread(target=run)
    thread.start()
    swaps = 0
    while runs[0] < 30 or swaps < 60:
        swaps += 1
        for plan, *executions in codes:
            plan.replace(executions[swaps % 2])
        time.sleep(0.0005)
    stop.set()
    thread.join()
    assert not wrong
    for plan, _, compiled in codes:
        plan.replace(compiled)
    assert same_bits(FUNCTIONS[name](x), expected)
