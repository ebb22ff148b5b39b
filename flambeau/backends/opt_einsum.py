"""`torch.backends.opt_einsum`: a package that orders einsum's contractions, not used here."""

from __future__ import annotations

from typing import Any

from flambeau.backends.switches import install

__all__ = ["flags", "get_opt_einsum", "is_available", "set_flags"]

set_flags, flags = install(__name__, enabled=False, strategy=None)


def _check_enabled(value: bool) -> None:
    if value:
        raise ValueError(
            "[backends.opt_einsum.enabled] opt_einsum is not available\n"
            "hint: write the contractions in the order in which they should be computed"
        )


def is_available() -> bool:
    """False: einsum contracts its operands from left to right."""
    return False


def get_opt_einsum() -> Any:
    """None: the package is not used."""
    return None
