"""`torch._functorch.config`: PyTorch's settings of its transformations, with its defaults.

Partitions of forward and backward are chosen here by what costs least; no setting changes them.
"""

from flambeau.runtime import config_modules as _config_modules


def remote_autograd_cache_default() -> bool | None:
    """Whether compiled programs are stored elsewhere: no."""
    return False


_config_modules.install(__name__)
