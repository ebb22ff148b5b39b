"""`torch.backends.mkldnn`: Intel's library of layers, which this build does not call."""

from __future__ import annotations

from flambeau.backends.switches import Switches, Verbose, install

__all__ = ["flags", "is_acl_available", "is_available", "set_flags", "verbose"]

VERBOSE_OFF, VERBOSE_ON, VERBOSE_ON_CREATION = range(3)

set_flags, flags = install(
    __name__, enabled=True, deterministic=False, allow_tf32=None, fp32_precision="none"
)
matmul = Switches("backends.mkldnn.matmul", fp32_precision="none")
conv = Switches("backends.mkldnn.conv", fp32_precision="none")
rnn = Switches("backends.mkldnn.rnn", fp32_precision="none")


def is_available() -> bool:
    """False: products and convolutions are kernels of our own."""
    return False


def is_acl_available() -> bool:
    """False: ARM's library of layers is not used."""
    return False


verbose = Verbose
