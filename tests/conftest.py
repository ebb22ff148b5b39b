"""What all tests share: the checkout on the path, verifiers on, the same threads and seed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # `tests` is a package without an __init__: tests.ops.inputs ...

os.environ.setdefault("FLAMBEAU_VERIFY", "1")  # every kernel is checked between the stages


@pytest.fixture(autouse=True)
def same_state():
    """Every test starts from, and leaves, the same defaults."""
    import flambeau

    threads, dtype = flambeau.get_num_threads(), flambeau.get_default_dtype()
    flambeau.manual_seed(0)
    yield
    if flambeau.get_num_threads() != threads:
        flambeau.set_num_threads(threads)
    if flambeau.get_default_dtype() != dtype:
        flambeau.set_default_dtype(dtype)
