"""`torch.backends.mps`: Apple's GPUs, which this build does not use."""

from typing import NoReturn

__all__ = [
    "get_core_count",
    "get_name",
    "is_available",
    "is_built",
    "is_macos13_or_newer",
    "is_macos_or_newer",
]


def get_core_count() -> NoReturn:
    """Raises: there is no such GPU.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("[get_core_count] this build has no MPS backend\nhint: os.cpu_count()")


def get_name() -> NoReturn:
    """Raises: there is no such GPU.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError("[get_name] this build has no MPS backend\nhint: platform.processor()")


def is_available() -> bool:
    """False: this build has no MPS backend."""
    return False


def is_built() -> bool:
    """False: this build has no MPS backend."""
    return False


def is_macos_or_newer(major: int, minor: int) -> bool:
    """Whether the GPU's system is at least macOS `major.minor`: False without an MPS backend."""
    return False


def is_macos13_or_newer(minor: int = 0) -> bool:
    """Whether the GPU's system is at least macOS 13: False without an MPS backend."""
    return False
