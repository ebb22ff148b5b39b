"""`torch.backends.kleidiai`: ARM's library of products, which this build does not use."""

__all__ = ["is_available"]


def is_available() -> bool:
    """False: products are kernels of our own."""
    return False
