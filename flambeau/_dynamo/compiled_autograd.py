"""`torch._dynamo.compiled_autograd`: the whole backward as one program, made when it runs.

The engine runs inside of a compiled function: its calls, those of hooks and of custom functions are
recorded in their order. So the program is the same one wherever the forward was divided, and what
it computes has the bits of eager mode. Nothing is analysed ahead: another graph is another program,
other sizes are not.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from flambeau import _core
from flambeau._dynamo.utils import counters
from flambeau.capture import flushes, regions
from flambeau.capture.module import OptimizedModule
from flambeau.capture.stance import stance
from flambeau.fx import Graph, GraphModule
from flambeau.ir.failure import failure
from flambeau.ir.lock import fork_safe_lock, late
from flambeau.nn import Module
from flambeau.runtime import boundaries, config_modules, missing

__all__ = ["Op", "OpNamespace", "Backward", "disable", "enable", "ops", "reset"]

Value: TypeAlias = object
CompilerFunction: TypeAlias = Callable[..., Callable[..., Value]]  # of a GraphModule

# Compiler functions whose programs are stored; the one used longest ago is dropped first.
COMPILERS = 64


class _State(threading.local):
    """State of one thread.

    Attributes:
        compiler: compiles backwards, or None.
        disabled: whether `_disable` is active.
        depth: nested `_enable` blocks.
        forced: whether one of them has no effect, because the stance is "force_eager".
        running: whether a backward is running as a program.
        awaited: whether a backward is part of a region that has not run yet.
        started: whether its engine has begun.
        captured: whether a program was new since the backward began; None: none has run yet.
    """

    def __init__(self) -> None:
        self.compiler: CompilerFunction | None = None
        self.depth = 0
        self.disabled = self.forced = False
        self.running = self.awaited = self.started = False
        self.captured: bool | None = None


_state = _State()
_changing = fork_safe_lock(level=3)
_programs: OrderedDict[Value, tuple[CompilerFunction, Callable[..., Value]]] = OrderedDict()


# ------------------------------------------------------------------------- nodes of graphs
class Op:
    """The backward of an operator, as a graph for a backend calls it.

    Args:
        name: of the tape node, as PyTorch names it: "MulBackward0".
        function: of gradients, saved tensors, integers and numbers.
    """

    __module__ = "torch._dynamo.compiled_autograd.ops"

    def __init__(self, name: str, function: Callable[..., Value]) -> None:
        self.__name__ = self.__qualname__ = name
        self.function = function

    def __call__(self, *args: Value) -> Value:
        """The gradients."""
        return self.function(*args)

    def __repr__(self) -> str:
        return f"{self.__module__}.{self.__name__}"


class OpNamespace:
    """The backward operators of stored graphs, by name: attributes."""

    def __init__(self) -> None:
        self._named: weakref.WeakValueDictionary[str, Op] = weakref.WeakValueDictionary()
        self._by_function: weakref.WeakValueDictionary[int, Op] = weakref.WeakValueDictionary()

    def of(self, name: str, function: Callable[..., Value]) -> Op:
        """The operator of a function; several of a name are numbered.

        Args:
            name: of the tape node.
            function: the native operator.
        """
        with _changing:
            op = self._by_function.get(id(function))
            if op is None:
                numbered = (f"{name}_{number}" for number in itertools.count(1))
                free = (each for each in itertools.chain([name], numbered))
                op = Op(next(each for each in free if each not in self._named), function)
                self._by_function[id(function)] = self._named[op.__name__] = op
        return op

    def __getattr__(self, name: str) -> Op:
        try:
            return self._named[name]
        except KeyError:
            raise AttributeError(f"no stored graph calls {name!r}", name=name) from None


ops = OpNamespace()


# ------------------------------------------------------------------------- the program
class _GraphRead(BaseException):
    """A compiler function reads the graph: it gets one that was recorded. Nobody catches it."""


class Backward(GraphModule):
    """The backward that begins, as the module that a compiler function takes.

    A call runs the engine, so that whatever compiles modules compiles it, hooks included. The graph
    exists once a backend that is a function has recorded it.
    """

    _boxed_call = False

    def __init__(self) -> None:
        Module.__init__(self)

    @property  # type: ignore[misc]
    def graph(self) -> Graph:
        """Ends the compiler function, which is called with a recorded graph instead."""
        raise _GraphRead

    @property
    def code(self) -> str:
        """As `graph`."""
        raise _GraphRead

    def __call__(self, *args: Value) -> Value:
        """Runs the engine; the arguments are its own. No hook of all modules sees the call."""
        return _engine(*args)

    forward = __call__


def _engine(*args: Value) -> Value:
    """Runs the engine; a recorder in Python sees what it calls."""
    _state.started = True
    if boundaries.local.recorder is None:
        return _core.run_backward(*args)
    before = _core.set_delayed_type(late("flambeau._subclasses.fake_tensor").FakeTensor)
    try:
        return _core.run_backward(*args)
    finally:
        _core.set_delayed_type(before)


def _identity(compiler: Value) -> Value:
    """Equal for compiler functions of one program: `torch.compile` with equal options is one."""
    if isinstance(compiler, functools.partial):
        named = tuple([(name, _identity(x)) for name, x in sorted(compiler.keywords.items())])
        return id(compiler.func), *map(_identity, compiler.args), named, id(regions.Default.backend)
    if isinstance(compiler, dict):
        return tuple([(name, _identity(x)) for name, x in compiler.items()])
    return compiler if isinstance(compiler, (str, int, float)) else id(compiler)


def _program(compiler: CompilerFunction) -> tuple[Callable[..., Value], bool]:
    """The callable that a compiler function makes of backwards, and whether it did so just now.

    It is called once, or once for each graph.
    """
    with _changing:
        key = _identity(compiler)
        stored = _programs.get(key)
        if stored is not None:
            _programs.move_to_end(key)
            return stored[1], False
    try:
        program = compiler(Backward())
    except _GraphRead:
        return _by_graphs(compiler), True
    if isinstance(program, OptimizedModule):
        program = program._call
    return _stored(compiler, program), True


def _stored(compiler: CompilerFunction, program: Callable[..., Value]) -> Callable[..., Value]:
    with _changing:
        _programs[_identity(compiler)] = compiler, program
        if len(_programs) > COMPILERS:
            _programs.popitem(last=False)
    return program


def _by_graphs(compiler: CompilerFunction) -> Callable[..., Value]:
    """The engine, run in graphs that a compiler function compiled."""
    by_backend = late("flambeau._dynamo.custom_backend").compiled_by

    @functools.wraps(compiler)
    def backend(module: GraphModule, example_inputs: Value) -> Callable[..., Value]:
        return compiler(module)

    return _stored(compiler, by_backend(_engine, backend, False, None))


def _run(args: tuple[Value, ...]) -> Value:
    """A backward while compilation is enabled: the core calls it with the engine's arguments."""
    compiler = _state.compiler
    if compiler is None or _state.running or stance.eager:
        return _core.run_backward(*args)
    if _core.is_recording():  # it is part of that region's program
        _state.awaited = True
        return _core.run_backward(*args)
    return boundaries.outside("backward", lambda: _run_program(compiler, args))


