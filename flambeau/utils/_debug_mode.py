"""`torch.utils._debug_mode`: every operator that runs, as lines of text, nested as it was called.

The mode sees operators as dispatch modes do, those of backwards and of compiled functions among
them: under it, these run operator by operator, with the bits of the compiled program.
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Callable, Iterator, Sequence
from os import path
from typing import Any, Self

import flambeau as torch
from flambeau import _core
from flambeau._subclasses import fake_calls
from flambeau._subclasses.fake_tensor import FakeTensor
from flambeau.fx.node import dtype_abbrs
from flambeau.nn.modules import module as modules
from flambeau.overrides import TorchFunctionMode, resolve_name
from flambeau.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
)
from flambeau.utils._pytree import keystr, tree_leaves, tree_map, tree_map_with_path
from flambeau.utils.weak import WeakIdKeyDictionary

__all__ = ["DebugMode", "get_active_debug_mode"]

Value = Any  # an argument or a result of an operator
Log = dict[str, Any]
Function = Callable[..., Value]
Types = Sequence[type]
Kwargs = dict[str, Value] | None
_PACKAGE = path.dirname(path.dirname(path.abspath(__file__))) + path.sep


class TensorIdTracker:
    """Numbers of tensors, in the order in which they first occur."""

    def __init__(self) -> None:
        self._numbers: Value = WeakIdKeyDictionary()
        self._next = 0

    def number(self, tensor: torch.Tensor) -> int:
        """The number of a tensor."""
        if tensor not in self._numbers:
            self._numbers[tensor] = self._next
            self._next += 1
        return int(self._numbers[tensor])


class _Spelling:
    """Writes values as text.

    Args:
        attributes: names of attributes of tensors that are shown.
        numbers: of tensors; None: they have none.
        fakes: whether tensors stand for fake ones.
    """

    def __init__(
        self, attributes: Sequence[str], numbers: TensorIdTracker | None, fakes: bool = False
    ) -> None:
        self._attributes, self._numbers, self._fakes = attributes, numbers, fakes

    def text(self, value: Value) -> str:
        """A value, with tensors as kind, dtype and sizes."""
        return str(self.tree(value))

    def tree(self, value: Value) -> Value:
        """A value with texts in place of tensors."""
        return tree_map(lambda x: self._tensor(x) if isinstance(x, torch.Tensor) else x, value)

    def _tensor(self, tensor: torch.Tensor) -> str:
        kind = "ft" if self._fakes or isinstance(tensor, FakeTensor) else "t"
        number = "" if self._numbers is None else f"${self._numbers.number(tensor)}"
        sizes = ", ".join(map(str, tensor.shape))
        shown = [f"{a}={getattr(tensor, a)}" for a in self._attributes if hasattr(tensor, a)]
        details = f"{{{', '.join(shown)}}}" if shown else ""
        return f"{kind}{number}: {dtype_abbrs[tensor.dtype]}[{sizes}]{details}"


class _DebugCall:
    """A line of the text.

    Args:
        call_depth: how far it is indented.
        stack: whether the user's line is stored.
    """

    record: Log | None = None
    log: Log | None = None
    output_str: str | None = None
    stack_trace: str | None = None
    fwd_stack_trace: str | None = None

    def __init__(self, call_depth: int, stack: bool = False) -> None:
        self.call_depth = call_depth
        if stack:
            self.stack_trace = "".join(traceback.format_list(_user_frames()))
            self.fwd_stack_trace = _forward_trace()

    def render(self) -> str:
        """The line without its indentation."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.render()


class _OpCall(_DebugCall):
    """A call of an operator or a function.

    Args:
        op: the operator.
        args, kwargs: of the call.
        call_depth, stack: as for `_DebugCall`.
    """

    def __init__(
        self,
        op: Function,
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
        call_depth: int,
        stack: bool = False,
    ) -> None:
        super().__init__(call_depth, stack)
        self.op, self.args, self.kwargs = op, args, kwargs
        self.spelling = _Spelling([], None)
        self._arguments: str | None = None

    def store_text(self) -> None:
        """Replaces the arguments by their text, so that tensors are released."""
        self._arguments = self._text()
        del self.args, self.kwargs

    def store_output(self, output: Value) -> None:
        """Stores the text of the result."""
        if any(leaf is not None for leaf in tree_leaves(output)):
            self.output_str = f"  ->  {self.spelling.text(output)}"

    def _text(self) -> str:
        text = self.spelling.text
        named = [f"{name}={text(value)}" for name, value in self.kwargs.items()]
        return ", ".join([*map(text, self.args), *named])

    @property
    def name(self) -> str:
        """The operator's name."""
        if hasattr(self.op, "_overloadname"):
            return str(self.op.name())
        return resolve_name(self.op) or str(self.op)

    def render(self) -> str:
        """The line without its indentation."""
        arguments = self._text() if self._arguments is None else self._arguments
        log = f"  # {self.log}" if self.log else ""
        return f"{self.name}({arguments}){self.output_str or ''}{log}"


