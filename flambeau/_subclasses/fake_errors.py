"""Exceptions of fake tensors: queries that only data could answer, and devices that differ."""

from __future__ import annotations

from typing import Any

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensorDeviceMismatchError",
    "UnsupportedFakeTensorException",
    "UnsupportedOperatorException",
]


class UnsupportedFakeTensorException(RuntimeError):
    """A tensor of which no fake can be made.

    Attributes:
        reason: why.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class DynamicOutputShapeException(RuntimeError):
    """The size of a result depends on data.

    Attributes:
        func: the operator, `torch.ops.aten.nonzero.default` say.
    """

    def __init__(self, func: Any) -> None:
        super().__init__(str(func))
        self.func = func


class DataDependentOutputException(RuntimeError):
    """A Python number is required that depends on data.

    Attributes:
        func: the operator, `torch.ops.aten._local_scalar_dense.default` say.
    """

    def __init__(self, func: Any) -> None:
        super().__init__(str(func))
        self.func = func


class UnsupportedOperatorException(RuntimeError):
    """An operator that does not tell the sizes of its results.

    Attributes:
        func: the operator.
    """

    def __init__(self, func: Any) -> None:
        super().__init__(str(func))
        self.func = func


class FakeTensorDeviceMismatchError(RuntimeError):
    """Operands that pretend to be on different devices."""
