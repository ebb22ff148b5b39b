"""`torch.distributed.fsdp` in a build without communication: no module is sharded.

Trainers ask of their model whether it is `FullyShardedDataParallel`.
"""

from __future__ import annotations

from flambeau.runtime import missing as _missing
from flambeau.runtime.absent import Absent

_absent = Absent("distributed.fsdp", RuntimeError, "this build has no distributed back end yet")
_functions = _absent.refusals("fully_shard register_fsdp_forward_method")
_types = _absent.types(
    "FullyShardedDataParallel FSDPModule CPUOffload MixedPrecision BackwardPrefetch "
    "ShardingStrategy MixedPrecisionPolicy OffloadPolicy CPUOffloadPolicy StateDictType "
    "StateDictConfig FullStateDictConfig LocalStateDictConfig ShardedStateDictConfig "
    "OptimStateDictConfig FullOptimStateDictConfig LocalOptimStateDictConfig "
    "ShardedOptimStateDictConfig StateDictSettings OptimStateKeyType"
)
globals().update(_functions | _types)

__all__ = [*_functions, *_types]

globals()["__getattr__"] = _missing.getter(__name__)
