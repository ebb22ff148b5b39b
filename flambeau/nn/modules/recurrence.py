"""Recurrent steps and how they run over a sequence, packed or not.

A cell is a function (projected input, state) -> (output, state). The input's projection for all
steps is one product, made before the loop. A packed sequence holds, step by step, the rows of the
sequences that are still running (longest first); `batch_sizes` tells how many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from flambeau.nn import functional as F  # noqa: N812

State = tuple[Any, ...]
Cell = Callable[[Any, State], tuple[Any, State]]


def lstm_cell(gates_of_input: Any, state: State, w_hh: Any, b_hh: Any, w_hr: Any = None) -> Any:
    """Hochreiter and Schmidhuber 1997; gates in the order input, forget, cell, output."""
    hidden, memory = state
    gates = gates_of_input + F.linear(hidden, w_hh, b_hh)
    enter, forget, candidate, leave = gates.chunk(4, -1)
    memory = torch.sigmoid(forget) * memory + torch.sigmoid(enter) * torch.tanh(candidate)
    hidden = torch.sigmoid(leave) * torch.tanh(memory)
    if w_hr is not None:
        hidden = F.linear(hidden, w_hr)
    return hidden, (hidden, memory)


def gru_cell(gates_of_input: Any, state: State, w_hh: Any, b_hh: Any, w_hr: Any = None) -> Any:
    """Cho et al. 2014; gates in the order reset, update, new."""
    (hidden,) = state
    reset_x, update_x, new_x = gates_of_input.chunk(3, -1)
    reset_h, update_h, new_h = F.linear(hidden, w_hh, b_hh).chunk(3, -1)
    reset = torch.sigmoid(reset_x + reset_h)
    update = torch.sigmoid(update_x + update_h)
    new = torch.tanh(new_x + reset * new_h)
    hidden = (hidden - new) * update + new
    return hidden, (hidden,)


def tanh_cell(gates_of_input: Any, state: State, w_hh: Any, b_hh: Any, w_hr: Any = None) -> Any:
    """tanh(W x + b + U h + c)."""
    hidden = torch.tanh(gates_of_input + F.linear(state[0], w_hh, b_hh))
    return hidden, (hidden,)


def relu_cell(gates_of_input: Any, state: State, w_hh: Any, b_hh: Any, w_hr: Any = None) -> Any:
    """max(W x + b + U h + c, 0)."""
    hidden = torch.relu(gates_of_input + F.linear(state[0], w_hh, b_hh))
    return hidden, (hidden,)


CELLS: dict[str, Callable[..., Any]] = {
    "LSTM": lstm_cell,
    "GRU": gru_cell,
    "RNN_TANH": tanh_cell,
    "RNN_RELU": relu_cell,
}


def run_steps(cell: Cell, steps: Sequence[Any], state: State, reverse: bool) -> tuple[Any, State]:
    """All steps with one batch size: (outputs in order of time, last state)."""
    outputs = []
    for step in reversed(steps) if reverse else steps:
        output, state = cell(step, state)
        outputs.append(output)
    return outputs[::-1] if reverse else outputs, state


def run_packed(
    cell: Cell, steps: Sequence[Any], state: State, sizes: Sequence[int], reverse: bool
) -> tuple[Any, State]:
    """Steps whose batch shrinks in time; a sequence's state stays where it ends (or starts)."""
    if reverse:
        return _run_packed_reverse(cell, steps, state, sizes)
    outputs, finished = [], []
    for step, size in zip(steps, sizes):
        if size < state[0].size(0):
            finished.append(tuple(part[size:] for part in state))
            state = tuple(part[:size] for part in state)
        output, state = cell(step, state)
        outputs.append(output)
    pieces = [state, *reversed(finished)]
    joined = tuple(torch.cat([piece[k] for piece in pieces], 0) for k in range(len(state)))
    return outputs, joined


def _run_packed_reverse(
    cell: Cell, steps: Sequence[Any], initial: State, sizes: Sequence[int]
) -> tuple[Any, State]:
    outputs = []
    active = sizes[-1]
    state = tuple(part[:active] for part in initial)
    for step, size in zip(reversed(steps), reversed(sizes)):
        if size > active:  # sequences that end here start here
            joining = (part[active:size] for part in initial)
            state = tuple(torch.cat([a, b], 0) for a, b in zip(state, joining))
            active = size
        output, state = cell(step, state)
        outputs.append(output)
    return outputs[::-1], state


def run_direction(
    mode: str,
    data: Any,
    state: State,
    weights: Sequence[Any],
    sizes: Sequence[int] | None,
    reverse: bool,
) -> tuple[Any, State]:
    """One layer in one direction: (output like `data`, last state).

    Args:
        mode: key of `CELLS`.
        data: (steps, batch, width), or (rows, width) when packed.
        weights: w_ih, w_hh, b_ih, b_hh, w_hr; biases and w_hr may be None.
        sizes: batch sizes when packed.
    """
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    step_of = CELLS[mode]
    projected = F.linear(data, w_ih, b_ih)

    def cell(step: Any, current: State) -> Any:
        return step_of(step, current, w_hh, b_hh, w_hr)

    if sizes is None:
        outputs, state = run_steps(cell, projected.unbind(0), state, reverse)
        return torch.stack(outputs, 0), state
    outputs, state = run_packed(cell, projected.split(list(sizes)), state, sizes, reverse)
    return torch.cat(outputs, 0), state
