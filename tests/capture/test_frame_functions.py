"""Tier 2, custom functions of autograd and hooks: their Python is skipped as all Python is.

Each step runs on a model and on a copy of it, compiled and plain: losses, parameters, gradients and
lists that it writes are compared bit by bit after every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as torch
import flambeau.nn.functional as F  # noqa: N812
from flambeau import nn
from flambeau.autograd import Function
from flambeau.autograd.function import once_differentiable
from tests.capture.frames import explained, same, skips

CALLS = 14
Part = Callable[[Any], Any]  # a function in the middle of a model


class Cube(Function):
    """A tensor and an attribute are saved."""

    scale = 3

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.power = 2
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * Cube.scale * x**ctx.power


class Scaled(Function):
    """Arguments that are no tensors; a result is saved, in a form of its own."""

    @staticmethod
    def forward(x: Any, factor: float, names: tuple[str, ...]) -> Any:
        return (x * factor).exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, ctx.factor, ctx.names = inputs
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (y,) = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, False, False)
        return grad * y * ctx.factor * len(ctx.names), None, None


class Sorted(Function):
    """Two results, one without a gradient, whose gradients may be absent."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        values, order = x.sort(-1)
        ctx.mark_non_differentiable(order)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(order, None, weight)
        return values * weight, order

    @staticmethod
    def backward(ctx: Any, grad: Any, nothing: Any) -> Any:
        order, none, weight = ctx.saved_tensors
        assert nothing is None and none is None
        return torch.zeros_like(grad).scatter(-1, order, grad * weight), None


class Both(Function):
    """Zeros stand for a gradient that is absent."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def vjp(ctx: Any, first: Any, second: Any) -> Any:
        (x,) = ctx.saved_tensors
        return (first * x.cos() - second * x.sin(),)


class Once(Function):
    """Its backward is not differentiated."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.tanh()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * (1 - x.tanh() ** 2)


class Written(Function):
    """An argument is written in place."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2


class Same(Function):
    """The argument is the result, and its gradient is changed."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad.neg()


class Mixed(Function):
    """Operands are cast under autocast."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def mixed(x: Any) -> Any:
    """A function in a region of autocast."""
    with torch.autocast("cpu", torch.bfloat16):
        return (Mixed.apply(x @ x.T * 0.1) @ x).float()


PARTS: dict[str, Part] = {
    "attributes": Cube.apply,
    "setup_context": lambda x: Scaled.apply(x, 0.5, ("a", "b")),
    "without gradient": lambda x: Sorted.apply(x, torch.full((8,), 2.0))[0],
    "zeros": lambda x: Both.apply(x)[0],
    "two results": lambda x: torch.stack(Both.apply(x)).sum(0),
    "once": Once.apply,
    "in place": lambda x: Written.apply(x * 1),
    "a view": Same.apply,
    "autocast": mixed,
    "two calls": lambda x: Cube.apply(Same.apply(Cube.apply(x * 0.5))),
    "unused": lambda x: (Cube.apply(x), x)[1],
}


class Twins:
    """A training step with a part in the middle, compiled, and the same on a copy, plain."""

    def __init__(self, part: Part, prepare: Callable[[Any], object] = lambda model: None) -> None:
        self.models, self.steps, self.notes = [], [], [[], []]  # type: ignore[var-annotated]
        for notes in self.notes:
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
            model.notes = notes
            prepare(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.5)
            self.models.append(model)
            self.steps.append(self.step_of(model, optimizer, part))
        self.compiled = self.steps[0] = torch.compile(self.steps[0])

    @staticmethod
    def step_of(model: Any, optimizer: Any, part: Part) -> Callable[..., Any]:
        """A step as most programs write it; gradients stay behind."""

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = F.mse_loss(model[1](part(model[0](x))), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    def run(self, seed: int = 0) -> bool:
        """One call of each; whether the compiled one ran without Python."""
        torch.manual_seed(seed)
        x, y, before = torch.randn(4, 6), torch.randn(4, 3), self.compiled._hits
        assert same(*(step(x, y) for step in self.steps))
        for a, b in zip(*(model.parameters() for model in self.models), strict=True):
            assert same(a.detach(), b.detach()) and same(a.grad, b.grad)
            assert a._version == b._version
        assert same(*self.notes)
        return bool(self.compiled._hits > before)

    def settle(self) -> Twins:
        """Runs until calls run without Python."""
        skipped = [self.run(seed) for seed in range(CALLS)]
        assert skipped[-3:] == [True] * 3, self.compiled._reason
        return self

    def stay_recorded(self) -> None:
        """Every call runs its Python."""
        assert not any(self.run(seed) for seed in range(CALLS))
        assert self.compiled._reason


@pytest.mark.parametrize("name", PARTS)
def test_functions_have_the_bits_of_eager_mode(name: str) -> None:
    Twins(PARTS[name]).settle()


@pytest.mark.parametrize("name", [name for name in PARTS if name != "unused"])
def test_functions_without_gradients(name: str) -> None:
    def function(x: Any) -> Any:
        with torch.no_grad():
            return PARTS[name](x * 1) + 1

    x = torch.randn(4, 8)
    compiled = explained(function, x)
    assert same(compiled(x), function(x))


def test_results_with_a_history_are_recorded() -> None:
    """Their backward calls the function's."""
    weight = torch.randn(4, 8, requires_grad=True)
    compiled = torch.compile(lambda x: Cube.apply(x * weight).sum())
    for seed in range(8):
        torch.manual_seed(seed)
        x, weight.grad = torch.randn(4, 8), None
        compiled(x).backward()
        assert same(weight.grad, 3 * (x * weight.detach()) ** 2 * x)


