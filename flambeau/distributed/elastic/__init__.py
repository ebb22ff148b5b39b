"""`torch.distributed.elastic`: the launcher of groups of processes, of which there are none."""

from __future__ import annotations

from flambeau.runtime import missing as _missing

globals()["__getattr__"] = _missing.getter(__name__, submodules=("multiprocessing",))
