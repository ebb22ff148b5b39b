"""`torch.jit.trace`: scripted code from one run of a function or module."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flambeau import _core
from flambeau.ir.lock import late
from flambeau.jit import markers
from flambeau.jit.functions import Code, ScriptFunction, scripts
from flambeau.jit.modules import (
    RecursiveScriptModule,
    ScriptModule,
    layer_of,
    script_module,
    scripted_class,
)
from flambeau.jit.recording import Recorder, TracerWarning, live_lines
from flambeau.jit.signature import Argument, Schema
from flambeau.nn import Module

Tensor = _core.Tensor
_constant_count = itertools.count()


class TracingCheckError(Exception):
    """Two traces of one function differ."""


class TracedModule(RecursiveScriptModule):
    """A submodule of a traced module: its parameters; its code is in the module above."""

    def _get_name(self) -> str:
        return self.original_name


class TopLevelTracedModule(TracedModule):
    """The result of `torch.jit.trace` for a module."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the recorded operators."""
        code = self.__dict__["_script_codes"]["forward"]
        return code.call_method(self, args, kwargs)


def _constant(value: Any) -> str:
    """Stores a tensor that a trace read from outside, and returns its name."""
    name = f"c{next(_constant_count)}"
    scripts.program.root.place(f"constants.{name}", value.detach())
    return f"__torch__.constants.{name}"


def _cloned(value: Any) -> Any:
    """Example inputs that a traced function may write."""
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, (tuple, list)):
        items = [_cloned(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, Mapping):
        return {key: _cloned(item) for key, item in value.items()}
    return value


def _bind_input(recorder: Recorder, value: Any, text: str) -> Any:
    """Names the tensors inside an input; numbers become constants."""
    if isinstance(value, Tensor):
        recorder.bind(value, text)
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            _bind_input(recorder, item, f"{text}[{index}]")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _bind_input(recorder, item, f"{text}[{key!r}]")
    elif value is not None and not isinstance(value, (int, float, bool, str)):
        raise RuntimeError(
            f"Type '{type(value).__name__}' cannot be traced. Only Tensors and (possibly nested) "
            "Lists, Dicts, and Tuples of Tensors can be traced"
        )
    return value


def _state_names(module: Module | None) -> Iterator[tuple[str, Any]]:
    """Parameters, buffers and tensors in attributes, with the text that reads them."""
    if module is None:
        return
    for path, inner in module.named_modules():
        owner = _path_text(path)
        if isinstance(inner, ScriptModule):
            yield owner, inner
        state = inner.__dict__
        for table in (state["_parameters"], state["_buffers"], state):
            for name, value in table.items():
                if isinstance(value, Tensor):
                    yield f"{owner}.{name}", value


def _path_text(path: str) -> str:
    owner = "self"
    for part in filter(None, path.split(".")):
        owner = f"{owner}.{part}" if part.isidentifier() else f"getattr({owner}, {part!r})"
    return owner


def _record(
    function: Callable[..., Any],
    name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    strict: bool,
    module: Module | None = None,
) -> Code:
    """Runs a function and returns its operators as scripted code."""
    recorder = Recorder(_constant)
    for text, value in _state_names(module):
        recorder.bind(value, text)
    parameters = _parameter_names(function, len(args), kwargs)
    inputs = [*args, *kwargs.values()]
    for parameter, value in zip(parameters, inputs, strict=True):
        _bind_input(recorder, value, parameter)
    with markers.tracing(recorder), recorder:
        result = function(*args, **kwargs)
    returned = recorder.returned(result, strict)
    return _code(name, parameters, inputs, recorder.lines, returned, module is not None)


def _parameter_names(
    function: Callable[..., Any], count: int, kwargs: Mapping[str, Any]
) -> list[str]:
    """Names of a traced function's inputs: those of the function, or numbered."""
    function = getattr(function, "forward", function) if isinstance(function, Module) else function
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    own = [p.name for p in parameters if p.kind in named and p.name not in kwargs]
    own += [f"argument_{index}" for index in range(len(own), count)]
    return [*own[:count], *kwargs]


def _code(
    name: str,
    parameters: list[str],
    inputs: list[Any],
    lines: list[str],
    returned: str,
    method: bool,
) -> Code:
    body = [*live_lines(lines, returned), f"return {returned}"]
    heading = ", ".join(["self"] * method + parameters)
    text = f"def {name}({heading}):\n" + "".join(f"    {line}\n" for line in body)
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.FunctionDef)
    arguments = tuple(
        Argument(parameter, Tensor if isinstance(value, Tensor) else Any, True, inspect._empty)
        for parameter, value in zip(parameters, inputs, strict=True)
    )
    run = scripts.program.compile(tree, f"<trace of {name}>")
    return Code(name, Schema(name, arguments), tree, run)


