"""`torch.distributed._tensor`: the former name of `torch.distributed.tensor`."""

from __future__ import annotations

import flambeau.distributed.tensor as _tensor
from flambeau.runtime import missing as _missing

globals().update({name: getattr(_tensor, name) for name in _tensor.__all__})

__all__ = list(_tensor.__all__)

globals()["__getattr__"] = _missing.getter(__name__)
