"""`torch.distributed.device_mesh` in a build without communication: making a mesh raises."""

from __future__ import annotations

from flambeau.distributed import DeviceMesh, init_device_mesh
from flambeau.runtime import missing as _missing

__all__ = ["DeviceMesh", "init_device_mesh"]

globals()["__getattr__"] = _missing.getter(__name__)
