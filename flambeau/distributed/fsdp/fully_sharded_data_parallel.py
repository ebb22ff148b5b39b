"""`torch.distributed.fsdp.fully_sharded_data_parallel`: where programs import its names from."""

from __future__ import annotations

from flambeau.distributed import fsdp as _fsdp
from flambeau.runtime import missing as _missing

globals().update({name: getattr(_fsdp, name) for name in _fsdp.__all__})

__all__ = list(_fsdp.__all__)

globals()["__getattr__"] = _missing.getter(__name__)
