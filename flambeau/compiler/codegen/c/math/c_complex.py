"""Complex arithmetic as arithmetic on real and imaginary parts, before a kernel is printed.

Kernels that only move complex numbers print them as opaque bits. Any other kernel is rewritten
here: a complex buffer becomes one of its component type, an element two neighbours in it, and
every complex value a pair of real ones. The formulas avoid overflow where the result has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from flambeau.compiler.codegen.c.printer.c_spelling import unsupported
from flambeau.ir import kernel as kernels
from flambeau.ir import size as sizes
from flambeau.ir.dtypes import PARTS
from flambeau.ir.kernel import Kernel, Pass, ReducePass, RowStores, ScanPass, Statement, Store
from flambeau.ir.node import Node, attributes, node, topological
from flambeau.ir.size import Size
from flambeau.ir.spelling import spelling_of

COMPONENT = PARTS
Pair = tuple[Node, Node]


def needs_lowering(kernel: Kernel) -> bool:
    """Whether the kernel computes with complex numbers, beyond moving them."""
    return any(
        not _moves(value)
        for value in topological(kernel.roots())
        if value.dtype in COMPONENT or any(i.dtype in COMPONENT for i in value.inputs)
    )


def _moves(value: Node) -> bool:
    """Whether a value is printed as opaque bits."""
    moving = (kernels.LOAD, kernels.CONST, kernels.KEPT)
    return "c" in spelling_of(value.op).c or any(form.matches(value) for form in moving)


def _op(name: str, *operands: Node, dtype: str | None = None) -> Node:
    return node(name, operands, (), dtype or operands[0].dtype)


def _like(x: Node, value: float) -> Node:
    return kernels.const(value, x.dtype)


def _add(a: Pair, b: Pair) -> Pair:
    return _op("add", a[0], b[0]), _op("add", a[1], b[1])


def _sub(a: Pair, b: Pair) -> Pair:
    return _op("sub", a[0], b[0]), _op("sub", a[1], b[1])


def _neg(a: Pair) -> Pair:
    return _op("neg", a[0]), _op("neg", a[1])


def _scale(a: Pair, factor: Node) -> Pair:
    return _op("mul", a[0], factor), _op("mul", a[1], factor)


def _mul(a: Pair, b: Pair) -> Pair:
    real = _op("sub", _op("mul", a[0], b[0]), _op("mul", a[1], b[1]))
    return real, _op("add", _op("mul", a[0], b[1]), _op("mul", a[1], b[0]))


def _choose(condition: Node, a: Pair, b: Pair) -> Pair:
    return _op("where", condition, a[0], b[0], dtype=a[0].dtype), _op(
        "where", condition, a[1], b[1], dtype=a[1].dtype
    )


def _div(a: Pair, b: Pair) -> Pair:
    """Smith's algorithm: scaled by the larger component of the divisor."""
    wide = _op("ge", _op("abs", b[0]), _op("abs", b[1]), dtype="bool")
    large = _op("where", wide, b[0], b[1], dtype=b[0].dtype)
    small = _op("where", wide, b[1], b[0], dtype=b[0].dtype)
    ratio = _op("div", small, large)
    scale = _op("add", large, _op("mul", small, ratio))
    first, second = (_op("where", wide, a[i], a[1 - i], dtype=a[0].dtype) for i in (0, 1))
    real = _op("div", _op("add", first, _op("mul", second, ratio)), scale)
    cross = _op("div", _op("sub", second, _op("mul", first, ratio)), scale)
    return real, _op("where", wide, cross, _op("neg", cross), dtype=real.dtype)


def _abs(a: Pair) -> Node:
    """hypot: infinite if a component is, even beside a NaN."""
    x, y = _op("abs", a[0]), _op("abs", a[1])
    large, small = _op("maximum", x, y), _op("minimum", x, y)
    ratio = _op("div", small, large)
    length = _op("mul", large, _op("sqrt", _op("add", _op("mul", ratio, ratio), _like(x, 1.0))))
    zero = _op("eq", large, _like(x, 0.0), dtype="bool")
    infinite = _op(
        "bitwise_or", _op("isinf", x, dtype="bool"), _op("isinf", y, dtype="bool"), dtype="bool"
    )
    length = _op("where", zero, large, length, dtype=x.dtype)
    return _op("where", infinite, _like(x, float("inf")), length, dtype=x.dtype)


def _exp(a: Pair) -> Pair:
    size = _op("exp", a[0])
    flat = _op("eq", a[1], _like(a[1], 0.0), dtype="bool")
    turned = _op("mul", size, _op("cos", a[1])), _op("mul", size, _op("sin", a[1]))
    return _choose(flat, (size, a[1]), turned)


