"""`torch.distributed.nn` in a build without communication: exchanges with gradients raise."""

from __future__ import annotations

from flambeau.distributed import ReduceOp, group
from flambeau.runtime import missing as _missing
from flambeau.runtime.absent import Absent

_absent = Absent("distributed.nn", RuntimeError, "this build has no distributed back end yet")
_functions = _absent.refusals(
    "all_gather all_reduce all_to_all all_to_all_single broadcast gather reduce reduce_scatter "
    "scatter"
)
_types = _absent.types("RemoteModule")
globals().update(_functions | _types)

__all__ = [*_functions, *_types, "ReduceOp", "group"]  # noqa: PLE0604 - names of this module

globals()["__getattr__"] = _missing.getter(__name__, submodules=("functional",))
