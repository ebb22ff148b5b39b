"""Lists and prints the block functions: one primitive each, on blocks of up to 1024 elements.

The list follows from the primitives' spellings and type rules: a new primitive has its block
functions by itself. The C text is made of the same expressions and helper functions as that of
kernels, so that both give the same bits. `tools/build_baseline.py` compiles it; nothing here runs
when a program does.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from flambeau.compiler.baseline.program import ENCODED
from flambeau.compiler.codegen.c.math import library
from flambeau.compiler.codegen.c.math.records import TRANSPOSED
from flambeau.compiler.codegen.c.printer.c_spelling import Spelled, Speller, spell
from flambeau.compiler.codegen.c.printer.c_types import HALVES, MEMORY_KIND, Lanes
from flambeau.compiler.codegen.c.template import SUFFIX, Template, Value, helpers
from flambeau.compiler.targets import Target
from flambeau.ir.dtypes import ITEM_SIZE, MINIFLOATS, NAMES
from flambeau.ir.kernel import reduced
from flambeau.ir.lock import importing
from flambeau.ir.spelling import FEW, MANY, SPELLINGS, spelling_of
from flambeau.prims.record import PRIMITIVES

INTERFACE = 3  # raised, with kBlockInterface of the core, when names, operands or numbers change
MASK_BITS = 32  # of bools in blocks
WIDTHS = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "u128"}
MOVES = (
    "gather", "scatter", "transpose", "take", "give", "gatherif", "takeif", "splat", "spread",
    "repeat",
)  # fmt: skip
_CONVERSIONS = ("cast", "bitcast")


class Signature(NamedTuple):
    """A primitive on some dtypes.

    Attributes:
        primitive: its name.
        operands: dtypes of its operands.
        result: dtype of its result.
    """

    primitive: str
    operands: tuple[str, ...]
    result: str

    @property
    def name(self) -> str:
        """The name of its block function."""
        return f"{self.primitive} {','.join(self.operands)}>{self.result}"


class Piece(NamedTuple):
    """A C text that defines functions of the library, and perhaps constants.

    Attributes:
        text: the definitions.
        functions: name in the table and name in C of each function; several names may share one.
        constants: likewise.
        cost: rough length of the code.
    """

    text: str
    functions: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, str], ...] = ()
    cost: int = FEW


@functools.cache
def sections(file: str) -> dict[str, Template]:
    """The templates of a file of this folder."""
    path = Path(__file__).parent / f"{file}{SUFFIX}"
    return helpers(path.name, path.read_text())


def symbol_of(name: str) -> str:
    """The C name of a block function. (Helper functions begin with `fb_`.)"""
    return "block_" + re.sub(r"\W+", "_", name)


# ------------------------------------------------------------------------------- the list


def _operand_dtypes() -> Iterator[tuple[str, ...]]:
    for dtype in NAMES:
        yield from ((dtype,) * count for count in (1, 2, 3))
    yield from (("bool", dtype, dtype) for dtype in NAMES if dtype != "bool")


def _result(primitive: str, operands: Sequence[str], constants: dict[str, str]) -> str | None:
    """The dtype of the result, or None if the primitive does not take these operands."""
    leaves = tuple(reduced(f"x{i}", dtype) for i, dtype in enumerate(operands))
    try:
        return PRIMITIVES[primitive].infer(leaves, constants)[0]
    except (TypeError, ValueError):
        return None


def _typed(primitive: str) -> Iterator[Signature]:
    """The signatures that the type rule of a primitive allows."""
    if primitive in _CONVERSIONS:
        for source, target in itertools.permutations(NAMES, 2):
            if _result(primitive, (source,), {"dtype": target}) is not None:
                yield Signature(primitive, (source,), target)
        return
    for operands in _operand_dtypes():
        result = _result(primitive, operands, {})
        if result is not None:
            yield Signature(primitive, operands, result)


@functools.cache
def signatures() -> tuple[Signature, ...]:
    """All primitives on all dtypes that C spells."""
    spelled = []
    for primitive in SPELLINGS:
        for signature in _typed(primitive):
            try:
                spell(*signature, Lanes(4, MASK_BITS))
            except NotImplementedError:
                continue
            spelled.append(signature)
    return tuple(spelled)


# ------------------------------------------------------------------------------- C


def lanes_of(dtypes: Sequence[str], target: Target) -> Lanes:
    """The lanes that the widest of some values allows."""
    return Lanes(target.lanes(max(ITEM_SIZE[dtype] for dtype in dtypes)), MASK_BITS)


def _pointwise(name: str, spelled: Spelled, lanes: Lanes, length: int) -> Piece:
    symbol = symbol_of(name)
    names: dict[str, Value] = {
        "symbol": symbol,
        "operands": [
            (letter, vector, one_of(vector), number)
            for number, (letter, vector) in enumerate(zip("abc", spelled.types), 1)
        ],
        "vector": spelled.type,
        "element": one_of(spelled.type),
        "text": spelled.text,
        "small": length < MANY,
        "lanes": lanes.count,
    }
    return Piece(sections("functions")["pointwise"].render(names), ((name, symbol),), cost=length)


def one_of(vector: str) -> str:
    """The type of an element of a vector."""
    return vector.rpartition("x")[0] + "x1"


def _rounds(signature: Signature, spelled: Spelled, lanes: Lanes) -> str | None:
    """The name of the function of float32 whose result this one rounds to a half type, or None."""
    half = signature.result
    if half not in HALVES or set(signature.operands) != {half}:
        return None
    single = Signature(signature.primitive, ("f32",) * len(signature.operands), "f32")
    rounded = Speller(lanes).round_half(spell(*single, lanes).text, half)
    return single.name if rounded == spelled.text else None


def _halves(signature: Signature, target: Target) -> list[Signature]:
    """The casts to and from float32 that a cast of an eight-bit float, or to a half type, is."""
    dtypes = (*signature.operands, signature.result)
    narrow = signature.result in HALVES or not MINIFLOATS.keys().isdisjoint(dtypes)
    if signature.primitive != "cast" or not narrow or "f32" in dtypes:
        return []
    halves = [Signature("cast", dtypes[:1], "f32"), Signature("cast", ("f32",), dtypes[1])]
    lanes = lanes_of(dtypes, target)
    inner, outer, both = (spell(*each, lanes).text for each in (*halves, signature))
    return halves if inner != "a" and re.sub(r"\ba\b", inner, outer) == both else []


def _halved(signature: Signature, symbols: Mapping[str, str], target: Target) -> Piece:
    """A cast that calls its halves, in place of some 1.5 KB of code."""
    spelled = spell(*signature, lanes_of((*signature.operands, signature.result), target))
    symbol = symbol_of(signature.name)
    first, second = (symbols[half.name] for half in _halves(signature, target))
    names: dict[str, Value] = {"symbol": symbol, "first": first, "second": second}
    names |= {"operand": one_of(spelled.types[0]), "element": one_of(spelled.type)}
    return Piece(sections("functions")["halved"].render(names), ((signature.name, symbol),))


def _function(signature: Signature, target: Target) -> Piece:
    lanes = lanes_of((*signature.operands, signature.result), target)
    spelled = spell(*signature, lanes)
    length = spelling_of(signature.primitive).length
    single = _rounds(signature, spelled, lanes) if length >= MANY else None
    if single is None:
        return _pointwise(signature.name, spelled, lanes, length)
    symbol = symbol_of(signature.name)
    names: dict[str, Value] = {
        "symbol": symbol,
        "exact": symbol_of(single),
        "text": Speller(lanes).round_half("a", signature.result),
        "lanes": lanes.count,
    }
    return Piece(sections("functions")["rounded"].render(names), ((signature.name, symbol),))


def _conversions(target: Target) -> Iterator[Piece]:
    """Between memory and value form."""
    lanes = lanes_of(("f32",), target)
    speller = Speller(lanes)
    for dtype in ENCODED:
        memory, value = f"{MEMORY_KIND[dtype]}x{lanes.count}", lanes.type(dtype)
        decoded = Spelled(speller.decode("a", dtype), (memory,), value, ())
        encoded = Spelled(speller.encode("a", dtype), (value,), memory, ())
        yield _pointwise(f"decode {dtype}", decoded, lanes, FEW)
        yield _pointwise(f"encode {dtype}", encoded, lanes, FEW)


def _moves() -> Iterator[Piece]:
    """Between memory and blocks, by width."""
    for width, kind in WIDTHS.items():
        lanes = max(1, 16 // width)
        common: dict[str, Value] = {
            "T": f"{kind}x1",
            "V": f"{kind}x{lanes}",
            "W": f"{kind}x{4 * lanes}",
            "lanes": lanes,
            "opaque": kind == "u128",
            "kind": kind,
            **TRANSPOSED,
            "fill": symbol_of(f"splat {width}"),
            "copy": symbol_of(f"gather {width}"),
        }
        functions = tuple((f"{move} {width}", symbol_of(f"{move} {width}")) for move in MOVES)
        texts = [
            sections("functions")[move].render({"symbol": symbol}, common)
            for move, (_, symbol) in zip(MOVES, functions)
        ]
        yield Piece("\n".join(texts), functions, cost=FEW * len(MOVES))


def _positions(target: Target) -> Piece:
    """Positions in memory, and their check."""
    functions = tuple((name, symbol_of(name)) for name in ("index", "check"))
    lanes = lanes_of(("i64",), target).count
    names: dict[str, Value] = {
        **dict(functions),
        "V": f"i64x{lanes}",
        "U": f"u64x{lanes}",
        "lanes": lanes,
        "numbers": ", ".join(map(str, range(lanes))),
    }
    return Piece(sections("functions")["positions"].render(names), functions)


def _merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Functions of the same text become one: values of half types are float32, say."""
    merged: dict[str, Piece] = {}
    for piece in pieces:
        [(_, symbol)] = piece.functions
        text = piece.text.replace(symbol, "")
        first = merged.get(text)
        if first is None:
            merged[text] = piece
            continue
        own = first.functions[0][1]
        names = (*first.functions, *((name, own) for name, _ in piece.functions))
        merged[text] = first._replace(functions=names)
    return list(merged.values())


