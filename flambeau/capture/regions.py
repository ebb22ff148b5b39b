"""`torch.compile` and its companions.

A table, `_WAYS`, has the ways in which functions are compiled; the first one that applies to the
arguments of `compile` is taken.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau import _core
from flambeau.capture import options as capture_options
from flambeau.capture import stream
from flambeau.capture.breaks import END
from flambeau.capture.flushes import full_graph, observe, require_no_break, uncompiled
from flambeau.capture.recording import Function, argument_checks, beginning, record
from flambeau.capture.stance import stance
from flambeau.ir.lock import importing, late, loaded
from flambeau.runtime import boundaries, config_modules, settings

BACKENDS = ("inductor", "flambeau", "aot_eager", "eager")
_COMPILERS = (None, "inductor", "flambeau")


class Default:
    """The backend of `compile` without `backend=`: `torch.compiler.set_default_backend`.

    Attributes:
        backend: a name or function, or None for the compiler.
    """

    backend: Any = None


class _Request(NamedTuple):
    """Checked arguments of `compile`.

    Attributes:
        backend: with a registered name resolved.
        fullgraph, dynamic, mode, options: of `compile`.
        limit: its `recompile_limit`.
        tuned: whether kernels are measured.
    """

    backend: Any
    fullgraph: bool
    dynamic: bool | None = False
    mode: str | None = None
    options: dict[str, Any] | None = None
    limit: int | None = None
    tuned: bool = False

    @property
    def is_compiled(self) -> bool:
        """Whether the backend is our compiler, with passes of the user if there are any."""
        return self.backend in _COMPILERS

    @property
    def frozen(self) -> int:
        """Whether weights are constants: 1, and 2 where modules lose them."""
        return capture_options.freezes(self.options) if self.is_compiled else 0

    def again(self) -> Function:
        """Returns `compile` with the same arguments, for backwards of the function."""
        return functools.partial(
            compile, fullgraph=self.fullgraph, backend=self.backend,
            mode=self.mode, options=self.options,
        )  # fmt: skip


# ------------------------------------------------------------------------------- backwards


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


# ------------------------------------------------------------------------------- regions


class _Special:
    """Calls of a compiled function that do not simply record it: eagerly, or through passes.

    Args:
        function: the function.
        request: how it is compiled.
    """

    def __init__(self, function: Function, request: _Request) -> None:
        self._function, self._request = function, request
        self._by_passes: dict[object, Function] = {}

    def __call__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        if stance.eager:
            return self._function(*args, **kwargs)
        if not self._request.is_compiled:
            return record(self._function, args, kwargs)
        passes = capture_options.graph_passes(None)
        key = late("flambeau._inductor.compile_fx").Passes.of(passes).key
        if key not in self._by_passes:
            request = self._request._replace(options=None, limit=None)
            self._by_passes[key] = _through_passes(request)(self._function)
        return self._by_passes[key](*args, **kwargs)


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


def _recorded_calls(function: Function, request: _Request, frozen: int) -> Function:
    """Returns a function whose calls are recorded, or what the stance is."""
    begin, end = beginning(request.tuned, frozen), _core.record_end
    special = _Special(function, request)
    observe()

    def compiled(*args: Any, **kwargs: Any) -> Any:
        if stance.special:
            return special(args, kwargs)
        for check in argument_checks:
            check(args, kwargs)
        begin()
        try:
            return function(*args, **kwargs)
        finally:
            end(END)

    if frozen:
        compiled = late("flambeau.capture.freezing").frozen_calls(function, compiled, frozen > 1)
    return compiled


def _taking_arrays(function: Function, compiled: Function) -> Function:
    """Returns a function that also takes arrays of NumPy."""

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        if takes_arrays(args, kwargs):
            return late("flambeau._numpy").compiled(compiled, args, kwargs)
        return compiled(*args, **kwargs)

    return call


def _refusing_breaks(function: Function, call: Function) -> Function:
    """Returns a function that raises at a graph break."""

    @functools.wraps(function)
    def refusing_breaks(*args: object, **kwargs: object) -> object:
        with full_graph():
            return call(*args, **kwargs)

    return refusing_breaks


def _skipping(function: Function, recorded: Function, tuned: bool, frozen: int) -> Function:
    """Returns what runs the calls that it can explain without Python, and else records them."""
    if not _core.frames_explained or not settings.get("FRAMES"):
        return recorded

    def learn(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        with importing:
            from flambeau.capture.frame.learn import learn as learn_frame

        return learn_frame(compiled, tuned + 2 * frozen, args, kwargs)

    return functools.update_wrapper(_core.CompiledFunction(function, recorded, learn), function)


# ------------------------------------------------------------------------------- ways


def _by_regions(request: _Request) -> Function:
    """Returns the function that makes recorded regions of calls."""
    frozen, again = request.frozen, request.again()

    def compiler(function: Function) -> Function:
        call = _taking_arrays(function, _recorded_calls(function, request, frozen))
        call = _refusing_breaks(function, call) if request.fullgraph else call
        return _skipping(function, _with_backward(call, again), request.tuned, frozen)

    return compiler


def _by_backend(request: _Request) -> Function:
    """Returns the function that compiles by a backend that is a function."""
    backend, mode = request.backend, request.mode
    keywords = {"mode": mode if mode != "default" else None, "options": request.options}
    keywords = {name: value for name, value in keywords.items() if value}
    if keywords:
        backend = functools.wraps(backend)(functools.partial(backend, **keywords))
    with importing:
        from flambeau._dynamo.custom_backend import compiled_by

    return lambda f: compiled_by(f, backend, request.fullgraph, request.limit, request.dynamic)


def _through_passes(request: _Request) -> Function:
    """Returns the function that compiles through graphs that passes of the user change."""
    compiler = late("flambeau._inductor.compile_fx")
    passes = compiler.Passes.of(capture_options.graph_passes(request.options))
    backend = compiler.backend_of(passes, request.tuned)
    return _by_backend(_Request(backend, request.fullgraph, limit=request.limit))


def _uncompiled(request: _Request) -> Function:
    return uncompiled


class _Way(NamedTuple):
    """A way to compile.

    Attributes:
        applies: whether it is that of a request.
        compiler: from a request to a function that compiles functions.
        backwards: whether it leaves to us to compile backwards, where the setting says so.
    """

    applies: Callable[[_Request], object]
    compiler: Callable[[_Request], Function]
    backwards: bool = True


_WAYS = (
    _Way(lambda r: callable(r.backend), _by_backend),
    _Way(lambda r: r.is_compiled and capture_options.graph_passes(r.options), _through_passes),
    _Way(lambda r: r.backend == "eager" and _compiles_backwards(), _uncompiled),
    _Way(lambda r: r.backend == "eager", _uncompiled, backwards=False),
    _Way(lambda r: True, _by_regions, backwards=False),
)


def _compiler(request: _Request) -> Function:
    """Returns the function that compiles functions."""
    way = next(way for way in _WAYS if way.applies(request))
    compiler, again = way.compiler(request), request.again()
    return (lambda f: _with_backward(compiler(f), again)) if way.backwards else compiler


# ------------------------------------------------------------------------------- `compile`


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


def _resolved(backend: Any, fullgraph: bool) -> Any:
    """A backend that is registered under a name, as the function; other ones as they are."""
    if isinstance(backend, str) and (backend not in BACKENDS or backend == "eager" and fullgraph):
        registry = late("flambeau._dynamo.backends.registry")
        return registry.registered(backend) or backend
    return backend


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
    request = _Request(backend, fullgraph, dynamic, mode, options, recompile_limit, tuned)
    if disable or config_modules.value("torch._dynamo.config", "disable"):
        return model
    return _compiled(model, _compiler(request))


def _compiled(model: Any, compiler: Function) -> Any:
    """Returns a function or module whose calls are compiled."""
    with importing:
        from flambeau import nn

    if isinstance(model, nn.Module):
        with importing:
            from flambeau.capture.module import OptimizedModule

        return OptimizedModule(model, compiler(model.__call__))
    compiled: Any = compiler(model)
    if compiled is not model:
        compiled._torchdynamo_orig_callable = model
    return compiled


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
