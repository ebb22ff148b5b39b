"""Kernels as block programs: what a printer is for machine code, this is for the interpreter.

A value is computed where its operands are: in the prologue (numbers and constants), before the
loop of a statement (what is the same for a whole block of rows or of columns), or in its body. An
operand that varies along fewer axes than the result is expanded, once, where it is computed.

A block's axis w is r. Its axis s is the last row axis of a map or row kernel, if no extent depends
on it, and k of a column or scan kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from flambeau.compiler.baseline.program import (
    ALONG_S,
    ALONG_W,
    BOTH,
    NONE,
    Draft,
    Instruction,
    Numbers,
    Statement,
    pack,
)
from flambeau.compiler.codegen.c.printer.c_types import HALVES
from flambeau.ir import kernel as k
from flambeau.ir import size as sizes
from flambeau.ir.dtypes import OPAQUE, UNSIGNED, minifloat_code
from flambeau.ir.kernel import Kernel, Pass, ReducePass, RowStores, ScanPass
from flambeau.ir.lock import importing
from flambeau.ir.node import ITEM_SIZE, Node, topological
from flambeau.ir.plan import BlockProgram
from flambeau.ir.size import Size, SizeExpr
from flambeau.ir.size_core import from_terms, terms_of
from flambeau.ir.size_program import Opcode, Program
from flambeau.ir.spelling import spelling_of

CODED = (*HALVES, "bool")  # dtypes whose values in registers are not what memory holds
DIRECT, SHARED_OFFSET = 1, 2  # flags of a load
_INTEGER = {
    "floordiv": Opcode.FLOORDIV,
    "mod": Opcode.MOD,
    "min": Opcode.MIN,
    "max": Opcode.MAX,
}


def block_program(kernel: Kernel) -> BlockProgram:
    """The block program of a kernel that is no template.

    Raises:
        NotImplementedError: a value has no block function.
    """
    return pack(draft(kernel))


def draft(kernel: Kernel) -> Draft:
    """The program, before it is packed."""
    with importing:
        from flambeau.compiler.codegen.c.math.c_complex import lower, needs_lowering

    return _Lowering(lower(kernel) if needs_lowering(kernel) else kernel).run()


def width_of(dtype: str) -> int:
    """Bytes of a value in a register."""
    return 4 if dtype in CODED else ITEM_SIZE[dtype]


@dataclass(frozen=True)
class _Place:
    """Where a value is: its register, what it varies along, and in which list it is computed."""

    register: int
    level: int
    home: str  # "prologue", "before" or "body"


@dataclass
class _Scope:
    """The statement that is being lowered."""

    statement: Statement = field(default_factory=Statement)
    places: dict[object, _Place] = field(default_factory=dict)  # of its body


class _Lowering:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.across = kernel.form in ("column", "scan")
        self.spans = not self.across and _spans(kernel)
        self.axis = "k" if self.across else f"p{len(kernel.rows) - 1}" if self.spans else ""
        self.outside = ALONG_W if self.across else ALONG_S  # what varies along it is in `before`
        self.draft = Draft(
            kernel.form, kernel.tiled, self.spans, kernel.size_count, len(kernel.scalars)
        )
        self.draft.parameters = [
            (8 if dtype == "error" else ITEM_SIZE[dtype], "w" in access)
            for dtype, access in kernel.parameters
        ]
        self.expressions: dict[Size, int] = {}
        self.levels: dict[Node, int] = {}
        self.constant: set[Node] = set()
        self.places: dict[object, _Place] = {}  # of the prologue and of all `before`
        self.resident: dict[str, int] = {}
        self.results: dict[str, _Place] = {}  # of reductions and scans
        self.scope = _Scope()

    def run(self) -> Draft:
        """Lowers the statements, then numbers registers."""
        kernel, result = self.kernel, self.draft
        self._set_levels()
        lowered: dict[type, Callable[..., None]] = {
            Pass: self._pass,
            RowStores: self._row_stores,
            ReducePass: self._reduce_pass,
            ScanPass: self._scan_pass,
        }
        for statement in kernel.body:
            self.scope = _Scope()
            lowered[type(statement)](statement)
            result.statements.append(self.scope.statement)
        extents = [*map(self._size, kernel.rows), self._size(kernel.inner)]
        extents.append(self._size(kernel.reduce))
        self._number_sizes(extents)
        _mark_narrow(result)
        _assign_registers(result)
        return result

    # --------------------------------------------------------------------------- levels

    def _set_levels(self) -> None:
        across = ALONG_W if self.across else ALONG_S
        fixed = {k.KEPT.name: BOTH, k.REDUCED.name: across, k.CARRY.name: BOTH}
        for node in topological(self.kernel.roots()):
            level = fixed.get(node.op, NONE)
            expression = k.value_expression(node)
            if expression is not None:
                level |= self._level(expression)
            for operand in node.inputs:
                level |= self.levels[operand]
            self.levels[node] = level
            if self._is_constant(node, expression):
                self.constant.add(node)

    def _level(self, expression: Size) -> int:
        """What an expression varies along. Where a block has one axis, that is all of it."""
        free = sizes.free_symbols(expression)
        if self.across and self.kernel.inner == 1:
            return BOTH if self.axis in free else NONE
        if not self.axis:
            return BOTH if "r" in free else NONE
        return (ALONG_W if "r" in free else 0) | (ALONG_S if self.axis in free else 0)

    def _is_constant(self, node: Node, expression: Size | None) -> bool:
        """Whether a value depends on numbers alone."""
        if any(form.matches(node) for form in (k.CONST, k.SCALAR)):
            return True
        if k.INDEX.matches(node) and not node.inputs:
            assert expression is not None
            return all(name[0] == "n" for name in sizes.free_symbols(expression))
        if expression is not None or k.CHECK_INDEX.matches(node) or not node.inputs:
            return False
        return all(operand in self.constant for operand in node.inputs)

    def _home(self, node: Node) -> str:
        if node in self.constant:
            return "prologue"
        return self._home_of(self.levels[node])

    def _home_of(self, level: int) -> str:
        return "body" if level & ~self.outside else "before"

    # --------------------------------------------------------------------------- instructions

    def _add(self, home: str, instruction: Instruction) -> None:
        listed = {
            "prologue": self.draft.prologue,
            "before": self.scope.statement.before,
            "body": self.scope.statement.body,
        }[home]
        listed.append(instruction)

    def _register(self, width: int) -> int:
        self.draft.registers.append(width)
        return len(self.draft.registers) - 1

    def _emit(
        self,
        code: str,
        level: int,
        home: str,
        width: int,
        operands: Sequence[int] = (),
        numbers: Sequence[int] = Numbers(),
        functions: Sequence[str] = (),
    ) -> _Place:
        """Adds an instruction with a result."""
        place = _Place(self._register(width), level, home)
        self._add(
            home,
            Instruction(code, level, place.register, tuple(operands), numbers, tuple(functions)),
        )
        return place

    def _find(self, key: object) -> _Place | None:
        return self.scope.places.get(key) or self.places.get(key)

    def _remember(self, key: object, place: _Place) -> _Place:
        (self.scope.places if place.home == "body" else self.places)[key] = place
        return place

    def _size(self, expression: Size) -> int:
        """The number of a size expression; -1 for 0."""
        if isinstance(expression, int) and expression == 0:
            return -1
        return self.expressions.setdefault(expression, len(self.expressions))

    # --------------------------------------------------------------------------- values

    def _values(self, roots: Iterable[Node]) -> None:
        for node in topological(list(roots)):
            if k.PAIR.matches(node) or k.CARRY.matches(node):
                continue
            if self._find(node) is None:
                self._remember(node, self._value(node))

    def _value(self, node: Node) -> _Place:
        leaf = _LEAVES.get(node.op)
        if leaf is not None:
            return leaf(self, node)
        level, home = self.levels[node], self._home(node)
        if spelling_of(node.op).converts and node.inputs[0].dtype == node.dtype:
            return self._place_of(node.inputs[0])
        operands = [self._at(operand, level, home) for operand in node.inputs]
        dtypes = ",".join(operand.dtype for operand in node.inputs)
        name = f"{node.op} {dtypes}>{node.dtype}"
        return self._emit("call", level, home, width_of(node.dtype), operands, functions=[name])

    def _at(self, node: Node, level: int, home: str) -> int:
        """The register of a value, expanded to a level."""
        return self._expanded(node, self._place_of(node), width_of(node.dtype), level, home)

    def _place_of(self, node: Node) -> _Place:
        if k.CARRY.matches(node):
            return self.results[node.attribute("name")]
        place = self._find(node)
        assert place is not None
        return place

    def _expanded(self, key: object, place: _Place, width: int, level: int, home: str) -> int:
        """The register of a place with a value for every element of a level."""
        if place.level == level or (place.home == "prologue" and home == "prologue"):
            return place.register
        target = BOTH if place.home == "prologue" else level
        expanded = self._find((key, "expanded", target))
        if expanded is None:
            name = {NONE: "splat", ALONG_S: "spread", ALONG_W: "repeat"}[place.level]
            expanded = self._emit(
                "expand", target, place.home, width, [place.register],
                Numbers(place.level), [f"{name} {width}"],
            )  # fmt: skip
            self._remember((key, "expanded", target), expanded)
        return expanded.register

    def _constant(self, node: Node) -> _Place:
        content = value_bytes(node.attribute("value"), node.dtype)
        return self._bytes(content, width_of(node.dtype))

    def _bytes(self, content: bytes, width: int) -> _Place:
        place = self._find(("bytes", content))
        if place is None:
            words = struct.unpack("<4i", content.ljust(16, b"\0"))
            place = self._emit("constant", NONE, "prologue", width, (), words)
            self._remember(("bytes", content), place)
        return place

    def _scalar(self, node: Node) -> _Place:
        slot = node.attribute("slot")
        kinds = {("f64", "f64"): 0, ("i64", "i64"): 1, ("bool", "bool"): 2, ("i64", "bool"): 2}
        kind = kinds.get((self.kernel.scalars[slot], node.dtype))
        if kind is None:
            raise _missing(f"number {self.kernel.scalars[slot]} as {node.dtype}")
        return self._emit("scalar", NONE, "prologue", width_of(node.dtype), (), Numbers(slot, kind))

    def _result(self, node: Node) -> _Place:
        return self.results[node.attribute("name")]

    def _resident(self, node: Node) -> _Place:
        numbers = Numbers(self.resident[node.attribute("name")])
        decoded = _function("decode", node.dtype)
        functions = ["", decoded] if decoded else []
        return self._emit("resident", BOTH, "body", width_of(node.dtype), (), numbers, functions)

    # --------------------------------------------------------------------------- memory

    def _load(self, node: Node) -> _Place:
        level, home = self.levels[node], self._home(node)
        width = ITEM_SIZE[node.dtype]
        masked = bool(node.attribute("masked"))
        indices = node.inputs[:-1] if masked else node.inputs
        guard: list[int] = []
        if masked:
            other = self._bytes(memory_bytes(node.attribute("other"), node.dtype), width)
            guard = [self._at(node.inputs[-1], level, home), other.register]
        decoded = _function("decode", node.dtype)
        also = [decoded] if decoded else []
        parameter = node.attribute("parameter")
        strides, offset, shared = self._row_strides(node.attribute("index"), indices)
        if strides is not None:
            direct = DIRECT if home == "body" and not masked else 0
            numbers = Numbers(parameter, *strides, direct | shared)
            name = f"{'gatherif' if masked else 'gather'} {width}"
            functions = [name, *also] if masked else [name, decoded, f"transpose {width}"]
            operands = [offset, *guard]
            return self._emit(
                "load", level, home, width_of(node.dtype), operands, numbers, functions
            )
        positions = self._position(node.attribute("index"), indices, level, home)
        name = f"{'takeif' if masked else 'take'} {width}"
        return self._emit(
            "take", level, home, width_of(node.dtype), [positions, *guard], Numbers(parameter),
            [name, *also],
        )  # fmt: skip

    def _strides(self, expression: Size) -> tuple[int, int, int] | None:
        """Numbers of an index's start and of its steps along s and w, if it is affine in them."""
        split = sizes.affine_in(expression, (self.axis, "r"))
        if split is None:
            return None
        factors, start = split
        if self.spans and self.axis in factors:  # its register holds the block's first row
            start = sizes.add(start, sizes.mul(factors[self.axis], sizes.symbol(self.axis)))
        along = (factors.get(self.axis, 0), factors.get("r", 0))
        return self._size(start), self._size(along[0]), self._size(along[1])

    def _row_strides(
        self, expression: Size, indices: Sequence[Node]
    ) -> tuple[tuple[int, int, int] | None, int, int]:
        """As `_strides`, where what depends on `indices` is an offset of whole rows: its register,
        and whether all rows share it."""
        if not indices:
            return self._strides(expression), -1, 0
        level = NONE
        for node in indices:
            level |= self.levels[node]
        names = [f"d{i}" for i in range(len(indices))]
        split = sizes.affine_in(expression, ("r", *names))
        if split is None or level & ALONG_W:
            return None, -1, 0
        factors, start = split
        along = sizes.mul(factors.get("r", 0), sizes.symbol("r"))
        strides = self._strides(sizes.add(start, along))
        if strides is None:
            return None, -1, 0
        offset = sizes.sub(sizes.sub(expression, start), along)
        constant = all(node in self.constant for node in indices)
        home = "before" if constant else self._home_of(level)
        register = self._position(offset, indices, level, home)
        return strides, register, SHARED_OFFSET if level == NONE else 0

    def _store(self, store: k.Store, level: int, home: str) -> None:
        parameter, index, value = store
        register = self._at(value, level, home)
        width = ITEM_SIZE[value.dtype]
        encoded = _function("encode", value.dtype)
        also = [encoded] if encoded else []
        strides = self._strides(index)
        if strides is not None:
            numbers = Numbers(parameter, *strides)
            step = Instruction(
                "store", level, -1, (register,), numbers, (f"scatter {width}", *also)
            )
        else:
            positions = self._position(index, (), level, home)
            operands = (register, positions)
            functions = (f"give {width}", *also)
            step = Instruction("give", level, -1, operands, Numbers(parameter), functions)
        self._add(home, step)

    # --------------------------------------------------------------------------- indices

    def _index(self, node: Node) -> _Place:
        level, home = self.levels[node], self._home(node)
        expression = node.attribute("expression")
        register = self._position(expression, node.inputs, level, home)
        return _Place(register, level, home)

    def _position(self, expression: Size, indices: Sequence[Node], level: int, home: str) -> int:
        """A register of positions; `indices` are d0, d1, .."""
        values = {f"d{i}": self._at(node, level, home) for i, node in enumerate(indices)}
        return self._integer(expression, values, level, home)

    def _integer(self, expression: Size, values: dict[str, int], level: int, home: str) -> int:
        """A register of an expression's values, computed once."""
        key = ("integer", expression, level, home, tuple(values.items()))
        place = self._find(key)
        if place is None:
            register = self._computed(expression, values, level, home)
            place = self._remember(key, _Place(register, level, home))
        return place.register

    def _computed(self, expression: Size, values: dict[str, int], level: int, home: str) -> int:
        free = sizes.free_symbols(expression)
        strides = self._strides(expression) if free.isdisjoint(values) else None
        if strides is not None:
            numbers = Numbers(0, *strides, -1)
            return self._emit("index", level, home, 8, (), numbers, ["index"]).register
        assert isinstance(expression, SizeExpr)
        if expression.kind == "symbol":
            return values[expression.name]
        if expression.kind == "sum":
            return self._sum(expression, values, level, home)
        operands = [self._integer(o, values, level, home) for o in expression.operands]
        code = _INTEGER[expression.kind]
        return self._chain(code, operands, level, home)

    def _chain(self, code: int, operands: list[int], level: int, home: str) -> int:
        result = operands[0]
        for operand in operands[1:]:
            numbers = Numbers(int(code))
            result = self._emit("integer", level, home, 8, [result, operand], numbers).register
        return result

    def _sum(self, expression: SizeExpr, values: dict[str, int], level: int, home: str) -> int:
        """A sum of products: what does not vary in them is a factor, or the start."""
        varying = {*values, "r", self.axis}
        start: Size = 0
        parts: list[tuple[Size, list[SizeExpr]]] = []
        for monomial, number in terms_of(expression).items():
            inside = [a for a in monomial if not varying.isdisjoint(sizes.free_symbols(a))]
            factor = from_terms({tuple(a for a in monomial if a not in inside): number})
            if inside:
                parts.append((factor, inside))
            else:
                start = sizes.add(start, factor)
        axes = (sizes.symbol("r"), sizes.symbol(self.axis) if self.axis else None)
        affine = [(f, i) for f, i in parts if len(i) == 1 and i[0] in axes]
        for factor, (axis,) in affine:
            start = sizes.add(start, sizes.mul(factor, axis))
        strides, total = self._strides(start), -1
        assert strides is not None
        for factor, inside in parts:
            if (factor, inside) in affine:
                continue
            operands = [self._integer(atom, values, level, home) for atom in inside]
            product = self._chain(Opcode.MUL, operands, level, home)
            if total < 0:
                numbers = Numbers(0, *strides, self._size(factor))
                total = self._emit("index", level, home, 8, [product], numbers, ["index"]).register
            else:
                numbers = Numbers(0, self._size(factor))
                total = self._emit("add_index", level, home, 8, [total, product], numbers).register
        return total

    def _check_index(self, node: Node) -> _Place:
        level, home = self.levels[node], self._home(node)
        operand = self._at(node.inputs[0], level, home)
        size = self._size(node.attribute("size"))
        if size < 0:
            size = self.expressions.setdefault(0, len(self.expressions))
        numbers = Numbers(
            node.attribute("parameter"), size, node.attribute("dimension", 0),
            int(bool(node.attribute("strict"))),
        )  # fmt: skip
        return self._emit("check", level, home, 8, [operand], numbers, ["check"])

    # --------------------------------------------------------------------------- statements

    def _pass(self, statement: Pass) -> None:
        if self.across:
            self._once(statement.stores, ALONG_W)
            return
        self._values(k.statement_values(statement))
        for name, operation, value in statement.reductions:
            self._reduction("reduce", name, operation, value, ALONG_S)
        for name, value in statement.keeps:
            self._retain(name, value)
        self._stores(statement.stores)

    def _row_stores(self, statement: RowStores) -> None:
        self._once(statement.stores, ALONG_S)

    def _once(self, stores: Sequence[k.Store], level: int) -> None:
        self.scope.statement.once = True
        self._values([value for _, _, value in stores])
        for store in stores:
            self._store(store, level, "before")

    def _reduce_pass(self, statement: ReducePass) -> None:
        self._values(k.statement_values(statement))
        for name, operation, value in statement.reductions:
            self._reduction("columns", name, operation, value, ALONG_W)
        self._stores(statement.stores)

    def _scan_pass(self, statement: ScanPass) -> None:
        for name, operation, value in statement.scans:
            parts = value.inputs if k.PAIR.matches(value) else (value,)
            self._values(parts)
            operands = [self._at(part, BOTH, "body") for part in parts]
            at = operation.startswith("arg")
            own = f"{operation.removeprefix('arg')} {value.dtype}"
            width = 8 if at else width_of(value.dtype)
            numbers = Numbers(self._state(f"state {'scanat' if at else 'scan'} {own}"))
            functions = [f"{'scanat' if at else 'scan'} {own}"]
            self.results[name] = self._emit(
                "scan", BOTH, "body", width, operands, numbers, functions
            )
        self._values([value for _, _, value in statement.stores])
        self._stores(statement.stores)

    def _stores(self, stores: Sequence[k.Store]) -> None:
        """Stores of every element, after all loads. Memory that a load reads may be where another
        store writes, so a loaded block that is stored has to be a copy then."""
        body = self.scope.statement.body
        if len(stores) > 1:
            stored = {self._place_of(value).register for _, _, value in stores}
            for step in body:
                if step.code == "load" and step.result in stored:
                    numbers = Numbers(*step.numbers)
                    step.numbers = numbers._replace(flag=numbers.flag & ~DIRECT)
        for store in stores:
            self._store(store, BOTH, "body")
        if len(stores) == 1 and len(body) > 1:
            _compute_in_place(*body[-2:])

    def _reduction(self, code: str, name: str, operation: str, value: Node, level: int) -> None:
        register = self._at(value, BOTH, "body")
        own = f"{operation} {value.dtype}"
        position = operation in ("argmax", "argmin")
        width = 8 if position else width_of(value.dtype)
        functions = {
            "reduce": (f"reduce {own}", f"reduced {own}", f"reducerows {own}"),
            "columns": (f"columns {own}", f"columned {own}"),
        }[code]
        numbers = Numbers(self._state(f"state {code} {own}"))
        place = self._emit(code, level, "body", width, [register], numbers, functions)
        self.results[name] = replace(place, home="before")

    def _state(self, name: str) -> int:
        self.draft.states.append(name)
        return len(self.draft.states) - 1

    def _retain(self, name: str, value: Node) -> None:
        self.resident[name] = len(self.draft.resident)
        self.draft.resident.append(ITEM_SIZE[value.dtype])
        register = self._at(value, BOTH, "body")
        encoded = _function("encode", value.dtype)
        functions = ("", encoded) if encoded else ()
        numbers = Numbers(self.resident[name])
        self._add("body", Instruction("retain", BOTH, -1, (register,), numbers, functions))

    # --------------------------------------------------------------------------- size registers

    def _number_sizes(self, extents: list[int]) -> None:
        """Size registers: what depends on size arguments alone comes first."""
        rows = [f"p{i}" for i in range(len(self.kernel.rows))]
        names = [f"n{i}" for i in range(self.kernel.size_count)]
        program = Program([*names, *rows])
        zero = program.register(0)
        moving = {e: not sizes.free_symbols(e).isdisjoint(rows) for e in self.expressions}
        registers = {}
        for expression, number in self.expressions.items():
            if not moving[expression]:
                registers[number] = program.register(expression)
        self.draft.fixed = len(program.instructions)
        for expression, number in self.expressions.items():
            if moving[expression]:
                registers[number] = program.register(expression)
        self.draft.code = program.packed()
        *self.draft.rows, self.draft.inner, self.draft.reduce = (
            registers.get(number, zero) for number in extents
        )
        self.draft.inner_moves = moving.get(self.kernel.inner, False)
        for step in _steps(self.draft):
            _renumber(step, registers)


