"""Translates errors of a trace to users' terms: the op that they called, PyTorch's exceptions.

Primitives check their operands strictly and know no public operator; an op's body may run into such
a check. Devices are compared here too: once per class of calls, when its program is traced.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from flambeau._core import TensorArgument
from flambeau.core.devices import has_memory, on_host, same_place
from flambeau.driver.calls import entries
from flambeau.ir.environment import hint
from flambeau.ir.node import Graph
from flambeau.language.dtypes import PUBLIC_NAMES
from flambeau.prims.common import DtypeMismatch, ShapeMismatch, UndefinedDtype

# Names of dtypes in the IR as words of a message. "bool" is a public name, and a Python word.
_IR_DTYPE = re.compile(
    rf"(?<![\w.'-])(?:{'|'.join(name for name in PUBLIC_NAMES if name != 'bool')})(?![\w'])"
)
# Operators whose first tensor may be written from, or read at, tensors of another device.
_MOVING = frozenset({"copy_", "copy"})
_INDEXING = frozenset({"index", "_index_put", "index_put", "index_put_", "_unsafe_index"})


def user_error(name: str, error: Exception) -> Exception:
    """The complaint of a primitive as the error of the operator `name`; dtypes by public names.

    Shapes or dtypes that do not fit together make a RuntimeError, a dtype for which the operator
    is not defined a NotImplementedError. Other errors have their type and text, in which names of
    dtypes in the IR ("f64") become public ones ("torch.float64").
    """
    if isinstance(error, ShapeMismatch):
        return RuntimeError(_shape_text(name, error))
    if isinstance(error, DtypeMismatch):
        return RuntimeError(_public_text(name, error))
    if isinstance(error, UndefinedDtype):
        return NotImplementedError(_public_text(name, error))
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (_with_public_dtypes(error.args[0]),)
    return error


def _with_public_dtypes(text: str) -> str:
    return _IR_DTYPE.sub(lambda match: f"torch.{PUBLIC_NAMES[match[0]]}", text)


def _shape_text(name: str, error: ShapeMismatch) -> str:
    if error.sizes is None:
        return f"[{name}]" + str(error).partition("]")[2]
    a, b, dimension = error.sizes
    return (
        f"[{name}] The size of tensor a ({hint(a)}) must match the size of tensor b ({hint(b)}) "
        f"at non-singleton dimension {dimension}\n"
        "hint: sizes are compared from the last dimension; 1 stretches"
    )


def _public_text(name: str, error: Exception) -> str:
    """The primitive's message with the dtypes' public names, for the operator."""
    head, _, tail = str(error).partition("\nhint: ")
    advice = tail if isinstance(error, UndefinedDtype) else "cast one of them with .to(dtype)"
    return _with_public_dtypes(f"[{name}]{head.partition(']')[2]}\nhint: {advice}")


def common_device(name: str, call: Sequence[Any], graph: Graph) -> Any:
    """Where new results of a call go, or None: where its first tensor is.

    All tensors that the program reads must be on one device. Numbers in tensors of no dimensions
    on the CPU may join any other; so may indices on the CPU.

    Raises:
        RuntimeError: two tensors are on different devices.
        NotImplementedError: a copy out of a tensor that has no data.
    """
    tensors = list(entries(call, TensorArgument))
    if all(same_place(tensor.device, tensors[0].device) for tensor in tensors[1:]):
        return None
    read = {n.attribute("slot") for n in graph.nodes() if n.is_input}
    used = [tensor for slot, tensor in enumerate(tensors) if slot in read]
    lead = next((t for t in used if not _is_number(t)), used[0] if used else tensors[0])
    if name in _MOVING and graph.outputs[0].target is not None:
        lead = tensors[graph.outputs[0].target]
    for tensor in used:
        if not same_place(tensor.device, lead.device) and not _may_join(name, tensor):
            _raise_mismatch(name, lead.device, tensor.device)
    for output in graph.outputs:
        target = lead if output.target is None else tensors[output.target]
        if not same_place(target.device, lead.device):
            _raise_mismatch(name, target.device, lead.device)
    return lead.device if lead is not tensors[0] else None


def first_device(call: Sequence[Any]) -> Any:
    """The device of a call's first tensor, or None."""
    first = next(entries(call, TensorArgument), None)
    return None if first is None else first.device


def leading_device(call: Sequence[Any]) -> Any:
    """The device of a call's first tensor that is not on the host, else of its first one; None
    for a call without tensors."""
    places = [tensor.device for tensor in entries(call, TensorArgument)]
    return next((place for place in places if not on_host(place)), places[0] if places else None)


def is_elsewhere(call: Sequence[Any], place: Any) -> bool:
    """Whether a call runs on another device than the host, or reads a tensor that is there."""
    places = [tensor.device for tensor in entries(call, TensorArgument)]
    return not all(map(on_host, places if place is None else [*places, place]))


def _is_number(tensor: TensorArgument) -> bool:
    return len(tensor.sizes) == 0 and on_host(tensor.device)


def _may_join(name: str, tensor: TensorArgument) -> bool:
    if name in _MOVING:
        return has_memory(tensor.device)
    index = name in _INDEXING and tensor.dtype in ("i64", "i32", "bool", "u8")
    return _is_number(tensor) or (index and on_host(tensor.device))


def _raise_mismatch(name: str, first: Any, other: Any) -> None:
    if name in _MOVING:
        raise NotImplementedError(
            f"[{name}] Cannot copy out of {other.type} tensor; no data!\n"
            f"hint: a tensor on the {other.type} device has a shape but no values"
        )
    raise RuntimeError(
        f"[{name}] Expected all tensors to be on the same device, but found at least two devices, "
        f"{first} and {other}!\nhint: move one of them with .to({str(first)!r})"
    )
