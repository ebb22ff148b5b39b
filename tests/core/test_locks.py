"""Locks and late imports: no fork leaves one held, no thread sees a module half loaded."""

from __future__ import annotations

import ast
import functools
import gc
import importlib.util
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import flambeau
from flambeau.compiler import stored
from flambeau.ir import lock as locks
from flambeau.runtime import collection

PACKAGE = Path(flambeau.__file__).parent
FORKS = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def child_of(work: Callable[[], bool]) -> bool:
    """Whether work() is true in a forked child, which has ten seconds."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = int(not work())
        finally:
            os._exit(status)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status == 0
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return False


def free() -> bool:
    """Whether another thread could take every lock of the package."""
    taken: list[bool] = []
    other = threading.Thread(target=lambda: taken.extend(k.acquire(False) for _, k in locks._locks))
    other.start()
    other.join()
    return all(taken)


# ------------------------------------------------------------------------------- where locks are


@functools.cache
def sources() -> dict[str, ast.Module]:
    """Every module of the package by its full name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = ast.parse(path.read_text())
    return found


def test_locks_are_made_in_one_place():
    """A lock made elsewhere would stay held in a child that is forked meanwhile."""
    kinds = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier"}
    for name, tree in sources().items():
        if name == "flambeau.ir.lock":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found = node.value.id in ("threading", "_thread") and node.attr in kinds
                assert not found, (name, node.lineno)
            if isinstance(node, ast.ImportFrom) and node.module in ("threading", "_thread"):
                named = {alias.name for alias in node.names}
                assert not named & (kinds | {"allocate_lock"}), (name, node.lineno)


def test_locks_of_the_core_register_themselves():
    """See native/runtime/fork.h: a mutex of another class would stay locked in a child."""
    words = r"\bstd::(recursive_|shared_|timed_)?mutex\b|\bPyThread_(type|allocate)_lock\b"
    words += r"|\bpthread_(mutex|rwlock|spin|cond|atfork)|\batomic_flag\b|\bPyMutex\b"
    words += r"|\bcondition_variable|\bonce_flag\b|\bsemaphore\b|\bSpinLock\b"
    for path in sorted((PACKAGE.parent / "native").rglob("*.cpp")):
        for line in path.read_text().splitlines():
            code = re.sub(r"ForkSafe<(std::mutex|SpinLock)>|^class SpinLock {", "", line)
            without = path.stem in ("fork", "older_glibc")  # the latter names versions of functions
            assert without or not re.search(words, code), f"{path.name}: {line}"


@FORKS
@pytest.mark.parametrize("name", ["leaf", "generator"])
def test_forks_while_the_core_holds_a_lock(name):
    """Another thread adds to a leaf's gradient, or draws, when the child is forked."""
    leaf = flambeau.ones(1 << 21, requires_grad=True)
    grad = flambeau.ones(1 << 21)
    works = {"leaf": lambda: leaf.backward(grad), "generator": lambda: flambeau.randn(1 << 18)}
    stop = threading.Event()

    def repeat() -> None:
        while not stop.is_set():
            works[name]()

    worker = threading.Thread(target=repeat)
    worker.start()

    def once_more() -> bool:
        works[name]()
        return True

    try:
        for _ in range(5):
            time.sleep(0.007)
            assert child_of(once_more)
    finally:
        stop.set()
        worker.join()


@FORKS
@pytest.mark.parametrize("inverted", [False, True])
def test_forks_while_threads_nest_locks(inverted):
    """Whichever order threads take locks in, a fork neither hangs nor leaves one held."""
    one, two = locks.fork_safe_lock(0), locks.fork_safe_lock(4)
    stop = threading.Event()

    def nest(outer, inner):
        while not stop.is_set():
            with outer:
                time.sleep(0.0005)
                with inner:
                    time.sleep(0.0005)
            time.sleep(0.002)

    second = (two, locks.importing) if inverted else (locks.importing, two)
    orders = [(one, locks.importing), second]
    workers = [threading.Thread(target=nest, args=order) for order in orders]
    for worker in workers:
        worker.start()
    try:
        assert all(child_of(free) for _ in range(10))
    finally:
        stop.set()
        for worker in workers:
            worker.join()
        locks._locks[:] = [entry for entry in locks._locks if entry[1] not in (one, two)]


