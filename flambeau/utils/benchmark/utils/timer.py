"""`Timer`: measures a statement."""

from __future__ import annotations

import shutil
import timeit
from collections.abc import Callable
from enum import Enum
from time import perf_counter as timer
from typing import Any

from flambeau.ir.failure import failure
from flambeau.utils.benchmark.utils.common import Measurement, TaskSpec, set_torch_threads

__all__ = ["Language", "Timer", "timer"]

_WARM_UP = 1e-3  # seconds
_BLOCK_SHARE = 0.001  # of the time of all blocks that the clock may take
_CLOCK = 1e-6  # seconds that reading the clock may take


class Language(Enum):
    """The language of statements."""

    PYTHON = 0
    CPP = 1


class Timer:
    """Measures a statement with a fixed number of threads.

    Args:
        stmt: the statement, run in a loop.
        setup: runs once before.
        global_setup: of C++; must stay empty.
        timer: the clock.
        globals: names for both.
        label, sub_label, description, env: names in tables of `Compare`.
        num_threads: of operators.
        language: Python.

    Raises:
        ValueError: a `global_setup`.
        NotImplementedError: C++.

    Example:
        >>> Timer("x + x", globals={"x": torch.ones(2)}).timeit(5).number_per_run
        5
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,  # noqa: A002
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Language | str = Language.PYTHON,
    ) -> None:
        if language in (Language.CPP, "cpp", "c++"):
            problem = "statements of C++ are not compiled"
            raise failure(NotImplementedError, "Timer", problem, "language=Language.PYTHON")
        if language not in (Language.PYTHON, "py", "python"):
            raise ValueError(f"Invalid language `{language}`.")
        if global_setup:
            raise ValueError(
                f"global_setup is C++ only, got `{global_setup}`. Most likely this code can simply "
                "be moved to `setup`."
            )
        import textwrap

        names = dict(globals or {})
        names.setdefault("torch", __import__("flambeau"))
        stmt, setup = (textwrap.dedent(text).strip("\n").rstrip() for text in (stmt, setup))
        self._globals = names
        self._timer = timeit.Timer(stmt=stmt, setup=setup, timer=timer, globals=names)
        self._task_spec = TaskSpec(
            stmt, setup, global_setup, label, sub_label, description, env, num_threads
        )

    def _timeit(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)

    def _measured(self, number: int, times: list[float]) -> Measurement:
        return Measurement(number, times, self._task_spec)

    def timeit(self, number: int = 1000000) -> Measurement:
        """One time of `number` runs, after a few that warm up."""
        with set_torch_threads(self._task_spec.num_threads):
            self._timeit(max(number // 100, 2))
            return self._measured(number, [self._timeit(number)])

    def repeat(self, repeat: int = -1, number: int = -1) -> None:
        """Not supported: use `timeit` or `blocked_autorange`."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Any = None) -> None:
        """Not supported: use `blocked_autorange`."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def _estimate_block_size(self, min_run_time: float) -> int:
        """Runs per time, so that the clock costs little and there are enough times."""
        with set_torch_threads(self._task_spec.num_threads):
            number = 1
            while True:
                elapsed = self._timeit(number)
                long_enough = _CLOCK / elapsed <= _BLOCK_SHARE and elapsed >= min_run_time / 1000
                if long_enough or elapsed > min_run_time:
                    return number
                number *= 10

    def _loop(
        self,
        number: int,
        stop: Callable[[list[float]], bool],
        min_run_time: float,
        max_run_time: float | None,
        callback: Callable[[int, float], Any] | None,
    ) -> list[float]:
        total, times = 0.0, []  # type: ignore[var-annotated]
        with set_torch_threads(self._task_spec.num_threads):
            while total < min_run_time or not stop(times):
                elapsed = self._timeit(number)
                if callback is not None:
                    callback(number, elapsed)
                times.append(elapsed)
                total += elapsed
                if max_run_time is not None and total > max_run_time:
                    break
        return times

    def blocked_autorange(
        self,
        callback: Callable[[int, float], Any] | None = None,
        min_run_time: float = 0.2,
    ) -> Measurement:
        """Times of blocks of runs, for at least `min_run_time` seconds.

        Args:
            callback: called with the number of runs and the time of each block.
            min_run_time: seconds.
        """
        number = self._estimate_block_size(min_run_time)
        times = self._loop(number, lambda times: True, min_run_time, None, callback)
        return self._measured(number, times)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """Times of blocks of runs, until they differ little.

        Args:
            threshold: quartiles may differ by this share of the median.
            min_run_time, max_run_time: seconds.
            callback: called with the number of runs and the time of each block.
        """
        number = self._estimate_block_size(min_run_time)

        def stop(times: list[float]) -> bool:
            return len(times) > 3 and self._measured(number, times).meets_confidence(threshold)

        return self._measured(
            number, self._loop(number, stop, min_run_time, max_run_time, callback)
        )

    def collect_callgrind(
        self,
        number: int = 100,
        *,
        repeats: int | None = None,
        collect_baseline: bool = True,
        retain_out_file: bool = False,
    ) -> Any:
        """Counts instructions; not supported.

        Raises:
            OSError: valgrind is not installed.
            NotImplementedError: it is.
        """
        if shutil.which("valgrind") is None:
            problem = "could not find `valgrind`"
            raise failure(
                OSError, "collect_callgrind", problem, "use blocked_autorange, or torch.profiler"
            )
        raise NotImplementedError(
            "[collect_callgrind] instructions are not counted\n"
            "hint: use blocked_autorange, or torch.profiler"
        )
