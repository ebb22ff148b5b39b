"""Micro-kernels over groups along K: pairs of bfloat16, quads of bytes, one instruction per group.

The packed element is a `u32` that holds a whole group, the lowest k in the lowest bits, zeros
behind the end of K. `Micro.group` elements of K are one step of a chain.

*Pairs* of bfloat16, sums in float32: a chain of FMAs that takes the odd element of each pair first,
then the even one: what VDPBF16PS computes, so that machines without it get the same bits from
float32 FMAs (`Micro.packing("bf16", swapped=True)`). The instruction treats subnormal numbers as
zeros.

*Quads* of bytes, sums in int32, modulo 2^32: exact in any order, so that machines without VPDPBUSD
get the same bits from int32 products. The instruction multiplies unsigned by signed bytes. Of two
signed operands the left one is packed with 128 added, and sums start from -128 times the sum of the
right one's bytes (`biased`; `fb_kernel_start` computes them). Where only the lowest byte of a
result is kept, signs do not matter.

The interface is that of `c_micro`, with `depth`, `b_step` and `to_step` in groups; the packing
function takes `depth` in elements, all of it in whole groups but the last. Micro-kernels of biased
quads have one more argument, the sums' start: a row of `columns`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flambeau.compiler.codegen.c.kernels.c_micro import NARROWED, RARE, Micro, turning
from flambeau.compiler.codegen.c.printer.c_forms import SYMBOL
from flambeau.compiler.codegen.c.printer.c_types import MEMORY_KIND, kind_bits
from flambeau.compiler.targets.description import Instruction, Target
from flambeau.ir.template_product import CHUNK

DOT = f"{SYMBOL}_dot"
ROUND = f"{SYMBOL}_round"


def declared(target: Target, operation: str, kind: str) -> Instruction:
    """An instruction of the target over 16 lanes, which its kernels of groups rely on."""
    instruction = target.instruction(operation, kind, 16)
    assert instruction is not None
    return instruction


def rounded(target: Target) -> str:
    """C text of the functions that round float32 to bfloat16 where products of pairs are an
    instruction: so is this, for most numbers."""
    narrow, fails = (declared(target, name, "f32") for name in ("narrow", "narrow_fails"))
    return f"""\
static inline FB_ALWAYS unsigned {RARE}(f32x16 x) {{
  return (unsigned short){fails(a="x")};
}}
static inline FB_ALWAYS u16x16 {NARROWED}(f32x16 x) {{
  u16x16 y;
  {narrow(a="x", y="y")}
  return y;
}}
static inline FB_ALWAYS u16x16 {ROUND}(f32x16 x) {{
  if (__builtin_expect({RARE}(x) != 0, 0)) return fb_tobf16_u16x16(x);
  return {NARROWED}(x);
}}
"""


@dataclass(frozen=True)
class Groups(Micro):
    """The base of micro-kernels over groups; see `Micro`."""

    @property
    def packed(self) -> str:
        """Kind of a packed element."""
        return "u32"

    def splat(self, element: str) -> str:
        """A packed element in all lanes."""
        return f"fb_splat_u32x16({element})"

    def dot(self, operation: str) -> str:
        """A function around the instruction: c + a * b, summed over each lane's group."""
        v = f"{self.kind}x16"
        instruction = declared(self.target, operation, self.kind)
        return (
            f"static inline FB_ALWAYS {v} {DOT}(u32x16 a, u32x16 b, {v} c) {{\n"
            f"  {instruction(a='a', b='b', c='c')}\n  return c;\n}}\n"
        )

    def packing(self, stored: str, swapped: bool = False) -> str:
        """C text of the packing function: rows of groups."""
        assert not swapped
        name, group, memory = self.packing_name(stored), self.group, MEMORY_KIND[stored]
        registers = [f"r[{i}]" for i in range(16)]
        texts = {
            "NAME": name, "MEMORY": f"{memory}x1", "GROUP": str(group),
            "TURN": "\n".join("    " + x for x in turning("f32x16", "f32", 16, registers)),
            "STORES": "\n".join(
                f"      if ({i} < m) {name}_store(out + {i} * to_step, "
                f"(u32x16)r[{i}] ^ flip, width - i);"
                for i in range(16)
            ),
            "TOGETHER": "\n".join(self._together(t, memory) for t in range(group)),
            "SLAB": _SLAB[group],
        }  # fmt: skip
        text = _PACKING
        for key, value in texts.items():
            text = text.replace(f"@{key}@", value)
        return text

    def _together(self, place: int, memory: str) -> str:
        """Element `place` of each of 16 groups that lie side by side."""
        load = f"fb_to_u32x16(fb_loadm_u{memory[1:]}x16(({_unsigned(memory)} *)at, used - i))"
        shift = f" << {place * kind_bits(memory)}" if place else ""
        at = f"row + {place} * k_step + i"
        return (
            f"        if (i < used && {self.group} * k + {place} < depth) {{\n"
            f"          const {memory}x1 *at = {at};\n"
            f"          value |= {load}{shift};\n        }}"
        )


