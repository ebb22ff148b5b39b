"""`torch.utils.bundled_inputs`: example inputs stored with a scripted module."""

from __future__ import annotations

from typing import Any, NamedTuple

import flambeau as torch

__all__ = [
    "InflatableArg",
    "augment_many_model_functions_with_bundled_inputs",
    "augment_model_with_bundled_inputs",
    "bundle_inputs",
    "bundle_large_tensor",
    "bundle_randn",
]

MAX_RAW_TENSOR_SIZE = 16


class InflatableArg(NamedTuple):
    """An argument in short form, with the text of a program that makes the argument of it."""

    value: Any
    fmt: str = "{}"
    fmt_fn: str = ""


def bundle_randn(*size: int, dtype: Any = None) -> InflatableArg:
    """Random numbers of some shape, drawn when the input is used."""
    return InflatableArg(
        value=torch.zeros(1, dtype=dtype).expand(*size), fmt="torch.randn_like({})"
    )


def bundle_large_tensor(t: Any) -> InflatableArg:
    """A tensor that is stored whole."""
    return InflatableArg(value=t, fmt="{}")


def _refuse(op: str) -> NotImplementedError:
    return NotImplementedError(
        f"[{op}] inputs cannot be stored inside of a scripted module\n"
        "hint: torch.save them beside it"
    )


def bundle_inputs(
    model: Any, inputs: Any, info: Any = None, *, _receive_inflate_expr: Any = None
) -> Any:
    """A copy of a scripted module with inputs; raises NotImplementedError."""
    raise _refuse("bundle_inputs")


def augment_model_with_bundled_inputs(
    model: Any,
    inputs: Any = None,
    _receive_inflate_expr: Any = None,
    info: Any = None,
    skip_size_check: bool = False,
) -> None:
    """Adds inputs to a scripted module; raises NotImplementedError."""
    raise _refuse("augment_model_with_bundled_inputs")


def augment_many_model_functions_with_bundled_inputs(
    model: Any,
    inputs: Any,
    _receive_inflate_expr: Any = None,
    info: Any = None,
    skip_size_check: bool = False,
) -> None:
    """Adds inputs for several methods; raises NotImplementedError."""
    raise _refuse("augment_many_model_functions_with_bundled_inputs")
