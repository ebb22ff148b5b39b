"""`checkpoint`: saves memory by computing a part of the forward pass again in the backward pass.

Two variants, with PyTorch's semantics (Chen et al. 2016, "Training deep nets with sublinear memory
cost"). Without reentrance, saved-tensor hooks replace each tensor that the part saves by a
`_Holder`; the first one that backward needs runs the part again and fills all of them. The graph is
that of the function itself, so whatever works without `checkpoint` works with it. With
reentrance, one node of the graph runs the part again and calls `backward` on that run.
"""

from __future__ import annotations

import itertools
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import flambeau as torch
import flambeau.autograd  # complete: a base class comes from it
from flambeau import _core
from flambeau.amp.autocast_mode import _current
from flambeau.autograd.graph import saved_tensors_hooks
from flambeau.ir.failure import failure
from flambeau.utils._python_dispatch import TorchDispatchMode
from flambeau.utils.checkpoint_policies import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

__all__ = [
    "SAC_IGNORED_OPS",
    "CheckpointError",
    "CheckpointFunction",
    "CheckpointPolicy",
    "DefaultDeviceType",
    "GraphExecGroup",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "detach_variable",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]

Tensor = Any
Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]
_fresh_groups = itertools.count(-2, -1)  # for tensors that are unpacked outside of a backward


class CheckpointError(RuntimeError):
    """The recomputation saved other tensors than the forward pass."""


class _StopRecomputationError(Exception):
    """Ends a recomputation whose saved tensors are complete."""


class _Settings:
    """Values that override the arguments of `checkpoint` (None: no override)."""

    early_stop: bool | None = None
    debug: bool | None = None


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Within the block, calls of `checkpoint` stop their recomputation early, or do not.

    Args:
        enable: True stops as soon as all saved tensors are recomputed (the default).
    """
    before, _Settings.early_stop = _Settings.early_stop, enable
    try:
        yield
    finally:
        _Settings.early_stop = before


@contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Within the block, `debug` of `checkpoint` is this value; None: as the argument says."""
    before, _Settings.debug = _Settings.debug, enabled
    try:
        yield
    finally:
        _Settings.debug = before


def noop_context_fn() -> Contexts:
    """No context around the forward pass, none around the recomputation."""
    return nullcontext(), nullcontext()