class _AnnotateCall(_DebugCall):
    """A remark: a module that begins, a range of the profiler, a text of the user.

    Args:
        tag: the text.
        header: its kind.
        call_depth, stack: as for `_DebugCall`.
    """

    def __init__(self, tag: object, header: str, call_depth: int, stack: bool = False) -> None:
        super().__init__(call_depth, stack)
        self.tag, self.header = tag, header

    @property
    def name(self) -> str:
        """The whole line."""
        return f"[{self.header}] {self.tag}"

    def render(self) -> str:
        """The line without its indentation."""
        return self.name


def _user_frames() -> list[traceback.FrameSummary]:
    """Frames of the user's code, the innermost last."""
    frames = traceback.extract_stack()
    return [frame for frame in frames if not frame.filename.startswith(_PACKAGE)]


def _forward_trace() -> str | None:
    """Frames of the forward, while a node of the tape runs that was made under anomaly mode."""
    node = _core.current_autograd_node()
    lines = None if node is None else node.metadata.get("traceback_")
    return "".join(lines) if lines else None


def _summary(call: _DebugCall) -> str | None:
    """The user's line that a call is shown under."""
    trace = call.fwd_stack_trace or call.stack_trace
    entries = [] if not trace else trace.strip("\n").split("\n  File ")
    entries = [text.removeprefix("  File ") for text in entries]
    for text in reversed(entries):
        place, _, code = text.partition("\n")
        file, line, name = (place.split(", ", 2) + ["", ""])[:3]
        file = file.strip('"')
        if not file.startswith(_PACKAGE):
            code = code.strip().partition("\n")[0]
            return f"File: {file}:{line.removeprefix('line ')} in {name[3:]}, code: {code}"
    return None


# ---------------------------------------------------------------------------------------- hooks

_record_hooks: list[Callable[..., Log | None]] = []
_log_hooks: list[Callable[..., Log | None]] = []
_pre_log_hooks: list[Callable[..., Log | None]] = []


def _merged(hooks: Sequence[Callable[..., Log | None]], *call: Value) -> Log:
    """Merges the dicts that hooks return for a call."""
    log: Log = {}
    for hook in hooks:
        result = hook(*call)
        if result is not None and not isinstance(result, dict):
            raise AssertionError(f"hook must return None or dict, got {type(result).__name__}")
        log |= result or {}
    return log


def norm_hash_fn(t: torch.Tensor, use_scalar: bool = False) -> Value:
    """The sum of absolute values in double precision.

    Args:
        t: any tensor.
        use_scalar: return a number.
    """
    wide = torch.complex128 if t.is_complex() else torch.float64
    result = t.contiguous().to(wide).norm(p=1)
    return result.item() if use_scalar else result


def hash_tensor_fn(t: torch.Tensor, use_scalar: bool = False) -> Value:
    """`torch.hash_tensor` of the elements in double precision, or of integers.

    Args:
        t: any tensor.
        use_scalar: return a number.
    """
    if t.is_complex():
        t = torch.view_as_real(t.to(torch.complex128))
    t = t.to(torch.float64 if t.is_floating_point() else torch.int64)
    result = torch.hash_tensor(t) if t.numel() else torch.zeros((), dtype=torch.uint64)
    return result.item() if use_scalar else result


_HASHES = {"norm": norm_hash_fn, "hash_tensor": hash_tensor_fn}


def _hash_of(option: Value) -> Callable[[torch.Tensor], Value]:
    """The hash function of an option of `log_tensor_hashes`."""
    if callable(option):
        return option  # type: ignore[no-any-return]
    if isinstance(option, list):
        functions = [_hash_of(each) for each in option]
        return lambda tensor: tuple([function(tensor) for function in functions])
    if not isinstance(option, str):
        raise NotImplementedError(
            "log_tensor_hashes() expected hash_fn to be callable, str, or list[str], "
            f"but found {type(option)}"
        )
    if option not in _HASHES:
        raise AssertionError(f"hash_type must be 'norm' or 'hash_tensor', got {option!r}")
    return functools.partial(_HASHES[option], use_scalar=True)


def _is_computed(func: Function) -> bool:
    """Whether results of an operator have values that are worth a hash."""
    return "empty" not in str(func) and "profiler" not in str(func)