# Which of an instruction's numbers are size expressions.
_SIZED = {
    "load": ("base", "along_s", "along_w"),
    "store": ("base", "along_s", "along_w"),
    "index": ("base", "along_s", "along_w", "flag"),
    "add_index": ("base",),
    "check": ("base",),
}


def _renumber(step: Instruction, registers: dict[int, int]) -> None:
    names = _SIZED.get(step.code)
    if names is not None:
        numbers = Numbers(*step.numbers)
        step.numbers = numbers._replace(
            **{name: registers.get(getattr(numbers, name), -1) for name in names}
        )


def _compute_in_place(call: Instruction, store: Instruction) -> None:
    """Lets the last call of a body write where its only result is stored."""
    if (call.code, store.code) == ("call", "store") and store.operands == (call.result,):
        call.numbers = Numbers(1)


def _steps(draft: Draft) -> list[Instruction]:
    return [*draft.prologue, *(x for s in draft.statements for x in (*s.before, *s.body))]


def _mark_narrow(draft: Draft) -> None:
    """Marks what is expanded for primitives only: they take a narrow value as it is."""
    steps = _steps(draft)
    others = {r for step in steps if step.code != "call" for r in step.operands}
    for step in steps:
        if step.code == "expand" and step.result not in others:
            step.numbers = Numbers(*step.numbers)._replace(flag=1)


