"""`torch.jit.script`: Python's semantics, TorchScript's subset and its errors."""

from __future__ import annotations

import enum
import math
import typing
from typing import NamedTuple, Optional  # noqa: UP035 - as TorchScript programs

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.jit.frontend import NotSupportedError, UnsupportedNodeError
from flambeau.nn import functional as F

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
SCALE = 3


def shifted(x, by: int = 2):
    if torch.jit.is_scripting():
        return x + by
    return x - by


def control_flow(
    x: torch.Tensor, n: int, counts: dict[str, int] | None = None
) -> tuple[torch.Tensor, list[int]]:
    steps = torch.jit.annotate(list[int], [])
    i = 0
    while i < n and not bool((x > 100).any()):
        x = x * 2 + math.pi
        steps += [i]
        i += 1
    if counts is not None and "k" in counts:
        steps.append(counts["k"])
    squares = [step * step for step in steps if step != 1]
    return (x if n > 1 else -x), squares


def calls_others(x):
    return shifted(F.relu(x) * SCALE, by=1).clamp(max=float("inf"))


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    value: torch.Tensor
    count: int = 1


def of_classes(pair: Pair, color: Color) -> Pair:
    if color == Color.RED:
        return Pair(pair.value + 1, pair.count + 1)
    return pair


def test_scripted_code_sees_scripting():
    scripted = torch.jit.script(shifted)
    assert torch.equal(scripted(torch.ones(2)), torch.full((2,), 3.0))
    assert torch.equal(shifted(torch.ones(2)), torch.full((2,), -1.0))
    assert str(scripted.schema) == "shifted(Tensor x, int by=2) -> Tensor"
    assert "is_scripting" not in scripted.code
    assert torch.jit.script(scripted) is scripted


@pytest.mark.parametrize("n, counts", [(0, None), (3, {"k": 7}), (9, {})])
def test_control_flow_is_pythons(n, counts):
    x = torch.tensor([1.0, 2.0])
    expected, actual = control_flow(x, n, counts), torch.jit.script(control_flow)(x, n, counts)
    assert torch.equal(expected[0], actual[0])
    assert expected[1] == actual[1]


def test_functions_constants_and_classes_are_resolved():
    x = torch.tensor([-1.0, 2.0])
    assert torch.equal(torch.jit.script(calls_others)(x), torch.tensor([1.0, 7.0]))
    scripted = torch.jit.script(of_classes)
    pair = scripted(Pair(torch.zeros(1)), Color.RED)
    assert (pair.value.item(), pair.count) == (1.0, 2)
    assert scripted(pair, Color.BLUE) is not None


def test_recursion_and_closures():
    base = 5

    def factorial(n: int) -> int:
        return base if n == 0 else n * factorial(n - 1)

    assert torch.jit.script(factorial)(4) == 24 * 5


def test_arguments_are_checked():
    scripted = torch.jit.script(shifted)
    for args, kwargs, text in (
        ((1,), {}, "Expected a value of type 'Tensor (inferred)' for argument 'x'"),
        ((torch.ones(1), "a"), {}, "Expected a value of type 'int' for argument 'by'"),
        ((), {}, "missing value for argument 'x'"),
        ((torch.ones(1),), {"z": 1}, "Unknown keyword argument 'z'"),
        ((torch.ones(1), 1, 2), {}, "expected at most 2 argument"),
    ):
        with pytest.raises(RuntimeError) as caught:
            scripted(*args, **kwargs)
        assert text in str(caught.value)


def test_lists_are_copied_at_the_border():
    def append(items: list[int]) -> list[int]:
        items.append(1)
        return items

    items = [0]
    assert torch.jit.script(append)(items) == [0, 1]
    assert items == [0]


def test_declared_results_are_checked():
    def wrong(x: torch.Tensor) -> int:
        return x

    with pytest.raises(RuntimeError, match="annotated as having type int"):
        torch.jit.script(wrong)(torch.ones(2))


