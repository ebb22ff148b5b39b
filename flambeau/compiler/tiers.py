"""When the C compiler is called: the policy, and the thread that gives plans their new code.

A plan on the baseline has an Execution with a `Pending`: the kernels that better code needs, and
what makes that code of them. The native core adds up what the runs of such a plan take
(`native/plan/tier.cpp`). Above `THRESHOLD` it wakes a thread, which has the kernels compiled in a
worker process (`worker`) and gives the plan its new code (`Plan.replace`). Nothing here raises
into a user's call: a plan whose kernels cannot be compiled stays on the baseline.

Loads nothing of the compiler until a plan is hot.
"""

from __future__ import annotations

import _thread
import functools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from flambeau import _core
from flambeau.compiler import debug, shipped
from flambeau.ir.lock import fork_safe_lock, importing, loaded
from flambeau.runtime import settings

if TYPE_CHECKING:
    from flambeau.compiler.worker import Worker
    from flambeau.ir.kernel import Kernel
    from flambeau.ir.plan import Execution

THRESHOLD = 20_000_000  # nanoseconds on the baseline after which a plan is compiled
# Kernels that go to the worker together at most: plans get their code one after the other, the
# hottest first. With 256 compilers need a tenth less time, but a program waits for all of it.
UNIT = 16
_POLL = 0.002  # seconds between two looks of `wait`


class Pending:
    """Better code for a plan that does not exist yet.

    Attributes:
        kernels: what must be compiled: kernels, their bytes, or numbers in the package's plans.
        assemble: makes the code when the kernels are in a cache; None: one of them is not.
        state: "new", "queued", "done", or "failed", which is final.
    """

    def __init__(
        self,
        kernels: Sequence[Kernel | bytes | int],
        assemble: Callable[[], Execution | None],
    ) -> None:
        self.kernels = kernels
        self.assemble = assemble
        self.state = "new"

    def contents(self) -> list[bytes]:
        """The kernels as bytes."""
        with importing:
            from flambeau.ir import kernel_bytes

        kernels = [shipped.content(k) if isinstance(k, int) else k for k in self.kernels]
        return [k if isinstance(k, bytes) else kernel_bytes.dumps(k) for k in kernels]


class Replanned(Pending):
    """The same of a plan that is planned anew when it is hot.

    Args:
        compile_anew: gives the execution of this machine, with what is pending there.
    """

    def __init__(self, compile_anew: Callable[[], Execution]) -> None:
        super().__init__((), self._assembled)
        self.compile_anew = compile_anew
        self.execution: Execution | None = None

    def contents(self) -> list[bytes]:
        """The kernels of the new plan as bytes."""
        self.execution = self.compile_anew()
        pending = self.execution.pending
        return [] if pending is None else pending.contents()

    def _assembled(self) -> Execution | None:
        """The execution, once its kernels are compiled."""
        if self.execution is None or self.execution.pending is None:
            return self.execution
        pending: Pending = self.execution.pending
        return pending.assemble()


def policy(tuned: bool = False) -> str:
    """When a plan's kernels are compiled: "background", "wait" or "never".

    Args:
        tuned: whether candidates are measured, for which they must exist (`mode="max-autotune"`).
    """
    chosen: str = settings.get("COMPILER")
    if chosen != "background":
        return chosen
    codegen = loaded("flambeau.compiler.codegen")
    return "wait" if tuned or (codegen is not None and codegen.collecting()) else chosen


def tier(plan: Any) -> str:
    """The tier that a plan runs on: "baseline", or "compiled"; "" before its first run."""
    execution = plan.execution
    if execution is None:
        return "compiled" if plan.compiled else ""
    programs = any(launch.program is not None for launch in execution.launches)
    return "baseline" if programs or execution.pending is not None else "compiled"


def wait() -> None:
    """Has everything compiled that runs on the baseline, and waits until it is.

    What cannot be compiled stays where it is. A program calls this before it measures times.

    Example:
        >>> torch.compiler.wait()
    """
    plans = _core.baseline_plans()
    awaited = [pending for _, pending in _pending(plans)]
    if _queue(plans):
        try:
            _service.wake()
        except RuntimeError:  # no thread can be started
            _fail()
    with importing:
        from flambeau.compiler.codegen.progress import Progress

    total = sum(len(pending.kernels) for pending in awaited)

    def text() -> str:
        left = sum(len(pending.kernels) for pending in awaited if pending.state == "queued")
        return f"{total - left} of {total} kernels"

    with Progress(text):
        while any(pending.state == "queued" for pending in awaited):
            time.sleep(_POLL)


# ------------------------------------------------------------------------------- the queue

Job = tuple[Any, Any]  # a Plan, its Pending
_lock = fork_safe_lock(level=4)
_waiting: list[Job] = []


def _pending(plans: Iterable[Any]) -> list[Job]:
    """The plans that still run on the baseline, with what is pending for them."""
    executions = ((plan, plan.execution) for plan in plans)
    return [(plan, e.pending) for plan, e in executions if e is not None and e.pending is not None]


