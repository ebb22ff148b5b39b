"""Rows of few elements as C: a vector holds several of them.

A kernel of form "row" spends a vector and a tree on each row. Where rows have no more elements than
a vector or two, lie close together in memory and are only reduced, that is nearly all of its time.
Then whole vectors are read across rows, each row spread to a power of two of lanes (the identity in
the lanes too many), and every step of the canonical tree halves all of them at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.compiler.codegen.c.printer.c_reductions import combine
from flambeau.compiler.codegen.c.printer.c_types import signed_kind
from flambeau.compiler.codegen.c.printer.c_values import ON_K, ON_R, Scope, c_expression
from flambeau.ir import kernel as kernels
from flambeau.ir import size as sizes
from flambeau.ir.kernel import Kernel, Pass, RowStores
from flambeau.ir.node import Node, topological

if TYPE_CHECKING:
    from flambeau.compiler.codegen.c.printer.c_forms import Accumulator, FormPrinter

_OPERATIONS = frozenset({"sum", "prod", "max", "min", "xor"})
_KINDS = frozenset({"f32", "f64", "i32", "i64"})
_REFUSED = (kernels.INDEX, kernels.KEPT, kernels.REDUCED, kernels.CHECK_INDEX)


def has_narrow_rows(kernel: Kernel) -> bool:
    """Whether a kernel only reduces rows that are one run of memory."""
    if kernel.form != "row" or len(kernel.rows) != 1 or len(kernel.body) != 2:
        return False
    if "p0" in sizes.free_symbols(kernel.inner):  # pieces of a long sum: the last may be shorter
        return False
    reducing, storing = kernel.body
    if not isinstance(reducing, Pass) or not isinstance(storing, RowStores):
        return False
    if reducing.stores or reducing.keeps or len(reducing.reductions) != 1:
        return False
    _, operation, value = reducing.reductions[0]
    if operation not in _OPERATIONS or value.dtype not in ("f16", "bf16", *_KINDS):
        return False
    return all(_is_dense(node, kernel) for node in topological([value]))


def _is_dense(node: Node, kernel: Kernel) -> bool:
    """Whether a value can be had for neighbours in memory, whatever row they are in."""
    if not kernels.LOAD.matches(node):
        return not any(form.matches(node) for form in _REFUSED)
    if node.inputs:
        return False
    affine = sizes.affine_in(node.attribute("index"), ("p0", "r"))
    if affine is None:
        return False
    row, element = affine[0].get("p0", 0), affine[0].get("r", 0)
    return (row == 0 and element == 0) or (row == kernel.inner and element == 1)


def narrow_rows(form: FormPrinter, make: type[Accumulator]) -> list[str]:
    """C lines that compute rows `row` .. `stop` where they are narrow, and return; else nothing."""
    kernel, count = form.kernel, form.lanes.count
    if count < 4 or not has_narrow_rows(kernel):
        return []
    reducing, storing = kernel.body
    assert isinstance(reducing, Pass) and isinstance(storing, RowStores)
    accumulator = make(form, *reducing.reductions[0])
    if accumulator.kind not in _KINDS:
        return []
    inner = c_expression(kernel.inner)
    if inner.isdigit() and int(inner) > 2 * count:
        return []
    integer = signed_kind(accumulator.kind)
    places = f"{integer}x{count}"
    steps = ", ".join(map(str, range(count)))
    return [
        f"  if ({inner} <= {2 * count}) {{",
        f"    const long long inner = {inner};",
        "    long long width = 1;",
        f"    while (width < inner && width < {count}) width *= 2;",
        f"    const {places} o = {{{steps}}}, in = o & ({integer}x1)(width - 1);",
        f"    const {places} from = (o - in) / ({integer}x1)width * ({integer}x1)inner + in;",
        f"    for (; row < stop; row += {count}) {{",
        *_parts(form, accumulator, reducing, integer),
        *_halves(accumulator, places, count),
        *_results(form, accumulator, storing),
        "    }",
        "    return;",
        "  }",
    ]


def _parts(form: FormPrinter, accumulator: Accumulator, reducing: Pass, integer: str) -> list[str]:
    """Vectors of spread rows: as many as a row has lanes. Of longer rows the second half is the
    other operand of the tree's first step."""
    count, vector = form.lanes.count, accumulator.vector
    row = Scope(form.values.scalars, 0, None, "        ")
    scope = Scope(form.lanes, ON_R | ON_K, row, "          ", active="m")
    form.values.emit(kernels.statement_values(reducing), scope)
    value = accumulator.entering(scope)
    scope.add(f"const {vector} y = {value};")
    start = f"fb_splat_{vector}({accumulator.identity})"
    used = f"({integer}x{count})(in < ({integer}x1)(inner - r))"
    spread = f"fb_select_{vector}({used}, fb_pick_{vector}(y, y, from), {start})"
    operation, kind = accumulator.operation, accumulator.kind
    scope.add(f"const {vector} z = {combine(operation, kind, count, start, spread)};")
    scope.add(f"part[g] = r ? {combine(operation, kind, count, 'part[g]', 'z')} : z;")
    return [
        f"      {vector} part[{count}];",
        f"      const long long each = {count} / width;",
        "      for (long long g = 0; g < width; ++g) {",
        "        const long long p0 = row + g * each, rest = stop - p0;",
        f"        if (rest <= 0 || inner == 0) {{ part[g] = {start}; continue; }}",
        *row.lines,
        f"        for (long long r = 0; r < inner; r += {count}) {{",
        "          const long long m = (rest < each ? rest : each) * inner - r;",
        *scope.lines,
        "        }",
        "      }",
    ]


def _halves(accumulator: Accumulator, places: str, count: int) -> list[str]:
    """Each step of the tree: the two halves of every row."""
    vector, x1 = accumulator.vector, places.split("x")[0] + "x1"
    joined = combine(accumulator.operation, accumulator.kind, count, "low", "high")
    pair = "part[2 * g], part[2 * g + 1]"
    return [
        "      for (long long s = width / 2; s; s /= 2) {",
        f"        const {places} first = o + (o & -({x1})s);",
        "        for (long long g = 0; g < s; ++g) {",
        f"          const {vector} low = fb_pick_{vector}({pair}, first);",
        f"          const {vector} high = fb_pick_{vector}({pair}, first + ({x1})s);",
        f"          part[g] = {joined};",
        "        }",
        "      }",
    ]


def _results(form: FormPrinter, accumulator: Accumulator, storing: RowStores) -> list[str]:
    """Prints the statements that run once per row, row by row."""
    count = form.lanes.count
    outer, form.row = form.row, Scope(form.values.scalars, 0, None, "        ")
    accumulator.result = form.values.new_name("t")
    form.row.add(f"{accumulator.kind}x1 {accumulator.result} = results[l];")
    accumulator.define(form.row)
    form.row_stores(storing)
    lines, form.row = form.row.lines, outer
    return [
        f"      const {accumulator.kind}x1 *const results = (const {accumulator.kind}x1 *)part;",
        f"      const long long high = stop - row < {count} ? stop - row : {count};",
        "      for (long long l = 0; l < high; ++l) {",
        "        const long long p0 = row + l;",
        *lines,
        "      }",
    ]
