"""Prints the block functions of reductions and scans, for every operation and dtype.

The order of additions is the canonical one (docs/design.md); the trees, the levels above blocks,
the order of floats and the values that change nothing are those of kernels. What differs from
kernels is that a value arrives block by block: running values are in a state between two calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from flambeau.compiler.baseline.functions import (
    MASK_BITS,
    Piece,
    lanes_of,
    sections,
    symbol_of,
)
from flambeau.compiler.codegen.c.printer.c_forms import CANONICAL_LANES, Accumulation
from flambeau.compiler.codegen.c.printer.c_reductions import combine, identity
from flambeau.compiler.codegen.c.printer.c_spelling import Speller
from flambeau.compiler.codegen.c.printer.c_types import HALVES, Lanes, kind_bits, signed_kind
from flambeau.compiler.codegen.c.template import Value
from flambeau.compiler.targets import Target
from flambeau.ir.dtypes import NAMES
from flambeau.ir.kernel import REDUCE_BLOCK, REDUCTIONS, SCANS
from flambeau.ir.node import node
from flambeau.prims.record import PRIMITIVES

# Name in the table, section of the text, kind of the state that it declares.
_SUMS = (
    ("reducerows", "rows", ""),
    ("reduce", "reduce", "state"),
    ("reduced", "reduced", ""),
    ("columns", "columns", "columns"),
    ("columned", "columned", ""),
)
_EXTREMES = tuple((name, f"extreme_{section}", state) for name, section, state in _SUMS)
_POSITIONS = ("argmax", "argmin")  # scans that give the position of the running extreme
_LENGTH = 16  # rough length of the code of one function

Names = Mapping[str, Value]


class _Typed(NamedTuple):
    """An operation on a dtype.

    Attributes:
        operation: its name in kernels.
        dtype: of the values.
        lanes: of vectors.
        accumulation: how its values are accumulated.
    """

    operation: str
    dtype: str
    lanes: Lanes
    accumulation: Accumulation

    @property
    def vector(self) -> str:
        """The type of the running values of all lanes."""
        return f"{self.accumulation.kind}x{self.lanes.count}"

    @property
    def value(self) -> str:
        """The type of the values."""
        return f"{self.accumulation.value_kind}x{self.lanes.count}"

    def combine(self, a: str, b: str) -> str:
        """An expression of the operation on two running values."""
        return combine(self.operation, self.accumulation.kind, self.lanes.count, a, b)


def _dtypes(primitive: str, operands: int) -> Iterator[str]:
    """The dtypes that a primitive along an axis is defined for, without the complex ones."""
    for dtype in NAMES:
        x = node("k.load", (), (), dtype, (8,))
        try:
            PRIMITIVES[primitive].infer((x,) * operands, {"axis": 0})
        except (TypeError, ValueError):
            continue
        if dtype[0] != "c":  # their kernels reduce real and imaginary parts
            yield dtype


def _typed(operation: str, dtype: str, target: Target) -> _Typed:
    lanes = lanes_of((dtype,), target)
    return _Typed(operation, dtype, lanes, Accumulation.of(lanes, operation, dtype))


# ------------------------------------------------------------------------------- reductions


def _names(typed: _Typed, prefix: str) -> Names:
    """The values of the names in an operation's texts."""
    operation, dtype, lanes, accumulation = typed
    count, entered = lanes.count, accumulation.enter("v", lanes.count)
    position, best = signed_kind(accumulation.kind), "*best"
    better = f"b {'>' if operation == 'argmax' else '<'} {best}"
    if accumulation.kind[0] == "f":
        better = f"{best} == {best} && ({better} || b != b)"
    rounds = dtype in HALVES and not accumulation.ordered
    return {
        "prefix": prefix,
        "operation": operation,
        "T": f"{accumulation.kind}x1",
        "V": typed.vector,
        "P": f"{position}x{count}",
        "PT": f"{position}x1",
        "value": f"{accumulation.value_kind}x1",
        "vector": typed.value,
        "lanes": count,
        "vectors": CANONICAL_LANES // count,
        "last": CANONICAL_LANES // count - 1,
        "numbers": ", ".join(map(str, range(count))),
        "identity": accumulation.identity,
        "rounds": accumulation.rounds,
        "block": REDUCE_BLOCK,
        "block_mask": f"{REDUCE_BLOCK - 1}ll",
        "steps": [
            (u, u * count, _step(typed, f"a{u}", entered)) for u in range(CANONICAL_LANES // count)
        ],
        "pairs": [
            (u, u * count, _step(typed, f"a{u}", entered), _step(typed, f"b{u}", entered))
            for u in range(CANONICAL_LANES // count)
        ],
        "entered": entered,
        "better": better,
        "left": accumulation.leave("x", 1),
        "rounded": Speller(Lanes(1, MASK_BITS)).round_half("v", dtype) if rounds else "v",
        "added": _step(typed, "lane[u]", "y"),
        "joined": _step(typed, "sum[u]", "lane[u]"),
        "combined": _step(typed, "left", "right"),
    }


def _step(typed: _Typed, a: str, b: str) -> str:
    """Combines two values; positions of extremes are combined by their own texts."""
    return "" if typed.operation.startswith("arg") else typed.combine(a, b)


def _reduction(typed: _Typed) -> Piece:
    """All functions of a reduction on a dtype."""
    suffix = f"{typed.operation} {typed.dtype}"
    prefix = symbol_of(suffix)
    names = _names(typed, prefix)
    arg = typed.operation.startswith("arg")
    texts = [_render("extreme_lanes" if arg else "lanes", names)]
    functions: list[tuple[str, str]] = []
    constants: list[tuple[str, str]] = []
    for name, section, state in _EXTREMES if arg else _SUMS:
        symbol = symbol_of(f"{name} {suffix}")
        functions.append((f"{name} {suffix}", symbol))
        texts.append(_render(section, {**names, "symbol": symbol}))
        if state:
            texts.append(_state(name, suffix, f"{prefix}_{state}", constants))
    return Piece("\n".join(texts), tuple(functions), tuple(constants), _LENGTH * len(functions))


def _state(name: str, suffix: str, kind: str, constants: list[tuple[str, str]]) -> str:
    """The constant that holds the bytes of a state."""
    symbol = symbol_of(f"state {name} {suffix}")
    constants.append((f"state {name} {suffix}", symbol))
    return _render("state", {"symbol": symbol, "type": kind})


def _render(section: str, names: Names) -> str:
    return sections("reductions")[section].render({}, names)


# ------------------------------------------------------------------------------- scans


def _scan_step(operation: str, dtype: str, lanes: Lanes) -> str:
    """An expression of the new running value `a`, or of the mask of the lanes where `v` wins."""
    kind = lanes.kind(dtype)
    if operation == "linear":
        step = "next"
    elif operation in ("sum", "prod"):
        step = combine(operation, kind, lanes.count, "a", "v")
    else:
        mask = f"{signed_kind(kind)}x{lanes.count}"
        order = "ge" if operation.endswith("max") else "le"
        wins = f"({mask})fb_{order}_x{lanes.count}(v, a)"
        return f"{wins} | ({mask})fb_ne_x{lanes.count}(v, v)" if kind[0] == "f" else wins
    return Speller(lanes).round_half(step, dtype) if dtype in HALVES else step


def _scan(operation: str, dtype: str, target: Target) -> Piece:
    positions = operation in _POSITIONS
    name = "scanat" if positions else "scan"
    suffix = f"{operation} {dtype}"
    symbol, prefix = symbol_of(f"{name} {suffix}"), symbol_of(f"{name} {suffix}")
    most = lanes_of((dtype,), target)
    kind = most.kind(dtype)
    variants: list[Value] = []
    for lanes in (Lanes(1, MASK_BITS), most):
        vectors = [f"{each}x{lanes.count}" for each in (kind, f"i{kind_bits(kind)}", "i64")]
        variants.append([lanes.count, *vectors, _scan_step(operation, dtype, lanes)])
    names: Names = {
        "symbol": symbol,
        "prefix": prefix,
        "T": f"{kind}x1",
        "result": "i64x1" if positions else f"{kind}x1",
        "variants": variants,
        "most": most.count,
        "identity": identity("sum" if operation == "linear" else operation, kind),
        "linear": operation == "linear",
        "extreme": operation.endswith(("max", "min")),
        "positions": positions,
    }
    constants: list[tuple[str, str]] = []
    texts = [_render("scan", names), _state(name, suffix, f"{prefix}_scan", constants)]
    functions = ((f"{name} {suffix}", symbol),)
    return Piece("\n".join(texts), functions, tuple(constants), _LENGTH)


def reductions(target: Target) -> Iterator[Piece]:
    """The block functions of all reductions and scans."""
    for operation in REDUCTIONS:
        for dtype in _dtypes(operation, 1):
            yield _reduction(_typed(operation, dtype, target))
    for operation in SCANS:
        linear = operation == "linear"
        primitive = "linear_scan" if linear else f"cum{operation}"
        for dtype in _dtypes(primitive, 2 if linear else 1):
            yield _scan(operation, dtype, target)
    for operation in _POSITIONS:
        for dtype in _dtypes(f"cum{operation.removeprefix('arg')}", 1):
            yield _scan(operation, dtype, target)
