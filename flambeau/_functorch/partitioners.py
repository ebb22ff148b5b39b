"""`torch._functorch.partitioners`: what splits a joint graph in two."""

from flambeau.fx.experimental._partition import default_partition

__all__ = ["default_partition"]