class DefaultDeviceType:
    """The device type whose random state a checkpoint without tensors of its own preserves."""

    _device_type = "cpu"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Sets the default device type."""
        DefaultDeviceType._device_type = device

    @staticmethod
    def get_device_type() -> str:
        """Returns the default device type."""
        return DefaultDeviceType._device_type


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """Return indices and random states of the accelerators that hold the tensors in *args*.

    The CPU has one generator, which `checkpoint` preserves apart, so both lists are empty.
    """
    return [], []


def set_device_states(
    devices: Iterable[int], states: Iterable[Tensor], *, device_type: str | None = None
) -> None:
    """Restore what `get_device_states` returned.

    Raises:
        RuntimeError: a device that does not exist.
    """
    for device in devices:
        raise RuntimeError(
            f"[set_device_states] no device {device_type or 'accelerator'}:{device}\n"
            "hint: random states of the CPU are set with torch.set_rng_state"
        )


class GraphExecGroup:
    """Within the block, all backward passes share one recomputation of each checkpoint.

    For a backward that is split over several calls, each of which needs other saved tensors.
    """

    def __enter__(self) -> GraphExecGroup:
        if self._get_current_group() is not None:
            problem = "GraphExecGroup contexts cannot be nested"
            raise failure(RuntimeError, "GraphExecGroup", problem, "leave the other block first")
        _core.set_checkpoint_group(self)
        return self

    def __exit__(self, *args: object) -> None:
        _core.set_checkpoint_group(None)

    @classmethod
    def _get_current_group(cls) -> GraphExecGroup | None:
        group: GraphExecGroup | None = _core.checkpoint_group()
        return group


# ------------------------------------------------------------------------------ one call
class _Holder:
    """Represents a recomputed tensor in the graph, by its position among those of its call."""

    __slots__ = ("__weakref__", "position")

    def __init__(self, position: int) -> None:
        self.position = position


class _Recomputation:
    """The tensors that one recomputation saved, by position, until each is unpacked."""

    def __init__(self) -> None:
        self.tensors: dict[int, Tensor] = {}
        self.count = 0
        self.complete = False


def _metadata(x: Tensor) -> dict[str, Any]:
    return {"shape": x.shape, "dtype": x.dtype, "device": x.device}


class _Frame:
    """One call of `checkpoint`: holders of what it saved, and its recomputations.

    Attributes:
        holders: weak references, in the order in which tensors were saved.
        metadata: shape, dtype and device of each.
        forward_ended: False while a `grad` inside the function needs its saved tensors.
        recompute: runs the function again, for its saved tensors.
    """

    recompute: Callable[[], Any]

    def __init__(self, early_stop: bool, check: bool) -> None:
        self.early_stop, self.check = early_stop, check
        self.holders: list[weakref.ref[_Holder]] = []
        self.metadata: list[dict[str, Any]] = []
        self.forward_ended = False
        self.runs: dict[Any, _Recomputation] = {}

    def pack(self, x: Tensor) -> _Holder:
        """Replaces a tensor that the forward pass saves."""
        holder = _Holder(len(self.holders))
        self.holders.append(weakref.ref(holder))
        self.metadata.append(_metadata(x))
        return holder

    def unpack(self, holder: _Holder) -> Tensor:
        """Returns the recomputed tensor of a holder, once per backward pass."""
        task = _core.backward_key()
        group: Any = GraphExecGroup._get_current_group()
        if group is None:
            group = next(_fresh_groups) if task is None else task
        run = self.runs.setdefault(group, _Recomputation())
        if not run.complete:
            if task is not None and group is task:
                _core.queue_callback(lambda: self.runs.pop(group, None) and None)
            self._fill(run)
        if holder.position not in run.tensors:
            raise CheckpointError(_unpacked_twice(group))
        return run.tensors.pop(holder.position)

    def _fill(self, run: _Recomputation) -> None:
        def keep(x: Tensor) -> Tensor:
            position = run.count
            run.count += 1
            if position >= len(self.holders):
                if self.forward_ended:
                    raise CheckpointError(
                        "[checkpoint] trying to save more tensors during recomputation than during "
                        f"the original forward pass ({len(self.holders)})\n{_HINT}"
                    )
                return x
            if _core.is_referenced(self.holders[position]):
                run.tensors[position] = x
            if self.early_stop and run.count == len(self.holders):
                raise _StopRecomputationError
            return x

        before = len(self.holders)
        try:
            with saved_tensors_hooks(keep, lambda x: x), torch.enable_grad():
                self.recompute()
        except _StopRecomputationError:
            pass
        run.complete = True
        if self.forward_ended or run.count == before:
            self._compare(run)

    def _compare(self, run: _Recomputation) -> None:
        if run.count != len(self.holders):
            raise CheckpointError(
                "[checkpoint] A different number of tensors was saved during the original forward "
                f"and recomputation.\nNumber of tensors saved during forward: {len(self.holders)}\n"
                f"Number of tensors saved during recomputation: {run.count}.\n{_HINT}"
            )
        if not self.check:
            return
        pairs = [(i, self.metadata[i], _metadata(x)) for i, x in run.tensors.items()]
        different = [
            f"tensor at position {i}:\nsaved metadata: {first}\nrecomputed metadata: {again}\n"
            for i, first, again in pairs
            if first != again
        ]
        if different:
            raise CheckpointError(
                "[checkpoint] Recomputed values for the following tensors have different metadata "
                f"than during the forward pass.\n{''.join(different)}{_HINT}"
            )


_HINT = (
    "hint: the function must do the same both times; checkpoint(..., debug=True) lists the "
    "operators of both runs"
)


def _unpacked_twice(group: Any) -> str:
    text = "[checkpoint] Unpack is being triggered for a tensor that was already unpacked once. "
    if isinstance(group, GraphExecGroup):
        return text + (
            "Performing two backward calls that overlap (i.e. require the same saved activations) "
            "in the same GraphExecGroup is not supported\n"
            "hint: leave the GraphExecGroup between such calls"
        )
    return text + (
        "A backward pass may read each saved tensor once\n"
        "hint: read ctx.saved_tensors once in backward, into a variable"
    )


class _KeptArguments(torch.autograd.Function):
    """A node that saves tensors as an operator does: versions, and hooks of outer checkpoints."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, *tensors: Tensor) -> Tensor:
        """Saves tensors; *anchor* requires a gradient, so the node is recorded in any case."""
        ctx.save_for_backward(*tensors)
        return torch.empty(0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Never called: nobody gets the result."""
        raise AssertionError("the node of a checkpoint's arguments has no gradient")


def _kept(args: tuple[Any, ...]) -> Callable[[], tuple[Any, ...]]:
    """A function that returns the arguments again.

    Tensors are saved by a node. Its result has them as they were: with their history, and with an
    error where one was written since.
    """
    positions = [i for i, x in enumerate(args) if isinstance(x, torch.Tensor)]
    if torch.autograd.function._transformed(args):
        return lambda: args
    result = _KeptArguments.apply(torch.empty(0, requires_grad=True), *[args[i] for i in positions])
    template = [None if isinstance(x, torch.Tensor) else x for x in args]
    node = result.grad_fn

    def restore() -> tuple[Any, ...]:
        values = list(template)
        with torch.enable_grad():
            for i, tensor in zip(positions, node.saved_tensors, strict=True):
                values[i] = tensor
        return tuple(values)

    return restore


@contextmanager
def _random_state(state: Tensor | None) -> Iterator[None]:
    """Within the block, the generator goes on from *state* (None: from where it is)."""
    if state is None:
        yield
        return
    now = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield
    finally:
        torch.set_rng_state(now)


class _OperatorLog(TorchDispatchMode):
    """Lists the operators that run, with sizes and the line that called them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def _steps_aside(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        sizes = ", ".join(
            f"{x.dtype}{list(x.shape)}" if isinstance(x, torch.Tensor) else repr(x) for x in args
        )
        caller = _users_line()
        self.lines.append(f"{func}({sizes}){caller}")
        return True

    def text(self, title: str) -> str:
        """The list under a title."""
        return "\n".join([f"{title}:", *(f"  {line}" for line in self.lines)])


def _users_line() -> str:
    for entry in reversed(traceback.extract_stack()):
        if "/flambeau/" not in entry.filename:
            return f"  # {entry.filename}:{entry.lineno}"
    return ""


def _explained(unpack: Callable[[_Holder], Tensor], logs: list[_OperatorLog]) -> Any:
    """`unpack` whose errors tell the operators of both runs."""

    def explained(holder: _Holder) -> Tensor:
        try:
            return unpack(holder)
        except CheckpointError as error:
            first, again = logs[0], logs[-1] if len(logs) > 1 else _OperatorLog()
            raise CheckpointError(
                f"{error}\n{first.text('Operators executed during the original forward')}\n"
                f"{again.text('Operators executed during recomputation')}"
            ) from error

    return explained


def _without_reentrance(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    frame: _Frame,
    contexts: Contexts,
    state: Tensor | None,
    debug: bool,
) -> Any:
    """Runs the function; what it saves becomes holders of *frame*."""
    restore = _kept(args)
    logs: list[_OperatorLog] = []
    weak_contexts = contexts[1]
    precision = _current()

    def logged(stack: ExitStack) -> None:
        if debug:
            logs.append(stack.enter_context(_OperatorLog()))

    def recompute() -> None:
        values = restore()
        with ExitStack() as stack:
            stack.enter_context(_random_state(state))
            stack.enter_context(precision)
            del logs[1:]
            logged(stack)
            stack.enter_context(weak_contexts)
            function(*values, **kwargs)

    frame.recompute = recompute
    unpack = _explained(frame.unpack, logs) if debug else frame.unpack
    with ExitStack() as stack:
        stack.enter_context(saved_tensors_hooks(frame.pack, unpack))
        logged(stack)
        stack.enter_context(contexts[0])
        result = function(*args, **kwargs)
    frame.forward_ended = True
    return result


# ------------------------------------------------------------------------------ public
def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, whose saved tensors are computed again in backward.

    Args:
        function: must do the same every time; it may use parameters and random numbers.
        use_reentrant: pass False. True (and None, with a warning) is PyTorch's older variant: no
            `autograd.grad`, no second derivatives, no keyword arguments, and a gradient only if
            one of *args* requires one.
        context_fn: returns two context managers, for the run and for the recomputation; see
            `create_selective_checkpoint_contexts`.
        determinism_check: "default" compares shapes, dtypes and devices of the saved tensors,
            "none" only their number.
        debug: errors list the operators of both runs.
        early_stop: the recomputation ends when the last saved tensor is there.
        **kwargs: for *function*; but `preserve_rng_state` (default True): the recomputation draws
            the same random numbers.

    Raises:
        ValueError: another `determinism_check`, or arguments that need `use_reentrant=False`.
        CheckpointError: the recomputation saved other tensors (raised in backward).

    Example:
        >>> x = torch.ones(3, requires_grad=True)
        >>> checkpoint(lambda v: v.exp().sin(), x, use_reentrant=False).sum().backward()
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. "
            "use_reentrant=False is recommended; the default is True.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        _check_reentrant(kwargs, context_fn, debug)
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in ("default", "none"):
        raise ValueError(
            "[checkpoint] determinism_check should be one of ['default', 'none'], but got "
            f"{determinism_check}\nhint: 'default' compares shapes, dtypes and devices"
        )
    if not torch.is_grad_enabled():
        return function(*args, **kwargs)
    stop = early_stop if _Settings.early_stop is None else _Settings.early_stop
    frame = _Frame(stop, determinism_check == "default")
    state = torch.get_rng_state() if preserve else None
    logs = debug if _Settings.debug is None else _Settings.debug
    return _without_reentrance(function, args, kwargs, frame, context_fn(), state, logs)


def _check_reentrant(kwargs: dict[str, Any], context_fn: Any, debug: bool) -> None:
    if kwargs:
        problem = f"Unexpected keyword arguments: {','.join(kwargs)}"
        raise failure(ValueError, "checkpoint", problem, "use_reentrant=False passes them on")
    if context_fn is not noop_context_fn or debug:
        problem = "Passing `context_fn` or `debug` is only supported when use_reentrant=False."
        raise failure(ValueError, "checkpoint", problem, "use_reentrant=False")


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,  # noqa: A002 - PyTorch's name
    use_reentrant: bool | None = None,
    **kwargs: Any,
) -> Any:
    """A sequence of functions in `segments` parts, all but the last one checkpointed.

    Args:
        functions: a `Sequential` or a list of functions, each given the result of the one before.
        segments: number of parts.
        input: of the first function.
        use_reentrant: as in `checkpoint`.
        **kwargs: only `preserve_rng_state`.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be "
            "passed explicitly. use_reentrant=False is recommended; the default is True.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        problem = f"Unexpected keyword arguments: {','.join(kwargs)}"
        raise failure(
            ValueError, "checkpoint_sequential", problem, "only preserve_rng_state is an option"
        )
    chain = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = max(len(chain) // segments, 1)

    def part(start: int, end: int) -> Callable[[Any], Any]:
        def run(value: Any) -> Any:
            for step in chain[start:end]:
                value = step(value)
            return value

        return run

    last = size * (segments - 1)
    for start in range(0, last, size):
        input = checkpoint(  # noqa: A001
            part(start, start + size),
            input,
            use_reentrant=use_reentrant,
            preserve_rng_state=preserve,
        )
    return part(last, len(chain))(input)


# ------------------------------------------------------------------------------ with reentrance
def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return tensors outside of any graph, which require a gradient as they did; others as is.

    Raises:
        RuntimeError: *inputs* is no tuple.
    """
    if not isinstance(inputs, tuple):
        problem = "Only tuple of tensors is supported. Got Unsupported input type: "
        problem += f"{type(inputs).__name__}"
        raise failure(RuntimeError, "detach_variable", problem, "detach_variable((x,))")
    return tuple(
        x.detach().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
        for x in inputs
    )


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn if none of the inputs requires a gradient."""
    if not any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2
        )


class CheckpointFunction(torch.autograd.Function):
    """`checkpoint` with reentrance: its backward runs the function again and calls `backward`."""

    @staticmethod
    def forward(ctx: Any, run_function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        """Runs the function without a graph."""
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.precision = _current()
        ctx.state = torch.get_rng_state() if preserve_rng_state else None
        ctx.positions = [i for i, x in enumerate(args) if isinstance(x, torch.Tensor)]
        ctx.template = [None if isinstance(x, torch.Tensor) else x for x in args]
        ctx.save_for_backward(*[args[i] for i in ctx.positions])
        with torch.no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *args: Any) -> Any:
        """Gradients of the arguments; those of parameters are added to their `.grad`."""
        if not _core.accumulates_gradients():
            problem = "When use_reentrant=True, torch.utils.checkpoint is incompatible with "
            problem += ".grad() or passing an `inputs` parameter to .backward()."
            raise failure(
                RuntimeError, "checkpoint", problem, "checkpoint(..., use_reentrant=False)"
            )
        values = list(ctx.template)
        for i, tensor in zip(ctx.positions, ctx.saved_tensors, strict=True):
            values[i] = tensor
        inputs = detach_variable(tuple(values))
        with _random_state(ctx.state), torch.enable_grad(), ctx.precision:
            results = ctx.run_function(*inputs)
        outputs = (results,) if isinstance(results, torch.Tensor) else results
        pairs = [
            (tensor, grad)
            for tensor, grad in zip(outputs, args, strict=True)
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad
        ]
        if not pairs:
            problem = "none of output has requires_grad=True, this checkpoint() is not necessary"
            raise failure(
                RuntimeError, "checkpoint", problem, "call the function without checkpoint"
            )
        torch.autograd.backward([t for t, _ in pairs], [g for _, g in pairs])
        return None, None, *(x.grad if isinstance(x, torch.Tensor) else None for x in inputs)
