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


def dispatch_modes(torch: Any, show: Show) -> None:
    dispatch = importlib.import_module(f"{torch.__name__}.utils._python_dispatch")

    class Logged(dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            show(func, func.name(), len(args))
            return func(*args, **(kwargs or {}))

    x, w = torch.ones(2, 3), torch.ones(3, 2, requires_grad=True)
    with Logged():
        for call in (
            lambda: x + 1, lambda: x * x, lambda: x.sum(), lambda: x.sum(0), lambda: torch.mm(x, w),
            lambda: x == 1, lambda: x.mean(1, keepdim=True), lambda: x.t(), lambda: x.relu(),
            lambda: torch.cat([x, x], 1), lambda: x.view(3, 2), lambda: x.clone().add_(1),
            lambda: x - 2.0, lambda: torch.zeros(2), lambda: x**2, lambda: x.clamp(min=0),
            lambda: torch.where(x > 1, x, x), lambda: x.unsqueeze(0), lambda: x.max(), lambda: -x,
        ):  # fmt: skip
            call()
        total = (x * w.t()).sum()
    total.backward()
    show(w.grad)
    with Logged(), Logged():
        x + 1
    with Logged(), dispatch._disable_current_modes():
        x + 1
    aten = torch.ops.aten
    show(aten.add.Tensor, aten.add.Tensor.name(), aten.add.Tensor(x, x), aten.add(x, 1))
    show(
        aten.add.Tensor.overloadpacket, repr(aten.relu.default), aten.add.Tensor is aten.add.Tensor
    )


def wrapped(torch: Any, show: Show, log: bool) -> Any:
    dispatch = importlib.import_module(f"{torch.__name__}.utils._python_dispatch")
    pytree = importlib.import_module(f"{torch.__name__}.utils._pytree")

    class Wrapped(torch.Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl

        @staticmethod
        def __new__(cls, elem):
            return torch.Tensor._make_wrapper_subclass(
                cls, elem.size(), strides=elem.stride(), dtype=elem.dtype, device=elem.device
            )

        def __init__(self, elem):
            self.elem = elem

        def __repr__(self):
            return f"Wrapped({self.elem})"

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            if log:
                show(func, [t.__name__ for t in types])
            inner = pytree.tree_map_only(cls, lambda x: x.elem, (args, kwargs or {}))
            found = func(*inner[0], **inner[1])
            found = pytree.tree_map_only(torch.Tensor, cls, found)
            return dispatch.return_and_correct_aliasing(func, args, kwargs, found)

    return Wrapped


def wrapper_subclasses(torch: Any, show: Show) -> None:
    kind = wrapped(torch, show, log=True)
    x = kind(torch.ones(2, 3))
    show(x, tuple(x.shape), x.device, x.dtype, x.requires_grad, x.is_cpu, x.is_meta)
    show(x + 1, torch.ones(2, 3) * x, x.sum(0), x.view(-1))


def backward_through_wrappers(torch: Any, show: Show) -> None:
    import copy

    kind = wrapped(torch, show, log=False)
    x = kind(torch.full((2, 3), 2.0)).requires_grad_()
    total = (x * x * torch.ones(2, 3)).sum()
    show(type(total).__name__, total.requires_grad)
    total.backward()
    show(x.grad, type(x.grad).__name__)
    layer = torch.nn.Linear(3, 1)
    with torch.no_grad():
        layer.weight.fill_(0.25), layer.bias.fill_(0.0)
    torch.tanh(layer(kind(torch.ones(2, 3)))).sum().backward()
    show(layer.weight.grad, type(layer.weight.grad).__name__)
    parameter = torch.nn.Parameter(kind(torch.ones(2)))
    show(type(parameter).__name__, isinstance(parameter, torch.nn.Parameter), parameter)
    twin = copy.deepcopy(parameter.detach())
    show(type(twin).__name__, twin, twin.elem is parameter.elem)


SCENARIOS = [
    dispatch_modes, wrapper_subclasses, backward_through_wrappers,
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
