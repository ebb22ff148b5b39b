"""The errors of meta tensors for queries of their data: an exception with a mark.

The type is PyTorch's. Fake tensors tell by the attribute `asked_by`, the operator that needs data,
that a size or a number depends on data; where numbers are read, natively, it is set too.
"""

from __future__ import annotations

from typing import Any


def refuse_meta(name: str, x: Any, inner: str | None = None) -> None:
    """Raises for a computation that needs data.

    Args:
        inner: the operator of PyTorch's inner library that needs them; None: the one named.

    Raises:
        NotImplementedError: the tensor is on the meta device.
    """
    if x.is_meta:
        raise no_data(
            f"[{name}] attempted to run this operator with Meta tensors, but its result depends on "
            "data\nhint: make the tensor on a device that holds data",
            inner or name,
        )


def no_data(text: str, inner: str) -> NotImplementedError:
    """Returns the error of a query that only data could answer; `inner` as above."""
    error = NotImplementedError(text)
    error.asked_by = inner  # type: ignore[attr-defined]
    return error
