"""`torch.distributed._composable.fsdp`: the former name of `torch.distributed.fsdp`."""

from __future__ import annotations

import flambeau.distributed.fsdp as _fsdp
from flambeau.runtime import missing as _missing

_NAMES = (
    "CPUOffloadPolicy FSDPModule MixedPrecisionPolicy OffloadPolicy fully_shard "
    "register_fsdp_forward_method"
).split()
globals().update({name: getattr(_fsdp, name) for name in _NAMES})

__all__ = [*_NAMES]

globals()["__getattr__"] = _missing.getter(__name__)
