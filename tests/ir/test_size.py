"""The size algebra against brute force: every simplification must keep the value."""

from __future__ import annotations

import copy
import itertools
import pickle
import random

import pytest

from flambeau.ir import size, size_core
from flambeau.ir.size import Size, SizeExpr, symbol
from flambeau.ir.size_text import parse_size

S0 = symbol("s0", minimum=2)
S1 = symbol("s1", minimum=2)
X = symbol("x")
Y = symbol("y")
I0 = symbol("i0", extent=S0)
I1 = symbol("i1", extent=S1)
J4 = symbol("j4", extent=4)
N = symbol("n", minimum=-6)
SYMBOLS = (S0, S1, X, Y, I0, I1, J4, N)
NAMES = {atom.name: atom for atom in SYMBOLS}


def environments(rng: random.Random, count: int) -> list[dict[str, int]]:
    """Return assignments that respect the ranges of the symbols, small values and zeros first."""
    result = []
    for _ in range(count):
        values = {"s0": rng.randint(2, 7), "s1": rng.randint(2, 7)}
        values |= {"x": rng.choice((0, 1, rng.randint(0, 40))), "y": rng.randint(0, 9)}
        values |= {"i0": rng.randrange(values["s0"]), "i1": rng.randrange(values["s1"])}
        values |= {"j4": rng.randrange(4), "n": rng.randint(-6, 12)}
        result.append(values)
    return result


def random_tree(rng: random.Random, depth: int) -> str:
    """Return the text of a random expression, which Python evaluates without simplifying."""
    if depth == 0 or rng.random() < 0.1:
        return rng.choice((*NAMES, *NAMES, str(rng.randint(-3, 12))))
    left = random_tree(rng, depth - 1)
    operator = rng.choice(("+", "+", "-", "*", "*", "//", "//", "%", "%", "min", "max"))
    if operator in ("//", "%"):
        divisors = ("2", "3", "4", "6", "8", "12", "-3", "s0", "s1", "4*s0", "s0*s1", "x", "(s0-1)")
        right = rng.choice((*divisors, random_tree(rng, depth - 1)))
        return f"(({left}) {operator} ({right}))"
    right = random_tree(rng, depth - 1)
    if operator in ("min", "max"):
        return f"{operator}({left}, {right})"
    return f"({left} {operator} {right})"


def build(text: str) -> Size | None:
    try:
        return parse_size(text, NAMES)
    except ZeroDivisionError:
        return None


