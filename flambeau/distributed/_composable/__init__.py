"""`torch.distributed._composable`: the former home of `fully_shard`."""

from __future__ import annotations

from flambeau.runtime import missing as _missing

globals()["__getattr__"] = _missing.getter(__name__, submodules=("fsdp",))
