"""Programs run step by step; the origin of a NaN is found by it."""

from __future__ import annotations

import gc
import threading
import warnings

import pytest

import flambeau as torch
from flambeau import _core
from flambeau.compiler import nan_origin
from flambeau.compiler.stepping import Observer, watching
from flambeau.runtime import profile, settings
from tests.compiler.block_harness import bits

step, find_nan = torch.compiler.step, torch.compiler.find_nan
X = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.5]])
INF, NAN = float("inf"), float("nan")


def values_of(steps, word):
    return [s.values for s in steps if word in s.text]


# ------------------------------------------------------------------------------- step


def test_every_instruction_has_its_values():
    steps = list(step(torch.compile(lambda: X * 2 + 1)))
    assert [s.launch for s in steps] == [0] * len(steps)
    assert values_of(steps, "mul f32") == [[2.0, 4.0, 6.0, 0.0, 0.0, 1.0]]
    assert values_of(steps, "add f32") == values_of(steps, "store[")
    assert values_of(steps, "store[") == [[3.0, 5.0, 7.0, 1.0, 1.0, 2.0]]
    assert values_of(steps, "scalar") and {s.dtype for s in steps} == {"i64", "f32"}
    [product] = [s for s in steps if "mul f32" in s.text]
    assert (product.begin[-1], product.end[-1], product.chunk) == (0, 6, 0)


def test_steps_are_those_of_the_plan_s_text():
    with settings.override(TIER="baseline"):
        _core.plan_cache_clear()
        torch.softmax(X, -1)
        plan = newest(lambda p: p.name == "softmax")
        listed = [line.strip() for line in plan.text().splitlines()]
    steps = list(step(torch.softmax, X, -1))
    assert {s.plan for s in steps} == {"softmax"}
    assert all(s.text in listed for s in steps)
    assert [s.instruction for s in steps] == sorted(s.instruction for s in steps)
    assert values_of(steps, "reduce max") == [[3.0, 0.5]]


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: x.exp() * x.sin(), torch.arange(3000.0).reshape(3, 1000) / 999),
        (lambda x: torch.softmax(x, -1), torch.arange(3000.0).reshape(2, 1500) / 999),
        (lambda x: x.t().contiguous() + 1, torch.arange(3000.0).reshape(50, 60)),
        (lambda x: x.sum(0), torch.arange(3000.0).reshape(600, 5)),
        (lambda x: x.cumsum(0), torch.arange(3000.0).reshape(1500, 2)),
        (lambda x: x.to(torch.bfloat16) * 3, torch.arange(20000.0)),
        (lambda x: (x > 5).to(torch.int8), torch.arange(30.0)),
        (torch.compile(lambda x: (x * 2).relu().sum(-1)), torch.arange(30.0).reshape(3, 10)),
    ],
)
def test_the_stored_values_are_the_result(function, x):
    """Of all chunks and blocks, in whatever order; the bits are those of an ordinary run."""
    expected = function(x)
    results = []
    steps = list(step(lambda: results.append(function(x))))
    assert bits(results) == bits([expected])
    last = steps[-1].plan, steps[-1].launch
    stored = [
        element
        for s in steps
        if (s.plan, s.launch) == last and s.text.startswith("store")
        for element in s.values
    ]
    assert sorted(stored) == sorted(expected.reshape(-1).tolist())


def test_elements_of_blocks_and_chunks():
    steps = [s for s in step(torch.exp, torch.zeros(20000)) if "exp f32" in s.text]
    assert [s.begin for s in steps] == [(i,) for i in range(0, 20000, 1024)]
    assert steps[-1].end == (20000,) and sum(len(s.values) for s in steps) == 20000
    assert [s.chunk for s in steps] == sorted(s.chunk for s in steps) and steps[-1].chunk == 2
    columns = [s for s in step(lambda x: x.sum(0), torch.ones(100, 3)) if "columns" in s.text]
    assert columns[0].values is None and columns[-1].values == [100.0] * 3
    assert (columns[-1].begin, columns[-1].end) == ((0,), (3,))
    loads = [s for s in step(lambda x: x.sum(0), torch.ones(1000, 3)) if "load" in s.text]
    assert loads[0].begin == (0, 0) and loads[-1].end == (1000, 3)


def test_a_template_and_a_routine_are_one_step():
    steps = list(step(lambda x: (x @ x.t()).sort().values, X))
    [product] = [s for s in steps if s.text == "template product"]
    assert (product.plan, product.instruction, product.dtype) == ("matmul", -1, "f32")
    assert product.values == (X @ X.t()).reshape(-1).tolist()
    [routine] = [s for s in steps if s.text.startswith("routine sort")]
    assert routine.values[:4] == (X @ X.t()).sort().values.reshape(-1).tolist()


def test_gradients_and_streams():
    x = X.clone().requires_grad_()
    steps = list(step(lambda: (x * x).sum().backward()))
    assert "MulBackward" in {s.plan for s in steps} and x.grad.equal(2 * X)
    compiled = torch.compile(lambda x: (x + 1).exp().sum())
    assert {s.plan for s in step(compiled, X)} == {"stream"}


def test_halves_and_masks():
    steps = list(step(lambda x: torch.where(x > 1, x, -x), X.to(torch.float16)))
    assert values_of(steps, "gt f32,f32>bool") == [[False, True, True, False, False, False]]
    assert values_of(steps, "load")[0] == X.reshape(-1).tolist()
    assert "f16" in {s.dtype for s in steps if s.text.startswith("store")}


def newest(condition):
    plans = [p for p in gc.get_objects() if type(p) is _core.Plan and condition(p)]
    return max(plans, key=lambda plan: plan.id)


