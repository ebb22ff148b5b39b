"""Forward compiled alone: its backward is a program of its own, and PyTorch's semantics stay."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import flambeau as torch
from bench.models import GPT
from flambeau import _core
from flambeau.capture import joint

NAME = "CompiledFunctionBackward"


def leaf(*shape: int) -> Any:
    """A random leaf."""
    return torch.randn(*shape, requires_grad=True)


def grads_of(function: Any, *args: Any) -> list[Any]:
    """Gradients of the sum of a function's result."""
    return list(torch.autograd.grad(function(*args).sum(), args))


def program(x: Any, w: Any) -> Any:
    """Something with a reduction, a product and pointwise parts."""
    return torch.softmax((x @ w).tanh(), -1) * x.exp().mean()


def test_result_has_one_node() -> None:
    x, w = leaf(4, 5), leaf(5, 3)
    y = torch.compile(program)(x, w)
    assert y.grad_fn.name() == NAME
    assert {type(n).__name__ for n, _ in y.grad_fn.next_functions} == {"AccumulateGrad"}
    assert [n.variable is v for (n, _), v in zip(y.grad_fn.next_functions, (x, w))]
    assert not y.is_leaf and y.requires_grad


def test_gradients_have_the_bits_of_eager_mode() -> None:
    torch.manual_seed(2)
    x, w = leaf(4, 5), leaf(5, 3)
    compiled = torch.compile(program)
    for _ in range(2):
        for a, b in zip(grads_of(program, x, w), grads_of(compiled, x, w), strict=True):
            assert torch.equal(a, b)
    assert _core.stream_stats()["builds"] == 1


def test_graph_is_freed_and_can_be_retained() -> None:
    x, w = leaf(4, 5), leaf(5, 3)
    y = torch.compile(program)(x, w).sum()
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    assert torch.equal(x.grad, first + first)
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_results_of_which_one_is_used() -> None:
    def two(x: Any) -> Any:
        return x.sin().sum(), x.cos() * x

    compiled = torch.compile(two)
    x = leaf(6)
    for pick in (0, 1):
        a = torch.autograd.grad(two(x)[pick].sum(), x)[0]
        b = torch.autograd.grad(compiled(x)[pick].sum(), x)[0]
        assert torch.equal(a, b)


def test_an_argument_without_gradient() -> None:
    x, w = leaf(4, 5), torch.randn(5, 3)
    (a,) = torch.autograd.grad(program(x, w).sum(), x)
    (b,) = torch.autograd.grad(torch.compile(program)(x, w).sum(), x)
    assert torch.equal(a, b)


def test_arguments_with_a_history() -> None:
    x, w = leaf(4, 5), leaf(5, 3)
    compiled = torch.compile(program)
    for a, b in zip(
        grads_of(lambda x, w: program(x * 2, w.sin()), x, w),
        grads_of(lambda x, w: compiled(x * 2, w.sin()), x, w),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_sums_of_gradients_keep_their_order() -> None:
    """Several uses of a parameter inside, several regions and uses outside."""

    def twice(x: Any, w: Any) -> Any:
        return torch.tanh(x @ w) @ w

    compiled = torch.compile(twice)
    for seed in range(8):
        torch.manual_seed(seed)
        w, a, b = leaf(6, 6), torch.randn(3, 6), torch.randn(3, 6)
        found = [
            torch.autograd.grad((f(a, w) * 1.1 + f(b, w) + w[:3]).sum(), w)[0]
            for f in (twice, compiled)
        ]
        assert torch.equal(*found)


def test_written_parameter_is_noticed() -> None:
    x, w = leaf(4, 5), leaf(5, 3)
    y = torch.compile(program)(x, w).sum()
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_hooks_of_arguments_and_results_run_once() -> None:
    seen: list[str] = []
    x, w = leaf(4, 5), leaf(5, 3)
    x.register_hook(lambda g: seen.append("x"))
    h = w * 2
    h.register_hook(lambda g: seen.append("h"))
    y = torch.compile(program)(x, h)
    assert seen == []
    y.register_hook(lambda g: seen.append("y") or g * 2)
    y.sum().backward()
    assert sorted(seen) == ["h", "x", "y"]
    expected = torch.autograd.grad(program(x, h).sum() * 2, w)[0]
    assert torch.equal(w.grad, expected)


@pytest.mark.parametrize("observe", ["hook", "retain_grad", "node_hook"])
def test_observers_of_inner_tensors(observe: str) -> None:
    seen: list[Any] = []

    def watched(x: Any) -> Any:
        inner = x.sin()
        if observe == "hook":
            inner.register_hook(lambda g: seen.append(g.clone()))
        elif observe == "retain_grad":
            inner.retain_grad()
            seen.append(inner)
        else:
            inner.grad_fn.register_hook(lambda i, o: seen.append(o[0].clone()))
        return (inner * inner).sum()

    x = leaf(5)
    results = []
    for f in (watched, torch.compile(watched)):
        seen.clear()
        f(x).backward()
        results.append(seen[0].grad if observe == "retain_grad" else seen[0])
    assert torch.equal(*results)


def test_custom_function_inside() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return grad * 2 + x * 0

    def inside(x: Any) -> Any:
        return Double.apply(x.sin()).exp().sum()

    x = leaf(5)
    assert torch.equal(grads_of(inside, x)[0], grads_of(torch.compile(inside), x)[0])


def test_an_error_of_a_gradient_shows_when_it_is_asked_for() -> None:
    class Refused(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            raise ValueError("no gradient")

    y = torch.compile(lambda x: Refused.apply(x.sin()).cos())(leaf(3))
    with pytest.raises(ValueError, match="no gradient"):
        y.sum().backward()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ZeroDivisionError])
