"""`torch._refs.fft`: references of Fourier transforms."""

from __future__ import annotations

from typing import Any

from flambeau.decompositions.references import names_among, reference

_UPSTREAM = """
    fft fft2 fftn hfft hfft2 hfftn rfft rfft2 rfftn ifft ifft2 ifftn ihfft ihfft2 ihfftn
    irfft irfft2 irfftn fftshift ifftshift
""".split()

__all__ = names_among(_UPSTREAM, "fft")


def __getattr__(name: str) -> Any:
    """The reference of an operator."""
    return reference(__name__, name, __all__, "fft")