def test_a_plan():
    x = X.clone()
    torch.compile(lambda x: x.sin() * x)(x)
    steps = list(step(newest(lambda p: p.name == "stream"), x))
    assert values_of(steps, "store[") == [(x.sin() * x).reshape(-1).tolist()]
    torch.rand(3)
    with pytest.raises(NotImplementedError, match=r"\[step\] the plan .*\nhint: "):
        step(newest(lambda p: p.spec.generators))


def test_errors_leave_nothing_behind():
    class Fails(Observer):
        def instruction(self, *_):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), watching(Fails()):
        X.exp()
    assert X.exp().tolist()[1][0] == 1.0
    with pytest.raises(IndexError):
        list(step(lambda: X[torch.tensor([7])]))
    assert len(list(step(torch.exp, X))) > 2


def test_other_threads_and_profiles_are_as_ever():
    calls = []

    class Counts(Observer):
        def instruction(self, *_):
            calls.append(threading.get_ident())
            return True

    def others():
        torch.ones(2000, 2000).exp().sum()

    with watching(Counts()):
        thread = threading.Thread(target=others)
        thread.start()
        thread.join()
        with profile() as times:
            X.cos()
    assert set(calls) == {threading.get_ident()} and times is not None
    with profile() as times:
        X.cos()
    assert times and not settings.get("TIER") == "baseline"


def test_a_watch_ends():
    class Once(Observer):
        count = 0

        def instruction(self, *_):
            self.count += 1
            return False

    once = Once()
    with watching(once):
        X.exp()
        X.sin()
    assert once.count == 1


# ------------------------------------------------------------------------------- NaN


@pytest.mark.parametrize(
    ("function", "x", "expected"),
    [
        (lambda x: (x - 1).sqrt() * 2, [4.0, 0.0], ("sqrt", (1,), (-1.0,))),
        (lambda x: x / x, [[1.0, 2.0], [0.0, 0.0]], ("div", (2,), (0.0, 0.0))),
        (lambda x: x.sum(), [INF, *[0.0] * 2000, -INF], ("sum", (0,), ())),
        (lambda x: x.sum(0), [[0.0, INF], [1.0, -INF]], ("sum", (1,), ())),
        (lambda x: x.cumsum(0), [1.0, INF, -INF], ("cumsum", (2, 0), ())),
        (lambda x: torch.softmax(x, -1), [[1.0, 2.0], [INF, 0.0]], ("sub", (1, 0), (INF, INF))),
        (lambda x: x @ x, [[INF, 1.0], [0.0, -INF]], ("product", (1,), ())),
        (lambda x: x * 2, [NAN, 1.0], None),
        (lambda x: torch.where(x == 0, x, x / x), [1.0, 0.0], ("div", (1,), (0.0, 0.0))),
        (lambda x: x + 1, [1.0, 0.0], None),
        (torch.compile(lambda x: x.log() * 0), [1.0, 0.0], ("mul", (1,), (-INF, 0.0))),
    ],
)
def test_the_origin_of_a_nan(function, x, expected):
    origin = find_nan(function, torch.tensor(x))
    found = None if origin is None else (origin.primitive, origin.element, origin.operands)
    assert found == expected


def test_the_origin_in_a_long_program():
    def chain(x):
        for i in range(20):
            x = x * 2 - i
        y = torch.where(x == x[3], torch.zeros(()), x)
        return (y / y).cos().sum()

    x = torch.linspace(1, 2, 4000)
    origin = find_nan(chain, x)
    assert (origin.primitive, origin.element, origin.operands) == ("div", (3,), (0.0, 0.0))
    assert find_nan(torch.compile(chain), x).primitive == "div"


def message_of(function, *tensors):
    leaves = [x.clone().requires_grad_() for x in tensors]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError) as caught, torch.autograd.detect_anomaly():
            function(*leaves).sum().backward()
    return str(caught.value)


def test_anomaly_mode_names_primitive_and_element():
    x = torch.ones(2, 3)
    x[1, 2] = 0
    message = message_of(lambda x: x.sqrt() * 0, x)
    assert "Function 'SqrtBackward0' returned nan values in its 0th output." in message
    assert "The first is element (1, 2) of it. It arose in 'div' of 0, 0 at element (5)" in message
    message = message_of(torch.compile(lambda x: (x - 1).pow(0.5) * 0), torch.ones(3))
    assert "'PowBackward0' returned nan" in message and "It arose in 'div' of 0, 0" in message


def test_anomaly_mode_on_what_came_in():
    message = message_of(lambda x: x * NAN, torch.ones(3))
    assert "'MulBackward0' returned nan values in its 0th output." in message
    assert "No kernel made it: a saved value or an incoming gradient has NaN already." in message


def test_anomaly_mode_on_functions():
    class Divides(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return (grad - 1) / (grad - 1)

    message = message_of(Divides.apply, torch.ones(3))
    assert "'DividesBackward' returned nan" in message and "'div' of 0, 0" in message


def test_anomaly_mode_without_the_check():
    x = torch.zeros(2, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly(check_nan=False):
            (x.sqrt() * 0).sum().backward()
    assert x.grad.isnan().all() and not torch.is_anomaly_enabled()


def test_anomaly_mode_when_the_search_fails(monkeypatch):
    """The user's error stays that of the gradient."""

    def fails(function):
        raise NotImplementedError("[baseline] no block function")

    monkeypatch.setattr(nan_origin, "find_nan", fails)
    message = message_of(lambda x: x.sqrt() * 0, torch.tensor([4.0, 0.0]))
    assert "returned nan values in its 0th output. The first is element (1,) of it.\n" in message
