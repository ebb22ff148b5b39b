"""The grammar of kernels, as text and as a check.

    kernel    := form, parameters, sizes, scalars, rows, inner, reduce, statement+
    form      := map | row | column | scan | template
    statement := Pass(reductions, keeps, stores)      map, column, template (stores only), row
               | RowStores(stores)                    row
               | ReducePass(reductions, stores)       column
               | ScanPass(scans, stores)              scan
    value     := k.load | k.index | k.const | k.scalar | k.reduced | k.kept | k.carry | k.pair
               | check_index | any pointwise primitive of values
    index     := size over n*, p*, r, k, and d* inside a load or index

`verify` checks what a printer relies on: symbols in scope, types of stores, results used after they
exist, constants of known text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flambeau.ir import kernel as k
from flambeau.ir.graph_grammar import quoted
from flambeau.ir.kernel import Kernel, Pass, ReducePass, RowStores, ScanPass, Statement
from flambeau.ir.node import DTYPES, Node, topological
from flambeau.ir.size import Size, free_symbols

ALLOWED: dict[str, tuple[type, ...]] = {
    "map": (Pass,),
    "row": (Pass, RowStores),
    "column": (ReducePass, Pass),
    "scan": (ScanPass,),
    "template": (Pass,),
}
LEAVES = (k.CONST, k.SCALAR, *k.RESULTS)


class KernelError(ValueError):
    """A kernel breaks its grammar; the message quotes the neighbourhood."""


class _Checker:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.sizes = frozenset(f"n{i}" for i in range(kernel.size_count))
        self.rows = frozenset(f"p{i}" for i in range(len(kernel.rows)))
        # Of finished statements, by form: name -> dtype.
        self.results: dict[str, dict[str, str]] = {form.name: {} for form in k.RESULTS}
        self.lines = {value: i for i, value in enumerate(topological(kernel.roots()))}
        self.line = "kernel"  # how the line of what is being checked begins

    def fail(self, problem: str) -> None:
        """Raises with the lines of the kernel around the value or statement at hand."""
        lines = self.kernel.text().splitlines()
        at = next((i for i, line in enumerate(lines) if line.startswith(self.line)), 0)
        raise KernelError(
            f"[kernel] {problem}\n{quoted(lines, at)}\nhint: the scheduler built a wrong kernel"
        )

    def run(self) -> None:
        """Checks the header, then each statement."""
        kernel = self.kernel
        if kernel.form not in ALLOWED:
            self.fail(f"unknown form {kernel.form}")
        for extent in kernel.rows:
            self.symbols(extent, self.sizes)
        self.symbols(kernel.inner, self.sizes | self.rows)
        self.symbols(kernel.reduce, self.sizes | self.rows)
        if kernel.form in ("map", "row") and kernel.reduce != 1:
            self.fail(f"form {kernel.form} has no k")
        dtypes = {*DTYPES, "error"}
        if any(d not in dtypes or a not in ("r", "w", "rw") for d, a in kernel.parameters):
            self.fail(f"parameters {kernel.parameters}")
        if kernel.form == "template":
            self.template()
        elif not kernel.body or kernel.template or kernel.settings:
            self.fail("no statements, or settings of a template")
        for statement in kernel.body:
            self.statement(statement)

    def template(self) -> None:
        """Checks a template's header and defines the result that its epilogue reads."""
        settings = dict(self.kernel.settings)
        if not self.kernel.template.isidentifier() or list(settings) != sorted(settings):
            self.fail("a template has a name and sorted settings")
        if self.kernel.body:
            if settings.get("result") not in DTYPES:
                self.fail("the dtype of the template's result is no setting")
            self.results[k.KEPT.name]["result"] = str(settings["result"])

    def symbols(self, expression: Size, allowed: Iterable[str]) -> None:
        """Fails unless only allowed symbols occur."""
        wrong = free_symbols(expression) - frozenset(allowed)
        if wrong:
            self.fail(f"symbols {sorted(wrong)} are not in scope in {expression}")

    def statement(self, statement: Statement) -> None:
        """Checks one statement and defines its results."""
        kernel = self.kernel
        self.line = type(statement).__name__
        if not isinstance(statement, ALLOWED[kernel.form]):
            self.fail(f"{type(statement).__name__} in form {kernel.form}")
        scope = self.sizes | self.rows
        if not isinstance(statement, RowStores):
            scope = scope | {"r"}
        if isinstance(statement, (ReducePass, ScanPass)):
            scope = scope | {"k"}
        if isinstance(statement, ScanPass):
            for name, operation, value in statement.scans:
                if operation not in k.SCANS:
                    self.fail(f"scan operation {operation}")
                self.results[k.CARRY.name][name] = value.dtype
        for value in topological(k.statement_values(statement)):
            self.value(value, scope)
        self.line = type(statement).__name__
        self.stores(statement.stores, scope)
        if isinstance(statement, (Pass, ReducePass)):
            self.reductions(statement)
        if isinstance(statement, Pass):
            for name, value in statement.keeps:
                if kernel.form != "row":
                    self.fail("only rows keep values")
                self.results[k.KEPT.name][name] = value.dtype

    def reductions(self, statement: Pass | ReducePass) -> None:
        """Checks and defines reductions."""
        if isinstance(statement, Pass) and statement.reductions and self.kernel.form != "row":
            self.fail(f"reductions over r in form {self.kernel.form}")
        for name, operation, value in statement.reductions:
            if operation not in k.REDUCTIONS:
                self.fail(f"reduction {operation}")
            if name in self.results[k.REDUCED.name]:
                self.fail(f"{name} is reduced twice")
            position = operation in ("argmax", "argmin")
            self.results[k.REDUCED.name][name] = "i64" if position else value.dtype

    def stores(self, stores: Iterable[k.Store], scope: frozenset[str]) -> None:
        """Checks parameters, types and indices of stores."""
        for parameter, position, value in stores:
            if not 0 <= parameter < len(self.kernel.parameters):
                self.fail(f"store to parameter {parameter}")
            dtype, access = self.kernel.parameters[parameter]
            if "w" not in access or dtype != value.dtype:
                self.fail(f"store of {value.dtype} to parameter {parameter} {access}:{dtype}")
            self.symbols(position, scope)

    def value(self, value: Node, scope: frozenset[str]) -> None:
        """Checks one value node."""
        self.line = f"%{self.lines[value]} ="
        check = _CHECKS.get(value.op)
        if check is not None:
            check(self, value, scope)
        elif value.op.startswith(("s.", "k.")):
            self.fail(f"{value.op} is no kernel value")
        if value.inputs and any(leaf.matches(value) for leaf in LEAVES):
            self.fail(f"{value.op} takes no operands")

    def index(self, value: Node, scope: frozenset[str]) -> None:
        """Checks the symbols of an index."""
        self.symbols(value.attribute("expression"), self.with_data(value, scope))

    def result(self, value: Node, scope: frozenset[str]) -> None:
        """Checks that a result of an earlier statement exists."""
        results = self.results[value.op]
        if results.get(value.attribute("name")) != value.dtype:
            self.fail(f"{value!r} {value.attribute('name')} does not exist yet")

    def scalar(self, value: Node, scope: frozenset[str]) -> None:
        """Checks the slot of a run-time scalar."""
        slot = value.attribute("slot")
        if slot >= len(self.kernel.scalars) or self.kernel.scalars[slot] != value.dtype:
            self.fail(f"scalar {slot} is no {value.dtype}")

    def constant(self, value: Node, scope: frozenset[str]) -> None:
        """Checks the text of a constant, which raises where it is unknown."""
        k.decode_constant(value.attribute("value"), value.dtype)

    def checked_index(self, value: Node, scope: frozenset[str]) -> None:
        """Checks where a checked index is reported."""
        error = self.kernel.parameters[value.attribute("parameter")]
        if error != ("error", "w") or value.dtype != "i64":
            self.fail(f"an index is checked into parameter {error}")
        self.symbols(value.attribute("size"), self.sizes)

    def pair(self, value: Node, scope: frozenset[str]) -> None:
        """Checks the operands of a pair."""
        if len(value.inputs) != 2:
            self.fail(f"a pair of {len(value.inputs)}")

    def with_data(self, value: Node, scope: frozenset[str]) -> frozenset[str]:
        """The scope with the data-dependent symbols that a node's inputs bind."""
        return scope | {f"d{i}" for i in range(len(value.inputs))}

    def load(self, value: Node, scope: frozenset[str]) -> None:
        """Checks one load."""
        parameter = value.attribute("parameter")
        if not 0 <= parameter < len(self.kernel.parameters):
            self.fail(f"load from parameter {parameter}")
        dtype, access = self.kernel.parameters[parameter]
        if "r" not in access or dtype != value.dtype:
            self.fail(f"load of {value.dtype} from parameter {parameter} {access}:{dtype}")
        indices = value.inputs
        if value.attribute("masked"):
            indices, mask = value.inputs[:-1], value.inputs[-1]
            if mask.dtype != "bool":
                self.fail(f"mask of dtype {mask.dtype}")
        if any(i.dtype != "i64" for i in indices):
            self.fail("data-dependent indices are i64")
        self.symbols(value.attribute("index"), scope | {f"d{i}" for i in range(len(indices))})


_CHECKS: dict[str, Callable[[_Checker, Node, frozenset[str]], None]] = {
    k.LOAD.name: _Checker.load,
    k.INDEX.name: _Checker.index,
    k.SCALAR.name: _Checker.scalar,
    k.CONST.name: _Checker.constant,
    k.PAIR.name: _Checker.pair,
    **{form.name: _Checker.result for form in k.RESULTS},
    k.CHECK_INDEX.name: _Checker.checked_index,
}


def verify(kernel: Kernel) -> None:
    """Checks a kernel.

    Raises:
        KernelError: naming what is wrong, with the lines around it.
    """
    _Checker(kernel).run()
