"""Template "product": batches of matrix products, any strides, with a fused epilogue.

The sum over K has the canonical order (docs/design.md): chunks of 128 of K, each a chain of FMAs
from +0 in increasing k, added in increasing order to the sum of a segment of 2048 of K; sums of
segments are added in increasing order. Nothing else decides about bits: not M, N, the batch,
strides, tiles, threads or the instruction set.

Settings: `part` "pack" or "tiles" (slabs of B and panels of A are packed by launches before the
tiles where that pays), `kind` the kind of sums, `unit` one of `UNITS`, `batch` how many batch
dimensions there are. Of the tiles: `a` and `b`, the dtypes in memory, `result`, the product's. Of
the others: `stored`, the operand's dtype, `planes`, 2 of complex numbers, `flipped`, whether signed
bytes are packed with 128 added. Size arguments: `ir/template_product.py`; how they are chosen is
told by `schedule/product.py`.

A chunk of the tiles is one tile of the result. Its sums stay in scratch, in the nearest caches,
over all of K; then each row goes to the epilogue. Operands that several tiles share are packed
before; otherwise a tile packs its own part of A, and B slab by slab, or reads B as it lies. Up to
`FEW` rows are sums of whole rows of B, or of columns that are turned in registers: then reading B
is all the work.
"""

from __future__ import annotations

import re
from dataclasses import replace

from flambeau.compiler.codegen.c.kernels.c_few_bytes import few_bytes
from flambeau.compiler.codegen.c.kernels.c_few_rows import few_rows
from flambeau.compiler.codegen.c.kernels.c_micro import CHUNK, VECTORS, Micro
from flambeau.compiler.codegen.c.kernels.c_micro_pairs import Pairs, Quads, narrowing
from flambeau.compiler.codegen.c.printer.c_epilogue import EPILOGUE, print_epilogue
from flambeau.compiler.codegen.c.printer.c_forms import ARGUMENTS as FUNCTION_ARGUMENTS
from flambeau.compiler.codegen.c.printer.c_forms import SYMBOL
from flambeau.compiler.codegen.c.printer.c_types import MEMORY_KIND
from flambeau.compiler.codegen.c.printer.c_values import c_expression
from flambeau.compiler.targets import Target
from flambeau.ir.kernel import Kernel, Pass
from flambeau.ir.size import affine_in
from flambeau.ir.template_product import ARGUMENTS, FEW_LONG, PACK_ARGUMENTS, PITCH, SEGMENT

SHORT = 8  # k, or groups of them, of all slabs that are packed together
PAGE = 4096  # bytes: lines so far apart share a set of the nearest cache
_NARROWED = {"i8": "i8", "u8": "u8", "i16": "i16"}


def print_template(kernel: Kernel, target: Target) -> str:
    """C text of a kernel of template "product"."""
    return (_Tiles if kernel.setting("part") == "tiles" else _Pack)(kernel, target).text()


class _Printer:
    """The base of the printers of the parts."""

    def __init__(self, kernel: Kernel, target: Target, planes: int, quads: Quads | None) -> None:
        self.kernel = kernel
        self.target = target
        self.kind = str(kernel.setting("kind"))
        self.batch = int(kernel.setting("batch"))
        self.planes = planes
        self.unit = str(kernel.setting("unit"))
        self.micro = Micro.of(self.kind, target, self.planes)
        if self.unit == "dot":
            self.micro = Pairs.for_target(target)
        elif quads is not None:
            self.micro = quads
        self.micro = replace(self.micro, staged=True, rounded=self.rounded)
        self.packed, self.group = f"{self.micro.packed}x1", self.micro.group
        self.step = self.micro.columns * self.planes  # numbers of a slab per k

    @property
    def rounded(self) -> str:
        """The half type that micro-kernels round sums to, where that is an instruction."""
        return ""

    def _groups(self) -> str:
        """How many packed elements K has."""
        groups = "depth" if self.group == 1 else f"(depth + {self.group - 1}) / {self.group}"
        return f"  const long long groups = {groups};"

    def _coordinates(self, first: int, sizes: int) -> list[str]:
        """Coordinates p0 .. of a batch; a dimension has so many sizes, its extent first."""
        lines = ["  long long rest = batch;"]
        for d in range(self.batch - 1, 0, -1):
            extent = f"n[{first + sizes * d}]"
            lines.append(f"  const long long p{d} = rest % {extent}; rest /= {extent};")
        return [*lines, "  const long long p0 = rest;"] if self.batch else []


