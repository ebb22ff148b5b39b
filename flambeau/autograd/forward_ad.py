"""Forward mode with tensors that carry their tangents: `make_dual`, `unpack_dual`.

A dual tensor is a value with its tangent at the open level; operators compute both
(`autograd/transforms`). Its value may require a gradient: forward over reverse just works.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, NamedTuple

from flambeau import _core
from flambeau.autograd.transforms.tangents import check_tangent
from flambeau.autograd.transforms.wrappers import dual, entered, is_at

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]

Tensor = Any
_open: list[entered] = []


class UnpackedDualTensor(NamedTuple):
    """The value of a dual tensor, and its tangent (None: it has none)."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Open a level; returns its number.

    Raises:
        RuntimeError: one is open: forward mode does not nest here. `func.jvp` nests.
    """
    if _open:
        raise RuntimeError(
            "Nested forward mode AD is not supported at the moment\nhint: nest torch.func.jvp"
        )
    level = entered()
    level.__enter__()
    _open.append(level)
    return len(_open) - 1


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the level: tensors lose their tangents.

    Raises:
        RuntimeError: it is not the last one opened.
    """
    last = len(_open) - 1
    if last < 0 or (level is not None and level != last):
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This "
            "is not supported.\nhint: use `with dual_level():`"
        )
    _open.pop().__exit__(None, None, None)


class dual_level:  # noqa: N801 - PyTorch's name
    """A level for the time of a `with` block.

    Example:
        >>> from flambeau.autograd import forward_ad
        >>> with forward_ad.dual_level():
        ...     x = forward_ad.make_dual(torch.tensor(3.0), torch.tensor(1.0))
        ...     forward_ad.unpack_dual(x * x).tangent
        tensor(6.)
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """Return a tensor of this value that carries a tangent.

    Args:
        tensor: the value, floating point or complex.
        tangent: of its size and dtype.
        level: must be the open one.

    Raises:
        RuntimeError: no level is open, or the tangent does not fit.
        ValueError: the value is of another dtype.
    """
    if not _open or (level is not None and level < 0):
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first.\nhint: with dual_level(): ..."
        )
    for value in (tensor, tangent):
        if not isinstance(value, _core.Tensor):
            raise TypeError(
                f"[make_dual] expected a Tensor, got {type(value).__name__}\nhint: pass tensors"
            )
    if not (tangent.dtype.is_floating_point or tangent.dtype.is_complex):
        raise ValueError(
            f"Expected tangent to be floating point or complex, but got: {tangent.dtype}\n"
            "hint: give it the dtype of the tensor"
        )
    check_tangent(tensor, tangent)
    return dual(_open[-1].level, tensor, tangent)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Return the value and the tangent of a tensor; the tangent is None where it has none."""
    if not _open or (level is not None and level < 0) or not is_at(tensor, _open[-1].level):
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(tensor.value, tensor.tangent)


def __getattr__(name: str) -> Any:
    """The number of the open level, -1 without one, under PyTorch's private name."""
    if name == "_current_level":
        return len(_open) - 1
    from flambeau.runtime import missing

    missing.refuse(__name__, name)
