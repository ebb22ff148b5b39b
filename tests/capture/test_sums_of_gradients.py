"""Values used many times inside of a compiled function, and outside: their gradient is one sum, in
eager mode's order, whoever gives the summands. `native/record/region.cpp` (kSummands) tells how.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau import _core
from tests.capture.conftest import same_bits

F = torch.nn.functional
Function = Callable[..., Any]
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
WHERE = ("before", "after", "both", "two calls", "three calls", "all")


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    """Tests change the number of threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def uses(n: int) -> Function:
    """A function of w, used n times, and x."""

    def function(w: Any, x: Any) -> Any:
        total = x
        for k in range(n):
            total = total + ((w * (x + 0.37 * k)).sin() if k % 2 else (w * x - k).tanh() * 1.7)
        return total

    return function


def around(function: Function, w: Any, x: Any, where: str) -> Any:
    """Calls of the function and other uses of w, summed up."""
    total = x * 0.1
    if where in ("before", "both", "all"):
        total = total + (w * 0.7).cos()
    for k in range({"two calls": 2, "three calls": 3, "all": 2}.get(where, 1)):
        total = total + function(w, x * (1 - 0.3 * k))
        if where == "all":
            total = total - (w * 1.9).tanh()
    if where in ("after", "both", "all"):
        total = total + (w * 1.3).sin()
    return total


def numbers(*shape: int, dtype: Any = torch.float32) -> tuple[Any, Any]:
    """The same leaf and the same operand each time."""
    torch.manual_seed(3)
    leaf = torch.randn(*shape).to(dtype).requires_grad_()
    return leaf, torch.randn(*shape).to(dtype)


def is_compiled(result: Any) -> bool:
    """Whether a result has a node for all of a region."""
    return "Compiled" in result.grad_fn.name()


def same(function: Function, measure: Callable[[Function], list[Any]]) -> None:
    """What is measured of the function has the same bits eager and compiled, twice."""
    compiled = torch.compile(function)
    expected = measure(function)
    for _ in range(2):
        found = measure(compiled)
        assert len(found) == len(expected)
        assert all(same_bits(a, b) for a, b in zip(expected, found, strict=True))


def squared(total: Any, *inputs: Any) -> list[Any]:
    """Gradients of the total's square."""
    return list(torch.autograd.grad((total * total).sum(), inputs))


@pytest.mark.parametrize("n", range(1, 10))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_uses_inside_and_outside(n: int, dtype: Any) -> None:
    function = uses(n)
    compiled = torch.compile(function)
    for where in WHERE:
        for inner in (False, True):
            grads = []
            for call in (function, compiled):
                leaf, x = numbers(67, dtype=dtype)
                w = leaf * 1.1 if inner else leaf
                around(call, w, x, where).square().sum().backward()
                grads.append(leaf.grad)
            assert same_bits(*grads), (where, inner)
    assert is_compiled(compiled(leaf, x))


def test_complex_numbers_and_negative_zeros() -> None:
    def zeros(w: Any, x: Any) -> Any:
        total = x
        for _ in range(6):
            total = total + w * (x * 0)
        return total

    def measure(call: Function) -> list[Any]:
        found = []
        for outside in (False, True):
            w, x = torch.ones(4, requires_grad=True), -torch.ones(4)
            total = call(w, x) + w * -0.0 if outside else call(w, x)
            total.sum().backward()
            found.append(1 / w.grad)
        leaf, x = numbers(9, dtype=torch.complex64)
        around(call, leaf, x, "all").abs().sum().backward()
        return [*found, leaf.grad]

    same(zeros, measure)


def test_regions_with_and_without_a_node_of_their_own() -> None:
    """One is broken in two: its backward is recorded, together with the other's."""

    def broken(w: Any, x: Any) -> Any:
        y = uses(6)(w, x)
        return y * uses(5)(w, x).tanh() if y.sum().item() > -1e9 else y

    pairs = [(uses(6), broken), (torch.compile(uses(6)), torch.compile(broken))]
    grads = []
    for whole, parted in (*pairs, *pairs):
        leaf, x = numbers(31)
        w = leaf * 1.1
        total = whole(w, x) + parted(w, x * 2) + whole(w, x * 3) + parted(w, x) + w.sin()
        grads.append(squared(total, leaf)[0])
    assert all(same_bits(g, grads[0]) for g in grads)


