"""`__torch_function__` and modes: what is asked, in which order, and what stays ordinary."""

from __future__ import annotations

import inspect
import threading

import pytest

import flambeau as torch
from flambeau import _core, overrides


class Counting(overrides.TorchFunctionMode):
    def __init__(self):
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(overrides.resolve_name(func))
        return func(*args, **(kwargs or {}))


class Scaled(torch.Tensor):
    """A tensor with a unit: sums of unlike units are refused, products multiply the units."""

    unit: str

    @staticmethod
    def of(values, unit):
        made = torch.tensor(values).as_subclass(Scaled)
        made.unit = unit
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        units = [x.unit for x in args if isinstance(x, Scaled) and hasattr(x, "unit")]
        if func is torch.add and len(set(units)) > 1:
            raise ValueError(f"units differ: {units}")
        if isinstance(result, Scaled):
            result.unit = "*".join(units) if func is torch.mul else units[0]
        return result


def test_units():
    metres, seconds = Scaled.of([1.0, 2.0], "m"), Scaled.of([3.0, 4.0], "s")
    assert (metres + metres).unit == "m"
    assert (metres * seconds).unit == "m*s"
    assert (metres * seconds).tolist() == [3.0, 8.0]
    with pytest.raises(ValueError, match="units differ"):
        metres + seconds


def test_subclass_before_its_base():
    asked = []

    class Base(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            asked.append((cls.__name__, [t.__name__ for t in types]))
            return NotImplemented

    class Derived(Base):
        pass

    x = torch.ones(1)
    with pytest.raises(TypeError, match="returned NotImplemented"):
        x.as_subclass(Base) + x.as_subclass(Derived)
    assert asked == [("Derived", ["Derived", "Base"]), ("Base", ["Derived", "Base"])]


def test_modes_nest_and_are_off_inside():
    with Counting() as outer, Counting() as inner:
        torch.ones(2).sum().item()
    assert inner.seen == ["torch.ones", "torch.sum", "torch.Tensor.item"]
    assert outer.seen == inner.seen
    assert overrides._get_current_function_mode() is None


def test_modes_are_left_after_an_error():
    mode = Counting()
    with pytest.raises(RuntimeError), mode:
        torch.ones(2) + torch.ones(3)
    assert _core.function_modes() == ()
    torch.ones(2)
    assert mode.seen == ["torch.ones", "torch.ones", "torch.add"]


def test_modes_belong_to_a_thread():
    with Counting() as mode:
        thread = threading.Thread(target=lambda: torch.ones(2))
        thread.start()
        thread.join()
    assert mode.seen == []


def test_mode_sees_backward_only_where_it_is_called():
    x = torch.ones(2, requires_grad=True)
    with Counting() as mode:
        (x * x).sum().backward()
    assert mode.seen == ["torch.mul", "torch.sum", "torch.Tensor.backward"]
    assert x.grad.tolist() == [2.0, 2.0]


def test_mode_sees_functions_under_vmap_and_compile():
    with Counting() as mode:
        assert torch.vmap(lambda row: row.sum())(torch.ones(2, 3)).tolist() == [3.0, 3.0]
    assert "torch.sum" in mode.seen

    @torch.compile
    def twice(x):
        return torch.relu(x) * 2

    x = torch.tensor([-1.0, 1.0])
    twice(x)
    with Counting() as mode:
        assert twice(x).tolist() == [0.0, 2.0]
    assert mode.seen == ["torch.relu", "torch.mul", "torch.Tensor.tolist"]


def test_attributes_are_written_through_the_protocol():
    seen = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((func.__name__, len(args)))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.ones(2).as_subclass(Watched)
    x.requires_grad = True
    x.grad = None
    assert x.real is not None
    assert seen == [("__set__", 2), ("__set__", 2), ("__get__", 1)]
    x.requires_grad_(requires_grad=False)
    assert seen[-1] == ("requires_grad_", 1)


def test_subclass_in_a_compiled_function():
    @torch.compile
    def scaled(x):
        return torch.relu(x) * 3

    class Kept(torch.Tensor):
        pass

    plain = torch.tensor([-1.0, 2.0])
    found = scaled(plain.as_subclass(Kept))
    assert type(found) is Kept
    assert found.tolist() == scaled(plain).tolist() == [0.0, 6.0]


def test_lists_of_what_can_be_overridden():
    listed = overrides.get_overridable_functions()
    assert torch.add in listed[torch]
    assert torch.nn.functional.relu in listed[torch.nn.functional]
    assert overrides.resolve_name(torch.Tensor.shape.__get__) == "torch.Tensor.shape.__get__"
    assert overrides.resolve_name(torch.nn.functional.softmax) == "torch.nn.functional.softmax"
    assert overrides.is_tensor_method_or_property(torch.Tensor.size)
    testing = overrides.get_testing_overrides()
    assert testing[torch.add]() == -1
    assert list(inspect.signature(testing[torch.add]).parameters) == ["self", "other", "alpha"]
    assert torch.is_tensor in overrides.get_ignored_functions()


def test_every_overridable_function_asks():
    """Each function of the list hands a call with an object of its own to that object."""

    class Duck:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func

    for space, functions in overrides.get_overridable_functions().items():
        if space is torch.Tensor:
            continue
        for function in functions:
            assert function(Duck()) == function, overrides.resolve_name(function)


def test_every_method_asks():
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "asked"

    x = torch.ones(2).as_subclass(Loud)
    assert not [f for f in ("shape", "T", "grad", "data", "dtype") if getattr(x, f) != "asked"]
    for name in ("size", "dim", "item", "numpy", "detach", "backward", "nonzero", "unique", "exp"):
        assert getattr(x, name)() == "asked"
    assert x[0] == "asked" and (x + 1) == "asked" and (1 - x) == "asked" and (-x) == "asked"
    for convert in (len, float, int, iter):
        with pytest.raises(TypeError):  # Python wants a number, or an iterator
            convert(x)
