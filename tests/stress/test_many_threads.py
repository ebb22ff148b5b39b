"""Many Python threads use everything at once; forks and changes of the pool happen meanwhile.

Each test compares with what one thread computes: nothing may crash, hang, or give other bits. Run
under the sanitizers by `./go sanitize`.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau.runtime import empty_cache, memory_stats, plan_cache_clear

THREADS = 6
SECONDS = float(os.environ.get("STRESS_SECONDS", "1"))


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    """Python switches threads a hundred times as often as usual; the pool is restored."""
    interval, count = sys.getswitchinterval(), torch.get_num_threads()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(interval)
    torch.set_num_threads(count)


def together(*bodies: Callable[[int], Any], threads: int = THREADS) -> list[list[Any]]:
    """Runs body(round) in loops for a while, thread k the body k modulo their number."""
    errors: list[BaseException] = []
    results: list[list[Any]] = [[] for _ in range(threads)]
    start = threading.Barrier(threads)
    end = time.monotonic() + SECONDS

    def run(number: int) -> None:
        try:
            start.wait(60)
            for turn in range(1 << 30):
                results[number].append(bodies[number % len(bodies)](turn))
                if time.monotonic() > end or errors:
                    return
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60 + 20 * SECONDS)
        assert not worker.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]
    return results


def operators(turn: int) -> list[float]:
    """Values of a few operators on one of some shapes."""
    rows, columns = 2 + turn % 17, 3 + turn % 23
    x = torch.arange(float(rows * columns)).reshape(rows, columns) / 100
    y = (x.sin() + x.t().contiguous().t()).softmax(-1) @ x.t()
    return [float(y.sum()), float(x[1:, ::2].sum()), float(x.sort(descending=True).values[0, 0])]


def step(turn: int) -> list[float]:
    """Gradients of a small network."""
    size = 3 + turn % 7
    x = torch.linspace(-1, 1, 4 * size).reshape(4, size)
    weight = (torch.arange(float(size * 5)).reshape(size, 5) / 10).requires_grad_()
    loss = ((x @ weight).tanh() ** 2).mean()
    loss.backward()
    assert weight.grad is not None
    return [float(loss.detach()), float(weight.grad.sum())]


def same(found: list[list[Any]], body: Callable[[int], Any], modulus: int) -> None:
    """Every result is what this thread computes."""
    expected = [body(turn) for turn in range(modulus)]
    for results in found:
        assert results
        for turn, result in enumerate(results[: 4 * modulus]):
            assert result == expected[turn % modulus], turn


def test_operators() -> None:
    same(together(operators), operators, 17 * 23)


def test_backward() -> None:
    same(together(step), step, 7)


def test_backward_through_shared_leaves() -> None:
    """Threads add to one leaf's gradient; nothing is lost."""
    weight = torch.ones(64, requires_grad=True)

    def body(turn: int) -> None:
        (weight * 2).sum().backward()

    count = sum(len(results) for results in together(body))
    assert weight.grad is not None and weight.grad.tolist() == [2.0 * count] * 64


