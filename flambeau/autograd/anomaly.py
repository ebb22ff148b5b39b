"""Anomaly mode: says which line of the forward pass made the operation whose backward went wrong.

While it is on, every node stores the stack of the call that made it. A backward that raises, or a
gradient with NaN in it, is reported with that stack. A node that gave a NaN runs again, step by
step, so that the error names the primitive and the element at which the NaN arose.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import _core
from flambeau.ir.lock import importing

__all__ = ["detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled",
           "set_anomaly_enabled", "set_detect_anomaly"]  # fmt: skip

TRACEBACK_KEY = "traceback_"
PARENT_KEY = "parent_"


class _State:
    enabled = False
    check_nan = True


def _record(node: Any) -> None:
    """Stores the user's stack on a new node, and the node whose backward made it."""
    import traceback  # not worth its milliseconds in programs that never look for anomalies

    node.metadata[TRACEBACK_KEY] = traceback.format_stack()[:-1]
    parent = _core.current_autograd_node()
    if parent is not None:
        node.metadata[PARENT_KEY] = parent


def _apply(enabled: bool, check_nan: bool) -> None:
    _State.enabled, _State.check_nan = enabled, check_nan
    _core.set_anomaly_recorder(_record if enabled else None)


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on."""
    return _State.enabled


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode looks for NaN in gradients."""
    return _State.check_nan


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """Turns anomaly mode on or off; `set_detect_anomaly` is the form for users.

    Raises:
        TypeError: an argument is no bool.

    Example:
        >>> torch.set_anomaly_enabled(False)
        >>> torch.is_anomaly_enabled()
        False
    """
    for name, value in (("enabled", enabled), ("check_nan", check_nan)):
        if not isinstance(value, bool):
            raise TypeError(
                f"[set_anomaly_enabled] argument {name!r} must be bool, not "
                f"{type(value).__name__}\nhint: True or False"
            )
    _apply(enabled, check_nan)


class set_detect_anomaly:  # noqa: N801 - PyTorch's name
    """Turns anomaly mode on or off, for good or for a `with` block.

    Args:
        mode: on or off.
        check_nan: whether a NaN in a gradient is an error.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = (_State.enabled, _State.check_nan)
        _apply(mode, check_nan)

    def __enter__(self) -> None:
        """The constructor did it."""

    def __exit__(self, *exception: object) -> None:
        _apply(*self._before)


class detect_anomaly:  # noqa: N801 - PyTorch's name
    """Anomaly mode within a `with` block. Slow: for debugging only.

    Args:
        check_nan: whether a NaN in a gradient is an error.
    """

    def __init__(self, check_nan: bool = True) -> None:
        self._check_nan = check_nan
        self._before = (False, True)
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self._before = (_State.enabled, _State.check_nan)
        _apply(True, self._check_nan)

    def __exit__(self, *exception: object) -> None:
        _apply(*self._before)


def check_gradients(node: Any, gradients: Sequence[Any], incoming: Sequence[Any]) -> None:
    """Called by the engine after each node while anomaly mode is on.

    Args:
        node: the node.
        gradients: its results.
        incoming: the gradients that it took.

    Raises:
        RuntimeError: a gradient holds NaN.
    """
    if not _State.check_nan:
        return
    for index, grad in enumerate(gradients):
        if grad is None:
            continue
        with _core.no_grad():
            bad = bool((grad != grad).any())
        if bad:
            raise RuntimeError(
                f"[backward] Function '{node.name()}' returned nan values in its {index}th output."
                f"{_origin_text(node, index, grad, incoming)}"
                "\nhint: the warning above shows the line of the forward pass"
            )


def _origin_text(node: Any, index: int, gradient: Any, incoming: Sequence[Any]) -> str:
    """The operation that made the first NaN, which the node shows when it runs again, step by step.

    A failure of this search is none of the user's: then the text is empty.
    """
    with importing:
        from flambeau.compiler.nan_origin import find_nan

    with _paused(), _core.no_grad():
        position = _first_nan(gradient)
        try:
            origin = find_nan(lambda: [_holds_nan(x) for x in _core.apply_again(node, incoming)])
        except Exception:
            return f" The first is element {position} of it."
    text = f" The first is element {position} of it."
    if origin is None:
        return f"{text} No kernel made it: a saved value or an incoming gradient has NaN already."
    return f"{text} It arose in {origin}."


@contextlib.contextmanager
def _paused() -> Iterator[None]:
    """Inside, the engine reports nothing: the search runs nodes itself."""
    before = _State.enabled, _State.check_nan
    _apply(False, False)
    try:
        yield
    finally:
        _apply(*before)


def _holds_nan(tensor: Any) -> bool:
    """Whether there is a NaN; makes recorded calls run."""
    return tensor is not None and bool((tensor != tensor).any())


def _first_nan(tensor: Any) -> tuple[int, ...]:
    """The index of the first NaN."""
    position = int((tensor != tensor).reshape(-1).to(_core.int64).argmax())
    index = []
    for size in reversed(tensor.shape):
        position, remainder = divmod(position, size)
        index.append(remainder)
    return tuple(reversed(index))


def report_error(node: Any) -> None:
    """Called by the engine when a node failed: warns with the forward stack of the node."""
    stack = node.metadata.get(TRACEBACK_KEY)
    if stack is None:
        warnings.warn(
            f"Error detected in {node.name()}. No forward pass information available. Enable "
            "detect anomaly during forward pass for more information.",
            stacklevel=2,
        )
        return
    warnings.warn(
        f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n"
        + "".join(stack),
        stacklevel=2,
    )
    parent = node.metadata.get(PARENT_KEY)
    while parent is not None:
        warnings.warn(
            f"Previous calculation was induced by {parent.name()}. Traceback of forward call that "
            "induced the previous calculation:\n" + "".join(parent.metadata.get(TRACEBACK_KEY, [])),
            stacklevel=2,
        )
        parent = parent.metadata.get(PARENT_KEY)
