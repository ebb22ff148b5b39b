"""The bytecode of CPython 3.14: `with` and subscripts are calls and operators, numbers are small.

A value that is loaded "borrowed" is the variable's, which outlives its use: the same value here.
"""

from __future__ import annotations

from flambeau.capture.frame import bytecode, bytecode_312, bytecode_313
from flambeau.capture.frame.bytecode import NULL, Instruction
from flambeau.capture.frame.evidence import Raised

_SUBSCRIPT = 26  # of BINARY_OP: `dis._nb_ops`
_COMMON: tuple[object, ...] = (AssertionError, NotImplementedError, tuple, all, any)
_SPECIAL = ("__enter__", "__exit__")
_COUNTED = (list, tuple, dict)  # of which too many values are counted


class Frame(bytecode_313.Frame):
    """The execution of one function."""

    leave_at = -5  # below a gap for the receiver

    def _load_common_constant(self, i: Instruction) -> None:
        self.stack.append(_COMMON[i.arg])

    def _load_special(self, i: Instruction) -> None:
        self.stack[-1:] = self._special(self.stack[-1], _SPECIAL[i.arg]), NULL

    def _binary_op(self, i: Instruction) -> None:
        if i.arg == _SUBSCRIPT:
            self._binary_subscr(i)
        else:
            super()._binary_op(i)

    def _call_function_ex(self, i: Instruction) -> None:
        named = self.stack.pop()
        if named is not NULL:
            self.stack.append(named)
        super()._call_function_ex(i._replace(arg=int(named is not NULL)))

    def _unpack_sequence(self, i: Instruction) -> None:
        values = self.stack[-1]
        try:
            super()._unpack_sequence(i)
        except Raised:
            if isinstance(values, _COUNTED) and type(values) in _COUNTED and len(values) > i.arg:
                text = f"too many values to unpack (expected {i.arg}, got {len(values)})"
                raise Raised(ValueError(text)) from None
            raise


_GONE = frozenset(
    "BINARY_SUBSCR BEFORE_WITH LOAD_ASSERTION_ERROR BUILD_CONST_KEY_MAP RETURN_CONST".split()
)
_ALIASES = {
    **bytecode_312.ALIASES,
    "LOAD_SMALL_INT": Frame._load_const,
    "LOAD_FAST_BORROW": Frame._load_fast,
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": Frame._load_fast_load_fast,
    "POP_ITER": Frame._pop_top,
    "NOT_TAKEN": Frame._nothing,
}
_METHODS = bytecode.methods(
    Frame, [*bytecode_312.SHARED, *bytecode_313.OWN, "load_common_constant", "load_special"]
)
Frame.table = {**{k: v for k, v in _METHODS.items() if k not in _GONE}, **_ALIASES}
