"""The process that compiles kernels while the program goes on, and its end in the program.

A thread of the program (`serve`) sends kernels as bytes and gets back which of them are in the
cache now; where the cache cannot be written, also the libraries. The process has a lower priority
and a process group of its own, so that Ctrl-C does not reach it and one signal ends it with all of
its compilers. It ends when the program does. Its temporary files are in one folder, locked while it
lives; the next worker removes the folders of workers that were killed.

    program ─► (settings, [kernel, ..]) ─► worker ─► ([compiled, ..], [(library, symbols), ..])

Each message is marshalled, behind its length in 8 bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import marshal
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from flambeau.compiler import cache
from flambeau.ir.lock import importing
from flambeau.runtime import settings

PATIENCE = 120.0  # seconds that a request may take, and for each kernel
PATIENCE_PER_KERNEL = 2.0
IDLE = 30.0  # seconds after which a worker without work ends
MAX_DEATHS = 6  # workers in a row that died at work: then none is started any more
# Beside threads that occupy all cores: a seventh of each core. With 5 (a quarter) a training step
# took 1.8 times as long meanwhile, with 8 it takes 1.5 times as long; with 12 kernels come twice as
# late, and with 19 (1.5 percent) after minutes, which the program spends on slower code.
NICENESS = 8
ENVIRONMENT = {
    "FLAMBEAU_NUM_THREADS": "1",
    "FLAMBEAU_VERIFY": "0",
    "FLAMBEAU_DEBUG": "0",
    "TORCH_LOGS": "",
}
FOLDERS = "flambeau-worker-"
_LENGTH = 8
_STALE = 3600.0  # seconds after which a folder without a lock is nobody's
_SENT = ("CACHE_DIR", "CACHE_LIMIT", "CC", "COMPILE_JOBS", "TARGET")

Answer = tuple[list[bool], list[tuple[bytes, dict[str, str]]]]


class Died(Exception):
    """The worker ended."""


class Late(Died):
    """The worker did not answer in time."""


# ------------------------------------------------------------------------------- the program's end


class Worker:
    """A running worker.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self.folder = tempfile.mkdtemp(prefix=FOLDERS)
        lock = _locked(self.folder)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _program(self.folder, lock)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                pass_fds=(lock,),
                process_group=0,
                cwd=self.folder,
                env={**os.environ, **ENVIRONMENT, "TMPDIR": self.folder},
            )
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        finally:
            os.close(lock)
        _yield_processor(self.process.pid)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.requests, self.answers = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self.requests, False)

    def compile(self, kernels: Sequence[bytes]) -> Answer:
        """Has kernels compiled.

        Raises:
            Died: see there.
        """
        deadline = time.monotonic() + PATIENCE + PATIENCE_PER_KERNEL * len(kernels)
        try:
            self._send(marshal.dumps((self.values, list(kernels))), deadline)
            length = int.from_bytes(self._receive(_LENGTH, deadline), "little")
            answer: Answer = marshal.loads(self._receive(length, deadline))
        except (OSError, ValueError, EOFError) as error:
            raise Died from error
        return answer

    def _send(self, content: bytes, deadline: float) -> None:
        unsent = memoryview(len(content).to_bytes(_LENGTH, "little") + content)
        while unsent:
            _wait(self.requests, select.POLLOUT, deadline)
            with contextlib.suppress(BlockingIOError):
                unsent = unsent[os.write(self.requests, unsent) :]

    def _receive(self, length: int, deadline: float) -> bytes:
        parts = []
        while length:
            _wait(self.answers, select.POLLIN, deadline)
            part = os.read(self.answers, min(length, 1 << 20))
            if not part:
                raise Died
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Ends the worker with everything that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # not waited for: the number is still its
        self.process.wait()
        self._close_pipes()
        shutil.rmtree(self.folder, ignore_errors=True)

    def abandon(self) -> None:
        """Forgets the worker in a forked child: it is the parent's."""
        self._close_pipes()
        self.process.returncode = 0

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _wait(descriptor: int, event: int, deadline: float) -> None:
    """Waits until a descriptor can be read or written."""
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1e3):
        raise Late


