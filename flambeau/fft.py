"""`torch.fft`: discrete Fourier transforms, from the operators whose home is "fft"."""

from flambeau.core.install import namespace as _namespace

globals().update(_namespace("fft"))
__all__ = sorted(_namespace("fft"))
