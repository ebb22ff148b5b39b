"""Transposing maps as C: loads that run along the last row axis go through a small buffer.

Such a load is contiguous along the last row axis while the loop runs along r. The kernel works on
tiles of `TILE_BLOCK` rows and as many r: each transposed load copies its tile into a buffer first,
whole cache lines at a time, and the loop over r reads the buffer.
"""

from __future__ import annotations

from flambeau.compiler.codegen.c.math.records import PITCH
from flambeau.compiler.codegen.c.printer.c_forms import FormPrinter
from flambeau.compiler.codegen.c.printer.c_types import MEMORY_KIND
from flambeau.compiler.codegen.c.printer.c_values import ON_K, ON_R, Scope, c_expression
from flambeau.ir import kernel as kernels
from flambeau.ir import size as sizes
from flambeau.ir.kernel import TILE_BLOCK, Pass
from flambeau.ir.node import Node, topological
from flambeau.ir.size import Size


class TiledPrinter(FormPrinter):
    """Form "map" with `tiled`."""

    def axes(self) -> list[tuple[str, str]]:
        """The last row axis counts in blocks."""
        names = super().axes()
        name, extent = names[-1]
        return [*names[:-1], (f"{name}b", f"({extent} + {TILE_BLOCK - 1}) / {TILE_BLOCK}")]

    def body(self) -> None:
        """Fills the row scope: tiles along r, in them rows, in them vectors."""
        (statement,) = self.kernel.body
        assert isinstance(statement, Pass)
        axis = f"p{len(self.kernel.rows) - 1}"
        extent = c_expression(self.kernel.rows[-1])
        frame = self.row
        frame.add(f"const long long first = {axis}b * {TILE_BLOCK};")
        frame.add(
            f"const long long height = {extent} - first < {TILE_BLOCK} ? "
            f"{extent} - first : {TILE_BLOCK};"
        )
        self.inner()
        frame.add(f"for (long long r0 = 0; r0 < inner; r0 += {TILE_BLOCK}) {{")
        frame.add(
            f"  const long long width = inner - r0 < {TILE_BLOCK} ? inner - r0 : {TILE_BLOCK};"
        )
        tiles = self._tiles(statement, axis)
        frame.add("  for (long long t = 0; t < height; ++t) {")
        frame.add(f"    const long long {axis} = first + t;")
        self.row = Scope(self.values.scalars, 0, None, frame.indent + "    ")
        loops = self._vector_loops(statement, tiles)
        frame.lines += [*self.row.lines, *loops]
        frame.add("  }")
        frame.add("}")
        self.row = frame

    def _tiles(self, statement: Pass, axis: str) -> dict[Node, str]:
        """Copies the tile of every transposed load; gives the buffers."""
        buffers: dict[Node, str] = {}
        for node in topological(kernels.statement_values(statement)):
            split = self._transposed(node, axis)
            if split is None:
                continue
            stride, others = split
            kind = MEMORY_KIND[node.dtype]
            parameter = node.attribute("parameter")
            buffers[node] = name = self.values.new_name("z")
            start = f"{c_expression(others)} + first + {c_expression(stride)}*r0"
            self.row.add(f"  {kind}x1 {name}[{TILE_BLOCK}][{PITCH}] FB_ALIGNED;")
            self.row.add(
                f"  fb_transpose_{kind}x1({name}[0], (const {kind}x1 *)p[{parameter}] + {start}, "
                f"{c_expression(stride)}, height, width);"
            )
        return buffers

    def _transposed(self, node: Node, axis: str) -> tuple[Size, Size] | None:
        """(stride along r, rest) of a load with stride 1 along the last row axis."""
        if not kernels.LOAD.matches(node) or node.inputs:
            return None
        split = sizes.affine_in(node.attribute("index"), (axis, "r"))
        if split is None or split[0].get(axis, 0) != 1 or split[0].get("r", 0) in (0, 1):
            return None
        return split[0]["r"], split[1]

    def _vector_loops(self, statement: Pass, tiles: dict[Node, str]) -> list[str]:
        outer, count = self.row.indent, self.lanes.count
        lines = [f"{outer}long long c = 0;"]
        variants: list[tuple[str | None, str]] = [("m", "c < width")]
        if self.is_small(kernels.statement_values(statement), 2):
            variants.insert(0, (None, f"c + {count} <= width"))
        for active, condition in variants:
            scope = Scope(self.lanes, ON_R | ON_K, self.row, outer + "  ", active=active)
            scope.add("const long long r = r0 + c;")
            if active:
                scope.add("const long long m = width - c;")
            speller = self.values.spellers[count]
            for node, buffer in tiles.items():
                vector = f"{MEMORY_KIND[node.dtype]}x{count}"
                scope.names[node] = name = self.values.new_name()
                value = speller.decode(f"*(const {vector} *)({buffer}[t] + c)", node.dtype)
                scope.add(f"const {self.lanes.type(node.dtype)} {name} = {value};")
            self._statement_body(statement, scope)
            lines.append(f"{outer}for (; {condition}; c += {count}) {{")
            lines += [*scope.lines, f"{outer}}}"]
        return lines
