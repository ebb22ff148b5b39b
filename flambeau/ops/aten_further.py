"""Operators that are only inner ones in PyTorch, made of public ones: under `torch.ops.aten`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.core.definition import op
from flambeau.core.samples import Sample, T, sample
from flambeau.ir.lock import late


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
