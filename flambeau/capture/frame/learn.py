"""The dry run of a call: from a compiled function and arguments to an explanation, or a reason."""

from __future__ import annotations

from typing import Any

from flambeau import _core
from flambeau.capture.frame.evidence import Evidence, Raised, Unexplained, argument_lines
from flambeau.capture.frame.machine import Machine
from flambeau.capture.frame.results import Results
from flambeau.compiler import debug
from flambeau.ir.lock import late
from flambeau.runtime import logs


def learn(compiled: Any, ways: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Explains a call, which was recorded before with the same arguments.

    Args:
        compiled: the function; it gets the explanation.
        ways: + 1 if its programs are autotuned, + 2 if its weights are constants.
        args, kwargs: of the call.

    Returns:
        None, or why there is no explanation.
    """
    try:
        mode = _core.record_learn()
    except RuntimeError as error:
        return _text(error)
    try:
        if ways & 1:
            _core.record_tune()
        if ways & 2:
            _core.record_freeze()
        guards = _explain(compiled, mode, args, kwargs)
    except (Unexplained, Exception) as error:
        reason = _text(error)
        text = f"{_title(compiled)} is recorded at every call: {reason}"
        debug.show(debug.PLANS, text)
        if logs.active():
            late("flambeau.reports.region_logs").unexplained(compiled, text, reason)
        return reason
    finally:
        _core.record_unlearn(mode)
    text = f"{_title(compiled)} is explained, guards: " + "\n    ".join(guards)
    debug.show(debug.PLANS, text)
    if logs.active():
        late("flambeau.reports.region_logs").explained(compiled, text, guards)
    return None


def _explain(compiled: Any, mode: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    values = [*args, *kwargs.values()]
    evidence = Evidence(values)
    machine = Machine(evidence)
    result = machine.call(compiled._function, args, dict(kwargs))
    results = Results(machine)
    results.read(result)
    machine.check_generators()
    if int(_core.is_grad_enabled()) + 2 * int(_core.is_inference_mode_enabled()) != mode:
        raise Unexplained("it changes the gradient mode")
    names = [f"args[{i}]" for i in range(len(args))] + list(kwargs)
    lines = argument_lines(values, names) + evidence.lines()
    machine.forget()  # what only the dry run holds is no result
    constants = tuple(evidence.constants.values())
    identical, built = tuple(results.identical), tuple(results.built)
    compiled._explain(args, kwargs, result, (evidence.parts(), constants, identical, built, lines))
    return lines


def _text(error: BaseException) -> str:
    if isinstance(error, Raised):
        text = f"it raises {type(error.error).__name__}: {_text(error.error)}"
        return text.removesuffix(f": {type(error.error).__name__}")
    return str(error).removeprefix("[compile] ") or type(error).__name__


def _title(compiled: Any) -> str:
    function = compiled._function
    return str(getattr(function, "__qualname__", function))
