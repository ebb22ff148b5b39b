"""`torch.linalg`: norms, products, factorisations, solutions.

Operators whose home is "linalg" are published here.
"""

from __future__ import annotations

from typing import Any

from flambeau.core.install import namespace as _namespace
from flambeau.ops.linear.factorisations import LinAlgError

__all__ = ["LinAlgError", "diagonal"]


def diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:  # noqa: N803
    """The diagonals of matrices, as a view; see `torch.diagonal`.

    Example:
        >>> torch.linalg.diagonal(torch.ones(2, 3)).shape
        torch.Size([2])
    """
    return _namespace("torch")["diagonal"](A, offset, dim1, dim2)


globals().update(_namespace("linalg"))
__all__ += [*(n for n in _namespace("linalg") if not n.startswith("_"))]
