"""Tier 2 and `with` blocks: gradient modes, managers of `contextlib`, blocks of the profiler."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from tests.capture.frames import explained, same, skips

without, recording = torch.no_grad(), torch.enable_grad()


def facts(value: Any) -> list[Any]:
    """What modes leave on tensors, in containers as well."""
    if isinstance(value, torch.Tensor):
        return [value.requires_grad, value.is_inference(), value._is_view(), value.is_leaf]
    return [facts(item) for item in value] if isinstance(value, (tuple, list)) else []


def inferred(x: Any) -> Any:
    """Results of both modes, views among them."""
    with torch.inference_mode():
        y = x * 2
        view = y.view(-1)[1:]
        with torch.inference_mode(False):
            plain = x + 1
    return y, view, plain, x * 3


def detached(x: Any) -> Any:
    """A mode that is an object of the module, entered twice."""
    with without:
        with without, recording:
            y = x * 2
        z = x * 3
    return y, z, x * 4


def switched(x: Any) -> Any:
    """A mode that an argument chooses."""
    with torch.set_grad_enabled(x.ndim == 2):
        return x * 2


@torch.no_grad()
def decorated(x: Any) -> Any:
    """A mode as a decorator."""
    return x * 2


@torch.inference_mode()
def decorated_inference(x: Any) -> Any:
    """As well."""
    return x * 2


@contextlib.contextmanager
def factor(value: float) -> Iterator[float]:
    """Yields a number, in a mode."""
    with torch.no_grad():
        yield value * 2


@contextlib.contextmanager
def catching() -> Iterator[None]:
    """Ends errors."""
    try:
        yield
    except ValueError:
        pass


def managed(x: Any) -> Any:
    """A generator as a manager."""
    with factor(3.0) as value:
        y = x * value
    return y, x * 2


def left_by_error(x: Any) -> Any:
    """A manager that an error passes, and one that ends it."""
    with catching():
        with factor(2.0) as value:
            raise ValueError(value)
    return x * 2


def stacked(x: Any) -> Any:
    """A stack of managers."""
    with contextlib.ExitStack() as stack:
        values = [stack.enter_context(factor(v)) for v in (1.0, 2.0)]
        stack.callback(lambda: values.append(5.0))
        y = x * values[1]
    return y * values[2], x * 2


def suppressed(x: Any) -> Any:
    """An error that is suppressed; no context, and one that does nothing."""
    with contextlib.suppress(KeyError), contextlib.nullcontext(4) as four:
        x = x * four
        raise KeyError(four)
    return x


def handled(x: Any) -> Any:
    """The error whose handler runs, as stacks of managers read it."""
    before = sys.exception()
    try:
        raise KeyError("four")
    except KeyError as error:
        same_error, trace = sys.exception() is error, error.__traceback__
    with contextlib.ExitStack() as stack:
        stack.enter_context(catching())
        raise ValueError(before)
    return x * same_error, trace is not None


def named(x: Any) -> Any:
    """A range of the profiler."""
    with torch.profiler.record_function("part"):
        return x * 2


BLOCKS: list[Callable[[Any], Any]] = [
    inferred, detached, switched, decorated, decorated_inference, managed, left_by_error, stacked,
    suppressed, handled, named,
]  # fmt: skip


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("block", BLOCKS)
def test_blocks(block: Callable[[Any], Any], gradient: bool) -> None:
    x = torch.randn(2, 3, requires_grad=gradient)
    compiled = explained(block, x)
    result, expected = compiled(x), block(x)
    assert same(result, expected) and facts(result) == facts(expected)
    for mode in (torch.no_grad, torch.inference_mode):
        for _ in range(6):
            with mode():
                result, expected = compiled(x), block(x)
            assert same(result, expected) and facts(result) == facts(expected)


def test_a_mode_that_stays_entered_is_recorded() -> None:
    mode = torch.no_grad()

    def function(x: Any) -> Any:
        mode.__enter__()
        return x * 2

    compiled, x = torch.compile(function), torch.ones(2, requires_grad=True)
    for _ in range(6):
        assert not compiled(x).requires_grad
        mode.__exit__(None, None, None)
        assert torch.is_grad_enabled()
    assert not compiled._explanations


def test_a_dry_run_that_ends_in_a_block_leaves_it() -> None:
    import random

    def function(x: Any) -> Any:
        with without, factor(1.0):
            random.random()
            return x * 2

    compiled, x = torch.compile(function), torch.ones(2, requires_grad=True)
    for _ in range(8):
        compiled(x)
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    with without:
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_managers_that_change() -> None:
    settings: dict[str, Any] = {"manager": factor}

    def function(x: Any) -> Any:
        with settings["manager"](2.0) as value:
            return x * value

    x = torch.ones(2)
    compiled = explained(function, x)
    settings["manager"] = contextlib.nullcontext
    result, skipped = skips(compiled, x)
    assert not skipped and same(result, function(x))


def test_attributes_that_are_removed() -> None:
    class Note:
        kind = "a class's"

    def function(x: Any) -> Any:
        note = Note()
        note.kind, note.factor = "its own", 2.0
        before = note.kind
        del note.kind
        try:
            del note.kind
        except AttributeError:
            return x * note.factor, before, note.kind
        return x

    x = torch.ones(2)
    assert same(explained(function, x)(x), function(x))


def test_attributes_from_outside_that_are_removed_are_recorded() -> None:
    class Note:
        pass

    note = Note()

    def function(x: Any) -> Any:
        note.factor = 2.0
        del note.factor
        return x * 2

    compiled, x = torch.compile(function), torch.ones(2)
    for _ in range(6):
        assert same(compiled(x), x * 2) and not vars(note)
    assert not compiled._explanations
