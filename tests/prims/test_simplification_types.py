"""Constants have their dtype's type in Python: 0 and 0.0 are equal there, and one node."""

from __future__ import annotations

import pytest

from flambeau import prims
from flambeau.prims.simplification import full_like

TYPES = {"bool": bool, "i64": int, "f32": float, "bf16": float, "c64": complex}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("number", [0, 1, True])
def test_constants_have_the_type_of_their_dtype(dtype, number):
    for size in (3, 5):
        like = prims.input_node(0, dtype, (size,), (1,))
        constant = full_like(number, like)
        assert type(constant.attribute("value")) is TYPES[dtype]
        assert prims.full(number, (size,), dtype) is constant
