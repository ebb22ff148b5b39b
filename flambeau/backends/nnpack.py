"""`torch.backends.nnpack`: a library of convolutions, which this build does not use."""

__all__ = ["is_available"]


def is_available() -> bool:
    """False: convolutions are kernels of our own."""
    return False
