"""Converts the weights of convolutions to another memory format."""

from __future__ import annotations

from typing import Any

from flambeau.nn.modules.conv import _ConvNd

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def _convert(module: Any, memory_format: Any, ndim: int) -> Any:
    for child in module.modules():
        if isinstance(child, _ConvNd) and child._ndim == ndim:
            data = child.weight.detach().clone()
            child.weight.data = data.contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Converts the weights of all 2-d convolutions in `module`."""
    return _convert(module, memory_format, 2)


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Converts the weights of all 3-d convolutions in `module`."""
    return _convert(module, memory_format, 3)
