"""Tier 2: whatever an explained call depends on is guarded, and each guard is needed.

Every change is tried twice. With all guards a call gives what the function gives after the change.
Without the kind of guard that the case names (`Evidence.parts` leaves it out) the call is still
taken for the old one, and gives the old result: so the test would fail if the guard were not there.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
import types
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.capture.frame.evidence import Evidence
from tests.capture.frames import CALLS, compiled_by_calls, explained, same, skips

# parts of the evidence
OBJECTS, DICTS, TYPES, FUNCTIONS, CELLS, LISTS, OPERATORS, SLOTS = range(8)
FACTOR: Any = 2
BIAS = torch.ones(4)
NUMBERS = [1, 2, 3]
OPTIONS = {"a": 1, "b": 2}


class Slotted:
    """A slot, and one that is empty."""

    __slots__ = ("factor", "other")

    def __init__(self) -> None:
        self.factor = 2


CHOICES = {1, 2}
QUEUE = deque([1, 2])
SLOTTED = Slotted()


def helper(x: Any, by: int = 2, *, plus: int = 0) -> Any:
    """Scales."""
    return x * by + plus


class Scale(nn.Module):
    """All kinds of members."""

    kind = 1

    def __init__(self) -> None:
        super().__init__()
        self.factor = 2
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("shift", torch.ones(4))
        self.inner = nn.Dropout(0.5)
        self.steps = [1, 2]
        self.eval()

    def forward(self, x: Any) -> Any:
        """Uses them."""
        x = x * self.weight * self.factor * self.kind + self.shift + len(type(self).__name__)
        for step in self.steps:
            x = x + step
        return self.inner(x) if self.training else self.extra(x)

    def extra(self, x: Any) -> Any:
        """Does nothing."""
        return x


Change = Callable[[Any], Any]


def _set(name: str, value: Any) -> Change:
    return lambda module: setattr(module, name, value())


def _hook(module: Any) -> None:
    module.register_forward_hook(lambda m, args, result: result * 10)


def _pre_hook(module: Any) -> None:
    module.register_forward_pre_hook(lambda m, args: (args[0] * 10,))


def _method(module: Any) -> None:
    module.extra = types.MethodType(lambda self, x: x - 100, module)


def _class_attribute(module: Any) -> None:
    type(module).kind = 7


def _class_method(module: Any) -> None:
    type(module).extra = lambda self, x: x - 7


def _title(module: Any) -> None:
    type(module).__name__ = "ALongerName"


def _class(module: Any) -> None:
    module.__class__ = type("Other", (type(module),), {"extra": lambda self, x: x * 3})


def _dict(module: Any) -> None:
    module.__dict__ = {**module.__dict__, "factor": 11}


def _parameter(module: Any) -> None:
    module.weight = nn.Parameter(torch.full((4,), 3.0))


def _table(module: Any) -> None:
    module._parameters["weight"] = nn.Parameter(torch.full((4,), 5.0))


def _item(module: Any) -> None:
    module.__dict__["factor"] = 13


def _delete(module: Any) -> None:
    del module.inner
    module.inner = lambda x: x


MODULE_CHANGES: dict[str, tuple[Change, int]] = {
    "attribute": (_set("factor", lambda: 5), DICTS),
    "attribute by its dict": (_item, DICTS),
    "dict": (_dict, OBJECTS),
    "parameter": (_parameter, DICTS),
    "parameter by its table": (_table, DICTS),
    "buffer": (_set("shift", lambda: torch.zeros(4)), DICTS),
    "method": (_method, DICTS),
    "hook": (_hook, DICTS),
    "pre-hook": (_pre_hook, DICTS),
    "class attribute": (_class_attribute, TYPES),
    "class method": (_class_method, TYPES),
    "class": (_class, OBJECTS),
    "name of the class": (_title, TYPES),
    "list": (lambda module: module.steps.append(40), LISTS),
    "list item": (lambda module: module.steps.__setitem__(0, 50), LISTS),
}


def _without(monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    parts = Evidence.parts

    def fewer(self: Evidence) -> Any:
        held = list(parts(self))
        if part == OBJECTS:  # its dicts are still guarded, under the object that had them
            held[OBJECTS] = []
        held[part] = []
        return tuple(held)

    monkeypatch.setattr(Evidence, "parts", fewer)


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("name", MODULE_CHANGES)
def test_changes_of_modules(name: str, guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    change, part = MODULE_CHANGES[name]
    if not guarded:
        _without(monkeypatch, part)
    kind = type("Kind", (Scale,), {"kind": 1, "extra": Scale.extra})
    module, x = kind(), torch.arange(4.0)
    with torch.no_grad():
        compiled = explained(module.__call__, x)
        old = module(x)
        change(module)
        expected = module(x)
        result, skipped = skips(compiled, x)
        assert not same(old, expected)
        assert skipped is not guarded
        assert same(result, expected if guarded else old)


def test_training_flags() -> None:
    module, x = Scale(), torch.ones(4)
    with torch.no_grad():
        compiled = explained(module.__call__, x)
        module.train()
        torch.manual_seed(0)
        result, skipped = skips(compiled, x)
        torch.manual_seed(0)
        assert same(result, module(x))
        assert not skipped
        module.eval()
        assert skips(compiled, x)[1]


def test_global_hooks() -> None:
    module, x = Scale(), torch.ones(4)
    with torch.no_grad():
        compiled = explained(module.__call__, x)
        handle = nn.modules.module.register_module_forward_hook(lambda m, a, r: r * 2)
        try:
            result, skipped = skips(compiled, x)
            assert not skipped
            assert same(result, module(x))
        finally:
            handle.remove()
        assert skips(compiled, x)[1]


def _use_globals(x: Any) -> Any:
    return helper(x, plus=OPTIONS["a"]) * FACTOR + BIAS + sum(NUMBERS) + len(OPTIONS)


def _defaults() -> None:
    helper.__defaults__ = (9,)


def _named_defaults() -> None:
    helper.__kwdefaults__["plus"] = 9


def _code() -> None:
    helper.__code__ = (lambda x, by=2, *, plus=0: x - by - plus).__code__


STATE_CHANGES: dict[str, tuple[Callable[[], None], int]] = {
    "global": (lambda: globals().__setitem__("FACTOR", 7), DICTS),
    "global of another type": (lambda: globals().__setitem__("FACTOR", 2.5), DICTS),
    "global tensor": (lambda: globals().__setitem__("BIAS", torch.zeros(4)), DICTS),
    "global function": (lambda: globals().__setitem__("helper", lambda x, plus: x - plus), DICTS),
    "builtin, shadowed": (lambda: globals().__setitem__("sum", lambda values: 100), DICTS),
    "defaults": (_defaults, FUNCTIONS),
    "code": (_code, FUNCTIONS),
    "list": (lambda: NUMBERS.append(40), LISTS),
    "dict item": (lambda: OPTIONS.__setitem__("a", 30), DICTS),
    "dict length": (lambda: OPTIONS.__setitem__("c", 30), DICTS),
}


@pytest.fixture
def state() -> Any:
    """The globals as they were, afterwards."""
    before = dict(globals())
    code, defaults, named = helper.__code__, helper.__defaults__, dict(helper.__kwdefaults__)
    numbers, options = list(NUMBERS), dict(OPTIONS)
    yield
    globals().pop("sum", None)
    globals().update(before)
    helper.__code__, helper.__defaults__, helper.__kwdefaults__ = code, defaults, named
    NUMBERS[:] = numbers
    OPTIONS.clear()
    OPTIONS.update(options)


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("name", STATE_CHANGES)
def test_changes_of_globals_and_functions(
    name: str, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, part = STATE_CHANGES[name]
    if not guarded:
        _without(monkeypatch, part)
    x = torch.arange(4.0)
    compiled = explained(_use_globals, x)
    old = _use_globals(x)
    change()
    expected = _use_globals(x)
    result, skipped = skips(compiled, x)
    assert not same(old, expected)
    assert skipped is not guarded
    assert same(result, expected if guarded else old)


def _use_collections(x: Any) -> Any:
    empty = not hasattr(SLOTTED, "other")
    return x * sum(CHOICES) * QUEUE[0] * SLOTTED.factor, 5 in CHOICES, len(QUEUE), empty


COLLECTION_CHANGES: dict[str, tuple[Callable[[], None], Callable[[], None], int]] = {
    "set": (lambda: CHOICES.add(5), lambda: CHOICES.discard(5), LISTS),
    "deque": (lambda: QUEUE.rotate(1), lambda: QUEUE.rotate(1), LISTS),
    "slot": (
        lambda: setattr(SLOTTED, "factor", 3),
        lambda: setattr(SLOTTED, "factor", 2),
        SLOTS,
    ),
    "empty slot": (
        lambda: setattr(SLOTTED, "other", 3),
        lambda: delattr(SLOTTED, "other"),
        SLOTS,
    ),
}


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("name", COLLECTION_CHANGES)
def test_changes_of_collections(name: str, guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    change, back, part = COLLECTION_CHANGES[name]
    if not guarded:
        _without(monkeypatch, part)
    x = torch.arange(4.0)
    compiled = explained(_use_collections, x)
    old = _use_collections(x)
    change()
    try:
        expected = _use_collections(x)
        result, skipped = skips(compiled, x)
    finally:
        back()
    assert not same(old, expected)
    assert skipped is not guarded
    assert same(result, expected if guarded else old)


@pytest.mark.parametrize("guarded", [True, False])
def test_changes_of_closures(guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not guarded:
        _without(monkeypatch, CELLS)
    scale = 2

    def function(x: Any) -> Any:
        return x * scale

    compiled = explained(function, torch.ones(4))
    scale = 5
    result, skipped = skips(compiled, torch.ones(4))
    assert skipped is not guarded
    assert result[0] == (5 if guarded else 2)


def test_unread_globals_may_change() -> None:
    """Another version of a dict is no reason to record, and is compared once."""
    compiled = explained(_use_globals, torch.ones(4))
    for number in range(3):
        globals()["UNREAD"] = number
        assert skips(compiled, torch.ones(4))[1]


ARGUMENTS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "int": ((3,), (4,)),
    "int and bool": ((1,), (True,)),
    "int and float": ((1,), (1.0,)),
    "zeros of both signs": ((0.0,), (-0.0,)),
    "text": (("a",), ("b",)),
    "none": ((None,), (2,)),
    "tuple": (((1, 2),), ((1, 3),)),
    "tuple and list": (((1, 2),), ([1, 2],)),
    "length": (([1, 2],), ([1, 2, 3],)),
    "dict": (({"a": 1},), ({"a": 2},)),
    "keys": (({"a": 1},), ({"b": 1},)),
    "dtype": ((torch.float32,), (torch.float64,)),
    "size": ((torch.ones(3),), (torch.ones(2),)),
    "rank": ((torch.ones(3),), (torch.ones(1, 3),)),
    "stride": ((torch.ones(3, 2),), (torch.ones(2, 3).t(),)),
    "type of elements": ((torch.ones(3),), (torch.ones(3, dtype=torch.int64),)),
    "class": ((torch.ones(3),), (nn.Parameter(torch.ones(3), requires_grad=False),)),
    "gradient": ((torch.ones(3),), (torch.ones(3, requires_grad=True),)),
    "offset": ((torch.ones(3),), (torch.ones(4)[1:],)),
    "count": ((1,), (1, 2)),
}


def _describe(x: Any, *values: Any, **named: Any) -> Any:
    """A result from which every property of the arguments can be read."""
    facts: list[Any] = []
    for value in (*values, *named.values()):
        if isinstance(value, torch.Tensor):
            facts += [value.shape, value.stride(), value.dtype, value.storage_offset()]
            facts += [type(value) is torch.Tensor, value.requires_grad]
        elif isinstance(value, (dict, list, tuple)):
            facts += [isinstance(value, list), len(value)]
            facts += [f"{v}" for v in (value.items() if isinstance(value, dict) else value)
                      if isinstance(v, int)]  # fmt: skip
            facts += list(value)
        else:
            facts += [value, f"{value}", isinstance(value, bool), isinstance(value, int)]
    return x + 1, tuple(facts), len(values)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_changes_of_arguments(name: str) -> None:
    before, after = ARGUMENTS[name]
    x = torch.ones(4)
    compiled = explained(_describe, x, *before)
    result, skipped = skips(compiled, x, *after)
    assert not skipped
    assert repr(result) == repr(_describe(x, *after))
    assert skips(compiled, x, *before)[1]


def test_identical_arguments() -> None:
    compiled = explained(lambda a, b: (a + b, a is b), torch.ones(4), torch.ones(4))
    x = torch.ones(4)
    result, skipped = skips(compiled, x, x)
    assert not skipped
    assert result[1] is True


ALSO_REACHED: dict[str, Callable[[], tuple[Callable[..., Any], Any, Any]]] = {
    "tensor": lambda: _reaching(torch.ones(3) * 2, torch.ones(3), lambda x, y: x * y),
    "list": lambda: _reaching([torch.ones(3) * 2], [torch.ones(3)], lambda x, y: x[0] * y[0]),
    "dict": lambda: _reaching({"a": torch.ones(3) * 2}, {"a": torch.ones(3)},
                              lambda x, y: x["a"] * y["a"]),
    "tuple": lambda: _reaching((torch.ones(3) * 2,), (torch.ones(3),), lambda x, y: x[0] * y[0]),
}  # fmt: skip


def _reaching(
    held: Any, other: Any, product: Callable[[Any, Any], Any]
) -> tuple[Callable[..., Any], Any, Any]:
    return lambda x: product(x, held), held, other


@pytest.mark.parametrize("name", ALSO_REACHED)
def test_arguments_that_are_also_reached_otherwise(name: str) -> None:
    """Calls that passed what a closure holds say nothing about calls that pass another value."""
    function, held, other = ALSO_REACHED[name]()
    compiled = compiled_by_calls(function, held)
    assert torch.equal(compiled(other), function(other))
    assert torch.equal(compiled(held), function(held))


def test_arguments_that_are_also_globals() -> None:
    """Another argument is no reason to take the global for it."""
    compiled = torch.compile(lambda a: (a + BIAS, len(NUMBERS)))
    for _ in range(CALLS):
        compiled(BIAS)
    x = torch.arange(4.0)
    assert torch.equal(compiled(x)[0], x + BIAS)


def test_names_of_arguments() -> None:
    compiled = explained(lambda **named: (named["a"] - named["b"], list(named)), a=BIAS, b=BIAS)
    result, skipped = skips(compiled, b=BIAS, a=BIAS)
    assert not skipped
    assert result[1] == ["b", "a"]


def test_hooks_of_saved_tensors_see_no_dry_run() -> None:
    compiled, packed = torch.compile(lambda x: (x * x).sum()), []
    with torch.autograd.graph.saved_tensors_hooks(packed.append, lambda value: value):
        for _ in range(2 * CALLS):
            compiled(torch.ones(2))
            count = len(packed)
            compiled(torch.ones(2, requires_grad=True))
            assert len(packed) - count in (1, 2)


def test_positions_and_names_of_arguments() -> None:
    compiled = explained(lambda a, b: a - b, torch.ones(4), b=torch.zeros(4))
    assert not skips(compiled, b=torch.ones(4), a=torch.zeros(4))[1]
    result = compiled(b=torch.ones(4), a=torch.zeros(4))
    assert result.tolist() == [-1] * 4


def _shapes(x: Any) -> Any:
    return torch.zeros(2) + x, torch.is_grad_enabled(), torch.is_inference_mode_enabled()


class _Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "mode",
    [
        torch.no_grad,
        torch.inference_mode,
        _Mode,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.device("meta"),
    ],
    ids=["no_grad", "inference", "function mode", "autocast", "device"],
)
def test_modes(mode: Callable[[], Any]) -> None:
    x = torch.ones(2)
    compiled = explained(_shapes, x)
    with mode():
        result, skipped = skips(compiled, x.to(torch.zeros(0).device))
        expected = _shapes(x.to(torch.zeros(0).device))
    assert not skipped
    assert result[1:] == expected[1:]
    assert (result[0].device, result[0].is_inference()) == (
        expected[0].device,
        expected[0].is_inference(),
    )
    assert skips(compiled, x)[1]


def test_default_device() -> None:
    compiled = explained(lambda n: torch.zeros(n) + 1, 3)
    with torch.device("meta"):
        result, skipped = skips(compiled, 3)
    assert not skipped
    assert result.device.type == "meta"


def test_inference_mode_after_no_grad() -> None:
    x = torch.ones(2)
    with torch.no_grad():
        compiled = explained(lambda x: x + 1, x)
    with torch.inference_mode():
        result, skipped = skips(compiled, x)
    assert not skipped
    assert result.is_inference()


def test_default_dtype() -> None:
    compiled = explained(lambda x: torch.zeros(2) + x.shape[0], torch.ones(2))
    torch.set_default_dtype(torch.float64)
    try:
        result, skipped = skips(compiled, torch.ones(2, dtype=torch.float32))
    finally:
        torch.set_default_dtype(torch.float32)
    assert not skipped
    assert result.dtype == torch.float64


def test_parameters_that_change_their_geometry() -> None:
    module, x = nn.Linear(4, 4), torch.ones(2, 4)
    with torch.no_grad():
        compiled = explained(module.__call__, x)
        module.weight.data = torch.ones(6, 4)
        module.bias.data = torch.ones(6)
        result, skipped = skips(compiled, x)
        assert not skipped
        assert same(result, module(x))


def test_parameters_that_need_gradients_again() -> None:
    module, x = nn.Linear(4, 4).requires_grad_(False), torch.ones(2, 4)
    compiled = explained(module.__call__, x)
    module.requires_grad_(True)
    result, skipped = skips(compiled, x)
    assert not skipped
    assert result.requires_grad


def test_moves_to_other_types() -> None:
    module, x = Scale(), torch.ones(4)
    with torch.no_grad():
        compiled = explained(module.__call__, x)
        module.double()
        result, skipped = skips(compiled, x)
        assert not skipped
        assert result.dtype == torch.float64


def test_reset_forgets_explanations() -> None:
    compiled = explained(lambda x: x + 1, torch.ones(4))
    torch.compiler.reset()
    assert not skips(compiled, torch.ones(4))[1]


def test_traced_python_is_run() -> None:
    """A tracer or profiler of Python sees the function's lines."""
    compiled, calls = explained(_use_globals, torch.ones(4)), []
    sys.setprofile(lambda frame, event, arg: calls.append(frame.f_code.co_name))
    try:
        result, skipped = skips(compiled, torch.ones(4))
    finally:
        sys.setprofile(None)
    assert not skipped
    assert "_use_globals" in calls
    assert same(result, _use_globals(torch.ones(4)))


