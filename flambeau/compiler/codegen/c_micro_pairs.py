"""Micro-kernels over pairs of bfloat16: two elements of K per step, sums in float32.

The packed element is a pair, `u32`: element 2 k in the lower half, 2 k + 1 in the upper (0 behind
an odd K). The sum is a chain of FMAs that takes the odd element of each pair first, then the even
one: what VDPBF16PS computes, so that machines without it get the same bits from float32 FMAs
(`Micro.packing("bf16", swapped=True)`). The instruction treats subnormal numbers as zeros.

The interface is that of `c_micro`, with `depth`, `b_step` and `to_step` in pairs; the packing
function takes `depth` in elements, all of it in whole pairs but the last.
"""

from __future__ import annotations

from dataclasses import dataclass

from flambeau.compiler.codegen.c_micro import Micro, turning
from flambeau.compiler.targets import Target
from flambeau.ir.template_product import HEIGHTS


@dataclass(frozen=True)
class Pairs(Micro):
    """The micro-kernels of bfloat16 pairs; see `Micro`."""

    @staticmethod
    def for_target(target: Target) -> Pairs:
        """The micro-kernels; the target has AVX-512 and its bfloat16 instructions."""
        return Pairs("f32", 16, HEIGHTS[target.name])

    @property
    def packed(self) -> str:
        """Kind of a packed element."""
        return "u32"

    @property
    def group(self) -> int:
        """Elements of K per packed element."""
        return 2

    def splat(self, element: str) -> str:
        """A packed element in all lanes."""
        return f"fb_splat_u32x16({element})"

    def text(self) -> str:
        """C text of the micro-kernels."""
        dot = (
            "static inline FB_ALWAYS f32x16 fb_kernel_dot(u32x16 a, u32x16 b, f32x16 c) {\n"
            '  __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(b), "v"(a));\n  return c;\n}\n'
        )
        return dot + super().text()

    def chained(self, a: str, b: str, s: str) -> str:
        """One step of a chain."""
        return f"fb_kernel_dot({a}, {b}, {s})"

    def packing(self, stored: str, swapped: bool = False) -> str:
        """C text of the packing function: rows of pairs."""
        assert stored == "bf16" and not swapped
        name = self.packing_name(stored)
        registers = [f"r[{i}]" for i in range(16)]
        loads = "\n".join(
            f"        r[{i}] = *(const f32x16 *)(row + {i} * step);" for i in range(16)
        )
        part = "\n".join(
            f"        r[{i}] = {i} < left ? *(const f32x16 *)(row + {i} * step) : (f32x16){{0}};"
            for i in range(16)
        )
        stores = "\n".join(
            f"      {name}_store(out + {i} * to_step, (u32x16)r[{i}], width - i);"
            for i in range(16)
        )
        return f"""\
static inline FB_ALWAYS void {name}_store(u32x1 *to, u32x16 x, long long m) {{
  if (m >= 16) *(u32x16 *)to = x; else fb_storem_u32x16(to, x, m);
}}
static void {name}_turned(long long used, long long width, long long whole,
    const u16x1 *from, long long step, u32x1 *to, long long to_step) {{
  for (long long i = 0; i < width; i += 16)
    for (long long k = 0; k < whole; k += 16) {{
      const u16x1 *row = from + i * step + 2 * k;
      u32x1 *out = to + k * to_step + i;
      const long long left = used - i;
      f32x16 r[16];
      if (__builtin_expect(left >= 16, 1)) {{
{loads}
      }} else {{
{part}
      }}
{chr(10).join("    " + line for line in turning("f32x16", "f32", 16, registers))}
{stores}
    }}
}}
static void {name}(long long used, long long width, long long depth,
    const u16x1 *from, long long step, long long k_step, u32x1 *to, long long to_step) {{
  long long k = 0;
  const long long pairs = depth / 2;
  if (step == 1) {{
    for (; k < pairs + depth % 2; ++k) {{
      const u16x1 *row = from + 2 * k * k_step;
      u32x1 *out = to + k * to_step;
      for (long long i = 0; i < width; i += 16) {{
        u32x16 low = (u32x16){{0}}, high = low;
        if (i < used) low = fb_to_u32x16(fb_loadm_u16x16(row + i, used - i));
        if (i < used && k < pairs) high = fb_to_u32x16(fb_loadm_u16x16(row + k_step + i, used - i));
        {name}_store(out + i, low | high << 16, width - i);
      }}
    }}
    return;
  }}
  if (k_step == 1) {{
    k = pairs / 16 * 16;
    {name}_turned(used, width, k, from, step, to, to_step);
  }}
  for (; k < pairs + depth % 2; ++k) {{
    u32x1 *out = to + k * to_step;
    for (long long i = 0; i < width; ++i) {{
      const u16x1 *at = from + i * step + 2 * k * k_step;
      out[i] = i < used ? at[0] : 0;
      if (i < used && k < pairs) out[i] |= (u32x1)at[k_step] << 16;
    }}
  }}
}}
"""


__all__ = ["Pairs"]
