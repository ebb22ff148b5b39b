"""Copies between devices: none without a device beside the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from flambeau.nn.messages import problem

__all__ = [
    "broadcast",
    "broadcast_coalesced",
    "gather",
    "reduce_add",
    "reduce_add_coalesced",
    "scatter",
]


def _refuse(op: str) -> NoReturn:
    text = "there is no device beside the CPU to copy to or from"
    raise RuntimeError(problem(op, text, "use the tensors as they are"))


def broadcast(tensor: Any, devices: Any = None, *, out: Any = None) -> Any:
    """Copies of a tensor on devices; raises RuntimeError."""
    _refuse("broadcast")


def broadcast_coalesced(tensors: Sequence[Any], devices: Any, buffer_size: int = 10485760) -> Any:
    """Copies of tensors on devices; raises RuntimeError."""
    _refuse("broadcast_coalesced")


def _check_devices(op: str, inputs: Sequence[Any]) -> None:
    for position, tensor in enumerate(inputs):
        if tensor.device.type == "cpu":
            text = f"{op} expects all inputs to be on GPUs, but input {position} is on CPU"
            raise AssertionError(problem(op, text, "add the tensors"))


def reduce_add(inputs: Sequence[Any], destination: Any = None) -> Any:
    """The sum of tensors of several devices; raises AssertionError for those of the CPU."""
    _check_devices("reduce_add", inputs)
    _refuse("reduce_add")


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Any]], destination: Any = None, buffer_size: int = 10485760
) -> Any:
    """Sums of tensors of several devices; raises AssertionError for those of the CPU."""
    for tensors in inputs:
        _check_devices("reduce_add", tensors)
    _refuse("reduce_add_coalesced")


def scatter(
    tensor: Any,
    devices: Any = None,
    chunk_sizes: Any = None,
    dim: int = 0,
    streams: Any = None,
    *,
    out: Any = None,
) -> Any:
    """Parts of a tensor on devices; raises RuntimeError."""
    _refuse("scatter")


def gather(
    tensors: Sequence[Any], dim: int = 0, destination: Any = None, *, out: Any = None
) -> Any:
    """Tensors of several devices joined; raises RuntimeError."""
    _refuse("gather")
