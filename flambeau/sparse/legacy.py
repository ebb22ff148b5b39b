"""`torch.sparse.FloatTensor` and its relatives: types of sparse tensors from before layouts."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.core.legacy import TENSOR_TYPES, TensorType
from flambeau.core.warned import warn_once
from flambeau.sparse.construct import sparse_coo_tensor

__all__ = ["SPARSE_TYPES", "SparseTensorType"]

_FORMS = {
    (): "torch.sparse_coo_tensor((0,), dtype=)",
    ("shape",): "torch.sparse_coo_tensor(shape, dtype=, device=)",
    ("indices", "values"): "torch.sparse_coo_tensor(indices, values, dtype=, device=)",
    ("indices", "values", "shape"):
        "torch.sparse_coo_tensor(indices, values, shape, dtype=, device=)",
}  # fmt: skip


class SparseTensorType(TensorType):
    """The type of `torch.sparse.FloatTensor` and its relatives."""

    layout = torch.sparse_coo
    is_sparse = True

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """A sparse tensor of sizes, or of indices and values, whose dtype stays.

        Args:
            args: nothing; sizes; indices and values; or these and sizes.
            kwargs: `device`.
        """
        tensors = sum(isinstance(x, torch.Tensor) for x in args[:2])
        shape = ("shape",) if len(args) > tensors else ()
        form = (("indices", "values") if tensors == 2 else ()) + shape
        device = ", *, device=" if form else ""
        warn_once(
            f"torch.sparse.SparseTensor({', '.join(form)}{device}) is deprecated.  Please use "
            f"{_FORMS[form]}."
        )
        if tensors == 2:
            return sparse_coo_tensor(*args, **kwargs)
        packed = len(args) == 1 and isinstance(args[0], (tuple, list))
        sizes = args[0] if packed else args or (0,)
        return sparse_coo_tensor(tuple(sizes), dtype=cls.dtype, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        """Whether a sparse tensor on the CPU has this type's dtype."""
        if not isinstance(instance, torch.Tensor) or instance.layout is not torch.sparse_coo:
            return False
        return instance.dtype is cls.dtype and instance.device.type == "cpu"

    def __repr__(cls) -> str:
        """As PyTorch prints it."""
        return f"<class 'torch.sparse.{cls.__name__}'>"


SPARSE_TYPES: dict[str, SparseTensorType] = {
    name: SparseTensorType(
        name,
        (),
        {
            "dtype": kind.dtype,
            "__module__": "torch.sparse",
            "__doc__": f"A sparse tensor of {kind.dtype}: of sizes, or of indices and values.",
        },
    )
    for name, kind in TENSOR_TYPES.items()
    if name != "BoolTensor"
}
globals().update(SPARSE_TYPES)
