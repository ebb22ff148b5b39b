"""`torch._refs.linalg`: references of linear algebra."""

from __future__ import annotations

from typing import Any

from flambeau.decompositions.references import names_among, reference

_UPSTREAM = """
    diagonal matrix_norm norm svd svdvals vector_norm vecdot cross
""".split()

__all__ = names_among(_UPSTREAM, "linalg")


def __getattr__(name: str) -> Any:
    """The reference of an operator."""
    return reference(__name__, name, __all__, "linalg")
