"""Operators that are only inner ones in PyTorch, made of public ones: under `torch.ops.aten`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.core.definition import op
from flambeau.core.samples import Sample, T, sample
from flambeau.ir.lock import late


def _copies() -> Iterator[Sample]:
    yield sample(T(2, 3))
    yield sample(T(2, 0))


@op(
    "_to_copy(Tensor self, *, dtype? dtype=None, layout? layout=None, device? device=None, "
    "bool? pin_memory=None, bool non_blocking=False, memory_format? memory_format=None) -> Tensor",
    where="ops.aten",
    host=True,
    samples=_copies,
)
def to_copy(
    self: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> Any:
    """A copy in another dtype, on another device or in another memory format."""
    options = {"copy": True, "non_blocking": non_blocking}
    if memory_format is not None:
        options["memory_format"] = memory_format
    return self.to(device or self.device, dtype or self.dtype, **options)


@op("_pin_memory(Tensor self, device? device=None) -> Tensor", where="ops.aten", host=True)
def pin_memory(self: Any, device: Any = None) -> Any:
    """A copy in pinned memory: raises, as there is no accelerator that would read it."""
    return self.pin_memory()


def _sparse_products() -> Iterator[Sample]:
    yield sample(T(2, 4), T(2, 3), T(3, 4))


@op(
    "_sparse_addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) "
    "-> Tensor",
    where="ops.aten",
    host=True,
    samples=_sparse_products,
)
def sparse_addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """`addmm` whose second operand may be sparse."""
    return late("flambeau").addmm(self, mat1, mat2, beta=beta, alpha=alpha)
