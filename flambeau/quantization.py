"""`torch.quantization`: the older home of `torch.ao.quantization`."""

from __future__ import annotations

from flambeau.ao import quantization as _home
from flambeau.runtime import missing as _missing

globals().update({_name: getattr(_home, _name) for _name in _home.__all__})

__all__ = [*_home.__all__]  # noqa: PLE0604 - names of the home

globals()["__getattr__"] = _missing.getter(__name__)
