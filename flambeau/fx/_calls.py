"""Represents a call of a torch function in a graph: as a function, or a method of its first
argument.

PyTorch's methods are other objects than the functions of the same name; here an operator is one
object. The instruction that the caller's frame executes distinguishes a call on a tensor that is no
proxy, such as `buffer + x` or `buffer.add(x)`, from `torch.add(buffer, x)`.
"""

from __future__ import annotations

import dis
import types
from typing import Any

import flambeau as torch
from flambeau import _core
from flambeau.fx import _function_names, _python_functions

# Methods that PyTorch's operators end in, where their name is not the operator's.
_OPERATOR_METHODS = {
    "bitwise_and": "__and__", "bitwise_or": "__or__", "bitwise_xor": "__xor__",
    "bitwise_left_shift": "__lshift__", "bitwise_right_shift": "__rshift__",
    "floor_divide": "__floordiv__", "_getitem": "__getitem__", "_setitem": "__setitem__",
    "bitwise_and_": "__iand__", "bitwise_or_": "__ior__", "bitwise_xor_": "__ixor__",
    "bitwise_left_shift_": "__ilshift__", "bitwise_right_shift_": "__irshift__",
    "floor_divide_": "__ifloordiv__",
}  # fmt: skip

_OPERATIONS = frozenset(
    ("BINARY_OP", "COMPARE_OP", "BINARY_SUBSCR", "STORE_SUBSCR", "INPLACE_ADD", "CONTAINS_OP")
)
_CALLS = frozenset(("CALL", "CALL_METHOD", "CALL_KW", "CALL_FUNCTION", "CALL_FUNCTION_KW"))

_WITH_INDICES = "max_pool"


def is_constant(value: Any) -> bool:
    """Whether a graph holds a value as it is: operators, functions of torch, modules' types."""
    return isinstance(value, (types.BuiltinFunctionType, _core.Op)) or value is NotImplemented


def _instruction(frame: types.FrameType) -> tuple[str, int]:
    """Name and argument of the instruction that a frame executes."""
    code = frame.f_code.co_code
    index = frame.f_lasti
    return dis.opname[code[index]], code[index + 1]


def _by_method(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    frame: types.FrameType,
    proxy: type,
) -> str | None:
    """The method's name if a call was made by a method or operator of a tensor."""
    name = _function_names.method_name(function)
    own = getattr(function, "__name__", "")
    if isinstance(function, types.MethodWrapperType) and own == "__get__":
        return own
    if name is None or not args or isinstance(args[0], proxy):
        return None
    if not isinstance(args[0], torch.Tensor):
        return None
    operation, count = _instruction(frame)
    if operation in _OPERATIONS or operation.startswith(("BINARY_", "INPLACE_")):
        return _OPERATOR_METHODS.get(own, own)
    if _function_names.is_only_method(function):
        return _OPERATOR_METHODS.get(own, name)
    if operation in _CALLS and count == len(args) + len(kwargs) - 1:
        return name
    return None


def record(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    frame: types.FrameType,
    proxy: type,
) -> tuple[str, Any, tuple[Any, ...], dict[str, Any], str]:
    """How a call appears in a graph.

    Args:
        function: what was called.
        args: positional arguments.
        kwargs: arguments by name.
        frame: the caller's frame.
        proxy: the class of traced values.

    Returns:
        tuple: kind of node, target, arguments, arguments by name, and a name for the result.
    """
    method = _by_method(function, args, kwargs, frame, proxy)
    if method is not None:
        return "call_method", method, args, kwargs, method
    full = _function_names.public_name(function)
    if full is None:
        return "call_function", function, args, kwargs, function.__name__
    listed = full == "torch.functional.meshgrid" and args and isinstance(args[0], (list, tuple))
    if not listed:
        args, kwargs = _python_functions.recorded(full, function, args, kwargs)
    if full == "torch.functional.einsum" and len(args) == 2 and isinstance(args[1], (list, tuple)):
        args = (args[0], *args[1])
    target = function
    if _WITH_INDICES in full and kwargs.get("return_indices") is True:
        other = f"{full.rsplit('.', 1)[-1]}_with_indices"
        target = getattr(torch.nn.functional, other, function)
        full = _function_names.public_name(target) or full
    return "call_function", target, args, kwargs, full.rsplit(".", 1)[-1]
