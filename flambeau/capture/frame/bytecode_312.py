"""The bytecode of CPython 3.12: comprehensions are part of their function's code.

An error in a comprehension passes through a handler that restores the variables it has hidden.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from typing import Any

from flambeau.capture.frame import bytecode
from flambeau.capture.frame.bytecode import Handler, Instruction

_STOPPED, _POSITIVE, _TUPLE = 3, 5, 6  # intrinsic functions: `dis._intrinsic_1_descs`


class Frame(bytecode.Frame):
    """The execution of one function."""

    behind_loop = 1  # END_FOR

    @classmethod
    def own_handlers(
        cls, listed: Sequence[dis.Instruction], handlers: list[Handler]
    ) -> list[Handler]:
        """The handlers that the program has written.

        Python puts the code of a generator into a handler that replaces a StopIteration, and
        `yield from` into one that passes errors on to the other generator. What both do is up to
        `Generator`, so that each of their ranges has the handler that is around it.
        """
        resolved = [_resolve(handler, listed, handlers) for handler in handlers]
        return [handler for handler in resolved if handler is not None]

    def _load_fast_and_clear(self, i: Instruction) -> None:
        self.stack.append(self.locals[i.arg])
        self.locals[i.arg] = bytecode.NULL

    def _call_intrinsic_1(self, i: Instruction) -> None:
        if i.arg == _POSITIVE:
            self._unary_positive(i)
        elif i.arg == _TUPLE:
            self._list_to_tuple(i)
        else:
            self._refuse(i._replace(value=f"CALL_INTRINSIC_1 {i.arg}"))

    def _binary_slice(self, i: Instruction) -> None:
        self._build_slice(i._replace(arg=2))
        self._binary_subscr(i)

    def _store_slice(self, i: Instruction) -> None:
        self._build_slice(i._replace(arg=2))
        self._store_subscr(i)

    def _load_super_attr(self, i: Instruction) -> None:
        receiver, owner, function = self.stack.pop(), self.stack.pop(), self.stack.pop()
        args = (owner, receiver) if i.arg & 2 or function is super else ()
        self.stack.append(self.machine.call(function, args, {}))
        self._load_attr_or_method(i)

    def _return_const(self, i: Instruction) -> int:
        self._load_const(i)
        return self._return_value(i)

    def _load_attr_or_method(self, i: Instruction) -> None:
        self._push(self.machine.getattr(self.stack.pop(), i.value), called=bool(i.arg & 1))

    def _end_send(self, i: Instruction) -> None:
        del self.stack[-2]


def _resolve(
    handler: Handler, listed: Sequence[dis.Instruction], handlers: list[Handler]
) -> Handler | None:
    outer: Handler | None = handler
    while outer is not None:
        start = listed[outer.target]
        if start.opname == "CALL_INTRINSIC_1" and start.arg == _STOPPED:
            return None
        if start.opname != "CLEANUP_THROW":
            return outer._replace(first=handler.first, end=handler.end)
        at = outer.target
        outer = next((h for h in handlers if h.first <= at < h.end), None)
    return None


SHARED = (
    "load_fast_and_clear call_intrinsic_1 end_send return_const binary_slice store_slice "
    "load_super_attr"
).split()  # with later versions
ALIASES: dict[str, Any] = {
    "LOAD_ATTR": Frame._load_attr_or_method,
    "LOAD_FAST_CHECK": Frame._load_fast,
    "POP_JUMP_IF_TRUE": Frame._jump_if_true,
    "POP_JUMP_IF_FALSE": Frame._jump_if_false,
    "POP_JUMP_IF_NONE": Frame._jump_if_none,
    "POP_JUMP_IF_NOT_NONE": Frame._jump_if_not_none,
}
Frame.table = {
    **bytecode.methods(Frame, [*SHARED, "load_closure", "format_value", "kw_names"]),
    **ALIASES,
}
