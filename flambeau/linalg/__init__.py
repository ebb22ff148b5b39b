"""`torch.linalg`: norms, products, factorisations, solutions.

Operators whose home is "linalg" are published here. The rest of PyTorch's names exist and raise
`NotImplementedError`, so that a program fails where it asks, not where it imports.
"""

from __future__ import annotations

from typing import Any

from flambeau.core.install import absent as _absent
from flambeau.core.install import namespace as _namespace
from flambeau.ops.factorisations import LinAlgError

__all__ = ["LinAlgError", "diagonal"]


def diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:  # noqa: N803
    """The diagonals of matrices, as a view; see `torch.diagonal`.

    Example:
        >>> torch.linalg.diagonal(torch.ones(2, 3)).shape
        torch.Size([2])
    """
    return _namespace("torch")["diagonal"](A, offset, dim1, dim2)


_MISSING = "ldl_factor ldl_factor_ex ldl_solve"
_INSTEAD = "convert with .numpy() and use numpy.linalg or scipy.linalg"
globals().update(_absent("linalg", _MISSING, _INSTEAD))
globals().update(_namespace("linalg"))
__all__ += [*_MISSING.split(), *(n for n in _namespace("linalg") if not n.startswith("_"))]
