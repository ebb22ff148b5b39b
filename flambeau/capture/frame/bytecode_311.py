"""The bytecode of CPython 3.11, executed on a `Machine`: one method for each instruction.

Instructions that are not here (handlers of exceptions, classes, `await`) leave the frame in tier 1.
A program that raises is not explained, so that no handler ever runs.
"""

from __future__ import annotations

import dis
import operator
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau.capture.frame import native_calls as native
from flambeau.capture.frame.evidence import MISSING, Raised, Unexplained, is_key
from flambeau.capture.frame.machine import Machine
from flambeau.ir.lock import importing

_NULL = object()
_RETURN, _YIELD = -1, -2  # instead of a jump's target

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow, "@": operator.matmul,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift,
    ">>": operator.rshift, "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul,
    "/=": operator.itruediv, "//=": operator.ifloordiv, "%=": operator.imod, "**=": operator.ipow,
    "@=": operator.imatmul, "&=": operator.iand, "|=": operator.ior, "^=": operator.ixor,
    "<<=": operator.ilshift, ">>=": operator.irshift,
}  # fmt: skip
_METHODS = {
    "+": "__add__", "-": "__sub__", "*": "__mul__", "/": "__truediv__", "//": "__floordiv__",
    "%": "__mod__", "**": "__pow__", "@": "__matmul__", "&": "__and__", "|": "__or__",
    "^": "__xor__", "<<": "__lshift__", ">>": "__rshift__",
}  # fmt: skip
_COMPARED = {"<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge"}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip


_BY_VALUE = frozenset({int, float, complex, str, bytes, tuple, list, dict})  # for guards


class Instruction(NamedTuple):
    """One instruction.

    Attributes:
        execute: its method of `Frame`.
        arg: its number.
        value: its meaning: a name, a constant, a text, the index of a jump's target.
    """

    execute: Callable[[Frame, Instruction], int | None]
    arg: int
    value: Any


class Decoded(NamedTuple):
    """A code object as instructions.

    Attributes:
        code: it.
        instructions: in order.
        slots: how many local variables and cells a frame has.
    """

    code: types.CodeType
    instructions: list[Instruction]
    slots: int


def _leave(*exception: object) -> None:
    """Stands for the end of a `with` block."""


def decode(code: types.CodeType) -> Decoded:
    """Reads a code object.

    Raises:
        Unexplained: an instruction is not understood; nothing of it ran.
    """
    listed = list(dis.get_instructions(code))
    index = {instruction.offset: i for i, instruction in enumerate(listed)}
    jumps = {*dis.hasjrel, *dis.hasjabs}
    instructions = []
    for entry in listed:
        execute = _EXECUTE.get(entry.opname, Frame._refuse)
        value = index[entry.argval] if entry.opcode in jumps else entry.argval
        value = entry.opname if execute is Frame._refuse else value
        instructions.append(Instruction(execute, entry.arg or 0, value))
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    slots = len(code.co_varnames) + len(cells) + len(code.co_freevars)
    return Decoded(code, instructions, slots)


