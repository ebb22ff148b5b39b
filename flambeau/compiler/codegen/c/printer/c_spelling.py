"""How C spells pointwise primitives: what this back end makes of the records' spellings.

What the records leave to the printer (casts, halves) is here. `spell` gives a primitive on some
dtypes and a lane count as an expression, with the helpers that it calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flambeau.compiler.codegen.c.math import library
from flambeau.compiler.codegen.c.printer.c_types import (
    HALVES,
    Lanes,
    dtype_class,
    kind_bits,
    signed_kind,
)
from flambeau.ir.dtypes import MINIFLOATS
from flambeau.ir.kernel import CONST, INDEX, KEPT, LOAD, REDUCED, SCALAR, reduced
from flambeau.ir.node import Node, node
from flambeau.ir.spelling import FEW, MANY, ONE, SPELLINGS, spelling_of

# Values that only kernels have.
_LENGTHS = {INDEX.name: FEW, **{form.name: ONE for form in (LOAD, CONST, REDUCED, KEPT, SCALAR)}}


def cost(node: Node) -> int:
    """Rough length of the code of one vector of this value."""
    spelling = SPELLINGS.get(node.op)
    if spelling is None:
        length = _LENGTHS.get(node.op, MANY)
        return 2 if length == ONE and node.dtype in HALVES else length
    if spelling.converts and (node.dtype in HALVES or node.inputs[0].dtype in HALVES):
        return 4
    return 2 if spelling.length == ONE and node.dtype in HALVES else spelling.length


def unsupported(op: str, dtype: str) -> NotImplementedError:
    """The error for what this back end does not spell."""
    return NotImplementedError(
        f"[codegen] the C printer has no {op!r} for {dtype}\n"
        f"hint: cast to another dtype, or write {op} in terms of other primitives"
    )


def resize_mask(expression: str, from_bits: int, to_bits: int, lanes: int) -> str:
    """A mask with elements of another width."""
    if from_bits == to_bits:
        return expression
    return f"fb_to_i{to_bits}x{lanes}({expression})"


@functools.lru_cache(maxsize=4096)
def _template(op: str, group: str, dtype: str) -> str:
    text = spelling_of(op).c.get(group)
    if text is None:
        raise unsupported(op, dtype)
    return text


@dataclass(frozen=True)
class Speller:
    """Spells pointwise values for one lane count."""

    lanes: Lanes

    def spell(self, node: Node, operands: list[str]) -> str:
        """C expression of a pointwise node; `operands` are names of its inputs' values."""
        special = _SPECIAL.get(node.op)
        text = None if special is None else special(self, node, operands)
        return self._from_template(node, operands) if text is None else text

    def _from_template(self, node: Node, operands: list[str]) -> str:
        first = node.inputs[0].dtype
        if first in MINIFLOATS:  # comparisons
            operands, first = [self.cast(x, first, "f32") for x in operands], "f32"
        template = _template(node.op, dtype_class(first), first)
        kind = self.lanes.kind(first)
        count = self.lanes.count
        values = dict(zip("abc", operands))
        text = template.lstrip("?").format(
            V=self.lanes.type(node.dtype),
            A=f"{kind}x{count}",
            I=f"{signed_kind(kind)}x{count}",
            L=f"x{count}",
            **values,
        )
        if template[0] == "?":
            bits = kind_bits(kind)
            return resize_mask(f"(i{bits}x{count})({text})", bits, self.lanes.mask_bits, count)
        if node.dtype in HALVES and not spelling_of(node.op).exact:
            return self.round_half(text, node.dtype)
        return text

    def round_half(self, expression: str, dtype: str) -> str:
        """A float32 value rounded to a half type, as float32."""
        suffix = f"u16x{self.lanes.count}"
        return f"fb_from{dtype}_{suffix}(fb_to{dtype}_{suffix}({expression}))"

    def _next(self, node: Node, operands: list[str]) -> str | None:
        dtype = node.inputs[0].dtype
        if dtype not in HALVES:
            return None
        return f"fb_next{dtype}_f32x{self.lanes.count}({operands[0]}, {operands[1]})"

    def _where(self, node: Node, operands: list[str]) -> str:
        bits = kind_bits(self.lanes.kind(node.dtype))
        mask = operands[0]
        if bits == 128:
            mask = resize_mask(mask, self.lanes.mask_bits, 64, self.lanes.count)
            name = f"fb_cselect_{self.lanes.type(node.dtype)}"
        else:
            mask = resize_mask(mask, self.lanes.mask_bits, bits, self.lanes.count)
            name = f"fb_select_{self.lanes.type(node.dtype)}"
        return f"{name}({mask}, {operands[1]}, {operands[2]})"

    def cast(self, value: str, source: str, target: str) -> str:
        """C expression of a conversion between element types."""
        if source == target:
            return value
        if "c" in (source[0], target[0]):
            raise unsupported(f"cast from {source}", target)
        count = self.lanes.count
        if source in MINIFLOATS:
            return self.cast(f"fb_from{source}_u8x{count}({value})", "f32", target)
        if target in MINIFLOATS:
            return f"fb_to{target}_u8x{count}({self.cast(value, source, 'f32')})"
        if "e2m1fnx2" in (source, target):
            raise unsupported(f"cast from {source}", target)
        kind, goal = self.lanes.kind(source), self.lanes.kind(target)
        if target == "bool":
            bits = kind_bits(kind)
            mask = f"(i{bits}x{count})fb_ne_x{count}({value}, 0)"
            return resize_mask(mask, bits, self.lanes.mask_bits, count)
        if target in HALVES:
            single = value if source in (*HALVES, "f32") else self.cast(value, source, "f32")
            return self.round_half(single, target)
        if source == "bool":
            value = f"({value} & 1)"
        elif kind[0] == "f" and goal[0] != "f":
            return self._float_to_int(value, kind, goal)
        return self._converted(value, kind, goal)

    def _converted(self, value: str, kind: str, goal: str) -> str:
        """A conversion by the compiler. GCC converts integers to elements of twice the width by one
        instruction, and to wider ones one by one: these are reached in steps.
        """
        count, bits, steps = self.lanes.count, kind_bits(kind), [goal]
        if count > 1 and (kind, goal) == ("f32", "f64"):
            return f"fb_widen_f64x{count}({value})"
        if count > 1 and kind[0] != "f":
            if goal[0] == "f" and bits < 32:
                steps = ["i32", goal]
            wider = [bits << i for i in (1, 2) if bits << i < kind_bits(steps[0])]
            steps = [*(f"{kind[0]}{width}" for width in wider), *steps]
        for step in steps if kind != goal else ():
            value = f"fb_to_{step}x{count}({value})"
        return value

    def _float_to_int(self, value: str, kind: str, goal: str) -> str:
        count = self.lanes.count
        if goal in ("u32", "u64"):
            return f"fb_tounsigned{goal[1:]}_{kind}x{count}({value})"
        # The low bits of the widened integer, as PyTorch; of a float32 beyond 2^31 they are 0.
        through = "64" if goal == "i64" or (goal == "u8" and kind == "f64") else "32"
        text = f"fb_toint{through}_{kind}x{count}({value})"
        return text if goal == f"i{through}" else f"fb_to_{goal}x{count}({text})"

    def _cast(self, node: Node, operands: list[str]) -> str:
        return self.cast(operands[0], node.inputs[0].dtype, node.dtype)

    def _bitcast(self, node: Node, operands: list[str]) -> str:
        value, source, target = operands[0], node.inputs[0].dtype, node.dtype
        count = self.lanes.count
        if source in HALVES:
            value = f"fb_to{source}_u16x{count}({value})"
        elif "bool" in (source, target):
            raise unsupported("bitcast", "bool")
        if target in HALVES:
            return f"fb_from{target}_u16x{count}(fb_as_u16x{count}({value}))"
        return f"fb_as_{self.lanes.type(target)}({value})"

    def decode(self, memory: str, dtype: str) -> str:
        """The value of a loaded element (or vector of elements)."""
        count = self.lanes.count
        if dtype == "bool":
            wide = self._converted(memory, "u8", self.lanes.mask)
            return f"(({self.lanes.mask}x{count})fb_ne_x{count}({wide}, 0))"
        if dtype in HALVES:
            return f"fb_from{dtype}_u16x{count}({memory})"
        return memory

    def encode(self, value: str, dtype: str) -> str:
        """Returns the stored form of a value."""
        count = self.lanes.count
        if dtype == "bool":
            return f"fb_to_u8x{count}({value} & 1)"
        if dtype in HALVES:
            return f"fb_to{dtype}_u16x{count}({value})"
        return value


