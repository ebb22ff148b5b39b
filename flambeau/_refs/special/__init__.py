"""`torch._refs.special`: references of special functions."""

from __future__ import annotations

from typing import Any

from flambeau.decompositions.references import names_among, reference

_UPSTREAM = """
    bessel_j0 bessel_j1 entr erfcx expit i0e i1 i1e log_ndtr logit log_softmax multigammaln
    ndtr ndtri softmax spherical_bessel_j0 xlog1py zeta
""".split()

__all__ = names_among(_UPSTREAM, "special")


def __getattr__(name: str) -> Any:
    """The reference of an operator."""
    return reference(__name__, name, __all__, "special")
