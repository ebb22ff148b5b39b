"""Small programs: the compiled result has the bits of the eager one."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch

F = torch.nn.functional


def _random(*shape: int, dtype: Any = torch.float32, grad: bool = False) -> Any:
    made = torch.randn(*shape).to(dtype)
    return made.requires_grad_() if grad else made


PROGRAMS = {
    "chain": lambda x: ((x * 2 + 1).tanh() - x).relu(),
    "softmax": lambda x: torch.softmax(x, -1).log(),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]) * x.sigmoid(),
    "two_results": lambda x: (x.exp().sum(0), x.cos().mean()),
    "matmul": lambda x: torch.softmax(x @ x.transpose(-1, -2), -1) @ x,
    "views": lambda x: x.t()[1:].flatten().unflatten(0, (-1, 2)) * 3,
    "cat": lambda x: torch.cat([x, x * 2, x[:1]], 0).sum(1),
    "where": lambda x: torch.where(x > 0, x * x, x.abs().sqrt()),
    "reductions": lambda x: x.var() + x.amax(1).sum() - x.std(0).mean() + x.norm(),
    "cumsum": lambda x: x.cumsum(0).flip(1) / 3,
    "half_way": lambda x: x.to(torch.bfloat16).square().to(torch.float32),
    "clone_and_write": lambda x: x.clone().mul_(2).add_(x),
    "sort": lambda x: x.sort(1).values * x.argsort(1),
    "dict": lambda x: {"a": x + 1, "b": [x.sin(), (x * 2,)]},
    "split": lambda x: [p * k for k, p in enumerate(x.split(2, 1))],
    "pad": lambda x: F.pad(x, (1, 2)).unfold(1, 3, 1).sum(-1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, dtype: Any, check: Any) -> None:
    torch.manual_seed(3)
    check(PROGRAMS[name], _random(6, 4, dtype=dtype, grad=True))
    check(PROGRAMS[name], _random(6, 4, dtype=dtype))


INTEGER_PROGRAMS = {
    "arithmetic": lambda x: (x * 3 - 1) // 2 % 5,
    "bits": lambda x: (x << 2 | 1) ^ (x & 6),
    "sum": lambda x: x.sum(1) + x.max(),
    "one_hot": lambda x: F.one_hot(x.remainder(5), 5).sum(0),
    "embedding": lambda x: torch.eye(5)[x.remainder(5)],
    "comparisons": lambda x: (x > 2) & (x < 9) | ~(x == 3),
    "bincount_like": lambda x: torch.zeros(5, dtype=torch.int64).scatter_add(
        0, x.flatten().remainder(5), torch.ones(x.numel(), dtype=torch.int64)
    ),
}


@pytest.mark.parametrize("name", INTEGER_PROGRAMS)
def test_integer_program(name: str, check: Any) -> None:
    torch.manual_seed(3)
    check(INTEGER_PROGRAMS[name], torch.randint(0, 12, (6, 4)))


def test_results_that_are_inputs_or_views_of_inputs(check: Any) -> None:
    x = _random(4, 3)
    check(lambda x: x, x)
    check(lambda x: (x, x * 1), x)
    check(lambda x: x.view(-1)[2:], x)
    check(lambda x: (x.t(), x.exp()), x)
    f = torch.compile(lambda x: x)
    assert f(x) is x
    g = torch.compile(lambda x: x.view(-1))
    assert g(x).data_ptr() == x.data_ptr()


def test_no_tensors_at_all(check: Any) -> None:
    assert torch.compile(lambda a, b: a + b)(1, 2) == 3
    check(lambda: torch.arange(5) * 2)


def test_loops_and_branches_of_python(check: Any) -> None:
    def program(x: Any, n: int) -> Any:
        for i in range(n):
            x = x + i if i % 2 else x * 1.5
        return x

    for n in range(4):
        check(program, _random(3, grad=True), n)


def test_branch_on_a_value(check: Any) -> None:
    def program(x: Any) -> Any:
        y = x.exp()
        if y.sum().item() > 5:
            return y * 2
        return y - 1

    check(program, torch.tensor([1.0, 2.0], requires_grad=True))
    check(program, torch.tensor([-1.0, -2.0], requires_grad=True))


def test_changed_numbers_do_not_compile_again() -> None:
    f = torch.compile(lambda x, a: (x * a).sin() + a)
    x = _random(5)
    for a in (0.5, 1.5, -3.0, 1e9):
        assert torch.equal(f(x, a), (x * a).sin() + a)
    assert torch._core.stream_stats()["builds"] == 1


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_sizes_that_computing_makes_one_stretch(stride: int) -> None:
    def function(x: Any, z: Any) -> Any:
        y = F.avg_pool1d(x, 2, stride)
        return torch.where(z > 0, y, z), y * z

    compiled = torch.compile(function)
    for width in (2, 4, 5, 2):
        x = torch.randn(5, width, requires_grad=True)
        count = (width - 2) // stride + 1
        z = torch.randn(count if count > 1 else 4, requires_grad=True)
        expected, found = function(x, z), compiled(x, z)
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
        wanted = torch.autograd.grad([e.sum() for e in expected], [x, z])
        made = torch.autograd.grad([f.sum() for f in found], [x, z])
        assert all(torch.equal(a, b) for a, b in zip(wanted, made, strict=True))


def test_numbers_that_vary_late_in_a_long_region() -> None:
    """The first trace ends where two sizes turn out equal; what comes later is new to the next."""

    def function(x: Any, y: Any, count: int) -> tuple[Any, Any]:
        z = x.reshape(-1) + y
        for _ in range(200):
            z = torch.sin(z) + 0.5
        part = z.narrow(0, 1, count)
        return part * 2, torch.arange(count) + part

    compiled = torch.compile(function)
    for rows, count in ((6, 5), (7, 9), (8, 11), (9, 12)):
        x, y = _random(rows, 4), _random(4 * rows)
        pairs = zip(compiled(x, y, count), function(x, y, count), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