def test_transformed_functions() -> None:
    def measure(call: Function) -> list[Any]:
        leaf, x = numbers(5, 7)

        def loss(w: Any, x: Any) -> Any:
            return around(call, w, x, "all").square().sum()

        total = call(leaf, x) + leaf.sin()
        many = torch.randn(3, 5, 7)
        rows = torch.autograd.grad(total, leaf, many, is_grads_batched=True)[0]
        w = leaf.detach()
        gradient = torch.func.grad(loss)
        return [rows, gradient(w, x), torch.vmap(gradient)(w, x), torch.func.hessian(loss)(w, x)]

    same(uses(6), measure)


def test_threads_and_sizes() -> None:
    """Many elements on one thread and two; sizes that vary are not compiled again and again."""
    compiled = torch.compile(uses(6))
    grads = []
    for rows in (3, 40, 41, 57):
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for call in (uses(6), compiled):
                leaf, x = numbers(rows, 700)
                grads.append(squared(around(call, leaf * 1.1, x, "all"), leaf)[0])
        assert all(same_bits(grads[-1], g) for g in grads[-4:])
    assert _core.stream_stats()["builds"] <= 2


def test_two_parameters_of_which_one_is_used_outside() -> None:
    def function(w: Any, v: Any, x: Any) -> Any:
        return uses(6)(w, x) * uses(7)(v, x).cos() + uses(3)(w * v, x)

    def measure(call: Function) -> list[Any]:
        found = []
        for outside in (lambda w, v: w.sin(), lambda w, v: v.sin(), lambda w, v: w.sin() * v):
            (w, x), (v, _) = numbers(5, 6), numbers(5, 6)
            found += squared(call(w, v, x) + outside(w, v), w, v)
        return found

    same(function, measure)


def test_results_of_which_some_have_gradients() -> None:
    """Uses that only lead to other results add nothing, be the sum begun outside or not."""

    def function(w: Any, x: Any) -> Any:
        return uses(6)(w, x), uses(5)(w, x - 1), x + w.exp()

    def measure(call: Function) -> list[Any]:
        found = []
        for outside in (False, True):
            for chosen in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
                leaf, x = numbers(11)
                w = leaf * 1.1
                results = call(w, x)
                total = sum(results[k] * (k + 1) for k in chosen)
                found += squared(total + w.sin() if outside else total, leaf)
        return found

    same(function, measure)


def test_no_use_reaches_a_result_with_a_gradient() -> None:
    def function(w: Any, x: Any, v: Any) -> Any:
        return uses(6)(w, x), v * 2

    def measure(call: Function) -> list[Any]:
        leaf, x = numbers(11)
        w, v = leaf * 1.1, leaf * 0.3
        other = call(w, x, v)[1]
        return squared(other + w.sin(), leaf)

    same(function, measure)


def test_draws_inside() -> None:
    def function(w: Any, x: Any) -> Any:
        return F.dropout(uses(6)(w, x), 0.4) + w * torch.rand(9)

    def measure(call: Function) -> list[Any]:
        leaf, x = numbers(8, 9)
        found = squared(around(call, leaf, x, "all"), leaf)
        return [*found, torch.rand(3)]

    same(function, measure)


def test_graph_that_is_retained_and_freed() -> None:
    def measure(call: Function) -> list[Any]:
        leaf, x = numbers(13)
        total = around(call, leaf * 1.1, x, "all").sum()
        found = []
        for retain in (True, True, False):
            total.backward(retain_graph=retain)
            found.append(leaf.grad.clone())
        with pytest.raises(RuntimeError, match="second time"):
            total.backward()
        return found

    same(uses(7), measure)


def test_written_operand_is_noticed() -> None:
    leaf, x = numbers(13)
    w = leaf * 1.1
    total = torch.compile(uses(6))(w, x) + w.sin()
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.sum().backward()


def test_state_written_inside() -> None:
    """What cannot be computed again is not: running statistics and written buffers stay right."""

    def function(w: Any, x: Any, mean: Any, var: Any) -> Any:
        return F.batch_norm(uses(6)(w, x), mean, var, training=True)

    def measure(call: Function) -> list[Any]:
        leaf, x = numbers(6, 5)
        mean, var = torch.zeros(5), torch.ones(5)
        total = call(leaf, x, mean, var) + call(leaf, x * 2, mean, var) + leaf.sin()
        return [*squared(total, leaf), mean, var]

    same(function, measure)


