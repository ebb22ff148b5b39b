"""The bytecode of CPython 3.13: functions come before their receivers, texts have more steps."""

from __future__ import annotations

import types

from flambeau.capture.frame import bytecode, bytecode_312, texts
from flambeau.capture.frame.bytecode import NULL, Instruction

_AS_BOOL = 16  # of the number of a comparison


class Frame(bytecode_312.Frame):
    """The execution of one function."""

    behind_loop = 2  # END_FOR, POP_TOP

    def _push(self, value: object, called: bool) -> None:
        self.stack.extend((value, NULL) if called else (value,))

    def _load_fast_load_fast(self, i: Instruction) -> None:
        self.stack.extend((self.locals[i.arg >> 4], self.locals[i.arg & 15]))

    def _store_fast_load_fast(self, i: Instruction) -> None:
        self.locals[i.arg >> 4] = self.stack.pop()
        self.stack.append(self.locals[i.arg & 15])

    def _store_fast_store_fast(self, i: Instruction) -> None:
        self.locals[i.arg >> 4] = self.stack.pop()
        self.locals[i.arg & 15] = self.stack.pop()

    def _make_function(self, i: Instruction) -> None:
        code = self.stack.pop()
        cells = tuple(types.CellType() for _ in code.co_freevars)  # until SET_FUNCTION_ATTRIBUTE
        self.stack.append(self._function(code, None, None, cells))

    def _set_function_attribute(self, i: Instruction) -> None:
        function, value = self.stack.pop(), self.stack.pop()
        if i.arg == 1:
            function.__defaults__ = value
        elif i.arg == bytecode.KEYWORDS:
            function.__kwdefaults__ = value
        elif i.arg == bytecode.CLOSURE:
            named = function.__kwdefaults__
            function = self._function(function.__code__, function.__defaults__, named, value)
        self.stack.append(function)

    def _convert_value(self, i: Instruction) -> None:
        self.stack[-1] = texts.text(self.machine, self.stack[-1], bytecode.CONVERSIONS[i.arg])

    def _format_simple(self, i: Instruction) -> None:
        self.stack[-1] = texts.formatted(self.machine, self.stack[-1], "")

    def _format_with_spec(self, i: Instruction) -> None:
        spec = self.stack.pop()
        self.stack[-1] = texts.formatted(self.machine, self.stack[-1], spec)

    def _call_kw(self, i: Instruction) -> None:
        self.names = self.stack.pop()
        self._call(i)

    def _to_bool(self, i: Instruction) -> None:
        self.stack[-1] = self.machine.truth(self.stack[-1])

    def _compare_op(self, i: Instruction) -> None:
        super()._compare_op(i)
        if i.arg & _AS_BOOL:
            self._to_bool(i)


OWN = (
    "load_fast_load_fast store_fast_load_fast store_fast_store_fast to_bool call_kw convert_value "
    "format_simple format_with_spec set_function_attribute"
).split()  # with later versions
Frame.table = {
    **bytecode.methods(Frame, [*bytecode_312.SHARED, *OWN]),
    **bytecode_312.ALIASES,
}
