"""Masks of the results of masked operators."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as torch

m = torch.masked
X = torch.ones(2, 3)
MASK = torch.tensor([[True, False, True], [False, False, False]])
COLUMNS = [True, False, True]
CASES: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = [
    (m.sum, (1,), {}, [True, False]),
    (m.sum, ((0, 1),), {"keepdim": True}, [[True]]),
    (m.std, (1,), {"keepdim": True}, [[True], [False]]),
    (m.var, (None,), {}, True),
    (m.mean, (), {}, True),
    (m.amax, ((0,),), {}, COLUMNS),
    (m.argmin, (), {}, True),
    (m.argmin, (), {"dim": 1, "keepdim": True}, [[True], [False]]),
    (m.median, (-1,), {}, [True, False]),
    (m.norm, (2.0,), {"dim": 0}, COLUMNS),
    (m.norm, (2.0, 1), {}, [True, False]),
    (m.norm, (2.0, None), {}, True),
    (m.cumprod, (0,), {}, MASK.tolist()),
    (m.softmax, (1,), {}, MASK.tolist()),
    (m.normalize, (2, 1), {}, MASK.tolist()),
]


@pytest.mark.parametrize(("op", "args", "options", "expected"), CASES)
def test_output_mask(op: Any, args: Any, options: Any, expected: Any) -> None:
    found = m._output_mask(op, X, *args, **options, mask=MASK)
    assert found.dtype is torch.bool and found.tolist() == expected


def test_input_mask() -> None:
    whole = m._input_mask(X, mask=torch.tensor([True, False, True]))
    assert whole.tolist() == [COLUMNS] * 2
    masked = m.masked_tensor(X, MASK)
    assert m._input_mask(masked).tolist() == MASK.tolist()


def test_refused() -> None:
    with pytest.raises(ValueError, match="requires explicit mask"):
        m._input_mask(X)
    with pytest.raises(IndexError, match="expected broadcastable mask"):
        m._input_mask(X, mask=torch.ones(1, 2, 3, dtype=torch.bool))
    for op in (torch.sum, m.logaddexp):
        with pytest.raises(ValueError, match="expected masked operation"):
            m._output_mask(op, X, mask=MASK)