def _log(a: Pair) -> Pair:
    return _op("log", _abs(a)), _op("atan2", a[1], a[0])


def _log_base(name: str) -> Callable[[Pair], Pair]:
    def rule(a: Pair) -> Pair:
        factor = 1.4426950408889634 if name == "log2" else 0.4342944819032518
        angle = _op("mul", _op("atan2", a[1], a[0]), _like(a[0], factor))
        return _op(name, _abs(a)), angle

    return rule


def _sqrt(a: Pair) -> Pair:
    half = _like(a[0], 0.5)
    sum_ = _op("add", _op("mul", _op("abs", a[0]), half), _op("mul", _abs(a), half))
    root = _op("sqrt", sum_)
    other = _op("div", _op("mul", _op("abs", a[1]), half), root)
    zero = _op("eq", root, _like(root, 0.0), dtype="bool")
    other = _op("where", zero, root, other, dtype=root.dtype)
    right = _op("ge", a[0], _like(a[0], 0.0), dtype="bool")
    real = _op("where", right, root, other, dtype=root.dtype)
    imaginary = _op("where", right, other, root, dtype=root.dtype)
    return real, _op("copysign", imaginary, a[1])


def _product(first: str, second: str, a: Pair) -> Node:
    return _op("mul", _op(first, a[0]), _op(second, a[1]))


def _sin(a: Pair) -> Pair:
    return _product("sin", "cosh", a), _product("cos", "sinh", a)


def _cos(a: Pair) -> Pair:
    return _product("cos", "cosh", a), _op("neg", _product("sin", "sinh", a))


def _sinh(a: Pair) -> Pair:
    return _product("sinh", "cos", a), _product("cosh", "sin", a)


def _cosh(a: Pair) -> Pair:
    return _product("cosh", "cos", a), _product("sinh", "sin", a)


def _tanh(a: Pair) -> Pair:
    """(tanh x (1 + t^2) + i t sech^2 x) / (1 + tanh^2 x t^2) with t = tan y; finite for large x."""
    slope, t = _op("tanh", a[0]), _op("tan", a[1])
    one, square = _like(t, 1.0), _op("mul", t, t)
    below = _op("add", one, _op("mul", _op("mul", slope, slope), square))
    inverse = _op("div", one, _op("cosh", a[0]))
    real = _op("div", _op("mul", slope, _op("add", one, square)), below)
    return real, _op("div", _op("mul", _op("mul", t, inverse), inverse), below)


def _tan(a: Pair) -> Pair:
    turned = _tanh((_op("neg", a[1]), a[0]))  # tan z = -i tanh(i z)
    return turned[1], _op("neg", turned[0])


def _pow(a: Pair, b: Pair) -> Pair:
    zero, one = _like(a[0], 0.0), _like(a[0], 1.0)
    base_zero, exponent_zero = _is_zero(a), _is_zero(b)
    power = _choose(base_zero, (zero, zero), _exp(_mul(b, _log(a))))
    return _choose(exponent_zero, (one, zero), power)


def _is_zero(a: Pair) -> Node:
    zeros = [_op("eq", x, _like(x, 0.0), dtype="bool") for x in a]
    return _op("bitwise_and", *zeros, dtype="bool")


def _one(a: Pair) -> Pair:
    return _like(a[0], 1.0), _like(a[0], 0.0)


def _expm1(a: Pair) -> Pair:
    half = _op("sin", _op("mul", a[1], _like(a[1], 0.5)))
    dip = _op("mul", _op("mul", half, half), _like(half, 2.0))
    real = _op("sub", _op("mul", _op("expm1", a[0]), _op("cos", a[1])), dip)
    return real, _exp(a)[1]


def _log1p(a: Pair) -> Pair:
    two, half = _like(a[0], 2.0), _like(a[0], 0.5)
    norm = _op("add", _op("mul", a[0], _op("add", a[0], two)), _op("mul", a[1], a[1]))
    angle = _op("atan2", a[1], _op("add", a[0], _like(a[0], 1.0)))
    return _op("mul", _op("log1p", norm), half), angle


def _roots(a: Pair) -> tuple[Pair, Pair]:
    """sqrt(1 - z) and sqrt(1 + z): the inverse functions' branch cuts are theirs (Kahan 1987)."""
    one = _one(a)
    return _sqrt((_op("sub", one[0], a[0]), _op("neg", a[1]))), _sqrt(
        (_op("add", one[0], a[0]), a[1])
    )


def _cross(a: Pair, b: Pair) -> Node:
    """The imaginary part of conj(a) b."""
    return _op("sub", _op("mul", a[0], b[1]), _op("mul", a[1], b[0]))