def _differences(call: _OpCall, other: _OpCall, key: str) -> list[Log]:
    """Hashes of one call that differ between two runs."""
    hashes = [None if each.log is None else each.log.get(key) for each in (call, other)]
    if (hashes[0] is None) != (hashes[1] is None):
        raise ValueError(f"{call.name} has the entry {key!r} in the log of one run alone")
    differences: list[Log] = []

    def compare(keys: Sequence[Value], first: float, second: float) -> None:
        if first != second:
            scale = max(abs(first), abs(second), 1e-10)
            differences.append(
                {
                    "call_type": "torch op", "call": call.name, "arg_name": None,
                    "pytree_path": keystr(keys), "hash1": first, "hash2": second,
                    "rel_diff": abs(first - second) / scale,
                    "is_input_hash": key == "input_hash",
                }
            )  # fmt: skip

    if hashes[0] is not None:
        tree_map_with_path(compare, *hashes)
    return differences


# ---------------------------------------------------------------------------------------- modes


class _Functions(TorchFunctionMode):
    """Shows a debug mode the functions that the user calls."""

    def __init__(self, mode: DebugMode) -> None:
        self._mode = mode

    def __torch_function__(
        self, func: Function, types: Types, args: tuple[Value, ...] = (), kwargs: Kwargs = None
    ) -> Value:
        """Runs the function, with the operators that it calls below it."""
        kwargs = kwargs or {}
        call = self._mode._noted(func, args, kwargs, 0)
        self._mode.call_depth += 1
        try:
            result = func(*args, **kwargs)
            self._mode._note_output(call, result)
            return result
        finally:
            self._mode.end_range()


class _Modules:
    """Shows a debug mode the modules that run.

    Args:
        mode: the mode.
    """

    def __init__(self, mode: DebugMode) -> None:
        self._mode = mode
        self._names: Value = WeakIdKeyDictionary()

    def _name(self, module: torch.nn.Module) -> str:
        if module not in self._names:
            for name, part in module.named_modules():
                kind = type(module).__name__
                self._names.setdefault(part, f"{kind}.{name}" if name else kind)
        return str(self._names[module])

    def __enter__(self) -> None:
        def begin(module: torch.nn.Module, inputs: Value) -> None:
            self._mode._begin(self._name(module), "nn.Mod", 1)

        def end(module: torch.nn.Module, inputs: Value, output: Value) -> None:
            self._mode.end_range()

        self._handles = [
            modules.register_module_forward_pre_hook(begin),
            modules.register_module_forward_hook(end, always_call=True),
        ]

    def __exit__(self, *exception: object) -> None:
        for handle in self._handles:
            handle.remove()


# Modes of all threads: calls whose Python is skipped guard that there are none.
_entered: list[DebugMode] = []


