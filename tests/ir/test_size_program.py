"""Conditions, register programs and shape environments against brute force."""

from __future__ import annotations

import itertools
import pickle
import random

import pytest

from flambeau.ir import size
from flambeau.ir.size import Size, symbol
from flambeau.ir.size_program import (
    Condition,
    Opcode,
    Program,
    ShapeEnvironment,
    and_,
    eq,
    evaluate_condition,
    ge,
    gt,
    le,
    lower,
    lt,
    ne,
    not_,
    or_,
    run,
    stringify_condition,
    substitute_condition,
)
from flambeau.ir.size_text import parse_condition

A, B, C = symbol("a"), symbol("b"), symbol("c", minimum=2)
NAMES = {"a": A, "b": B, "c": C}
VALUES = [
    {"a": a, "b": b, "c": c} for a, b, c in itertools.product(range(5), range(5), range(2, 6))
]


def random_size(rng: random.Random, depth: int) -> Size:
    if depth == 0:
        return rng.choice((A, B, C, rng.randint(-4, 6)))
    left, right = random_size(rng, depth - 1), random_size(rng, depth - 1)
    divisor = rng.choice((2, 3, 4, C, 2 * C))
    return rng.choice(
        (
            left + right,
            size.sub(left, right),
            left * right,
            left // divisor,
            left % divisor,
            size.minimum(left, right),
            size.maximum(left, right),
        )
    )


def random_condition(rng: random.Random, depth: int) -> tuple[object, object]:
    """Return a condition and a function that computes it without simplification."""
    if depth == 0:
        build, plain = rng.choice(
            (
                (eq, lambda x, y: x == y),
                (ne, lambda x, y: x != y),
                (lt, lambda x, y: x < y),
                (le, lambda x, y: x <= y),
                (gt, lambda x, y: x > y),
                (ge, lambda x, y: x >= y),
            )
        )
        left, right = random_size(rng, rng.randint(0, 2)), random_size(rng, rng.randint(0, 2))
        return build(left, right), lambda v: plain(size.evaluate(left, v), size.evaluate(right, v))
    (one, plain_one), (two, plain_two) = (random_condition(rng, depth - 1) for _ in range(2))
    kind = rng.randrange(3)
    if kind == 0:
        return and_(one, two), lambda v: plain_one(v) and plain_two(v)
    if kind == 1:
        return or_(one, two), lambda v: plain_one(v) or plain_two(v)
    return not_(one), lambda v: not plain_one(v)


