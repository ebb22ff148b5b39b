"""`torch.backends.openmp`: threads by OpenMP, which this build does not use."""

__all__ = ["is_available"]


def is_available() -> bool:
    """False: a thread pool of our own runs kernels."""
    return False
