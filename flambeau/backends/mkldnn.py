"""`torch.backends.mkldnn`: Intel's library of layers, which this build does not call."""

from __future__ import annotations

from flambeau.backends.switches import Switches, install

__all__ = ["flags", "is_available", "set_flags"]

set_flags, flags = install(
    __name__, enabled=True, deterministic=False, allow_tf32=None, fp32_precision="none"
)
matmul = Switches("backends.mkldnn.matmul", fp32_precision="none")
conv = Switches("backends.mkldnn.conv", fp32_precision="none")
rnn = Switches("backends.mkldnn.rnn", fp32_precision="none")


def is_available() -> bool:
    """False: products and convolutions are kernels of our own."""
    return False
