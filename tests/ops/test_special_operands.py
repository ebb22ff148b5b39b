"""Infinities, NaN, zeros of both signs, mixed dtypes and numbers as operands, as in PyTorch."""

from __future__ import annotations

import math
from typing import Any

import pytest

import flambeau as torch

INF, NAN = math.inf, math.nan
F = torch.nn.functional


@pytest.mark.parametrize("function", [torch.quantile, torch.nanquantile])
@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ([3.0, INF, -INF], 0.3, -INF),
        ([3.0, INF, -INF], 0.75, NAN),
        ([1.0, 2.0, INF], 0.75, NAN),
        ([-INF, -INF, 1.0], 0.75, -INF),
        ([INF, INF], 0.5, NAN),
    ],
)
def test_quantile_of_infinities(function: Any, values: list[float], q: float, expected: float):
    result = function(torch.tensor(values, dtype=torch.float64), q).item()
    assert (math.isnan(result) and math.isnan(expected)) or result == pytest.approx(expected)


def test_mode_with_nan():
    assert math.isnan(torch.tensor([NAN, -1.0, 0.0]).mode().values.item())
    assert torch.tensor([NAN, -1.0, 0.0]).mode().indices.item() == 0
    assert torch.tensor([-1.0, NAN, 0.0]).mode().values.item() == -1.0
    assert torch.tensor([NAN, NAN, 1.0, 1.0]).mode().values.item() == 1.0
    assert torch.tensor([[NAN, 2.0], [1.0, 1.0]]).mode(dim=1).values.tolist()[1] == 1.0


def signs(x: torch.Tensor) -> list[bool]:
    return x.signbit().flatten().tolist()


@pytest.mark.parametrize("count", [1, 40])
def test_zeros_of_both_signs(count: int):
    """The first of equal operands is the result, for every length."""
    plus, minus = torch.zeros(count), -torch.zeros(count)
    for function in (torch.maximum, torch.minimum, torch.fmax, torch.fmin):
        assert signs(function(plus, minus)) == [False] * count
        assert signs(function(minus, plus)) == [True] * count
    for bound in (0.0, -0.0):
        for arguments in ((bound, bound), (bound, None), (None, bound)):
            assert signs(torch.clamp(minus, *arguments)) == [True] * count
            assert signs(torch.clamp(plus, *arguments)) == [False] * count
    for function in (F.relu, F.relu6, lambda x: F.hardtanh(x, 0.0, 1.0)):
        assert signs(function(minus)) == [True] * count
        assert signs(torch.compile(function)(minus)) == [True] * count


@pytest.mark.parametrize("name", ["max", "min"])
def test_extreme_is_the_element_at_its_index(name: str):
    x = torch.where(torch.rand(7, 50) < 0.5, 0.0, -0.0)
    for dim in (0, 1):
        values, indices = getattr(x, name)(dim)
        expected = x.gather(dim, indices.unsqueeze(dim)).squeeze(dim)
        assert signs(values) == signs(expected) == signs(x.select(dim, 0))


def test_operators_that_do_not_promote():
    f32, f64 = torch.ones(3), torch.ones(3, dtype=torch.float64)
    half, integers = f32.half(), torch.ones(3, dtype=torch.int64)
    for function in (torch.heaviside, torch.cross, torch.linalg.cross):
        for other in (f64, half, integers):
            with pytest.raises(RuntimeError, match="same dtype"):
                function(f32, other)
            with pytest.raises(RuntimeError, match="same dtype"):
                function(other, f32)
    for weight in (f64, half, integers):
        with pytest.raises(RuntimeError, match="same dtype"):
            torch.lerp(f32, f32, weight)
        with pytest.raises(RuntimeError, match="same dtype"):
            f32.clone().lerp_(f32, weight)
        with pytest.raises(RuntimeError, match="same dtype"):
            F.linear(torch.ones(3, 3), torch.ones(3, 3), weight)
    assert torch.lerp(f32, f32, torch.tensor(0.5, dtype=torch.float64)).dtype == torch.float32
    with pytest.raises(RuntimeError, match="Integer division"):
        torch.addcdiv(f32, integers, integers)


def test_result_dtypes_of_mixed_operands():
    f32, f64 = torch.ones(3), torch.ones(3, dtype=torch.float64)
    half, integers = f32.half(), torch.ones(3, dtype=torch.int64)
    for operands in ((integers, half, f32), (half, f64, integers), (f64, f32, f32)):
        dtype = torch.promote_types(
            torch.promote_types(operands[0].dtype, operands[1].dtype), operands[2].dtype
        )
        result = torch.addr(operands[0].expand(3, 3), operands[1], operands[2])
        assert result.dtype == dtype
        assert result.tolist() == [[2.0] * 3] * 3
    for a in (half, f32, f64):
        for b in (half, f32, f64, integers):
            assert F.huber_loss(a, b).dtype == a.dtype
    assert torch.kron(torch.ones((), dtype=torch.float64), f32).dtype == torch.float64
    with pytest.raises(NotImplementedError):
        F.huber_loss(integers, f32)


def test_numbers_as_operands():
    x = torch.tensor([1.0, 4.0])
    assert torch.add(7, 2).item() == 9
    assert torch.add(7, 2).dtype == torch.int64
    assert torch.add(7, 0.5, alpha=2).item() == 8.0
    assert torch.add(0.5, x, alpha=2).tolist() == [2.5, 8.5]
    assert torch.sub(7, x, alpha=2).tolist() == [5.0, -1.0]
    assert torch.mul(True, 3).dtype == torch.int64
    assert torch.mul(2, 1j).item() == 2j
    assert torch.div(7, 2).item() == 3.5
    assert torch.div(7, 2, rounding_mode="trunc").dtype == torch.int64
    assert torch.div(-7, torch.tensor([2]), rounding_mode="floor").tolist() == [-4]
    assert torch.floor_divide(9, x).tolist() == [9.0, 2.0]
    assert torch.floor_divide(9, 2).item() == 4
    assert torch.sub(1, x, out=torch.empty(2)).tolist() == [0.0, -3.0]
    for name in ("maximum", "fmod", "pow", "eq", "atan2", "hypot", "logical_and", "copysign"):
        with pytest.raises(TypeError):
            getattr(torch, name)(7, 2)


def test_numbers_as_operands_have_gradients():
    x = torch.tensor([1.0, 4.0], requires_grad=True)
    torch.add(0.5, x, alpha=3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_pad_takes_zero_as_value(mode: str):
    x = torch.arange(6.0).reshape(1, 1, 6)
    for value in (0, 0.0):
        assert torch.equal(F.pad(x, (1, 2), mode, value), F.pad(x, (1, 2), mode))
    with pytest.raises(RuntimeError, match="value"):
        F.pad(x, (1, 2), mode, 1.0)
