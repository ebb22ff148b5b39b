"""Tier 2 in each version of CPython: its instructions, and what its dicts, types and tools offer.

Versions differ in how a change of a dict or type is noticed. So objects and dicts are changed in
each way that Python has, in loops whose instructions the interpreter specializes, too.
"""

from __future__ import annotations

import dis
import functools
import gc
import os
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau.capture.frame.machine import bytecode
from tests.capture.frames import CALLS, compiled_by_calls, explained, same, skips

PAGE = 4096


class Settings:
    """An object whose attributes a function reads."""

    weight = 3

    def __init__(self) -> None:
        self.factor = 2
        self.plus = 1


SETTINGS = Settings()
TABLE: dict[str, int] = {}


@pytest.fixture(autouse=True)
def _new_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SETTINGS", Settings())
    monkeypatch.setitem(globals(), "TABLE", {"factor": 2, "plus": 1})


def _scaled(x: Any) -> Any:
    plus = getattr(SETTINGS, "plus", 40)
    return x * SETTINGS.factor + plus, x * TABLE["factor"] + TABLE.get("plus", 50)


def _assign_attribute() -> None:
    for number in range(60):
        SETTINGS.factor = number


def _assign_item() -> None:
    for number in range(60):
        TABLE["factor"] = number


def _delete_attribute() -> None:
    del SETTINGS.plus


def _delete_and_assign() -> None:
    del SETTINGS.factor
    SETTINGS.factor = 9


def _delete_item() -> None:
    del TABLE["plus"]


def _clear() -> None:
    TABLE.clear()
    TABLE["factor"] = 3


def _replace_dict() -> None:
    SETTINGS.__dict__ = {"factor": 8, "plus": 8}


def _merge() -> None:
    global TABLE
    TABLE |= {"factor": 11}