def _run_program(compiler: CompilerFunction, args: tuple[Value, ...]) -> Value:
    _state.running, _state.captured, _state.started, is_new = True, None, False, False
    try:
        program, is_new = _program(compiler)
        return program(*args)
    except _GraphRead:
        if _state.started:
            problem = "the graph of a backward is read while it runs"
            hint = "read it in the compiler function, which gets a recorded graph then"
            raise failure(NotImplementedError, "compiled_autograd", problem, hint) from None
        return _by_graphs(compiler)(*args)
    finally:
        _state.running = False
        fresh = is_new if _state.captured is None else _state.captured
        counters["compiled_autograd"]["captures"] += fresh


def _count_flush(event: flushes.Flush) -> None:
    """Counts new programs of backwards."""
    if not event.records or not (_state.running or _state.awaited):
        return
    if not event.known:
        counters["compiled_autograd"]["compiles"] += _state.compiler in _counted.values()
    if _state.running:
        _state.captured = bool(_state.captured) or not event.known
    else:
        _state.awaited = False
        counters["compiled_autograd"]["captures"] += not event.known


flushes.count_flushes(_count_flush)

_counted: dict[tuple[bool, bool], CompilerFunction] = {}


def counted(fullgraph: bool, dynamic: bool) -> CompilerFunction:
    """The compiler function of `maybe_enable_compiled_autograd`, whose programs are counted.

    Args:
        fullgraph, dynamic: as of `torch.compile`.
    """
    key = (fullgraph, dynamic)
    if key not in _counted:
        _counted[key] = functools.partial(regions.compile, fullgraph=fullgraph, dynamic=dynamic)
    return _counted[key]


