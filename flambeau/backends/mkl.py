"""`torch.backends.mkl`: Intel's mathematical library, which this build does not use."""

from flambeau.backends.switches import Verbose

__all__ = ["is_available", "verbose"]

VERBOSE_OFF, VERBOSE_ON = range(2)
verbose = Verbose


def is_available() -> bool:
    """False: products and Fourier transforms are our own."""
    return False