class _Pack(_Printer):
    """One operand is packed: slabs of B, or panels of A."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.stored, self.flipped = str(kernel.setting("stored")), bool(kernel.setting("flipped"))
        quads = kernel.setting("unit") == "quads"
        micro = Quads.for_packing(self.flipped, target) if quads else None
        super().__init__(kernel, target, int(kernel.setting("planes")), micro)

    def text(self) -> str:
        """A chunk is one panel or slab of `unit` rows or columns (`padded`: the last one, too);
        where memory runs the other way, a range of k of them all, a few k at a time: it is
        read in order."""
        kind, memory = self.packed, f"{MEMORY_KIND[self.stored]}x1"
        even = 2 if self.unit == "swapped" else self.group  # ranges of k do not part groups
        times = f" * {self.planes}" if self.planes > 1 else ""
        first = len(PACK_ARGUMENTS)
        place = "".join(f" + p{d} * n[{first + 2 * d + 1}]" for d in range(self.batch))
        names = ", ".join(f"{name} = n[{i}]" for i, name in enumerate(PACK_ARGUMENTS))
        pack = self.micro.packing_name(self.stored, left=self.flipped)
        return "\n".join(
            [
                self.micro.packing(self.stored, self.unit == "swapped"),
                f"void {SYMBOL}({FUNCTION_ARGUMENTS}) {{",
                f"  const long long {names};",
                self._groups(),
                "  const long long units = (extent + unit - 1) / unit;",
                f"  const long long size = (padded ? units * unit : extent) * groups{times};",
                "  const int across = step == 1;",
                "  for (long long c = begin; c < end; ++c) {",
                "    const long long batch = c / units, u = c % units;",
                *self._coordinates(first, 2),
                f"    const {memory} *from = (const {memory} *)p[0]{place};",
                f"    {kind} *to = ({kind} *)p[1] + batch * size;",
                f"    long long k = across ? u * depth / units / {even} * {even} : 0;",
                "    long long d = depth - k;",
                "    if (across && u + 1 < units)",
                f"      d = (u + 1) * depth / units / {even} * {even} - k;",
                "    const long long last = across ? units : u + 1, end = k + d;",
                f"    const long long most = across ? {SHORT * self.group} : d;",
                "    for (; k < end; k += most)",
                "      for (long long s = across ? 0 : u; s < last; ++s) {",
                "        const long long i = s * unit;",
                "        const long long used = extent - i < unit ? extent - i : unit;",
                "        const long long wide = padded ? unit : used;",
                "        d = end - k < most ? end - k : most;",
                f"        {pack}(used, wide, d, from + i * step + k * k_step, step, k_step,",
                f"          to + (i * groups + k / {self.group} * wide){times}, wide{times});",
                "      }",
                "  }",
                "}",
                "",
            ]
        )


class _Tiles(_Printer):
    """The product and its epilogue, tile by tile."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.a, self.b = str(kernel.setting("a")), str(kernel.setting("b"))
        self.result = str(kernel.setting("result"))
        quads = None
        if kernel.setting("unit") == "quads":
            quads = Quads.for_operands(self.a, self.b, self.result, target)
        super().__init__(kernel, target, 2 if self.result[0] == "c" else 1, quads)

    def text(self) -> str:
        """The launch that computes tiles."""
        parts = [self._finish(), self.micro.text(), self._packing(), self._copying()]
        if self.few_rows:
            quads = self.unit == "quads"
            parts.append(
                few_bytes(self.a, self.b, self.result)
                if quads
                else few_rows(self.micro, self.a, self.target)
            )
        parts += [self._sums(), print_epilogue(self.kernel, self.target), self._tile()]
        function = (
            f"void {SYMBOL}({FUNCTION_ARGUMENTS}) {{\n"
            f"  for (long long c = begin; c < end; ++c) {SYMBOL}_tile(p, n, x, c, scratch);\n}}\n"
        )
        return "\n".join([*parts, function])

    @property
    def rounded(self) -> str:
        """The half type that micro-kernels round sums to, where that is an instruction."""
        native = self.target.instruction("to_half", "f32", 16) is not None
        cheap = self.result == "f16" and native and self.unit == "plain"
        suits = cheap or (self.result == "bf16" and self.unit == "dot")
        return self.result if suits and self._destination() is not None else ""

    @property
    def reads_in_place(self) -> bool:
        """Whether memory holds what the micro-kernel takes."""
        return self.a == self.b == self.kind

    @property
    def few_rows(self) -> bool:
        """Whether products with few rows have code of their own."""
        halves = self.a == self.b and self.a in ("f16", "bf16")
        return self.reads_in_place or self.unit == "quads" or (halves and self.unit != "swapped")

    @property
    def segments(self) -> bool:
        """Whether sums of segments are kept apart: integers are exact in any order."""
        return self.kind[0] == "f"

    def _packing(self) -> str:
        swapped = self.unit == "swapped"
        stored = dict.fromkeys((self.a, self.b))
        return "".join(self.micro.packing(dtype, swapped) for dtype in stored)

    # --------------------------------------------------------------------------- pieces

    def _header(self) -> list[str]:
        """Names of the size arguments."""
        names = ", ".join(f"{name} = n[{i}]" for i, name in enumerate(ARGUMENTS))
        return [f"  const long long {names};", self._groups()]

    def _batches(self) -> list[str]:
        """Coordinates p0 .. of a batch, and where its operands start."""
        first = len(ARGUMENTS)
        places = [first + 3 * d for d in range(self.batch)]
        lines = self._coordinates(first, 3)
        offsets = [
            "".join(f" + p{d} * n[{place + which}]" for d, place in enumerate(places))
            for which in (1, 2)
        ]
        left, right = (
            f"(const {MEMORY_KIND[t]}x1 *)p[{i}]" for i, t in enumerate((self.a, self.b))
        )
        if self.a != self.b:  # never swapped
            lines.append(f"  const {MEMORY_KIND[self.a]}x1 *a = {left}{offsets[0]};")
            lines.append(f"  const {MEMORY_KIND[self.b]}x1 *b = {right}{offsets[1]};")
            return lines
        kind = MEMORY_KIND[self.a]
        lines.append(f"  const {kind}x1 *left = {left}{offsets[0]}, *right = {right}{offsets[1]};")
        lines.append(f"  const {kind}x1 *a = swapped ? right : left, *b = swapped ? left : right;")
        return lines

    def _tile(self) -> str:
        """The function for one tile: its sums, then what becomes of them."""
        parameters = "char *const *p, const long long *n, const fb_scalar *x, long long chunk"
        out = ", out, out_step" if self.rounded else ""
        return "\n".join(
            [
                f"static void {SYMBOL}_tile({parameters}, char *scratch) {{",
                *self._places(),
                *self._direct(),
                f"  {SYMBOL}_sums(p, n, chunk, scratch, c, c_step, held, held_step, direct{out});",
                *self._write(),
                "}",
                "",
            ]
        )

    def _sums(self) -> str:
        """The function that computes a tile's sums. It is most of the kernel and knows nothing of
        the epilogue, so that kernels of a unit share it."""
        kind, chunk = f"{self.kind}x1", self.micro.chunk
        out = ", u16x1 *out, long long out_step" if self.rounded else ""
        return "\n".join(
            [
                f"FB_SHARED void {SYMBOL}_sums(char *const *p, const long long *n,",
                f"    long long chunk, char *scratch, {kind} *c, long long c_step, {kind} *held,",
                f"    long long held_step, long long direct{out}) {{",
                *self._places(),
                f"  const int lies = {self._lies()};",
                "  if (depth == 0)",
                f"    __builtin_memset(tile, 0, (unsigned long)(high * pitch) * sizeof({kind}));",
                *self._few(),
                f"  for (long long k = 0; k < depth; k += {chunk}) {{",
                "    const long long left_k = depth - k;",
                f"    const long long d = left_k < {chunk} ? left_k : {chunk};",
                f"    const long long g = k / {self.group};",
                f"    const long long dg = (d + {self.group - 1}) / {self.group};",
                *self._chunk(),
                *self._segment(),
                "  }",
                "}",
                "",
            ]
        )

    def _places(self) -> list[str]:
        """Computes the tile's number and the offsets of its operands."""
        rows, columns, kind = self.micro.rows, self.micro.columns, f"{self.kind}x1"
        planes, step = self.planes, self.step
        few = "0"
        if self.few_rows:
            turned = FEW_LONG if self.unit == "quads" else self.target.gemv_transposed
            few = f"b_column == 1 ? height <= {FEW_LONG} : b_k == 1 && height <= {turned}"
        return [
            *self._header(),
            "  const long long across = chunk / row_tiles, t = chunk % row_tiles;",
            "  const long long u = across % column_tiles, batch = across / column_tiles;",
            *self._batches(),
            f"  const long long panels = (height + {rows - 1}) / {rows};",
            f"  const long long i0 = t * panels / row_tiles * {rows};",
            f"  long long i1 = (t + 1) * panels / row_tiles * {rows};",
            "  if (i1 > height) i1 = height;",
            "  const long long j0 = u * tile_columns, high = i1 - i0;",
            "  const long long wide = width - j0 < tile_columns ? width - j0 : tile_columns;",
            f"  const long long pitch = tile_columns * {planes} + {PITCH};",
            f"  const long long room = (panels + row_tiles - 1) / row_tiles * {rows};",
            f"  {kind} *tile = ({kind} *)scratch;",
            f"  {kind} *segment = tile + room * pitch;",
            f"  {self.packed} *slab = ({self.packed} *)"
            f"(depth > {SEGMENT} ? segment + room * pitch : segment);"
            if self.segments
            else f"  {self.packed} *slab = ({self.packed} *)segment;",
            f"  {self.packed} *own = slab + {CHUNK * step};",
            f"  const long long size_a = packs_a * height * groups * {planes};",
            f"  const long long slabs = (width + {columns - 1}) / {columns};",
            "  const int has_b = packs_b == 1 || (packs_b && p[2]);",
            f"  const long long size_b = has_b * slabs * groups * {step};",
            f"  const {self.packed} *packed_b = (const {self.packed} *)p[2] + batch * size_b;",
            f"  const {self.packed} *packed_a = (const {self.packed} *)p[3] + batch * size_a;",
            f"  const int few = !has_b && ({few});",
        ]

    def _direct(self) -> list[str]:
        """Where sums are stored as they are, along memory, whole slabs of the tile go there:
        `direct` columns. Until all of K is done they are held there, too, unless rows are whole
        pages apart: all of them would want the same few places of the nearest cache."""
        kind = f"{self.kind}x1"
        lines = [
            f"  {kind} *c = tile, *held = tile;",
            "  long long c_step = pitch, held_step = pitch, direct = 0;",
        ]
        place = self._destination()
        if place is None or not (self.result == self.kind or self.rounded):
            return lines
        parameter, step, start = place
        if self.rounded:
            return [
                *lines,
                "  u16x1 *out = 0; long long out_step = 0;",
                f"  if (!swapped && !few && depth && depth <= {SEGMENT}) {{",
                f"    direct = wide / {self.micro.columns} * {self.micro.columns};",
                f"    out_step = {step};",
                f"    out = (u16x1 *)p[{parameter}] + {start} + i0 * out_step + j0;",
                "  }",
            ]
        return [
            *lines,
            "  if (!swapped && !few && depth) {",
            f"    direct = wide / {self.micro.columns} * {self.micro.columns};",
            f"    c_step = {step}; c = ({kind} *)p[{parameter}] + {start} + i0 * c_step + j0;",
            f"    if (depth <= {self.micro.chunk} || c_step * sizeof({kind}) % {PAGE}) {{",
            "      held = c; held_step = c_step;",
            "    }",
            "  }",
        ]

    @property
    def takes_rows(self) -> bool:
        """Whether rows of A, as memory holds them, are what the micro-kernel takes."""
        pairs = self.unit == "dot" and self.a == "bf16"
        return self.planes == 1 and (self.a == self.kind or pairs or self.unit == "quads")

    def _lies(self) -> str:
        """Whether rows of A are read where they lie, without being copied."""
        if not self.takes_rows or self.unit == "quads":
            return "0"
        even = f" && depth % {self.group} == 0" if self.group > 1 else ""
        return f"!packs_a && a_k == 1 && a_row * sizeof *a <= {PAGE // 4}{even}"

    def _copying(self) -> str:
        """A function that copies rows of A: strides in bytes, zeros up to whole vectors."""
        if not self.takes_rows:
            return ""
        width = self.target.vector_bytes
        v, flip = f"u32x{width // 4}", ""
        if self.unit == "quads" and self.micro.starts:
            flip = f" ^ fb_splat_{v}(0x80808080u)"
        return f"""\
FB_SHARED void {SYMBOL}_copy(long long rows, long long count, const char *from, long long step,
    char *to, long long to_step) {{
  for (; rows > 0; --rows, from += step, to += to_step) {{
    long long j = 0;
    for (; j + {width} <= count; j += {width}) *({v} *)(to + j) = *(const {v} *)(from + j){flip};
    if (j == count) continue;
    union {{ {v} v; char t[{width}]; }} u = {{ ({v}){{0}} }};
    __builtin_memcpy(u.t, from + j, (unsigned long)(count - j));
    *({v} *)(to + j) = u.v{flip};
  }}
}}
"""

    def _destination(self) -> tuple[int, str, str] | None:
        """Buffer, row stride and start of the only store, where it is of the results themselves."""
        (statement,) = self.kernel.body
        assert isinstance(statement, Pass)
        if len(statement.stores) != 1:
            return None
        parameter, position, value = statement.stores[0]
        row = f"p{self.batch}"
        affine = affine_in(position, (row, "r"))
        if value.op != "k.kept" or affine is None or affine[0].get("r") != 1:
            return None
        texts = [c_expression(affine[0].get(row, 0)), c_expression(affine[1])]
        step, start = (re.sub(r"\bn(\d+)\b", r"n[\1]", text) for text in texts)
        return parameter, step, start

    def _few(self) -> list[str]:
        """Up to FEW rows: B is read once, as it lies."""
        if not self.few_rows:
            return []
        return [
            "  if (few) {",
            f"    {SYMBOL}_few(high, wide, depth, a, a_row, a_k, b + j0 * b_column, b_k, b_column,",
            "      tile, pitch, own);",
            "  } else",
        ]

    def _chunk(self) -> list[str]:
        """One chunk of K for a whole tile."""
        rows, columns, kind = self.micro.rows, self.micro.columns, f"{self.kind}x1"
        planes, step = self.planes, self.step
        times = f" * {planes}" if planes > 1 else ""
        pack_b = self.micro.packing_name(self.b)
        out = "out + r * out_step + q"
        single = f" && depth <= {SEGMENT}" if self.segments else ""
        lines = [
            *self._own(times),
            f"    for (long long q = 0; q < wide; q += {columns}) {{",
            f"      const long long used = wide - q < {columns} ? wide - q : {columns};",
            f"      const {self.packed} *from = slab; long long step = {step};",
            f"      if (has_b) from = packed_b + (j0 + q) * groups{times} + g * {step};",
        ]
        if self.reads_in_place:
            lines += [
                f"      else if (b_column == 1 && high <= {2 * rows} && used == {columns}) {{",
                "        from = b + k * b_k + j0 + q; step = b_k;",
                "      }",
            ]
        return [
            *lines,
            f"      else {pack_b}(used, {columns}, d, b + k * b_k + (j0 + q) * b_column, b_column, "
            f"b_k, slab, {step});",
            *self._start(),
            f"      {kind} *near = q < direct ? held : tile, *to;",
            "      long long near_step = q < direct ? held_step : pitch, to_step;",
            *(
                [f"      if (k >= {SEGMENT}) {{ near = segment; near_step = pitch; }}"]
                if self.segments
                else []
            ),
            "      to = near; to_step = near_step;",
            f"      if (q < direct && k + d == depth{single}) {{ to = c; to_step = c_step; }}",
            f"      for (long long r = 0; r < high; r += {rows}) {{",
            f"        const long long h = high - r < {rows} ? high - r : {rows};",
            f"        const {self.packed} *panel = own + r * dg{times};",
            f"        long long row = sizeof *panel, step_a = h * row{times};",
            f"        if (packs_a) panel = packed_a + ((i0 + r) * groups + g * h){times};",
            "        if (lies) {",
            f"          panel = (const {self.packed} *)(a + (i0 + r) * a_row + k);",
            "          row = a_row * sizeof *a; step_a = sizeof *panel;",
            "        } else if (copied) {",
            f"          panel = (const {self.packed} *)((char *)own + r * line);",
            "          row = line; step_a = sizeof *panel;",
            "        }",
            *self._ahead(times),
            f"        {self.micro.name}(h, dg, panel, from, step,",
            f"          to + r * to_step + q{times}, to_step, "
            f"k{f' % {SEGMENT}' if self.segments else ''} > 0"
            f"{', start' if self.micro.starts else ''},",
            f"          near + r * near_step + q{times}, near_step, ahead, row, step_a"
            + (
                f",\n          q < direct && k + d == depth ? {out} : 0, out_step);"
                if self.rounded
                else ");"
            ),
            "      }",
            "    }",
        ]

    def _own(self, times: str) -> list[str]:
        """Packs the part of A that a tile needs for a chunk of K, unless it is packed already."""
        rows, pack = self.micro.rows, self.micro.packing_name(self.a, left=True)
        copied = "!packs_a && !lies && a_k == 1" if self.takes_rows else "0"
        copy = [
            "    if (copied)",
            f"      {SYMBOL}_copy(high, d * sizeof *a, (const char *)(a + i0 * a_row + k),",
            "        a_row * sizeof *a, (char *)own, line);",
        ]
        return [
            f"    const int copied = {copied};",
            "    const long long line = (dg + 15) / 16 * 16 * sizeof *own;",
            *(copy if self.takes_rows else ()),
            "    if (!packs_a && !lies && !copied)",
            f"      for (long long r = 0; r < high; r += {rows}) {{",
            f"        const long long h = high - r < {rows} ? high - r : {rows};",
            f"        {pack}(h, h, d, a + (i0 + r) * a_row + k * a_k, a_row, a_k,",
            f"          own + r * dg{times}, h{times});",
            "      }",
        ]

    def _ahead(self, times: str) -> list[str]:
        """What is fetched meanwhile: the first panels of a tile see to the slab that comes next,
        the others to the panels of the next chunk of K, each slab to some of them."""
        rows, columns, lanes = self.micro.rows, self.micro.columns, self.micro.lanes
        next_g = self.micro.chunk // self.group
        parts = -(-rows * self.planes // lanes)  # of a panel, a vector per k each
        return [
            f"        const {self.packed} *ahead = panel;",
            f"        const long long turn = r / {rows}, more = left_k > {self.micro.chunk};",
            f"        if (turn < {VECTORS}) {{",
            f"          if (has_b && q + {columns} < wide)",
            f"            ahead = from + {columns} * groups{times};",
            "          else if (has_b && more)",
            f"            ahead = packed_b + j0 * groups{times} + (g + {next_g}) * {self.step};",
            f"          ahead += turn * dg * {lanes};",
            "        } else if (packs_a && more) {",
            f"          const long long part = turn - {VECTORS};",
            f"          const long long l = {rows} * (q / {columns} + part / {parts} * "
            f"((wide + {columns - 1}) / {columns}));",
            f"          if (l + {rows} <= high)",
            f"            ahead = packed_a + ((i0 + l) * groups + (g + {next_g}) * {rows}){times}"
            f" + part % {parts} * dg * {lanes};",
            "        }",
        ]

    def _segment(self) -> list[str]:
        """After a segment's last chunk its sums are added to those of the segments before."""
        if not self.segments:
            return []
        kind, lanes = f"{self.kind}x1", self.micro.lanes
        v = f"{self.kind}x{lanes}"
        planes, columns = f" * {self.planes}" if self.planes > 1 else "", self.micro.columns
        wide = f"(wide + {columns - 1}) / {columns} * {self.step}" if planes else "wide"
        return [
            f"    if (k >= {SEGMENT} && (k + d == depth || (k + d) % {SEGMENT} == 0))",
            "      for (long long i = 0; i < high; ++i) {",
            f"        const {kind} *from = segment + i * pitch, *sums = held + i * held_step;",
            f"        {kind} *near = tile + i * pitch, *far = held + i * held_step;",
            "        if (k + d == depth) far = c + i * c_step;",
            "        long long j = 0;",
            f"        for (; j < direct{planes}; j += {lanes})",
            f"          *({v} *)(far + j) = *(const {v} *)(sums + j) + *(const {v} *)(from + j);",
            f"        for (; j < {wide}; j += {lanes})",
            f"          *({v} *)(near + j) += *(const {v} *)(from + j);",
            "      }",
        ]

    def _start(self) -> list[str]:
        """Initializes the sums of a slab."""
        if not self.micro.starts:
            return []
        return [
            f"      {self.kind}x1 start[{self.step}];",
            f"      {SYMBOL}_start(dg, from, step, start);",
        ]

    def _write(self) -> list[str]:
        """Rows go through the epilogue; a tile of the transposed product is turned back before."""
        kind, coordinates = f"{self.kind}x1", "".join(f"p{d}, " for d in range(self.batch))
        result = f"const {MEMORY_KIND[self.result]}x1 *"
        call = f"{EPILOGUE}(p, n, x, {coordinates}"
        memory, place = f"{MEMORY_KIND[self.result]}x1", self._destination()
        finish = f"{SYMBOL}_finish"
        turned = [
            f"      {finish}(row, ({memory} *)row, high);",
            f"      {call}j0 + j, i0, i1, ({result})row - i0);",
        ]
        straight = [
            f"    {finish}(row, ({memory} *)row, wide);",
            f"    {call}i0 + i, j0 + direct, j0 + wide, ({result})row - j0);",
        ]
        if place is not None and self.result in (*_NARROWED, "f16", "bf16"):
            parameter, step, start = place  # rounded on the way to memory
            to = f"({memory} *)p[{parameter}] + {start}"
            turned = [f"      {finish}(row, {to} + (j0 + j) * {step} + i0, high);"]
            tail = f"{to} + (i0 + i) * {step} + j0 + direct"
            straight = [f"    {finish}(row + direct, {tail}, wide - direct);"]
        return [
            "  if (swapped) {",
            f"    {kind} *row = ({kind} *)own;",
            "    for (long long j = 0; j < wide; ++j) {",
            "      for (long long i = 0; i < high; ++i) row[i] = tile[i * pitch + j];",
            *turned,
            "    }",
            "    return;",
            "  }",
            "  for (long long i = 0; direct < wide && i < high; ++i) {",
            f"    {kind} *row = tile + i * pitch;",
            *straight,
            "  }",
        ]

    def _finish(self) -> str:
        """A row of sums becomes one of the result's dtype, also in place: the one rounding of
        halves."""
        kind, lanes = f"{self.kind}x1", self.micro.lanes
        to = f"{MEMORY_KIND[self.result]}x1 *to"
        head = (
            f"static inline FB_ALWAYS void {SYMBOL}_finish({kind} *row, {to}, long long count) {{\n"
        )
        if self.planes == 2:
            return head + self._interleave() + "}\n"
        memory = MEMORY_KIND[self.result]
        if self.result == "bf16" and self.unit == "dot":
            head = narrowing(self.target) + head
            value = f"fb_kernel_round(*(f32x{lanes} *)(row + i))"
        elif self.result in ("f16", "bf16"):
            value = f"fb_to{self.result}_u16x{lanes}(*(f32x{lanes} *)(row + i))"
        elif self.result == "bool":
            value = f"fb_to_u8x{lanes}(*(i32x{lanes} *)(row + i) != 0) & 1"
        elif self.result in _NARROWED:
            value = f"fb_to_{memory}x{lanes}(*({self.kind}x{lanes} *)(row + i))"
        else:
            return f"{head}}}\n"
        return (
            f"{head}  long long i = 0;\n"
            f"  for (; i + {lanes} <= count; i += {lanes}) "
            f"*({memory}x{lanes} *)(to + i) = {value};\n"
            f"  if (i < count) fb_storem_{memory}x{lanes}(to + i, {value}, count - i);\n}}\n"
        )

    def _interleave(self) -> str:
        """Real and imaginary parts of each slab, side by side."""
        v, n = f"{self.kind}x{self.micro.lanes}", self.micro.lanes
        low = ", ".join(f"{i}, {n + i}" for i in range(n // 2))
        high = ", ".join(f"{i}, {n + i}" for i in range(n // 2, n))
        return (
            f"  for (long long i = 0; i < count; i += {n}) {{\n"
            f"    {v} *at = ({v} *)(row + 2 * i), real = at[0], imaginary = at[1];\n"
            f"    at[0] = FB_SHUFFLE2({v}, real, imaginary, {low});\n"
            f"    at[1] = FB_SHUFFLE2({v}, real, imaginary, {high});\n  }}\n"
        )