def _as_tuple(inputs: Any) -> tuple[Any, ...]:
    if isinstance(inputs, (Tensor, Mapping)):
        return (inputs,)
    return tuple(inputs)


def trace(
    func: Any,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: Any = None,
    _store_inputs: bool = True,
) -> Any:
    """Records one run of a function or module and returns its operators as scripted code.

    Python's control flow is not recorded: branches and loops are those of the run.

    Args:
        func: a function of tensors, or a module.
        example_inputs: a tensor or a tuple of inputs (tensors and containers of tensors).
        check_trace: traces again and compares code and results.
        check_inputs: tuples of inputs that the check uses instead.
        check_tolerance: relative tolerance of the check.
        strict: refuses lists and dictionaries as results.
        example_kwarg_inputs: a dictionary of named inputs, instead of `example_inputs`.

    Raises:
        TracingCheckError: two traces differ.
        RuntimeError: an input or result that cannot be traced.

    Example:
        >>> doubled = torch.jit.trace(lambda x: x * x.size(0), torch.ones(2))
        >>> doubled(torch.ones(3))
        tensor([3., 3., 3.])
    """
    if not markers.enabled[0]:
        return func
    _warn_deprecated("trace")
    if isinstance(func, ScriptModule):
        warnings.warn("The input to trace is already a ScriptModule, tracing it is a no-op. "
                      "Returning the object as is.", stacklevel=2)  # fmt: skip
        return func
    if example_inputs is None and example_kwarg_inputs is None:
        raise RuntimeError("example_inputs or example_kwarg_inputs must be given")
    inputs = _as_tuple(example_inputs) if example_kwarg_inputs is None else example_kwarg_inputs
    checks = check_inputs if check_inputs is not None else [inputs]
    owner = func if isinstance(func, Module) else getattr(func, "__self__", None)
    if isinstance(owner, Module):
        name = "forward" if isinstance(func, Module) else func.__name__
        return _trace_module(
            owner, {name: inputs}, check_trace, {name: checks}, check_tolerance, strict
        )[0]
    return _trace_function(func, inputs, check_trace, checks, check_tolerance, strict)


