"""`torch._assert`, `torch._check` and its relatives: conditions that raise where they are False."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import _core
from flambeau.runtime.symbolic import is_symbolic

Message = Callable[[], str]

__all__: list[str] = []  # private names, though programs call them


def _assert(condition: Any, message: str) -> Any:
    """Raises AssertionError unless `condition`, a bool or a tensor of one element, is true."""
    if type(condition) is not bool and _core.has_torch_function((condition,)):
        return _core.handle_torch_function(_assert, (condition,), (condition, message), {})
    assert condition, message  # noqa: S101 - the function's purpose
    return None


def _raise(error_type: type[Exception], message: Message | None, default: str) -> None:
    if message is None:
        raise error_type(default)
    if not callable(message):
        raise TypeError("[_check] message must be a callable\nhint: lambda: 'text'")
    raise error_type(str(message()))


def _check_with(error_type: type[Exception], cond: Any, message: Message | None = None) -> None:
    """Raises `error_type` unless `cond` is True.

    Raises:
        TypeError: `cond` is no bool, or `message` no function.
    """
    if isinstance(cond, _core.Tensor):
        raise TypeError(
            "[_check] cond must be a bool, but got a Tensor.\n"
            "hint: for tensor conditions, use torch._check_tensor_all"
        )
    if is_symbolic(cond):
        cond = cond.node.shape_env.expect_true(cond.node.expr)
    if not isinstance(cond, bool):
        raise TypeError(f"[_check] cond must be a bool, but got {type(cond)}\nhint: bool(cond)")
    if not cond:
        _raise(error_type, message, "Expected cond to be True, but got False.")


def _check(cond: Any, message: Message | None = None) -> None:
    """Raises RuntimeError unless `cond` is True."""
    _check_with(RuntimeError, cond, message)


def _check_index(cond: Any, message: Message | None = None) -> None:
    """Raises IndexError unless `cond` is True."""
    _check_with(IndexError, cond, message)


def _check_value(cond: Any, message: Message | None = None) -> None:
    """Raises ValueError unless `cond` is True."""
    _check_with(ValueError, cond, message)


def _check_type(cond: Any, message: Message | None = None) -> None:
    """Raises TypeError unless `cond` is True."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Message | None = None) -> None:
    """Raises NotImplementedError unless `cond` is True."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: Any, message: Message | None = None, *, max: int | None = None) -> None:  # noqa: A002
    """Raises RuntimeError unless `i` is a size: not negative, and at most `max`."""
    _check_with(RuntimeError, bool(i >= 0), message)
    if max is not None:
        _check_with(RuntimeError, bool(i <= max), message)


def _check_tensor_all_with(
    error_type: type[Exception], cond: Any, message: Message | None = None
) -> None:
    """Raises `error_type` unless every element of the bool tensor `cond` is True.

    Raises:
        TypeError: `cond` is no bool tensor.
    """
    if not isinstance(cond, _core.Tensor):
        text = f"cond must be a tensor, but got {type(cond)}"
        raise TypeError(f"[_check_tensor_all] {text}\nhint: torch._check for a bool")
    if cond.dtype is not _core.bool:
        text = f"cond tensor must have dtype torch.bool, but got {cond.dtype}"
        raise TypeError(f"[_check_tensor_all] {text}\nhint: compare first")
    if not bool(cond.all()):  # type: ignore[attr-defined]
        _raise(error_type, message, "Expected cond to be True for every element.")


def _check_tensor_all(cond: Any, message: Message | None = None) -> None:
    """Raises RuntimeError unless every element of `cond` is True."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _assert_async(input: Any, assert_msg: str = "") -> None:  # noqa: A002 - the public name
    """Raises unless a tensor of one element is true; here at once.

    Raises:
        RuntimeError: the element is zero, or there is not exactly one.
    """
    if not bool(input):
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")
