"""Functions that PyTorch removed: they raise and name what replaced them, as they do there."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["eig", "lstsq", "matrix_rank", "solve", "symeig"]


def _removed(name: str, instead: str) -> NoReturn:
    raise RuntimeError(
        f"[{name}] This function was deprecated since version 1.9 and is now removed\n"
        f"hint: {instead}"
    )


def eig(self: Any, eigenvectors: bool = False, *, e: Any = None, v: Any = None) -> NoReturn:
    """Removed from PyTorch; `linalg.eig` took its place.

    Raises:
        RuntimeError: always.
    """
    _removed("eig", "linalg.eig, linalg.eigvals: complex values, not pairs of real ones")


def symeig(
    input: Any,  # noqa: A002
    eigenvectors: bool = False,
    upper: bool = True,
    *,
    out: Any = None,
) -> NoReturn:
    """Removed from PyTorch; `linalg.eigh` took its place.

    Raises:
        RuntimeError: always.
    """
    _removed("symeig", "linalg.eigh, linalg.eigvalsh with UPLO='U' for the upper triangle")


def lstsq(input: Any, A: Any, *, out: Any = None) -> NoReturn:  # noqa: A002, N803
    """Removed from PyTorch; `linalg.lstsq` took its place.

    Raises:
        RuntimeError: always.
    """
    _removed("lstsq", "linalg.lstsq(A, B): arguments in the other order")


def solve(input: Any, A: Any, *, out: Any = None) -> NoReturn:  # noqa: A002, N803
    """Removed from PyTorch; `linalg.solve` took its place.

    Raises:
        RuntimeError: always.
    """
    _removed("solve", "linalg.solve(A, B): arguments in the other order, no LU returned")


def matrix_rank(
    input: Any, tol: Any = None, symmetric: bool = False, *, out: Any = None
) -> NoReturn:  # noqa: A002, E501
    """Removed from PyTorch; `linalg.matrix_rank` took its place.

    Raises:
        RuntimeError: always.
    """
    _removed("matrix_rank", "linalg.matrix_rank, whose tolerances are named")
