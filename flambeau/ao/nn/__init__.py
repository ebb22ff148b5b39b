"""`torch.ao.nn`: modules of quantized networks."""

from flambeau.runtime import missing as _missing

globals()["__getattr__"] = _missing.getter(__name__, submodules=["quantized"])
