"""`assert_allclose`, which `assert_close` replaces."""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as torch
from flambeau.testing.comparison import assert_close

__all__ = ["assert_allclose"]

_TOLERANCES = {"torch.float16": (1e-3, 1e-3), "torch.float32": (1e-4, 1e-5)}


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """Compares values, not dtypes; deprecated: use `assert_close`.

    Raises:
        AssertionError: they differ.
    """
    warnings.warn(
        "`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a "
        "future release. Please use `torch.testing.assert_close()` instead.",
        FutureWarning,
        stacklevel=2,
    )
    actual = torch.as_tensor(actual)
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    if rtol is None and atol is None:
        rtol, atol = max(
            _TOLERANCES.get(
                str(tensor.dtype), (1e-5, 1e-8) if tensor.is_floating_point() else (0, 0)
            )
            for tensor in (actual, expected)
        )
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=True,
        check_dtype=False,
        check_stride=False,
        msg=msg or None,
    )
