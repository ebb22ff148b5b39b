"""Why a function was compiled again: what its new stream has that those before had not.

Streams are found by their operators, wiring and geometry. When one is compiled for a function that
has programs already, the two are compared in the order in which a reader of the program would look:
operators, dtypes, ranks and sizes of tensors, integers, results that are still referenced. Nothing
is noted unless `recompiles` is logged or recompiling is an error.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau import _core
from flambeau.capture import recording, regions
from flambeau.ir.lock import late, loaded
from flambeau.ir.size_program import evaluate_condition
from flambeau.runtime import logs

if TYPE_CHECKING:
    from flambeau._core import (
        ExternalTensor,
        LiveValue,
        OpRecord,
        RecordedStream,
        TensorArgument,
    )
    from flambeau.ir.node import Graph

_Function = Callable[..., object]
REMEMBERED = 8  # programs of one point of one function
_WRAPPERS = recording.__file__, regions.__file__
_NAMES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}


class Region(NamedTuple):
    """The function whose region runs, and where in it the stream ends.

    Attributes:
        function: what was compiled.
        arguments: of the call, by name.
        place: the line that needs a value; "" at the end.
    """

    function: _Function
    arguments: Mapping[str, object]
    place: str

    @property
    def name(self) -> str:
        """The function's name."""
        return str(getattr(self.function, "__qualname__", type(self.function).__name__))

    @property
    def title(self) -> str:
        """The function's name and place."""
        code = _code_of(self.function)
        return f"{self.name} in {code.co_filename}:{code.co_firstlineno}" if code else self.name


class _Program(NamedTuple):
    """A compiled stream, as far as others are compared with it."""

    externals: Sequence[ExternalTensor]
    records: Sequence[OpRecord]
    live: Sequence[LiveValue]
    graph: Callable[[], Graph]
    numbers: Sequence[int]


_programs: dict[tuple[object, str], list[_Program]] = {}


def watched() -> bool:
    """Whether streams are compared at all."""
    return logs.on("recompiles", "recompiles_verbose") or _is_error()


def _is_error() -> bool:
    """Whether `torch._dynamo.config.error_on_recompile` is set."""
    config = loaded("flambeau._dynamo.config")
    return config is not None and bool(config.error_on_recompile)


def refuse() -> None:
    """Raises where the compiled stream is one of a compiled function.

    Raises:
        RuntimeError: always then.
    """
    region = region_of(sys._getframe(1))
    if region is not None:
        raise refusal(region.function)


def refusal(function: _Function) -> RuntimeError:
    """The error of the stance "fail_on_recompile" about a function."""
    code, name = _code_of(function), getattr(function, "__name__", type(function).__name__)
    path, line = ("<unknown>", 0) if code is None else (code.co_filename, code.co_firstlineno)
    return RuntimeError(
        "Detected recompile when torch.compile stance is 'fail_on_recompile'. "
        f"filename: {path!r}, function name: {name!r}, line number: {line}"
    )


def forget() -> None:
    """Drops the programs of all functions."""
    _programs.clear()


def note(
    recorded: RecordedStream,
    graph: Callable[[], Graph],
    numbers: Sequence[int],
    earlier: Mapping[str, int],
) -> None:
    """Compares a stream that is compiled with those that its function has.

    Args:
        recorded: the stream.
        graph: gives its program.
        numbers: the values of its symbols.
        earlier: by line, how often the present call of the function ran there before.
    """
    region = region_of(sys._getframe(1))
    if region is None:
        return
    place = f"{region.place} {earlier.get(region.place, 0)}"  # each round of a loop is one
    key = _code_of(region.function) or region.function, place
    program = _Program(recorded.externals, recorded.records, recorded.live, graph, numbers)
    before = _programs.setdefault(key, [])
    if before:
        _show(region, program, before)
    before.append(program)
    del before[:-REMEMBERED]


def _show(region: Region, program: _Program, before: Sequence[_Program]) -> None:
    head = f"Recompiling function {region.title}"
    head += "\n    triggered by the following guard failure(s):"
    lines = [
        [f"    - 0/{number}: {reason}" for reason in reasons(program, each, region)]
        for number, each in enumerate(before)
    ]
    logs.emit("recompiles", "\n".join([head, *(of_one[0] for of_one in reversed(lines))]))
    every = [line for of_one in reversed(lines) for line in of_one]
    logs.emit("recompiles_verbose", "\n".join([head, *every]))
    if _is_error():
        raise late("flambeau._dynamo.exc").RecompileError("\n".join([head, *lines[-1]]))


# ------------------------------------------------------------------------------- reasons


