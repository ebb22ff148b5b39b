"""`torch.signal.windows`: the operators whose home is "signal.windows"."""

from flambeau.core.install import namespace as _namespace

globals().update(_namespace("signal.windows"))
__all__ = sorted(_namespace("signal.windows"))
