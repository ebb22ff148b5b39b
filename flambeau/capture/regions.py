"""`torch.compile` and its companions: what starts, ends and explains a recorded region.

A region runs as ordinary Python; only its op calls are recorded. Nothing here changes what a
program computes: a flush costs time, never correctness.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from flambeau import _core
from flambeau.capture import breaks, stream
from flambeau.capture import options as capture_options
from flambeau.capture.breaks import END
from flambeau.capture.errors import GraphBreakError
from flambeau.compiler import debug
from flambeau.ir.failure import failure
from flambeau.ir.lock import importing, late, loaded
from flambeau.runtime import boundaries, config_modules, logs, settings

Function: TypeAlias = Callable[..., Any]

_SHOWN_LAUNCHES = 12
BACKENDS = ("inductor", "flambeau", "aot_eager", "eager")
_COMPILERS = (None, "inductor", "flambeau")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@dataclass(frozen=True)
class Flush:
    """One point where the recorded stream had to run.

    Attributes:
        reason: what needed a value ("item", "print", ...; `end of region` for the last one).
        line: the user's "file:line".
        records: op calls that were in the stream.
        known: whether the stream had been compiled before.
    """

    reason: str
    line: str
    records: int
    known: bool


class LaunchTraffic(NamedTuple):
    """Bytes that one launch moves.

    Attributes:
        name: of the launch.
        read: bytes that it reads.
        written: bytes that it writes.
        flops: floating-point operations that it computes, as far as they are counted.
        packs: whether it packs an operand: it is skipped while the operand stays as it is.
    """

    name: str
    read: int
    written: int
    flops: int = 0
    packs: bool = False

    @property
    def moved(self) -> int:
        """Bytes that it reads and writes."""
        return self.read + self.written


@dataclass
class Explanation:
    """The result of `explain`.

    Attributes:
        flushes: in order; the last one is the region's end.
        plans: number of Plans compiled during the call.
        baseline: how many of them run on the baseline: some of their kernels are not compiled.
        kernels: launches of those Plans.
        different_kernels: how many kernels they are: equal layers share theirs.
        graphs: their graphs.
        bytes_moved: bytes that those launches read and write; those that pack operands do not
            count, because their results are cached.
        bytes_least: bytes that the programs move at least: inputs are read and results are written
            once.
        bytes_eager: bytes that the recorded operators move at least if each runs alone, as in eager
            mode: each reads its operands and writes its results once.
        launches: the name of each of those launches, the bytes that it reads, and those that it
            writes, in order.
        guards: conditions, as lines of Python, under which a later call runs without its Python.
        recorded: why every call is recorded instead; None where there are guards.
    """

    flushes: list[Flush] = field(default_factory=list)
    plans: int = 0
    baseline: int = 0
    kernels: int = 0
    different_kernels: int = 0
    bytes_moved: int = 0
    bytes_least: int = 0
    bytes_eager: int = 0
    launches: list[LaunchTraffic] = field(default_factory=list)
    graphs: list[Any] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)
    recorded: str | None = None

    @property
    def graph_break_count(self) -> int:
        """Flushes before the end of the region."""
        return sum(f.reason != END for f in self.flushes)

    def _launch_lines(self) -> list[str]:
        """The launches that move most, equal ones once."""
        counts = Counter(self.launches)
        largest = sorted(counts, key=lambda each: -each.moved * counts[each])[:_SHOWN_LAUNCHES]
        lines = [
            f"  {f'{count} x ' if count > 1 else ''}{each.name}: {each.read} bytes read, "
            f"{each.written} written"
            for each, count in counts.items()
            if each in largest
        ]
        left = len(counts) - len(lines)
        return [*lines, f"  {left} others move less"] if left else lines

    def __str__(self) -> str:
        waiting = f" ({self.baseline} on the baseline)" if self.baseline else ""
        lines = [
            f"{self.plans} plans{waiting}, {self.kernels} kernels, {self.bytes_moved} bytes moved, "
            f"{self.graph_break_count} flushes before the end",
            f"  {self.bytes_least} bytes are the least possible; operators alone move "
            f"{self.bytes_eager}",
        ]
        lines += self._launch_lines()
        lines += [
            f"  {f.line}: {f.reason} after {f.records} ops ({'known' if f.known else 'new'})"
            for f in self.flushes
        ]
        lines += [f"  every call is recorded: {self.recorded}"] if self.recorded else []
        lines += [f"  guard: {line}" for line in self.guards]
        return "\n".join(lines)


class _Watch(threading.local):
    """Per thread: who wants to hear of flushes."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Flush], None]] = []