def reasons(program: _Program, before: _Program, region: Region) -> list[str]:
    """The differences of a program from an earlier one; at least one line."""
    names = [_name(x.tensor, k, region) for k, x in enumerate(program.externals)]
    tensors = [
        (name, new.tensor, old.tensor)
        for name, new, old in zip(names, program.externals, before.externals)
    ]
    lines = [line for each in tensors for line in _class_differences(*each)]
    lines += _operator_differences(program.records, before.records)
    if len(program.externals) != len(before.externals):
        counts = f"expected {len(before.externals)}, actual {len(program.externals)}"
        lines.append(f"number of tensors that are read. {counts}")
    if not lines:  # sizes are symbols: they only matter in programs that are equal otherwise
        lines = [line for each in tensors for line in _size_differences(*each)]
        lines += _failed_guards(program, before)
    return lines or ["other results are still referenced"]


def _class_differences(name: str, new: TensorArgument, old: TensorArgument) -> Iterator[str]:
    if new.dtype != old.dtype:
        yield f"tensor {name} dtype mismatch. expected {_dtype(old)}, actual {_dtype(new)}"
    if new.requires_grad != old.requires_grad:
        mismatch = f"expected requires_grad={old.requires_grad}, actual {new.requires_grad}"
        yield f"tensor {name} requires_grad mismatch. {mismatch}"
    if len(new.sizes) != len(old.sizes):
        ranks = f"expected {len(old.sizes)}, actual {len(new.sizes)}"
        yield f"tensor {name} rank mismatch. {ranks}"


def _size_differences(name: str, new: TensorArgument, old: TensorArgument) -> Iterator[str]:
    pairs = {"size": (new.sizes, old.sizes), "stride": (new.strides, old.strides)}
    for what, (present, former) in pairs.items():
        for index, values in enumerate(zip(former, present, strict=True)):
            if values[0] != values[1]:
                mismatch = f"expected {values[0]}, actual {values[1]}"
                yield f"tensor {name} {what} mismatch at index {index}. {mismatch}"


def _operator_differences(new: Sequence[OpRecord], old: Sequence[OpRecord]) -> Iterator[str]:
    for number, (present, former) in enumerate(zip(new, old)):
        if present.plan.name != former.plan.name:
            yield f"operator {number} is {present.plan.name}, was {former.plan.name}"
            return
        if present.integers != former.integers:
            integers = f"expected {list(former.integers)}, actual {list(present.integers)}"
            yield f"integers of operator {number}, {present.plan.name}. {integers}"
        if present.number_types != former.number_types:
            yield f"types of the numbers of operator {number}, {present.plan.name}"
        if present.operands != former.operands:
            yield f"operands of operator {number}, {present.plan.name}"
    if len(new) != len(old):
        longer = max(new, old, key=len)
        extra = longer[min(len(new), len(old))].plan.name
        yield f"number of operators. expected {len(old)}, actual {len(new)}: the first is {extra}"


def _failed_guards(program: _Program, before: _Program) -> Iterator[str]:
    """The guards of an earlier program that are false for these sizes."""
    graph = before.graph()
    if len(graph.symbols) != len(program.numbers):
        return
    values = dict(zip(graph.symbols, program.numbers, strict=True))
    for guard in graph.guards:
        if not evaluate_condition(guard, values):
            yield f"{guard} is false"


def _dtype(tensor: TensorArgument) -> str:
    return "torch." + _NAMES.get(tensor.dtype, tensor.dtype)


def _name(tensor: TensorArgument, number: int, region: Region) -> str:
    """The argument that a tensor is, if only one has its geometry; else its number."""
    geometry = tensor.sizes, tensor.strides
    names = [
        name
        for name, value in region.arguments.items()
        if isinstance(value, _core.Tensor) and (tuple(value.shape), value.stride()) == geometry
    ]
    return repr(names[0]) if len(names) == 1 else str(number)


# ------------------------------------------------------------------------------- regions


def region_of(frame: FrameType | None) -> Region | None:
    """The compiled function whose region a frame belongs to."""
    place = ""
    while frame is not None:
        code = frame.f_code
        if code.co_filename in _WRAPPERS and "function" in frame.f_locals:
            function = frame.f_locals["function"]
            if code.co_name in ("compiled", "record"):
                return Region(function, _arguments(function, frame.f_locals), place)
        if not place and logs.is_user_code(code.co_filename):
            place = f"{code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def _arguments(function: _Function, local: Mapping[str, Any]) -> Mapping[str, object]:
    args, kwargs = local.get("args", ()), local.get("kwargs", {})
    try:
        target = _target_of(function)
        return dict(inspect.signature(target).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {f"args[{i}]": value for i, value in enumerate(args)} | dict(kwargs)


def _target_of(function: _Function) -> _Function:
    """A function; of a module's call its `forward`."""
    owner = getattr(function, "__self__", None)
    forward: _Function | None = getattr(owner, "forward", None)
    return function if forward is None else forward


def _code_of(function: _Function) -> CodeType | None:
    code = getattr(_target_of(function), "__code__", None)
    return code if isinstance(code, CodeType) else None