def test_stances() -> None:
    compiled = explained(lambda x: x + 1, torch.ones(4))
    with torch.compiler.set_stance("force_eager"):
        assert not skips(compiled, torch.ones(4))[1]
    assert skips(compiled, torch.ones(4))[1]


def test_threads() -> None:
    module, x = Scale(), torch.ones(4)
    with torch.no_grad():
        compiled = explained(module.__call__, x)
        expected = module(x)
    wrong: list[Any] = []

    def work() -> None:
        with torch.no_grad():
            for number in range(200):
                if not same(compiled(x), expected):
                    wrong.append(number)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_have_their_own_modes() -> None:
    module, x = nn.Linear(4, 4), torch.ones(2, 4)
    with torch.no_grad():
        compiled = explained(module.__call__, x)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(skips(compiled, x)))
    thread.start()
    thread.join()
    result, skipped = results[0]
    assert not skipped
    assert result.requires_grad


def test_objects_are_not_owned_by_their_explanations() -> None:
    """A method that is compiled in its class has an explanation for each instance, not for ever."""
    import gc
    import weakref

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        @torch.compile
        def forward(self, x: Any) -> Any:
            return self.inner(x)

    with torch.no_grad():
        model = Model()
        for _ in range(CALLS):
            model(torch.ones(2, 4))
        assert Model.forward._hits > 0
        reference = weakref.ref(model)
        del model
        gc.collect()
        assert reference() is None
        other = Model()
        assert same(other(torch.ones(2, 4)), other.inner(torch.ones(2, 4)))