@FORKS
def test_collector_runs_in_a_child_of_a_pause():
    """Another thread builds a program, and keeps the collector off, when the child is forked."""
    inside, leave = threading.Event(), threading.Event()

    def build() -> None:
        with collection.paused():
            inside.set()
            leave.wait(20)

    worker = threading.Thread(target=build)
    worker.start()
    inside.wait(20)
    try:
        assert not gc.isenabled()
        assert child_of(gc.isenabled)
        with collection.paused():
            assert child_of(lambda: not gc.isenabled())  # the forking thread is still inside
    finally:
        leave.set()
        worker.join()
    assert gc.isenabled()


# ------------------------------------------------------------------------------- late imports


def test_modules_that_are_being_loaded_are_not_used(monkeypatch):
    """Another thread is at the first lines of a module: nobody can have used it yet."""
    name = "flambeau.compiler.codegen"
    half = type(sys)(name)
    half.__spec__ = type("Spec", (), {"_initializing": True})()
    monkeypatch.setattr(stored.settings, "get", lambda name: False)
    monkeypatch.setitem(sys.modules, name, half)
    assert locks.loaded(name) is None
    assert stored.usable()
    assert locks.loaded("flambeau.ir.lock") is locks and locks.loaded("flambeau.nothing") is None


# Asked while modules are being loaded; in no cycle of imports, so CPython's own locks suffice.
UNGUARDED = {"flambeau.runtime", "flambeau.runtime.missing"}


def loaded_by_an_import() -> set[str]:
    code = "import flambeau, sys; print(*[n for n in sys.modules if n.startswith('flambeau')])"
    return set(subprocess.check_output([sys.executable, "-c", code], text=True).split())


def imported_by(name: str, tree: ast.AST) -> Iterator[tuple[ast.stmt, set[str]]]:
    """Import statements of the package's modules, and what each may load."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= 1, name
            home = node.module or ""
            if node.level:
                home = f"{name.rpartition('.')[0]}.{home}"
            found = {home, *(f"{home}.{a.name}" for a in node.names)}
        else:
            continue
        if any(each.partition(".")[0] == "flambeau" for each in found):
            yield node, found


def test_late_imports_hold_the_lock():
    """Threads that import as they go would see modules half loaded, without a lock of them all."""
    modules = sources()
    first = loaded_by_an_import()
    for tree in modules.values():  # what only type checkers import
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                node.body = [ast.Pass()]
    direct: dict[str, set[str]] = {}
    late: list[tuple[str, ast.stmt, set[str]]] = []
    for name, tree in modules.items():
        functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.Lambda))]
        inside = {id(n) for f in functions for n in ast.walk(f)}
        guarded = {
            id(statement)
            for node in ast.walk(tree)
            if isinstance(node, ast.With) and "importing" in ast.unparse(node.items[0])
            for statement in node.body
        }
        direct[name] = set()
        for node, found in imported_by(name, tree):
            known = found & modules.keys()
            if id(node) not in inside:
                direct[name] |= known
            elif id(node) not in guarded:
                late.append((name, node, known))

    def reached(name: str) -> set[str]:
        seen: set[str] = set()
        pending = [name]
        while pending:
            each = pending.pop()
            if each in modules and each not in seen:
                seen.add(each)
                pending += [*direct[each], each.rpartition(".")[0]]
        return seen

    unguarded = [
        (f"{name}:{node.lineno}", missing)
        for name, node, known in late
        if (missing := known - first - reached(name) - UNGUARDED)
    ]
    assert not unguarded, f"write `with importing: from ... import ...` in {unguarded}"


LOADING = """
import importlib, sys, traceback
import flambeau
from flambeau.ir import lock
class Noted:
    def __enter__(self):
        here = [f for f in traceback.extract_stack() if "flambeau" in f.filename]
        print(here[0].filename, here[0].lineno)
    def __exit__(self, *error): pass
first = lock.importing
for module in list(sys.modules.values()):
    if vars(module).get("importing") is first: module.importing = Noted()
for name in sys.argv[1:]: importlib.import_module(name)
"""


def test_no_module_takes_the_lock_while_it_is_loaded():
    """The thread that has the lock may be waiting for just this module."""
    names = list(sources())
    if importlib.util.find_spec("tensorboard") is None:  # which these modules need
        names = [name for name in names if "tensorboard" not in name]
    found = subprocess.check_output([sys.executable, "-c", LOADING, *names], text=True)
    assert found == ""
