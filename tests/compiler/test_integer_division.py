"""Division of integers is exact and wraps, also where doubles would not do."""

from __future__ import annotations

import pytest

import flambeau as torch


def _edges(bits):
    top = 2 ** (bits - 1)
    found = {0, 1, 2, 3, 7, 1000, top - 1, top - 2, top // 2 + 1, -top, 1 - top}
    found |= {x + d for x in (2**52, 2**53, 2**31) for d in (-1, 0, 1) if x + d < top}
    return sorted(found | {-x for x in found if x > -top})


@pytest.mark.parametrize("bits", (32, 64))
def test_division_of_edges(bits):
    numbers = _edges(bits)
    pairs = [(a, b) for a in numbers for b in numbers if b]
    dtype = getattr(torch, f"int{bits}")

    def check(found, expected):
        wrapped = [(e + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) for e in expected]
        assert found.tolist() == wrapped

    for small in (False, True):  # whole vectors of small numbers take another way
        kept = [(a, b) for a, b in pairs if not small or max(abs(a), abs(b)) < 2**40]
        a = torch.tensor([p[0] for p in kept], dtype=dtype)
        b = torch.tensor([p[1] for p in kept], dtype=dtype)
        check(a // b, [x // y for x, y in kept])
        check(a % b, [x % y for x, y in kept])
        quotients = [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in kept]
        check(a.div(b, rounding_mode="trunc"), quotients)
        check(a.fmod(b), [x - q * y for (x, y), q in zip(kept, quotients)])