class DebugMode(TorchDispatchMode):
    """A `with` block that stores the operators that run in it, for `debug_string` and `logs`.

    Args:
        record_torchfunction: also functions that the user calls, above their operators.
        record_faketensor: also operators on fake tensors.
        record_realtensor: operators on tensors with data.
        record_tensor_attributes: names of attributes of tensors that are shown.
        record_nn_module: also modules that run, above their operators.
        store_original_args: the log refers to arguments instead of to their text.
        record_stack_trace: the user's line of each call; in backwards that of the forward, too.
        record_output: results.
        record_ids: a number for each tensor.
        record_profiler_context: also ranges of `torch.profiler.record_function`.
        record_localtensor: without effect: there are no such tensors.
        run_compile_with_interpreter: False: compiled functions run by operators in any case.

    Raises:
        NotImplementedError: `run_compile_with_interpreter=True`.

    Example:
        >>> from torch.utils._debug_mode import DebugMode
        >>> with DebugMode(record_ids=True) as mode:
        ...     _ = (torch.ones(2, 3) * 2).sum(0)
        >>> print(mode.debug_string())
            aten::ones([2, 3])  ->  t$0: f32[2, 3]
            aten::mul.Tensor(t$0: f32[2, 3], 2)  ->  t$1: f32[2, 3]
            aten::sum.dim_IntList(t$1: f32[2, 3], [0])  ->  t$2: f32[3]
    """

    def __init__(
        self,
        *,
        record_torchfunction: bool = False,
        record_faketensor: bool = False,
        record_realtensor: bool = True,
        record_tensor_attributes: list[str] | None = None,
        record_nn_module: bool = False,
        store_original_args: bool = False,
        record_stack_trace: bool = False,
        record_output: bool = True,
        record_ids: bool = False,
        record_profiler_context: bool = True,
        record_localtensor: bool = True,
        run_compile_with_interpreter: bool = False,
    ) -> None:
        super().__init__()
        if run_compile_with_interpreter:
            raise NotImplementedError(
                "[DebugMode] run_compile_with_interpreter is not in Flambeau\n"
                "hint: leave it out: compiled functions run operator by operator under this mode"
            )
        self.record_torchfunction = record_torchfunction
        self.record_faketensor, self.record_realtensor = record_faketensor, record_realtensor
        self.record_tensor_attributes = record_tensor_attributes or []
        self.record_nn_module = record_nn_module
        self.store_original_args = store_original_args
        self.record_stack_trace, self.record_output = record_stack_trace, record_output
        self.record_ids, self.record_profiler_context = record_ids, record_profiler_context
        self.record_localtensor = record_localtensor
        self.run_compile_with_interpreter = run_compile_with_interpreter
        self._blocks: list[contextlib.ExitStack] = []
        self.reset()

    def reset(self) -> None:
        """Forgets all calls."""
        self.operators: list[_DebugCall] = []
        self.call_depth = 0
        self._numbers = TensorIdTracker()

    @property
    def logs(self) -> list[_DebugCall]:
        """The calls so far."""
        return list(self.operators)

    # ---- recording
    def _noted(
        self, func: Function, args: Value, kwargs: Value, below: int, fakes: bool = False
    ) -> _OpCall:
        call = _OpCall(func, args, kwargs, self.call_depth + below, self.record_stack_trace)
        numbers = self._numbers if self.record_ids else None
        call.spelling = _Spelling(self.record_tensor_attributes, numbers, fakes)
        if not self.store_original_args:
            with torch._C.DisableTorchFunction():
                call.store_text()
        self.operators.append(call)
        return call

    def _note_output(self, call: _OpCall, result: Value) -> None:
        if self.record_output:
            with torch._C.DisableTorchFunction():
                call.store_output(result)

    def _begin(self, tag: str, header: str, below: int = 0) -> None:
        call = _AnnotateCall(tag, header, self.call_depth + below, self.record_stack_trace)
        self.operators.append(call)
        self.call_depth += 1

    def end_range(self) -> None:
        """Ends what began last: later calls are indented less."""
        self.call_depth -= 1

    def _records(self, types: Sequence[type], fakes: bool) -> bool:
        """Whether calls on tensors of these types, or on fakes, are stored."""
        return self.record_faketensor if fakes else not types and self.record_realtensor

    def __torch_dispatch__(
        self, func: Function, types: Types, args: tuple[Value, ...] = (), kwargs: Kwargs = None
    ) -> Value:
        """Runs the operator and stores the call."""
        kwargs = kwargs or {}
        fakes = fake_calls.state.kernel or FakeTensor in types
        if not self._records(types, fakes):
            return func(*args, **kwargs)
        call = self._noted(func, args, kwargs, 1, fakes)
        log = _merged(_pre_log_hooks, func, types, args, kwargs, call)
        call.log = log or None
        result = func(*args, **kwargs)
        self._note_output(call, result)
        call.record = _merged(_record_hooks, func, types, args, kwargs, result) or None
        call.log = log | _merged(_log_hooks, func, types, args, kwargs, result) or None
        return result

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as block:
            if self.record_torchfunction:
                block.enter_context(_Functions(self))
            super().__enter__()
            block.push(super().__exit__)
            if self.record_nn_module:
                block.enter_context(_Modules(self))
            if self.record_stack_trace:
                block.enter_context(torch.autograd.set_detect_anomaly(True, check_nan=False))
            _entered.append(self)
            block.callback(_entered.remove, self)
            self._blocks.append(block.pop_all())
        return self

    def __exit__(self, *exception: Value) -> None:
        self._blocks.pop().__exit__(*exception)

    # ---- reports
    def debug_string(self, show_stack_trace: bool | None = None) -> str:
        """The calls so far, a line each, indented by what called them.

        Args:
            show_stack_trace: the user's line above its calls; by default as recorded.
        """
        shown = self.record_stack_trace if show_stack_trace is None else show_stack_trace
        lines: list[str] = []
        current = None
        with torch._C.DisableTorchFunction():
            for call in self.operators:
                indentation = "  " * (call.call_depth + 1)
                summary = _summary(call) if shown else None
                if summary is not None and summary != current:
                    lines += [""] * bool(lines) + [f"{indentation}# {summary}"]
                    current = summary
                lines.append(indentation + call.render())
        return "\n".join(lines)

    @staticmethod
    def _annotate(tag: object) -> None:
        """Adds a line to the active mode, if there is one."""
        mode = get_active_debug_mode()
        if mode is not None:
            call = _AnnotateCall(tag, "annotate", mode.call_depth, mode.record_stack_trace)
            mode.operators.append(call)

    @staticmethod
    @contextlib.contextmanager
    def dispatch_hooks(
        record_hook: Callable[..., Log | None] | None = None,
        log_hook: Callable[..., Log | None] | None = None,
        pre_log_hook: Callable[..., Log | None] | None = None,
    ) -> Iterator[None]:
        """A `with` block in which functions see every call that a debug mode stores.

        Args:
            record_hook: of (operator, types, args, kwargs, result); gives a dict for `call.record`.
            log_hook: the same for `call.log`, which `debug_string` shows.
            pre_log_hook: of (operator, types, args, kwargs, call), before the operator runs.
        """
        pairs = ((_record_hooks, record_hook), (_log_hooks, log_hook),
                 (_pre_log_hooks, pre_log_hook))  # fmt: skip
        installed = [(hooks, hook) for hooks, hook in pairs if hook is not None]
        for hooks, hook in installed:
            hooks.append(hook)
        try:
            yield
        finally:
            for hooks, _ in installed:
                hooks.pop()

    @staticmethod
    def record_outputs() -> contextlib.AbstractContextManager[None]:
        """A `with` block in which `call.record["output"]` is a copy of each result."""

        def copied(func: Function, types: Types, args: Value, kwargs: Value, result: Value) -> Log:
            copy = tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, result)
            return {"output": copy}

        return DebugMode.dispatch_hooks(record_hook=copied)

    @staticmethod
    def log_tensor_hashes(
        hash_fn: Callable[..., Value] | str | list[str] = "norm", hash_inputs: bool = False
    ) -> contextlib.AbstractContextManager[None]:
        """A `with` block in which calls have hashes of their results in `call.log`.

        Args:
            hash_fn: "norm" (sum of absolute values), "hash_tensor" (of the bits), a list of these,
                or a function of a tensor.
            hash_inputs: also of the arguments, before the operator runs.

        Raises:
            AssertionError, NotImplementedError: `hash_fn` is something else.
        """
        function = _hash_of(hash_fn)

        def hashed(key: str, func: Function, value: Value) -> Log | None:
            leaf = lambda x: function(x) if isinstance(x, torch.Tensor) else None  # noqa: E731
            hashes = tree_map(leaf, value) if _is_computed(func) else None
            return {key: hashes} if any(x is not None for x in tree_leaves(hashes)) else None

        return DebugMode.dispatch_hooks(
            log_hook=lambda func, types, args, kwargs, result: hashed("hash", func, result),
            pre_log_hook=(lambda func, types, *call: hashed("input_hash", func, call[:2]))
            if hash_inputs
            else None,
        )

    @staticmethod
    def check_hash_mismatches(
        logs1: Sequence[Value], logs2: Sequence[Value], compare_inputs: bool = False
    ) -> list[Log]:
        """Hashes that differ between two runs of one program; see `log_tensor_hashes`.

        Args:
            logs1, logs2: `logs` of the modes.
            compare_inputs: hashes of arguments, too.

        Returns:
            An entry for each: the call, the path in its result, both hashes, their distance.

        Raises:
            ValueError: the runs have other calls.
        """
        if len(logs1) != len(logs2):
            raise ValueError(f"Log lengths don't match: {len(logs1)} vs {len(logs2)}")
        differences: list[Log] = []
        for index, pair in enumerate(zip(logs1, logs2, strict=True)):
            calls = [(type(each).__name__, each.name, each.call_depth) for each in pair]
            for what, first, second in zip(("types", "names", "depths"), *calls, strict=True):
                if first != second:
                    raise ValueError(f"Call {what} differ at index {index}: {first} vs {second}")
            if isinstance(pair[0], _OpCall):
                for key in ("hash", "input_hash")[: 1 + compare_inputs]:
                    differences += _differences(*pair, key)
        return differences


def get_active_debug_mode() -> DebugMode | None:
    """The outermost debug mode that is active in this thread, or None."""
    modes = _get_current_dispatch_mode_stack()
    return next((mode for mode in modes if isinstance(mode, DebugMode)), None)


def begin_range(name: str) -> DebugMode | None:
    """Shows the active mode that a range of `torch.profiler.record_function` begins.

    Returns:
        The mode, whose `end_range` ends it; None where there is none.
    """
    if not _entered:
        return None
    mode = get_active_debug_mode()
    if mode is None or not mode.record_profiler_context:
        return None
    mode._begin(name, "record function")
    return mode
