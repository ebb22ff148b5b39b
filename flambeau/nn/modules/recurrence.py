"""Recurrent steps and how they run over a sequence, packed or not.

A cell is a function (projected input, state) -> (output, state). The input's projection for all
steps is one product, made before the loop. A packed sequence holds, step by step, the rows of the
sequences that are still running (longest first); `batch_sizes` tells how many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from flambeau._core import Tensor
from flambeau.language.definition import REGISTRY
from flambeau.nn import functional as F  # noqa: N812

State = tuple[Any, ...]


def _native(name: str) -> Any:
    """The native op of a private definition."""
    return REGISTRY["private." + name].native


Cell = Callable[[Any, State], tuple[Any, State]]
LEAST_STEPS = 4  # that pay for laying out the weight
LARGEST_WEIGHT = 1 << 20  # elements; a larger one does not stay in a cache between steps


class StateWeight:
    """The weight of the hidden state and its bias, in the form the steps of a sequence take.

    A step's product has few rows, so that reading the weight is much of the work. Over a sequence
    the weight is laid out once, gate by gate, as products read it without packing. Bits are those
    of `F.linear`: a sum over K has one order. Half types would round before the bias is added, so
    they keep the plain product.
    """

    def __init__(self, weight: Tensor, bias: Tensor, hidden_size: int = 0, steps: int = 1) -> None:
        """Lays out the weight where that pays."""
        self.weight, self.bias = weight, bias
        self.gates_apart = None
        exact = weight.dtype in (torch.float32, torch.float64)
        if exact and steps >= LEAST_STEPS and weight.numel() <= LARGEST_WEIGHT:
            split = weight.reshape(-1, hidden_size, weight.shape[1])
            self.gates_apart = split.transpose(1, 2).contiguous()

    def gates(self, hidden: Any) -> tuple[Any, Any]:
        """(the product, the bias that is still to be added)."""
        if self.gates_apart is None:
            return F.linear(hidden, self.weight, self.bias), None
        return torch.matmul(hidden, self.gates_apart), self.bias


def lstm_cell(gates_of_input: Any, state: State, of_state: StateWeight, w_hr: Any = None) -> Any:
    """Hochreiter and Schmidhuber 1997; gates in the order input, forget, cell, output."""
    hidden, memory = state
    product, bias = of_state.gates(hidden)
    hidden, memory = _native("_lstm_step")(gates_of_input, product, memory, bias)
    if w_hr is not None:
        hidden = F.linear(hidden, w_hr)
    return hidden, (hidden, memory)


def gru_cell(gates_of_input: Any, state: State, of_state: StateWeight, w_hr: Any = None) -> Any:
    """Cho et al. 2014; gates in the order reset, update, new."""
    product, bias = of_state.gates(state[0])
    hidden = _native("_gru_step")(gates_of_input, product, state[0], bias)
    return hidden, (hidden,)


def tanh_cell(gates_of_input: Any, state: State, of_state: StateWeight, w_hr: Any = None) -> Any:
    """tanh(W x + b + U h + c)."""
    product, bias = of_state.gates(state[0])
    hidden = _native("_rnn_step")(gates_of_input, product, False, bias)
    return hidden, (hidden,)


def relu_cell(gates_of_input: Any, state: State, of_state: StateWeight, w_hr: Any = None) -> Any:
    """max(W x + b + U h + c, 0)."""
    product, bias = of_state.gates(state[0])
    hidden = _native("_rnn_step")(gates_of_input, product, True, bias)
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


# ------------------------------------------------------------------------ training
# A backward step only needs the product that leads to the step before. The weights' gradient is
# one product over all steps, made at the end, instead of a sum of as many products.


def _saving_step(mode: str, gates: Any, of_state: StateWeight, state: State) -> tuple[State, State]:
    """The state after a step, and what its backward needs beside the states."""
    product, bias = of_state.gates(state[0])
    if mode == "LSTM":
        hidden, memory, saved = _native("_lstm_step")(gates, product, state[1], bias, True)
        return (hidden, memory), (saved,)
    if mode == "GRU":
        hidden, saved = _native("_gru_step")(gates, product, state[0], bias, True)
        return (hidden,), (saved,)
    return (_native("_rnn_step")(gates, product, mode == "RNN_RELU", bias),), ()


def _step_back(
    mode: str, grad: Any, carried: State, saved: State, before: State, after: State
) -> tuple[Any, Any, Any, State]:
    """Gradients of the gates from input and state, of the hidden state beside, of the memory."""
    if mode == "LSTM":
        both, memory = _native("_lstm_step_backward")(grad, *carried, *saved, before[1], after[1])
        return both, both, None, (memory,)
    if mode == "GRU":
        found = _native("_gru_step_backward")(grad, *carried, *saved, before[0])
        return (*found, ())
    both = _native("_rnn_step_backward")(grad, *carried, after[0], mode == "RNN_RELU")
    return both, both, None, ()


class _Layer(torch.autograd.Function):
    """(outputs, *last state) of a layer in one direction over sequences of one length."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        ctx: Any, mode: str, reverse: bool, projected: Any, w_hh: Tensor, b_hh: Tensor, *state: Any
    ) -> tuple[Any, ...]:
        ctx.mode, ctx.reverse = mode, reverse
        ctx.save_for_backward(projected, w_hh, b_hh, *state)
        ctx.states, ctx.saved = [], []
        now: State = state
        steps = _in_order(projected.unbind(0), reverse)
        of_state = StateWeight(w_hh, b_hh, state[-1].shape[-1], len(steps))
        for gates in steps:
            now, saved = _saving_step(mode, gates, of_state, now)
            ctx.states.append(now)
            ctx.saved.append(saved)
        if ctx.states:  # results refer to ctx: a way back would keep all until garbage is collected
            ctx.states[-1] = tuple(part.detach() for part in now)
        outputs = _in_order([each[0] for each in ctx.states], reverse)
        return (torch.stack(outputs, 0), *now)

    @staticmethod
    def backward(ctx: Any, grad: Any, *of_state: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            return _differentiable_backward(ctx, grad, of_state)
        _, w_hh, b_hh, *first = ctx.saved_tensors
        states = [tuple(first), *ctx.states]
        pieces = _in_order(grad.unbind(0), ctx.reverse)
        carried: State = of_state
        inputs, products = [], []  # last step first
        for k in reversed(range(len(pieces))):
            of_input, of_product, beside, memory = _step_back(
                ctx.mode, pieces[k], carried, ctx.saved[k], states[k], states[k + 1]
            )
            hidden = torch.mm(of_product, w_hh)
            carried = (hidden if beside is None else hidden + beside, *memory)
            inputs.append(of_input)
            products.append(of_product)
        of_inputs = torch.stack(_in_order(inputs, not ctx.reverse), 0)
        one = inputs[0] is products[0] and not ctx.reverse
        flat = (of_inputs if one else torch.stack(products[::-1], 0)).flatten(0, 1)
        hiddens = torch.cat([each[0] for each in states[:-1]], 0)
        weight = torch.mm(flat.t(), hiddens) if ctx.needs_input_grad[3] else None
        bias = flat.sum(0) if b_hh is not None and ctx.needs_input_grad[4] else None
        return (None, None, of_inputs, weight, bias, *carried)


class _MemoryLayer(_Layer):
    """The same of LSTM."""


# What `grad_fn` shows is PyTorch's last operator.
_Layer._backward_cls.__name__ = "StackBackward0"
_MemoryLayer._backward_cls.__name__ = "MkldnnRnnLayerBackward0"


def _in_order(steps: Sequence[Any], reverse: bool) -> list[Any]:
    return list(reversed(steps)) if reverse else list(steps)


def _differentiable_backward(ctx: Any, grad: Any, of_state: State) -> tuple[Any, ...]:
    """The same gradients by the layer's own operations: for gradients of gradients."""
    operands = ctx.saved_tensors
    projected, w_hh, b_hh, *state = operands
    recurrent = StateWeight(w_hh, b_hh)
    outputs, last = run_steps(
        lambda step, now: CELLS[ctx.mode](step, now, recurrent),
        projected.unbind(0),
        tuple(state),
        ctx.reverse,
    )
    wanted = [x for x in operands if x is not None and x.requires_grad]
    found = torch.autograd.grad(
        [torch.stack(outputs, 0), *last],
        wanted,
        [grad, *of_state],
        create_graph=True,
        allow_unused=True,
    )
    by_operand = {id(x): g for x, g in zip(wanted, found)}
    return (None, None, *(by_operand.get(id(x)) for x in operands))


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
        return step_of(step, current, of_state, w_hr)

    trained = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (projected, w_hh, b_hh, *state)
    )
    if sizes is None and trained and w_hr is None:
        layer = _MemoryLayer if mode == "LSTM" else _Layer
        output, *last = layer.apply(mode, reverse, projected, w_hh, b_hh, *state)
        return output, tuple(last)
    # The state's gradient would be one more sum over the gates.
    steps = 1 if trained else len(data) if sizes is None else len(sizes)
    of_state = StateWeight(w_hh, b_hh, state[-1].shape[-1], steps)
    if sizes is None:
        outputs, state = run_steps(cell, projected.unbind(0), state, reverse)
        return torch.stack(outputs, 0), state
    outputs, state = run_packed(cell, projected.split(list(sizes)), state, sizes, reverse)
    return torch.cat(outputs, 0), state


def run_layers(
    mode: str,
    data: Any,
    states: State,
    weights: Sequence[Sequence[Any]],
    sizes: Sequence[int] | None,
    directions: int,
    dropout: float,
) -> tuple[Any, State]:
    """All layers on top of each other: (output of the last, last states).

    Args:
        mode, data, sizes: as `run_direction` takes them.
        states: (layers * directions, batch, width) each.
        weights: of each layer and direction, as `run_direction` takes them.
        directions: 1, or 2 whose outputs are joined.
        dropout: probability between layers, 0 outside of training.
    """
    layers = len(weights) // directions
    finals: list[State] = []
    for layer in range(layers):
        results = []
        for direction in range(directions):
            index = layer * directions + direction
            initial = tuple(state[index] for state in states)
            output, final = run_direction(
                mode, data, initial, weights[index], sizes, direction == 1
            )
            results.append(output)
            finals.append(final)
        data = results[0] if directions == 1 else torch.cat(results, -1)
        if dropout > 0 and layer < layers - 1:
            data = F.dropout(data, dropout)
    joined = tuple(torch.stack([final[k] for final in finals], 0) for k in range(len(states)))
    return data, joined
