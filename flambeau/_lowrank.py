"""`torch._lowrank`: where PyTorch has `svd_lowrank` and `pca_lowrank`, and graphs name them."""

from flambeau import pca_lowrank, svd_lowrank

__all__ = ["pca_lowrank", "svd_lowrank"]
