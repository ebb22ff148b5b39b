"""Every environment variable that Flambeau reads, in one typed table.

No other module may read `FLAMBEAU_*` itself: what is listed here is all there is (`describe()`
prints it), and the table has at most 40 entries. A value is read once, at the first use of its
name, so that a program behaves the same from start to end; `override` changes one for a while.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

PREFIX = "FLAMBEAU_"
LIMIT = 40


class Knob(NamedTuple):
    """One environment variable.

    Attributes:
        name: without the prefix.
        parse: from the variable's text to its value; raises ValueError.
        default: the value when the variable is unset or empty.
        help: what it does, one line.
    """

    name: str
    parse: Callable[[str], Any]
    default: Any
    help: str


def _flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    raise ValueError("use 0 or 1")


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError("use a number that is not negative")
    return number


def _directory(text: str) -> str:
    return os.path.expanduser(text)


def _one_of(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"use {', '.join(names[:-1])} or {names[-1]}")
        return text

    return parse


def _default_cache() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return os.path.join(os.path.expanduser(base), "flambeau")


_COMPILERS = _one_of("background", "wait", "never")
_TARGETS = _one_of("avx512", "avx2", "neon", "generic")
_TIERS = _one_of("compiled", "baseline", "random")

KNOBS: dict[str, Knob] = {
    knob.name: knob
    for knob in (
        Knob("CACHE_DIR", _directory, None, "where compiled kernels are kept (~/.cache/flambeau)"),
        Knob("CACHE_LIMIT", _count, 1024, "size of that directory in MiB, oldest entries go first"),
        Knob("CC", str, None, "C compiler of kernels, a command with arguments (gcc, clang, cc)"),
        Knob(
            "COMPILER",
            _COMPILERS,
            "background",
            "when kernels are compiled: background, wait, never",
        ),
        Knob("COMPILE_JOBS", _count, 0, "compilers that run at once; 0: one per core"),
        Knob("DEBUG", _count, 0, "0 to 5: how much of the work is shown"),
        Knob("FRAMES", _flag, True, "compiled functions run known calls without their Python"),
        Knob("NUM_THREADS", _count, 0, "threads of the core; 0: one per core"),
        Knob("TARGET", _TARGETS, None, "instruction set of kernels: avx512, avx2, neon, generic"),
        Knob("TIER", _TIERS, "compiled", "for tests: compiled, baseline, random: of each kernel"),
        Knob("VERIFY", _flag, False, "verify every program between the compiler's stages"),
    )
}

_values: dict[str, Any] = {}


def logs_variable(suffix: str) -> str:
    """`TORCH_LOGS`, or with a suffix `TORCH_LOGS_OUT` or `_FORMAT` (`runtime/logs.py`)."""
    return os.environ.get("TORCH_LOGS" + suffix, "")


def get(name: str) -> Any:
    """The value of `FLAMBEAU_<name>`.

    Raises:
        ValueError: the variable's text is not valid for this knob.
    """
    value = _values.get(name, _values)
    if value is _values:
        _values[name] = value = _read(KNOBS[name])
    return value


def _read(knob: Knob) -> Any:
    text = os.environ.get(PREFIX + knob.name, "")
    if not text:
        return _default_cache() if knob.name == "CACHE_DIR" else knob.default
    try:
        return knob.parse(text)
    except ValueError as error:
        raise ValueError(
            f"[settings] {PREFIX}{knob.name} has an invalid value: {text!r}\nhint: {error}"
        ) from None


def put(name: str, value: Any) -> None:
    """Sets a knob from now on."""
    _values[KNOBS[name].name] = value


@contextlib.contextmanager
def override(**values: Any) -> Iterator[None]:
    """Sets knobs for the duration of a `with` block.

    Example:
        >>> with override(DEBUG=2):
        ...     get("DEBUG")
        2
    """
    unknown = set(values) - set(KNOBS)
    if unknown:
        raise KeyError(f"[settings] no such knob: {', '.join(sorted(unknown))}")
    saved = {name: get(name) for name in values}
    _values.update(values)
    try:
        yield
    finally:
        _values.update(saved)


def describe() -> str:
    """All knobs with their present values, as text."""
    return "\n".join(f"{PREFIX}{k.name} = {get(k.name)}\n    {k.help}" for k in KNOBS.values())
