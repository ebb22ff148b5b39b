"""`compile(mode="max-autotune")` measures candidates of tunable calls and takes the fastest.

A tunable call (a product, a convolution, an attention) has candidates: tilings that differ in
nothing but time (`compiler/schedule/candidates.py`). When a program is compiled in this mode, each
of its tunable calls runs with every candidate, on the sizes of the first call, on memory of its
own: no tensor and no generator of the user's is touched. What was measured is shown at
FLAMBEAU_DEBUG=1. The choice is stored on disk under the call's kernels and sizes, the number of
threads and the machine, so that the next process measures nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flambeau import _core
from flambeau.compiler import cache, codegen, debug, stored, targets
from flambeau.compiler.codegen.progress import Progress
from flambeau.compiler.schedule.calls import RoutineCall
from flambeau.compiler.schedule.candidates import CANDIDATES, DEFAULT, TunableCall
from flambeau.ir.geometry import contiguous
from flambeau.ir.node import ITEM_SIZE
from flambeau.ir.plan import Buffer, Execution, Launch, Number, PlanSpec
from flambeau.ir.size import Size, evaluate
from flambeau.ir.size_program import Program
from flambeau.language.schema import ArgumentSpec
from flambeau.runtime import logs

BUDGET = 0.4  # seconds per call, about
SAMPLE = 2e-4  # seconds of a measurement, at least
ROUNDS = 4  # at least; then candidates that take much longer than the best one are left out
HOPELESS = 1.3
MARGIN = 0.97  # of the default's time: less is worth another choice
_PADDING = 64  # bytes behind a buffer, as the allocator has them
_FLOATS = frozenset(("f16", "bf16", "f32", "f64", "c64", "c128"))
# What memory is filled with: a normal number in each floating-point type, true, and the index 0.
_NUMBER, _TRUE, _ZERO = b"\x3c", b"\x01", b"\x00"

Memory = tuple[str, Any]


class Report(NamedTuple):
    """The measurements of one tunable call.

    Attributes:
        call: for people.
        threads: that were used.
        seconds: shortest time of each candidate that was measured.
        sizes: size arguments of the launches, per candidate.
        choice: name of the candidate that is taken.
    """

    call: str
    threads: int
    seconds: Mapping[str, float]
    sizes: Mapping[str, tuple[tuple[int, ...], ...]]
    choice: str


_known: dict[str, str] = {}
_listeners: list[Callable[[Report], None]] = []
_forced: list[str] = []


@contextlib.contextmanager
def forced(choice: str) -> Iterator[None]:
    """Inside, tunable calls take this candidate, where they have it, and nothing is measured."""
    _forced.append(choice)
    try:
        yield
    finally:
        _forced.pop()


@contextlib.contextmanager
def watch(listener: Callable[[Report], None]) -> Iterator[None]:
    """Inside, `listener` hears of every call that is measured; what is known is measured again."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def forget() -> None:
    """Drops what this process remembers; what is on disk stays."""
    _known.clear()


def conditions() -> str:
    """Returns the conditions of a tuned plan beyond those of every plan: part of its name."""
    return f"tuned {_core.get_num_threads()} {_forced[-1:]}"


