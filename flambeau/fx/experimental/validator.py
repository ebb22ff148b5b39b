"""Checks of symbolic sizes by a solver: PyTorch's, off here."""

from __future__ import annotations

from typing import Any

from flambeau.fx.experimental import _config

__all__ = [
    "BisectValidationException",
    "ValidationException",
    "translation_validation_enabled",
    "translation_validation_timeout",
]


def translation_validation_enabled() -> bool:
    """Whether the solver checks guards: never here."""
    return False


def translation_validation_timeout() -> int:
    """Its limit in milliseconds, as set."""
    return _config.translation_validation_timeout


class ValidationException(Exception):
    """A guard does not follow from what the program did.

    Args:
        model: values for which it does not.
        assertions: what the program did.
        target_exprs: the guards.
        failed_source_exprs: those that fail.
    """

    def __init__(
        self, model: Any, assertions: Any, target_exprs: Any, failed_source_exprs: Any
    ) -> None:
        super().__init__(f"translation validation failed: {model}, {failed_source_exprs}")


class BisectValidationException(Exception):
    """The first operation after which a check fails.

    Args:
        validation_exc: the failure.
        expr: the expression.
        failed_action: what was done.
        traced_node: the node.
    """

    def __init__(
        self, validation_exc: Any, expr: Any, failed_action: Any, traced_node: Any
    ) -> None:
        self.msg = f"translation validation failed when {failed_action}: {expr}"
        self.details = str(validation_exc)
        super().__init__(self.msg)
