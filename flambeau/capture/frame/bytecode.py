"""The bytecode of CPython, executed on a `Machine`: one method for each instruction.

`bytecode_<n>.py` names the instructions of a version and has the methods of those that only it has
or that differ in it. An instruction that it does not name (classes, `await`, `except*`) leaves the
frame in tier 1. Handlers see errors of the program and of native code that it calls, never one of
this interpreter.
"""

from __future__ import annotations

import dis
import itertools
import operator
import sys
import types
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from flambeau.capture.frame import operators, plain, texts
from flambeau.capture.frame.evidence import MISSING, Raised, Unexplained, is_key
from flambeau.capture.frame.generators import Trace
from flambeau.capture.frame.machine import Machine
from flambeau.capture.frame.native_calls import attribute_or
from flambeau.capture.frame.numbers import Number
from flambeau.ir.lock import importing

NULL = object()
_PATTERN_FLAGS = (1 << 5) | (1 << 6)  # of types that are matched as sequences or mappings
_MATCHES_ITSELF = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)
_RETURN, _YIELD = -1, -2  # instead of a jump's target

_BY_VALUE = frozenset({int, float, complex, str, bytes, tuple, list, dict})  # for guards
CONVERSIONS: tuple[Any, ...] = (None, str, repr, ascii)  # of texts with values
KEYWORDS, CLOSURE = 2, 8  # what a new function has, besides 1: defaults, and 4: annotations


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


class Handler(NamedTuple):
    """A range of instructions whose errors are handled.

    Attributes:
        first, end: the range.
        target: the first instruction of the handler.
        depth: of the stack that it starts with.
        pushes: whether the failed instruction's number is pushed.
    """

    first: int
    end: int
    target: int
    depth: int
    pushes: bool


class Decoded(NamedTuple):
    """A code object as instructions.

    Attributes:
        code: it.
        instructions: in order.
        slots: how many local variables and cells a frame has.
        handlers: of errors.
    """

    code: types.CodeType
    instructions: list[Instruction]
    slots: int
    handlers: list[Handler]


def _do_nothing(*exception: object) -> None:
    """Marks the beginning and the end of a `with` block."""


_MOST_DECODED = 512
_decoded: dict[int, Decoded] = {}  # by identity of the code objects, which they hold


def decode(code: types.CodeType, version: type[Frame]) -> Decoded:
    """Reads a code object of a version."""
    listed = list(dis.get_instructions(code))
    index = {instruction.offset: i for i, instruction in enumerate(listed)}
    jumps = {*dis.hasjrel, *dis.hasjabs}
    instructions = []
    for entry in listed:
        execute = version.table.get(entry.opname, Frame._refuse)
        value = index[entry.argval] if entry.opcode in jumps else entry.argval
        value = entry.opname if execute is Frame._refuse else value
        instructions.append(Instruction(execute, entry.arg or 0, value))
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    slots = len(code.co_varnames) + len(cells) + len(code.co_freevars)
    table = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    handlers = [
        Handler(index[e.start], index.get(e.end, len(listed)), index[e.target], e.depth, e.lasti)
        for e in table
    ]
    return Decoded(code, instructions, slots, version.own_handlers(listed, handlers))