def _asin(a: Pair) -> Pair:
    less, plus = _roots(a)
    below = _op("sub", _op("mul", less[0], plus[0]), _op("mul", less[1], plus[1]))
    return _op("atan2", a[0], below), _op("asinh", _cross(less, plus))


def _acos(a: Pair) -> Pair:
    less, plus = _roots(a)
    half = _op("atan2", less[0], plus[0])
    return _op("add", half, half), _op("asinh", _cross(plus, less))


def _acosh(a: Pair) -> Pair:
    one = _one(a)
    less, plus = _sqrt(_sub(a, one)), _sqrt((_op("add", a[0], one[0]), a[1]))
    real = _op("add", _op("mul", less[0], plus[0]), _op("mul", less[1], plus[1]))
    half = _op("atan2", less[1], plus[0])
    return _op("asinh", real), _op("add", half, half)


def _atanh(a: Pair) -> Pair:
    one = _like(a[0], 1.0)
    size = _op("abs", a[0])  # the real part is odd: of a negative one, log1p would cancel
    gap, square = _op("sub", one, size), _op("mul", a[1], a[1])
    norm = _op("add", _op("mul", gap, gap), square)
    ratio = _op("div", _op("mul", size, _like(one, 4.0)), norm)
    turn = _op("sub", _op("mul", gap, _op("add", one, size)), square)
    angle = _op("atan2", _op("add", a[1], a[1]), turn)
    length = _op("mul", _op("log1p", ratio), _like(one, 0.25))
    return (
        _op("copysign", length, a[0]),
        _op("mul", angle, _like(one, 0.5)),
    )


def _turned(rule: Callable[[Pair], Pair]) -> Callable[[Pair], Pair]:
    """-i f(i z)."""

    def turned(a: Pair) -> Pair:
        result = rule((_op("neg", a[1]), a[0]))
        return result[1], _op("neg", result[0])

    return turned


RULES: dict[str, Callable[..., Pair]] = {
    "asin": _asin,
    "acos": _acos,
    "atan": _turned(_atanh),
    "asinh": _turned(_asin),
    "acosh": _acosh,
    "atanh": _atanh,
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "neg": _neg,
    "exp": _exp,
    "exp2": lambda a: _exp(_scale(a, _like(a[0], 0.6931471805599453))),
    "expm1": _expm1,
    "log": _log,
    "log2": _log_base("log2"),
    "log10": _log_base("log10"),
    "log1p": _log1p,
    "sqrt": _sqrt,
    "rsqrt": lambda a: _div(_one(a), _sqrt(a)),
    "sin": _sin,
    "cos": _cos,
    "tan": _tan,
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "sigmoid": lambda a: _div(_one(a), _add(_one(a), _exp(_neg(a)))),
    "pow": _pow,
}


def _equal(value: Node, a: Pair, b: Pair) -> Node:
    return _op("bitwise_and", *(_op(value.op, *parts, dtype="bool") for parts in zip(a, b)))


def _unequal(value: Node, a: Pair, b: Pair) -> Node:
    return _op("bitwise_or", *(_op(value.op, *parts, dtype="bool") for parts in zip(a, b)))


def _either(value: Node, a: Pair) -> Node:
    return _op("bitwise_or", *(_op(value.op, part, dtype="bool") for part in a))


def _cast_to_real(value: Node, a: Pair) -> Node:
    if value.dtype == "bool":
        return _op("bitwise_not", _is_zero(a))
    return _op("cast", a[0], dtype=value.dtype)


# Real results of complex operands: (value, the operands as pairs).
REAL_RULES: dict[str, Callable[..., Node]] = {
    "real": lambda value, a: a[0],
    "imag": lambda value, a: a[1],
    "abs": lambda value, a: _abs(a),
    "eq": _equal,
    "ne": _unequal,
    "isnan": _either,
    "isinf": _either,
    "cast": _cast_to_real,
}


def _constant(value: Node) -> Pair:
    part = COMPONENT[value.dtype]
    number = complex(kernels.decode_constant(value.attribute("value"), value.dtype))
    return kernels.const(number.real, part), kernels.const(number.imag, part)


def _result(value: Node) -> Pair:
    real, imaginary = (
        node(
            value.op,
            (),
            attributes(name=f"{value.attribute('name')}_{i}"),
            COMPONENT[value.dtype],
        )
        for i in (0, 1)
    )
    return real, imaginary


def _cast(value: Node, operand: Pair | Node) -> Pair:
    part = COMPONENT[value.dtype]
    if isinstance(operand, Node):
        return _op("cast", operand, dtype=part), kernels.const(0.0, part)
    return _op("cast", operand[0], dtype=part), _op("cast", operand[1], dtype=part)


