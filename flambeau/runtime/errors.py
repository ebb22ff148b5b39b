"""Errors of devices: caught by programs that also run on GPUs."""

from __future__ import annotations

__all__ = ["AcceleratorError", "OutOfMemoryError"]


class OutOfMemoryError(RuntimeError):
    """A device's memory is exhausted; never raised without one."""


class AcceleratorError(RuntimeError):
    """An error of a device's runtime; never raised without one."""