def _split(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named example inputs."""
    if isinstance(inputs, Mapping):
        return (), _cloned(inputs)
    return _cloned(tuple(_as_tuple(inputs))), {}


def _trace_function(
    func: Callable[..., Any], inputs: Any, check: bool, checks: Any, tolerance: float, strict: bool
) -> ScriptFunction:
    name = getattr(func, "__name__", "function")
    name = name if name.isidentifier() else "_lambda"
    args, kwargs = _split(inputs)
    code = _record(func, name, args, kwargs, strict)
    qualified = scripts.program.free_name(f"__torch__.{name}")
    scripts.program.codes[qualified] = code
    scripts.program.root.place(qualified.removeprefix("__torch__."), code.run)
    traced = ScriptFunction(code, qualified, scripts.program, getattr(func, "__doc__", None))
    if check:

        def record(args: Any, kwargs: Any) -> Code:
            return _record(func, name, args, kwargs, strict)

        _check(code, record, func, traced, checks, tolerance)
    return traced


def trace_module(
    mod: Module,
    inputs: Mapping[str, Any],
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_inputs_is_kwarg: bool = False,
    _store_inputs: bool = True,
) -> Any:
    """Records methods of a module, each with its example inputs.

    Args:
        mod: the module.
        inputs: example inputs by method name.

    Example:
        >>> traced = torch.jit.trace_module(torch.nn.Linear(2, 1), {"forward": torch.ones(1, 2)})
        >>> traced(torch.ones(3, 2)).shape
        torch.Size([3, 1])
    """
    _warn_deprecated("trace_method")
    if not isinstance(mod, Module):
        raise AttributeError("expected torch.nn.Module as the first argument")
    if not isinstance(inputs, Mapping):
        raise AttributeError("expected a dictionary of (method_name, input) pairs")
    named = {n: i if example_inputs_is_kwarg else _as_tuple(i) for n, i in inputs.items()}
    checks = {name: [value] for name, value in named.items()}
    for entry in check_inputs or ():
        for name, value in entry.items():
            checks[name].append(_as_tuple(value))
    return _trace_module(mod, named, check_trace, checks, check_tolerance, strict)[0]


def _trace_module(
    module: Module,
    inputs: Mapping[str, Any],
    check: bool,
    checks: Mapping[str, Any],
    tolerance: float,
    strict: bool,
) -> tuple[TopLevelTracedModule, list[Code]]:
    traced = _holder(module, TopLevelTracedModule, {})
    codes = []
    for name, example in inputs.items():
        function = module if name == "forward" else getattr(module, name)
        args, kwargs = _split(example)
        code = _record(function, name, args, kwargs, strict, module)
        traced.__dict__["_script_codes"][name] = code
        codes.append(code)
        if check:

            def record(args: Any, kwargs: Any, name: str = name, of: Any = function) -> Code:
                return _record(of, name, args, kwargs, strict, module)

            _check(code, record, function, getattr(traced, name), checks[name], tolerance)
    return traced, codes


def _holder(module: Module, cls: type, memo: dict[int, Any]) -> Any:
    """A traced module's twin: the same parameters, buffers and submodules, no code yet."""
    if id(module) in memo:
        return memo[id(module)]
    if isinstance(module, ScriptModule):
        return module
    own = scripted_class(cls, layer_of(type(module)))
    twin = own.__new__(own)
    RecursiveScriptModule.__init__(twin, type(module).__name__)
    memo[id(module)] = twin
    state = twin.__dict__
    for table in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
        state[table] = copy.copy(module.__dict__[table])
    for name, value in module.__dict__.items():
        if isinstance(value, Tensor):
            state[name] = value
    state["training"] = module.training
    for name, inner in module._modules.items():
        if inner is not None:
            state["_modules"][name] = _holder(inner, TracedModule, memo)
    return twin


def _check(
    code: Code,
    record: Callable[[Any, Any], Code],
    function: Callable[..., Any],
    traced: Callable[..., Any],
    checks: Any,
    tolerance: float,
) -> None:
    """Traces once more and compares; then compares the results of function and trace."""
    fork_rng = late("flambeau.random").fork_rng
    for inputs in checks:
        with fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore", TracerWarning)
            args, kwargs = _split(inputs)
            again = record(args, kwargs)
        if _without_constants(again.text) != _without_constants(code.text):
            raise TracingCheckError(
                "Tracing failed sanity checks!\nERROR: Graphs differed across invocations!\n"
                f"First:\n{code.text}\nSecond:\n{again.text}"
            )
        _compare_results(function, traced, inputs, tolerance)


def _without_constants(text: str) -> str:
    return re.sub(r"__torch__\.constants\.c\d+", "constant", text)


def _compare_results(function: Any, traced: Any, inputs: Any, tolerance: float) -> None:
    fork_rng = late("flambeau.random").fork_rng
    results = []
    for call in (function, traced):
        args, kwargs = _split(inputs)
        with fork_rng(devices=[]):
            results.append(_tensors(call(*args, **kwargs)))
    for number, (expected, actual) in enumerate(zip(*results, strict=False), 1):
        if not _close(expected, actual, tolerance):
            warnings.warn(
                f"Output nr {number}. of the traced function does not match the corresponding "
                "output of the Python function. Detailed error:\nTensor-likes are not close!",
                TracerWarning,
                stacklevel=4,
            )


def _close(expected: Any, actual: Any, tolerance: float) -> bool:
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return False
    allclose = late("flambeau").allclose
    return bool(allclose(expected, actual, rtol=tolerance, atol=1e-5, equal_nan=True))


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def script_if_tracing(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that a trace calls as scripted code, so that its control flow is preserved.

    Example:
        >>> @torch.jit.script_if_tracing
        ... def positive(x):
        ...     return x if bool(x.sum() > 0) else -x
        >>> positive(torch.tensor([-1.0]))
        tensor([1.])
    """

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not markers.is_tracing():
            return fn(*args, **kwargs)
        return late("flambeau.jit").script(wrapper.__original_fn)(*args, **kwargs)  # type: ignore[attr-defined]

    wrapper.__original_fn = fn  # type: ignore[attr-defined]
    wrapper.__script_if_tracing_wrapper = True  # type: ignore[attr-defined]
    return wrapper


def _warn_deprecated(name: str) -> None:
    warnings.warn(
        f"`torch.jit.{name}` is deprecated. Please switch to `torch.compile` or `torch.export`.",
        DeprecationWarning,
        stacklevel=3,
    )


__all__ = ["TracingCheckError", "script_module", "trace", "trace_module"]
