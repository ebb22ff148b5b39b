"""`torch.backends.python_native`: kernels written in Python languages, of which there are none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = [
    "disable_dispatch_keys", "disable_operations", "enable_dispatch_keys", "enable_operations",
    "get_dsl_operations", "is_dsl_disabled", "is_operation_disabled", "operations_disabled",
]  # fmt: skip

available_dsls: list[str] = []
all_dsls: list[str] = []


def get_dsl_operations(dsl_name: str) -> list[str]:
    """Operators with a kernel in a language: none."""
    return []


def is_dsl_disabled(dsl_name: str) -> bool:
    """False: no language was in use."""
    return False


def is_operation_disabled(op_symbol: str) -> bool:
    """False: no operator had such a kernel."""
    return False


def _nothing(*names: str) -> None:
    """Returns: there are no kernels to switch."""


disable_dispatch_keys = enable_dispatch_keys = disable_operations = enable_operations = _nothing


@contextlib.contextmanager
def operations_disabled(*op_symbols: str) -> Iterator[None]:
    """A `with` block without effect."""
    yield