class Tuner:
    """Chooses the candidates of a program's tunable calls.

    Args:
        symbols: the program's.
        numbers: their values at the first call.
        weights: slots of inputs that stay as they are: they are packed once.
    """

    def __init__(
        self, symbols: Sequence[str], numbers: Sequence[int], weights: Collection[int] = ()
    ) -> None:
        self.values = dict(zip(symbols, numbers, strict=True))
        self.weights = frozenset(("input", slot) for slot in weights)

    def __call__(self, tunable: TunableCall) -> str:
        """The name of the candidate to take."""
        names = CANDIDATES[tunable.value.op]
        if _forced:
            return _forced[-1] if _forced[-1] in names else DEFAULT
        if codegen.collecting() or tunable.graph.notes.get("device", "cpu") != "cpu":
            return DEFAULT
        default = self._trial(tunable, DEFAULT)
        if not default.measurable:
            return DEFAULT
        threads = str(_core.get_num_threads())
        key, named = default.key + threads, stored.name_of("choice", default.key, threads)
        name = None if named is None else named.own
        choice = None if _listeners else _known.get(key) or _kept(name)
        if choice is None or choice not in names:
            choice = self._measured(tunable, default)
            if name is not None:
                cache.put_blob(name, choice.encode())
        _known[key] = choice
        return choice

    def _measured(self, tunable: TunableCall, default: _Trial) -> str:
        """The fastest candidate, unless the default is as good."""
        trials = {default.key: default}
        for name in CANDIDATES[tunable.value.op]:
            trial = self._trial(tunable, name)
            if trial.measurable:
                trials.setdefault(trial.key, trial)  # many choices come to the same here
        if len(trials) == 1:
            return DEFAULT
        try:
            with _not_recorded(), Progress(lambda: f"autotune: {tunable.value.op}"):
                seconds = _shortest({t.name: t for t in trials.values()})
        except MemoryError:  # the program itself may still fit
            return DEFAULT
        best = min(seconds, key=seconds.__getitem__)
        choice = best if seconds[best] < MARGIN * seconds[DEFAULT] else DEFAULT
        sizes = {t.name: t.sizes for t in trials.values()}
        self._report(Report(self._text(tunable), _core.get_num_threads(), seconds, sizes, choice))
        return choice

    def _trial(self, tunable: TunableCall, name: str) -> _Trial:
        return _Trial(tunable, name, self.values, self.weights)

    def _text(self, tunable: TunableCall) -> str:
        operands = [
            f"{x.dtype}{[evaluate(s, self.values) for s in x.shape]}" for x in tunable.value.inputs
        ]
        return f"{tunable.value.op} {' '.join(operands)}"

    def _report(self, report: Report) -> None:
        for listener in list(_listeners):
            listener(report)
        lines = [
            f"{seconds * 1e6:12.1f} us  {name}{'  <' if name == report.choice else ''}"
            for name, seconds in sorted(report.seconds.items(), key=lambda entry: entry[1])
        ]
        head = f"autotune: {report.call}, {report.threads} threads"
        debug.show(debug.PLANS, head, "\n".join(lines))
        for name in ("autotuning", "benchmarking"):
            logs.emit(name, "\n".join([head, *lines]))


def _kept(name: str | None) -> str | None:
    """The choice that an earlier process stored; whatever else is there counts as nothing."""
    content = None if name is None else cache.get_blob(name)
    return None if content is None else content.decode(errors="replace")


@contextlib.contextmanager
def _not_recorded() -> Iterator[None]:
    suspended = _core.record_suspend()
    try:
        yield
    finally:
        _core.record_resume(suspended)


class _Trial:
    """One candidate of a tunable call, with all sizes known; without what is done only once."""

    def __init__(
        self,
        tunable: TunableCall,
        name: str,
        values: Mapping[str, int],
        weights: Collection[Memory],
    ) -> None:
        self.tunable, self.name, self.values = tunable, name, values
        self.calls: list[RoutineCall] = [
            call
            for call in tunable.make(name)
            if call.packing is None or call.memory[call.packing[0]] not in weights
        ]
        self.sizes = tuple(tuple(self._number(s) for s in call.sizes) for call in self.calls)
        self.chunks = [self._number(call.chunks) for call in self.calls]

    @property
    def measurable(self) -> bool:
        """Whether there is something to measure, and it can run on memory of its own."""
        kinds = {kind for call in self.calls for kind, _ in call.memory}
        kernels = all(call.kernel is not None for call in self.calls)
        return kernels and sum(self.chunks) > 0 and kinds <= {*_KINDS, "error"}

    @property
    def key(self) -> str:
        """Text of all that its time depends on, threads and machine aside."""
        lines = []
        for call, sizes, chunks in zip(self.calls, self.sizes, self.chunks, strict=True):
            assert call.kernel is not None
            aligned = [self._number(offset) % _PADDING for offset in call.offsets]
            lines.append(f"{call.kernel.text()}{sizes} {chunks} {aligned}")
        return "\n".join(lines)

    def prepared(self, tensors: dict[Memory, Any]) -> Callable[[], object]:
        """A function that runs the launches once, on these tensors and new ones for the rest."""
        buffers: dict[Memory, int] = {}
        for call in self.calls:
            assert call.kernel is not None
            for memory, (dtype, _) in zip(call.memory, call.kernel.parameters, strict=True):
                buffers.setdefault(memory, len(buffers))
                size = self._needed(memory)
                if memory not in tensors or tensors[memory].numel() < size + _PADDING:
                    tensors[memory] = _filled(size, dtype)
        operands = [tensors[memory] for memory in buffers]
        execution = self._execution(buffers)
        op = _core.Op("autotune", lambda: [_overload(len(operands), execution)])
        return lambda: op(*operands)

    def _execution(self, buffers: Mapping[Memory, int]) -> Execution:
        """As `compiler.execution` builds one; the operands of a call are the buffers."""
        build = targets.builder("cpu")
        handles = build([call.kernel for call in self.calls if call.kernel is not None])
        program = Program([f"s{i}" for i in range(3 * len(buffers))])

        def register(size: Size) -> int:
            return program.register(self._number(size))

        launches = [
            Launch(
                name=call.name,
                kernel=handle.address,
                routine=None,
                buffers=[buffers[memory] for memory in call.memory],
                offsets=[register(offset) for offset in call.offsets],
                sizes=[register(size) for size in call.sizes],
                scalars=[_number_argument(*scalar) for scalar in call.scalars],
                chunks=register(call.chunks),
                work=register(call.work),
                scratch=register(call.scratch),
            )
            for call, handle in zip(self.calls, handles, strict=True)
        ]
        return Execution(
            program=program.packed(),
            buffers=[Buffer("input", number) for number in range(len(buffers))],
            launches=launches,
            keepalive=[handle.keepalive for handle in handles],
        )

    def _number(self, size: Size) -> int:
        return size if isinstance(size, int) else evaluate(size, self.values)

    def _needed(self, memory: Memory) -> int:
        """How much memory the launches use of a buffer: also where they pack an operand that a plan
        packs into memory of its own, which has a copy of a parameter."""
        spares = (self._number(call.spare) for call in self.calls if memory in call.memory[1:])
        return max(self._bytes(memory), *spares, 0)

    def _bytes(self, memory: Memory) -> int:
        """How much memory a buffer of the program is, from its first element on."""
        kind, where = memory
        if kind == "error":
            return 4 * 8
        value, strides = _KINDS[kind](self.tunable.graph, where)
        last = sum(
            (self._number(extent) - 1) * self._number(stride)
            for extent, stride in zip(value.shape, strides, strict=True)
        )
        return max(last + 1, 1) * ITEM_SIZE[value.dtype]


