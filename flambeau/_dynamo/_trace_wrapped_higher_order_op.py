"""A mode in which indices of one element stay tensors; here they always do."""

from __future__ import annotations

from typing import Any

from flambeau.overrides import TorchFunctionMode

__all__ = ["TransformGetItemToIndex"]


class TransformGetItemToIndex(TorchFunctionMode):
    """A `with` block in which `x[i]` of a 0-d tensor `i` is a look-up: as it is outside of one."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None:
        pass