def test_type_comments():
    def commented(x, n):
        # type: (Tensor, int) -> Tensor
        return x * n

    scripted = torch.jit.script(commented)
    assert torch.equal(scripted(torch.ones(1), 3), torch.full((1,), 3.0))
    with pytest.raises(RuntimeError, match="type 'int' for argument 'n'"):
        scripted(torch.ones(1), 1.5)


def test_exceptions_inside_become_errors():
    def fails(n: int) -> int:
        if n > 0:
            raise ValueError(f"no {n}")
        return n

    scripted = torch.jit.script(fails)
    with pytest.raises(torch.jit.Error, match="ValueError: no 3") as caught:
        scripted(3)
    assert isinstance(caught.value, RuntimeError)
    assert "in fails" in str(caught.value)


def generates(x):
    yield x


def catches(x):
    try:
        return x
    except RuntimeError:
        return -x


def has_lambda(x):
    return (lambda y: y)(x)


def variable(*x):
    return x


def makes_set(x):
    return {1, 2}


def imports(x):
    import os

    return os


@pytest.mark.parametrize(
    "function, kind, text",
    [
        (generates, UnsupportedNodeError, "Yield aren't supported"),
        (catches, UnsupportedNodeError, "try blocks aren't supported"),
        (has_lambda, UnsupportedNodeError, "Lambda aren't supported"),
        (variable, NotSupportedError, "variable number of arguments"),
        (makes_set, UnsupportedNodeError, "Set aren't supported"),
        (imports, UnsupportedNodeError, "import statements aren't supported"),
    ],
)
def test_outside_of_the_subset(function, kind, text):
    with pytest.raises(kind) as caught:
        torch.jit.script(function)
    assert text in str(caught.value)
    assert "<--- HERE" in str(caught.value)


def undefined(x):
    return not_defined_anywhere(x)  # noqa: F821


def closed_over(x):
    return x + OBJECT


OBJECT = object()


def test_names_without_a_meaning():
    with pytest.raises(RuntimeError, match="undefined value not_defined_anywhere"):
        torch.jit.script(undefined)
    with pytest.raises(RuntimeError, match="cannot be used as a value"):
        torch.jit.script(closed_over)


class Block(nn.Module):
    scale: torch.jit.Final[int]
    doubles: torch.jit.Final[bool]

    def __init__(self, doubles: bool = False) -> None:
        super().__init__()
        self.scale, self.doubles = 3, doubles
        self.linear = nn.Linear(2, 2)
        self.steps = [1, 2]
        self.down = None
        self.layers = nn.ModuleList([nn.ReLU(), nn.Sequential(nn.Linear(2, 2), nn.Tanh())])
        self.register_buffer("offset", torch.ones(2))
        self.opaque = object()
        self.seen = []

    @property
    def factor(self) -> int:
        return self.scale + 1

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        for step in self.steps:
            x = x + step
        if self.down is not None:
            x = self.down(x)
        for layer in self.layers:
            x = layer(x)
        if self.doubles:
            x = self.doubled(x)
        if not torch.jit.is_scripting():
            self.seen.append(lambda: x)
        return {"out": self.linear(x) * self.factor + self.offset}

    @torch.jit.export
    def doubled(self, x):
        return 2 * x

    @torch.jit.ignore
    def note(self, x):
        self.noted = [x for _ in (1,)]

    @torch.jit.unused
    def training_only(self, x):
        return (y for y in x)

    def plain(self, x):
        return x


