"""Running maxima, minima and integer sums along memory as C: a vector holds neighbours of one scan.

Where no axis lies beside the scanned one, a scan is one chain in which each step waits for the one
before. These operations give the same bits however they are grouped, so a vector first becomes the
scan of its own elements, in as many steps as its lane count has bits, and then takes part in the
chain as one element. Sums and products of floats are not regrouped: their order is promised.
"""

from __future__ import annotations

from dataclasses import replace

from flambeau.compiler.codegen.c.printer.c_forms import FormPrinter
from flambeau.compiler.codegen.c.printer.c_reductions import combine, identity
from flambeau.compiler.codegen.c.printer.c_types import kind_bits, signed_kind
from flambeau.compiler.codegen.c.printer.c_values import Scope
from flambeau.ir import kernel as kernels
from flambeau.ir import size as sizes
from flambeau.ir.kernel import Kernel, ScanPass
from flambeau.ir.node import Node, node, topological
from flambeau.ir.size import Size

_FEW = 8  # a scan of at most so many elements is no work for vectors
_EXPRESSIONS = {kernels.LOAD.name: "index", kernels.INDEX.name: "expression"}


def along_memory(kernel: Kernel) -> Kernel | None:
    """The kernel with the scanned axis as its inner one; None where that is not possible."""
    extent = kernel.reduce
    if kernel.form != "scan" or kernel.inner != 1 or (isinstance(extent, int) and extent <= _FEW):
        return None
    (statement,) = kernel.body
    assert isinstance(statement, ScanPass)
    if not all(_regroups(operation, value.dtype) for _, operation, value in statement.scans):
        return None
    renamed = _renamed(kernel)
    body = ScanPass(
        tuple((name, operation, renamed[value]) for name, operation, value in statement.scans),
        tuple((p, _by_r(index), renamed[value]) for p, index, value in statement.stores),
    )
    return replace(kernel, inner=extent, reduce=1, body=(body,))


def _regroups(operation: str, dtype: str) -> bool:
    """Whether a scan has the same bits in any grouping."""
    return operation in ("max", "min") or (operation == "sum" and dtype[0] in "iu")


def _by_r(expression: Size) -> Size:
    return sizes.substitute(expression, {"k": sizes.symbol("r")})


def _renamed(kernel: Kernel) -> dict[Node, Node]:
    """The values, with r for k."""
    renamed: dict[Node, Node] = {}
    for value in topological(kernel.roots()):
        attributes = dict(value.attributes)
        expression = kernels.value_expression(value)
        if expression is not None:
            attributes[_EXPRESSIONS[value.op]] = _by_r(expression)
        operands = [renamed[operand] for operand in value.inputs]
        renamed[value] = node(value.op, operands, tuple(attributes.items()), value.dtype)
    return renamed


class AlongScanPrinter(FormPrinter):
    """A kernel that `along_memory` made."""

    def body(self) -> None:
        """Running values, then the loop over whole vectors and the one over the rest."""
        (statement,) = self.kernel.body
        assert isinstance(statement, ScanPass)
        self.inner()
        count, row = self.lanes.count, self.row
        running = {}
        for name, operation, value in statement.scans:
            kind = self.lanes.kind(value.dtype)
            running[name] = self.values.new_name("a")
            start = f"fb_splat_{kind}x{count}({identity(operation, kind)})"
            row.add(f"{kind}x{count} {running[name]} = {start};")
        row.add("long long r = 0;")
        shape: list[tuple[str | None, str]] = [("m", "r < inner")]
        if self.is_small(kernels.statement_values(statement), 2):
            shape.insert(0, (None, f"r + {count} <= inner"))
        for active, condition in shape:
            scope = self.vector_scope(active)
            if active:
                scope.add("const long long m = inner - r;")
            self._vector(statement, running, scope)
            row.add(f"for (; {condition}; r += {count}) {{")
            row.lines += [*scope.lines, row.indent + "}"]

    def _vector(self, statement: ScanPass, running: dict[str, str], scope: Scope) -> None:
        """One vector: the scans of its elements, continued from the vector before, and stores."""
        values = self.values
        for name, operation, value in statement.scans:
            values.emit([value], scope)
            scope.names[kernels.carry(name, value.dtype)] = self._scan(
                operation,
                self.lanes.kind(value.dtype),
                values.name(value, scope),
                running[name],
                scope,
            )
        values.emit([value for _, _, value in statement.stores], scope)
        for parameter, index, value in statement.stores:
            values.store(parameter, index, value, scope)

    def _scan(self, operation: str, kind: str, value: str, running: str, scope: Scope) -> str:
        """Name of one scan's results. Most vectors hold no new maximum, which is soon seen."""
        count, window = self.lanes.count, self.values.new_name("w")
        vector = f"{kind}x{count}"
        scope.add(f"{vector} {window} = {value};")
        guarded = operation != "sum" and kind_bits(kind) >= 32
        if guarded:
            # Equal integers are the same; of floats, -0 and +0 are not.
            wins = self._wins(operation, kind, window, running, kind[0] == "f")
            scope.add(f"if (fb_any_{signed_kind(kind)}x{count}({wins})) {{")
        start, step = f"fb_splat_{vector}({identity(operation, kind)})", 1
        while step < count:
            earlier = [i if i < step else count + i - step for i in range(count)]
            moved = f"FB_SHUFFLE2({vector}, {start}, {window}, {_listed(earlier)})"
            self._combine(operation, kind, moved, window, scope)
            step *= 2
        self._combine(operation, kind, running, window, scope)
        last = f"FB_SHUFFLE({vector}, {window}, {_listed([count - 1] * count)})"
        scope.add(f"{running} = {last};")
        if guarded:
            scope.add(f"}} else {window} = {running};")
        return window

    def _combine(self, operation: str, kind: str, before: str, window: str, scope: Scope) -> None:
        """`found` becomes what was before it combined with itself: the later one of equals wins,
        and NaN wins over everything, for good."""
        vector = f"{kind}x{self.lanes.count}"
        if operation == "sum":
            scope.add(f"{window} = {combine(operation, kind, self.lanes.count, before, window)};")
            return
        name = self.values.new_name("e")
        scope.add(f"const {vector} {name} = {before};")
        wins = self._wins(operation, kind, window, name, True)
        scope.add(f"{window} = fb_select_{vector}({wins}, {window}, {name});")

    def _wins(self, operation: str, kind: str, later: str, earlier: str, equal: bool) -> str:
        """The mask of what wins over what is before it, equals too where `equal`."""
        count, order = self.lanes.count, "g" if operation == "max" else "l"
        mask = f"{signed_kind(kind)}x{count}"
        wins = f"({mask})fb_{order}{'e' if equal else 't'}_x{count}({later}, {earlier})"
        if kind[0] == "f":
            wins = f"{wins} | ({mask})fb_ne_x{count}({later}, {later})"
        return wins


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