# Primitives that need more than a template; None: a template does for these dtypes.
_SPECIAL: dict[str, Callable[[Speller, Node, list[str]], str | None]] = {
    "bitcast": Speller._bitcast,
    "cast": Speller._cast,
    "nextafter": Speller._next,
    "where": Speller._where,
}


class Spelled(NamedTuple):
    """A primitive in C.

    Attributes:
        text: an expression over `a`, `b`, `c`.
        types: C types of these operands.
        type: C type of the result.
        helpers: names of the helper functions in the text; `library.definitions` defines them.
    """

    text: str
    types: tuple[str, ...]
    type: str
    helpers: tuple[str, ...]


def spell(primitive: str, operands: Sequence[str], result: str, lanes: Lanes) -> Spelled:
    """How C computes a pointwise primitive.

    Args:
        primitive: its name.
        operands: the dtypes of its operands.
        result: the dtype of its result.
        lanes: of the vectors; values of half types are float32, and bools masks (`c_types`).

    Raises:
        NotImplementedError: the C printer does not spell it for these dtypes.
    """
    leaves = [reduced(name, dtype) for name, dtype in zip("abc", operands)]
    value = node(primitive, leaves, (), result)
    text = Speller(lanes).spell(value, list("abc"[: len(leaves)]))
    types = tuple(lanes.type(dtype) for dtype in operands)
    return Spelled(text, types, lanes.type(result), library.calls_in(text))
