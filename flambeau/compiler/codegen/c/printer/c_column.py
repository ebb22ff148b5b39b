"""Kernels of forms "column" and "scan" as C: r is vectorised, k is looped.

A kernel function handles blocks of `COLUMN_BLOCK` columns. What a reduction accumulates for the 32
canonical lanes of each column lies in a small array that stays in the first-level cache, so that
memory is read row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flambeau.compiler.codegen.c.printer.c_forms import CANONICAL_LANES, Accumulation, FormPrinter
from flambeau.compiler.codegen.c.printer.c_reductions import combine, identity
from flambeau.compiler.codegen.c.printer.c_types import signed_kind
from flambeau.compiler.codegen.c.printer.c_values import ON_K, ON_R, Scope, c_expression
from flambeau.ir import kernel as kernels
from flambeau.ir.kernel import (
    COLUMN_BLOCK,
    REDUCE_BLOCK,
    REDUCE_CHUNK,
    Pass,
    ReducePass,
    ScanPass,
    Store,
)
from flambeau.ir.node import Node, topological

_ORDERED = ("sum", "prod")  # the others give the same bits in any order: one lane will do

Body = Callable[[Scope], None]


class ColumnPrinter(FormPrinter):
    """Form "column"."""

    def axes(self) -> list[tuple[str, str]]:
        """The row axes, then the blocks of columns."""
        blocks = f"({c_expression(self.kernel.inner)} + {COLUMN_BLOCK - 1}) / {COLUMN_BLOCK}"
        return [*super().axes(), ("block", blocks)]

    def body(self) -> None:
        """Fills the row scope."""
        self.row.add(f"const long long r0 = block * {COLUMN_BLOCK};")
        left = f"{c_expression(self.kernel.inner)} - r0"
        self.row.add(f"const long long w = {left} < {COLUMN_BLOCK} ? {left} : {COLUMN_BLOCK};")
        self.row.add(f"const long long extent = {c_expression(self.kernel.reduce)};")
        for statement in self.kernel.body:
            self.statement(statement)

    def statement(self, statement: kernels.Statement) -> None:
        """One statement of the body."""
        if isinstance(statement, ReducePass):
            self._reduce_pass(statement)
        else:
            assert isinstance(statement, Pass)
            roots = [value for _, _, value in statement.stores]
            self.row.lines += self.column_loop(
                roots, self.row, lambda scope: self._stores(statement.stores, scope)
            )

    def _stores(self, stores: Sequence[Store], scope: Scope) -> None:
        self.values.emit([value for _, _, value in stores], scope)
        for parameter, index, value in stores:
            self.values.store(parameter, index, value, scope)

    # --------------------------------------------------------------------------- loops

    def column_loop(self, roots: Sequence[Node], parent: Scope, body: Body) -> list[str]:
        """The loop over the vectors of a block of columns; the parent's lines come before it."""
        count, outer = self.lanes.count, parent.indent
        lines = [f"{outer}{{", f"{outer}  long long c = 0;"]
        shape: list[tuple[str | None, str]] = [("m", "c < w")]
        if self.is_small(roots, 3):
            shape.insert(0, (None, f"c + {count} <= w"))
        for active, condition in shape:
            scope = Scope(self.lanes, ON_R | ON_K, parent, outer + "    ", active=active)
            scope.add("const long long r = r0 + c;")
            if active:
                scope.add("const long long m = w - c;")
            body(scope)
            lines.append(f"{outer}  for (; {condition}; c += {count}) {{")
            lines += [*scope.lines, f"{outer}  }}"]
        return [*lines, f"{outer}}}"]

    def k_scope(self) -> Scope:
        """Scalars that vary along k."""
        return Scope(self.values.scalars, ON_K, self.row, self.row.indent + "    ")

    def hoist(self, roots: Sequence[Node]) -> None:
        """Computes what varies along r only before the k loop, into arrays."""
        levels, hoisted = self.values.levels, dict[Node, None]()
        for node in topological(roots):
            operands = node.inputs if levels[node] == ON_R | ON_K else ()
            if self.values.comparison(node) is not None:
                continue
            for operand in operands:
                if levels[operand] == ON_R and not any(
                    form.matches(operand) for form in (kernels.REDUCED, kernels.LOAD)
                ):
                    hoisted[operand] = None
        nodes = [node for node in hoisted if node not in self.row.names]
        if not nodes:
            return
        names = {}
        for node in nodes:
            names[node] = name = self.values.new_name("h")
            self.row.add(f"{self.lanes.kind(node.dtype)}x1 {name}[{COLUMN_BLOCK}] FB_ALIGNED;")

        def body(scope: Scope) -> None:
            self.values.emit(nodes, scope)
            for node in nodes:
                kind = self.lanes.type(node.dtype)
                value = self.values.name(node, scope)
                scope.add(f"*({kind} *)({names[node]} + c) = {value};")

        self.row.lines += self.column_loop(nodes, self.row, body)
        self.values.hoisted.update(names)

    # --------------------------------------------------------------------------- reductions

    def _reduce_pass(self, statement: ReducePass) -> None:
        roots = kernels.statement_values(statement)
        self.hoist(roots)
        split = self.several_blocks(self.kernel.reduce)
        reductions = [_ColumnReduction(self, *item, split) for item in statement.reductions]
        for reduction in reductions:
            reduction.declare()
        scope = self.k_scope()
        scope.add("const int l = (int)(k & 31);")
        for reduction in reductions:
            reduction.choose(scope)

        def body(inner: Scope) -> None:
            self.values.emit(roots, inner)
            for reduction in reductions:
                reduction.step(inner)
            for parameter, index, value in statement.stores:
                self.values.store(parameter, index, value, inner)

        loop = self.column_loop(roots, scope, body)
        outer = self.row.indent
        chunked = [reduction for reduction in reductions if reduction.chunked]
        if split:
            step = f"k0 += {REDUCE_BLOCK}, ++j"
            self.row.add(f"for (long long k0 = 0, j = 0; k0 == 0 || k0 < extent; {step}) {{")
            edge = f"extent - k0 < {REDUCE_BLOCK} ? extent : k0 + {REDUCE_BLOCK}"
        else:
            self.row.add("{ const long long k0 = 0;")
            edge = "extent"
        self.row.add(f"  const long long edge = {edge};")
        for reduction in reductions:
            if reduction not in chunked:
                self.row.lines += [outer + "  " + line for line in reduction.start()]
        if chunked:
            test = "chunk == k0 || chunk < edge"
            self.row.add(f"  for (long long chunk = k0; {test}; chunk += {REDUCE_CHUNK}) {{")
            stop = f"edge - chunk < {REDUCE_CHUNK} ? edge : chunk + {REDUCE_CHUNK}"
            self.row.add(f"  const long long stop = {stop};")
            for reduction in chunked:
                self.row.lines += [outer + "  " + line for line in reduction.start()]
        first, last = ("chunk", "stop") if chunked else ("k0", "edge")
        self.row.add(f"  for (long long k = {first}; k < {last}; ++k) {{")
        self.row.lines += [*scope.lines, *loop, outer + "  }"]
        if chunked:
            for reduction in chunked:
                self.row.lines += [outer + "  " + line for line in reduction.end_chunk()]
            self.row.add("  }")
        for reduction in reductions:
            self.row.lines += [outer + "  " + line for line in reduction.end()]
        self.row.add("}")
        for reduction in reductions:
            reduction.conclude()


