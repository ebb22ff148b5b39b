"""`torch.signal`: signal processing; the windows are in `torch.signal.windows`."""

from flambeau.signal import windows

__all__ = ["windows"]