def _unsigned(memory: str) -> str:
    return f"const u{memory[1:]}x1"


def _listed(places: Iterable[int]) -> str:
    return ", ".join(map(str, places))


def _pairs_of_slab() -> str:
    """Two rows of 32 columns."""
    lines = ["typedef u16x1 row_of __attribute__((vector_size(64), aligned(2), may_alias));"]
    lines.append("const row_of r0 = *(const row_of *)row, r1 = *(const row_of *)(row + k_step);")
    for half in (0, 1):
        order = [16 * half + i // 2 + 32 * (i % 2) for i in range(32)]
        value = f"FB_SHUFFLE2(row_of, r0, r1, {_listed(order)})"
        lines.append(f"*(u32x16 *)(out + {16 * half}) = (u32x16){value} ^ flip;")
    return "\n".join(f"        {line}" for line in lines)


def _quads_of_slab() -> str:
    """Four rows of 32 columns: bytes of two rows are interleaved, then pairs of bytes of four, all
    inside of parts of 128 bits."""
    kinds = (("row_of", "u8x1"), ("twos", "u16x1"), ("fours", "u32x1"))
    lines = [
        f"typedef {of} {name} __attribute__((vector_size(32), aligned(1), may_alias));"
        for name, of in kinds
    ]
    lines += [f"const row_of r{t} = *(const row_of *)(row + {t} * k_step);" for t in range(4)]
    for place, (kind, first) in enumerate((("row_of", "r0, r1"), ("row_of", "r2, r3"))):
        for high in (0, 8):
            order = [16 * p + high + i // 2 + 32 * (i % 2) for p in (0, 1) for i in range(16)]
            name = f"{'lh'[high // 8]}{place}"
            shuffle = f"FB_SHUFFLE2({kind}, {first}, {_listed(order)})"
            lines.append(f"const twos {name} = (twos){shuffle};")
    for number, (name, high) in enumerate((("l", 0), ("l", 4), ("h", 0), ("h", 4))):
        order = [8 * p + high + i // 2 + 16 * (i % 2) for p in (0, 1) for i in range(8)]
        shuffle = f"FB_SHUFFLE2(twos, {name}0, {name}1, {_listed(order)})"
        lines.append(f"const fours q{number} = (fours){shuffle};")
    lines.append("const fours turn = (fours){0} + flipped;")
    for number in range(4):
        part, high = number // 2, number % 2
        order = [4 * part + i % 4 + 8 * (i // 4) for i in range(8)]
        shuffle = f"FB_SHUFFLE2(fours, q{2 * high}, q{2 * high + 1}, {_listed(order)})"
        lines.append(f"*(fours *)(out + {8 * number}) = {shuffle} ^ turn;")
    return "\n".join(f"        {line}" for line in lines)


_SLAB = {2: _pairs_of_slab(), 4: _quads_of_slab()}

_PACKING = """\
static inline FB_ALWAYS void @NAME@_store(u32x1 *to, u32x16 x, long long m) {
  if (m >= 16) *(u32x16 *)to = x; else fb_storem_u32x16(to, x, m);
}
FB_SHARED void @NAME@_turned(long long used, long long width, long long whole,
    const @MEMORY@ *from, long long step, u32x1 *to, long long to_step, u32x1 flipped) {
  const u32x16 flip = fb_splat_u32x16(flipped);
  for (long long i = 0; i < width; i += 16)
    for (long long k = 0; k < whole; k += 16) {
      const @MEMORY@ *row = from + i * step + @GROUP@ * k;
      u32x1 *out = to + k * to_step + i;
      const long long left = used - i, m = whole - k;
      f32x16 r[16];
      if (__builtin_expect(left >= 16 && m >= 16, 1)) {
        for (int l = 0; l < 16; ++l) r[l] = *(const f32x16 *)(row + l * step);
      } else {
        for (int l = 0; l < 16; ++l)
          r[l] = l < left ? fb_loadm_f32x16((const f32x1 *)(row + l * step), m) : (f32x16){0};
      }
@TURN@
@STORES@
    }
}
FB_SHARED void @NAME@_flipped(long long used, long long width, long long depth,
    const @MEMORY@ *from, long long step, long long k_step, u32x1 *to, long long to_step,
    u32x1 flipped) {
  const long long groups = (depth + @GROUP@ - 1) / @GROUP@;
  long long k = 0;
  if (step == 1) {
    const u32x16 flip = fb_splat_u32x16(flipped);
    if (used == 32 && width == 32)
      for (; k < depth / @GROUP@; ++k) {
        const @MEMORY@ *row = from + @GROUP@ * k * k_step;
        u32x1 *out = to + k * to_step;
@SLAB@
      }
    for (; k < groups; ++k) {
      const @MEMORY@ *row = from + @GROUP@ * k * k_step;
      for (long long i = 0; i < width; i += 16) {
        u32x16 value = (u32x16){0};
@TOGETHER@
        @NAME@_store(to + k * to_step + i, value ^ flip, width - i);
      }
    }
    return;
  }
  if (k_step == 1) {
    k = depth / @GROUP@;
    @NAME@_turned(used, width, k, from, step, to, to_step, flipped);
  }
  for (; k < groups; ++k) {
    for (long long i = 0; i < width; ++i) {
      const @MEMORY@ *at = from + i * step + @GROUP@ * k * k_step;
      union { u32x1 whole; @MEMORY@ t[@GROUP@]; } u = { 0 };
      for (int t = 0; t < @GROUP@; ++t)
        if (i < used && @GROUP@ * k + t < depth) u.t[t] = at[t * k_step];
      to[k * to_step + i] = u.whole ^ flipped;
    }
  }
}
FB_SHARED void @NAME@(long long used, long long width, long long depth, const @MEMORY@ *from,
    long long step, long long k_step, u32x1 *to, long long to_step) {
  @NAME@_flipped(used, width, depth, from, step, k_step, to, to_step, 0);
}
"""


@dataclass(frozen=True)
class Pairs(Groups):
    """The micro-kernels of bfloat16 pairs."""

    @staticmethod
    def for_target(target: Target) -> Pairs:
        """The micro-kernels; the target has AVX-512 and its bfloat16 instructions."""
        return Pairs("f32", 16, target.heights, target)

    @property
    def group(self) -> int:
        """Elements of K per packed element."""
        return 2

    def text(self) -> str:
        """C text of the micro-kernels."""
        return self.dot("dot_pairs") + super().text()

    def chained(self, a: str, b: str, s: str) -> str:
        """One step of a chain."""
        return f"{DOT}({a}, {b}, {s})"


@dataclass(frozen=True)
class Quads(Groups):
    """The micro-kernels of quads of bytes.

    Attributes:
        biased: the left operand is packed with 128 added.
        exchanged: the right operand is the unsigned one.
    """

    biased: bool = False
    exchanged: bool = False

    @staticmethod
    def for_operands(a: str, b: str, result: str, target: Target) -> Quads:
        """The micro-kernels for operands of bytes; the target has AVX-512 and VPDPBUSD."""
        assert quads_suit(a, b, result)
        wide = result == "i32"
        return Quads(
            "i32", 16, target.heights, target,
            biased=wide and a == b == "i8", exchanged=wide and (a, b) == ("i8", "u8"),
        )  # fmt: skip

    @staticmethod
    def for_packing(flipped: bool, target: Target) -> Quads:
        """To pack one operand; `flipped`: with 128 added."""
        return Quads("i32", 16, target.heights, target, biased=flipped)

    @property
    def group(self) -> int:
        """Elements of K per packed element."""
        return 4

    @property
    def chunk(self) -> int:
        """Elements of K of one call of the micro-kernel: integers may be summed in any order."""
        return 4 * CHUNK

    @property
    def starts(self) -> bool:
        """Whether sums have a start of their own."""
        return self.biased

    def text(self) -> str:
        """C text of the micro-kernels, and of the function that prepares sums."""
        return self.dot("dot_quads") + (_START if self.biased else "") + super().text()

    def chained(self, a: str, b: str, s: str) -> str:
        """One step of a chain."""
        return f"{DOT}({b}, {a}, {s})" if not self.exchanged else f"{DOT}({a}, {b}, {s})"

    def packing(self, stored: str, swapped: bool = False) -> str:
        """C text of the packing functions."""
        text = super().packing(stored, swapped)
        if not self.biased:
            return text
        name, left = self.packing_name(stored), self.packing_name(stored, left=True)
        return f"""{text}\
FB_SHARED void {left}(long long used, long long width, long long depth, const i8x1 *from,
    long long step, long long k_step, u32x1 *to, long long to_step) {{
  {name}_flipped(used, width, depth, from, step, k_step, to, to_step, 0x80808080u);
}}
"""

    def packing_name(self, stored: str, left: bool = False) -> str:
        """The packing function's name; `left`: the operand whose rows are panels."""
        return super().packing_name(stored) + ("_left" if left and self.biased else "")


_START = f"""\
FB_SHARED void {SYMBOL}_start(long long depth, const u32x1 *b, long long b_step, i32x1 *start) {{
  const u32x16 by = fb_splat_u32x16(0x80808080u);
  i32x16 s0 = {{0}}, s1 = s0;
  for (; depth > 0; --depth, b += b_step) {{
    s0 = {DOT}(*(const u32x16 *)b, by, s0);
    s1 = {DOT}(*(const u32x16 *)(b + 16), by, s1);
  }}
  *(i32x16 *)start = -s0;
  *(i32x16 *)(start + 16) = -s1;
}}
"""


def quads_suit(a: str, b: str, result: str) -> bool:
    """Whether quads of bytes give a product of these dtypes."""
    bytes_of_both = {a, b} <= {"i8", "u8"}
    return bytes_of_both and (
        result in ("i8", "u8") or (result == "i32" and (a, b) != ("u8", "u8"))
    )


__all__ = ["Groups", "Pairs", "Quads", "quads_suit"]
