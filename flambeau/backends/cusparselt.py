"""`torch.backends.cusparselt`: NVIDIA's sparse products, which this build does not use."""

__all__ = ["get_max_alg_id", "is_available", "version"]


def is_available() -> bool:
    """False: this build has no CUDA."""
    return False


def version() -> int | None:
    """None: the library is not used."""
    return None


def get_max_alg_id() -> int | None:
    """None: the library is not used."""
    return None
