"""Kernels as block programs: what a printer is for machine code, this is for the interpreter.

A block's axis w is r. Its axis s is the last row axis of a map or row kernel, if no extent depends
on it, and k of a column or scan kernel. `emission.py` says where values are computed, `indices.py`
computes positions in memory, `registers.py` gives registers their numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from flambeau.compiler.baseline.constants import memory_bytes, value_bytes
from flambeau.compiler.baseline.emission import Place, Scope, width_of
from flambeau.compiler.baseline.indices import Indices
from flambeau.compiler.baseline.program import (
    ALONG_S,
    ALONG_W,
    BOTH,
    ENCODED,
    NONE,
    Draft,
    Instruction,
    Numbers,
    pack,
)
from flambeau.compiler.baseline.registers import (
    assign_registers,
    mark_narrow,
    renumber,
    steps_of,
)
from flambeau.ir import kernel as k
from flambeau.ir import size as sizes
from flambeau.ir.kernel import Kernel, Pass, ReducePass, RowStores, ScanPass
from flambeau.ir.lock import importing
from flambeau.ir.node import ITEM_SIZE, Node, topological
from flambeau.ir.plan import BlockProgram
from flambeau.ir.size_program import Program
from flambeau.ir.spelling import spelling_of

DIRECT = 1  # flag of a load: memory may be the register


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


class _Lowering(Indices):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.resident: dict[str, int] = {}

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
            self.scope = Scope()
            lowered[type(statement)](statement)
            result.statements.append(self.scope.statement)
        extents = [*map(self._size, kernel.rows), self._size(kernel.inner)]
        extents.append(self._size(kernel.reduce))
        self._number_sizes(extents)
        mark_narrow(result)
        assign_registers(result)
        return result

    # --------------------------------------------------------------------------- values

    def _values(self, roots: Iterable[Node]) -> None:
        for node in topological(list(roots)):
            if k.PAIR.matches(node) or k.CARRY.matches(node):
                continue
            if self._find(node) is None:
                self._remember(node, self._value(node))

    def _value(self, node: Node) -> Place:
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

    def _constant(self, node: Node) -> Place:
        content = value_bytes(node.attribute("value"), node.dtype)
        return self._bytes(content, width_of(node.dtype))

    def _bytes(self, content: bytes, width: int) -> Place:
        place = self._find(("bytes", content))
        if place is None:
            words = struct.unpack("<4i", content.ljust(16, b"\0"))
            place = self._emit("constant", NONE, "prologue", width, (), words)
            self._remember(("bytes", content), place)
        return place

    def _scalar(self, node: Node) -> Place:
        slot = node.attribute("slot")
        kinds = {("f64", "f64"): 0, ("i64", "i64"): 1, ("bool", "bool"): 2, ("i64", "bool"): 2}
        kind = kinds.get((self.kernel.scalars[slot], node.dtype))
        if kind is None:
            raise _missing(f"number {self.kernel.scalars[slot]} as {node.dtype}")
        return self._emit("scalar", NONE, "prologue", width_of(node.dtype), (), Numbers(slot, kind))

    def _result(self, node: Node) -> Place:
        return self.results[node.attribute("name")]

    def _resident(self, node: Node) -> Place:
        numbers = Numbers(self.resident[node.attribute("name")])
        decoded = _function("decode", node.dtype)
        functions = ["", decoded] if decoded else []
        return self._emit("resident", BOTH, "body", width_of(node.dtype), (), numbers, functions)

    # --------------------------------------------------------------------------- memory

    def _load(self, node: Node) -> Place:
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
        for step in steps_of(self.draft):
            renumber(step, registers)


def _compute_in_place(call: Instruction, store: Instruction) -> None:
    """Lets the last call of a body write where its only result is stored."""
    if (call.code, store.code) == ("call", "store") and store.operands == (call.result,):
        call.numbers = Numbers(1)


def _function(kind: str, dtype: str) -> str:
    """Name of a conversion between memory and registers; "" where they are the same."""
    return f"{kind} {dtype}" if dtype in ENCODED else ""


def _missing(what: str) -> NotImplementedError:
    return NotImplementedError(
        f"[baseline] no block function for {what}\nhint: set FLAMBEAU_COMPILER=wait"
    )


_LEAVES: dict[str, Callable[[_Lowering, Node], Place]] = {
    k.LOAD.name: _Lowering._load,
    k.CONST.name: _Lowering._constant,
    k.INDEX.name: _Lowering._index,
    k.SCALAR.name: _Lowering._scalar,
    k.REDUCED.name: _Lowering._result,
    k.KEPT.name: _Lowering._resident,
    k.CHECK_INDEX.name: _Lowering._check_index,
}