@pytest.mark.parametrize("doubles", [False, True])
def test_modules(doubles):
    module = Block(doubles)
    scripted = torch.jit.script(module)
    x = torch.randn(3, 2)
    assert torch.equal(scripted(x)["out"], module(x)["out"])
    assert list(scripted.state_dict()) == list(module.state_dict())
    assert scripted.linear.weight is module.linear.weight
    assert scripted.original_name == "Block"
    assert ("self.doubled" in scripted.code) == doubles
    assert torch.equal(scripted.doubled(x), 2 * x)
    assert scripted.factor == 4
    assert isinstance(scripted, torch.jit.ScriptModule)
    assert "original_name=Block" in repr(scripted)
    assert not hasattr(scripted, "plain")
    with pytest.raises(RuntimeError, match="unused"):
        scripted.training_only(x)
    scripted.note(x)


def test_gradients_of_scripted_modules():
    module = Block()
    scripted, x = torch.jit.script(module), torch.randn(3, 2)
    scripted(x)["out"].sum().backward()
    gradient = module.linear.weight.grad.clone()
    module.zero_grad()
    module(x)["out"].sum().backward()
    assert torch.equal(gradient, module.linear.weight.grad)


def test_unknown_attributes_of_modules():
    class Wrong(nn.Module):
        def forward(self, x):
            return self.absent(x)

    with pytest.raises(RuntimeError, match="has no attribute 'absent'"):
        torch.jit.script(Wrong())


def test_modes_are_the_scripted_modules_own():
    scripted = torch.jit.script(nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(2)))
    scripted.eval()
    x = torch.randn(4, 2)
    assert not scripted[0].training
    assert torch.equal(scripted(x), scripted(x))
    assert len(scripted) == 2
    assert [child.original_name for child in scripted] == ["Dropout", "BatchNorm1d"]


def test_script_methods_of_script_modules():
    class Old(torch.jit.ScriptModule):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        @torch.jit.script_method
        def forward(self, x):
            if torch.jit.is_scripting():
                return self.weight * x + 1
            return x

    module = Old()
    assert torch.equal(module(torch.ones(2)), torch.full((2,), 2.0))
    assert "self.weight * x + 1" in module.code


def test_scripted_modules_under_compile():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.GELU()))
    x = torch.randn(2, 4)
    assert torch.equal(torch.compile(scripted)(x), scripted(x))


def test_isinstance_looks_into_containers():
    assert torch.jit.isinstance([1], list[int])
    assert not torch.jit.isinstance([1.0], list[int])
    assert torch.jit.isinstance({"a": torch.ones(1)}, dict[str, torch.Tensor])
    assert torch.jit.isinstance((1, "a"), tuple[int, str])
    assert torch.jit.isinstance(None, Optional[int])  # noqa: UP045
    assert torch.jit.isinstance(1, (str, int))
    assert not torch.jit.isinstance(True, int)


def test_freezing():
    scripted = torch.jit.script(Block())
    with pytest.raises(RuntimeError, match="eval mode"):
        torch.jit.freeze(scripted)
    frozen = torch.jit.freeze(scripted.eval())
    x = torch.randn(2, 2)
    assert torch.equal(frozen(x)["out"], scripted(x)["out"])
    assert list(frozen.parameters()) == [] and list(scripted.parameters()) != []
    assert not hasattr(frozen, "doubled")
    assert hasattr(torch.jit.freeze(scripted, ["doubled"]), "doubled")


def test_futures():
    future = torch.jit.fork(shifted, torch.ones(1), by=3)
    assert torch.equal(torch.jit.wait(future), torch.full((1,), -2.0))


def test_overloads_and_markers_leave_python_alone():
    @torch.jit._overload
    def several(x: int) -> int: ...

    @torch.jit._overload
    def several(x: float) -> float: ...  # noqa: F811

    def several(x):  # noqa: F811
        return x

    assert several(1) == 1
    assert torch.jit.export(several) is several
    assert typing.get_origin(torch.jit.Final[int]) is typing.Final


def test_scripting_a_module_class_is_refused():
    with pytest.raises(RuntimeError, match="cannot be compiled since it inherits"):
        torch.jit.script(Block)
    with pytest.raises(TypeError, match="int cannot be scripted"):
        torch.jit.script(3)