CHANGES: dict[str, Callable[[], object]] = {
    "an attribute is assigned": _assign_attribute,
    "an item is assigned": _assign_item,
    "an attribute is deleted": _delete_attribute,
    "an attribute is deleted and assigned": _delete_and_assign,
    "an item is deleted": _delete_item,
    "the dict is cleared": _clear,
    "the dict is another one": _replace_dict,
    "the dict is merged": _merge,
    "setattr": lambda: setattr(SETTINGS, "factor", 5),
    "delattr": lambda: delattr(SETTINGS, "plus"),
    "__dict__ is assigned to": lambda: SETTINGS.__dict__.__setitem__("factor", 6),
    "__dict__.update": lambda: SETTINGS.__dict__.update(factor=7),
    "__dict__.pop": lambda: SETTINGS.__dict__.pop("plus"),
    "update": lambda: TABLE.update({"plus": 12}),
    "update by name": lambda: TABLE.update(plus=13),
    "pop": lambda: TABLE.pop("plus"),
    "popitem": lambda: TABLE.popitem(),
    "setdefault": lambda: (TABLE.pop("plus"), TABLE.setdefault("plus", 14)),
    "globals()": lambda: globals().update(TABLE={"factor": 15}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_noticed(name: str) -> None:
    x = torch.arange(4.0)
    compiled = explained(_scaled, x)
    old = _scaled(x)
    CHANGES[name]()
    expected = _scaled(x)
    result, skipped = skips(compiled, x)
    assert not same(old, expected)
    assert not skipped
    assert same(result, expected)


def test_changes_between_explained_calls() -> None:
    """Each state is explained once, and then found among the explanations."""
    x = torch.arange(4.0)
    compiled = compiled_by_calls(_scaled, x)
    skipped = 0
    for number in range(60):
        SETTINGS.factor = TABLE["plus"] = number % 4
        result, skips_python = skips(compiled, x)
        skipped += skips_python
        assert same(result, _scaled(x))
    assert skipped > 20, compiled._reason


def test_classes_that_change_often() -> None:
    """CPython 3.13 gives a class 1,000 versions; a class without one is compared at each call."""
    x = torch.arange(4.0)
    scale = Settings()

    def function(x: Any) -> Any:
        return x * scale.weight

    for number in range(2500):
        Settings.weight = number
        assert scale.weight == number  # a lookup gives the class its next version
    compiled = explained(function, x)
    Settings.weight = 3
    assert same(compiled(x), function(x))
    for _ in range(CALLS):
        result, skipped = skips(compiled, x)
    assert skipped
    assert same(result, x * 3)


def test_dicts_of_garbage() -> None:
    """A collection may free a dict before the guards that compare it."""
    references = []
    for _ in range(20):
        settings = Settings()
        compiled = explained(lambda x, s=settings: x * s.factor, torch.ones(2))
        settings.compiled = compiled  # type: ignore[attr-defined]
        references.append(weakref.ref(settings))
        del settings, compiled
    gc.collect()
    assert not [reference for reference in references if reference() is not None]
    test_changes_between_explained_calls()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


@pytest.mark.skipif("FLAMBEAU_NATIVE_DIR" in os.environ, reason="sanitizers hold freed memory")
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_memory_of_changing_guards() -> None:
    x = torch.ones(2)
    compiled = compiled_by_calls(_scaled, x)
    by_object = torch.compile(lambda x, settings: x * settings.factor)

    def calls(count: int) -> None:
        for number in range(count):
            SETTINGS.factor = number % 40
            TABLE[f"unread {number % 100}"] = number
            compiled(x)
            by_object(x, Settings() if number % 50 == 0 else SETTINGS)

    calls(3000)
    before = _resident()
    calls(6000)
    assert _resident() - before < 2 << 20


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="from CPython 3.12 on")
def test_monitored_python_is_run() -> None:
    """A tool of `sys.monitoring` sees the function's code, until it leaves."""
    x = torch.arange(4.0)
    compiled, names = explained(_scaled, x), []
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    tool, event = monitoring.PROFILER_ID, monitoring.events.PY_START
    monitoring.use_tool_id(tool, "a test")
    try:
        monitoring.register_callback(tool, event, lambda code, _: names.append(code.co_name))
        monitoring.set_events(tool, event)
        result, skipped = skips(compiled, x)
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
    assert not skipped
    assert "_scaled" in names
    assert same(result, _scaled(x))
    assert skips(compiled, x)[1]


def test_instructions_are_those_of_the_version() -> None:
    assert bytecode().Frame.table.keys() <= dis.opmap.keys()


def _unpacked(x: Any, values: Any) -> Any:
    try:
        a, b = values
    except ValueError as error:
        return x + len(str(error)), str(error)
    return x * a + b


@pytest.mark.parametrize(
    "values", [(1, 2, 3), [1, 2, 3], {1: 2, 3: 4, 5: 6}, range(3), (1,), (3, 4)], ids=repr
)
def test_unpacking_says_what_python_says(values: Any) -> None:
    """CPython 3.14 counts the values of some containers."""
    x = torch.arange(4.0)
    assert same(explained(_unpacked, x, values)(x, values), _unpacked(x, values))


def _judged(x: Any, values: Any) -> Any:
    every, some = all(v > 0 for v in values), any(v > 2 for v in values)
    doubled = tuple(2 * v for v in values)
    return x + every + 2 * some + doubled[0]


@pytest.mark.parametrize("name", ["all", "any", "tuple"])
def test_a_builtin_that_the_compiler_knows_is_replaced(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From CPython 3.14 on, the code compares the function before it does its work itself."""
    x, values = torch.arange(4.0), (1, 2)
    compiled = explained(_judged, x, values)
    assert same(compiled(x, values), _judged(x, values))
    replacements = {"all": lambda _: 7, "any": lambda _: 8, "tuple": lambda _: [9]}
    monkeypatch.setitem(globals(), name, replacements[name])
    for _ in range(CALLS):
        assert same(compiled(x, values), _judged(x, values))


class Managed:
    """A `with` block that hides errors, or does not."""

    def __init__(self, hides: bool) -> None:
        self.hides = hides
        self.seen: list[str] = []

    def __enter__(self) -> int:
        self.seen.append("enter")
        return 3

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.seen.append(str(error))
        return self.hides


def _blocks(x: Any) -> Any:
    hiding, open_ = Managed(True), Managed(False)
    total = x
    with torch.no_grad(), hiding as three:
        total = total * three
        raise ValueError("hidden")
    try:
        with open_, torch.enable_grad():
            for number in range(3):
                with hiding:
                    total = total + number
                    if number == 1:
                        break
            raise KeyError("seen")
    except KeyError:
        total = total + len(open_.seen)
    return total, *hiding.seen, *open_.seen


def test_with_blocks_that_errors_end() -> None:
    x = torch.arange(4.0)
    assert same(explained(_blocks, x)(x), _blocks(x))


@pytest.mark.skipif(not hasattr(functools, "Placeholder"), reason="from CPython 3.14 on")
def test_partial_with_gaps() -> None:
    x, gap = torch.arange(4.0), functools.Placeholder  # type: ignore[attr-defined,unused-ignore]
    ahead = functools.partial(lambda a, b, c: a - b * c, gap, 2.0)

    def function(x: Any) -> Any:
        inside = functools.partial(pow, functools.Placeholder, 2)
        return ahead(x, 3.0) + inside(3)

    assert same(explained(function, x)(x), function(x))
    with pytest.raises(TypeError):
        torch.compile(lambda x: ahead())(x)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="from CPython 3.14 on")
def test_template_strings_are_recorded() -> None:
    scope: dict[str, Any] = {}
    exec("def function(x, n): return x + len(t'{n:>4}!'.interpolations[0].format_spec) * n", scope)
    x, function = torch.arange(4.0), scope["function"]
    compiled = compiled_by_calls(function, x, 3)
    assert same(compiled(x, 3), function(x, 3))
    assert "BUILD_INTERPOLATION" in compiled._reason
