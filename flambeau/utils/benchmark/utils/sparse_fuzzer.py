"""`FuzzedSparseTensor`: random sparse tensors for benchmarks."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.utils.benchmark.utils.fuzzer import FuzzedTensor

__all__ = ["FuzzedSparseTensor"]


class FuzzedSparseTensor(FuzzedTensor):
    """A random sparse tensor.

    Args:
        name, size, min_elements, max_elements, dim_parameter, dtype, cuda: of `FuzzedTensor`.
        sparse_dim, nnz, density, coalesced: names of parameters: sparse dimensions, elements that
            are stored (or their share), whether no index occurs twice.
    """

    def __init__(
        self,
        name: str,
        size: tuple[str | int, ...],
        min_elements: int | None = None,
        max_elements: int | None = None,
        dim_parameter: str | None = None,
        sparse_dim: str | None = None,
        nnz: str | None = None,
        density: str | None = None,
        coalesced: str | None = None,
        dtype: Any = torch.float32,
        cuda: bool = False,
    ) -> None:
        super().__init__(
            name,
            size,
            min_elements=min_elements,
            max_elements=max_elements,
            dim_parameter=dim_parameter,
            dtype=dtype,
            cuda=cuda,
        )
        self._sparse_dim, self._nnz = sparse_dim, nnz
        self._density, self._coalesced = density, coalesced

    def _make_tensor(self, params: dict[str, Any], state: Any) -> Any:
        size, _ = self._sizes(params)
        dims = params[self._sparse_dim] if self._sparse_dim else len(size)
        dims = min(dims, len(size))
        count = params[self._nnz] if self._nnz else 0
        if self._density:
            count = math.ceil(params[self._density] * math.prod(size[:dims]))
        coalesced = bool(params[self._coalesced]) if self._coalesced else False
        places = torch.stack([torch.randint(n, (int(count),)) for n in size[:dims]])
        values = self.default_tensor_constructor((int(count), *size[dims:]), self._dtype)
        tensor = torch.sparse_coo_tensor(places, values, size)
        tensor = tensor.coalesce() if coalesced else tensor
        properties = {
            "numel": int(tensor.numel()),
            "shape": tuple(tensor.size()),
            "is_coalesced": tensor.is_coalesced(),
            "density": tensor._nnz() / max(math.prod(size[:dims]), 1),
            "sparsity": 1 - tensor._nnz() / max(math.prod(size[:dims]), 1),
            "sparse_dim": tensor.sparse_dim(),
            "dense_dim": tensor.dense_dim(),
            "is_hybrid": tensor.dense_dim() > 0,
            "dtype": str(self._dtype),
        }
        return tensor, properties