@pytest.mark.parametrize("seed", range(20))
def test_conditions_keep_their_truth(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(25):
        condition, plain = random_condition(rng, rng.randint(0, 2))
        for values in VALUES:
            assert evaluate_condition(condition, values) == plain(values), (condition, values)
        assert parse_condition(stringify_condition(condition), NAMES) is condition


@pytest.mark.parametrize("seed", range(10))
def test_programs_compute_the_same(seed: int) -> None:
    rng = random.Random(seed)
    outputs = [random_size(rng, rng.randint(0, 4)) for _ in range(20)]
    conditions = [random_condition(rng, 2)[0] for _ in range(10)]
    outputs += [condition for condition in conditions if isinstance(condition, Condition)]
    instructions, registers = lower(outputs, ["a", "b", "c"])
    assert len(set(instructions)) == len(instructions)
    for index, (opcode, a, b) in enumerate(instructions):
        if opcode != Opcode.CONST:
            assert 0 <= a < index + 3 and 0 <= b < index + 3
    for values in VALUES:
        computed = run(instructions, [values[name] for name in ("a", "b", "c")])
        for output, register in zip(outputs, registers):
            if isinstance(output, Condition):
                assert computed[register] == int(evaluate_condition(output, values))
            else:
                assert computed[register] == size.evaluate(output, values)


def test_program_is_incremental_and_shares() -> None:
    program = Program(["a", "b"])
    assert program.register(A) == 0 and program.register(B) == 1
    first = program.register(A * B + 4)
    count = len(program)
    assert program.register(4 + B * A) == first and len(program) == count
    program.register(eq(A * B + 4, 8))
    with pytest.raises(KeyError, match="c is not an input"):
        program.register(C)
    with pytest.raises(OverflowError):
        program.register(1 << 63)
    assert run([(Opcode.NOT, 0, 0)], [0]) == [0, 1]


def test_conditions_are_canonical() -> None:
    assert eq(2 * A, 2 * B) is eq(B, A)
    assert eq(A + 3, 5) is eq(A, 2) and str(eq(A, 2)) == "a == 2"
    assert str(lt(A, B)) == "a < b" and str(ge(A, 3)) == "3 <= a" and str(lt(A, 5)) == "a <= 4"
    assert str(le(2 * A, 2 * B + 1)) == "a <= b"
    assert eq(C, 1) is False and ge(C, 2) is True and ne(2 * A, 2 * B + 1) is True
    assert not_(lt(A, B)) is le(B, A) and not_(not_(eq(A, B))) is eq(A, B)
    assert and_() is True and or_() is False and and_(eq(A, B), ne(A, B)) is False
    assert or_(eq(A, B), ne(A, B)) is True
    assert and_(eq(A, B), lt(A, 3), eq(B, A)) is and_(lt(A, 3), eq(A, B))
    both = and_(eq(A, B), lt(A, C))
    assert stringify_condition(both, "c") == "(a < c) && (a == b)"
    assert pickle.loads(pickle.dumps(both)) is both
    assert substitute_condition(both, {"a": 1, "b": 1}) is True
    with pytest.raises(TypeError, match="truth"):
        bool(both)
    with pytest.raises(ValueError, match="condition"):
        parse_condition("a < b < c")


def test_environment_records_guards() -> None:
    env = ShapeEnvironment()
    n, m = env.create_symbol(8, "n"), env.create_symbol(4, "m")
    assert env.truth(gt(n, m)) is True and env.truth(lt(m, n)) is True
    assert env.truth(ge(n, m)) is True and env.truth(eq(n, m)) is False
    assert list(map(str, env.guards)) == ["m < n"]
    assert env.truth(eq(n, 2 * m)) is True
    assert env.resolve(n + 1) == 2 * m + 1 or env.resolve(m) == n
    assert env.hint(n * m) == 32 and env.inputs == ["n", "m"]
    assert all(evaluate_condition(guard, env.hints) for guard in env.guards)
    with pytest.raises(ValueError, match="exists"):
        env.create_symbol(3, "n")


def test_environment_specialises() -> None:
    env = ShapeEnvironment()
    assert env.create_symbol(1, "p", specialise=True) == 1
    assert env.create_symbol(0, "q", specialise=True) == 0
    r = env.create_symbol(5, "r", specialise=True)
    assert list(map(str, env.guards)) == ["p == 1", "q == 0"]
    assert env.truth(eq(r, 1)) is False and env.truth(gt(r, 0)) is True
    assert len(env.guards) == 2
    assert env.specialise(r) == 5 and env.resolve(r * 2) == 10


def test_environment_unifies_and_drops_implied_guards() -> None:
    env = ShapeEnvironment()
    a, b, c = (env.create_symbol(6, name) for name in ("u", "v", "w"))
    assert env.truth(ge(a, 2)) and env.truth(ge(a, 4))
    assert list(map(str, env.guards)) == ["4 <= u"]
    assert env.truth(ge(a, 3)) and len(env.guards) == 1
    assert env.truth(eq(a, b)) and env.truth(eq(b, c)) and env.truth(eq(a, c))
    assert env.resolve(c) == env.resolve(b) == env.resolve(a) == a
    assert len(env.guards) == 3
    assert env.truth(eq(a % 3, 0)) and env.resolve(c % 3) == 0
    assert env.truth(eq(a, 6)) and env.resolve(b * c) == 36
    assert env.truth(ne(b, 0)) is True


def test_replacements_never_weaken_what_divisions_rely_on() -> None:
    env = ShapeEnvironment()
    a = env.create_symbol(3, "a")
    c = env.create_symbol(3, "c", minimum=2)
    assert env.truth(eq(c, a)) and env.resolve(a) == c and env.resolve(c) == c
    assert env.truth(eq(c, a * a - 6)) and env.resolve(c // c) == 1


@pytest.mark.parametrize("seed", range(20))
def test_environment_is_sound(seed: int) -> None:
    """Where all guards hold, every answer the environment gave is the truth."""
    rng = random.Random(seed)
    hints = rng.choice(VALUES)
    env = ShapeEnvironment()
    for name, value in hints.items():
        env.create_symbol(value, name, minimum=2 if name == "c" else 0)
    asked = []
    for _ in range(8):
        condition, plain = random_condition(rng, rng.randint(0, 1))
        asked.append((condition, plain, env.truth(condition)))
        assert asked[-1][2] == plain(hints)
    resolved = [(s := random_size(rng, 3), env.resolve(s)) for _ in range(5)]
    for values in VALUES:
        if all(evaluate_condition(guard, values) for guard in env.guards):
            for condition, plain, answer in asked:
                assert plain(values) == answer, (condition, env.guards, values)
            for before, after in resolved:
                assert size.evaluate(before, values) == size.evaluate(after, values)


def test_a_register_equal_to_a_number_is_the_general_condition() -> None:
    """The short way for a symbol and a number gives what the long way gives."""
    for least in (-3, 0, 1, 2):
        for value in (-5, -3, -1, 0, 1, 2, 7):
            register = symbol(f"register_{least + 9}_{value + 9}", minimum=least)
            known = size.known_equal(register, value)
            general = eq(register * 2, value * 2) if known is None else known
            assert eq(register, value) is general
