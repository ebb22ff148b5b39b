"""`torch.distributed.elastic.multiprocessing`: processes of that launcher."""

from __future__ import annotations

from flambeau.runtime import missing as _missing

globals()["__getattr__"] = _missing.getter(__name__, submodules=("errors",))
