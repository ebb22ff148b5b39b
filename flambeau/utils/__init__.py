"""`torch.utils`: data loading, checkpointing, DLPack, nested structures."""

from flambeau.runtime import missing as _missing
from flambeau.utils import checkpoint, data, deterministic, dlpack

__all__ = ["checkpoint", "data", "deterministic", "dlpack"]

# A name of PyTorch that is not here yet is told from a misspelt one.
globals()["__getattr__"] = _missing.getter(__name__)
