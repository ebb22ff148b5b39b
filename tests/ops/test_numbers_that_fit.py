"""Numbers beside tensors: those that the result's dtype can not hold, and those from 2^63 on."""

from __future__ import annotations

import math

import pytest

import flambeau as torch
from flambeau.language.schema import ArgumentSpec

I8 = torch.ones(2, dtype=torch.int8)
MASK = torch.tensor([True, False])
FIRST = torch.tensor([0])
ZEROS = torch.zeros(2, dtype=torch.int64)

# dtype, numbers that it holds, numbers that it does not
RANGES = [
    (torch.int8, (127, -128, 126.5, -128.0, True), (128, -129, 127.5, math.nan, math.inf, 2**63)),
    (torch.uint8, (255, -255, -1, 255.0, 0.5), (256, -256, -0.5, 255.5, math.nan)),
    (torch.int32, (2**31 - 1, -(2**31)), (2**31, -(2**31) - 1, 2**40, 3e9)),
    (torch.int64, (2**63 - 1, -(2**63), 9.2e18), (2**63, 2**64 - 1, 9.3e18, -math.inf)),
    (torch.uint64, (2**63, 2**64 - 1, -1, 1e19), (1e20, -1.0, math.nan)),
    (torch.bool, (7, 2**63, math.nan, 0.5), ()),
    (torch.float16, (65504, math.inf, math.nan, -65504.0), (65505, 70000, -1e5, 2**63)),
    (torch.bfloat16, (3.38e38, math.inf), (3.4e38, 1e300)),
    (torch.float32, (3.4e38, -math.inf, math.nan, 2**64 - 1), (3.5e38, -1e300)),
    (torch.float64, (1e300, 2**63, math.inf), ()),
    (torch.complex64, (1e38, 1 + 1j, math.inf), (1e39, complex(0, 1e39))),
]


@pytest.mark.parametrize(("dtype", "inside", "outside"), RANGES, ids=[str(r[0]) for r in RANGES])
def test_full(dtype, inside, outside):
    for number in inside:
        result = torch.full((2,), number, dtype=dtype)
        assert result.dtype is dtype and result.shape == (2,)
        assert torch.zeros(2, dtype=dtype).fill_(number).view(torch.uint8).tolist() == (
            result.view(torch.uint8).tolist()
        )
    for number in outside:
        for call in (
            lambda: torch.full((2,), number, dtype=dtype),  # noqa: B023
            lambda: torch.zeros(2, dtype=dtype).fill_(number),  # noqa: B023
        ):
            with pytest.raises(RuntimeError, match="without overflow"):
                call()


@pytest.mark.parametrize(
    "call",
    [
        lambda n: torch.full_like(I8, n),
        lambda n: I8.new_full((2,), n),
        lambda n: torch.scalar_tensor(n, dtype=torch.int8),
        lambda n: I8.masked_fill(MASK, n),
        lambda n: I8.clone().masked_fill_(MASK, n),
        lambda n: I8.index_fill(0, FIRST, n),
        lambda n: I8.scatter(0, FIRST, n),
        lambda n: I8.scatter(0, FIRST, n, reduce="add"),
        lambda n: I8.clamp(n),
        lambda n: I8.clamp(max=n),
        lambda n: torch.clamp_min(I8, n),
        lambda n: torch.clamp_max(I8, n),
        lambda n: torch.add(I8, I8, alpha=n),
        lambda n: torch.sub(I8, 1, alpha=n),
        lambda n: torch.rsub(I8, I8, alpha=n),
        lambda n: I8.index_add(0, FIRST, I8[:1], alpha=n),
        lambda n: torch.nn.functional.pad(I8, (1, 1), value=n),
        lambda n: torch.nn.functional.threshold(I8, n, 0),
        lambda n: torch.linspace(0, n, 3, dtype=torch.int8),
        lambda n: torch.zeros(2, 2, dtype=torch.int8).fill_diagonal_(n),
        lambda n: torch.zeros(2, dtype=torch.int8).__setitem__(0, n),
    ],
)
def test_each_call_is_checked(call):
    """A number that fits first: the plan of the call is there, and the number is no part of it."""
    call(100)
    with pytest.raises(RuntimeError, match="without overflow"):
        call(300)
    call(99)


def test_what_wraps():
    """Operands promote, and wrap as conversions do."""
    assert (I8 + 300).tolist() == [45, 45]
    assert I8.clone().add_(300).tolist() == [45, 45]


def test_integers_from_two_to_the_63():
    assert (ZEROS + 2**63).tolist() == [-(2**63)] * 2
    assert (2**63 - (ZEROS + 1)).tolist() == [2**63 - 1] * 2
    assert (ZEROS == 2**63).tolist() == [False, False]
    assert (ZEROS | (2**64 - 1)).tolist() == [-1, -1]
    assert (torch.zeros(2) + 2**63).tolist() == [2.0**63] * 2
    assert (torch.ones(2, dtype=torch.uint64) * (2**64 - 1)).tolist() == [2**64 - 1] * 2
    assert (torch.ones(2) * (2**64 - 1)).dtype is torch.float32
    assert torch.where(torch.ones(2) > 0, 2**63, torch.ones(2)).tolist() == [2.0**63] * 2
    assert torch.scalar_tensor(2**63).item() == 2.0**63
    assert (torch.ones(2).mul_(2**63) / 2**63).tolist() == [1.0, 1.0]
    for call in (lambda: torch.ones(2) + 2**64, lambda: ZEROS - (-(2**63) - 1)):
        with pytest.raises(OverflowError, match="64 bits"):
            call()


def test_they_compile():
    def step(x):
        return (x * 2**63).clamp(max=2**63) + 2**63 - 2**63

    compiled = torch.compile(step)
    x = torch.tensor([0.25, 3.0])
    assert compiled(x).tolist() == step(x).tolist()


def test_real_numbers_written_as_complex():
    assert torch.ones(2).fill_(2 + 0j).tolist() == [2.0, 2.0]
    assert I8.masked_fill(MASK, 2.5).tolist() == [2, 1]
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.ones(2).fill_(2 + 1j)
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.ones(2).masked_fill(MASK, torch.tensor(2j))


def test_masked_median_of_integers():
    """No NaN marks what is left out; the lower of two middle ones, as of all elements."""
    x = torch.tensor([[3, 1, 2], [9, 7, 8]])
    mask = torch.tensor([[True, False, True], [True, True, True]])
    assert torch.masked.median(x, 1, mask=mask).tolist() == [2, 8]
    assert torch.masked.median(x.to(torch.int8), 1, mask=mask).dtype is torch.int8
    with pytest.raises(ValueError, match="masked as a whole"):
        torch.masked.median(x, 1, mask=torch.zeros(2, 3, dtype=torch.bool))


def test_exponents_of_integers():
    assert (I8**127).tolist() == [1, 1]
    for call in (lambda: I8**300, lambda: I8.clone().pow_(300), lambda: ZEROS**2**63):
        with pytest.raises(RuntimeError, match="without overflow"):
            call()


def test_bounds_of_random_numbers():
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.ones(2).uniform_(0, 1e39)
    assert torch.ones(2).double().uniform_(0, 1e39).max() > 1e30


def test_a_definition_may_not_check_more_numbers_than_a_call_holds():
    number = ArgumentSpec("a", "Scalar", fits=True)
    with pytest.raises(TypeError, match="fits= names 5 arguments"):
        torch._core.Op("five", [((number,) * 5, lambda *numbers: None, ())])
