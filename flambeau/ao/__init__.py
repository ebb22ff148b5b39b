"""`torch.ao`: quantization's modules as far as models name them; in float32 they do nothing."""

from flambeau.runtime import missing as _missing

globals()["__getattr__"] = _missing.getter(__name__, submodules=["nn", "quantization"])