def _assign_registers(draft: Draft) -> None:
    """Shares block registers: one of a body is free after its last use there."""
    widths = draft.registers
    inside = {step.result for s in draft.statements for step in s.body if _is_local(step)}
    numbers: dict[int, int] = {}
    assigned: list[int] = []

    def new(width: int) -> int:
        assigned.append(width)
        return len(assigned) - 1

    for register, width in enumerate(widths):
        if register not in inside:
            numbers[register] = new(width)
    free: dict[int, list[int]] = {}
    for statement in draft.statements:
        last = {r: i for i, step in enumerate(statement.body) for r in step.operands}
        for step in reversed(statement.body):  # the result may be the operand's memory
            if step.code == "expand":
                (operand,) = step.operands
                last[operand] = max(last[operand], last.get(step.result, 0))
        for i, step in enumerate(statement.body):
            ended = {r for r in step.operands if r in inside and last[r] == i}
            if step.code == "call":  # it reads an element before it writes it
                _release(ended, numbers, assigned, free)
            if step.result in inside:
                width = widths[step.result]
                pool = free.setdefault(width, [])
                numbers[step.result] = pool.pop() if pool else new(width)
            if step.code != "call":
                _release(ended, numbers, assigned, free)
            if step.result in inside and step.result not in last:
                _release({step.result}, numbers, assigned, free)
    for steps in (draft.prologue, *(x for s in draft.statements for x in (s.before, s.body))):
        for step in steps:
            step.result = numbers.get(step.result, -1)
            step.operands = tuple(numbers.get(r, -1) for r in step.operands)
    draft.registers = assigned


