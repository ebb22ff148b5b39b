"""Compiles the op table's kernels together before the first check."""

from __future__ import annotations

import faulthandler

import pytest

from flambeau.runtime import settings
from tests.ops.exercise import everything
from tests.ops.table import TABLE
from tests.ops.warm import warm

WITHOUT_KERNELS = {"test_errors.py"}  # calls that fail before they have any
GROUP = 40  # operators whose kernels one child collects


@pytest.fixture(scope="session", autouse=True)
def kernels(request):
    """All kernels of the table, unless only a few checks were chosen."""
    if settings.get("TIER") == "baseline":
        return 0
    here = [item for item in request.session.items if "tests/ops" in str(item.path)]
    if sum(item.path.name not in WITHOUT_KERNELS for item in here) < 200:
        return 0
    entries = [e for e in TABLE.values() if not e.mutating]
    faulthandler.cancel_dump_traceback_later()  # the first test waits for all of them
    groups = [entries[i : i + GROUP] for i in range(0, len(entries), GROUP)]
    return warm([[call for e in group for call in everything(e)] for group in groups])