def test_explain_shows_guards() -> None:
    report = torch.compiler.explain(_use_globals, torch.ones(4))
    assert any(line.endswith("['FACTOR'] == 2") for line in report.guards)
    assert "  guard: " in str(report)
    report = torch.compiler.explain(lambda x: x * x.sum().item(), torch.ones(4))
    assert report.guards == []
    assert "item" in str(report.recorded)


def test_logs_show_guards() -> None:
    program = """
import flambeau as torch
f = torch.compile(lambda x, n: x * n)
for _ in range(4):
    f(torch.ones(3), 2)
"""
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TORCH_LOGS": "guards"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "args[1] == 2" in result.stdout + result.stderr


REPLACEMENTS: dict[str, tuple[Any, str, Any]] = {
    "method of tensors": (torch.Tensor, "relu", lambda self: self - 5),
    "operator of tensors": (torch.Tensor, "__add__", lambda self, other: self - 7),
    "fact of tensors": (torch.Tensor, "size", lambda self, dim: 9),
    "operator": (torch, "sin", lambda x: x - 11),
}


def _use_tensors(x: Any) -> Any:
    return torch.sin(x.relu() + 1) * x.size(0)


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("name", REPLACEMENTS)
def test_replaced_operators(name: str, guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, value = REPLACEMENTS[name]
    if not guarded:
        _without(monkeypatch, DICTS if owner is torch else TYPES)
    x = torch.arange(4.0)
    compiled = explained(_use_tensors, x)
    old = _use_tensors(x)
    with monkeypatch.context() as patch:
        patch.setattr(owner, attribute, value)
        expected = _use_tensors(x)
        result, skipped = skips(compiled, x)
    assert not same(old, expected)
    assert skipped is not guarded
    assert same(result, expected if guarded else old)


def test_gates_of_operators() -> None:
    """An operator that somebody may refuse is called again."""
    from flambeau.nn import functional

    query = torch.ones(1, 1, 2, 4)
    compiled = explained(functional.scaled_dot_product_attention, query, query, query)
    with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.FLASH_ATTENTION]):
        gated = functional.scaled_dot_product_attention.gate is not None
        assert skips(compiled, query, query, query)[1] is not gated
    assert gated


def test_keywords_of_partial_functions() -> None:
    function = functools.partial(lambda x, by: x * by, by=2)
    compiled = explained(lambda x: function(x), torch.ones(4))
    function.keywords["by"] = 5
    result, skipped = skips(compiled, torch.ones(4))
    assert not skipped
    assert result[0] == 5


def test_readable_guards() -> None:
    module = Scale()
    with torch.no_grad():
        compiled = explained(module.__call__, torch.ones(4))
    text = "\n".join(compiled._explanations[0])
    assert "['factor'] == 2" in text
    assert "['training'] == False" in text
    assert "args[0] is a Tensor([4], strides [1], torch.float32, requires_grad=False)" in text