def _is_local(step: Instruction) -> bool:
    """Whether a register is used in its own block only."""
    return step.result >= 0 and step.code not in ("reduce", "columns")


def _release(
    registers: set[int], numbers: dict[int, int], widths: list[int], free: dict[int, list[int]]
) -> None:
    for register in sorted(registers):
        number = numbers[register]
        free.setdefault(widths[number], []).append(number)


# ------------------------------------------------------------------------------- questions


def _spans(kernel: Kernel) -> bool:
    """Whether a block may have several rows: no extent depends on the last row axis."""
    if not kernel.rows:
        return False
    extents = [kernel.inner, kernel.reduce]
    for node in topological(kernel.roots()):
        if k.CHECK_INDEX.matches(node):
            extents.append(node.attribute("size"))
    axis = f"p{len(kernel.rows) - 1}"
    return all(axis not in sizes.free_symbols(extent) for extent in extents)


def _function(kind: str, dtype: str) -> str:
    """Name of a conversion between memory and registers; "" where they are the same."""
    return f"{kind} {dtype}" if dtype in CODED else ""


def _missing(what: str) -> NotImplementedError:
    return NotImplementedError(
        f"[baseline] no block function for {what}\nhint: set FLAMBEAU_COMPILER=wait"
    )


# ------------------------------------------------------------------------------- constants


