"""`torch.jit.quantized`: names that PyTorch removed; they raise its errors."""

from __future__ import annotations

from typing import Any, NoReturn

import flambeau as torch

__all__ = [
    "QuantizedGRU", "QuantizedGRUCell", "QuantizedLSTM", "QuantizedLSTMCell", "QuantizedLinear",
    "QuantizedLinearFP16", "QuantizedRNNBase", "QuantizedRNNCell", "QuantizedRNNCellBase",
    "quantize_linear_modules", "quantize_rnn_cell_modules", "quantize_rnn_modules",
]  # fmt: skip

_REST = "is no longer supported. Please use"


class _Removed(torch.nn.Module):
    """A layer that PyTorch removed."""

    _instead = ""

    def __init__(self, other: Any = None, *options: Any) -> None:
        name = type(self).__name__
        raise RuntimeError(
            f"torch.jit.{name} {_REST} torch.ao.nn.quantized{self._instead} instead."
        )


class QuantizedLinear(_Removed):
    """Removed; making one raises RuntimeError."""

    _instead = ".dynamic.Linear"


class QuantizedLinearFP16(QuantizedLinear):
    """Removed; making one raises RuntimeError."""


class QuantizedRNNCellBase(_Removed):
    """Removed; making one raises RuntimeError."""

    _instead = ".dynamic.RNNCell"


class QuantizedRNNCell(QuantizedRNNCellBase):
    """Removed; making one raises RuntimeError."""


class QuantizedLSTMCell(QuantizedRNNCellBase):
    """Removed; making one raises RuntimeError."""


class QuantizedGRUCell(QuantizedRNNCellBase):
    """Removed; making one raises RuntimeError."""


class QuantizedRNNBase(_Removed):
    """Removed; making one raises RuntimeError."""

    _instead = ".dynamic"


class QuantizedLSTM(QuantizedRNNBase):
    """Removed; making one raises RuntimeError."""


class QuantizedGRU(QuantizedRNNBase):
    """Removed; making one raises RuntimeError."""


def _removed(name: str) -> NoReturn:
    raise RuntimeError(
        f"{name} function {_REST} torch.ao.quantization.quantize_dynamic API instead."
    )


def quantize_linear_modules(module: Any, dtype: Any = None) -> NoReturn:
    """Removed; raises RuntimeError."""
    _removed("quantize_linear_modules")


def quantize_rnn_modules(module: Any, dtype: Any = None) -> NoReturn:
    """Removed; raises RuntimeError."""
    _removed("quantize_rnn_modules")


def quantize_rnn_cell_modules(module: Any) -> NoReturn:
    """Removed; raises RuntimeError."""
    _removed("quantize_rnn_cell_modules")