class _ColumnReduction:
    """One reduction along k for every column of a block."""

    def __init__(
        self, form: ColumnPrinter, name: str, operation: str, value: Node, split: bool
    ) -> None:
        self.form, self.name, self.operation, self.value = form, name, operation, value
        self.is_arg = operation.startswith("arg")
        lanes = form.lanes
        self.accumulation = Accumulation.of(lanes, operation, value.dtype)
        self.kind, self.identity = self.accumulation.kind, self.accumulation.identity
        self.vector = f"{self.kind}x{lanes.count}"
        self.position = f"{signed_kind(self.kind)}x{lanes.count}"
        self.ordered = operation in _ORDERED
        self.split = split and self.ordered
        several = form.several(form.kernel.reduce, REDUCE_CHUNK)
        self.chunked = self.accumulation.rounds and several
        self.array = form.values.new_name("a")
        self.result = form.values.new_name("t")

    def declare(self) -> None:
        """Row scope: arrays, and the start of what is not accumulated by blocks."""
        row, t, lanes = self.form.row, f"{self.kind}x1", CANONICAL_LANES if self.ordered else 1
        row.add(f"{t} {self.array}[{lanes}][{COLUMN_BLOCK}] FB_ALIGNED;")
        start = self.identity
        if self.is_arg:
            p = f"{signed_kind(self.kind)}x1"
            row.add(f"{p} {self.array}at[{COLUMN_BLOCK}] FB_ALIGNED;")
            row.add(f"for (int c = 0; c < {COLUMN_BLOCK}; ++c) {self.array}at[c] = -1;")
        first = f"{self.array}[0]"
        if self.ordered:
            first = f"{self.array}first"
            row.add(f"{t} {first}[{COLUMN_BLOCK}] FB_ALIGNED;")
        if self.chunked:
            row.add(f"{t} {self.array}sum[{lanes}][{COLUMN_BLOCK}] FB_ALIGNED;")
            row.add(f"int {self.array}n = 32;")
        row.add(f"for (int c = 0; c < {COLUMN_BLOCK}; ++c) {first}[c] = {start};")
        if self.split:
            up = f"{self.result}up"
            row.add(f"{t} {up}[{COLUMN_BLOCK}][3][32];")
            fill = f"for (int l = 0; l < {COLUMN_BLOCK * 96}; ++l) (({t} *){up})[l] = {start};"
            row.add(f"if (extent > {REDUCE_BLOCK}) {fill}")

    def start(self) -> list[str]:
        """Start of a chunk: lanes beyond the extent would only add identities, of those some are
        needed for the tree; the others are written by their first elements."""
        if not self.ordered:
            return []
        start = self.identity
        lanes, count = f"{self.array}n", self.form.lanes.count
        vector = f"*({self.vector} *)({self.array}[l] + c) = fb_splat_{self.vector}({start});"
        extent = "stop - chunk" if self.chunked else "edge - k0"
        return [
            f"{'' if self.chunked else 'int '}{lanes} = 32;",
            f"while ({lanes} > 1 && {lanes} / 2 >= {extent}) {lanes} /= 2;",
            f"for (long long l = {extent}; l < {lanes}; ++l)",
            f"  for (int c = 0; c < {COLUMN_BLOCK}; c += {count}) {vector}",
        ]

    def end_chunk(self) -> list[str]:
        """End of one of several chunks: its lanes are added to those before. After the last the
        sums are where those of a single chunk would be."""
        count, place = self.form.lanes.count, "[l] + c)"
        new = f"*({self.vector} *)({self.array}{place}"
        total = f"*({self.vector} *)({self.array}sum{place}"
        added = combine(self.operation, self.kind, count, total, new)
        columns = f"for (long long c = 0; c < w; c += {count})"
        return [
            "if (chunk > k0) {",
            f"  if (stop - chunk < {CANONICAL_LANES}) {self.array}n = {CANONICAL_LANES};",
            f"  for (long long l = 0; l < {CANONICAL_LANES}; ++l) {columns}",
            f"    {new} = l < stop - chunk ? {added} : {total};",
            "}",
            f"if (stop < edge) for (int l = 0; l < {CANONICAL_LANES}; ++l) {columns}",
            f"  {total} = {new};",
        ]

    def choose(self, scope: Scope) -> None:
        """Returns the addend of an element: a lane, or the identity at the lane's start."""
        if self.ordered:
            start = "chunk" if self.chunked else "k0"
            old = f"k - {start} < {CANONICAL_LANES} ? {self.array}first : {self.array}[l]"
            scope.add(f"const {self.kind}x1 *const {self.array}old = {old};")

    def step(self, scope: Scope) -> None:
        """Adds one vector of columns of one k."""
        name = self.form.values.name(self.value, scope)
        count = self.form.lanes.count
        name = self.accumulation.enter(name, count)
        if self.is_arg:
            position = f"fb_splat_{self.position}(({signed_kind(self.kind)}x1)k)"
            scope.add(
                f"fb_{self.operation}_{self.vector}(({self.vector} *)({self.array}[0] + c), "
                f"({self.position} *)({self.array}at + c), {name}, {position});"
            )
            return
        lane = "l" if self.ordered else "0"
        target = f"*({self.vector} *)({self.array}[{lane}] + c)"
        old = f"*(const {self.vector} *)({self.array}old + c)" if self.ordered else target
        scope.add(f"{target} = {combine(self.operation, self.kind, count, old, name)};")

    def end(self) -> list[str]:
        """End of a block: the tree over the lanes, then the levels above."""
        if not self.ordered:
            return []
        lanes, count = f"{self.array}n", self.form.lanes.count
        left = f"*({self.vector} *)({self.array}[l] + c)"
        right = f"*({self.vector} *)({self.array}[l + s] + c)"
        lines = [
            f"for (int s = {lanes} / 2; s; s /= 2)",
            f"  for (int l = 0; l < s; ++l) for (int c = 0; c < {COLUMN_BLOCK}; c += {count})",
            f"    {left} = {combine(self.operation, self.kind, count, left, right)};",
        ]
        if self.split:
            push = f"fb_push{self.operation}_{self.kind}x1"
            element = f"{self.array}[0][c]"
            lines.append(
                f"if (extent > {REDUCE_BLOCK}) for (int c = 0; c < w; ++c) "
                f"{element} = {push}({self.result}up[c], j, {element}, edge == extent);"
            )
        return lines

    def conclude(self) -> None:
        """After the last block: an array with one result per column."""
        row, form = self.form.row, self.form
        form.values.arrays[self.name] = f"{self.array}[0]"
        dtype = form.reduced_dtypes.get(self.name)
        if self.is_arg:
            row.add(f"i64x1 {self.result}[{COLUMN_BLOCK}] FB_ALIGNED;")
            at = f"{self.array}at[c]"
            row.add(
                f"for (int c = 0; c < {COLUMN_BLOCK}; ++c) {self.result}[c] = {at} < 0 ? 0 : {at};"
            )
            form.values.arrays[self.name] = self.result
        elif self.accumulation.ordered or dtype in ("f16", "bf16"):
            self._convert(dtype)

    def _convert(self, dtype: str | None) -> None:
        """Results become values: from their order, or rounded to a half type."""
        form, count = self.form, self.form.lanes.count
        value = f"{self.accumulation.value_kind}x{count}"
        result = self.accumulation.leave("*v", count)
        if dtype in ("f16", "bf16") and not self.accumulation.ordered:
            result = form.values.spellers[count].round_half("*v", dtype)
        vector = f"{self.vector} *v = ({self.vector} *)({self.array}[0] + c);"
        loop = f"for (int c = 0; c < {COLUMN_BLOCK}; c += {count})"
        form.row.add(f"{loop} {{ {vector} *({value} *)v = {result}; }}")


