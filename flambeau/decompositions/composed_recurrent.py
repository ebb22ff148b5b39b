"""Compositions of the steps of recurrent cells; see `composites`."""

from __future__ import annotations

from typing import Any

from flambeau.decompositions.composites import composes
from flambeau.ops import aten

Tensor = Any


@composes("private._lstm_step")
def _lstm_step(
    from_input: Tensor, from_state: Tensor, memory: Tensor, bias: Any, saving: bool
) -> Any:
    if bias is not None or saving or from_state.ndim > 2:  # a product per gate, without bias
        return NotImplemented
    gates = aten.add_(from_state, from_input)
    enter, forget, cell, leave = aten.unsafe_split(gates, gates.shape[-1] // 4, 1)
    enter, forget = aten.sigmoid_(enter), aten.sigmoid_(forget)
    cell, leave = aten.tanh_(cell), aten.sigmoid_(leave)
    stored = aten.add_(aten.mul(forget, memory), aten.mul(enter, cell))
    return aten.mul(leave, aten.tanh(stored)), stored


@composes("private._gru_step")
def _gru_step(
    from_input: Tensor, from_state: Tensor, hidden: Tensor, bias: Any, saving: bool
) -> Tensor:
    if bias is not None or saving or from_state.ndim > 2:  # a product per gate, without bias
        return NotImplemented
    size = from_input.shape[-1] // 3
    inputs, states = [aten.unsafe_split(x, size, 1) for x in (from_input, from_state)]
    reset = aten.sigmoid_(aten.add_(states[0], inputs[0]))
    update = aten.sigmoid_(aten.add_(states[1], inputs[1]))
    fresh = aten.tanh_(aten.add(inputs[2], aten.mul_(states[2], reset)))
    return aten.add_(aten.mul_(aten.sub(hidden, fresh), update), fresh)


@composes("private._rnn_step")
def _rnn_step(from_input: Tensor, from_state: Tensor, rectified: bool, bias: Any) -> Tensor:
    if bias is not None or from_state.ndim > 2:
        return NotImplemented
    total = aten.add_(from_state, from_input)
    return aten.relu(total) if rectified else aten.tanh(total)