_watch = _Watch()
argument_checks: list[Callable[[object, object], None]] = []  # called before a call is recorded
_counters: list[Callable[[Flush], None]] = []  # of all threads, for ever
_active: list[_Listening] = []  # of all threads


def count_flushes(listener: Callable[[Flush], None]) -> None:
    """Calls `listener` at every flush of every thread from now on.

    Calls that run without their Python have none.
    """
    _counters.append(listener)
    _observe()


def _observe() -> None:
    watched = bool(_active) or debug.level() > 0
    observed = watched or bool(_counters) or logs.active()
    _core.set_flush_observer(_on_flush if observed else None, watched)


def _on_flush(reason: str, records: int, seen: int) -> None:
    shown = debug.level() > 0 and not (seen and reason == END)
    logged = logs.active()
    if not _watch.listeners and not _counters and not shown and not logged:
        return
    event = Flush(reason, logs.user_line(), records, bool(seen))
    if logged:
        _log(event)
    if shown:
        state = "known" if seen else "new"
        debug.show(debug.PLANS, f"{event.line}: {reason} after {records} ops ({state})")
    for listener in (*_counters, *_watch.listeners):
        listener(event)


def _log(event: Flush) -> None:
    if event.reason != END:
        state = "known" if event.known else "new"
        logs.note("dynamo", f"{event.line}: {event.reason} after {event.records} ops ({state})")
    problem = breaks.refused(event.reason, _PACKAGE)
    late("flambeau.reports.region_logs").flush(event, problem)


class _Listening:
    """Adds a listener for the duration of a `with` block."""

    def __init__(self, listener: Callable[[Flush], None]) -> None:
        self._listener = listener

    def __enter__(self) -> None:
        _active.append(self)
        _watch.listeners.append(self._listener)
        _observe()

    def __exit__(self, *exception: object) -> None:
        _watch.listeners.remove(self._listener)
        _active.remove(self)
        _observe()


def listening(listener: Callable[[Flush], None]) -> _Listening:
    """A `with` block in which `listener` gets every flush of the thread."""
    return _Listening(listener)


def _require(setting: str, event: Flush) -> None:
    problem = breaks.refused(event.reason, _PACKAGE)
    if problem is not None:
        raise _broken(setting, event.line, *problem)


def _broken(setting: str, line: str, problem: str, hint: str) -> GraphBreakError:
    return failure(GraphBreakError, "compile", f"{setting}, but {line} {problem}", hint)


_FULL, _HERE = "fullgraph=True", "error_on_graph_break(True)"
_refuse = functools.partial(_require, _FULL)
_refuse_here = functools.partial(_require, _HERE)


def refusing(refuses: bool) -> Any:
    """A `with` block in which a graph break raises, or, False, no longer does.

    Inside of a function compiled with `fullgraph=True` one raises in any case.

    Args:
        refuses: whether it raises.
    """
    return _Listening(_refuse_here) if refuses else _Permitting()


def full_graph() -> Any:
    """The `with` block of a call of a function compiled with `fullgraph=True`."""
    return _Listening(_refuse)


def require_no_break(problem: str, hint: str) -> None:
    """Raises where a graph break is refused.

    Args:
        problem: what the user's line does.
        hint: what to do instead.

    Raises:
        GraphBreakError: in `refusing(True)`, or in a function compiled with `fullgraph=True`.
    """
    for listener, setting in ((_refuse, _FULL), (_refuse_here, _HERE)):
        if listener in _watch.listeners and is_compiling():
            raise _broken(setting, logs.user_line(), problem, hint)


class _Permitting:
    """Takes `_refuse_here` out of the listeners for the duration of a `with` block."""

    def __enter__(self) -> None:
        self._before = list(_watch.listeners)
        _watch.listeners[:] = [each for each in self._before if each is not _refuse_here]

    def __exit__(self, *exception: object) -> None:
        _watch.listeners[:] = self._before


