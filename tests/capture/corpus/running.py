"""Runs a case in plain Python and compiled, and compares everything that can be observed."""

from __future__ import annotations

import contextlib
import io
import itertools
import random
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import flambeau as torch
from flambeau import _core, nn
from flambeau.runtime import settings
from tests.capture.corpus.cases import Call, Case, Fresh, executed
from tests.capture.corpus.snapshot import Snapshots

FIRST = 6  # calls with the first arguments: one compiles, one is run dry, later ones may be skipped
_MAX_ITEMS = 20  # of an iterator that is a result


@dataclass
class Outcome:
    """What a case gave.

    Attributes:
        name: of the case.
        difference: lines that differ, or None.
        calls: how many there were.
        skipped: how many of them ran without Python.
        reason: why the last dry run gave no explanation.
    """

    name: str
    difference: str | None
    calls: int
    skipped: int
    reason: str | None

    @property
    def explained(self) -> bool:
        """Whether calls ran without Python."""
        return self.skipped > 0


def schedule(steps: list[Any]) -> Iterator[Any]:
    """Calls in an order in which explanations are learnt, used, and miss.

    The first arguments come often, between all others; a change is followed by two calls.
    """
    first, *others = steps
    yield from itertools.repeat(first, FIRST)
    for step in others:
        if isinstance(step, (tuple, Call, Fresh)):
            yield from (step, first, step, step)
        else:
            yield step
            yield from (first, first)
    yield first


def _arguments(step: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(step, Fresh):
        step = step.make()
    return (step.args, step.kwargs) if isinstance(step, Call) else (step, {})


def _consumed(result: Any) -> Any:
    """An iterator's items, and how it ended; else the result."""
    if not hasattr(type(result), "__next__"):
        return result
    items: list[Any] = [type(result).__name__]
    try:
        items += itertools.islice(result, _MAX_ITEMS)
    except Exception as error:
        items.append(error)
    return items


def _call(function: Any, step: Any, snapshots: Snapshots, target: Any) -> list[str]:
    args, kwargs = _arguments(step)
    printed = io.StringIO()
    result: Any
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        try:
            result = _consumed(function(*args, **kwargs))
        except Exception as error:
            result = error
    lines = snapshots.take(result, args, kwargs, target)
    messages = [f"{w.category.__name__}: {w.message}" for w in caught]
    return [*lines, f"printed {printed.getvalue()!r}", f"warned {messages}"]


def _changed(change: Any) -> list[str]:
    try:
        change()
    except Exception as error:
        return [f"no change: {error}"]
    return []


def _run(case: Case, compiled: bool) -> tuple[list[list[str]], Any]:
    calls = []
    random.seed(7)
    torch.manual_seed(7)
    _core.set_hook_number(0)  # hooks are numbered
    with executed(case) as program, torch.set_grad_enabled(program.grad):
        target = program.function
        function = target.__call__ if isinstance(target, nn.Module) else target
        if compiled:
            function = torch.compile(function)
        snapshots = Snapshots()
        for step in schedule(program.steps):
            if isinstance(step, (tuple, Call, Fresh)):
                calls.append(_call(function, step, snapshots, target))
            else:
                calls.append(_changed(step))
        calls.append([f"{random.getstate()[1][-1]} {torch.rand(2).tolist()}"])
    return calls, function


def run(case: Case) -> Outcome:
    """Runs a case both ways, on the baseline tier."""
    with settings.override(COMPILER="never"):
        plain, _ = _run(case, compiled=False)
        calls, function = _run(case, compiled=True)
    difference = _difference(plain, calls)
    return Outcome(case.name, difference, len(calls) - 1, function._hits, function._reason)


def _difference(plain: list[list[str]], compiled: list[list[str]]) -> str | None:
    for number, (expected, actual) in enumerate(zip(plain, compiled, strict=True)):
        if expected == actual:
            continue
        pairs = itertools.zip_longest(expected, actual)
        at = next(i for i, (a, b) in enumerate(pairs) if a != b)
        before = "\n".join(f"    {line}" for line in expected[max(0, at - 4) : at])
        lines = [f"  plain {expected[at : at + 3]}", f"  compiled {actual[at : at + 3]}"]
        return f"call {number}, line {at}:\n{before}\n" + "\n".join(lines)
    return None


def run_all(cases: list[Case]) -> list[Outcome]:
    """Runs cases one after the other."""
    return [run(case) for case in cases]


_NAMES = re.compile(r"[\w.<>]*<locals>\.|'[^']*'|[\w.]*corpus_program[\w.]*")


def report(outcomes: list[Outcome]) -> str:
    """The share that is explained, and the reasons of the others, counted."""
    explained = sum(outcome.explained for outcome in outcomes)
    calls, skipped = (sum(getattr(o, name) for o in outcomes) for name in ("calls", "skipped"))
    different = [outcome for outcome in outcomes if outcome.difference is not None]
    reasons = Counter(_NAMES.sub("", o.reason or "no call was repeated")
                      for o in outcomes if not o.explained)  # fmt: skip
    lines = [f"{outcome.name}: {outcome.difference}" for outcome in different]
    lines += [f"{count:5} {reason}" for reason, count in reasons.most_common()]
    lines += [
        f"{len(outcomes)} cases, {len(different)} differ from plain Python",
        f"explained: {explained} cases ({explained / len(outcomes):.1%}), "
        f"{skipped} of {calls} calls ({skipped / calls:.1%})",
    ]
    return "\n".join(lines)
