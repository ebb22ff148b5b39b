"""`torch._C._functorch`: tensors inside of a transformation, under PyTorch's private names.

Packages that put their own containers through `vmap` (tensordict) call these. A level is the depth
of a transformation: 1 for the outermost.
"""

from __future__ import annotations

from typing import Any

from flambeau.autograd.transforms.wrappers import (
    Level,
    Wrapper,
    batched,
    debug_unwrap,
    levels,
)
from flambeau.runtime import missing as _missing

__all__ = [
    "_add_batch_dim", "_remove_batch_dim", "current_level", "get_unwrapped", "is_batchedtensor",
    "is_functorch_wrapped_tensor", "is_gradtrackingtensor", "maybe_current_level", "maybe_get_bdim",
    "maybe_get_level",
]  # fmt: skip

Tensor = Any


def _level(depth: int) -> Level:
    """The running transformation of a depth.

    Raises:
        RuntimeError: none has it.
    """
    for level in levels():
        if level.depth == depth:
            return level
    raise RuntimeError(
        f"[vmap] no transformation is running at level {depth}\nhint: call it inside of vmap"
    )


def is_batchedtensor(tensor: Tensor) -> bool:
    """Whether a tensor is one sample of the batch of a `vmap`."""
    return isinstance(tensor, Wrapper) and tensor.level.extent is not None


def is_gradtrackingtensor(tensor: Tensor) -> bool:
    """Whether a tensor carries a tangent of a forward derivative."""
    return isinstance(tensor, Wrapper) and tensor.level.extent is None


def is_functorch_wrapped_tensor(tensor: Tensor) -> bool:
    """Whether a tensor belongs to any transformation."""
    return isinstance(tensor, Wrapper)


def get_unwrapped(tensor: Tensor) -> Tensor:
    """Returns the tensor that a wrapper holds, without its innermost transformation."""
    return debug_unwrap(tensor, recurse=False)


def maybe_get_level(tensor: Tensor) -> int:
    """The level of a tensor; -1 where it belongs to no transformation."""
    return tensor.level.depth if isinstance(tensor, Wrapper) else -1


def maybe_get_bdim(tensor: Tensor) -> int:
    """The dimension of the samples in `get_unwrapped(tensor)`: 0, or -1 without a batch."""
    return 0 if is_batchedtensor(tensor) else -1


def maybe_current_level() -> int | None:
    """The level of the innermost transformation that is running, if any."""
    stack = levels()
    return stack[-1].depth if stack else None


def current_level() -> int:
    """The level of the innermost transformation that is running.

    Raises:
        RuntimeError: none is running.
    """
    level = maybe_current_level()
    if level is None:
        raise RuntimeError("[func] no transformation is running\nhint: call it inside of vmap")
    return level


def _add_batch_dim(tensor: Tensor, in_dim: int, level: int) -> Tensor:
    """One sample, at a level, of a tensor whose dimension `in_dim` counts the samples."""
    return batched(_level(level), tensor.movedim(in_dim, 0) if in_dim else tensor)


def _remove_batch_dim(tensor: Tensor, level: int, batch_size: int, out_dim: int) -> Tensor:
    """All samples of a tensor of a level, their dimension at `out_dim`."""
    if isinstance(tensor, Wrapper) and tensor.level.depth == level:
        samples = tensor.value
    else:
        samples = tensor.expand(batch_size, *tensor.shape)
    return samples.movedim(0, out_dim) if out_dim else samples


globals()["__getattr__"] = _missing.getter(__name__)