class Frame:
    """The execution of one function."""

    def __init__(self, machine: Machine, function: Any, values: list[Any]) -> None:
        code = function.__code__
        decoded = machine.codes.get(id(code))
        if decoded is None:
            decoded = machine.codes[id(code)] = decode(code)
        self.machine = machine
        self.function = function
        self.instructions = decoded.instructions
        self.locals: list[Any] = [*values, *[_NULL] * (decoded.slots - len(values))]
        self.stack: list[Any] = []
        self.at = 0
        self.names: tuple[str, ...] = ()  # of the next call's keyword arguments
        self.value: Any = None  # what it returns or yields

    def run(self) -> Any:
        """Executes a function to its end."""
        self._go()
        return self.value

    def resume(self) -> tuple[bool, Any]:
        """Executes a generator up to its next value: (True, it), or its end: (False, result)."""
        if self.at > 0:
            self.stack.append(None)  # what `yield` gives
        return self._go() == _YIELD, self.value

    def _go(self) -> int:
        machine, instructions = self.machine, self.instructions
        while True:
            instruction = instructions[self.at]
            self.at += 1
            machine.steps -= 1
            if machine.steps < 0:
                raise Unexplained("it runs too long")
            target = instruction.execute(self, instruction)
            if target is not None:
                if target < 0:
                    return target
                self.at = target

    def _refuse(self, i: Instruction) -> int | None:
        """An instruction that is not understood."""
        raise Unexplained(f"instruction {i.value} of {self.function.__qualname__}")

    # ------------------------------------------------------------------ stack and variables
    def _nothing(self, i: Instruction) -> None:
        """An instruction without effect."""

    def _pop_top(self, i: Instruction) -> None:
        self.stack.pop()

    def _push_null(self, i: Instruction) -> None:
        self.stack.append(_NULL)

    def _copy(self, i: Instruction) -> None:
        self.stack.append(self.stack[-i.arg])

    def _swap(self, i: Instruction) -> None:
        stack = self.stack
        stack[-1], stack[-i.arg] = stack[-i.arg], stack[-1]

    def _load_const(self, i: Instruction) -> None:
        self.stack.append(i.value)

    def _load_fast(self, i: Instruction) -> None:
        value = self.locals[i.arg]
        if value is _NULL:
            raise Raised(UnboundLocalError(i.value))
        self.stack.append(value)

    def _store_fast(self, i: Instruction) -> None:
        self.locals[i.arg] = self.stack.pop()

    def _delete_fast(self, i: Instruction) -> None:
        self.locals[i.arg] = _NULL

    def _load_global(self, i: Instruction) -> None:
        if i.arg & 1:
            self.stack.append(_NULL)
        evidence, function = self.machine.evidence, self.function
        name = function.__globals__.get("__name__", "")
        value = evidence.item(function.__globals__, i.value, f"globals of {name}")
        if value is MISSING:
            value = evidence.item(function.__builtins__, i.value, "builtins")
        if value is MISSING:
            raise Raised(NameError(i.value))
        self.stack.append(value)

    def _make_cell(self, i: Instruction) -> None:
        value = self.locals[i.arg]
        cell = types.CellType() if value is _NULL else types.CellType(value)
        self.locals[i.arg] = self.machine.fresh(cell)

    def _copy_free_vars(self, i: Instruction) -> None:
        self.locals[len(self.locals) - i.arg :] = self.function.__closure__ or ()

    def _load_closure(self, i: Instruction) -> None:
        self.stack.append(self.locals[i.arg])

    def _load_deref(self, i: Instruction) -> None:
        cell = self.locals[i.arg]
        if self.machine.is_fresh(cell):
            value = cell.cell_contents
        else:
            value = self.machine.evidence.cell(cell)
            if value is MISSING:
                raise Raised(NameError(i.value))
        self.stack.append(value)

    def _store_deref(self, i: Instruction) -> None:
        cell = self.locals[i.arg]
        self.machine.writable(cell)
        cell.cell_contents = self.stack.pop()

    def _make_function(self, i: Instruction) -> None:
        stack = self.stack
        code = stack.pop()
        closure = stack.pop() if i.arg & 8 else None
        if i.arg & 4:
            stack.pop()  # annotations
        named = stack.pop() if i.arg & 2 else None
        defaults = stack.pop() if i.arg & 1 else None
        function = types.FunctionType(
            code, self.function.__globals__, code.co_name, defaults, closure
        )
        function.__kwdefaults__ = named
        stack.append(self.machine.fresh(function))

    def _import_name(self, i: Instruction) -> None:
        names, level = self.stack.pop(), self.stack.pop()
        evidence, scope = self.machine.evidence, self.function.__globals__
        if evidence.item(self.function.__builtins__, "__import__", "builtins") is not __import__:
            raise Unexplained("it imports by a function of its own")
        name = i.value
        if level:
            package = evidence.item(scope, "__package__", f"globals of {scope.get('__name__')}")
            name = ".".join([*str(package).split(".")[: 1 - level or None], *filter(None, [name])])
        loaded = evidence.item(sys.modules, name, "sys.modules")
        if loaded is MISSING:
            raise Unexplained(f"it imports {name} for the first time")
        top = name if names else name.partition(".")[0]
        self.stack.append(evidence.item(sys.modules, top, "sys.modules"))

    def _import_from(self, i: Instruction) -> None:
        module = self.stack[-1]
        if not isinstance(module, types.ModuleType):
            raise Unexplained(f"it imports from a {type(module).__name__}")
        self.stack.append(self.machine.getattr(module, i.value))

    # ------------------------------------------------------------------ attributes and items
    def _load_attr(self, i: Instruction) -> None:
        self.stack[-1] = self.machine.getattr(self.stack[-1], i.value)

    def _load_method(self, i: Instruction) -> None:
        value = self.machine.getattr(self.stack.pop(), i.value)
        self.stack.extend((_NULL, value))

    def _store_attr(self, i: Instruction) -> None:
        target = self.stack.pop()
        self.machine.setattr(target, i.value, self.stack.pop())

    def _binary_subscr(self, i: Instruction) -> None:
        key = self.stack.pop()
        self.stack[-1] = self.machine.subscript(self.stack[-1], key)

    def _store_subscr(self, i: Instruction) -> None:
        key, target, value = self.stack.pop(), self.stack.pop(), self.stack.pop()
        if type(target) in native.TENSORS:
            self.machine.slots((target,), "__setitem__")
            self.machine.touch((key, value))
        else:
            self.machine.writable(target)
            if type(target) not in (list, dict) or not native.compares_plainly(key):
                raise Unexplained(f"it writes items of a {type(target).__name__}")
        target[key] = value

    def _delete_subscr(self, i: Instruction) -> None:
        key, target = self.stack.pop(), self.stack.pop()
        self.machine.writable(target)
        if type(target) not in (list, dict) or not native.compares_plainly(key):
            raise Unexplained(f"it deletes items of a {type(target).__name__}")
        del target[key]

    def _build_slice(self, i: Instruction) -> None:
        self._gather(i.arg, lambda values: slice(*values))

    def _gather(self, count: int, build: Callable[[list[Any]], Any]) -> None:
        first = len(self.stack) - count
        values = self.stack[first:]
        del self.stack[first:]
        self.stack.append(build(values))

    def _build_tuple(self, i: Instruction) -> None:
        self._gather(i.arg, tuple)

    def _build_list(self, i: Instruction) -> None:
        self._gather(i.arg, lambda values: self.machine.fresh(values))

    def _build_set(self, i: Instruction) -> None:
        self._gather(i.arg, self._set)

    def _set(self, values: list[Any]) -> Any:
        if not all(native.hashes_plainly(value) for value in values):
            raise Unexplained("it makes a set of objects")
        return self.machine.fresh(set(values))

    def _build_string(self, i: Instruction) -> None:
        self._gather(i.arg, "".join)

    def _build_map(self, i: Instruction) -> None:
        self._gather(2 * i.arg, lambda values: self._dict(values[::2], values[1::2]))

    def _build_const_key_map(self, i: Instruction) -> None:
        keys = self.stack.pop()
        self._gather(i.arg, lambda values: self._dict(keys, values))

    def _dict(self, keys: Any, values: list[Any]) -> Any:
        if not all(native.hashes_plainly(key) for key in keys):
            raise Unexplained("a dict has keys that are objects")
        return self.machine.fresh(dict(zip(keys, values, strict=True)))

    def _list_to_tuple(self, i: Instruction) -> None:
        self.stack[-1] = tuple(self.stack[-1])

    def _list_append(self, i: Instruction) -> None:
        value = self.stack.pop()
        self.stack[-i.arg].append(value)

    def _set_add(self, i: Instruction) -> None:
        value = self.stack.pop()
        if not native.hashes_plainly(value):
            raise Unexplained("it makes a set of objects")
        self.stack[-i.arg].add(value)

    def _map_add(self, i: Instruction) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        if not native.hashes_plainly(key):
            raise Unexplained("a dict has keys that are objects")
        self.stack[-i.arg][key] = value

    def _list_extend(self, i: Instruction) -> None:
        values = list(self.machine.iterate(self.stack.pop()))
        self.stack[-i.arg].extend(values)

    def _set_update(self, i: Instruction) -> None:
        values = list(self.machine.iterate(self.stack.pop()))
        if not all(native.hashes_plainly(value) for value in values):
            raise Unexplained("it makes a set of objects")
        self.stack[-i.arg].update(values)

    def _dict_update(self, i: Instruction) -> None:
        table = self.stack.pop()
        if type(table) is not dict:
            raise Unexplained(f"it unpacks a {type(table).__name__}")
        if not self.machine.is_fresh(table):
            self.machine.evidence.items(table)
        self.stack[-i.arg].update(table)

    def _unpack_sequence(self, i: Instruction) -> None:
        values = list(self.machine.iterate(self.stack.pop()))
        if len(values) != i.arg:
            raise Raised(ValueError("unpacking"))
        self.stack.extend(reversed(values))

    def _unpack_ex(self, i: Instruction) -> None:
        values = list(self.machine.iterate(self.stack.pop()))
        before, after = i.arg & 0xFF, i.arg >> 8
        if len(values) < before + after:
            raise Raised(ValueError("unpacking"))
        end = len(values) - after
        middle = self.machine.fresh(values[before:end])
        self.stack.extend(reversed([*values[:before], middle, *values[end:]]))

    # ------------------------------------------------------------------ operators
    def _binary_op(self, i: Instruction) -> None:
        right, left = self.stack.pop(), self.stack.pop()
        symbol = dis._nb_ops[i.arg][1]  # type: ignore[attr-defined]
        self.stack.append(self._binary(symbol, left, right))

    def _binary(self, symbol: str, left: Any, right: Any) -> Any:
        machine = self.machine
        operands = (type(left), type(right))
        plain = native.ATOMS | native.TENSORS | {tuple, list, set, dict}
        if operands[0] in plain and operands[1] in plain:
            if symbol.endswith("=") and operands[0] in (list, set, dict):
                machine.writable(left)
            if not (operands[0] in native.ATOMS and operands[1] in native.ATOMS):
                machine.touch((left, right))
            if symbol == "%" and operands[0] is str and not native.compares_plainly(right):
                raise Unexplained("it formats an object")
            name = _METHODS[symbol.rstrip("=")]
            reflected, written = name.replace("__", "__r", 1), name.replace("__", "__i", 1)
            machine.slots((left, right), name, reflected, *[written] * symbol.endswith("="))
            return machine.collection(_BINARY[symbol](left, right))
        function = machine.method(left, _METHODS.get(symbol.rstrip("="), ""))
        if function is None or symbol.endswith("="):
            raise Unexplained(f"{symbol} of {operands[0].__name__} and {operands[1].__name__}")
        result = machine.call(function, (left, right), {})
        if result is NotImplemented:
            raise Unexplained(f"{symbol} of {operands[0].__name__} and {operands[1].__name__}")
        return result

    def _unary_not(self, i: Instruction) -> None:
        self.stack[-1] = not self.machine.truth(self.stack[-1])

    def _unary_negative(self, i: Instruction) -> None:
        self._unary(operator.neg, "__neg__")

    def _unary_positive(self, i: Instruction) -> None:
        self._unary(operator.pos, "__pos__")

    def _unary_invert(self, i: Instruction) -> None:
        self._unary(operator.invert, "__invert__")

    def _unary(self, function: Callable[[Any], Any], name: str) -> None:
        value = self.stack[-1]
        if type(value) not in native.ATOMS and type(value) not in native.TENSORS:
            raise Unexplained(f"an operator of a {type(value).__name__}")
        self.machine.slots((value,), name)
        self.stack[-1] = function(value)

    def _compare_op(self, i: Instruction) -> None:
        right, left = self.stack.pop(), self.stack.pop()
        scalars = native.ATOMS | native.TENSORS
        tensors = type(left) in native.TENSORS or type(right) in native.TENSORS
        if tensors and type(left) in scalars and type(right) in scalars:
            self.machine.slots((left, right), f"__{_COMPARED[i.value]}__")
            self.stack.append(_COMPARE[i.value](left, right))
            return
        if not native.compares_plainly(left) or not native.compares_plainly(right):
            raise Unexplained(f"it compares a {type(left).__name__} and a {type(right).__name__}")
        self.machine.touch((left, right))
        self.stack.append(_COMPARE[i.value](left, right))

    def _is_op(self, i: Instruction) -> None:
        right, left = self.stack.pop(), self.stack.pop()
        evidence = self.machine.evidence
        if type(left) in native.TENSORS and type(right) in native.TENSORS:
            sides = {id(left) in evidence.arguments, id(right) in evidence.arguments}
            if len(sides) == 2 and (
                id(left) in evidence.constants or id(right) in evidence.constants
            ):
                raise Unexplained("it compares the identities of an argument and a parameter")
        if type(left) is type(right) and type(left) in _BY_VALUE:
            raise Unexplained(f"it compares the identities of two {type(left).__name__}")
        self.stack.append((left is right) ^ bool(i.arg))

    def _contains_op(self, i: Instruction) -> None:
        container, value = self.stack.pop(), self.stack.pop()
        self.stack.append(self._contains(container, value) ^ bool(i.arg))

    def _contains(self, container: Any, value: Any) -> bool:
        machine, kind = self.machine, type(container)
        if kind.__name__ == "OrderedDict" or kind is dict:
            if is_key(value):
                return machine.table_item(container, value) is not MISSING
            if not machine.is_fresh(container) or not native.hashes_plainly(value):
                raise Unexplained("it looks up an object")
            return value in container
        if kind in native.ATOMS or kind in native.CONTAINERS:
            machine.touch(container)
            if not native.compares_plainly(container) or not native.compares_plainly(value):
                raise Unexplained("it looks up an object")
            return value in container
        function = machine.method(container, "__contains__")
        if function is None:
            raise Unexplained(f"it looks up in a {kind.__name__}")
        return machine.truth(machine.call(function, (container, value), {}))

    def _format_value(self, i: Instruction) -> None:
        spec = self.stack.pop() if i.arg & 4 else ""
        value = self.stack.pop()
        if type(value) not in native.ATOMS:
            raise Unexplained(f"it formats a {type(value).__name__}")
        convert: Any = (lambda text: text, str, repr, ascii)[i.arg & 3]
        self.stack.append(format(convert(value), spec))

    # ------------------------------------------------------------------ jumps
    def _jump(self, i: Instruction) -> int:
        target: int = i.value
        return target

    def _jump_if_true(self, i: Instruction) -> int | None:
        return i.value if self.machine.truth(self.stack.pop()) else None

    def _jump_if_false(self, i: Instruction) -> int | None:
        return None if self.machine.truth(self.stack.pop()) else i.value

    def _jump_if_none(self, i: Instruction) -> int | None:
        return i.value if self.stack.pop() is None else None

    def _jump_if_not_none(self, i: Instruction) -> int | None:
        return None if self.stack.pop() is None else i.value

    def _jump_if_true_or_pop(self, i: Instruction) -> int | None:
        if self.machine.truth(self.stack[-1]):
            return i.value  # type: ignore[no-any-return]
        self.stack.pop()
        return None

    def _jump_if_false_or_pop(self, i: Instruction) -> int | None:
        if not self.machine.truth(self.stack[-1]):
            return i.value  # type: ignore[no-any-return]
        self.stack.pop()
        return None

    def _get_iter(self, i: Instruction) -> None:
        self.stack[-1] = self.machine.iterate(self.stack[-1])

    def _for_iter(self, i: Instruction) -> int | None:
        iterator = self.machine.iterate(self.stack[-1])
        value = next(iterator, _NULL)
        if value is _NULL:
            self.stack.pop()
            return i.value  # type: ignore[no-any-return]
        self.stack.append(value)
        return None

    # ------------------------------------------------------------------ calls
    def _kw_names(self, i: Instruction) -> None:
        self.names = i.value if isinstance(i.value, tuple) else self._constant(i.arg)

    def _constant(self, index: int) -> Any:
        return self.function.__code__.co_consts[index]

    def _call(self, i: Instruction) -> None:
        stack, names = self.stack, self.names
        self.names = ()
        first = len(stack) - i.arg
        values = stack[first:]
        function, receiver = stack[first - 2], stack[first - 1]
        del stack[first - 2 :]
        if function is _NULL:
            function = receiver
        else:
            values.insert(0, receiver)
        positional = len(values) - len(names)
        named = dict(zip(names, values[positional:], strict=True))
        stack.append(self._apply(function, tuple(values[:positional]), named))

    def _apply(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if function is super and not args:
            return self._super()
        return self.machine.call(function, args, kwargs)

    def _super(self) -> Any:
        code = self.function.__code__
        owner = self.locals[len(self.locals) - len(code.co_freevars) :][
            code.co_freevars.index("__class__")
        ]
        receiver = self.locals[0]
        if isinstance(receiver, types.CellType):
            receiver = receiver.cell_contents
        return super(self.machine.evidence.cell(owner), receiver)

    def _call_function_ex(self, i: Instruction) -> None:
        named = self.stack.pop() if i.arg & 1 else {}
        values = tuple(self.machine.iterate(self.stack.pop()))
        function = self.stack.pop()
        if self.stack and self.stack[-1] is _NULL:
            self.stack.pop()
        if type(named) is not dict:
            raise Unexplained(f"it unpacks a {type(named).__name__}")
        if not self.machine.is_fresh(named) and named:
            self.machine.evidence.items(named)
        self.stack.append(self._apply(function, values, dict(named)))

    def _return_value(self, i: Instruction) -> int:
        self.value = self.stack.pop()
        return _RETURN

    def _return_generator(self, i: Instruction) -> None:
        self.stack.append(None)  # what the first call of `send` gives

    def _yield_value(self, i: Instruction) -> int:
        self.value = self.stack.pop()
        return _YIELD

    def _raise_varargs(self, i: Instruction) -> None:
        error = self.stack[-i.arg] if i.arg else None
        if isinstance(error, type) and issubclass(error, BaseException):
            error = error()
        raise Raised(error if isinstance(error, BaseException) else RuntimeError("raise"))

    def _before_with(self, i: Instruction) -> None:
        manager = self.stack.pop()
        if type(manager) in native.GUARDS:
            self.machine.writable(manager)
            leave, value = manager.__exit__, manager.__enter__()
        elif manager is importing:  # the package's own lock, which nothing here needs
            leave, value = _leave, None
        else:
            leave = self.machine.getattr(manager, "__exit__")
            if not isinstance(leave, types.MethodType):
                raise Unexplained(f"it enters a {type(manager).__name__}")
            value = self.machine.call(self.machine.getattr(manager, "__enter__"), (), {})
        self.stack.extend((leave, value))

    def _load_classderef(self, i: Instruction) -> None:
        self._load_deref(i)


_SAME = (
    "pop_top push_null copy swap load_const load_fast store_fast delete_fast load_global make_cell "
    "copy_free_vars load_closure load_deref store_deref make_function load_attr load_method "
    "store_attr binary_subscr store_subscr delete_subscr build_slice build_tuple build_list "
    "build_set build_string build_map build_const_key_map list_to_tuple list_append set_add "
    "map_add list_extend set_update dict_update unpack_sequence unpack_ex binary_op unary_not "
    "unary_negative unary_positive unary_invert compare_op is_op contains_op format_value "
    "jump_if_true_or_pop jump_if_false_or_pop get_iter for_iter kw_names call call_function_ex "
    "import_name import_from return_value return_generator yield_value raise_varargs "
    "before_with load_classderef"
).split()
_EXECUTE: dict[str, Any] = {
    **{name.upper(): getattr(Frame, f"_{name}") for name in _SAME},
    **dict.fromkeys(("RESUME", "NOP", "PRECALL", "CACHE", "EXTENDED_ARG"), Frame._nothing),
    **dict.fromkeys(
        ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"), Frame._jump
    ),
    "DICT_MERGE": Frame._dict_update,
    **{
        f"POP_JUMP_{way}_IF_{test}": getattr(Frame, f"_jump_if_{test.lower()}")
        for way in ("FORWARD", "BACKWARD")
        for test in ("TRUE", "FALSE", "NONE", "NOT_NONE")
    },
}  # fmt: skip
