"""`torch.backends.mkl`: Intel's mathematical library, which this build does not use."""

__all__ = ["is_available"]


def is_available() -> bool:
    """False: products and Fourier transforms are our own."""
    return False
