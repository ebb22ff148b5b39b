"""`torch.utils.serialization`: settings of `torch.save` and `torch.load`."""

from flambeau.utils.serialization import config

__all__ = ["config"]
