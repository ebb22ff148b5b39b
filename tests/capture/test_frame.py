"""Tier 2: explained calls give what the function gives, and what is not explained is recorded."""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import flambeau as torch
import flambeau.nn.functional as F  # noqa: N812
from flambeau import nn
from tests.capture.frames import CALLS, compiled_by_calls, explained, same, skips

SCALE = 3
TABLE = {"scale": 2.0, "shift": 1}
LOG: list[Any] = []


@dataclass
class Pair:
    """Two tensors."""

    first: Any
    second: Any

    def total(self) -> Any:
        """Their sum."""
        return self.first + self.second


class Base(nn.Module):
    """A parameter and a property."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Any) -> Any:
        """Scales."""
        return x * self.weight

    @property
    def twice(self) -> Any:
        """The doubled parameter."""
        return self.weight * 2

    @staticmethod
    def shift(x: Any) -> Any:
        """x + 1"""
        return x + 1

    @classmethod
    def name_length(cls) -> int:
        """A number of the class."""
        return 4


class Derived(Base):
    """Calls its base, and uses every kind of attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.table = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.ReLU()})
        self.register_buffer("offset", torch.full((4,), 0.5))
        self.act = F.gelu

    def forward(self, x: Any) -> Any:
        """Every kind of attribute."""
        x = super().forward(x) + self.twice + self.shift(self.offset) * self.name_length()
        for number, layer in enumerate(self.layers):
            x = layer(x) * (number + 1)
        if hasattr(self, "missing") or getattr(self, "other", None):
            x = x * 0
        return self.table["b"](self.table["a"](self.act(x)))


def _sum_of(*values: Any, **named: Any) -> Any:
    total = sum(values)
    for key, value in named.items():
        total = total + value * len(key)
    return total


def _factorial(x: Any, n: int) -> Any:
    return x if n <= 1 else _factorial(x, n - 1) * n


def _scoped(x: Any) -> Any:
    scale = 2

    def inner(y: Any, shift: float = 0.5) -> Any:
        return y * scale + shift

    scale = 5
    return inner(x), [inner(x, shift=s) for s in (1.0, 2.0)]


def _formats(x: Any) -> Any:
    label = f"{x.shape[0]:>3}|{x.dtype}"
    return {label.strip(): x + len(label), "n": len(label)}


def _in_place(x: Any) -> Any:
    y = x * 2
    y += 1
    y.mul_(3)
    return y


def _unpacks(x: Any) -> Any:
    first, *middle, last = x.shape, x.ndim, x.numel(), "z"
    numbers = {n: n * n for n in range(3)}
    words = sorted({"b", "a"})
    return x * middle[1] + numbers[2] + first[0], words, last, middle


def _grad_modes(x: Any) -> Any:
    with torch.no_grad():
        y = x * 2
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        return y + 1


def _types(x: Any) -> Any:
    if isinstance(x, torch.Tensor) and not isinstance(x, nn.Parameter) and callable(len):
        return x.float().to(torch.float64).sum(dim=0, keepdim=True), type(x) is torch.Tensor
    return x


def _generates(x: Any) -> Any:
    def rows() -> Iterator[Any]:
        for i in range(3):
            yield x[i] * i
            yield x[i] + 1

    return torch.stack(list(rows())), any(i > 1 for i in range(3)), max(i for i in (1, 5, 2))


def _classes(x: Any) -> Any:
    pair = Pair(x, x * 2)
    pair.second = pair.second + 1
    return pair.total()


def _returns_a_list(x: Any) -> Any:
    return x + 1, LOG