def test_gradients_of_gradients() -> None:
    def part(x: Any) -> Any:
        (first,) = torch.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
        return x + first

    Twins(part).settle()


def test_a_class_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    twins = Twins(Cube.apply).settle()
    monkeypatch.setattr(Cube, "backward", staticmethod(lambda ctx, grad: grad * 5))
    assert not twins.run()
    twins.settle()
    monkeypatch.setattr(Cube, "forward", staticmethod(lambda ctx, x: x * 4))
    assert not twins.run()
    twins.settle()
    monkeypatch.undo()
    assert twins.run()
    monkeypatch.setattr(Cube, "scale", 7)
    assert not twins.run()
    twins.settle()


def test_code_of_a_backward_that_changes() -> None:
    class Local(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * settings["rate"] if settings["on"] else grad

    settings = {"rate": 2.0, "on": True}
    twins = Twins(Local.apply).settle()
    settings["on"] = False
    assert not twins.run()
    twins.settle()
    settings.update(on=True, rate=3.0)
    twins.settle()


def test_effects_of_a_backward() -> None:
    class Noting(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, notes: list[Any]) -> Any:
            ctx.notes = notes
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            ctx.notes.append(grad.abs().max())
            return grad, None

    twins = Twins(lambda x: x)
    twins.steps = [
        Twins.step_of(m, torch.optim.SGD(m.parameters(), lr=0.1), part)
        for m, part in zip(
            twins.models,
            [lambda x, n=notes: Noting.apply(x, n) for notes in twins.notes],
            strict=True,
        )
    ]
    twins.compiled = twins.steps[0] = torch.compile(twins.steps[0])
    twins.settle()
    assert len(twins.notes[0]) == CALLS


def test_a_backward_that_raises() -> None:
    class Failing(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, fails: bool) -> Any:
            ctx.fails = fails
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            if ctx.fails:
                raise ValueError("a gradient")
            return grad * 2, None

    def function(x: Any, fails: bool) -> Any:
        leaf = x.detach().requires_grad_()
        try:
            return torch.autograd.grad(Failing.apply(leaf, fails).sum(), leaf)[0]
        except ValueError as error:
            return x, str(error)

    x = torch.ones(3)
    compiled = torch.compile(function)
    for fails in [False] * 6 + [True] * 6 + [False, True]:
        assert same(compiled(x, fails), function(x, fails))
    raising = torch.compile(lambda x: Failing.apply(x, True).sum().backward())
    for _ in range(6):
        with pytest.raises(ValueError, match="a gradient"):
            raising(torch.ones(3, requires_grad=True))


def test_wrong_gradients_raise() -> None:
    class Wrong(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad, grad

    compiled = torch.compile(lambda x: Wrong.apply(x).sum().backward())
    for _ in range(6):
        with pytest.raises(RuntimeError, match="incorrect number of gradients"):
            compiled(torch.ones(3, requires_grad=True))


# ------------------------------------------------------------------ hooks of tensors
def inner_hook(change: Callable[[Any], Any]) -> Part:
    """A hook on a value of the step."""

    def part(x: Any) -> Any:
        y = x * 2
        y.register_hook(change)
        return y

    return part


HOOKS: dict[str, Callable[[Any], Any]] = {
    "scales": lambda grad: grad * 2,
    "clips": lambda grad: grad.clamp(-0.01, 0.01),
    "nothing": lambda grad: None,
}


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_of_values(name: str) -> None:
    Twins(inner_hook(HOOKS[name])).settle()


def test_several_hooks_of_a_value_run_in_order() -> None:
    def part(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda grad: grad + 1)
        y.register_hook(lambda grad: grad * 3)
        return y

    Twins(part).settle()


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_of_parameters(name: str) -> None:
    Twins(lambda x: x.relu(), lambda model: model[0].weight.register_hook(HOOKS[name])).settle()


def test_hooks_that_are_added_and_removed() -> None:
    twins, identity = Twins(lambda x: x), lambda grad: grad * 3
    twins.settle()
    handles = [model[0].weight.register_hook(identity) for model in twins.models]
    assert not twins.run()
    twins.settle()
    for handle in handles:
        handle.remove()
    assert twins.run()
    handles = [model[0].weight.register_hook(lambda grad: -grad) for model in twins.models]
    assert not twins.run()
    twins.settle()
    more = [model[0].weight.register_hook(identity) for model in twins.models]
    assert not twins.run()
    for handle in (*handles, *more):
        handle.remove()
    assert twins.run()


def test_effects_of_hooks() -> None:
    def prepare(model: Any) -> None:
        model[0].weight.register_hook(lambda grad: model.notes.append(grad.norm()))

    twins = Twins(lambda x: x, prepare).settle()
    assert len(twins.notes[0]) == CALLS


def doubled(parameter: Any) -> None:
    """A hook that runs when a gradient is there."""
    parameter.grad.mul_(2)


def test_hooks_after_a_gradient_are_recorded() -> None:
    def prepare(model: Any) -> None:
        model[0].weight.register_post_accumulate_grad_hook(doubled)

    Twins(lambda x: x, prepare).stay_recorded()


def test_hooks_after_a_gradient_that_are_added() -> None:
    twins = Twins(lambda x: x).settle()
    for model in twins.models:
        model[0].weight.register_post_accumulate_grad_hook(doubled)
    assert not twins.run()


@pytest.mark.parametrize("leaf", ["argument", "closure"])
def test_hooks_of_leaves_see_gradients_that_are_returned(leaf: str) -> None:
    held = torch.ones(3, requires_grad=True)

    def function(x: Any) -> Any:
        (grad,) = torch.autograd.grad((x * x * held).sum(), x if leaf == "argument" else held)
        return grad * 2

    x = torch.full((3,), 3.0, requires_grad=True)
    compiled = explained(function, x)
    target = x if leaf == "argument" else held
    handle = target.register_hook(lambda grad: grad * 10)
    result, skipped = skips(compiled, x)
    assert not skipped and same(result, function(x))
    handle.remove()
    result, skipped = skips(compiled, x)
    assert skipped and same(result, function(x))


def test_hooks_of_modules() -> None:
    def prepare(model: Any) -> None:
        model[0].register_forward_hook(lambda module, args, result: result * 2)
        model[1].register_forward_pre_hook(lambda module, args: (args[0] + 1,))

    twins = Twins(lambda x: x, prepare).settle()
    handles = [
        model[0].register_forward_hook(lambda module, args, result: -result)
        for model in twins.models
    ]
    assert not twins.run()
    for handle in handles:
        handle.remove()
    twins.settle()


def test_numbers_of_hooks_differ() -> None:
    """A handle that leaves a call has a number of its own."""

    def function(x: Any) -> Any:
        y = x * 2
        return y.register_hook(lambda grad: grad).id

    compiled, x = torch.compile(function), torch.ones(2, requires_grad=True)
    numbers = [compiled(x) for _ in range(8)]
    assert len(set(numbers)) == 8


def test_a_copied_handle_has_its_number() -> None:
    import pickle

    x = torch.ones(2, requires_grad=True)
    handle = pickle.loads(pickle.dumps(x.register_hook(len)))
    assert x.register_hook(len).id > handle.id