def _program(folder: str, lock: int) -> str:
    """Returns the code of the worker's interpreter, which loads the same package."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = [package, *(os.path.abspath(entry) for entry in sys.path)]
    return (
        f"import sys; sys.path[:] = {path!r}\n"
        "from flambeau.compiler import worker\n"
        f"worker.main({os.getpid()}, {folder!r}, {lock})"
    )


def _locked(folder: str) -> int:
    """A descriptor that locks a folder while it, or a copy of it, is open."""
    lock = os.open(f"{folder}/lock", os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def remove_stale() -> None:
    """Removes the folders of workers that were killed together with their programs."""
    root = tempfile.gettempdir()
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        folders = [entry.path for entry in entries if entry.name.startswith(FOLDERS)]
        for folder in folders:
            with contextlib.suppress(OSError):
                if _stale(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _stale(folder: str) -> bool:
    state = os.lstat(folder)
    if state.st_uid != os.geteuid():
        return False
    try:
        lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:  # it is being made, or removed
        return time.time() - state.st_mtime > _STALE
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


class Client:
    """Has jobs compiled by a worker that it starts when there is work.

    Args:
        hold: notes the worker that runs now, or None, for a fork (`Worker.abandon`).
    """

    def __init__(self, hold: Callable[[Worker | None], None]) -> None:
        self.hold = hold
        self.worker: Worker | None = None
        self.deaths = 0
        with contextlib.suppress(OSError):
            remove_stale()

    def compile(self, jobs: Sequence[Sequence[bytes]], again: bool = False) -> list[bool]:
        """Whether all kernels of each job are in a cache now.

        Those of a worker that dies are compiled again, in two halves, so that one kernel that the
        compiler cannot bear takes no other with it. A single job has a second try (`again`),
        unless the first took too long.
        """
        if self.deaths >= MAX_DEATHS:
            return [False] * len(jobs)
        try:
            return self._compile(jobs)
        except OSError:  # it cannot be started
            self.deaths = MAX_DEATHS
            return [False] * len(jobs)
        except Died as death:
            self.deaths += 1
            self.end()
            late = isinstance(death, Late)
        if len(jobs) > 1:
            half = len(jobs) // 2
            return self.compile(jobs[:half]) + self.compile(jobs[half:])
        return [False] if late or again else self.compile(jobs, again=True)

    def _compile(self, jobs: Sequence[Sequence[bytes]]) -> list[bool]:
        values = {name: settings.get(name) for name in _SENT}
        if self.worker is not None and self.worker.values != values:
            self.end()
        if self.worker is None:
            self.worker = Worker(values)
            self.hold(self.worker)
        kernels = list(dict.fromkeys(kernel for job in jobs for kernel in job))
        compiled, libraries = self.worker.compile(kernels)
        self.deaths = 0
        for content, symbols in libraries:
            with contextlib.suppress(OSError):  # the plan finds out that it is not there
                cache.adopt(content, symbols)
        fine = dict(zip(kernels, compiled, strict=True))
        return [all(fine[kernel] for kernel in job) for job in jobs]

    def end(self) -> None:
        """Ends the worker, if there is one."""
        worker, self.worker = self.worker, None
        self.hold(None)
        if worker is not None:
            worker.close()


def serve(
    wakes: int,
    client: Client,
    take: Callable[[], list[Any]],
    contents: Callable[[Any], list[bytes]],
    answer: Callable[[list[Any], list[bool]], None],
) -> NoReturn:
    """Has what is queued compiled, for as long as the process lives.

    Args:
        wakes: a pipe, which can be read when something may be queued.
        client: compiles.
        take: gives the next jobs; none: there are none.
        contents: the kernels of a job.
        answer: takes jobs and whether they are compiled.
    """
    poll = select.poll()
    poll.register(wakes, select.POLLIN)
    while True:
        with contextlib.suppress(BlockingIOError):
            os.read(wakes, 1 << 16)
        jobs = take()
        if jobs:
            answer(jobs, client.compile([contents(job) for job in jobs]))
        elif not poll.poll(None if client.worker is None else IDLE * 1e3):
            client.end()


# ------------------------------------------------------------------------------- the worker's end


def main(program: int, folder: str, lock: int) -> None:
    """Compiles what the program sends, until it ends.

    Args:
        program: its process.
        folder: for temporary files.
        lock: a descriptor that stays open, see `_locked`.
    """
    os.set_inheritable(lock, False)
    requests, answers = _channel()
    tempfile.tempdir = folder
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # compilers get them as they are by default
    _end_with(program, requests, folder)
    while True:
        length = int.from_bytes(_read(requests, _LENGTH), "little")
        values, kernels = marshal.loads(_read(requests, length))
        for name, value in values.items():
            settings.put(name, value)
        settings.put("COMPILER", "wait")
        content = marshal.dumps(_compile(kernels))
        unsent = memoryview(len(content).to_bytes(_LENGTH, "little") + content)
        while unsent:
            unsent = unsent[os.write(answers, unsent) :]


def _channel() -> tuple[int, int]:
    """Descriptors to and from the program, which nothing else uses by accident."""
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    return requests, answers


def _yield_processor(process: int) -> None:
    """Gives a new process, and all that it starts, a lower priority than this one's."""
    with contextlib.suppress(OSError):
        own = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, process, own + NICENESS)


def _end_with(program: int, requests: int, folder: str) -> None:
    """Starts a thread that ends this process when the program's end of the pipe is closed."""
    import threading

    poll = select.poll()
    poll.register(requests, 0)  # reports that the other end is closed

    def watch() -> None:
        while not poll.poll(1000) and os.getppid() == program:
            pass
        _end(folder)

    threading.Thread(target=watch, daemon=True).start()


def _end(folder: str) -> NoReturn:
    """Ends compilers, then this process; leaves nothing behind."""
    alone = os.getpgrp() == os.getpid()
    if alone:
        os.killpg(0, signal.SIGTERM)
    for _ in range(500):  # the main thread may start another compiler, which writes into it
        time.sleep(0.02)
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            break
    if alone:
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _read(descriptor: int, length: int) -> bytes:
    parts = []
    while length:
        part = os.read(descriptor, min(length, 1 << 20))
        if not part:
            time.sleep(60)  # `_end_with` sees it, too
            os._exit(0)
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _compile(contents: Sequence[bytes]) -> Answer:
    """Compiles kernels together; where that fails, each alone, to learn which cannot be."""
    with importing:
        from flambeau.compiler import codegen, targets
        from flambeau.ir import kernel_bytes

    kernels = []
    for content in contents:
        with contextlib.suppress(Exception):
            kernels.append((content, kernel_bytes.loads(content)))
    compiled: set[bytes] = set()
    libraries: list[tuple[bytes, dict[str, str]]] = []
    for unit in (kernels, *([each] for each in kernels)):
        missing = [each for each in unit if each[0] not in compiled]
        with contextlib.suppress(Exception):
            build = codegen.Build(targets.current())
            try:
                build.finish([kernel for _, kernel in missing])
                compiled.update(content for content, _ in missing)
            finally:
                build.close()
                libraries += [(library.content, library.symbols) for library in build.unstored]
    return [content in compiled for content in contents], libraries
