"""`torch.sparse`: tensors of which only some elements are stored.

`torch.sparse_coo_tensor`, `torch.sparse_csr_tensor` and `Tensor.to_sparse` make them, ordinary
operators compute with them where zero stays zero, and gradients are those of the stored values.

    >>> s = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse_csr()
    >>> s @ torch.ones(2, 1)
    tensor([[2.],
            [3.]])
"""

from flambeau.core.tensors import define_method as _define_method
from flambeau.runtime import missing as _missing
from flambeau.sparse import methods as _methods
from flambeau.sparse.construct import (
    sparse_bsc_tensor,
    sparse_bsr_tensor,
    sparse_compressed_tensor,
    sparse_coo_tensor,
    sparse_csc_tensor,
    sparse_csr_tensor,
    spdiags,
)
from flambeau.sparse.gradcheck import as_sparse_gradcheck
from flambeau.sparse.invariants import check_sparse_tensor_invariants
from flambeau.sparse.products import addmm, hspmm, mm, sampled_addmm, smm, sspaddmm
from flambeau.sparse.reduce import log_softmax, softmax, sum  # noqa: A004
from flambeau.sparse.tensor import SparseTensor

__all__ = [
    "SparseTensor",
    "addmm",
    "as_sparse_gradcheck",
    "check_sparse_tensor_invariants",
    "hspmm",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "smm",
    "softmax",
    "sparse_bsc_tensor",
    "sparse_bsr_tensor",
    "sparse_compressed_tensor",
    "sparse_coo_tensor",
    "sparse_csc_tensor",
    "sparse_csr_tensor",
    "spdiags",
    "sspaddmm",
    "sum",
]

_methods.install()
for _product in (smm, sspaddmm):
    _define_method(_product.__name__, _product)

# Distinguishes names of PyTorch that are missing here from misspelt ones.
globals()["__getattr__"] = _missing.getter(
    __name__,
    dict.fromkeys(
        (
            "SparseSemiStructuredTensor",
            "SparseSemiStructuredTensorCUSPARSELT",
            "SparseSemiStructuredTensorCUTLASS",
            "to_sparse_semi_structured",
        ),
        "flambeau.sparse.semi_structured",
    )
    | dict.fromkeys(
        [
            f"{_kind}Tensor"
            for _kind in "Float Double Half BFloat16 Byte Char Short Int Long".split()
        ],
        "flambeau.sparse.legacy",
    ),
    ("legacy", "semi_structured"),
)