def pieces(target: Target) -> list[Piece]:
    """Everything in the library of a target."""
    with importing:
        from flambeau.compiler.baseline.reductions import reductions

    halved = [signature for signature in signatures() if _halves(signature, target)]
    direct = [signature for signature in signatures() if signature not in halved]
    pointwise = (_function(signature, target) for signature in direct)
    merged = _merged(itertools.chain(pointwise, _conversions(target)))
    symbols = dict(entry for piece in merged for entry in piece.functions)
    merged += _merged(_halved(signature, symbols, target) for signature in halved)
    return [*merged, *_moves(), _positions(target), *reductions(target)]


# ------------------------------------------------------------------------------- units


def unit(parts: Sequence[Piece], target: Target) -> str:
    """A translation unit of some pieces."""
    body = "\n".join(piece.text for piece in parts)
    needed = library.definitions(library.calls_in(body), target)
    types = library.types_in(body).union(*(helper.types for helper in needed))
    return "\n".join([library.head(types), *(helper.text for helper in needed), body])


def table(parts: Sequence[Piece]) -> str:
    """The translation unit of the table that the library exports."""
    functions = [entry for piece in parts for entry in piece.functions]
    constants = [entry for piece in parts for entry in piece.constants]
    names: dict[str, Value] = {"entries": [*functions, *constants], "interface": INTERFACE}
    return library.head(frozenset()) + sections("functions")["table"].render(names)


def units(target: Target, count: int) -> list[str]:
    """The library of a target as translation units of about equal length, the table last."""
    everything = pieces(target)
    parts: list[tuple[int, list[Piece]]] = [(0, []) for _ in range(count)]
    for piece in sorted(everything, key=lambda each: -each.cost):
        least = min(range(count), key=lambda i: parts[i][0])
        length, part = parts[least]
        parts[least] = length + piece.cost, [*part, piece]
    return [*(unit(part, target) for _, part in parts), table(everything)]