class _Stance:
    """How compiled functions behave, in all threads: `torch.compiler.set_stance`, and passes.

    Attributes:
        special: whether a call does something else than record itself.
    """

    def __init__(self) -> None:
        self.eager = self.refuses = self._passes = self.special = False

    @property
    def present(self) -> tuple[bool, bool]:
        """Whether they run without being recorded, their Python always; whether what has no program
        raises."""
        return self.eager, self.refuses

    @present.setter
    def present(self, value: tuple[bool, bool]) -> None:
        self.eager, self.refuses = value
        stream.refusals[:] = [_refuse_compiling] if self.refuses else []
        self._update()

    def read_passes(self) -> None:
        """Notes whether `torch._inductor.config` has passes of the user."""
        names = capture_options.PASSES
        self._passes = any(config_modules.value(capture_options.SETTINGS, n) for n in names)
        self._update()

    def _update(self) -> None:
        self.special = self.eager or self._passes
        _core.set_skipping(not self.special)


def _refuse_compiling() -> None:
    late("flambeau.reports.recompiles").refuse()


Stance = _Stance()
for _name in capture_options.PASSES:
    config_modules.observe(capture_options.SETTINGS, _name, Stance.read_passes)


def record(function: Function, args: Any, kwargs: Any) -> Any:
    """Calls `function` inside a recorded region."""
    _core.record_begin()
    try:
        return function(*args, **kwargs)
    finally:
        _core.record_end(END)


def record_sealed(function: Function, args: Any, kwargs: Any) -> Any:
    """As `record`, for a `function` of the package that calls no code of users."""
    _core.record_begin_sealed()
    try:
        return function(*args, **kwargs)
    finally:
        _core.record_end(END)


def in_region(function: Function, tuned: bool) -> Function:
    """A function whose calls are recorded regions, whatever the stance is.

    Args:
        function: the function.
        tuned: whether kernels are measured.
    """
    begin = _beginning(tuned)

    def call(*args: object) -> object:
        begin()
        try:
            return function(*args)
        finally:
            _core.record_end(END)

    return call


def _compiles_backwards() -> bool:
    """`torch._dynamo.config.compiled_autograd`."""
    config = loaded("flambeau._dynamo.config")
    return config is not None and bool(config.compiled_autograd)


def _with_backward(recorded: Function, compiler: Function) -> Function:
    """A function whose backwards are compiled too, where the setting says so when it is called."""

    @functools.wraps(recorded)
    def call(*args: object, **kwargs: object) -> object:
        if not _compiles_backwards():
            return recorded(*args, **kwargs)
        return late("flambeau._dynamo.compiled_autograd").enabled(compiler, recorded, args, kwargs)

    return call


class _Special:
    """Calls of a compiled function that do not simply record it: eagerly, or through passes.

    Args:
        function, fullgraph, tuned: of the compiled function.
        changed: whether passes change it.
    """

    def __init__(self, function: Function, fullgraph: bool, tuned: bool, changed: bool) -> None:
        self._function, self._fullgraph, self._tuned = function, fullgraph, tuned
        self._changed = changed
        self._by_passes: dict[object, Function] = {}

    def __call__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        if Stance.eager:
            return self._function(*args, **kwargs)
        if not self._changed:
            return record(self._function, args, kwargs)
        passes = capture_options.graph_passes(None)
        key = late("flambeau._inductor.compile_fx").Passes.of(passes).key
        if key not in self._by_passes:
            compiler = _with_passes(passes, self._fullgraph, self._tuned, None)
            self._by_passes[key] = compiler(self._function)
        return self._by_passes[key](*args, **kwargs)


def _with_passes(
    passes: dict[str, object], fullgraph: bool, tuned: bool, limit: int | None
) -> Callable[[Function], Function]:
    """Returns the function that compiles through graphs that passes of the user change."""
    compiler = late("flambeau._inductor.compile_fx")
    backend = compiler.backend_of(compiler.Passes.of(passes), tuned)
    return _by_backend(backend, fullgraph, None, None, limit)


def _begin(tuned: bool, frozen: bool) -> None:
    _core.record_begin()
    if tuned:
        _core.record_tune()
    if frozen:
        _core.record_freeze()


def _beginning(tuned: bool, frozen: bool = False) -> Function:
    """Returns what begins a region, by whether kernels are measured and weights constants."""
    return functools.partial(_begin, tuned, frozen) if tuned or frozen else _core.record_begin


def _uncompiled(function: Function) -> Function:
    return function


