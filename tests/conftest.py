"""What all tests share: the checkout on the path, verifiers on, the same threads and seed.

Twenty thousand collected tests are objects that stay. Python's collector would visit them in each
full collection, a third of the suite's time; so it pauses while they are made, and leaves them out
afterwards.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # `tests` is a package without an __init__: tests.ops.inputs ...

# Of one process, on the machine of the README's table, by part.
SECONDS_PER_TEST = {"baseline": 0.026, "compiled": 0.18, None: 0.05}

os.environ.setdefault("FLAMBEAU_VERIFY", "1")  # every kernel is checked between the stages

# Tests of the code generator, and of what only compiled code has: names, times, files of the cache.
CODE_GENERATOR = (
    "capture/test_cache_artifacts.py", "capture/test_stored.py", "compat/test_alias.py", "compiler",
    "core/test_plan_replace.py", "core/test_stored_plans.py", "docs/test_pages.py",
    "docs/test_stages.py",
    "ops/test_varying_numbers.py", "profiler/test_profiler_events.py",
    "profiler/test_roofline.py", "standalone", "stress/test_cache_kill.py",
    "stress/test_worker_kill.py", "test_extension.py", "test_mistakes.py", "test_packaging.py",
)  # fmt: skip


def pytest_addoption(parser):
    """`--part`: half of the suite, on the tier that suits it (`./go test` runs both)."""
    parser.addoption(
        "--part",
        choices=("baseline", "compiled"),
        help="without the C compiler, all but its tests; or these alone. Default: all, compiled",
    )


def pytest_configure(config):
    """Chooses the tier before anything is imported."""
    baseline = config.getoption("--part") == "baseline"
    os.environ.setdefault("FLAMBEAU_COMPILER", "never" if baseline else "wait")
    if baseline:
        os.environ["FLAMBEAU_TIER"] = "baseline"


def pytest_ignore_collect(collection_path, config):
    """Leaves out what is of the other part."""
    part = config.getoption("--part")
    path = collection_path.resolve()
    if part is None or not path.is_file() or not path.is_relative_to(ROOT / "tests"):
        return None
    compiled = any(path.is_relative_to(ROOT / "tests" / name) for name in CODE_GENERATOR)
    return True if compiled != (part == "compiled") else None


def pytest_collection():
    """Nothing that collection makes is garbage."""
    gc.disable()


def pytest_collection_finish():
    """What stays to the end needs no visits."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # a plan is thousands of objects, most of which stay
    gc.enable()


_ended = itertools.count(1)


def pytest_runtest_logfinish():
    """What tests leave for later ones needs no visits either: a collection of it takes seconds."""
    if next(_ended) % 100 == 0:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node, ids):
    """Says how many tests there are, and how long they take, before the first of them runs."""
    workers = int(node.config.getoption("numprocesses") or 1)
    if node.gateway.id == "gw0" and len(ids) > 1000:
        seconds = SECONDS_PER_TEST[node.config.getoption("--part")]
        minutes = len(ids) * seconds / workers / 60
        print(
            f"\n{len(ids):,} tests on {workers} processes: about {minutes:.0f} minutes", flush=True
        )


def let_others_settle() -> None:
    """Keeps the interpreter until all other threads sleep: they wait for it, or for something else.

    A fork leaves AddressSanitizer's allocator locked in the child if a thread allocates just then,
    or ends; such a child stands still at its first allocation. A sleeping thread does neither.
    """
    library = ctypes.PyDLL(None)  # whose functions are called without giving the interpreter away
    mine = str(threading.get_native_id())
    others = [thread for thread in os.listdir("/proc/self/task") if thread != mine]
    for _ in range(200):
        library.usleep(2000)
        if all(_sleeps(library, thread) for thread in others):
            return


def _sleeps(library: ctypes.PyDLL, thread: str) -> bool:
    file = library.open(f"/proc/self/task/{thread}/stat".encode(), os.O_RDONLY)
    if file < 0:
        return True  # it has ended
    text = ctypes.create_string_buffer(256)
    library.read(file, text, 255)
    library.close(file)
    return text.value.rpartition(b")")[2].split()[:1] == [b"S"]


if "asan" in os.environ.get("LD_PRELOAD", ""):
    os.register_at_fork(before=let_others_settle)  # the first to be registered is the last to run


@pytest.fixture(autouse=True)
def same_state():
    """Every test starts from, and leaves, the same defaults."""
    import flambeau

    threads, dtype = flambeau.get_num_threads(), flambeau.get_default_dtype()
    flambeau.manual_seed(0)
    yield
    if flambeau.get_num_threads() != threads:
        flambeau.set_num_threads(threads)
    if flambeau.get_default_dtype() != dtype:
        flambeau.set_default_dtype(dtype)


@pytest.fixture
def no_garbage():
    """Cycles that earlier tests left are not collected while a test counts memory."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
