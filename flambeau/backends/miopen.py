"""`torch.backends.miopen`: AMD's library of layers, which this build does not call."""

from flambeau.backends.switches import install

__all__ = ["flags", "set_flags"]

set_flags, flags = install(__name__, immediate=False)
