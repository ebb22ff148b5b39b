"""The points that refute claims about sizes: inside of the symbols' ranges, values as defined."""

from __future__ import annotations

import random

import pytest

from flambeau.ir import size, size_core, size_points


def random_expression(rng, atoms):
    """Some polynomials, quotients, remainders, minima and maxima of the atoms."""
    value = rng.choice(atoms)
    for _ in range(rng.randrange(1, 5)):
        other = rng.choice([*atoms, rng.randrange(-3, 40)])
        operation = rng.choice(
            (size.add, size.sub, size.mul, size.minimum, size.maximum, size.floordiv, size.mod)
        )
        if operation in (size.floordiv, size.mod):
            other = size.maximum(1, other)
        value = operation(value, other)
    return value


@pytest.mark.parametrize("seed", range(60))
def test_values_are_those_of_evaluate(seed):
    rng = random.Random(seed)
    atoms = [size.symbol(f"p{seed}_{k}", minimum=k) for k in range(3)]
    expression = random_expression(rng, atoms)
    values = size_points._values(expression)
    for point in range(size_points.POINTS):
        known = {atom.name: size_points._values(atom)[point] for atom in atoms}
        assert values[point] == size.evaluate(expression, known)


def test_points_lie_in_the_range_of_a_symbol():
    length = size.symbol("length", minimum=2)
    loop = size.symbol("i_points", extent=length)
    for extent, index in zip(size_points._values(length), size_points._values(loop), strict=True):
        assert extent >= 2 and 0 <= index < extent
    none = size.symbol("j_points", minimum=3, extent=2)
    assert set(size_points._values(none)) == {None}
    assert not size_points.falls_below(none, 100)


def test_division_by_zero_is_outside_of_the_domain():
    divisor = size.symbol("zero_points")
    quotient = size.floordiv(size.symbol("x_points"), divisor)
    values = zip(size_points._values(divisor), size_points._values(quotient), strict=True)
    assert all((of is None) == (by == 0) for by, of in values)


@pytest.mark.parametrize("seed", range(200))
def test_answers_are_those_of_the_search(seed, monkeypatch):
    """What is refuted could not have been proven; what is proven is never refuted."""
    rng = random.Random(1000 + seed)
    length = size.symbol(f"q{seed}", minimum=1)
    atoms = [length, size.symbol(f"r{seed}"), size.symbol(f"i{seed}", extent=length)]
    claim = size.sub(random_expression(rng, atoms), random_expression(rng, atoms))
    found = size_core.is_non_negative(claim), size_core.is_positive(claim)
    monkeypatch.setattr(size_points, "falls_below", lambda a, limit: False)
    low = size_core.lower_bound(claim)
    assert found == (low is not None and low >= 0, low is not None and low >= 1)
