"""Graph breaks: the flushes that `fullgraph=True` and `error_on_graph_break` refuse, in words.

A number that Python reads (`item()`, sizes of `nonzero`) runs the region in two parts, without
anything for the user to see: Python goes on with the number. A break is a point that code of a
graph cannot express: a branch on data, text of a tensor, a function that runs outside.
"""

from __future__ import annotations

import dis
import functools
import sys
import types

from flambeau.runtime.boundaries import PRINTING

END = "end of region"
ERROR = "an exception"  # of the user's: a region with a backend that is a function ends
BRANCH = "bool()"  # the core's reason for reading a truth value
# Numbers that Python reads, or that operators read for sizes of their results.
READS = frozenset({"item()", "tolist", "numpy()", "tensor(tensor)"})
REGION = "nested_compile_region"
# Flushes that no line of the user's code requires: the recorder's own, see
# native/record/record_call.cpp, borders of programs that are compiled once, and errors.
INTERNAL = frozenset(
    {
        REGION,
        ERROR,
        "an error must not come later",
        "a tensor that shares memory with another one is written",
        "memory that others may write to is read",
        "the stream is very long",
    }
)
_ALLOWED = READS | INTERNAL | {END}
_CALLS = ("CALL", "PRECALL")  # instructions by which `bool(tensor)` reads a number


def refused(reason: str, package: str) -> tuple[str, str] | None:
    """Whether a flush is a graph break.

    Args:
        reason: of the flush.
        package: the folder of this package, whose own reads are parts of operators.

    Returns:
        None, or the problem and a hint.
    """
    if reason in _ALLOWED or reason == BRANCH and not _branches(package):
        return None
    if reason == BRANCH or reason.startswith("__bool__"):
        return (
            "branches on data: bool() of a tensor",
            "torch.cond, torch.where, or a number: .item()",
        )
    if reason in (PRINTING, "repr") or reason.startswith("__format__"):
        return "prints a tensor", "print it outside of the compiled function"
    return f"needs a value: {reason}", "move that line out of the compiled function"


def _branches(package: str) -> bool:
    """Whether the truth value that is read now decides where the user's code goes on."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_WATCHERS):
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(package):
        return False
    return _decides(frame.f_code, frame.f_lasti)


_WATCHERS = (__name__, __name__.replace("breaks", "flushes"))


@functools.lru_cache(maxsize=1024)
def _decides(code: types.CodeType, offset: int) -> bool:
    """Whether an instruction branches; calls only read, and an assertion only checks."""
    following = (each for each in dis.get_instructions(code) if each.offset >= offset)
    first = next(following)
    if first.opname.startswith(_CALLS):
        return False
    return next(following).opname != "LOAD_ASSERTION_ERROR"
