"""`torch.masked`: reductions that leave out the elements whose mask is False."""

from flambeau.core.install import namespace as _namespace

globals().update(_namespace("masked"))
__all__ = sorted(_namespace("masked"))