def test_an_error_of_the_compiler_shows_at_once(kind: type[BaseException]) -> None:
    def failing(*stream_parts: Any) -> None:
        raise kind("while compiling")

    compiled, x = torch.compile(lambda x: x.sinh().cos() * 3.25), leaf(3)
    _core.set_joint_compiler(failing)
    try:
        with pytest.raises(kind, match="while compiling"):
            compiled(x)
    finally:
        _core.set_joint_compiler(joint.compile_joint)
    assert torch.equal(*(grads_of(f, x)[0] for f in (compiled, lambda x: x.sinh().cos() * 3.25)))


def test_anomaly_mode_names_the_line() -> None:
    def bad(x: Any) -> Any:
        return (x * 0).sqrt().sum()

    with torch.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError, match="nan"):
        torch.compile(bad)(torch.ones(2, requires_grad=True)).backward()


def test_views_and_written_results(check: Any) -> None:
    check(lambda x: (x * 2).t(), leaf(3, 4))
    check(lambda x: (x * 2)[1:].flatten(), leaf(3, 4))
    check(lambda x: (x * 2, (x * 2).view(-1)), leaf(3, 4))
    check(lambda x: (lambda y: (y, y.view(-1)))(x.exp()), leaf(3, 4))
    check(lambda x: x.sin().mul_(x).add_(x), leaf(3, 4))
    check(lambda x: x.view(-1)[2:], leaf(3, 4))
    y = torch.compile(lambda x: (x * 2).t())(leaf(3, 4))
    y.mul_(2).sum().backward()


def test_breaks_inside(check: Any) -> None:
    def broken(x: Any) -> Any:
        y = x.sin() * x
        if y.sum().item() > -100:
            y = y.exp()
        return y.cumsum(0) / y.mean()

    check(broken, leaf(5))


def test_only_arguments_and_results_are_kept_where_that_is_enough() -> None:
    compiled = torch.compile(lambda x: ((x.sin() * 2).cos() + 1).tanh().exp())
    x = leaf(8)
    y = compiled(x)
    saved = y.grad_fn._saved_tensors
    assert len(saved) == 2 and saved[0] is x and saved[1].data_ptr() == y.data_ptr()
    dead = weakref.ref(y)
    del y, saved
    gc.collect()
    assert dead() is None


def test_parameters_are_freed() -> None:
    x, w = leaf(4, 5), leaf(5, 3)
    compiled = torch.compile(program)
    y = compiled(x, w)
    dead = weakref.ref(w)
    del w
    y.sum().backward()
    del y
    gc.collect()
    assert dead() is None


def _models(**changes: Any) -> tuple[Any, Any]:
    size = {"vocabulary": 96, "context": 128, "layers": 2, "heads": 2, "width": 32} | changes
    torch.manual_seed(0)
    first, second = GPT(torch, **size), GPT(torch, **size)
    second.load_state_dict(first.state_dict())
    return first, second


SIZES = [(b, t) for t in (32, 64, 128) for b in (1, 2, 4, 8, 16)]


@pytest.mark.parametrize("backward", [False, True])
def test_sizes_of_batches_compile_at_most_twice(backward: bool) -> None:
    eager, model = _models()
    compiled = torch.compile(model)
    for b, t in SIZES:
        x, y = torch.randint(0, 96, (b, t)), torch.randint(0, 96, (b, t))
        with torch.set_grad_enabled(backward):
            expected, found = eager(x, y), compiled(x, y)
        assert torch.equal(expected, found), (b, t)
        if backward and (b, t) in ((1, 32), (4, 64), (16, 128), (1, 128)):
            eager.zero_grad(), model.zero_grad()
            expected.backward(), found.backward()
            for (name, p), q in zip(eager.named_parameters(), model.parameters(), strict=True):
                assert torch.equal(p.grad, q.grad), (b, t, name)
    assert _core.stream_stats()["builds"] <= 2


def test_sizes_of_training_steps_compile_at_most_twice() -> None:
    _, model = _models()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile
    def step(x: Any, y: Any) -> Any:
        loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for b, t in SIZES:
        step(torch.randint(0, 96, (b, t)), torch.randint(0, 96, (b, t)))
    assert _core.stream_stats()["builds"] <= 2


def test_identical_layers_share_kernels() -> None:
    _, model = _models(layers=12)
    tokens = torch.randint(0, 96, (2, 32))
    with torch.no_grad():
        report = torch.compiler.explain(model, tokens, tokens)
    assert report.kernels > 12 * 4
    assert report.different_kernels < 20
