"""Optimizers: accuracy of a step, plans per class of parameter, options, schedules, state dicts."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest

import flambeau as torch
from flambeau import _core, optim

OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Adam": (optim.Adam, {}),
    "AdamW": (optim.AdamW, {"amsgrad": True}),
    "SGD": (optim.SGD, {"momentum": 0.9, "dampening": 0.1}),
    "Adagrad": (optim.Adagrad, {}),
}


def _parameters(count: int, shape: tuple[int, ...] = (3,)) -> list[Any]:
    made = [torch.randn(shape).requires_grad_() for _ in range(count)]
    for p in made:
        p.grad = torch.randn(shape)
    return made


def _builds() -> int:
    return int(_core.plan_cache_stats()["builds"])


def _ulps(a: Any, b: Any) -> int:
    """The largest distance of float32 numbers, counted in numbers between them."""
    words = [numpy.asarray(x, numpy.float32).view(numpy.int32).astype(numpy.int64) for x in (a, b)]
    return int(numpy.abs(words[0] - words[1]).max())


# ---------------------------------------------------------------------------------- accuracy


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.0), (0.3, 0.95)])
def test_adam_is_rounded_once(betas: tuple[float, float], decoupled: bool) -> None:
    """State and parameter are within one unit of the last place of the formula in double."""
    rng = numpy.random.default_rng(0)
    start = rng.uniform(1, 2, 500).astype(numpy.float32)
    p = torch.from_numpy(start.copy()).requires_grad_()
    decay = 0.01 if decoupled else 0.0
    optimizer = (optim.AdamW if decoupled else optim.Adam)([p], 0.01, betas, weight_decay=decay)
    first = second = numpy.zeros(500)
    for number in range(1, 5):
        grad = (rng.standard_normal(500) * 10.0 ** rng.integers(-3, 3, 500)).astype(numpy.float32)
        p.grad = torch.from_numpy(grad)
        before = p.detach().numpy().astype(float)
        optimizer.step()
        state = optimizer.state[p]
        first = first * betas[0] + grad.astype(float) * (1 - betas[0])
        second = second * betas[1] + grad.astype(float) ** 2 * (1 - betas[1])
        assert _ulps(state["exp_avg"].numpy(), first) <= 1
        assert _ulps(state["exp_avg_sq"].numpy(), second) <= 1
        scale = numpy.sqrt(second) / math.sqrt(1 - betas[1] ** number) + 1e-8
        after = before * (1 - 0.01 * decay) - 0.01 / (1 - betas[0] ** number) * first / scale
        assert _ulps(p.detach().numpy(), after) <= 1
        first = state["exp_avg"].numpy().astype(float)
        second = state["exp_avg_sq"].numpy().astype(float)


def test_dampening_is_rounded_once() -> None:
    p = torch.zeros(1, requires_grad=True)
    optimizer = optim.SGD([p], lr=1.0, momentum=0.5, dampening=0.999)
    for grad in (0.0, 1.0):
        p.grad = torch.tensor([grad])
        optimizer.step()
    assert _ulps(optimizer.state[p]["momentum_buffer"].numpy(), [1 - 0.999]) == 0


def test_complex_parameters_are_pairs_of_numbers() -> None:
    whole = torch.randn(4, dtype=torch.complex64).requires_grad_()
    parts = torch.view_as_real(whole.detach()).clone().requires_grad_()
    grad = torch.randn(4, dtype=torch.complex64)
    for cls, options in OPTIMIZERS.values():
        for p, g in ((whole, grad), (parts, torch.view_as_real(grad))):
            p.grad = g.clone()
            cls([p], lr=0.1, **options).step()
        assert torch.equal(torch.view_as_real(whole.detach()), parts.detach())


# ---------------------------------------------------------------------------------- lists


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_any_number_of_parameters_shares_plans(name: str) -> None:
    """No plan at the second step, nor for another number of parameters; bits of single ones."""
    cls, options = OPTIMIZERS[name]
    cls(_parameters(3), lr=0.1, **options).step()
    parameters = _parameters(200)
    copies = [p.detach().clone().requires_grad_() for p in parameters]
    before = _builds()
    many = cls(parameters, lr=0.1, **options)
    singles = [cls([p], lr=0.1, **options) for p in copies]
    for _ in range(3):
        many.step()
    assert _builds() == before
    for p, copy, single in zip(parameters, copies, singles, strict=True):
        copy.grad = p.grad
        for _ in range(3):
            single.step()
        assert torch.equal(p.detach(), copy.detach())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_first_and_second_compiled_step_are_one_program(name: str) -> None:
    cls, options = OPTIMIZERS[name]
    x, w = torch.randn(5, 3), torch.randn(3, 2).requires_grad_()
    twin = w.detach().clone().requires_grad_()
    compiled, eager = cls([w], lr=0.1, **options), cls([twin], lr=0.1, **options)

    def train(p: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        (x @ p).pow(2).sum().backward()
        optimizer.step()

    builds = []
    for _ in range(3):
        before = _core.stream_stats()["builds"]
        torch.compile(train)(w, compiled)
        builds.append(_core.stream_stats()["builds"] - before)
    assert builds == [1, 0, 0]
    for _ in range(3):
        train(twin, eager)
    assert torch.equal(w.detach(), twin.detach())


def test_norms_of_any_number_of_gradients_share_plans() -> None:
    clip = torch.nn.utils.clip_grad_norm_
    for norm_type in (2.0, math.inf, 3.0):
        clip(_parameters(3), 0.5, norm_type)
        clip(_parameters(30), 0.5, norm_type)
        parameters = _parameters(100)
        flat = torch.cat([p.grad for p in parameters])
        before = _builds()
        total = clip(parameters, 0.5, norm_type)
        assert _builds() == before
        torch.testing.assert_close(total, torch.linalg.vector_norm(flat, norm_type))
        scaled = torch.linalg.vector_norm(torch.cat([p.grad for p in parameters]), norm_type)
        torch.testing.assert_close(scaled, torch.tensor(0.5))


def test_gradients_of_several_dtypes_are_clipped() -> None:
    parameters = [*_parameters(2), torch.ones(3, dtype=torch.float64, requires_grad=True)]
    parameters[2].grad = torch.full((3,), 4.0, dtype=torch.float64)
    total = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    assert total.dtype == torch.float64
    squares = sum(p.grad.double().pow(2).sum() for p in parameters)
    torch.testing.assert_close(squares, torch.tensor(1.0, dtype=torch.float64), rtol=1e-5, atol=0)


# ---------------------------------------------------------------------------------- options

TENSOR_RATE = {"foreach": True, "lr": torch.tensor(0.1)}
REFUSED = [
    ("Adam", {"fused": True, "foreach": True}, RuntimeError, "cannot be `True` together"),
    ("SGD", {"fused": True, "differentiable": True}, RuntimeError, "does not support"),
    ("Adagrad", {"fused": True, "foreach": True}, RuntimeError, "cannot be `True` together"),
    ("AdamW", TENSOR_RATE, ValueError, "lr as a Tensor is not supported"),
    ("SGD", {"lr": torch.tensor([0.1, 0.2])}, ValueError, "Tensor lr must be 1-element"),
    ("Adam", {"betas": (torch.tensor(0.9), 0.99)}, ValueError, "both floats or both Tensors"),
]
REFUSED_AT_STEP = [
    ("Adam", {"capturable": True}, AssertionError, "must be on supported devices"),
    ("AdamW", {"foreach": True, "differentiable": True}, AssertionError, "don't support autograd"),
    ("SGD", {"differentiable": True}, RuntimeError, "leaf Variable that requires grad"),
    ("Adam", {"differentiable": True}, RuntimeError, "leaf Variable that requires grad"),
    ("Adagrad", {"differentiable": True}, RuntimeError, "leaf Variable that requires grad"),
]


@pytest.mark.parametrize(("name", "options", "error", "text"), REFUSED)
def test_options_are_refused(name: str, options: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        getattr(optim, name)(_parameters(1), **options)


@pytest.mark.parametrize(("name", "options", "error", "text"), REFUSED_AT_STEP)
def test_steps_are_refused(name: str, options: Any, error: Any, text: str) -> None:
    optimizer = getattr(optim, name)(_parameters(1), **options)
    with pytest.raises(error, match=text):
        optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_differentiable_steps(name: str) -> None:
    """The same numbers as an ordinary step, with gradients that fit finite differences."""
    cls, options = OPTIMIZERS[name]

    def trained(start: Any, grad: Any) -> Any:
        p = start.clone()
        p.retain_grad()
        optimizer = cls([p], lr=0.1, differentiable=True, weight_decay=0.01, **options)
        for scale in (1.0, 0.5):
            p.grad = grad * scale
            optimizer.step()
        return p

    start = torch.randn(3, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(trained, (start, grad))
    plain = start.detach().clone().requires_grad_()
    optimizer = cls([plain], lr=0.1, weight_decay=0.01, **options)
    for scale in (1.0, 0.5):
        plain.grad = grad.detach() * scale
        optimizer.step()
    torch.testing.assert_close(trained(start, grad).detach(), plain.detach())


def test_a_parameter_twice_warns() -> None:
    p = torch.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optimizer = optim.SGD([p, p], lr=0.1)
    p.grad = torch.ones(2)
    optimizer.step()
    torch.testing.assert_close(p.detach(), torch.full((2,), 0.8))
    with pytest.raises(ValueError, match="more than one parameter group"):
        optim.SGD([{"params": [p]}, {"params": [p]}], lr=0.1)


def test_a_wrapper_that_never_calls_init() -> None:
    class Wrapper(optim.Optimizer):
        def __init__(self, optimizer: Any) -> None:
            self.optimizer = optimizer

        def step(self, closure: Any = None) -> Any:
            return self.optimizer.step(closure)

    (p,) = _parameters(1)
    before = p.detach().clone()
    Wrapper(optim.SGD([p], lr=0.1)).step()
    torch.testing.assert_close(p.detach(), before - 0.1 * p.grad)


# ---------------------------------------------------------------------------------- state dicts


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_dicts_of_older_versions(name: str) -> None:
    """Options that a group lacks are those of then."""
    cls = OPTIMIZERS[name][0]
    parameters = _parameters(2)
    saved = cls(parameters, lr=0.1).state_dict()
    old = ("params", "lr", "betas", "eps", "weight_decay", "momentum", "dampening", "lr_decay")
    saved["param_groups"] = [
        {key: value for key, value in group.items() if key in old}
        for group in saved["param_groups"]
    ]
    loaded, fresh = cls(parameters, lr=0.3), cls(parameters, lr=0.1)
    loaded.load_state_dict(saved)
    loaded.step()
    del fresh.param_groups[0]["params"]
    for key, value in fresh.param_groups[0].items():
        assert (loaded.param_groups[0].get(key) or None) == (value or None)


def test_adamw_stays_decoupled() -> None:
    parameters = _parameters(1)
    optimizer = optim.AdamW(parameters)
    optimizer.load_state_dict(optim.Adam(parameters).state_dict())
    assert optimizer.param_groups[0]["decoupled_weight_decay"] is True


# ---------------------------------------------------------------------------------- schedules


def test_schedules_fill_a_tensor_rate() -> None:
    rate = torch.tensor(0.1)
    optimizer = optim.SGD(_parameters(1), lr=rate)
    schedule = optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    optimizer.step()
    schedule.step()
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate == 0.05
    assert schedule.base_lrs == [torch.tensor(0.1)]
    assert schedule.get_last_lr() == [torch.tensor(0.05)]


def test_a_closed_form_answers_step_with_an_epoch() -> None:
    class Quarter(optim.lr_scheduler.LRScheduler):
        def get_lr(self) -> list[float]:
            return [group["lr"] * 0.5 for group in self.optimizer.param_groups]

        def _get_closed_form_lr(self) -> list[float]:
            return [base * 0.25 for base in self.base_lrs]

    optimizer = optim.SGD(_parameters(1), lr=0.1)
    schedule = Quarter(optimizer)
    schedule.step(3)
    assert optimizer.param_groups[0]["lr"] == 0.025
    schedule.step()
    assert (optimizer.param_groups[0]["lr"], schedule.last_epoch) == (0.0125, 4)


def test_keys_of_a_schedule() -> None:
    schedule = optim.lr_scheduler.ExponentialLR(optim.SGD(_parameters(1), lr=0.1), 0.5)
    assert schedule.state_dict() == {
        "gamma": 0.5, "base_lrs": [0.1], "last_epoch": 0, "_step_count": 1, "_is_initial": False,
        "_get_lr_called_within_step": False, "_last_lr": [0.1],
    }  # fmt: skip
