"""Compiled equals eager bit for bit: each operator between two others, forward and backward."""

from __future__ import annotations

import pytest

import flambeau
from tests.ops.exercise import fused, with_gradients
from tests.ops.inputs import same_bits
from tests.ops.table import TABLE, UNINITIALISED

KEYS = [k for k, e in TABLE.items() if k not in UNINITIALISED and not e.mutating]


@pytest.mark.parametrize("key", KEYS)
def test_compiled_is_eager(key):
    entry = TABLE[key]
    for sample in entry.samples(2):
        function = fused(entry)
        compiled = flambeau.compile(function)
        eager = with_gradients(entry, sample, "f32", function)
        for attempt in ("first", "second"):
            found = with_gradients(entry, sample, "f32", compiled)
            assert same_bits(found, eager), f"{attempt} compiled call: {sample}"
