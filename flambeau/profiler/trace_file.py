"""A profile as a trace file: the JSON that chrome://tracing and ui.perfetto.dev read.

Format: "Trace Event Format" of Chromium (complete events "X", counters "C", flows "s" and "f",
metadata "M"). A file is written under a temporary name and renamed: whoever watches its directory
never sees half of it.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

Entry = dict[str, Any]
CATEGORIES = {  # by EventKind
    0: "cpu_op", 1: "cpu_op", 2: "user_annotation", 3: "cpu_op", 4: "compiled_region",
    5: "compilation", 6: "compilation", 7: "kernel", 8: "kernel",
}  # fmt: skip
DIGITS = 3  # of microseconds: nanoseconds


def write_whole(path: str | os.PathLike[str], parts: Iterable[str]) -> None:
    """Writes a text file, compressed if it ends in ".gz"; readers see all of it or nothing."""
    path = os.fspath(path)
    partial = f"{path}.{os.getpid()}.{time.monotonic_ns()}.tmp"
    try:
        with gzip.open(partial, "wt") if path.endswith(".gz") else open(partial, "w") as file:
            file.writelines(parts)
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise


@dataclass
class Trace:
    """The content of a trace file.

    Attributes:
        events: the events, in the order of their starts.
        pieces: records of what worker threads did for launches.
        memory: records of blocks taken and given back.
        origin: nanoseconds (monotonic clock) at the profile's start.
        options: the profile's options.
        metadata: further entries of the file, as JSON texts.
    """

    events: list[Any]
    pieces: list[Any]
    memory: list[Any]
    origin: int
    options: dict[str, bool] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the file."""
        write_whole(path, self.texts(os.fspath(path)))

    def texts(self, name: str) -> Iterator[str]:
        """The file's text in parts; it may be long."""
        head: Entry = {
            "schemaVersion": 1,
            **{key: int(value) for key, value in self.options.items()},
            "host_name": socket.gethostname(),
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": time.time_ns() - time.perf_counter_ns(),
            "traceName": name,
        }
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        lines += [f"{json.dumps(key)}: {text}" for key, text in self.metadata.items()]
        yield "{\n" + ",\n".join(lines) + ',\n"traceEvents": [\n'
        first = True
        for entry in self.entries():
            yield ("" if first else ",\n") + json.dumps(entry)
            first = False
        yield "\n]}\n"

    def entries(self) -> Iterator[Entry]:
        """The trace events."""
        pid = os.getpid()
        workers = {r.thread for r in self.pieces}
        threads = dict.fromkeys([*(e.record.thread for e in self.events), *sorted(workers)])
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "python"}}
        for thread in threads:
            name = f"worker {thread}" if thread in workers else f"thread {thread}"
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": thread,
                   "args": {"name": name}}  # fmt: skip
        for event in self.events:
            if event.kind != 9:
                yield self._complete(event.record, event.trace_name, pid, _arguments(event))
        for record in self.pieces:
            yield self._complete(record, record.name, pid, {})
        for record in self.memory:
            yield from _memory(record, pid)
        yield from self._flows(pid)

    def _complete(self, record: Any, name: str, pid: int, arguments: Entry) -> Entry:
        return {
            "ph": "X",
            "cat": CATEGORIES.get(record.kind, "other"),
            "name": name,
            "pid": pid,
            "tid": record.thread,
            "ts": round(record.start / 1000, DIGITS),
            "dur": round((record.end - record.start) / 1000, DIGITS),
            "args": arguments,
        }

    def _flows(self, pid: int) -> Iterator[Entry]:
        """Arrows from a forward call to its backward."""
        calls = {e.sequence_nr: e for e in self.events if e.sequence_nr >= 0 and e.kind in (0, 1)}
        for event in self.events:
            origin = calls.get(event.sequence_nr) if event.kind == 3 else None
            if origin is None:
                continue
            for phase, end in (("s", origin), ("f", event)):
                yield {"ph": phase, "bp": "e", "id": event.sequence_nr, "pid": pid,
                       "tid": end.record.thread, "ts": round(end.record.start / 1000, DIGITS),
                       "cat": "fwdbwd", "name": "fwdbwd"}  # fmt: skip


def _arguments(event: Any) -> Entry:
    """Returns the arguments that a viewer shows for an event."""
    arguments: Entry = {"External id": event.id}
    if event.input_shapes:
        arguments |= {"Input Dims": event.input_shapes, "Input type": event.input_dtypes}
    if event.sequence_nr >= 0:
        arguments |= {"Sequence number": event.sequence_nr, "Fwd thread id": event.fwd_thread}
    if event.stack:
        arguments["Call stack"] = ";".join(event.stack)
    if event.cpu_memory_usage:
        arguments["Bytes allocated"] = event.cpu_memory_usage
    if event.bytes:
        arguments |= {"bytes": event.bytes, "GB/s": round(event.bandwidth / 1e9, 3)}
        arguments |= {"threads": event.threads, "busy (us)": round(event.busy_time, DIGITS)}
    if event.estimated_time:
        arguments["estimated (us)"] = round(event.estimated_time, DIGITS)
    if event.flops:
        arguments |= {"flops": event.flops, "GFLOP/s": round(event.flop_rate / 1e9, 3)}
    if event.record.group > 1:
        arguments["launches at the same time"] = event.record.group
    return arguments


def _memory(record: Any, pid: int) -> Iterator[Entry]:
    """A block taken or given back, and the total as a curve."""
    common: Entry = {"pid": pid, "tid": record.thread, "ts": round(record.start / 1000, DIGITS)}
    told = {"Bytes": record.bytes, "Total Allocated": record.total, "Addr": record.work}
    yield {
        "ph": "i",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "s": "t",
        "args": told,
    } | common
    yield {"ph": "C", "name": "allocated", "args": {"bytes": record.total}} | common
