"""Semi-structured sparsity: two of four elements are zero; only GPUs' matrix units use it."""

from __future__ import annotations

from typing import Any

import flambeau as torch

__all__ = [
    "SparseSemiStructuredTensor",
    "SparseSemiStructuredTensorCUSPARSELT",
    "SparseSemiStructuredTensorCUTLASS",
    "to_sparse_semi_structured",
]

_HINT = "\nhint: keep the tensor dense, or use to_sparse_csr()"


class SparseSemiStructuredTensor(torch.Tensor):
    """A matrix two of whose four neighbours are zero; raises RuntimeError when it is made."""

    _FORCE_CUTLASS = False
    _FUSE_TRANSPOSE = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Raises."""
        raise RuntimeError(f"[{cls.__name__}] needs an NVIDIA GPU{_HINT}")

    @classmethod
    def from_dense(cls, original_tensor: Any) -> Any:
        """The compressed form of a dense matrix; raises RuntimeError."""
        return to_sparse_semi_structured(original_tensor)


class SparseSemiStructuredTensorCUTLASS(SparseSemiStructuredTensor):
    """The form of the CUTLASS kernels."""


class SparseSemiStructuredTensorCUSPARSELT(SparseSemiStructuredTensor):
    """The form of cuSPARSELt."""


def to_sparse_semi_structured(original_tensor: Any, transposed: bool = False) -> Any:
    """The compressed form of a dense matrix.

    Raises:
        RuntimeError: the matrix is not on a GPU.
    """
    raise RuntimeError(
        f"Error original_tensor.device= {original_tensor.device} is not supported! Only CUDA "
        f"tensors are currently supported.{_HINT}"
    )