# ------------------------------------------------------------------------- the switch
@contextmanager
def _enable(
    compiler_fn: CompilerFunction,
    dynamic: bool = True,
    ignore_active_disable_ctx: bool = True,
) -> Iterator[None]:
    """A `with` block in which each backward of this thread is one program.

    Backwards that begin inside of a hook are part of the one around them. Inside of a compiled
    function a backward is part of that function's program. Where anomaly mode is on, and under
    `torch.compiler.set_stance("force_eager")`, backwards run as without it.

    Args:
        compiler_fn: takes a `torch.fx.GraphModule` and returns a callable: `torch.compile`, or what
            `torch.compile(backend=..., fullgraph=...)` returns. With a backend that is a function,
            that function gets the graph of the whole backward; sizes that vary are symbols in it.
            Where the compiler function reads the graph itself, it is called once for each graph.
            Compilers that `torch.compile` returns for equal options share their programs.
        dynamic: a bool; has no effect: sizes of data are symbols from the start.
        ignore_active_disable_ctx: False: nothing is compiled inside of `_disable`.

    Raises:
        AssertionError: `dynamic` is no bool.

    Example:
        >>> x = torch.ones(3, requires_grad=True)
        >>> with torch._dynamo.compiled_autograd._enable(torch.compile(fullgraph=True)):
        ...     (x * 2).sum().backward()
        >>> x.grad
        tensor([2., 2., 2.])
    """
    if not isinstance(dynamic, bool):
        raise AssertionError(f"[compiled_autograd] dynamic is no bool: {dynamic!r}\nhint: True")
    if _state.disabled and not ignore_active_disable_ctx:
        yield
    elif stance.eager:
        before, _state.forced = _state.forced, True
        try:
            yield
        finally:
            _state.forced = before
    else:
        depth, _state.depth = _state.depth, _state.depth + 1
        try:
            with _switched(compiler_fn):
                yield
        finally:
            _state.depth = depth


@contextmanager
def _disable() -> Iterator[None]:
    """A `with` block in which backwards run as without compilation.

    Example:
        >>> with torch._dynamo.compiled_autograd._disable():
        ...     torch._dynamo.compiled_autograd.compiled_autograd_enabled
        False
    """
    before, _state.disabled = _state.disabled, True
    try:
        with _switched(None):
            yield
    finally:
        _state.disabled = before


enable, disable = _enable, _disable


def enabled(
    compiler: CompilerFunction,
    function: Callable[..., Value],
    args: tuple[Value, ...],
    kwargs: dict[str, Value],
) -> Value:
    """Calls a compiled function whose backwards are compiled, unless that is disabled.

    Args:
        compiler: `torch.compile` with the function's options.
        function: the compiled function.
        args, kwargs: its arguments.

    Raises:
        AssertionError: the setting `compiled_autograd_kwargs_override` has other names than
            fullgraph.
    """
    name = "compiled_autograd_kwargs_override"
    override = config_modules.value("torch._dynamo.config", name)
    if override and set(override) != {"fullgraph"}:
        raise AssertionError(
            f"[compile] {name} has {sorted(override)}\nhint: it takes fullgraph alone"
        )
    own = _overridden(compiler, override["fullgraph"]) if override else compiler
    with _enable(own, ignore_active_disable_ctx=False):
        return function(*args, **kwargs)


@functools.lru_cache(maxsize=COMPILERS)
def _overridden(compiler: CompilerFunction, fullgraph: bool) -> CompilerFunction:
    return functools.partial(compiler, fullgraph=fullgraph)


@contextmanager
def _switched(compiler: CompilerFunction | None) -> Iterator[None]:
    before, _state.compiler = _state.compiler, compiler
    native = _core.set_backward_compiler(None if compiler is None else _run)
    try:
        yield
    finally:
        _core.set_backward_compiler(native)
        _state.compiler = before


def reset() -> None:
    """Ends compilation of this thread's backwards, and forgets what compiler functions returned."""
    _core.set_backward_compiler(None)
    _state.__init__()  # type: ignore[misc]
    with _changing:
        _programs.clear()


_READ: dict[str, Callable[[], bool | int]] = {
    "compiled_autograd_enabled": lambda: _state.compiler is not None,
    "compiled_autograd_enabled_force_eager": lambda: _state.forced,
    "in_compiled_autograd_region": lambda: _state.running,
    "active_disable_ctx": lambda: _state.disabled,
    "depth": lambda: _state.depth,
}


def __getattr__(name: str) -> bool | int:
    """Facts of this thread, under PyTorch's names."""
    if name in _READ:
        return _READ[name]()
    missing.refuse(__name__, name)
