"""`torch.utils.throughput_benchmark`: how many calls of a module several threads make a second."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from flambeau.ir.failure import failure

__all__ = ["ExecutionStats", "ThroughputBenchmark", "format_time"]


def format_time(
    time_us: float | None = None, time_ms: float | None = None, time_s: float | None = None
) -> str:
    """A time, passed in one of three units, as text.

    Raises:
        AssertionError: not exactly one unit.

    Example:
        >>> format_time(time_ms=2.5)
        '2.500ms'
    """
    units = [value for value in (time_us, time_ms, time_s) if value is not None]
    if len(units) != 1:
        raise AssertionError("format_time takes exactly one of time_us, time_ms and time_s")
    if time_us is None:
        time_us = time_ms * 1e3 if time_ms is not None else (time_s or 0) * 1e6
    if time_us >= 1e6:
        return f"{time_us / 1e6:.3f}s"
    return f"{time_us / 1e3:.3f}ms" if time_us >= 1e3 else f"{time_us:.3f}us"


class ExecutionStats:
    """The result of a throughput benchmark.

    Attributes:
        num_iters: calls that were timed.
        total_time_seconds: from the first to the end of the last.
        latency_avg_ms: of one call.
    """

    def __init__(self, latencies: list[float], seconds: float, threads: int) -> None:
        self.num_iters = len(latencies)
        self.total_time_seconds = seconds
        self.latency_avg_ms = 1e3 * sum(latencies) / max(len(latencies), 1)
        self._threads = threads

    @property
    def iters_per_second(self) -> float:
        """Calls a second, of all threads together."""
        return self.num_iters / self.total_time_seconds

    def __str__(self) -> str:
        return "\n".join(
            [
                "Average latency per example: " + format_time(time_ms=self.latency_avg_ms),
                f"Total number of iterations: {self.num_iters}",
                f"Total number of iterations per second (across all threads): "
                f"{self.iters_per_second:.2f}",
                "Total time: " + format_time(time_s=self.total_time_seconds),
            ]
        )


class ThroughputBenchmark:
    """Calls a module with inputs drawn from a list, in several threads.

    Example:
        >>> bench = ThroughputBenchmark(torch.nn.Linear(2, 2))
        >>> bench.add_input(torch.ones(1, 2))
        >>> bench.benchmark(num_warmup_iters=1, num_iters=3).num_iters
        3
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self._inputs: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def add_input(self, *args: Any, **kwargs: Any) -> None:
        """Adds arguments of a call."""
        self._inputs.append((args, kwargs))

    def run_once(self, *args: Any, **kwargs: Any) -> Any:
        """One call."""
        return self.module(*args, **kwargs)

    def benchmark(
        self,
        num_calling_threads: int = 1,
        num_warmup_iters: int = 10,
        num_iters: int = 100,
        profiler_output_path: str = "",
    ) -> ExecutionStats:
        """Measures.

        Args:
            num_calling_threads: threads that call.
            num_warmup_iters: calls before the clock starts.
            num_iters: calls that are timed, of all threads together.
            profiler_output_path: not supported; must stay empty.

        Raises:
            RuntimeError: no inputs.
        """
        if not self._inputs:
            raise failure(RuntimeError, "ThroughputBenchmark", "no inputs", "call add_input first")
        latencies: list[float] = []
        counter = iter(range(num_iters))

        def call(number: int) -> None:
            choose = random.Random(number).choice
            while next(counter, None) is not None:
                args, kwargs = choose(self._inputs)
                began = time.perf_counter()
                self.module(*args, **kwargs)
                latencies.append(time.perf_counter() - began)

        threads = [threading.Thread(target=call, args=(n,)) for n in range(num_calling_threads)]
        for _ in range(num_warmup_iters):
            args, kwargs = random.choice(self._inputs)
            self.module(*args, **kwargs)
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return ExecutionStats(latencies, time.perf_counter() - began, num_calling_threads)
