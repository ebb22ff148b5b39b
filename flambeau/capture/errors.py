"""Errors of compiled regions, under the classes that `torch._dynamo.exc` has for them."""

from __future__ import annotations


class TorchDynamoException(RuntimeError):  # noqa: N818 - PyTorch's name
    """The base of errors of `torch.compile`."""


class Unsupported(TorchDynamoException):
    """A compiled function does what may not be part of a region."""


class GraphBreakError(Unsupported):
    """A region compiled with `fullgraph=True` needed a value before its end."""
