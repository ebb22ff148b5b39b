"""`torch.backends.mha`: the fast path of attention modules in inference.

One way of computing serves inference and training here, so that the switch changes no result.
"""

__all__ = ["get_fastpath_enabled", "set_fastpath_enabled"]

_enabled = True


def get_fastpath_enabled() -> bool:
    """Returns the last value passed to `set_fastpath_enabled`; True at start."""
    return _enabled


def set_fastpath_enabled(value: bool) -> None:
    """Stores the switch."""
    global _enabled
    _enabled = value
