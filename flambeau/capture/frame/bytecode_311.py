"""The bytecode of CPython 3.11."""

from __future__ import annotations

from typing import Any

from flambeau.capture.frame import bytecode
from flambeau.capture.frame.bytecode import Instruction


class Frame(bytecode.Frame):
    """The execution of one function."""

    def _load_method(self, i: Instruction) -> None:
        self._push(self.machine.getattr(self.stack.pop(), i.value), called=True)

    def _load_classderef(self, i: Instruction) -> None:
        self._load_deref(i)

    def _push_sent(self, value: Any) -> None:
        self.stack[-1] = value

    def _jump_if_true_or_pop(self, i: Instruction) -> int | None:
        if self.machine.truth(self.stack[-1]):
            return int(i.value)
        self.stack.pop()
        return None

    def _jump_if_false_or_pop(self, i: Instruction) -> int | None:
        if not self.machine.truth(self.stack[-1]):
            return int(i.value)
        self.stack.pop()
        return None


_METHODS = bytecode.methods(
    Frame,
    (
        "load_closure load_method list_to_tuple unary_positive format_value kw_names "
        "jump_if_true_or_pop jump_if_false_or_pop load_classderef"
    ).split(),
)
Frame.table = {
    **_METHODS,
    "PRECALL": Frame._nothing,
    **{
        f"POP_JUMP_{way}_IF_{test}": getattr(Frame, f"_jump_if_{test.lower()}")
        for way in ("FORWARD", "BACKWARD")
        for test in ("TRUE", "FALSE", "NONE", "NOT_NONE")
    },
}