class Frame:
    """The execution of one function.

    Attributes:
        table: the method of each instruction of the version.
        behind_loop: how many instructions at the end of a loop are skipped when it ends.
        leave_at: where the stack has what ends a `with` block, when an error ends it.
    """

    table: ClassVar[Mapping[str, Callable[[Frame, Instruction], int | None]]] = {}
    behind_loop: ClassVar[int] = 0
    leave_at: ClassVar[int] = -4

    def __init__(self, machine: Machine, function: Any, values: list[Any]) -> None:
        code = function.__code__
        decoded = _decoded.get(id(code))
        if decoded is None:
            if len(_decoded) >= _MOST_DECODED:
                _decoded.clear()
            decoded = _decoded[id(code)] = decode(code, type(self))
        self.machine = machine
        self.function = function
        self.instructions = decoded.instructions
        self.handlers = decoded.handlers
        self.locals: list[Any] = [*values, *[NULL] * (decoded.slots - len(values))]
        self.stack: list[Any] = []
        self.at = 0
        self.names: tuple[str, ...] = ()  # of the next call's keyword arguments
        self.value: object = None  # what it returns or yields

    @classmethod
    def own_handlers(
        cls, listed: Sequence[dis.Instruction], handlers: list[Handler]
    ) -> list[Handler]:
        """The handlers that the program has written."""
        return handlers

    def run(self) -> Any:
        """Executes a function to its end."""
        self._go()
        return self.value

    def resume(self, value: object = None, error: BaseException | None = None) -> tuple[bool, Any]:
        """Executes a generator up to its next value: (True, it), or its end: (False, result).

        Args:
            value: what `yield` gives.
            error: what it raises instead.
        """
        if error is not None:
            if self.at == 0:
                self.at = len(self.instructions)  # it never began
                raise Raised(error)
            if not self._handle(Raised(error)):
                raise Raised(error)
        elif self.at > 0:
            self.stack.append(value)
        return self._go() == _YIELD, self.value

    @property
    def delegates(self) -> bool:
        """Whether a generator waits for another one, by `yield from`."""
        following = self.instructions[self.at : self.at + 2]
        return any(i.execute is Frame._jump for i in following[1:])

    @property
    def guarded(self) -> bool:
        """Whether leaving a generator where it waits would run code of it."""
        return self.at > 0 and any(h.first <= self.at - 1 < h.end for h in self.handlers)

    def _go(self) -> int:
        while True:
            try:
                return self._execute()
            except Raised as raised:
                if not self._handle(raised):
                    raise

    def _execute(self) -> int:
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

    def _handle(self, raised: Raised) -> bool:
        """Goes to the handler of an error; False: there is none."""
        at = self.at - 1
        handler = next((h for h in self.handlers if h.first <= at < h.end), None)
        if handler is None:
            self.at = len(self.instructions)
            return False
        if not raised.exact:
            raise Unexplained(f"it handles a {type(raised.error).__name__} of the interpreter")
        del self.stack[handler.depth :]
        if handler.pushes:
            self.stack.append(at)
        self.stack.append(raised.error)
        self.names = ()
        self.at = handler.target
        return True

    def _refuse(self, i: Instruction) -> int | None:
        """An instruction that is not understood."""
        raise Unexplained(f"instruction {i.value} of {self.function.__qualname__}")

    # ------------------------------------------------------------------ stack and variables
    def _nothing(self, i: Instruction) -> None:
        """An instruction without effect."""

    def _pop_top(self, i: Instruction) -> None:
        self.stack.pop()

    def _push_null(self, i: Instruction) -> None:
        self.stack.append(NULL)

    def _copy(self, i: Instruction) -> None:
        self.stack.append(self.stack[-i.arg])

    def _swap(self, i: Instruction) -> None:
        stack = self.stack
        stack[-1], stack[-i.arg] = stack[-i.arg], stack[-1]

    def _load_const(self, i: Instruction) -> None:
        self.stack.append(self.machine.evidence.constant(i.value))

    def _load_fast(self, i: Instruction) -> None:
        value = self.locals[i.arg]
        if value is NULL:
            text = (
                f"cannot access local variable '{i.value}' where it is not associated with a value"
            )
            raise Raised(UnboundLocalError(text))
        self.stack.append(value)

    def _store_fast(self, i: Instruction) -> None:
        self.locals[i.arg] = self.stack.pop()

    def _delete_fast(self, i: Instruction) -> None:
        if self.locals[i.arg] is NULL:
            raise Raised(UnboundLocalError(i.value), exact=False)
        self.locals[i.arg] = NULL

    def _load_global(self, i: Instruction) -> None:
        evidence, function = self.machine.evidence, self.function
        name = function.__globals__.get("__name__", "")
        value = self.machine.table_item(function.__globals__, i.value, f"globals of {name}")
        if value is MISSING:
            value = evidence.item(function.__builtins__, i.value, "builtins")
        if value is MISSING:
            raise Raised(NameError(f"name '{i.value}' is not defined", name=i.value))
        self._push(value, called=bool(i.arg & 1))

    def _push(self, value: object, called: bool) -> None:
        """Pushes a value; one that is called next has a gap for its receiver."""
        self.stack.extend((NULL, value) if called else (value,))

    def _store_global(self, i: Instruction) -> None:
        self.machine.write(self.function.__globals__, i.value, self.stack.pop())

    def _make_cell(self, i: Instruction) -> None:
        value = self.locals[i.arg]
        cell = types.CellType() if value is NULL else types.CellType(value)
        self.locals[i.arg] = self.machine.fresh(cell)

    def _copy_free_vars(self, i: Instruction) -> None:
        self.locals[len(self.locals) - i.arg :] = self.function.__closure__ or ()

    def _load_closure(self, i: Instruction) -> None:
        self.stack.append(self.locals[i.arg])

    def _load_deref(self, i: Instruction) -> None:
        value = self.machine.cell(self.locals[i.arg])
        if value is MISSING:
            raise Raised(NameError(i.value), exact=False)
        self.stack.append(value)

    def _store_deref(self, i: Instruction) -> None:
        self.machine.write_cell(self.locals[i.arg], self.stack.pop())

    def _make_function(self, i: Instruction) -> None:
        stack = self.stack
        code = stack.pop()
        closure = stack.pop() if i.arg & CLOSURE else None
        if i.arg & 4:
            stack.pop()  # annotations
        named = stack.pop() if i.arg & KEYWORDS else None
        defaults = stack.pop() if i.arg & 1 else None
        stack.append(self._function(code, defaults, named, closure))

    def _function(self, code: types.CodeType, defaults: Any, named: Any, closure: Any) -> Any:
        scope = self.function.__globals__
        function = types.FunctionType(code, scope, code.co_name, defaults, closure)
        function.__kwdefaults__ = named
        return self.machine.fresh(function)

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

    def _store_attr(self, i: Instruction) -> None:
        target = self.stack.pop()
        self.machine.setattr(target, i.value, self.stack.pop())

    def _delete_attr(self, i: Instruction) -> None:
        self.machine.delattr(self.stack.pop(), i.value)

    def _binary_subscr(self, i: Instruction) -> None:
        key = self.stack.pop()
        self.stack[-1] = self.machine.subscript(self.stack[-1], key)

    def _store_subscr(self, i: Instruction) -> None:
        key, target, value = self.stack.pop(), self.stack.pop(), self.stack.pop()
        machine = self.machine
        if type(target) in plain.TENSORS:
            machine.slots((target,), "__setitem__")
            machine.touch((key, value))
        elif type(target) in (list, deque, *plain.DICTS):
            machine.set_item(target, key, value)
            return
        else:
            function = machine.method(target, "__setitem__")
            if function is None:
                raise Unexplained(f"it writes items of a {type(target).__name__}")
            machine.call(function, (target, key, value), {})
            return
        machine.native(operator.setitem, target, key, value)

    def _delete_subscr(self, i: Instruction) -> None:
        key, target = self.stack.pop(), self.stack.pop()
        function = self.machine.method(target, "__delitem__")
        if function is not None:
            self.machine.call(function, (target, key), {})
            return
        self.machine.writable(target)
        bounds = (key.start, key.stop, key.step) if type(key) is slice else key
        if type(target) not in (list, deque, *plain.DICTS) or not plain.compares(bounds):
            raise Unexplained(f"it deletes items of a {type(target).__name__}")
        self.machine.native(operator.delitem, target, key)

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
        if not all(self.machine.hashes(value) for value in values):
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
        if not all(self.machine.hashes(key) for key in keys):
            raise Unexplained("a dict has keys that are objects")
        return self.machine.fresh(dict(zip(keys, values, strict=True)))

    def _list_to_tuple(self, i: Instruction) -> None:
        self.stack[-1] = tuple(self.stack[-1])

    def _list_append(self, i: Instruction) -> None:
        value = self.stack.pop()
        self.stack[-i.arg].append(value)

    def _set_add(self, i: Instruction) -> None:
        value = self.stack.pop()
        if not self.machine.hashes(value):
            raise Unexplained("it makes a set of objects")
        self.stack[-i.arg].add(value)

    def _map_add(self, i: Instruction) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        if not self.machine.hashes(key):
            raise Unexplained("a dict has keys that are objects")
        self.stack[-i.arg][key] = value

    def _list_extend(self, i: Instruction) -> None:
        values = list(self.machine.iterate(self.stack.pop()))
        self.stack[-i.arg].extend(values)

    def _set_update(self, i: Instruction) -> None:
        values = list(self.machine.iterate(self.stack.pop()))
        if not all(self.machine.hashes(value) for value in values):
            raise Unexplained("it makes a set of objects")
        self.stack[-i.arg].update(values)

    def _dict_update(self, i: Instruction) -> None:
        table = self.stack.pop()
        if type(table) is not dict:
            raise Unexplained(f"it unpacks a {type(table).__name__}")
        if not self.machine.is_fresh(table):
            self.machine.evidence.items(table)
        self.stack[-i.arg].update(table)

    def _dict_merge(self, i: Instruction) -> None:
        table, names = self.stack[-1], self.stack[-1 - i.arg]
        if type(table) is dict and any(type(k) is not str or k in names for k in table):
            raise Raised(TypeError("keywords"), exact=False)
        self._dict_update(i)

    def _unpack_sequence(self, i: Instruction) -> None:
        values = list(itertools.islice(self.machine.iterate(self.stack.pop()), i.arg + 1))
        if len(values) < i.arg:
            text = f"not enough values to unpack (expected {i.arg}, got {len(values)})"
            raise Raised(ValueError(text))
        if len(values) > i.arg:
            raise Raised(ValueError(f"too many values to unpack (expected {i.arg})"))
        self.stack.extend(reversed(values))

    def _unpack_ex(self, i: Instruction) -> None:
        values = list(self.machine.iterate(self.stack.pop()))
        before, after = i.arg & 0xFF, i.arg >> 8
        if len(values) < before + after:
            raise Raised(ValueError("unpacking"), exact=False)
        end = len(values) - after
        middle = self.machine.fresh(values[before:end])
        self.stack.extend(reversed([*values[:before], middle, *values[end:]]))

    # ------------------------------------------------------------------ operators
    def _binary_op(self, i: Instruction) -> None:
        right, left = self.stack.pop(), self.stack.pop()
        symbol = dis._nb_ops[i.arg][1]  # type: ignore[attr-defined]
        self.stack.append(operators.binary(self.machine, symbol, left, right))

    def _unary_not(self, i: Instruction) -> None:
        self.stack[-1] = not self.machine.truth(self.stack[-1])

    def _unary_negative(self, i: Instruction) -> None:
        self.stack[-1] = operators.unary(self.machine, "__neg__", self.stack[-1])

    def _unary_positive(self, i: Instruction) -> None:
        self.stack[-1] = operators.unary(self.machine, "__pos__", self.stack[-1])

    def _unary_invert(self, i: Instruction) -> None:
        self.stack[-1] = operators.unary(self.machine, "__invert__", self.stack[-1])

    def _compare_op(self, i: Instruction) -> None:
        right, left = self.stack.pop(), self.stack.pop()
        self.stack.append(operators.compare(self.machine, i.value, left, right))

    def _is_op(self, i: Instruction) -> None:
        right, left = self.stack.pop(), self.stack.pop()
        evidence = self.machine.evidence
        if type(left) in plain.TENSORS and type(right) in plain.TENSORS:
            sides = {id(left) in evidence.arguments, id(right) in evidence.arguments}
            if len(sides) == 2 and (
                id(left) in evidence.constants or id(right) in evidence.constants
            ):
                raise Unexplained("it compares the identities of an argument and a parameter")
        values = (*_BY_VALUE, Number)
        if type(left) in values and type(right) in values and Number in (type(left), type(right)):
            raise Unexplained("it compares the identity of a counter")
        if type(left) is type(right) and type(left) in _BY_VALUE:
            raise Unexplained(f"it compares the identities of two {type(left).__name__}")
        self.stack.append((left is right) ^ bool(i.arg))

    def _contains_op(self, i: Instruction) -> None:
        container, value = self.stack.pop(), self.stack.pop()
        inside = operators.contains(self.machine, container, value)
        self.stack.append(inside ^ bool(i.arg))

    def _format_value(self, i: Instruction) -> None:
        spec = self.stack.pop() if i.arg & 4 else ""
        value = self.stack.pop()
        convert = CONVERSIONS[i.arg & 3]
        if convert is not None:
            value = texts.text(self.machine, value, convert)
        self.stack.append(texts.formatted(self.machine, value, spec))

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

    def _get_iter(self, i: Instruction) -> None:
        self.stack[-1] = self.machine.iterate(self.stack[-1])

    def _for_iter(self, i: Instruction) -> int | None:
        iterator = self.machine.iterate(self.stack[-1])
        value = next(iterator, NULL)
        if value is NULL:
            self.stack.pop()
            return int(i.value) + self.behind_loop
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
        if function is NULL:
            function = receiver
        elif receiver is not NULL:
            values.insert(0, receiver)
        positional = len(values) - len(names)
        named = dict(zip(names, values[positional:], strict=True))
        stack.append(self._apply(function, tuple(values[:positional]), named))

    def _apply(self, function: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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
        receiver, function = self.stack.pop(), self.stack.pop()  # one of them is no value
        function = receiver if function is NULL else function
        if type(named) is not dict:
            raise Unexplained(f"it unpacks a {type(named).__name__}")
        if not self.machine.is_fresh(named) and named:
            self.machine.evidence.items(named)
        self.stack.append(self._apply(function, values, dict(named)))

    def _send(self, i: Instruction) -> int | None:
        value = self.stack.pop()
        try:
            self.stack.append(self.machine.send(self.stack[-1], value))
        except Raised as raised:
            if not isinstance(raised.error, StopIteration):
                raise
            self._push_sent(raised.error.value)
            return int(i.value)
        return None

    def _push_sent(self, value: Any) -> None:
        """Puts what `send` returned above the generator, which ends it."""
        self.stack.append(value)

    def _return_value(self, i: Instruction) -> int:
        self.value = self.stack.pop()
        return _RETURN

    def _return_generator(self, i: Instruction) -> None:
        self.stack.append(None)  # what the first call of `send` gives

    def _yield_value(self, i: Instruction) -> int:
        if self.machine.handled is not None:
            raise Unexplained("it yields while it handles an error")
        self.value = self.stack.pop()
        return _YIELD

    def _get_yield_from_iter(self, i: Instruction) -> None:
        self.stack[-1] = self.machine.iterate(self.stack[-1])

    # ------------------------------------------------------------------ patterns
    def _get_len(self, i: Instruction) -> None:
        self.stack.append(self.machine.length(self.stack[-1]))

    def _match_sequence(self, i: Instruction) -> None:
        self._match_kind(Sequence)

    def _match_mapping(self, i: Instruction) -> None:
        self._match_kind(Mapping)

    def _match_kind(self, protocol: type) -> None:
        subject = self.stack[-1]
        kind = self.machine.typed(subject)
        if kind in (str, bytes) or kind in plain.TENSORS:
            self.stack.append(False)
        elif kind in plain.ATOMS or kind in plain.CONTAINERS:
            self.stack.append(isinstance(subject, protocol))
        elif all(base.__flags__ & _PATTERN_FLAGS == 0 for base in kind.__mro__):
            self.machine.evidence.hierarchy(kind)
            self.stack.append(False)
        else:
            raise Unexplained(f"it matches a {kind.__name__}")

    def _match_keys(self, i: Instruction) -> None:
        keys, subject = self.stack[-1], self.stack[-2]
        if type(subject) is not dict or not all(map(is_key, keys)):
            raise Unexplained(f"it matches keys of a {type(subject).__name__}")
        values = tuple(self.machine.table_item(subject, key) for key in keys)
        self.stack.append(None if MISSING in values else values)

    def _match_class(self, i: Instruction) -> None:
        names, kind, subject = self.stack.pop(), self.stack.pop(), self.stack.pop()
        machine = self.machine
        if not machine.truth(machine.call(isinstance, (subject, kind), {})):
            self.stack.append(None)
            return
        if i.arg and kind in _MATCHES_ITSELF:
            positional: tuple[Any, ...] = ()
            values = [subject]
        else:
            positional = attribute_or(machine, kind, "__match_args__", ()) if i.arg else ()
            values = []
        if (
            type(positional) is not tuple
            or len(positional) + len(values) < i.arg
            or set(positional[: i.arg]) & set(names)
        ):
            raise Unexplained(f"it matches a {kind.__name__}")
        for name in (*positional[: i.arg], *names):
            value = attribute_or(machine, subject, name, MISSING)
            if value is MISSING:
                self.stack.append(None)
                return
            values.append(value)
        self.stack.append(tuple(values))

    # ------------------------------------------------------------------ errors
    def _raise_varargs(self, i: Instruction) -> None:
        machine = self.machine
        cause = self.stack.pop() if i.arg == 2 else MISSING
        error = self.stack.pop() if i.arg else machine.handled
        if isinstance(error, type) and issubclass(error, BaseException):
            error = machine.call(error, (), {})
        if not isinstance(error, BaseException):
            raise Raised(RuntimeError("raise"), exact=False)
        if i.arg and not machine.is_fresh(error):  # its traceback would be written
            raise Unexplained("it raises an error from outside")
        if cause is None or isinstance(cause, BaseException):
            error.__cause__ = cause
        elif cause is not MISSING:
            raise Unexplained("it raises an error from a class")
        raise Raised(error)

    def _reraise(self, i: Instruction) -> None:
        raise Raised(self.stack.pop())

    def _push_exc_info(self, i: Instruction) -> None:
        error = self.stack.pop()
        self.stack.extend((self.machine.handled, error))
        self.machine.handled = self.machine.fresh(error)

    def _pop_except(self, i: Instruction) -> None:
        self.machine.handled = self.stack.pop()

    def _check_exc_match(self, i: Instruction) -> None:
        kinds, error = self.stack.pop(), self.stack[-1]
        self.machine.evidence.bases(type(error))
        for kind in kinds if type(kinds) is tuple else (kinds,):
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise Unexplained("it catches no class of errors")
        accepted = kinds if type(kinds) is tuple else (kinds,)
        self.stack.append(any(kind in type(error).__mro__ for kind in accepted))

    def _with_except_start(self, i: Instruction) -> None:
        error, leave = self.stack[-1], self.stack[self.leave_at]
        trace = self.machine.fresh(Trace())
        self.stack.append(self.machine.call(leave, (type(error), error, trace), {}))

    def _load_assertion_error(self, i: Instruction) -> None:
        self.stack.append(AssertionError)

    def _before_with(self, i: Instruction) -> None:
        manager = self.stack.pop()
        enter, leave = (self._special(manager, name) for name in ("__enter__", "__exit__"))
        self.stack.extend((leave, self.machine.call(enter, (), {})))

    def _special(self, manager: object, name: str) -> object:
        """The method that a `with` block calls to begin or to end."""
        if type(manager) in plain.GUARDS:
            return getattr(manager, name)
        if manager is importing:  # the package's own lock, which nothing here needs
            return _do_nothing
        method = self.machine.method(manager, name)
        if method is None:
            raise Unexplained(f"it enters a {type(manager).__name__}")
        return types.MethodType(method, manager)


SHARED = (
    "pop_top push_null copy swap load_const load_fast store_fast delete_fast load_global "
    "store_global make_cell copy_free_vars load_deref store_deref make_function load_attr "
    "store_attr delete_attr binary_subscr store_subscr delete_subscr build_slice build_tuple "
    "build_list build_set build_string build_map build_const_key_map list_append set_add map_add "
    "list_extend set_update dict_update dict_merge unpack_sequence unpack_ex binary_op "
    "unary_not unary_negative unary_invert compare_op is_op contains_op get_iter for_iter "
    "call call_function_ex import_name import_from return_value return_generator yield_value "
    "raise_varargs before_with get_yield_from_iter send reraise push_exc_info pop_except "
    "get_len match_sequence match_mapping match_keys match_class check_exc_match "
    "with_except_start load_assertion_error"
).split()  # by all versions
_NOTHING = ("RESUME", "NOP", "CACHE", "EXTENDED_ARG")
_JUMPS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")


def methods(version: type[Frame], names: list[str]) -> dict[str, Any]:
    """The methods of a version's instructions.

    Args:
        version: the class with the methods, `_load_fast` for LOAD_FAST.
        names: of its instructions that not all versions have.
    """
    return {
        **{name.upper(): getattr(version, f"_{name}") for name in (*SHARED, *names)},
        **dict.fromkeys(_NOTHING, Frame._nothing),
        **dict.fromkeys(_JUMPS, Frame._jump),
    }
