"""What tensors of the meta device answer to questions about their data: an exception of its own.

Numbers of elements are read natively, which raises `NoDataError` too. Fake tensors tell by this
type, and by the operator it names, that a size or a number depends on data.
"""

from __future__ import annotations

from typing import Any

from flambeau._core import NoDataError

__all__ = ["NoDataError", "no_data", "refuse_meta"]


def refuse_meta(name: str, x: Any, inner: str | None = None) -> None:
    """What is computed from data alone needs some.

    Args:
        inner: the operator of PyTorch's inner library that needs them; None: the one named.

    Raises:
        NoDataError: the tensor is on the meta device.
    """
    if x.is_meta:
        raise no_data(
            f"[{name}] attempted to run this operator with Meta tensors, but its result depends on "
            "data\nhint: make the tensor on a device that holds data",
            inner or name,
        )


def no_data(text: str, inner: str) -> NoDataError:
    """What a call raises that only data could answer; `inner` as above."""
    error = NoDataError(text)
    error.operator = inner
    return error
