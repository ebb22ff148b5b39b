"""`torch.distributed.tensor` in a build without communication: no tensor is distributed.

Trainers ask of each parameter whether it is a `DTensor`.
"""

from __future__ import annotations

import flambeau.distributed.device_mesh as _device_mesh
from flambeau.runtime import missing as _missing
from flambeau.runtime.absent import Absent

_absent = Absent("distributed.tensor", RuntimeError, "this build has no distributed back end yet")
_functions = _absent.refusals(
    "distribute_tensor distribute_module empty full ones rand randn zeros"
)
_types = _absent.types("DTensor Placement Shard Replicate Partial")
_meshes = {name: getattr(_device_mesh, name) for name in ("DeviceMesh", "init_device_mesh")}
globals().update(_functions | _types | _meshes)

__all__ = [*_functions, *_types, *_meshes]

globals()["__getattr__"] = _missing.getter(__name__)