@pytest.mark.parametrize("seed", range(30))
def test_random_trees_keep_their_value(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        text = random_tree(rng, rng.randint(1, 4))
        expression = build(text)
        if expression is None:
            continue
        low, high = size.bounds(expression)
        for values in environments(rng, 12):
            try:
                expected = eval(text, {"min": min, "max": max}, dict(values))
            except ZeroDivisionError:
                continue
            assert size.evaluate(expression, values) == expected, (text, expression, values)
            assert low is None or low <= expected, (text, expression, values)
            assert high is None or high >= expected, (text, expression, values)
        assert parse_size(size.stringify(expression), NAMES) is expression or isinstance(
            expression, int
        ), (text, expression)


def c_value(text: str, values: dict[str, int]) -> int:
    """Evaluate C text: truncating division, ternaries, as a recursive-descent reading of it."""
    import ast
    import re

    while "?" in text:  # innermost ternary: all parts are parenthesised
        text = _ternary_to_python(text)
    assert not re.search(r"//", text)
    return _c_eval(ast.parse(text, mode="eval").body, values)


def _ternary_to_python(text: str) -> str:
    question = text.rindex("?")
    start, depth = question, 0
    while depth >= 0:
        start -= 1
        depth += {")": 1, "(": -1}.get(text[start], 0)
    colon, depth = question, 0
    while not (text[colon] == ":" and depth == 0):
        depth += {"(": 1, ")": -1}.get(text[colon], 0)
        colon += 1
    end, depth = colon, 0
    while depth >= 0:
        end += 1
        depth += {"(": 1, ")": -1}.get(text[end], 0)
    condition, then, other = (
        text[start + 1 : question],
        text[question + 1 : colon],
        text[colon + 1 : end],
    )
    choice = f"(({then.strip()}) if {condition.strip()} else ({other.strip()}))"
    return text[:start] + choice + text[end + 1 :]


def _c_eval(tree: object, values: dict[str, int]) -> int:
    import ast

    match tree:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(operand=operand):
            return -_c_eval(operand, values)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _c_eval(body if _c_eval(test, values) else orelse, values)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            a, b = _c_eval(left, values), _c_eval(right, values)
            return int(a < b if isinstance(op, ast.Lt) else a > b)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _c_eval(left, values), _c_eval(right, values)
            truncated = 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            results = {ast.Add: a + b, ast.Sub: a - b, ast.Mult: a * b, ast.Div: truncated}
            if b == 0 and type(op) in (ast.Div, ast.Mod):
                raise ZeroDivisionError
            return results.get(type(op), a - truncated * b)
    raise AssertionError(tree)


@pytest.mark.parametrize("seed", range(8))
def test_c_text_has_the_same_value(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        text = random_tree(rng, rng.randint(1, 3))
        expression = build(text)
        if expression is None:
            continue
        printed = size.stringify(expression, style="c")
        for values in environments(rng, 6):
            try:
                divisors = [size.evaluate(d, values) for d in all_divisors(expression)]
                expected = size.evaluate(expression, values)
            except ZeroDivisionError:
                continue
            if all(divisor > 0 for divisor in divisors):
                assert c_value(printed, values) == expected, (text, printed, values)


def all_divisors(expression: Size) -> list[Size]:
    found: list[Size] = []
    if isinstance(expression, SizeExpr):
        for monomial in expression.terms:
            for atom in monomial:
                if atom.kind in ("floordiv", "mod"):
                    found.append(atom.operands[1])
                for operand in atom.operands:
                    found += all_divisors(operand)
    return found


F = symbol("f", extent=S0 * S1 * 24)
H, W = S0 - 1, S1 - 1
A, B = symbol("a", extent=H), symbol("b", extent=W)
FLAT = X * H * W + A * W + B


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ((4 * X + J4) // 4, X),
        ((4 * X + J4) % 4, J4),
        ((4 * X + J4) // 8, X // 2),
        ((4 * X + J4) % 8, 4 * (X % 2) + J4),
        ((X * S0) // S0, X),
        ((X * S0) % S0, 0),
        ((X // 3) // 4, X // 12),
        ((X % S0) % S0, X % S0),
        ((X % 12) % 4, X % 4),
        ((X % 12) // 4, (X // 4) % 3),
        (J4 % 4, J4),
        (J4 // 4, 0),
        (S0 * (X // S0) + X % S0, X),
        ((S0 // 4) * (X // (S0 // 4)) + X % (S0 // 4), X),
        (8 * (X // 4) + X % 4, X + 4 * (X // 4)),
        ((I0 * S1 + I1) // S1, I0),
        ((I0 * S1 + I1) % S1, I1),
        ((I0 * S1 + I1) % S0, (I0 * S1 + I1) % S0),
        ((F // (24 * S1)) * 24 * S1 + ((F // 24) % S1) * 24 + F % 24, F),
        ((F // 24) // (S0 * S1), 0),
        (FLAT // (H * W), X),
        ((FLAT // W) % H, A),
        (FLAT % W, B),
        (size.ceildiv(4 * X, 4), X),
        (size.ceildiv(S0 * X, S0), X),
        (size.minimum(X, X + Y), X),
        (size.maximum(X, X + Y, 0), X + Y),
        (size.minimum(size.minimum(X, Y), X), size.minimum(Y, X)),
        ((X + 7) - X, 7),
        ((X + Y) * (X - Y), X * X - Y * Y),
        (size.prod([2, S0, 3, S1]), 6 * S0 * S1),
        (S0 // 1, S0),
        (0 // S0, 0),
        (1 // S0, 0),
        (X % 1, 0),
    ],
)
def test_simplification(actual: Size, expected: Size) -> None:
    assert actual == expected
    assert type(actual) is type(expected)


def test_division_by_a_symbol_that_may_be_zero_stays() -> None:
    kept = (Y + 1) // X
    assert isinstance(kept, SizeExpr) and kept.kind == "floordiv"
    assert size.evaluate(kept, {"x": 3, "y": 5}) == 2
    with pytest.raises(ZeroDivisionError):
        size.evaluate(kept, {"x": 0, "y": 5})
    with pytest.raises(ZeroDivisionError):
        X // 0


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ((Y * X) // X, Y),
        ((Y * X) % X, 0),
        ((64 * X * (Y // 16)) // (16 * X * (Y // 16)), 4),
        ((64 * X * (Y // 16)) % (16 * X * (Y // 16)), 0),
        ((X * X - Y * Y) // (X + Y), X - Y),
        ((6 * X * Y + 3 * X) // (9 * X * X), (2 * Y + 1) // (3 * X)),
        ((6 * X * Y + 3 * X) % (9 * X * X), 3 * X * ((2 * Y + 1) % (3 * X))),
        (0 // (X * Y), 0),
    ],
)
def test_factors_that_may_be_zero_cancel(actual: Size, expected: Size) -> None:
    """A quotient has no value where its divisor is 0, so the factor is another number."""
    assert actual == expected


def test_an_estimate_of_any_size_is_a_size() -> None:
    assert size.estimate((Y + 1) // X, {"y": 5}, 2) == 3
    assert size.estimate((Y + 1) // (X - 16), {}, 16) == 16  # 0 divides nothing
    assert size.estimate(X - 40, {}, 16) == 16
    assert size.estimate(7, {}, 16) == 7


def test_interning_copy_and_pickle() -> None:
    expression = (S0 * 3 + I1) // 4 + size.maximum(X, Y) % S1
    again = size.maximum(Y, X) % S1 + (I1 + 3 * S0) // 4
    assert expression is again and hash(expression) == hash(again)
    assert copy.deepcopy(expression) is expression
    assert pickle.loads(pickle.dumps(expression)) is expression
    assert type(S0 - S0) is int and S0 != S0 + 1


@pytest.mark.parametrize("divisor", [2, 3, 4])
def test_a_quotient_leaves_other_expressions_alone(divisor: int) -> None:
    """Positions counted from the end: on its way a quotient meets a part that it gives up."""
    for factor, less in itertools.product((17, 19), range(1, 18)):
        extent = divisor * factor * S0 - less
        position = extent - 1 - symbol("p", extent=extent)
        for values in ({"s0": 2, "p": 0}, {"s0": 3, "p": 11}):
            expected = (divisor * factor * values["s0"] - less - 1 - values["p"]) // divisor
            assert size.evaluate(position // divisor, values) == expected
    for identity, expression in size_core._SUMS.items():
        assert frozenset(expression.terms.items()) == identity


def test_a_caller_keeps_its_terms() -> None:
    terms = {(S0,): 11, (): 5}
    expression = size_core.from_terms(terms)
    terms.clear()
    assert expression is 11 * S0 + 5 and size.evaluate(expression, {"s0": 2}) == 27


def test_no_order_and_no_truth_value() -> None:
    with pytest.raises(TypeError):
        S0 < S1  # type: ignore[operator]  # noqa: B015
    with pytest.raises(TypeError, match="truth value"):
        bool(S0)
    with pytest.raises(TypeError):
        S0 * 1.0  # type: ignore[operator]


def test_text_does_not_depend_on_creation_order() -> None:
    late, early = symbol("q9"), symbol("q1")
    assert str(late * 2 + early + early * late - 4) == "q1*q9 + q1 + 2*q9 - 4"
    assert size.stringify((X + 3) // 4, style="c") == "(x + 3)/4"
    assert size.stringify(4 - X) == "4 - x"
    assert size.stringify(size.minimum(X, 4), style="c") == "((4) < (x) ? (4) : (x))"


@pytest.mark.parametrize("text", ["s0 / 2", "s0 ** 2", "f(s0)", "s0 < 2", "s0 +", "1.5", "True"])
def test_parse_is_strict(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


def test_substitute_also_in_extents() -> None:
    assert size.substitute((X + S0) // 4, {"x": 3, "s0": 9}) == 3
    assert size.substitute(S0 * X + I0, {"i0": Y}) == S0 * X + Y
    t = symbol("t")
    moved = size.substitute(I0, {"s0": t})
    assert moved == symbol("i0", extent=t)
    assert size.replace_atoms(X % 4 + X, {X % 4: 0}) == X  # type: ignore[dict-item]


def test_bounds_and_comparisons() -> None:
    assert size.bounds(J4 * 2 - 3) == (-3, 3)
    assert size.bounds(X, {"x": (2, 5)}) == (2, 5)
    assert size.bounds(X * Y - X, {"x": (1, 5), "y": (1, 3)}) == (0, 10)
    assert size.known_less(I0 * S1 + I1, S0 * S1) is True
    assert size.known_less(S0 * S1, I0 * S1 + I1) is False
    assert size.known_less(X, 8) is None
    assert size.known_less(X, 8, {"x": (0, 7)}) is True
    assert size.known_equal(2 * X, 2 * Y + 1) is False
    assert size.known_equal(X, Y) is None
    assert size.known_equal(S0, 1) is False
    assert size.simplify((X + 8 * Y) // 8, {"x": (0, 7)}) == Y
    assert size.simplify((X + S0 * Y) // S0, {"x": (0, S0 - 1)}) == Y
    assert size.lower_bound(X - 4 * (X // 4)) == 0
    assert size.upper_bound(X % 4) == 3


def test_affine() -> None:
    assert size.coefficient(4 * X * S0 + X + Y, "x") == 4 * S0 + 1
    assert size.coefficient(Y, "x") == 0
    assert size.coefficient(X * X, "x") is None
    assert size.coefficient(X // 2 + X, "x") is None
    assert size.affine_in(3 * X + S0 * Y + S1 + 2, ["x", "y"]) == ({"x": 3, "y": S0}, S1 + 2)
    assert size.affine_in(X * Y, ["x", "y"]) is None
    assert size.free_symbols((X + S0) // 4 + I0) == {"x", "s0", "i0"}
