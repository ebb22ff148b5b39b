"""The same programs on both libraries: what extension points see, in which order."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

import flambeau

Show = Callable[..., None]


def name_of(func: Any) -> str:
    return str(getattr(func, "__name__", func))


def logged_calls(torch: Any, show: Show) -> None:
    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            show(name_of(func), [kind.__name__ for kind in types], len(args))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.arange(6.0).reshape(2, 3).as_subclass(Logged)
    functional = torch.nn.functional
    for call in (
        lambda: x + 1, lambda: torch.sum(x, dim=0), lambda: x.shape, lambda: x.dim(),
        lambda: x.size(0), lambda: x.dtype, lambda: functional.relu(x), lambda: x[0],
        lambda: functional.softmax(x, dim=-1), lambda: len(x), lambda: torch.stack([x, x]),
        lambda: x.tolist(), lambda: torch.max(x, 1), lambda: x.unbind(), lambda: x.requires_grad,
        lambda: torch.allclose(x, x), lambda: float(x.sum()), lambda: x.detach(), lambda: x.grad,
        lambda: functional.linear(x, torch.ones(2, 3)), lambda: x.reshape(-1), lambda: x @ x.mT,
        lambda: x.is_contiguous(), lambda: bool(x.any()), lambda: x.stride(),
    ):  # fmt: skip
        found = call()
        inner = [type(item).__name__ for item in found] if isinstance(found, tuple) else ""
        show(type(found).__name__, inner)


def subclasses_are_kept(torch: Any, show: Show) -> None:
    class First(torch.Tensor):
        pass

    class Second(First):
        pass

    class Other(torch.Tensor):
        pass

    x, plain = torch.ones(2, 3).as_subclass(First), torch.ones(2, 3)
    for value in (
        x + 1, x.sum(), plain @ x.mT, x.max(0).values, x.max(0), x.T, x.detach(), x.clone(),
        x + plain.as_subclass(Second), x.data, x.to(torch.float64), x[:, 0], x.new_zeros(2),
    ):  # fmt: skip
        show(type(value).__name__)
    show(type(x.shape).__name__, repr(x + 1), repr(x.sum(0).as_subclass(Other)))
    with pytest.raises(TypeError):
        x + plain.as_subclass(Other)
    with torch._C.DisableTorchFunctionSubclass():
        show(type(x + 1).__name__)
    leaf = plain.as_subclass(First).requires_grad_()
    (leaf * leaf).sum().backward()
    show(leaf.grad, type(leaf.grad).__name__)
    x += 1
    show(type(x).__name__, x)


def objects_that_are_no_tensors(torch: Any, show: Show) -> None:
    handled: dict[Any, Any] = {}

    class Diagonal:
        """A multiple of the identity, from PyTorch's guide to extending it, in other words."""

        def __init__(self, size, value):
            self.size, self.value = size, value

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func not in handled or not all(issubclass(t, (torch.Tensor, cls)) for t in types):
                return NotImplemented
            return handled[func](*args, **(kwargs or {}))

    handled[torch.mean] = lambda x: x.value / x.size
    handled[torch.add] = lambda a, b: ("sum", type(a).__name__, type(b).__name__)
    handled[torch.nn.functional.relu] = lambda x, inplace=False: "relu"
    handled[torch.cat] = lambda parts, dim=0: len(parts)
    d = Diagonal(5, 2)
    show(torch.mean(d), torch.nn.functional.relu(d), torch.cat((d, torch.ones(1))))
    show(torch.add(torch.ones(2), d), torch.add(d, 1))
    for call in (lambda: torch.mul(d, 2), lambda: torch.ones(2).mul(d)):
        with pytest.raises(TypeError):
            call()
    overrides = importlib.import_module(f"{torch.__name__}.overrides")
    show(
        overrides.is_tensor_like(d), overrides.is_tensor_like(1), overrides.has_torch_function((d,))
    )


def modes(torch: Any, show: Show) -> None:
    overrides = importlib.import_module(f"{torch.__name__}.overrides")

    class Mode(overrides.TorchFunctionMode):
        def __init__(self, name):
            self.name = name

        def __torch_function__(self, func, types, args=(), kwargs=None):
            show(self.name, name_of(func))
            return func(*args, **(kwargs or {}))

    class Zero(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.ones:
                return torch.zeros(*args, **(kwargs or {}))
            return func(*args, **(kwargs or {}))

    class Never(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    with Mode("outer"), Mode("inner"):
        x = torch.tensor([1.0, 2.0])
        show(tuple(x.shape), x + 1, x.add_(1), torch.zeros(2))
        torch.nn.functional.relu(x).sum().item()
        with torch._C.DisableTorchFunction():
            torch.ones(3)
    with Zero(), overrides.BaseTorchFunctionMode():
        show(torch.ones(2))
    with pytest.raises(TypeError), Never():
        torch.ones(2)
    show(torch.ones(2))


def functions_of_users(torch: Any, show: Show) -> None:
    overrides = importlib.import_module(f"{torch.__name__}.overrides")

    def double(x):
        if overrides.has_torch_function((x,)):
            return overrides.handle_torch_function(double, (x,), x)
        return x + x

    @overrides.wrap_torch_function(lambda x: (x,))
    def triple(x):
        return x * 3

    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            show(name_of(func))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.ones(2)
    show(double(x), triple(x))
    for function in (double, triple):
        show(type(function(x.as_subclass(Loud))).__name__)


SCENARIOS = [
    logged_calls, subclasses_are_kept, objects_that_are_no_tensors, modes, functions_of_users,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_both_print_the_same(scenario: Callable[[Any, Show], None]) -> None:
    oracle = pytest.importorskip("torch")
    printed: list[list[str]] = []
    for library in (oracle, flambeau):
        lines: list[str] = []
        scenario(library, lambda *values, to=lines: to.append(" ".join(map(str, values))))
        printed.append(lines)
    assert printed[1] == printed[0]