def value_bytes(text: str, dtype: str) -> bytes:
    """One constant as a register holds it."""
    value = k.decode_constant(text, dtype)
    if dtype == "bool":
        return struct.pack("<i", -1 if value else 0)
    if dtype in HALVES:
        return _widened(memory_bytes(text, dtype), dtype)
    return memory_bytes(text, dtype)


def memory_bytes(text: str, dtype: str) -> bytes:
    """One constant as memory holds it."""
    value = k.decode_constant(text, dtype)
    if isinstance(value, complex):
        part = {"c32": "f16", "c64": "f32", "c128": "f64"}[dtype]
        return _float_bytes(value.real, part) + _float_bytes(value.imag, part)
    if dtype == "bool":
        return bytes([bool(value)])
    if dtype in OPAQUE:
        return bytes([minifloat_code(float(value), dtype)])
    if isinstance(value, float):
        return _float_bytes(value, dtype)
    signed = dtype not in UNSIGNED
    return int(value).to_bytes(ITEM_SIZE[dtype], "little", signed=signed)


def _float_bytes(value: float, dtype: str) -> bytes:
    if dtype == "bf16":
        (bits,) = struct.unpack("<I", _float_bytes(value, "f32"))
        if value == value:
            bits += 0x7FFF + ((bits >> 16) & 1)
        return struct.pack("<H", (bits >> 16) & 0xFFFF)
    code = {"f16": "<e", "f32": "<f", "f64": "<d"}[dtype]
    try:
        return struct.pack(code, value)
    except OverflowError:
        return struct.pack(code, float("inf") if value > 0 else float("-inf"))


def _widened(half: bytes, dtype: str) -> bytes:
    if dtype == "bf16":
        return b"\0\0" + half
    return struct.pack("<f", *struct.unpack("<e", half))


_LEAVES: dict[str, Callable[[_Lowering, Node], _Place]] = {
    k.LOAD.name: _Lowering._load,
    k.CONST.name: _Lowering._constant,
    k.INDEX.name: _Lowering._index,
    k.SCALAR.name: _Lowering._scalar,
    k.REDUCED.name: _Lowering._result,
    k.KEPT.name: _Lowering._resident,
    k.CHECK_INDEX.name: _Lowering._check_index,
}