# Complex results of leaves and of real operands: (value, its operands).
PAIR_RULES: dict[str, Callable[..., Pair]] = {
    kernels.CONST.name: _constant,
    **{form.name: _result for form in kernels.RESULTS},
    "cast": _cast,
    "complex": lambda value, real, imaginary: (real, imaginary),
    "where": lambda value, condition, a, b: _choose(condition, a, b),
}


class _Lowering:
    """Rewrites the values of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.pairs: dict[Node, Pair] = {}
        self.plain: dict[Node, Node] = {}
        for value in topological(kernel.roots()):
            if value.dtype in COMPONENT:
                self.pairs[value] = self._pair(value)
            else:
                self.plain[value] = self._real(value)

    def _operands(self, value: Node) -> list[Any]:
        return [self.pairs[i] if i.dtype in COMPONENT else self.plain[i] for i in value.inputs]

    def _real(self, value: Node) -> Node:
        operands = self._operands(value)
        if not any(i.dtype in COMPONENT for i in value.inputs):
            return node(value.op, operands, value.attributes, value.dtype)
        rule = REAL_RULES.get(value.op)
        if rule is None:
            raise unsupported(value.op, value.inputs[0].dtype)
        return rule(value, *operands)

    def _pair(self, value: Node) -> Pair:
        operands = self._operands(value)
        if kernels.LOAD.matches(value):
            return self._loads(value, operands)
        special = PAIR_RULES.get(value.op)
        if special is not None:
            return special(value, *operands)
        rule = RULES.get(value.op)
        if rule is None:
            raise unsupported(value.op, value.dtype)
        return rule(*operands)

    def _loads(self, value: Node, operands: list[Node]) -> Pair:
        index, masked = value.attribute("index"), bool(value.attribute("masked"))
        others = [x.attribute("value") for x in self._other(value)] if masked else ["0", "0"]
        real, imaginary = (
            kernels.load(
                value.attribute("parameter"),
                sizes.add(sizes.mul(index, 2), i),
                COMPONENT[value.dtype],
                operands[:-1] if masked else operands,
                operands[-1] if masked else None,
                others[i],
            )
            for i in (0, 1)
        )
        return real, imaginary

    def _other(self, value: Node) -> Pair:
        text = value.attribute("other")
        number = complex(kernels.decode_constant(text, value.dtype)) if "," in text else 0j
        part = COMPONENT[value.dtype]
        return kernels.const(number.real, part), kernels.const(number.imag, part)

    def stores(self, stores: Iterable[Store]) -> tuple[Store, ...]:
        """Two stores for each complex one."""
        lowered: list[Store] = []
        for parameter, index, value in stores:
            if value.dtype in COMPONENT:
                twice: Size = sizes.mul(index, 2)
                lowered += [(parameter, sizes.add(twice, i), self.pairs[value][i]) for i in (0, 1)]
            else:
                lowered.append((parameter, index, self.plain[value]))
        return tuple(lowered)

    def reductions(self, items: Iterable[kernels.Reduction]) -> tuple[kernels.Reduction, ...]:
        """Sums fall into two; other reductions of complex numbers do not."""
        lowered: list[kernels.Reduction] = []
        for name, operation, value in items:
            if value.dtype not in COMPONENT:
                lowered.append((name, operation, self.plain[value]))
                continue
            if operation != "sum":
                raise unsupported(f"reduction {operation}", value.dtype)
            lowered += [(f"{name}_{i}", operation, self.pairs[value][i]) for i in (0, 1)]
        return tuple(lowered)

    def statement(self, statement: Statement) -> Statement:
        """One statement, rewritten."""
        stores = self.stores(statement.stores)
        if isinstance(statement, RowStores):
            return RowStores(stores)
        if isinstance(statement, ScanPass):
            return ScanPass(self.reductions(statement.scans), stores)
        if isinstance(statement, ReducePass):
            return ReducePass(self.reductions(statement.reductions), stores)
        keeps: list[kernels.Keep] = []
        for name, value in statement.keeps:
            if value.dtype in COMPONENT:
                keeps += [(f"{name}_{i}", self.pairs[value][i]) for i in (0, 1)]
            else:
                keeps.append((name, self.plain[value]))
        return Pass(stores, self.reductions(statement.reductions), tuple(keeps))


def lower(kernel: Kernel) -> Kernel:
    """The kernel in real arithmetic; buffers keep their places and sizes."""
    lowering = _Lowering(kernel)
    parameters = tuple((COMPONENT.get(dtype, dtype), access) for dtype, access in kernel.parameters)
    body = tuple(lowering.statement(statement) for statement in kernel.body)
    return replace(kernel, parameters=parameters, body=body)