def takes_arrays(args: Any, kwargs: Any) -> bool:
    """Whether arguments of a compiled function are arrays of NumPy, whose functions are traced."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return False
    array = numpy.ndarray
    if not any(type(x) is array for x in args) and not any(
        type(x) is array for x in kwargs.values()
    ):
        return False
    return bool(config_modules.value("torch._dynamo.config", "trace_numpy"))


def _wrap(
    function: Function, compiler: Function, full: bool, tuned: bool, frozen: bool, changed: bool
) -> Function:
    begin, end = _beginning(tuned, frozen), _core.record_end
    special = _Special(function, full, tuned, changed)
    _observe()

    def compiled(*args: Any, **kwargs: Any) -> Any:
        if Stance.special:
            return special(args, kwargs)
        for check in argument_checks:
            check(args, kwargs)
        begin()
        try:
            return function(*args, **kwargs)
        finally:
            end(END)

    if frozen:
        compiled = late("flambeau.capture.freezing").frozen_calls(function, compiled)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if takes_arrays(args, kwargs):
            return late("flambeau._numpy").compiled(compiled, args, kwargs)
        return compiled(*args, **kwargs)

    if not full:
        return _skipping(function, _with_backward(call, compiler), tuned, frozen)

    @functools.wraps(function)
    def refusing_breaks(*args: Any, **kwargs: Any) -> Any:
        with full_graph():
            return call(*args, **kwargs)

    return _skipping(function, _with_backward(refusing_breaks, compiler), tuned, frozen)


def _skipping(function: Function, recorded: Function, tuned: bool, frozen: bool) -> Function:
    """Returns what runs the calls that it can explain without Python, and else records them."""
    if not _core.frames_explained or not settings.get("FRAMES"):
        return recorded

    def learn(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        with importing:
            from flambeau.capture.frame.learn import learn as learn_frame

        return learn_frame(compiled, tuned + 2 * frozen, args, kwargs)

    return functools.update_wrapper(_core.CompiledFunction(function, recorded, learn), function)


def _checked_arguments(
    dynamic: Any, backend: Any, mode: Any, options: Any, shapes_spec: Any
) -> bool:
    """Whether kernels are tuned; raises for arguments that `compile` cannot honour."""
    if dynamic is not None and not isinstance(dynamic, bool):
        raise AssertionError(
            f"[compile] dynamic is no bool: {dynamic!r}\nhint: True, False or None"
        )
    if shapes_spec is not None:
        raise NotImplementedError(
            "[compile] shapes_spec is not in Flambeau yet\n"
            "hint: leave it out: sizes of data are symbols from the start"
        )
    if callable(backend):
        return False
    if backend not in (None, *BACKENDS):
        raise late("flambeau._dynamo.exc").InvalidBackend(backend)
    return backend in _COMPILERS and capture_options.tunes(mode, options)


class Default:
    """The backend of `compile` without `backend=`: `torch.compiler.set_default_backend`.

    Attributes:
        backend: a name or function, or None for the compiler.
    """

    backend: Any = None


def _resolved(backend: Any, fullgraph: bool) -> Any:
    """A backend that is registered under a name, as the function; other ones as they are."""
    if isinstance(backend, str) and (backend not in BACKENDS or backend == "eager" and fullgraph):
        registry = late("flambeau._dynamo.backends.registry")
        return registry.registered(backend) or backend
    return backend


def _by_backend(
    backend: Any,
    fullgraph: bool,
    mode: Any,
    options: Any,
    limit: int | None,
    dynamic: bool | None = False,
) -> Function:
    """Returns the function that compiles by a backend that is a function."""
    settings = {"mode": mode if mode != "default" else None, "options": options}
    settings = {name: value for name, value in settings.items() if value}
    if settings:
        backend = functools.wraps(backend)(functools.partial(backend, **settings))
    with importing:
        from flambeau._dynamo.custom_backend import compiled_by

    return lambda f: compiled_by(f, backend, fullgraph, limit, dynamic)


def _with_backwards(compiler: Function, again: Function) -> Function:
    """The same for what a compiler makes."""
    return lambda f: _with_backward(compiler(f), again)


def compile(  # noqa: A001 - PyTorch's name
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """Compiles a function or module: its op calls run as one fused program.

    Args:
        model: a callable or `nn.Module`; None returns a decorator.
        fullgraph: raise at a graph break: where Python branches on data, prints a tensor, or calls
            a function that is disabled for compilation. A number that Python reads (`item()`, the
            sizes of `nonzero`) is none: the region runs in two parts.
        dynamic: a bool or None. It is for backends that are functions: sizes are symbols in their
            graphs (True), numbers (False), or symbols where they were seen to vary (None). In our
            compiler's programs sizes of data are symbols from the start.
        backend: None, "inductor" or "flambeau" (the compiler), "aot_eager" (the same, without
            tuning), "eager" (no compilation); a registered name; or a function of a `GraphModule`
            and example inputs that returns a callable. Python then runs at every call, and its
            operators in graphs: one for each part between values that Python reads. Parameters and
            buffers are inputs. Other sizes, dtypes or numbers are other graphs.
        mode: "default" or "reduce-overhead"; "max-autotune" (or "max-autotune-no-cudagraphs"):
            at the first call, every matrix product, convolution and attention is measured on the
            call's sizes in several ways of cutting it in tiles, for about 0.4 s each, and runs in
            the fastest way from then on, in later processes too. Small independent reductions of
            one shape become one kernel. Results have the same bits in every mode.
            FLAMBEAU_DEBUG=1 shows what was measured.
        options: PyTorch's options by name, instead of `mode`; "max_autotune",
            "max_autotune_gemm" and "combo_kernels" tune as that mode does;
            "post_grad_custom_pre_pass" and its kin are functions that change the graph before it
            is compiled, "freezing" makes weights constants of calls under `no_grad`
            (docs/compile.md); the others change nothing here.
        name: for reports; has no effect.
        disable: return `model` unchanged.
        recompile_limit: graphs for which a backend that is a function is called; further ones
            run uncompiled. The compiler has no limit: a new size of a known program compiles
            nothing.
        isolate_recompiles: has no effect.
        shapes_spec: None.

    Raises:
        RuntimeError: unknown mode, option or backend; an option of another type; mode and options.
        TypeError: an unknown keyword; `options` is no dict.
        AssertionError: `model` is not callable, `dynamic` is no bool.
        NotImplementedError: `shapes_spec`.
        BackendCompilerFailed: a backend raised, or returned no callable.

    Example:
        >>> f = torch.compile(lambda x: (x * 2).relu())
        >>> f(torch.tensor([-1.0, 1.0]))
        tensor([0., 2.])
    """
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode,
            options=options, disable=disable, recompile_limit=recompile_limit,
            shapes_spec=shapes_spec,
        )  # fmt: skip
    if not callable(model):
        raise AssertionError(
            f"[compile] a callable function is expected, but {type(model)} is provided\n"
            "hint: pass a function or an nn.Module"
        )
    backend = _resolved(Default.backend if backend is None else backend, fullgraph)
    tuned = _checked_arguments(dynamic, backend, mode, options, shapes_spec)
    frozen = backend in _COMPILERS and capture_options.freezes(options)
    if disable or config_modules.value("torch._dynamo.config", "disable"):
        return model
    with importing:
        from flambeau import nn

    again = functools.partial(
        compile, fullgraph=fullgraph, backend=backend, mode=mode, options=options
    )
    if callable(backend):
        compiler = _by_backend(backend, fullgraph, mode, options, recompile_limit, dynamic)
        compiler = _with_backwards(compiler, again)
    elif backend in _COMPILERS and (passes := capture_options.graph_passes(options)):
        compiler = _with_passes(passes, fullgraph, tuned, recompile_limit)
        compiler = _with_backwards(compiler, again)
    elif backend == "eager" and not _compiles_backwards():
        compiler = _uncompiled
    elif backend == "eager":
        compiler = functools.partial(_with_backward, compiler=again)
    else:
        compiler = functools.partial(
            _wrap, compiler=again, full=fullgraph, tuned=tuned, frozen=frozen,
            changed=backend in _COMPILERS,
        )  # fmt: skip
    if isinstance(model, nn.Module):
        with importing:
            from flambeau.capture.module import OptimizedModule

        return OptimizedModule(model, compiler(model.__call__))
    compiled: Any = compiler(model)
    if compiled is not model:
        compiled._torchdynamo_orig_callable = model
    return compiled


def explain(function: Function, *args: Any, **kwargs: Any) -> Explanation:
    """Runs a compiled region once and reports its flushes, plans, kernels and bytes.

    Args:
        function: a plain or compiled callable.
        *args, **kwargs: its arguments.

    Example:
        >>> report = torch.compiler.explain(lambda x: x.sin() + x.sum().item(), torch.ones(3))
        >>> report.graph_break_count
        1
    """
    explanation = Explanation()
    _core.stream_clear()
    with stream.watching() as reports, _Listening(explanation.flushes.append):
        record(function, args, kwargs)
    different: set[int] = set()
    for report in reports:
        different |= report.different
        explanation.plans += 1
        explanation.baseline += report.baseline
        explanation.kernels += report.launches
        explanation.graphs.append(report.graph)
        _add_traffic(explanation, report)
    explanation.different_kernels = len(different)
    _add_guards(explanation, function, args, kwargs)
    return explanation


def _add_traffic(explanation: Explanation, report: stream.StreamReport) -> None:
    """Adds the bytes that a program moves."""
    moved = late("flambeau.reports.traffic").of_report(report)
    explanation.launches += moved.launches
    explanation.bytes_moved += moved.bytes
    explanation.bytes_least += moved.least
    explanation.bytes_eager += moved.eager


def _add_guards(explanation: Explanation, function: Any, args: Any, kwargs: Any) -> None:
    """Runs the call dry, as after calls of a compiled function that gave the same stream."""
    if not _core.frames_explained or not settings.get("FRAMES") or _core.is_recording():
        explanation.recorded = "the dry run of frames is off"
        return
    with importing:
        from flambeau.capture.frame.learn import learn

    trial = _core.CompiledFunction(function, function, None)
    explanation.recorded = learn(trial, 0, args, kwargs)
    explanation.guards = [line for lines in trial._explanations for line in lines]


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Makes a function run eagerly, also inside a compiled region.

    Args:
        fn: the function; None returns a decorator.
        recursive: accepted; callees are always eager too.
        reason: shown by `explain`.
    """
    if fn is None:
        return lambda f: disable(f, recursive, reason=reason)
    label = reason or f"{getattr(fn, '__qualname__', fn)} is disabled for compilation"

    @functools.wraps(fn)
    def eager(*args: Any, **kwargs: Any) -> Any:
        require_no_break(f"calls a function that runs eagerly: {label}", "drop the decorator")
        if boundaries.local.recorder is not None:
            return boundaries.outside(label, lambda: fn(*args, **kwargs))
        if not _core.is_recording():
            return fn(*args, **kwargs)
        _core.record_flush(label)
        suspended = _core.record_suspend()
        try:
            return fn(*args, **kwargs)
        finally:
            _core.record_resume(suspended)

    return eager


