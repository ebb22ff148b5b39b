"""`torch.utils`: data loading, checkpointing, DLPack, nested structures."""

from flambeau.utils import checkpoint, data, dlpack

__all__ = ["checkpoint", "data", "dlpack"]