def test_equal_nodes_are_one() -> None:
    """Threads that meet a new structure at the same moment get one node."""
    from flambeau.ir.node import node

    sys.setswitchinterval(1e-6)
    meeting = threading.Barrier(THREADS)
    made: list[list[Any]] = [[] for _ in range(THREADS)]

    def run(number: int) -> None:
        for turn in range(300):
            meeting.wait(60)
            made[number].append(node("input", attributes=(("slot", turn),)))

    workers = [threading.Thread(target=run, args=(k,)) for k in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    for nodes in zip(*made, strict=True):
        assert all(each is nodes[0] for each in nodes)


def test_compile() -> None:
    """Each thread compiles and calls its own function; and all call a common one."""

    def function(x: Any) -> Any:
        return (x.exp() * 2 + x).sum(-1).tanh()

    shared = torch.compile(function)

    def body(turn: int) -> list[float]:
        x = torch.linspace(-1, 1, 6 * (3 + turn % 5)).reshape(6, -1)
        own = torch.compile(lambda t: function(t) + 1) if turn % 8 == 0 else shared
        return [float(own(x).sum()), turn % 8]

    expected = []
    for turn in range(40):
        x = torch.linspace(-1, 1, 6 * (3 + turn % 5)).reshape(6, -1)
        expected.append([float((function(x) + (1 if turn % 8 == 0 else 0)).sum()), turn % 8])
    for results in together(body, threads=4):
        for turn, result in enumerate(results):
            assert result == expected[turn % 40], turn


def test_number_of_threads_changes() -> None:
    """The pool grows and shrinks while large launches run; their bits stay."""
    x = torch.linspace(0, 1, 1 << 19)
    matrix = torch.linspace(0, 1, 256 * 256).reshape(256, 256)

    def work(turn: int) -> tuple[float, float]:
        return float((x.sin() * x).sum()), float((matrix @ matrix).sum())

    def change(turn: int) -> None:
        torch.set_num_threads(1 + turn % 5)
        time.sleep(0.001)

    expected = work(0)
    found = together(work, change)
    assert all(result == expected for results in found[::2] for result in results)


def test_first_calls_that_differ_in_offsets_alone() -> None:
    """Keys that were begun before offsets were found to matter are not remembered."""
    from flambeau import _core

    ((arguments, build, flags),) = torch.view_as_real.overloads
    meeting = threading.Barrier(THREADS)

    def build_together(call: Any) -> Any:
        plan = build(call)
        meeting.wait(60)
        return plan

    op = _core.Op("together", [(arguments, build_together, flags)])
    x = torch.arange(4 * THREADS).to(torch.complex64)
    found: dict[int, Any] = {}

    def run(offset: int) -> None:
        found[offset] = op(x[offset : offset + 2]).tolist()

    workers = [threading.Thread(target=run, args=(3 * k + 1,)) for k in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert found == {k: [[k, 0], [k + 1, 0]] for k in found} and len(found) == THREADS


def test_default_devices_are_of_threads() -> None:
    """A `with` block does not move what other threads make meanwhile."""

    def meta(turn: int) -> str:
        with torch.device("meta"):
            time.sleep(0.0001)
            return torch.ones(2).device.type

    found = together(meta, lambda turn: torch.ones(2).device.type)
    assert {kind for kinds in found[::2] for kind in kinds} == {"meta"}
    assert {kind for kinds in found[1::2] for kind in kinds} == {"cpu"}


def test_plan_caches_are_cleared_meanwhile() -> None:
    def clear(turn: int) -> None:
        plan_cache_clear()
        time.sleep(0.02)

    found = together(operators, step, operators, clear, threads=4)
    same([found[0], found[2]], operators, 17 * 23)
    same([found[1]], step, 7)


def test_eviction_of_exact_keys_under_load() -> None:
    def body(turn: int) -> int:
        size = random.randrange(2, 30000)
        return int(torch.ones(size).sum()) - size

    assert all(result == 0 for results in together(body) for result in results)


def test_allocator() -> None:
    """Blocks of all sizes come and go in all threads; no two live ones share memory."""
    before = memory_stats()["allocated_bytes.all.current"]

    def body(turn: int) -> None:
        generator = random.Random(turn * 7919 + threading.get_ident())
        held = []
        for _ in range(20):
            size = generator.choice((1, 17, 400, 5000, 70000, 400000))
            value = generator.randrange(1000)
            held.append((torch.full((size,), float(value)), value))
            if len(held) > 6:
                tensor, value = held.pop(generator.randrange(len(held)))
                assert float(tensor[0]) == value == float(tensor[-1])
        if turn % 10 == 0:
            empty_cache()
        for tensor, value in held:
            assert float(tensor[0]) == value == float(tensor[-1])

    together(body)
    assert memory_stats()["allocated_bytes.all.current"] <= before


def test_storage_freed_by_another_thread() -> None:
    basket: list[Any] = []
    lock = threading.Lock()

    def give(turn: int) -> None:
        tensor = torch.full((100 + turn % 1000,), 3.0, requires_grad=True)
        with lock:
            basket.append((tensor * 2).sum())
            del basket[:-50]

    def take(turn: int) -> None:
        with lock:
            found = basket.pop() if basket else None
        if found is not None:
            found.backward()

    together(give, take)


def test_random_numbers_of_own_generators() -> None:
    def body(turn: int) -> list[float]:
        generator = torch.Generator().manual_seed(turn % 3)
        return torch.randn(100, generator=generator).tolist()

    same(together(body), body, 3)


def _child(work: Callable[[int], Any], expected: Any) -> int:
    """Exit status of a fork that uses the library; its parent's threads are gone."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            torch.set_num_threads(2)
            large = torch.ones(1 << 19)
            status = int(work(3) != expected or float((large * 2).sum()) != 1 << 20)
        finally:
            os._exit(status)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return -9


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_while_threads_run() -> None:
    """A child has a usable library whatever the other threads did when it was made."""
    x = torch.ones(1 << 19)
    expected = operators(3)

    def launch(turn: int) -> None:
        assert float((x * 2).sum()) == 1 << 20

    def fork(turn: int) -> int:
        time.sleep(0.02)
        return _child(operators, expected)

    found = together(operators, launch, step, fork, threads=4)
    assert found[3] and all(status == 0 for status in found[3]), found[3]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_while_threads_compile() -> None:
    """A child can compile, whatever the compiler of other threads was at when it was made."""

    def compile_one(turn: int) -> float:
        return float(torch.compile(lambda x: (x * (turn + 0.5)).exp().sum())(torch.ones(3)))

    expected = compile_one(3)

    def fork(turn: int) -> int:
        time.sleep(0.02)
        return _child(compile_one, expected)

    found = together(compile_one, compile_one, fork, threads=3)
    assert found[2] and all(status == 0 for status in found[2]), found[2]


_ENDLESS = {
    "operators": """
def work():
    while True: ((torch.ones(300, 300, requires_grad=True) * 2).exp().sum()).backward()
""",
    "python under the engine": """
class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x.exp()
    @staticmethod
    def backward(context, gradient):
        return gradient * context.saved_tensors[0].exp()
def work():
    while True:
        x = torch.ones(300, 300, requires_grad=True)
        x.register_hook(lambda gradient: gradient * 2)
        Exponential.apply(x * 2).sum().backward()
""",
    "compilation": """
def work():
    count = 0
    while True:
        count += 1
        compiled = torch.compile(lambda x: ((x * 2).sin() + count).sum())
        compiled(torch.ones(30, 300, requires_grad=True)).backward()
""",
}


@pytest.mark.parametrize("name", list(_ENDLESS))
def test_daemon_threads_at_exit(name: str) -> None:
    """The interpreter ends while threads compute: no crash.

    A thread that wants the GIL of an ending interpreter is unwound by ``pthread_exit``; a core
    built with exception tables crashed here in one of twelve runs.
    """
    import subprocess

    program = (
        "import threading, time, flambeau as torch\n"
        f"{_ENDLESS[name]}"
        "for _ in range(3): threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(0.3)\n"
    )
    for _ in range(5):
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120)
        assert result.returncode == 0, result.stderr.decode()[-2000:]
