"""`checkpoint`: the semantics of the function itself, at the cost of a second run."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import flambeau as torch
from flambeau.utils import checkpoint as module
from flambeau.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    GraphExecGroup,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)

again = partial(checkpoint, use_reentrant=False)


def leaf(count: int = 3) -> Any:
    return torch.linspace(-1, 1.3, count).requires_grad_()


def plain(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return function(*args)


def both(measure: Callable[[Any], Any]) -> None:
    """The same bits with and without checkpoint, eager and compiled."""
    expected = measure(plain)
    assert measure(again) == expected
    assert measure(lambda f, *args: torch.compile(lambda *v: again(f, *v))(*args)) == expected
    assert measure(lambda f, *args: again(torch.compile(f), *args)) == expected


def test_first_and_second_derivatives() -> None:
    def measure(call: Any) -> Any:
        a = leaf()
        y = call(lambda u: u.sin() * u, a)
        (g,) = torch.autograd.grad(y.sum(), a, create_graph=True)
        (y.sum() + g.pow(2).sum()).backward()
        return a.grad.tolist(), g.requires_grad

    both(measure)


def test_gradients_of_closed_over_tensors() -> None:
    for wanted in range(2):

        def measure(call: Any, wanted: int = wanted) -> Any:
            a, w = leaf(), torch.full((3,), 2.0, requires_grad=True)
            y = call(lambda u: (u * w).sin(), a)
            (g,) = torch.autograd.grad(y.sum(), (a, w)[wanted])
            assert a.grad is None and w.grad is None
            return g.tolist()

        both(measure)


def test_parameters_alone() -> None:
    def measure(call: Any) -> Any:
        torch.manual_seed(0)
        block = torch.nn.Sequential(
            torch.nn.Linear(3, 4), torch.nn.Dropout(0.5), torch.nn.GELU(), torch.nn.Linear(4, 3)
        )
        y = call(block, leaf().detach())
        y.square().sum().backward()
        return y.tolist(), [p.grad.tolist() for p in block.parameters()], torch.rand(2).tolist()

    both(measure)


def test_results_require_what_they_require_without_checkpoint() -> None:
    def function(u: Any) -> Any:
        return u.sin(), u.detach().cos(), u > 0, 4

    results = again(function, leaf())
    assert [getattr(x, "requires_grad", x) for x in results] == [True, False, False, 4]
    results = again(function, leaf().detach())
    assert [getattr(x, "requires_grad", x) for x in results] == [False, False, False, 4]
    with torch.no_grad():
        assert not again(torch.sin, leaf()).requires_grad


def test_early_stop() -> None:
    log: list[int] = []

    def function(u: Any) -> Any:
        log.append(1)
        y = u.exp()
        log.append(2)
        return y * 2

    again(function, leaf()).sum().backward()
    assert log == [1, 2, 1]
    again(function, leaf(), early_stop=False).sum().backward()
    assert log[3:] == [1, 2, 1, 2]
    with set_checkpoint_early_stop(False):
        y = again(function, leaf())
    y.sum().backward()
    assert log[7:] == [1, 2, 1, 2]


def test_hooks_run_as_often_as_modules() -> None:
    log: list[int] = []
    block = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3))
    for i, layer in enumerate(block):
        layer.register_forward_hook(lambda *a, i=i: log.append(i))
    again(block, leaf()).sum().backward()
    assert log == [0, 1, 2, 0, 1]


def test_nested() -> None:
    log: list[str] = []

    def inner(u: Any) -> Any:
        log.append("inner")
        return u.sin().cos()

    def outer(u: Any) -> Any:
        log.append("outer")
        return again(inner, u.exp()).exp()

    a, b = leaf(), leaf()
    again(outer, a).sum().backward()
    assert log == ["outer", "inner", "outer", "inner", "inner"]
    b.exp().sin().cos().exp().sum().backward()
    assert a.grad.tolist() == b.grad.tolist()


def test_a_function_that_changes() -> None:
    def changing(first: Any, second: Any) -> Any:
        runs = iter((first, second))
        return lambda u: next(runs)(u)

    a = leaf()
    again(changing(torch.sin, lambda u: u.cos().exp()), a).sum().backward()
    assert a.grad.tolist() == a.cos().tolist()  # what is saved is the same
    with pytest.raises(CheckpointError, match="different metadata"):
        again(changing(torch.sin, lambda u: u[:2].sin()), leaf()).sum().backward()
    with pytest.raises(CheckpointError, match="A different number of tensors"):
        again(changing(lambda u: u.sin().sin(), torch.sin), leaf()).sum().backward()
    with pytest.raises(CheckpointError, match="more tensors during recomputation"):
        function = changing(torch.sin, lambda u: u.sin().sin())
        again(function, leaf(), early_stop=False).sum().backward()
    y = again(changing(torch.sin, torch.cos), leaf(), determinism_check="none")
    y.sum().backward()
    with pytest.raises(ValueError, match="determinism_check"):
        again(torch.sin, leaf(), determinism_check="other")


def test_debug_lists_operators() -> None:
    for options, setting in (({"debug": True}, None), ({}, True)):
        runs = iter((torch.sin, lambda u: u[:2].sin()))
        with set_checkpoint_debug_enabled(setting), pytest.raises(CheckpointError) as caught:
            again(lambda u: next(runs)(u), leaf(), **options).sum().backward()  # noqa: B023
        text = str(caught.value)
        assert "aten.sin.default(torch.float32[3])" in text
        assert "aten.sin.default(torch.float32[2])" in text and "test_checkpoint.py" in text


def test_two_backward_passes() -> None:
    log: list[int] = []

    def function(u: Any) -> Any:
        log.append(1)
        return u.sin().cos()

    a = leaf()
    y = again(function, a).sum()
    y.backward(retain_graph=True)
    first = a.grad.tolist()
    y.backward()
    assert len(log) == 3 and a.grad.tolist() == [2 * x for x in first]
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()


def test_groups_share_a_recomputation() -> None:
    log: list[int] = []

    def function(u: Any, v: Any) -> Any:
        log.append(1)
        return u.sin(), v.cos()

    a, b = leaf(), leaf()
    x, y = again(function, a, b)
    with GraphExecGroup():
        torch.autograd.grad(x.sum(), a)
        torch.autograd.grad(y.sum(), b)
        with pytest.raises(RuntimeError, match="nested"):
            GraphExecGroup().__enter__()
    assert len(log) == 2
    z = again(torch.sin, a)
    with GraphExecGroup():
        torch.autograd.grad(z.sum(), a, retain_graph=True)
        with pytest.raises(CheckpointError, match="GraphExecGroup"):
            torch.autograd.grad(z.sum(), a)


def test_random_numbers() -> None:
    a = torch.ones(64, requires_grad=True)
    y = again(torch.nn.Dropout(0.5), a)
    state = torch.get_rng_state()
    y.sum().backward()
    assert y.tolist() == a.grad.tolist()
    assert bool((state == torch.get_rng_state()).all())
    b = torch.ones(64, requires_grad=True)
    y = again(torch.nn.Dropout(0.5), b, preserve_rng_state=False)
    y.sum().backward()
    assert y.tolist() != b.grad.tolist()


def test_arguments_written_in_place() -> None:
    a = leaf()
    b = a * 1
    y = again(lambda u: u.add_(1) * 2, b)
    y.sum().backward()
    assert a.grad.tolist() == [2.0] * 3
    for write in ("inside", "outside"):
        b = leaf() * 1
        y = again(lambda u: (u.mul_(2) if write == "inside" else u).sin(), b)  # noqa: B023
        if write == "outside":
            b.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_saved_tensors_are_read_once() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.saved_tensors[0] * ctx.saved_tensors[0]

    with pytest.raises(CheckpointError, match="already unpacked once"):
        again(Twice.apply, leaf()).sum().backward()
    y = again(lambda u: u.sin().cos(), leaf())
    assert y.grad_fn._saved_self.tolist() == leaf().sin().tolist()


def test_intermediate_results_are_freed() -> None:
    references = []

    def function(u: Any) -> Any:
        v = u.exp()
        references.append(weakref.ref(v))
        return v.sin()

    y = again(function, leaf())
    assert references[0]() is None
    y.sum().backward()
    assert references[1]() is None


def test_gradients_inside() -> None:
    def function(u: Any) -> Any:
        (g,) = torch.autograd.grad(u.sin().sum(), u, create_graph=True)
        return (g * u).exp()

    for stop in (True, False):
        a, b = leaf(), leaf()
        again(function, a, early_stop=stop).sum().backward()
        function(b).sum().backward()
        assert a.grad.tolist() == b.grad.tolist()


def test_outer_hooks_see_the_arguments_alone() -> None:
    log: list[str] = []

    def note(name: str) -> Any:
        return lambda x: (log.append(name), x)[1]

    with torch.autograd.graph.saved_tensors_hooks(note("pack"), note("unpack")):
        y = again(lambda u: u.sin().cos(), leaf())
    y.sum().backward()
    assert log == ["pack", "unpack"]


def test_contexts() -> None:
    log: list[str] = []

    class Note:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            log.append(f"+{self.name}")

        def __exit__(self, *exception: object) -> None:
            log.append(f"-{self.name}")

    y = again(torch.sin, leaf(), context_fn=lambda: (Note("first"), Note("again")))
    y.sum().backward()
    assert log == ["+first", "-first", "+again", "-again"]


def test_transformations() -> None:
    x = torch.ones(2, 3)

    def function(u: Any) -> Any:
        return again(lambda v: v.sin().sum(), u)

    assert torch.func.vmap(function)(x).tolist() == x.sin().sum(1).tolist()
    value, tangent = torch.func.jvp(function, (x,), (x,))
    assert (value.item(), tangent.item()) == (x.sin().sum().item(), x.cos().sum().item())
    assert torch.func.grad(function)(x).tolist() == x.cos().tolist()


def test_selective_operators() -> None:
    def function(u: Any, w: Any) -> Any:
        return torch.nn.functional.dropout((u @ w).sin(), 0.5) @ w

    def measure(call: Any) -> Any:
        torch.manual_seed(0)
        a = torch.linspace(-1, 1, 4).reshape(2, 2).requires_grad_()
        w = torch.full((2, 2), 0.3, requires_grad=True)
        call(function, a, w).sum().backward()
        return a.grad.tolist(), w.grad.tolist()

    stored = [torch.ops.aten.mm.default, torch.ops.aten.matmul.default]
    contexts = partial(create_selective_checkpoint_contexts, stored)
    assert measure(partial(again, context_fn=contexts)) == measure(plain)


def test_selective_policies() -> None:
    asked: list[Any] = []
    runs: list[int] = []

    def policy(context: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        asked.append((context.is_recompute, str(func)))
        return CheckpointPolicy.MUST_SAVE if func == torch.ops.aten.sin.default else False

    def function(u: Any) -> Any:
        runs.append(1)
        return u.sin().cos().exp().mul(2).add_(1)

    a, b = leaf(), leaf()
    again(
        function, a, context_fn=lambda: create_selective_checkpoint_contexts(policy)
    ).sum().backward()
    assert [name for _, name in asked[:3]] == [f"aten.{x}.default" for x in ("sin", "cos", "exp")]
    assert not any(recompute for recompute, _ in asked) and len(runs) == 2
    function(b).sum().backward()
    assert a.grad.tolist() == b.grad.tolist()


def test_selective_errors() -> None:
    sin = torch.ops.aten.sin.default

    def contexts(**options: Any) -> Any:
        return lambda: create_selective_checkpoint_contexts([sin], **options)

    def writing(u: Any) -> Any:
        v = u.sin()
        w = v.exp()
        v.add_(1)
        return w.cos() * v

    with pytest.raises(RuntimeError, match="has been mutated"):
        again(writing, leaf(), context_fn=contexts()).sum().backward()
    y = again(torch.sin, leaf(), context_fn=contexts()).sum()
    y.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="an extra time"):
        y.backward()
    runs = iter((torch.exp, lambda u: u.sin().exp()))
    with pytest.raises(RuntimeError, match="not found in storage"):
        again(lambda u: next(runs)(u), leaf(), context_fn=contexts()).sum().backward()
    with pytest.raises(ValueError, match="OpOverload"):
        create_selective_checkpoint_contexts(["sin"])
    with pytest.raises(TypeError, match="either a function or a list"):
        create_selective_checkpoint_contexts(3)  # type: ignore[arg-type]


def test_sequences() -> None:
    log: list[int] = []
    steps = [lambda u, i=i: (log.append(i), u.sin())[1] for i in range(7)]
    a, b = leaf(), leaf()
    checkpoint_sequential(steps, 3, a, use_reentrant=False).sum().backward()
    assert log == [0, 1, 2, 3, 4, 5, 6, 2, 3, 0, 1]
    for step in steps:
        b = step(b)
    with pytest.raises(ValueError, match="Unexpected keyword"):
        checkpoint_sequential(steps, 3, a, use_reentrant=False, other=1)
    with pytest.warns(UserWarning, match="use_reentrant"):
        checkpoint_sequential(steps, 3, a).sum().backward()


def test_reentrant() -> None:
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed"):
        assert checkpoint(torch.sin, leaf()).grad_fn.name() == "CheckpointFunctionBackward"
    old = partial(checkpoint, use_reentrant=True)
    a, w = leaf(), torch.full((3,), 2.0, requires_grad=True)
    y = old(lambda u, k: ((u * w).sin(), u.detach(), k), a, 3)
    assert y[2] == 3
    y[0].sum().backward()
    assert a.grad.tolist() == ((a * w).cos() * w).tolist()
    assert w.grad.tolist() == ((a * w).cos() * a).tolist()
    for use in (lambda y, a: torch.autograd.grad(y, a), lambda y, a: y.backward(inputs=[a])):
        with pytest.raises(RuntimeError, match=r"incompatible with \.grad\(\)"):
            use(old(torch.sin, a).sum(), a)
    with pytest.raises(RuntimeError, match="none of output has requires_grad"):
        old(torch.detach, a).sum().backward()
    with pytest.warns(UserWarning, match="None of the inputs"):
        assert not old(lambda u: u * w, a.detach()).requires_grad
    with pytest.raises(ValueError, match="Unexpected keyword"):
        old(torch.sin, a, other=1)
    with pytest.raises(ValueError, match="only supported when"):
        old(torch.sin, a, debug=True)


def test_helpers() -> None:
    a = leaf()
    found = module.detach_variable((a, 3, a.detach()))
    assert (found[0].requires_grad, found[0].is_leaf, found[1]) == (True, True, 3)
    assert not found[2].requires_grad
    with pytest.raises(RuntimeError, match="Only tuple of tensors"):
        module.detach_variable(a)
    devices, states = module.get_device_states(a, 3)
    module.set_device_states(devices, states)
    assert (devices, states) == ([], [])
    with pytest.raises(RuntimeError, match="no device"):
        module.set_device_states([0], [a])
    before = module.DefaultDeviceType.get_device_type()
    module.DefaultDeviceType.set_device_type("meta")
    assert module.DefaultDeviceType.get_device_type() == "meta"
    module.DefaultDeviceType.set_device_type(before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module.check_backward_validity([a])
    assert torch.ops.aten.detach.default in module.SAC_IGNORED_OPS