def unrecorded(function: Function) -> Any:
    """Calls `function` outside of the region, which goes on afterwards."""
    if boundaries.local.recorder is not None:
        return boundaries.outside("unrecorded", function)
    suspended = _core.record_suspend()
    try:
        return function()
    finally:
        _core.record_resume(suspended)


def as_one_stream(function: Function, args: Any, kwargs: Any) -> Any:
    """Calls a function whose recorded calls are a stream of their own.

    Equal calls find the program of the first one.

    Args:
        function: the function.
        args, kwargs: its arguments.
    """
    if not _core.is_recording():
        return function(*args, **kwargs)
    _core.record_flush(breaks.REGION)
    result = function(*args, **kwargs)
    _core.record_flush(breaks.REGION)
    return result


def is_compiling() -> bool:
    """Whether op calls of this thread are being recorded."""
    return bool(_core.is_recording()) or boundaries.local.recorder is not None


def reset() -> None:
    """Forgets all compiled streams and what was learnt about varying sizes."""
    _core.stream_clear()
    stream.forget()
    shown = loaded("flambeau.reports.region_logs")
    if shown is not None:
        shown.forget()
    graphs = loaded("flambeau._dynamo.custom_backend")
    if graphs is not None:
        graphs.reset()


def _compile_joint(*stream_parts: Any) -> Any:
    with importing:
        from flambeau.capture import joint  # costs an import only where gradients are compiled

    return joint.compile_joint(*stream_parts)


def install() -> None:
    """Connects the native recorder with the stream compiler."""
    _core.set_stream_compiler(stream.compile_stream)


_core.set_joint_compiler(_compile_joint)
logs.when_changed(_observe)
