"""`torch.distributed._tensor.experimental`: a former name of `torch.distributed.tensor`'s."""

from __future__ import annotations

import flambeau.distributed.tensor.experimental as _experimental
from flambeau.runtime import missing as _missing

globals().update({name: getattr(_experimental, name) for name in _experimental.__all__})

__all__ = list(_experimental.__all__)

globals()["__getattr__"] = _missing.getter(__name__)