def _catches(x: Any) -> Any:
    try:
        return x.view(3, 5, 7)
    except RuntimeError:
        return x + 1


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "operators": (lambda a, b: (a + b) * 2 - a / b, (torch.ones(4), torch.ones(4)), {}),
    "branch": (lambda x, n: x * 2 if n > 1 else x + 1, (torch.ones(4), 3), {}),
    "globals": (
        lambda x: x * SCALE + TABLE["scale"] + math.sqrt(TABLE["shift"]),
        (torch.ones(4),),
        {},
    ),
    "arguments": (_sum_of, (torch.ones(4), torch.ones(4)), {"named": torch.ones(4), "n": 3}),
    "containers": (
        lambda d, t: {"r": d["x"] + t[0][1], "l": [t[1], d["x"]]},
        ({"x": torch.ones(4)}, ([1, torch.ones(4)], 5)),
        {},
    ),
    "recursion": (_factorial, (torch.ones(4), 5), {}),
    "closures": (_scoped, (torch.ones(4),), {}),
    "texts": (_formats, (torch.ones(4),), {}),
    "in place": (_in_place, (torch.ones(4),), {}),
    "unpacking": (_unpacks, (torch.ones(4),), {}),
    "modes": (_grad_modes, (torch.ones(4),), {}),
    "types": (_types, (torch.ones(4),), {}),
    "generators": (_generates, (torch.arange(12.0).reshape(3, 4),), {}),
    "classes": (_classes, (torch.ones(4),), {}),
    "list from outside": (_returns_a_list, (torch.ones(4),), {}),
    "handler": (_catches, (torch.ones(4),), {}),
    "twice": (lambda x: (y := x + 1, y, x, None, 2.5, "a", torch.float32), (torch.ones(4),), {}),
    "argument": (lambda x: x, (torch.ones(4),), {}),
    "partial": (functools.partial(lambda a, b: a * b, b=3), (torch.ones(4),), {}),
    "nested": (torch.compile(lambda x: x + 1), (torch.ones(4),), {}),
    "factories": (lambda n: torch.arange(n) + torch.zeros(n), (6,), {}),
    "module": (Derived().eval(), (torch.ones(2, 4),), {}),
    "sequential": (
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8)),
        (torch.ones(2, 4),),
        {},
    ),
    "encoder": (
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(),
        (torch.ones(2, 3, 8),),
        {},
    ),
    "decoder": (
        nn.TransformerDecoderLayer(8, 2, 16).eval(),
        (torch.ones(3, 2, 8), torch.ones(4, 2, 8)),
        {},
    ),
    "lstm": (nn.LSTM(4, 8), (torch.ones(5, 2, 4),), {}),
    "attention": (
        nn.MultiheadAttention(8, 2, batch_first=True).eval(),
        (torch.ones(2, 3, 8),) * 3,
        {},
    ),
    "norm": (nn.BatchNorm2d(3).eval(), (torch.ones(2, 3, 4, 4),), {}),
    "recurrent": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Flatten()),
        (torch.ones(2, 3, 8, 8),),
        {},
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_explained_calls_give_the_function_s_results(name: str) -> None:
    function, args, kwargs = FUNCTIONS[name]
    with torch.no_grad():
        expected = function(*args, **kwargs)
        compiled = torch.compile(function.__call__ if isinstance(function, nn.Module) else function)
        results = [compiled(*args, **kwargs) for _ in range(CALLS)]
        assert compiled._explanations, compiled._reason
        assert compiled._hits > 0
        assert all(same(result, expected) for result in results)


def test_other_values_of_tensors_need_no_other_explanation() -> None:
    compiled = explained(lambda a, b: a * b + 1, torch.ones(4), torch.ones(4))
    a, b = torch.arange(4.0), torch.full((4,), 2.0)
    result, skipped = skips(compiled, a, b)
    assert skipped
    assert torch.equal(result, a * b + 1)


def test_results_are_new_objects() -> None:
    compiled = explained(lambda x: [x + 1, {"a": [x]}], torch.ones(4))
    x = torch.ones(4)
    first, second = compiled(x), compiled(x)
    first[0].zero_()
    first[1]["a"].append(1)
    assert torch.equal(second[0], torch.full((4,), 2.0))
    assert second[1]["a"] == [x]
    assert second[1]["a"][0] is x