class ScanPrinter(ColumnPrinter):
    """Form "scan". Where there is no axis beside the scanned one, running values are in registers:
    each step waits for the one before.
    """

    @property
    def narrow(self) -> bool:
        """Whether a row of the kernel is one scan."""
        return self.kernel.inner == 1

    def statement(self, statement: kernels.Statement) -> None:
        """The one ScanPass."""
        assert isinstance(statement, ScanPass)
        self.hoist(kernels.statement_values(statement))
        dtypes = {
            node.attribute("name"): node.dtype
            for node in topological(self.kernel.roots())
            if kernels.CARRY.matches(node)
        }
        scans = [_Scan(self, *item, dtypes) for item in statement.scans]
        scope = self.k_scope()

        def body(inner: Scope) -> None:
            for scan in scans:
                scan.step(inner)
            self._stores(statement.stores, inner)

        if self.narrow:
            inner = Scope(self.lanes, ON_R | ON_K, scope, scope.indent)
            body(inner)
            loop = inner.lines
        else:
            loop = self.column_loop(kernels.statement_values(statement), scope, body)
        self.row.add("for (long long k = 0; k < extent; ++k) {")
        self.row.lines += [*scope.lines, *loop, self.row.indent + "}"]


class _Scan:
    """One running value for every column of a block."""

    def __init__(
        self, form: ScanPrinter, name: str, operation: str, value: Node, dtypes: dict[str, str]
    ) -> None:
        self.form, self.name, self.operation, self.value = form, name, operation, value
        self.dtype = dtypes.get(name, value.dtype)
        self.kind = form.lanes.kind(value.dtype)
        self.vector = f"{self.kind}x{form.lanes.count}"
        self.array = form.values.new_name("a")
        start = identity("sum" if operation == "linear" else operation, self.kind)
        self._declare(self.array, self.kind, start)
        if operation.startswith("arg"):
            self._declare(f"{self.array}at", "i64", "0")

    def _declare(self, name: str, kind: str, start: str) -> None:
        row = self.form.row
        if self.form.narrow:
            row.add(f"{kind}x1 {name} = {start};")
            return
        row.add(f"{kind}x1 {name}[{COLUMN_BLOCK}] FB_ALIGNED;")
        row.add(f"for (int c = 0; c < {COLUMN_BLOCK}; ++c) {name}[c] = {start};")

    def _running(self, name: str, kind: str) -> str:
        return name if self.form.narrow else f"*({kind}x{self.form.lanes.count} *)({name} + c)"

    def step(self, scope: Scope) -> None:
        """Advances by one k and names the new running value."""
        form, count = self.form, self.form.lanes.count
        linear = self.operation == "linear"
        form.values.emit(self.value.inputs if linear else [self.value], scope)
        running = self._running(self.array, self.kind)
        name = form.values.new_name("w")
        if linear:
            factor, added = (form.values.name(part, scope) for part in self.value.inputs)
            scope.add(f"{self.vector} {name} = {added};")
            scope.add(f"if (k) {name} = {factor} * {running} + {name};")
            self._keep(scope, name, running)
            return
        value = form.values.name(self.value, scope)
        if self.operation in ("sum", "prod"):
            scope.add(
                f"{self.vector} {name} = "
                f"{combine(self.operation, self.kind, count, running, value)};"
            )
        else:
            self._extremum(scope, value, name, running)
        self._keep(scope, name, running)
        if self.operation.startswith("arg"):
            at = self._running(f"{self.array}at", "i64")
            wide = f"fb_to_i64x{count}({name}on)"
            position = f"fb_splat_i64x{count}(k)"
            scope.add(f"i64x{count} {name}at = fb_select_i64x{count}({wide}, {position}, {at});")
            scope.add(f"{at} = {name}at;")
            scope.names[kernels.carry(self.name, self.dtype)] = f"{name}at"

    def _keep(self, scope: Scope, name: str, running: str) -> None:
        """Stores the new running value, rounded to a half type where it has one."""
        if self.dtype in ("f16", "bf16"):
            speller = self.form.values.spellers[self.form.lanes.count]
            scope.add(f"{name} = {speller.round_half(name, self.dtype)};")
        scope.add(f"{running} = {name};")
        scope.names[kernels.carry(self.name, self.dtype)] = name

    def _extremum(self, scope: Scope, value: str, name: str, running: str) -> None:
        """The later one of equals wins, and NaN wins over everything, for good."""
        count, mask = self.form.lanes.count, f"{signed_kind(self.kind)}x{self.form.lanes.count}"
        order = "ge" if self.operation.endswith("max") else "le"
        wins = f"({mask})fb_{order}_x{count}({value}, {running})"
        if self.kind[0] == "f":
            wins = f"{wins} | ({mask})fb_ne_x{count}({value}, {value})"
        scope.add(f"{mask} {name}on = {wins};")
        if self.form.narrow and self.kind[0] == "f":  # a right guess is faster than waiting
            scope.add(f"{self.vector} {name} = {running};")
            scope.add(f"if (__builtin_expect({name}on, 0)) {{ {name} = {value}; FB_PLAIN; }}")
            return
        scope.add(f"{self.vector} {name} = fb_select_{self.vector}({name}on, {value}, {running});")
