"""Kernels of forms "map" and "row" as C, and what all forms share: prologue, row loop, chunks.

A loop over r is printed twice where its body is small: a fast loop over whole vectors, then one
whose memory accesses know how many lanes are active. A large body (transcendental functions) is
printed once, in the second manner, where the checks cost nothing: it halves the compile time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flambeau.compiler.codegen.c.printer.c_index import index_difference
from flambeau.compiler.codegen.c.printer.c_narrow import narrow_rows
from flambeau.compiler.codegen.c.printer.c_reductions import combine, identity, order_identity
from flambeau.compiler.codegen.c.printer.c_runs import find_edges
from flambeau.compiler.codegen.c.printer.c_spelling import cost
from flambeau.compiler.codegen.c.printer.c_types import MEMORY_KIND, Lanes, kind_bits, signed_kind
from flambeau.compiler.codegen.c.printer.c_values import (
    ON_K,
    ON_R,
    ON_RUNS,
    Scope,
    Values,
    c_expression,
)
from flambeau.compiler.targets import Target
from flambeau.ir import kernel as kernels
from flambeau.ir import size as sizes
from flambeau.ir.kernel import MAP_CHUNK, REDUCE_BLOCK, REDUCE_CHUNK, Kernel, Pass, RowStores
from flambeau.ir.node import ITEM_SIZE, Node, topological
from flambeau.ir.size import Size
from flambeau.ir.spelling import spelling_of

SYMBOL = "fb_kernel"
CANONICAL_LANES = 32
ARGUMENTS = (
    "char *const *p, const long long *n, const fb_scalar *x, long long begin, long long end, "
    "char *scratch"
)
_UNROLLED_COST = 56  # cost of all copies of a loop body up to which a fast loop is worth printing
_RUN_COST = 128  # likewise of one copy in runs without masks
_WIDE = frozenset({"i64", "f64", "c64", "u64"})


def choose_lanes(kernel: Kernel, values_vary: Sequence[Node], target: Target) -> Lanes:
    """The lane count: as many as the largest element that is computed in vectors allows.

    Doubles that are computed of float32s and end in such do not count: the C compiler makes two
    vectors of each, and what is computed in float32 (a sigmoid behind batch norm) has whole ones.
    """
    dtypes = {node.dtype for node in values_vary}
    wide = dtypes & _WIDE and not _splits(kernel, values_vary)
    largest = 16 if "c128" in dtypes else 8 if wide else 4
    mask_bits = 64 if largest >= 8 and _masks_are_wide(values_vary) else 32
    if kernel.form in ("column", "scan") and kernel.inner == 1:
        return Lanes(1, mask_bits)
    return Lanes(target.lanes(largest), mask_bits)


def _splits(kernel: Kernel, values_vary: Sequence[Node]) -> bool:
    """Whether all wide values are doubles between float32s, by arithmetic: comparisons of doubles
    in two vectors become code for each lane."""
    wide = {node for node in values_vary if node.dtype in _WIDE}
    ends = {node for node in values_vary if not wide.isdisjoint(node.inputs)}
    return (
        all(node.dtype == "f64" for node in wide)
        and all(_is_arithmetic(node) for node in wide | ends)
        and wide.isdisjoint(kernel.roots())
    )


def _is_arithmetic(node: Node) -> bool:
    spelling = spelling_of(node.op)
    return spelling.is_operator or spelling.converts


def _masks_are_wide(values: Sequence[Node]) -> bool:
    """Whether what masks come from and select has 64 bits or more, mostly."""
    wide = 0
    for value in values:
        dtype = value.dtype
        if dtype == "bool" and value.inputs and index_difference(value, 1) is None:
            dtype = value.inputs[0].dtype
        elif not spelling_of(value.op).selects and not value.attribute("masked"):
            continue
        if dtype != "bool":
            wide += 1 if dtype in _WIDE or dtype == "c128" else -1
    return wide >= 0


def varying(kernel: Kernel) -> list[Node]:
    """Values that vary along r, i.e. live in vectors."""
    values = Values(kernel, Lanes(1, 32))
    compared = set[Node]()  # indices that are only compared, which takes no vectors of theirs
    if not kernel.tiled:
        others = {i for n in values.levels if index_difference(n, 64) is None for i in n.inputs}
        compared = (
            {n for n in values.levels if kernels.INDEX.matches(n)} - others - {*kernel.roots()}
        )
    return [n for n, level in values.levels.items() if level & ON_R and n not in compared]


@dataclass(frozen=True)
class Accumulation:
    """A reduction's accumulation: its kind, and the conversion of values into and out of it."""

    operation: str
    kind: str
    value_kind: str
    is_bool: bool

    @staticmethod
    def of(lanes: Lanes, operation: str, dtype: str) -> Accumulation:
        """The accumulation of values of a dtype."""
        value_kind = kind = lanes.kind(dtype)
        if operation.startswith("arg") and (kind_bits(kind) < 32 or dtype == "bool"):
            kind = "i32"  # positions need more bits than the values have
        elif operation in ("max", "min") and kind[0] == "f":
            kind = signed_kind(kind)  # by their order
        return Accumulation(operation, kind, value_kind, dtype == "bool")

    @property
    def ordered(self) -> bool:
        """Whether floats are accumulated as integers of the same order."""
        return self.kind[0] == "i" and self.value_kind[0] == "f"

    @property
    def identity(self) -> str:
        """C constant that changes nothing."""
        if self.ordered:
            return order_identity(self.operation, kind_bits(self.kind))
        return identity(self.operation, self.kind)

    @property
    def rounds(self) -> bool:
        """Whether the order matters: what rounds is accumulated by chunks."""
        return self.operation in ("sum", "prod") and self.kind[0] not in "iu"

    def enter(self, name: str, lanes: int) -> str:
        """A value, as it is accumulated."""
        if self.ordered:
            return f"fb_order{self.operation}_{self.value_kind}x{lanes}({name})"
        if self.kind == self.value_kind:
            return name
        return f"fb_to_{self.kind}x{lanes}({name}{' & 1' if self.is_bool else ''})"

    def leave(self, name: str, lanes: int) -> str:
        """The result, as a value."""
        if self.ordered:
            return f"fb_unorder{self.operation}_{self.value_kind}x{lanes}({name})"
        return name