class Words(nn.Module):
    """Embeds tokens and their positions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(10, 4)
        self.positions = nn.Embedding(6, 4)

    def forward(self, ids: Any) -> Any:
        """Adds both."""
        return self.tokens(ids[:, 1:]) + self.positions(torch.arange(ids.shape[1] - 1))


def test_indices_are_looked_at_in_every_call() -> None:
    module = Words()
    with torch.no_grad():
        compiled = explained(module.__call__, torch.tensor([[1, 2, 3]]))
        ids = torch.tensor([[77, 9, 0]])
        result, skipped = skips(compiled, ids)
        assert skipped
        assert same(result, module(ids))
        for wrong in (torch.tensor([[0, 10, 0]]), torch.tensor([[0, 0, -1]])):
            with pytest.raises(IndexError) as expected:
                module(wrong)
            with pytest.raises(IndexError) as raised:
                compiled(wrong)
            assert str(raised.value) == str(expected.value)
        assert skips(compiled, ids)[1]


@pytest.mark.parametrize("enabled", [True, False])
def test_views_are_views_of_one_result(enabled: bool) -> None:
    def function(x: Any) -> Any:
        y = x + 1
        return y, y.transpose(0, 1), (x * 2)[1:], *(x * 3).chunk(2)

    x = torch.ones(4, 6)
    with torch.set_grad_enabled(enabled):
        expected = function(x)
        results, skipped = skips(explained(function, x), x)
    assert skipped
    assert same(results, expected)
    for result, other in zip(results, expected, strict=True):
        assert (result._base is None, result._is_view()) == (other._base is None, other._is_view())
        assert result.stride() == other.stride()
        assert result.storage_offset() == other.storage_offset()
    results[0].zero_()
    assert results[1].sum() == 0
    assert results[3]._base is results[4]._base


def test_versions_count_what_was_written_in_place() -> None:
    x = torch.ones(4)
    result, skipped = skips(explained(_in_place, x), x)
    assert skipped
    assert result._version == _in_place(x)._version == 2


def test_random_numbers_are_those_of_eager_mode() -> None:
    function = nn.Dropout(0.5)
    x = torch.ones(64)
    with torch.no_grad():
        torch.manual_seed(3)
        expected = [function(x) for _ in range(CALLS)]
        compiled = torch.compile(lambda x: function(x))
        torch.manual_seed(3)
        results = [compiled(x) for _ in range(CALLS)]
    assert compiled._hits > 0
    assert same(results, expected)


def test_parameters_that_are_written_in_place_are_read_again() -> None:
    linear = nn.Linear(4, 4)
    x = torch.ones(2, 4)
    with torch.no_grad():
        compiled = explained(lambda x: linear(x), x)
        linear.weight.mul_(2)
        linear.bias.copy_(torch.arange(4.0))
        result, skipped = skips(compiled, x)
        assert skipped
        assert torch.equal(result, linear(x))


def test_memory_of_arrays_is_read_at_the_call() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.ones(4, dtype=numpy.float32)
    x = torch.from_numpy(array)
    compiled = explained(lambda a: a * 2, torch.ones(4))
    array[:] = 5
    result, skipped = skips(compiled, x)
    array[:] = 7
    assert skipped
    assert result.tolist() == [10, 10, 10, 10]


def test_calls_on_memory_of_arrays_are_explained() -> None:
    numpy = pytest.importorskip("numpy")
    array, bias = numpy.ones((3, 4), numpy.float32), numpy.zeros(4, numpy.float32)
    x, b, own = torch.from_numpy(array), torch.from_numpy(bias), torch.ones(3, 4)
    own.data_ptr()  # its memory is reached for good
    compiled = explained(lambda x, y: (x * x + y.sum()) * b.sum() + b, x, own)
    for value in (2, 3):
        array[:], bias[:] = value, value
        result, skipped = skips(compiled, x, own)
        assert skipped
        assert result.tolist() == [[(value * value + 12) * 4 * value + value] * 4] * 3


def _appends(x: Any) -> Any:
    LOG.append(len(LOG))
    return x + len(LOG)


def _draws(x: Any) -> Any:
    return x * random.random()


def _clock(x: Any) -> Any:
    return x + time.monotonic()


def _reads(x: Any) -> Any:
    return x * x.sum().item()


def _branches_on_data(x: Any) -> Any:
    return x + 1 if x.sum() > 0 else x - 1


def _generator(x: Any) -> Iterator[Any]:
    yield x + 1
    yield x + 2


def _looks_up(x: Any) -> Any:
    return F.embedding((x * 0).long(), x.reshape(1, -1))


RECORDED: dict[str, tuple[Callable[..., Any], Callable[[], Any], str]] = {
    "list append": (_appends, lambda: list(LOG), "writes to a list"),
    "unknown function": (_draws, lambda: None, "random"),
    "clock": (_clock, lambda: None, "monotonic"),
    "item": (_reads, lambda: None, "item"),
    "data": (_branches_on_data, lambda: None, "value is needed"),
    "indices": (_looks_up, lambda: None, "reasons of data"),
}


@pytest.mark.parametrize("name", RECORDED)
def test_calls_that_are_not_explained_stay_right(name: str) -> None:
    """Results and effects are those of plain Python, call by call."""
    function, effects, reason = RECORDED[name]
    plain, recorded = [], []
    call = torch.compile(function)
    for outcomes, run in ((plain, function), (recorded, call)):
        _reset()
        for _ in range(CALLS):
            result = run(torch.ones(4))
            outcomes.append((None if name in ("unknown function", "clock") else result, effects()))
    assert call._hits == 0
    assert reason in call._reason
    assert same(plain, recorded)


def _reset() -> None:
    LOG.clear()


def test_generators_run_outside_of_the_region() -> None:
    compiled = compiled_by_calls(_generator, torch.ones(4))
    assert same(list(compiled(torch.ones(4))), list(_generator(torch.ones(4))))
    assert compiled._hits == 0


def test_exceptions_are_those_of_the_function() -> None:
    def checks(x: Any, n: int) -> Any:
        if n > 3:
            raise ValueError(f"too large: {n}")
        return x * n

    compiled = explained(checks, torch.ones(4), 2)
    for _ in range(CALLS):
        with pytest.raises(ValueError, match="too large: 4"):
            compiled(torch.ones(4), 4)
        with pytest.raises(TypeError):
            compiled(torch.ones(4), 1, 2)
    assert skips(compiled, torch.ones(4), 2)[1]


def test_an_explained_call_inside_of_a_region_is_recorded() -> None:
    inner = explained(lambda x: x * 2, torch.ones(4))
    before = inner._hits
    outer = torch.compile(lambda x: inner(x).sum())
    assert outer(torch.ones(4)).item() == 8
    assert inner._hits == before


def test_hooks_of_flushes_see_every_call() -> None:
    compiled = explained(lambda x: x * 2, torch.ones(4))
    assert torch.compiler.explain(compiled, torch.ones(4)).plans == 1
