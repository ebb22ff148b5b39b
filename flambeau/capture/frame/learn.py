"""The dry run of a call: from a compiled function and arguments to an explanation, or a reason."""

from __future__ import annotations

import functools
from typing import Any

from flambeau import _core
from flambeau.capture.frame import tape
from flambeau.capture.frame.evidence import (
    Evidence,
    Raised,
    Unexplained,
    argument_lines,
    cast_lines,
    gradient_lines,
)
from flambeau.capture.frame.machine import Machine
from flambeau.capture.frame.numbers import Rates
from flambeau.capture.frame.results import Results
from flambeau.compiler import debug
from flambeau.ir.lock import late
from flambeau.runtime import logs

_RATES = "_read_rates"  # attribute of a compiled function
_ATTEMPTS = 8  # each may meet a counter that those before did not reach


def learn(compiled: Any, ways: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Explains a call, which was recorded before with the same arguments.

    Args:
        compiled: the function; it gets the explanation.
        ways: + 1 if its programs are autotuned, + 2 if its weights are constants, + 4 if
            they are discarded.
        args, kwargs: of the call.

    Returns:
        None, or why there is no explanation.
    """
    rates = vars(compiled).setdefault(_RATES, Rates())
    rates.begin()
    for _ in range(_ATTEMPTS):
        rates.grown = False
        guards, reason = _attempt(compiled, ways, args, kwargs)
        if reason is None or not rates.grown:
            break
    if reason is not None and rates.varying:  # Python looks at one of them, or it is no number
        rates.fixed = True
        guards, again = _attempt(compiled, ways, args, kwargs)
        reason = again and reason
    if reason is not None:
        text = f"{_title(compiled)} is recorded at every call: {reason}"
        debug.show(debug.PLANS, text)
        if logs.active():
            late("flambeau.reports.region_logs").unexplained(compiled, text, reason)
        return reason
    text = f"{_title(compiled)} is explained, guards: " + "\n    ".join(guards)
    debug.show(debug.PLANS, text)
    if logs.active():
        late("flambeau.reports.region_logs").explained(compiled, text, guards)
    return None


def _attempt(
    compiled: Any, ways: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[str], str | None]:
    """One dry run: its guards, and why there are none."""
    try:
        mode = _core.record_learn()
    except RuntimeError as error:
        return [], _text(error)
    try:
        if ways & 1:
            _core.record_tune()
        if ways >= 2:
            _core.record_freeze(ways >= 4)
        return _explain(compiled, mode, args, kwargs), None
    except (Unexplained, Exception) as error:
        return [], _text(error)
    finally:
        _core.record_calls(None)
        _core.record_unlearn(mode)


def _explain(compiled: Any, mode: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    values = [*args, *kwargs.values()]
    evidence = Evidence(values)
    machine = Machine(evidence, vars(compiled)[_RATES])
    _core.record_calls(functools.partial(tape.call, machine))
    result = machine.call(compiled._function, args, dict(kwargs))
    results = Results(machine)
    results.read(result)
    for _, _, value in evidence.effects.values():
        results.read(value)
    machine.check_generators()
    if int(_core.is_grad_enabled()) + 2 * int(_core.is_inference_mode_enabled()) != mode:
        raise Unexplained("it changes the gradient mode")
    changed, *casts = _core.autocast_learnt()
    if changed:
        raise Unexplained("it changes the mode of autocast")
    names = [f"args[{i}]" for i in range(len(args))] + list(kwargs)
    leaves = _core.record_leaves()
    gradients = _core.record_gradients()  # they are what they were from here on
    for _, before, read, _ in gradients:
        if read and before is not None:
            evidence.gradient(before)
    lines = argument_lines(values, names) + evidence.lines() + gradient_lines(gradients)
    lines += cast_lines(*casts[:2])
    lines += machine.numbers.lines()
    machine.forget()  # what only the dry run holds is no result
    constants = tuple(evidence.constants.values())
    identical, built = tuple(results.identical), tuple(results.built)
    effects = (
        gradients,
        leaves,
        tuple(casts),
        [*evidence.effects.values()],
        machine.numbers.parts(),
        machine.ranged,
    )
    parts = (evidence.parts(), constants, identical, built, lines, *effects)
    compiled._explain(args, kwargs, result, parts)
    return lines


def _text(error: BaseException) -> str:
    if isinstance(error, Raised):
        text = f"it raises {type(error.error).__name__}: {_text(error.error)}"
        return text.removesuffix(f": {type(error.error).__name__}")
    return str(error).removeprefix("[compile] ") or type(error).__name__


def _title(compiled: Any) -> str:
    function = compiled._function
    return str(getattr(function, "__qualname__", function))