def _queue(plans: Iterable[Any]) -> bool:
    """Queues plans that are not yet; returns whether anything is queued."""
    with _lock:
        for plan, pending in _pending(plans):
            if pending.state == "new":
                pending.state = "queued"
                _waiting.append((plan, pending))
        return bool(_waiting)


def _hot() -> list[Any]:
    return [plan for plan in _core.baseline_plans() if (plan.baseline_time or 0) >= THRESHOLD]


def _take() -> list[Job]:
    """The plans that took the longest so far, with `UNIT` kernels or one plan."""
    with _lock:
        _waiting.sort(key=lambda job: job[0].baseline_time or 0, reverse=True)
        count, size = 0, 0
        while count < len(_waiting) and (count == 0 or size < UNIT):
            size += max(1, len(_waiting[count][1].kernels))
            count += 1
        taken = _waiting[:count]
        del _waiting[:count]
        return taken


# ------------------------------------------------------------------------------- the thread


class _Service:
    """The thread that serves the queue. A forked child has none, and starts its own when needed."""

    def __init__(self) -> None:
        self.pipe: tuple[int, int] | None = None  # wakes it
        self.worker: Worker | None = None

    def hold(self, worker: Worker | None) -> None:
        """Notes the worker that runs now."""
        self.worker = worker

    def reset(self) -> None:
        """Nothing runs here yet: the first hot plan starts the thread.

        The core calls what is set here at the end of a run, where no code of Python may run, which
        a signal could interrupt: a builtin function.
        """
        start = functools.partial(_thread.start_new_thread, _serve, ())
        _core.set_baseline_wake(THRESHOLD, start)

    def wake(self) -> None:
        """Starts the thread, or makes it look at the queue."""
        with _lock:
            if self.pipe is None:
                _thread.start_new_thread(_serve, ())
            else:
                _write(self.pipe[1])

    def begin(self) -> int | None:
        """The pipe that the calling thread is to serve; None: another thread does."""
        with _lock:
            if self.pipe is not None:
                return None
            self.pipe = os.pipe()
            for end in self.pipe:
                os.set_blocking(end, False)
            _core.set_baseline_wake(THRESHOLD, functools.partial(os.write, self.pipe[1], b"x"))
            return self.pipe[0]

    def forked(self) -> None:
        """In a child: closes what is the parent's, and queues again what its thread had taken."""
        if self.worker is not None:
            self.worker.abandon()
            self.worker = None
        if self.pipe is not None:
            for end in self.pipe:
                os.close(end)
            self.pipe = None
        _waiting.clear()
        for _, pending in _pending(_core.baseline_plans()):
            if pending.state == "queued":
                pending.state = "new"
        self.reset()


def _write(descriptor: int) -> None:
    try:
        os.write(descriptor, b"x")
    except BlockingIOError:  # full: it is awake
        pass


_service = _Service()


def _serve() -> None:
    """The thread: runs until the process ends."""
    wakes = _service.begin()
    if wakes is None:
        return
    with importing:
        from flambeau.compiler import worker

    try:
        worker.serve(
            wakes, worker.Client(_service.hold), _next, lambda job: job[1].contents(), _answer
        )
    finally:  # an error of this module's
        _fail()


def _fail() -> None:
    """Nothing is compiled any more: nobody may wait for it."""
    for _, pending in _pending(_core.baseline_plans()):
        pending.state = "failed"


def _next() -> list[Job]:
    """The jobs to be compiled now; empty: none."""
    _queue(_hot())
    while (jobs := _take()) and not _has_compiler():
        _answer(jobs, [False] * len(jobs))
    return jobs


def _has_compiler() -> bool:
    """Whether there is a C compiler now; where there is none, a line says so, once."""
    with importing:
        from flambeau.compiler import toolchain

    if toolchain.stamp():
        return True
    text = "no C compiler found: programs run, but their operations are not fused"
    _show_once(0, f"{text}; `{toolchain.INSTALL}` brings one")
    return False


_show_once = functools.cache(debug.show)


def _answer(jobs: list[Job], fine: Sequence[bool]) -> None:
    """The kernels of some plans are in a cache, or cannot be compiled."""
    for (plan, pending), compiled in zip(jobs, fine, strict=True):
        swapped = False
        try:
            swapped = compiled and _swap(plan, pending)
        except Exception as error:  # of the plan's: it stays on the baseline
            debug.show(debug.PLANS, f"{plan.name}: {error}")
        if not swapped:
            debug.show(debug.PLANS, f"{plan.name}: not compiled, it stays on the baseline")
        pending.state = "done" if swapped else "failed"


def _swap(plan: Any, pending: Pending) -> bool:
    """Gives a plan its new code."""
    present = plan.execution
    if present is None or present.pending is not pending:
        return True  # somebody else did
    execution = pending.assemble()
    if execution is None:
        return False
    spent = (plan.baseline_time or 0) / 1e6
    plan.replace(execution)
    count = len(pending.kernels)
    debug.show(debug.PLANS, f"{plan.name}: {count} kernels compiled after {spent:.1f} ms of runs")
    return True


_service.reset()
os.register_at_fork(after_in_child=_service.forked)
