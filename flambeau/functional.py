"""`torch.functional`: operators of `torch` under the module that PyTorch writes in Python."""

import flambeau as _torch

_NAMES = (
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes",
    "broadcast_tensors", "cartesian_prod", "cdist", "chain_matmul", "einsum", "istft", "lu",
    "meshgrid", "norm", "pca_lowrank", "split", "stft", "svd_lowrank", "tensordot", "unique",
    "unique_consecutive", "unravel_index",
)  # fmt: skip
__all__: list[str] = []
for _name in _NAMES:
    globals()[_name] = getattr(_torch, _name)
    __all__ += [_name]
