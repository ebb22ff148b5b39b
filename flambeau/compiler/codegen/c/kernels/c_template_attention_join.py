"""Attention for few queries: puts the segments of keys of a row together, in increasing order.

Parameters: parts (see `c_template_attention_decode`), out, top, sum, lse. Sizes: 0 to 7 as in
`c_template_attention`, 8 which of the last three are wanted (1, 2, 4), strides of out 9. A chunk is
a row.
"""

from __future__ import annotations

from flambeau.compiler.codegen.c.kernels.c_attention import Attention
from flambeau.compiler.codegen.c.printer.c_types import HALVES
from flambeau.compiler.targets import Target
from flambeau.ir.kernel import Kernel

_TEXT = """\
void fb_kernel(char *const *p, const long long *n, const fb_scalar *x, long long begin,
    long long end, char *scratch) {
  const long long rows = n[2] * n[3], segments = (n[4] + <SEGMENT> - 1) / <SEGMENT>;
  const long long width = n[6], size = width + 2;
  <T> *sums = (<T> *)scratch;
  for (long long c = begin; c < end; ++c) {
    const long long both = c / rows, row = c % rows, group = row / n[3];
    const long long position = row - group * n[3], head = both % n[1] * n[2] + group;
    const <T> *part = (const <T> *)p[0] + (both * segments * rows + row) * size;
    <T> most = -<infinity>, sum = 0;
    for (long long d = 0; d < width; ++d) sums[d] = 0;
    for (long long i = 0; i < segments; ++i, part += rows * size) {
      const <T> top = most < part[0] ? part[0] : most, base = top == -<infinity> ? 0 : top;
      const <T> a = fb_exp_<T>(most - base), b = fb_exp_<T>(part[0] - base);
      most = top;
      sum = fb_fma_<T>(part[1], b, sum * a);
      long long d = 0;
      for (; d + <N> <= width; d += <N>) {
        <V> *t = (<V> *)(sums + d);
        *t = fb_fma_<V>(*(const <V> *)(part + 2 + d), fb_splat_<V>(b), *t * a);
      }
      for (; d < width; ++d) sums[d] = fb_fma_<T>(part[2 + d], b, sums[d] * a);
    }
    const <T> factor = sum == 0 ? 0 : 1 / sum;
    <M> *to = (<M> *)p[1] + both / n[1] * n[9] + head * n[10] + position * n[11];
    for (long long d = 0; d < width; ++d) {
      const <T> value = sums[d] * factor + 0;
      to[d * n[12]] = VALUE;
    }
    const long long known = (both / n[1] * n[1] * n[2] + head) * n[3] + position;
    if (n[8] & 1) ((<T> *)p[2])[known] = most;
    if (n[8] & 2) ((<T> *)p[3])[known] = sum;
    if (n[8] & 4) ((<T> *)p[4])[known] = sum == 0 ? <infinity> : most + fb_log_<T>(sum);
  }
}
"""


def print_template(kernel: Kernel, target: Target) -> str:
    """C text of the kernel."""
    made = Attention.of(kernel, target)
    half = made.stored in HALVES
    return made.fill(_TEXT.replace("VALUE", f"fb_to{made.stored}_<T>(value)" if half else "value"))