# From a kind of buffer to its value and strides.
_KINDS: dict[str, Callable[[Any, Any], tuple[Any, Sequence[Size]]]] = {
    "input": lambda graph, slot: (graph.inputs[slot], graph.inputs[slot].attribute("strides")),
    "output": lambda graph, number: (graph.outputs[number].node, graph.outputs[number].strides),
    "temporary": lambda graph, value: (value, contiguous(value.shape)),
}


def _filled(size: int, dtype: str) -> Any:
    """Memory as a tensor of bytes, in which every element of a type is a harmless number."""
    byte = _NUMBER if dtype in _FLOATS else _TRUE if dtype == "bool" else _ZERO
    size += _PADDING
    return _core.tensor_fill_bytes(_core.tensor_empty((size,), _core.uint8), byte * size)


def _number_argument(kind: str, value: Any, as_float: bool) -> Number:
    """A number of the user's call is not known when a plan is compiled: it is taken as one."""
    if kind == "argument":
        value = 1.0 if as_float else 1
    return Number("constant", value, as_float)


def _overload(count: int, execution: Execution) -> tuple[Any, ...]:
    """An overload of tensors whose only plan is this execution."""
    spec = PlanSpec("autotune", 3 * count, count, (), 0, returns="nothing")
    parameters = tuple(ArgumentSpec(f"x{i}", "Tensor?", (None,)) for i in range(count))
    return parameters, lambda call: _core.Plan(spec, compile=lambda: execution), ()


def _shortest(trials: Mapping[str, _Trial]) -> dict[str, float]:
    """Shortest times of candidates, measured in turn, the default always."""
    tensors: dict[Memory, Any] = {}
    runs: dict[str, Callable[[], object]] = {}
    best: dict[str, float] = {}
    counts: dict[str, int] = {}
    first, began = True, time.perf_counter()
    for name, trial in trials.items():
        run = trial.prepared(tensors)
        if first:
            run()  # its memory is touched for the first time
            first, began = False, time.perf_counter()
        best[name] = _block(run, 1)
        if (ROUNDS + 1) * (time.perf_counter() - began) > BUDGET and name != DEFAULT:
            break  # of long calls, the first candidates only, but those often enough
        counts[name] = max(1, int(SAMPLE / max(best[name], 1e-7)))
        runs[name] = run
    rounds = 0
    while len(runs) > 1 and (rounds < ROUNDS or time.perf_counter() - began < BUDGET):
        for name, run in runs.items():
            best[name] = min(best[name], _block(run, counts[name]))
        rounds += 1
        if rounds >= ROUNDS:
            limit = HOPELESS * min(best.values())
            runs = {name: run for name, run in runs.items() if best[name] <= limit}
    return {name: best[name] for name in counts}


def _block(run: Callable[[], object], count: int) -> float:
    """Seconds per run."""
    begin = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - begin) / count