class FormPrinter:
    """The base of the printers of the forms."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        """Prepares to print `kernel` for `target`."""
        self.kernel = kernel
        self.lanes = choose_lanes(kernel, varying(kernel), target)
        self.values = Values(kernel, self.lanes)
        self.vectors = max(1, CANONICAL_LANES // self.lanes.count)
        self.row = Scope(self.values.scalars, 0, None, "    ")
        self.reduced_dtypes = {
            node.attribute("name"): node.dtype
            for node in topological(kernel.roots())
            if kernels.REDUCED.matches(node)
        }

    # --------------------------------------------------------------------------- frame

    def print(self) -> str:
        """The C function."""
        self.body()
        lines = [f"void {SYMBOL}({ARGUMENTS}) {{"]
        if self.kernel.size_count:
            names = ", ".join(f"n{i} = n[{i}]" for i in range(self.kernel.size_count))
            lines.append(f"  const long long {names};")
        lines += self._guards()
        if self.kernel.form == "map" and not self.kernel.rows:
            lines += self._flat_frame()
        else:
            lines += self._row_frame()
        return "\n".join([*lines, "}"]) + "\n"

    def body(self) -> None:
        """Fills the row scope: overridden by the forms."""
        for statement in self.kernel.body:
            if isinstance(statement, RowStores):
                self.row_stores(statement)
            else:
                assert isinstance(statement, Pass)
                self.loop(statement)

    def _guards(self) -> list[str]:
        """A checked index into nothing is an error even before anything may be read."""
        lines = []
        for node in topological(self.kernel.roots()):
            if kernels.CHECK_INDEX.matches(node):
                error, extent = node.attribute("parameter"), c_expression(node.attribute("size"))
                dimension = node.attribute("dimension", 0)
                record = f"long long *e = (long long *)p[{error}]"
                fill = f"e[0] = 1; e[1] = 0; e[2] = 0; e[3] = {dimension};"
                lines.append(f"  if ({extent} == 0) {{ {record}; {fill} return; }}")
        return lines

    def _flat_frame(self) -> list[str]:
        inner, edge = c_expression(self.kernel.inner), f"end * {MAP_CHUNK}"
        return [
            "  {",
            f"    const long long inner = {inner} < {edge} ? {inner} : {edge};",
            *self.row.lines,
            "  }",
        ]

    def axes(self) -> list[tuple[str, str]]:
        """(variable, extent in C) of every row axis that chunks are made of."""
        return [(f"p{i}", c_expression(extent)) for i, extent in enumerate(self.kernel.rows)]

    def _row_frame(self) -> list[str]:
        axes = self.axes()
        lines = [f"  const long long q = n[{self.kernel.size_count - 1}];"]
        total = " * ".join(f"e{i}" for i in range(len(axes))) or "1"
        for i, (_, extent) in enumerate(axes):
            lines.append(f"  const long long e{i} = {extent};")
        lines.append(f"  long long row = begin * q, stop = end * q < {total} ? end * q : {total};")
        if axes:
            lines.append("  if (row >= stop) return;")
        lines += narrow_rows(self, Accumulator)
        lines += self._decode(axes)
        lines += ["  for (; row < stop; ++row) {", *self.row.lines]
        lines += self._advance(axes)
        return [*lines, "  }"]

    def _decode(self, axes: list[tuple[str, str]]) -> list[str]:
        """Row axes from the row number; afterwards they count up."""
        if len(axes) == 1:
            return [f"  long long {axes[0][0]} = row;"]
        lines = ["  long long rest = row;"] if axes else []
        for i in range(len(axes) - 1, 0, -1):
            lines.append(f"  long long {axes[i][0]} = rest % e{i}; rest /= e{i};")
        return lines + ([f"  long long {axes[0][0]} = rest;"] if axes else [])

    def _advance(self, axes: list[tuple[str, str]]) -> list[str]:
        text = ""
        for i, (name, _) in enumerate(axes):
            step = f"++{name}"
            text = f"{step};" if i == 0 else f"if ({step} == e{i}) {{ {name} = 0; {text} }}"
        return [f"    {text}"] if text else []

    # --------------------------------------------------------------------------- map, row

    def row_stores(self, statement: RowStores) -> None:
        """Stores of row scalars."""
        self.values.emit([value for _, _, value in statement.stores], self.row)
        for parameter, index, value in statement.stores:
            self.values.emit([self.values.stored(value, value.dtype)], self.row)
            self.values.store(parameter, index, value, self.row)

    def inner(self) -> str:
        """Name of the number of elements along r, defined in row scope."""
        flat = self.kernel.form == "map" and not self.kernel.rows
        if "inner" not in self.row.names:
            self.row.names["inner"] = "inner"
            if not flat:
                self.row.add(f"const long long inner = {c_expression(self.kernel.inner)};")
        return "inner"

    def first(self) -> str:
        """First r of the loop."""
        flat = self.kernel.form == "map" and not self.kernel.rows
        return f"begin * {MAP_CHUNK}" if flat else "0"

    def is_small(self, roots: Sequence[Node], copies: int, limit: int = _UNROLLED_COST) -> bool:
        """Whether a second copy of the loop body is worth its compile time."""
        levels = self.values.levels
        work = sum(cost(node) for node in topological(roots) if levels[node] & ON_R)
        return work * copies <= limit

    def loop(self, statement: Pass) -> None:
        """One Pass."""
        self.inner()
        self._declare_keeps(statement)
        if statement.reductions:
            self._reducing_loop(statement)
            return
        count, roots = self.lanes.count, kernels.statement_values(statement)
        outer, row = self.row.indent, self.row
        lines = [f"{outer}long long r = {self.first()};"]
        edges = {} if count == 1 or self.kernel.tiled else find_edges(roots)
        if edges and not self.is_small(roots, 1, _RUN_COST):
            edges = {}
        if edges:
            lines += self._runs(statement, edges)
        elif self.is_small(roots, 2):
            scope = self.vector_scope(None)
            self._statement_body(statement, scope)
            lines.append(f"{outer}for (; r + {count} <= inner; r += {count}) {{")
            lines += [*scope.lines, f"{outer}}}"]
        scope = self.vector_scope("m")
        scope.add("const long long m = inner - r;")
        self._statement_body(statement, scope)
        if edges:
            lines += [*scope.lines, f"{outer}  r += {count};", f"{outer}}}"]
        else:
            lines.append(f"{outer}for (; r < inner; r += {count}) {{")
            lines += [*scope.lines, f"{outer}}}"]
        row.lines += [f"{outer}{{", *("  " + line for line in lines), f"{outer}}}"]

    def vector_scope(self, active: str | None) -> Scope:
        """A fresh innermost scope."""
        return Scope(self.lanes, ON_R | ON_K, self.row, self.row.indent + "  ", active=active)

    def _runs(self, statement: Pass, edges: dict[Node, list[Size]]) -> list[str]:
        """Whole vectors between the edges of comparisons; then the one that an edge falls into."""
        outer, count = self.row.indent, self.lanes.count
        run = Scope(self.values.scalars, ON_RUNS, self.row, outer + "  ")
        scope = Scope(self.lanes, ON_R | ON_K | ON_RUNS, run, outer + "    ")
        with self.values.runs(edges):
            self._statement_body(statement, scope)
        lines = [f"{outer}while (r < inner) {{", f"{outer}  long long edge = inner;"]
        for edge in dict.fromkeys(edge for several in edges.values() for edge in several):
            text = sizes.stringify(edge, "c")
            lines.append(f"{outer}  if ({text} > r && {text} < edge) edge = {text};")
        lines += [*run.lines, f"{outer}  for (; r + {count} <= edge; r += {count}) {{"]
        return [*lines, *scope.lines, f"{outer}  }}", f"{outer}  if (r >= inner) break;"]

    def _declare_keeps(self, statement: Pass) -> None:
        for name, value in statement.keeps:
            pointer = self.values.new_name("kept")
            kind = MEMORY_KIND[value.dtype]
            offset = " + ".join(["scratch", *self.row.names.get("offsets", "").split()])
            self.row.add(f"{kind}x1 *const {pointer} = ({kind}x1 *)({offset});")
            bytes_needed = f"((inner+63)/64*64*{ITEM_SIZE[value.dtype]})"
            self.row.names["offsets"] = (
                f"{self.row.names.get('offsets', '')} {bytes_needed}".strip()
            )
            self.values.kept[name] = pointer

    def _statement_body(self, statement: Pass, scope: Scope) -> None:
        """Values, then keeps and stores: all loads come first."""
        values = self.values
        values.emit(kernels.statement_values(statement), scope)
        count = self.lanes.count
        for name, value in statement.keeps:
            kind = MEMORY_KIND[value.dtype]
            stored = values.name(values.stored(value, value.dtype), scope)
            encoded = values.spellers[count].encode(stored, value.dtype)
            scope.add(f"*({kind}x{count} *)({values.kept[name]} + r) = {encoded};")
        for parameter, index, value in statement.stores:
            values.store(parameter, index, value, scope)

    # --------------------------------------------------------------------------- reductions

    def _reducing_loop(self, statement: Pass) -> None:
        lanes, outer = self.lanes, self.row.indent
        count, vectors = lanes.count, self.vectors
        split = self.several_blocks(self.kernel.inner)
        accumulators = [Accumulator(self, *reduction) for reduction in statement.reductions]
        for accumulator in accumulators:
            self.row.lines += accumulator.declare(split, "inner")
        chunked = [a for a in accumulators if a.accumulation.rounds]
        if not self.several(self.kernel.inner, REDUCE_CHUNK):
            chunked = []
        edge, start = ("stop", "chunk") if chunked else ("edge", "block")
        before = [outer + line for a in accumulators if a not in chunked for line in a.start()]
        before += [outer + line for a in chunked for line in a.start_chunks()]
        lines = [f"{outer}long long q = {start};"]
        for accumulator in chunked:
            lines += [outer + line for line in accumulator.start()]
        if self.is_small(kernels.statement_values(statement), vectors + 1):
            lines += self._fast_block(statement, accumulators, edge)
        elif self.is_small(kernels.statement_values(statement), 2) and not any(
            accumulator.is_arg for accumulator in accumulators
        ):
            lines += self._whole_vectors(statement, accumulators, start, edge)
        scope = self.vector_scope("m")
        scope.add(f"const long long r = q, m = {edge} - q;")
        scope.add(f"const int u = (int)((q - {start}) / {count}) & {vectors - 1};")
        self._statement_body(statement, scope)
        for accumulator in accumulators:
            accumulator.step(scope, "u")
        lines.append(f"{outer}for (; q < {edge}; q += {count}) {{")
        lines += [*scope.lines, f"{outer}}}"]
        if chunked:
            lines += [outer + line for a in chunked for line in a.end_chunk()]
            lines = self._chunk_loop(lines)
        lines = before + lines
        for accumulator in accumulators:
            lines += [outer + line for line in accumulator.end(split, "inner")]
        self._block_loop(lines, split)
        for accumulator in accumulators:
            accumulator.define(self.row)

    def several_blocks(self, extent: Size) -> bool:
        """Whether a reduced extent may need more than one block of the canonical order."""
        return self.several(extent, REDUCE_BLOCK)

    def several(self, extent: Size, part: int) -> bool:
        """Whether an extent may need more than one part of so many elements."""
        bound = extent if isinstance(extent, int) else sizes.upper_bound(extent)
        return bound is None or bound > part

    def _chunk_loop(self, lines: list[str]) -> list[str]:
        outer, step = self.row.indent, REDUCE_CHUNK
        return [
            f"{outer}for (long long chunk = block; chunk < edge; chunk += {step}) {{",
            f"{outer}  const long long stop = edge - chunk < {step} ? edge : chunk + {step};",
            *("  " + line for line in lines),
            f"{outer}}}",
        ]

    def _block_loop(self, lines: list[str], split: bool) -> None:
        outer = self.row.indent
        self.row.add("long long blocks = 0;" if "blocks" not in self.row.names else "blocks = 0;")
        self.row.names["blocks"] = "blocks"
        if split:
            test = "block == 0 || block < inner"
            head = f"for (long long block = 0; {test}; block += {REDUCE_BLOCK}) {{"
            edge = f"inner - block < {REDUCE_BLOCK} ? inner : block + {REDUCE_BLOCK}"
        else:
            head, edge = "{ const long long block = 0;", "inner"
        self.row.lines += [
            f"{outer}{head}",
            f"{outer}  const long long edge = {edge};",
            *("  " + line for line in lines),
            f"{outer}  ++blocks;",
            f"{outer}}}",
        ]

    def _whole_vectors(
        self, statement: Pass, accumulators: list[Accumulator], start: str, edge: str
    ) -> list[str]:
        """The loop over whole vectors, of a body too large for copies; accumulators are arrays."""
        outer, count = self.row.indent, self.lanes.count
        scope = self.vector_scope(None)
        scope.add("const long long r = q;")
        scope.add(f"const int u = (int)((q - {start}) / {count}) & {self.vectors - 1};")
        self._statement_body(statement, scope)
        for accumulator in accumulators:
            accumulator.step(scope, "u")
        head = f"{outer}for (; q + {count} <= {edge}; q += {count}) {{"
        return [head, *scope.lines, f"{outer}}}"]

    def _fast_block(self, statement: Pass, accumulators: list[Accumulator], edge: str) -> list[str]:
        """The loop over whole groups of 32 elements; accumulators live in registers."""
        outer, count, vectors = self.row.indent, self.lanes.count, self.vectors
        body = []
        for u in range(vectors):
            scope = self.vector_scope(None)
            scope.add(f"const long long r = q + {u * count};")
            self._statement_body(statement, scope)
            for accumulator in accumulators:
                accumulator.fast_step(scope, u)
            body += [f"{outer}  {{", *("  " + line for line in scope.lines), f"{outer}  }}"]
        lines = [f"{outer}if (q + {CANONICAL_LANES} <= {edge}) {{"]
        for accumulator in accumulators:
            lines += [outer + line for line in accumulator.into_registers()]
        lines.append(f"{outer}for (; q + {CANONICAL_LANES} <= {edge}; q += {CANONICAL_LANES}) {{")
        lines += [*body, f"{outer}}}"]
        for accumulator in accumulators:
            lines += [outer + line for line in accumulator.from_registers()]
        return [*lines, f"{outer}}}"]


class Accumulator:
    """One reduction along r."""

    def __init__(self, form: FormPrinter, name: str, operation: str, value: Node) -> None:
        self.form, self.name, self.operation, self.value = form, name, operation, value
        self.is_arg = operation.startswith("arg")
        lanes = form.lanes
        self.accumulation = Accumulation.of(lanes, operation, value.dtype)
        self.kind, self.identity = self.accumulation.kind, self.accumulation.identity
        self.vector = f"{self.kind}x{lanes.count}"
        self.position = f"{signed_kind(self.kind)}x{lanes.count}"
        self.array = form.values.new_name("a")
        self.whole = self.array  # the lanes of a block: of its chunks, where it has several
        self.result = form.values.new_name("t")

    def declare(self, split: bool, extent: str) -> list[str]:
        """Row scope: the result, and the levels above the blocks."""
        indent, t = self.form.row.indent, f"{self.kind}x1"
        start = self.identity
        if self.is_arg:
            return [f"{indent}{t} {self.result}best = {start}; i64x1 {self.result} = -1;"]
        lines = [f"{indent}{t} {self.result} = {start};"]
        if split:
            up = f"{self.result}up[l / 32][l % 32]"
            fill = f"for (int l = 0; l < 96; ++l) {{ {up} = {start}; FB_PLAIN; }}"
            lines.append(f"{indent}{t} {self.result}up[3][32];")
            lines.append(f"{indent}if ({extent} > {REDUCE_BLOCK}) {fill}")
        return lines

    def _lanes(self, name: str) -> str:
        vectors = self.form.vectors
        filled = ", ".join([f"fb_splat_{self.vector}({self.identity})"] * vectors)
        return f"{self.vector} {name}[{vectors}] = {{ {filled} }};"

    def start_chunks(self) -> list[str]:
        """Start of a block of several chunks."""
        self.whole = f"{self.array}sum"
        return [self._lanes(self.whole)]

    def end_chunk(self) -> list[str]:
        """End of a chunk: its lanes are added to those of the block."""
        vectors, count = self.form.vectors, self.form.lanes.count
        looped = vectors > 8
        lines = []
        for u in ["u"] if looped else range(vectors):
            total, part = f"{self.whole}[{u}]", f"{self.array}[{u}]"
            lines.append(f"{total} = {combine(self.operation, self.kind, count, total, part)};")
        if looped:
            return [f"for (int u = 0; u < {vectors}; ++u) {{ {lines[0]} FB_PLAIN; }}"]
        return lines

    def start(self) -> list[str]:
        """Start of what is accumulated: of a chunk, else of a block."""
        vectors = self.form.vectors
        lines = [self._lanes(self.array)]
        if self.is_arg:
            empty = ", ".join([f"fb_splat_{self.position}(-1)"] * vectors)
            lines.append(f"{self.position} {self.array}at[{vectors}] = {{ {empty} }};")
        return lines

    def entering(self, scope: Scope) -> str:
        """The value, as it is accumulated."""
        name = self.form.values.name(self.value, scope)
        return self.accumulation.enter(name, self.form.lanes.count)

    def _positions(self, start: str) -> str:
        count = self.form.lanes.count
        steps = ", ".join(map(str, range(count)))
        scalar = f"({signed_kind(self.kind)}x1)({start})"
        return f"(({self.position}){{{steps}}} + {scalar})"

    def step(self, scope: Scope, u: str) -> None:
        """One vector, of which `m` lanes count where the scope says so."""
        count = self.form.lanes.count
        name = self.form.values.new_name("y")
        value = self.entering(scope)
        if self.is_arg:
            self._arg_tail(scope, value, name, u)
            return
        scope.add(f"{self.vector} {name} = {value};")
        replaced = f"fb_splat_{self.vector}({self.identity})"
        masked = f"fb_select_{self.vector}(fb_tail_{self.vector}(m), {name}, {replaced})"
        if scope.active:
            scope.add(f"if (__builtin_expect(m < {count}, 0)) {name} = {masked};")
        target = f"{self.array}[{u}]"
        scope.add(f"{target} = {combine(self.operation, self.kind, count, target, name)};")

    def _arg_tail(self, scope: Scope, value: str, name: str, u: str) -> None:
        """Inactive lanes stay what they were."""
        position, array = self.position, self.array
        scope.add(f"{self.vector} {name} = {array}[{u}]; {position} {name}at = {array}at[{u}];")
        call = f"fb_{self.operation}_{self.vector}"
        scope.add(f"{call}(&{name}, &{name}at, {value}, {self._positions('r - block')});")
        scope.add(f"{position} {name}on = fb_tail_{self.vector}(m);")
        scope.add(
            f"{array}[{u}] = fb_select_{self.vector}({name}on, {name}, {array}[{u}]); "
            f"{array}at[{u}] = fb_select_{position}({name}on, {name}at, {array}at[{u}]);"
        )

    def fast_step(self, scope: Scope, u: int) -> None:
        """One whole vector, in registers."""
        value, register = self.entering(scope), f"{self.array}_{u}"
        if self.is_arg:
            call = f"fb_{self.operation}_{self.vector}(&{register}, &{register}at, "
            scope.add(f"{call}{value}, {self._positions('r - block')});")
            return
        count = self.form.lanes.count
        scope.add(f"{register} = {combine(self.operation, self.kind, count, register, value)};")

    def into_registers(self) -> list[str]:
        """Before the fast loop."""
        lines = [
            f"{self.vector} {self.array}_{u} = {self.array}[{u}];" for u in range(self.form.vectors)
        ]
        if self.is_arg:
            lines += [
                f"{self.position} {self.array}_{u}at = {self.array}at[{u}];"
                for u in range(self.form.vectors)
            ]
        return lines

    def from_registers(self) -> list[str]:
        """After the fast loop."""
        lines = [f"{self.array}[{u}] = {self.array}_{u};" for u in range(self.form.vectors)]
        if self.is_arg:
            lines += [
                f"{self.array}at[{u}] = {self.array}_{u}at;" for u in range(self.form.vectors)
            ]
        return lines

    def end(self, split: bool, extent: str) -> list[str]:
        """End of a block: its result joins the others."""
        if self.is_arg:
            return self._arg_end()
        tree = f"fb_tree{self.operation}_{self.vector}({self.whole})"
        if not split:
            return [f"{self.result} = {tree};"]
        arguments = f"{self.result}up, blocks, {self.result}, edge == inner"
        push = f"{self.result} = fb_push{self.operation}_{self.kind}x1({arguments})"
        return [f"{self.result} = {tree};", f"if ({extent} > {REDUCE_BLOCK}) {push};"]

    def _arg_end(self) -> list[str]:
        name, t = self.result, f"{self.kind}x1"
        array, seen = self.array, "edge - block"
        tree = f"fb_tree{self.operation}_{self.vector}({array}, {array}at, {seen}, &b)"
        better = f"b {'>' if self.operation == 'argmax' else '<'} {name}best"
        if self.kind[0] == "f":
            better = f"{name}best == {name}best && ({better} || b != b)"
        update = f"{{ {name}best = b; {name} = at + block; }}"
        return [
            f"{{ {t} b; long long at = {tree};",
            f"  if (at >= 0 && ({name} < 0 || ({better}))) {update} }}",
        ]

    def define(self, row: Scope) -> None:
        """Makes the result a row scalar."""
        form = self.form
        dtype = form.reduced_dtypes.get(self.name)
        if dtype is None:
            return
        if self.is_arg:
            row.add(f"if ({self.result} < 0) {self.result} = 0;")
        elif self.accumulation.ordered:
            value = self.accumulation.leave(self.result, 1)
            self.result = form.values.new_name()
            row.add(f"const {self.accumulation.value_kind}x1 {self.result} = {value};")
        elif dtype in ("f16", "bf16"):
            rounded = form.values.spellers[1].round_half(self.result, dtype)
            row.add(f"{self.result} = {rounded};")
        row.names[kernels.reduced(self.name, dtype)] = self.result
