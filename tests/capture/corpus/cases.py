"""Cases of the corpus: functions of program files, and programs that are made of texts.

A program is executed anew for each run of a case, so plain Python and the compiled function start
from equal states: other globals, classes, arguments. `case` and `family` declare what is called.
"""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import flambeau as torch

PROGRAMS = Path(__file__).parent / "programs"
MODULE = "corpus_program"  # the name of every program while it runs


class Call:
    """A call with keyword arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs


class Fresh:
    """A call whose arguments are made each time: iterators, tensors that are written."""

    def __init__(self, make: Callable[[], tuple[Any, ...]]) -> None:
        self.make = make


@dataclass
class Program:
    """What a case runs.

    Attributes:
        function: what is compiled.
        steps: tuples of arguments, `Call`s, `Fresh` ones, and functions that change state.
        grad: whether gradients are recorded.
    """

    function: Any
    steps: list[Any]
    grad: bool = True


@dataclass
class Case:
    """One case: a code object that is executed to make the program of this name."""

    name: str
    code: types.CodeType
    entry: str
    namespace: dict[str, Any] = field(default_factory=dict)


_declared: dict[str, Callable[[], Program]] = {}


def case(*steps: Any, grad: bool = True, built: bool = False, name: str = "") -> Callable[..., Any]:
    """Declares a function as a case.

    Args:
        steps: as `Program.steps`.
        grad: whether gradients are recorded.
        built: the function makes what is compiled, or a pair of it and the steps.
        name: of the case, where it is not the function's.
    """

    def declare(function: Any) -> Any:
        def make() -> Program:
            if not built:
                return Program(function, list(steps), grad)
            target = function()
            if type(target) is tuple:
                return Program(target[0], list(target[1:]), grad)
            return Program(target, list(steps), grad)

        _declared[name or function.__name__] = make
        return function

    return declare


def family(**members: Any) -> Callable[..., Any]:
    """Declares a function as several cases: a tuple or list of steps under each name."""

    def declare(function: Any) -> Any:
        for member, steps in members.items():
            steps = steps if isinstance(steps, list) else [steps]
            case(*steps, name=f"{function.__name__}-{member}")(function)
        return function

    return declare


def t(*shape: int, start: float = -1.0, step: float = 0.5) -> Any:
    """A tensor of numbers that binary fractions hold."""
    count = math.prod(shape)
    return (torch.arange(count) * step + start).reshape(shape)


def combine(x: Any, value: Any) -> Any:
    """A tensor made of a tensor and what a program computed."""
    if isinstance(value, bool) or value is None:
        return x if value else -x
    if isinstance(value, (int, float)) and -1e6 < value < 1e6:
        return x * value
    if isinstance(value, str):
        return x + len(value)
    if isinstance(value, (list, tuple)):
        return x - len(value)
    return x + 1


PRELUDE = {"case": case, "family": family, "t": t, "combine": combine, "torch": torch,
           "Call": Call, "Fresh": Fresh}  # fmt: skip


@contextmanager
def executed(case: Case) -> Iterator[Program]:
    """The program of a case, in a module of its own."""
    module = types.ModuleType(MODULE)
    module.__dict__.update(case.namespace)
    module.__file__ = case.code.co_filename
    before = sys.modules.get(MODULE)
    sys.modules[MODULE] = module
    _declared.clear()
    try:
        exec(case.code, module.__dict__)
        make = _declared[case.entry]
        _declared.clear()
        yield make()
    finally:
        sys.modules.pop(MODULE)
        if before is not None:
            sys.modules[MODULE] = before


def of_text(name: str, text: str) -> Case:
    """A case whose text defines `f` and `steps`."""
    code = _compiled(f"{text}\ncase(*steps, name='f')(f)\n", f"<{name}>")
    return Case(name, code, "f", PRELUDE)


@cache
def _compiled(text: str, where: str) -> types.CodeType:
    return compile(text, where, "exec", dont_inherit=True)


def of_files() -> Iterator[Case]:
    """The cases of all program files."""
    for path in sorted(PROGRAMS.glob("*.py")):
        code = _compiled(path.read_text(), str(path))
        module = types.ModuleType(MODULE)
        sys.modules[MODULE] = module
        _declared.clear()
        exec(code, module.__dict__)
        for entry in list(_declared):
            yield Case(f"{path.stem}:{entry}", code, entry)
        _declared.clear()
        del sys.modules[MODULE]


def every() -> list[Case]:
    """All cases, under distinct names."""
    from tests.capture.corpus import changes, language, library, syntax

    cases = [*of_files(), *library.cases(), *language.cases(), *syntax.cases(), *changes.cases()]
    names = [case.name for case in cases]
    twice = {name for name in names if names.count(name) > 1} if len({*names}) < len(names) else ()
    assert not twice, f"two cases have one name: {sorted(twice)}"
    return cases