def test_hooks_and_kept_gradients_of_tensors() -> None:
    def measure(call: Function) -> list[Any]:
        seen: list[Any] = []
        leaf, x = numbers(13)
        w = leaf * 1.1
        leaf.register_hook(lambda g: seen.append(g.clone()))
        w.register_hook(lambda g: seen.append(g.clone()) or g * 0.7)
        w.retain_grad()
        y = call(w, x)
        y.register_hook(lambda g: seen.append(g.clone()) or g * 1.3)
        (y * y + w.sin() + call(w, y)).sum().backward()
        return [*seen, w.grad, leaf.grad]

    same(uses(6), measure)


def test_gradients_of_intermediates() -> None:
    def measure(call: Function) -> list[Any]:
        leaf, x = numbers(13)
        w = leaf * 1.1
        v = w.exp()
        y = call(v, x)
        total = (y + v.sin() + call(v, y) * w).square().sum()
        found = []
        for inputs in ((v,), (w, v), (y,), (v, y, leaf), (leaf,)):
            found += torch.autograd.grad(total, inputs, retain_graph=True)
        total.backward(inputs=[leaf])
        return [*found, leaf.grad]

    same(uses(6), measure)


def test_operand_that_is_a_root() -> None:
    def measure(call: Function) -> list[Any]:
        leaf, x = numbers(13)
        w = leaf * 1.1
        torch.autograd.backward([call(w, x), w], [torch.full((13,), 0.3), x])
        return [leaf.grad]

    same(uses(6), measure)


class Doubled(torch.autograd.Function):
    """Gradients of it need not be laid out as usual."""

    @staticmethod
    def forward(ctx: Any, w: Any) -> Any:
        """Twice the tensor."""
        ctx.save_for_backward(w)
        return w * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """A transposed gradient."""
        (w,) = ctx.saved_tensors
        return (grad * 2 + w).t().contiguous().t()


@pytest.mark.parametrize("outside", ["function", "expanded", "float64", "checkpoint"])
def test_gradients_of_all_kinds_from_outside(outside: str) -> None:
    from flambeau.utils.checkpoint import checkpoint

    def other(w: Any) -> Any:
        if outside == "function":
            return Doubled.apply(w)
        if outside == "expanded":
            return w.sum() + w * 0
        if outside == "float64":
            return w.double().sin()
        return checkpoint(lambda w: (w * w).sin() + w, w, use_reentrant=False)

    def measure(call: Function) -> list[Any]:
        leaf, x = numbers(6, 5)
        w = leaf * 1.1
        y = call(w, x)
        found = squared(call(w, x * 2) + other(leaf), leaf)
        (y + other(w)).square().sum().backward()
        return [*found, leaf.grad]

    same(uses(6), measure)


def test_checkpointed_calls() -> None:
    from flambeau.utils.checkpoint import checkpoint

    for reentrant in (False, True):

        def measure(call: Function, reentrant: bool = reentrant) -> list[Any]:
            leaf, x = numbers(13)
            w = leaf * 1.1
            parts = [checkpoint(call, w, x * k, use_reentrant=reentrant) for k in (1, 2, 3)]
            sum([*parts, w.sin()]).square().sum().backward()
            return [leaf.grad]

        same(uses(6), measure)


def test_sparse_gradients_from_outside() -> None:
    """Their sums are made by the calls' own nodes, which also draw what they drew."""

    def function(w: Any, x: Any) -> Any:
        return F.dropout(uses(6)(w, x), 0.3)

    def measure(call: Function) -> list[Any]:
        leaf, x = numbers(6, 5)
        y = call(leaf, x)
        rows = torch.tensor([1, 4, 1, 0])
        total = (y * y).sum() + F.embedding(rows, leaf, sparse=True).square().sum()
        found = []
        for retain in (True, False):
            found.append(torch.autograd.grad(total, leaf, retain_graph=retain)[0].clone())
        with pytest.raises(RuntimeError, match="second time"):
            total.backward()
        return [*found, torch.rand(2)]

    same(function, measure)


