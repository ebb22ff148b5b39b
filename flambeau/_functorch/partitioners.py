"""`torch._functorch.partitioners`: what splits a joint graph in two."""

from flambeau.fx.experimental._partition import (
    default_partition,
    min_cut_rematerialization_partition,
)

__all__ = ["default_partition", "min_cut_rematerialization_partition"]
