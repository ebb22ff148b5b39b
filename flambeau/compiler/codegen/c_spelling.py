"""How C spells every pointwise primitive: the dictionary by which this back end declares them.

An entry gives one template per class of the first operand's dtype ("f" float, "i" integer, "b"
bool mask, "c" complex bits; "where" goes by its result). In a template {a} {b} {c} are operands,
{V} the result's C type, {A} the first operand's, {I} its signed integer type, {L} "x<lanes>". A
template that begins with "?" gives a mask as wide as its first operand; the printer widens it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from flambeau.compiler.codegen.c_types import HALVES, Lanes, dtype_class, kind_bits, signed_kind
from flambeau.ir.node import Node

Templates = dict[str, str]


def _function(name: str) -> Templates:
    return {"f": f"fb_{name}_{{A}}({{a}})"}


def _function2(name: str) -> Templates:
    return {"f": f"fb_{name}_{{A}}({{a}}, {{b}})"}


def _comparison(name: str, of_bools: str) -> Templates:
    text = f"?fb_{name}_{{L}}({{a}}, {{b}})"
    return {"f": text, "i": text, "b": of_bools}


SPELLING: dict[str, Templates] = {
    name: _function(name)
    for name in (
        "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh "
        "atanh erf erfc erfinv lgamma digamma rsqrt sqrt sigmoid"
    ).split()
}
SPELLING |= {name: _function2(name) for name in ("atan2", "nextafter", "copysign")}
SPELLING |= {
    name: _function(function) | {"i": "{a}"}
    for name, function in (
        ("floor", "floor"), ("ceil", "ceil"), ("trunc", "trunc"), ("round", "rint")
    )
}  # fmt: skip
SPELLING |= {
    "neg": {"f": "-{a}", "i": "({V})(-{a})"},
    "abs": {"f": "fb_abs_{A}({a})", "i": "fb_iabs_{A}({a})", "b": "{a}"},
    "sign": {"f": "fb_sign_{A}({a})", "i": "fb_sign_{A}({a})", "b": "{a}"},
    "isnan": {"f": "?fb_ne_{L}({a}, {a})"},
    "isinf": {"f": "?fb_eq_{L}(fb_abs_{A}({a}), __builtin_inff())"},
    "signbit": {"f": "?fb_lt_{L}(fb_as_{I}({a}), 0)", "i": "?fb_lt_{L}({a}, 0)"},
    "bitwise_not": {"i": "({V})(~{a})", "b": "({V})(~{a})"},
    "add": {"f": "{a} + {b}", "i": "({V})({a} + {b})", "b": "({a} | {b})"},
    "sub": {"f": "{a} - {b}", "i": "({V})({a} - {b})"},
    "mul": {"f": "{a} * {b}", "i": "({V})({a} * {b})", "b": "({a} & {b})"},
    "div": {"f": "{a} / {b}"},
    "trunc_div": {"f": "fb_trunc_{A}({a} / {b})", "i": "fb_itruncdiv_{A}({a}, {b})"},
    "floor_div": {"f": "fb_floor_div_{A}({a}, {b})", "i": "fb_ifloordiv_{A}({a}, {b})"},
    "fmod": {"f": "fb_fmod_{A}({a}, {b})", "i": "fb_ifmod_{A}({a}, {b})"},
    "remainder": {"f": "fb_remainder_{A}({a}, {b})", "i": "fb_iremainder_{A}({a}, {b})"},
    "pow": {"f": "fb_pow_{A}({a}, {b})", "i": "fb_ipow_{A}({a}, {b})"},
    "maximum": {
        "f": "fb_select_{A}(({I})fb_gt_{L}({a}, {b}) | ({I})fb_ne_{L}({a}, {a}), {a}, {b})",
        "i": "fb_select_{A}(({I})fb_gt_{L}({a}, {b}), {a}, {b})",
        "b": "({a} | {b})",
    },
    "minimum": {
        "f": "fb_select_{A}(({I})fb_lt_{L}({a}, {b}) | ({I})fb_ne_{L}({a}, {a}), {a}, {b})",
        "i": "fb_select_{A}(({I})fb_lt_{L}({a}, {b}), {a}, {b})",
        "b": "({a} & {b})",
    },
    "eq": _comparison("eq", "({V})(~({a} ^ {b}))"),
    "ne": _comparison("ne", "({a} ^ {b})"),
    "lt": _comparison("lt", "({V})(~{a} & {b})"),
    "le": _comparison("le", "({V})(~{a} | {b})"),
    "gt": _comparison("gt", "({V})({a} & ~{b})"),
    "ge": _comparison("ge", "({V})({a} | ~{b})"),
    "bitwise_and": {"i": "({V})({a} & {b})", "b": "({a} & {b})"},
    "bitwise_or": {"i": "({V})({a} | {b})", "b": "({a} | {b})"},
    "bitwise_xor": {"i": "({V})({a} ^ {b})", "b": "({a} ^ {b})"},
    "shift_left": {"i": "fb_shl_{A}({a}, {b})"},
    "shift_right": {"i": "fb_shr_{A}({a}, {b})"},
    "where": {"f": "fb_select_{V}({a}, {b}, {c})", "i": "fb_select_{V}({a}, {b}, {c})",
              "b": "fb_select_{V}({a}, {b}, {c})", "c": "fb_select_{V}({a}, {b}, {c})"},
}  # fmt: skip

# Results on half types that are exact without rounding again.
_EXACT = frozenset(
    "neg abs sign maximum minimum floor ceil trunc round copysign where fmod".split()
)

# Work of one element, where it is not one instruction: decides whether loops are unrolled.
_CHEAP = frozenset(
    "neg abs add sub mul maximum minimum eq ne lt le gt ge bitwise_not bitwise_and bitwise_or "
    "bitwise_xor where k.load k.const k.reduced k.kept k.scalar isnan copysign".split()
)


def cost(node: Node) -> int:
    """Rough length of the code of one vector of this value."""
    if node.op == "cast":
        return 4 if node.dtype in HALVES or node.inputs[0].dtype in HALVES else 1
    if node.op in _CHEAP:
        return 2 if node.dtype in HALVES else 1
    if node.op in ("div", "sqrt", "round", "floor", "ceil", "trunc", "k.index", "bitcast"):
        return 2
    return 64


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
    found = SPELLING.get(op, {}).get(group)
    if found is None:
        raise unsupported(op, dtype)
    return found


@dataclass(frozen=True)
class Speller:
    """Spells pointwise values for one lane count."""

    lanes: Lanes

    def spell(self, node: Node, operands: list[str]) -> str:
        """C expression of a pointwise node; `operands` are names of its inputs' values."""
        if node.op == "cast":
            return self.cast(operands[0], node.inputs[0].dtype, node.dtype)
        if node.op == "bitcast":
            return self._bitcast(operands[0], node.inputs[0].dtype, node.dtype)
        if node.op == "where":
            return self._where(node, operands)
        first = node.inputs[0].dtype
        if node.op == "nextafter" and first in HALVES:
            return f"fb_next{first}_f32x{self.lanes.count}({operands[0]}, {operands[1]})"
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
        if node.dtype in HALVES and node.op not in _EXACT:
            return self.round_half(text, node.dtype)
        return text

    def round_half(self, expression: str, dtype: str) -> str:
        """A float32 value rounded to a half type, as float32."""
        suffix = f"u16x{self.lanes.count}"
        return f"fb_from{dtype}_{suffix}(fb_to{dtype}_{suffix}({expression}))"

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
        kind, wanted = self.lanes.kind(source), self.lanes.kind(target)
        if target == "bool":
            bits = kind_bits(kind)
            mask = f"(i{bits}x{count})fb_ne_x{count}({value}, 0)"
            return resize_mask(mask, bits, self.lanes.mask_bits, count)
        if target in HALVES:
            single = value if source in (*HALVES, "f32") else self.cast(value, source, "f32")
            return self.round_half(single, target)
        if source == "bool":
            value = f"({value} & 1)"
        elif kind[0] == "f" and wanted[0] != "f":
            return self._float_to_int(value, kind, wanted)
        return value if kind == wanted else f"fb_to_{wanted}x{count}({value})"

    def _float_to_int(self, value: str, kind: str, wanted: str) -> str:
        count = self.lanes.count
        # The low bits of the widened integer, as PyTorch; of a float32 beyond 2^31 they are 0.
        through = "64" if wanted == "i64" or (wanted == "u8" and kind == "f64") else "32"
        text = f"fb_toint{through}_{kind}x{count}({value})"
        return text if wanted == f"i{through}" else f"fb_to_{wanted}x{count}({text})"

    def _bitcast(self, value: str, source: str, target: str) -> str:
        count = self.lanes.count
        if source in HALVES:
            value = f"fb_to{source}_u16x{count}({value})"
        elif source == "bool":
            raise unsupported("bitcast", source)
        if target in HALVES:
            return f"fb_from{target}_u16x{count}(fb_as_u16x{count}({value}))"
        return f"fb_as_{self.lanes.type(target)}({value})"

    def decode(self, memory: str, dtype: str) -> str:
        """The value that a loaded element (or vector of elements) stands for."""
        count = self.lanes.count
        if dtype == "bool":
            wide = f"fb_to_{self.lanes.mask}x{count}({memory})"
            return f"(({self.lanes.mask}x{count})fb_ne_x{count}({wide}, 0))"
        if dtype in HALVES:
            return f"fb_from{dtype}_u16x{count}({memory})"
        return memory

    def encode(self, value: str, dtype: str) -> str:
        """What is stored for a value."""
        count = self.lanes.count
        if dtype == "bool":
            return f"fb_to_u8x{count}({value} & 1)"
        if dtype in HALVES:
            return f"fb_to{dtype}_u16x{count}({value})"
        return value