def test_hooks_of_the_node_see_what_it_adds() -> None:
    compiled = torch.compile(uses(6))
    leaf, x = numbers(13)
    (alone,) = torch.autograd.grad(compiled(leaf, x).sum(), leaf)
    seen: list[Any] = []
    for factor in (None, 2.0, 0.0):
        w = leaf * 1.0
        y = compiled(w, x)

        def hook(inputs: Any, outputs: Any, factor: Any = factor) -> Any:
            seen.append(inputs[0].clone())
            if factor is None:
                return None
            return (inputs[0] * factor if factor else None, *inputs[1:])

        y.grad_fn.register_hook(hook)
        (found,) = torch.autograd.grad((y + w.sin()).sum(), w)
        if factor is None:
            w = leaf * 1.0
            expected = torch.autograd.grad((uses(6)(w, x) + w.sin()).sum(), w)[0]
        else:
            expected = w.cos() + alone * factor
        assert same_bits(found, expected)
    assert len(seen) == 3 and all(same_bits(g, alone) for g in seen)


@pytest.mark.parametrize("n", [1, 3, 6])
@pytest.mark.parametrize("kind", ["register_hook", "register_prehook"])
def test_hooks_of_the_node_under_create_graph(n: int, kind: str) -> None:
    """They are those of the node that the result has in eager mode."""

    def measure(call: Function) -> list[Any]:
        leaf, x = numbers(13)
        w = leaf * 1.1
        y = call(w, x)
        seen: list[Any] = []

        def hook(grads: Any, *_: Any) -> Any:
            first = next(k for k, grad in enumerate(grads) if grad is not None)
            seen.append(grads[first].detach().clone())
            return (*grads[:first], grads[first] * 0.9, *grads[first + 1 :])

        handle = getattr(y.grad_fn, kind)(hook)
        total = (y * y + w.sin()).sum()
        (slope,) = torch.autograd.grad(total, leaf, create_graph=True)
        found = torch.autograd.grad((slope * slope).sum() + total, leaf, retain_graph=True)
        handle.remove()
        found += torch.autograd.grad((slope * slope).sum() + total, leaf)
        return [slope.detach(), *found, *seen]

    same(uses(n), measure)


@pytest.mark.parametrize("n", [1, 3, 6])
def test_hooks_of_a_node_of_several_results_under_create_graph(n: int) -> None:
    """The node keeps them, and hands on the summands of its old tape."""

    def function(w: Any, x: Any) -> Any:
        return uses(n)(w, x), uses(2)(w, x).exp()

    def measure(call: Function) -> list[Any]:
        leaf, x = numbers(13)
        w = leaf * 1.1
        y, z = call(w, x)
        seen: list[Any] = []
        y.grad_fn.register_prehook(lambda grads: seen.append(grads))
        total = (y * z + w.sin()).sum()
        slopes = torch.autograd.grad(total, (leaf, w), create_graph=True)
        assert len(seen) == 1
        return [slope.detach() for slope in slopes]

    same(function, measure)


def test_gradients_of_gradients() -> None:
    def measure(call: Function) -> list[Any]:
        leaf, x = numbers(13)
        total = around(call, leaf * 1.1, x, "all").square().sum()
        (slope,) = torch.autograd.grad(total, leaf, create_graph=True)
        (slope.square().sum() + total).backward()
        return [slope.detach(), leaf.grad]

    same(uses(7), measure)


def test_backward_inside_of_a_hook_and_on_other_threads() -> None:
    compiled = torch.compile(uses(6))
    leaf, x = numbers(2000)
    w = leaf * 1.1
    total = (compiled(w, x) + compiled(w, x * 2) + w.sin()).square().sum()
    (expected,) = torch.autograd.grad(total, leaf, retain_graph=True)
    found: list[Any] = []

    def run(*_: Any) -> None:
        found.append(torch.autograd.grad(total, leaf, retain_graph=True)[0])

    workers = [threading.Thread(target=run) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    once = w.register_hook(lambda g: once.remove() or run())
    run()
    assert len(found) == 6 and all(same_bits(g, expected) for g in found)


def test_everything_is_freed() -> None:
    compiled = torch.compile(uses(6))

    def allocated() -> int:
        gc.collect()
        return int(_core.memory_stats()["allocated_bytes.all.current"])

    def once(sparse: bool) -> Any:
        leaf, x = numbers(30, 7)
        y = compiled(leaf, x)
        outside = F.embedding(torch.tensor([1, 2]), leaf, sparse=True) if sparse else leaf.sin()
        y.grad_fn.register_hook(lambda *_: None)
        (y.sum() + outside.sum() + compiled(leaf, y).sum()).backward()
        return weakref.ref(leaf), weakref.ref(y)

    for sparse in (False, True):
        once(sparse)
        before = allocated()
        for _ in range(3):
            assert [ref() for ref in once(sparse)] == [None, None]
        assert allocated() == before
