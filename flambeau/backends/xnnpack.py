"""`torch.backends.xnnpack`: a library of layers, which this build does not use."""

__all__ = ["enabled"]
enabled = False
