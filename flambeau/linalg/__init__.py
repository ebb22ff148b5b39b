"""`torch.linalg`: norms, products, factorisations, solutions.

Operators whose home is "linalg" are published here. The rest of PyTorch's names exist and raise
`NotImplementedError`, so that a program fails where it asks, not where it imports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def _missing(name: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"[{name}] torch.linalg.{name} is not supported yet\n"
            f"hint: convert with .numpy() and use numpy.linalg or scipy.linalg"
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Not supported yet: raises NotImplementedError."
    return function


globals().update({_name: _missing(_name) for _name in _MISSING.split()})
globals().update(_namespace("linalg"))
__all__ += [*_MISSING.split(), *(n for n in _namespace("linalg") if not n.startswith("_"))]
