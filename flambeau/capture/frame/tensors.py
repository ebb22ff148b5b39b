"""Attributes of tensors in a dry run: facts of geometry, methods, and the gradient of a leaf.

Facts are guarded with the tensor. A gradient is an attribute that the engine writes, too: the core
notes each that is read or written, and restores it when the dry run ends.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from flambeau import _core
from flambeau.capture.frame import plain
from flambeau.capture.frame.evidence import MISSING, Raised, Unexplained

if TYPE_CHECKING:
    from flambeau.capture.frame.machine import Machine

CALLED: tuple[Any, ...] = (_core.Op, _core.shield, types.FunctionType)


def attribute(machine: Machine, value: Any, kind: type, name: str) -> Any:
    """The attribute of a tensor."""
    defined = machine.evidence.attribute(kind, name)
    if name in plain.TENSOR_FACTS or name in plain.TENSOR_METHODS:
        if not isinstance(defined, (types.GetSetDescriptorType, types.MethodDescriptorType)):
            raise Unexplained(f"somebody replaced {name} of tensors")
        if name in ("T", "H") and value.ndim != 2:
            raise Unexplained(f"{name} of a tensor that is no matrix warns")
        return getattr(value, name)
    if name == "requires_grad_" and isinstance(defined, types.MethodDescriptorType):
        return getattr(value, name)  # for calls that change nothing
    if isinstance(defined, types.GetSetDescriptorType):
        if name == "grad":
            return _gradient(machine, value)
        if name == "grad_fn":
            node = value.grad_fn if value.requires_grad else None
            if node is None or machine.is_fresh(node):
                return node
        if name == "is_leaf" and not value.requires_grad:
            return True
    if isinstance(defined, property) and defined.fget is not None:
        return machine.call(defined.fget, (value,), {})
    if isinstance(defined, CALLED):
        return types.MethodType(defined, value)
    if defined is MISSING and not value.__dict__:  # which is guarded with its geometry
        raise Raised(AttributeError(name), exact=False)
    raise Unexplained(f"it reads {name} of a tensor")


def _gradient(machine: Machine, tensor: Any) -> Any:
    if tensor.grad_fn is not None:
        raise Unexplained("it reads grad of a tensor that is no leaf")
    gradient = tensor.grad
    if gradient is None or _core.record_pending(gradient):
        return gradient
    return machine.evidence.gradient(gradient)


def set_gradient(machine: Machine, tensor: Any, new: Any) -> None:
    """Sets the gradient of a tensor, until the dry run ends."""
    defined = machine.evidence.attribute(type(tensor), "grad")
    fits = new is None or type(new) in plain.TENSORS
    if not isinstance(defined, types.GetSetDescriptorType) or not fits:
        raise Unexplained("it sets grad of a tensor")
    machine.native(setattr, tensor, "grad", new)
