"""`torch.lstm`, `gru`, `rnn_tanh`, `rnn_relu` and their cells: recurrent layers as functions.

PyTorch's inner signatures: the parameters are one flat list, layer by layer and direction by
direction. What runs is what runs in `nn.LSTM` and its relatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import _core
from flambeau._core import Tensor
from flambeau.nn import functional as F  # noqa: N812
from flambeau.nn.messages import problem
from flambeau.nn.modules.recurrence import CELLS, State, StateWeight, run_layers

_LAYER_TEXT = """Layers of {what}, as a function.

    Called as `{name}(input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
    batch_first)`, or as `{name}(data, batch_sizes, hx, params, has_biases, num_layers, dropout,
    train, bidirectional)` with a packed sequence.

    Shape: input `(L, N, I)`, or `(N, L, I)` where batch_first; states `(layers * directions, N, H)`
    -> output `(L, N, directions * H)` and the last states.

    Args:
        params: of each layer and direction the weights of input and state, then, where
            has_biases, their biases.

    Raises:
        RuntimeError: the parameters are not as many as the layers need.

    Example:
        >>> params = [torch.zeros({gates}, 2), torch.zeros({gates}, 1)]
        >>> state = torch.ones(1, 3, 1)
        >>> hx = {state}
        >>> output = torch.{name}(
        ...     torch.ones(5, 3, 2), hx, params, False, 1, 0.0, False, False, False
        ... )[0]
        >>> output.shape
        torch.Size([5, 3, 1])
    """
_CELL_TEXT = """One step of {what}, as a function.

    Shape: input `(N, I)`, states `(N, H)`, weights `(gates * H, I)` and `(gates * H, H)`.

    Example:
        >>> state = torch.ones(1, 1)
        >>> hx = {state}
        >>> torch.{name}(torch.ones(1, 2), hx, torch.zeros({gates}, 2), torch.zeros({gates}, 1)){at}
        tensor([[{value}]])
    """
# name: mode, what it is, gates, and the state after the cell's example.
_KINDS = {
    "lstm": ("LSTM", "long short-term memory (Hochreiter and Schmidhuber 1997)", 4, "0.2311"),
    "gru": ("GRU", "gated recurrent units (Cho et al. 2014)", 3, "0.5000"),
    "rnn_tanh": ("RNN_TANH", "h = tanh(W x + b + U h + c)", 1, "0."),
    "rnn_relu": ("RNN_RELU", "h = max(W x + b + U h + c, 0)", 1, "0."),
}


def _weights(
    name: str, params: Sequence[Any], has_biases: bool, count: int
) -> list[tuple[Any, ...]]:
    """The parameters of each layer and direction as `run_direction` takes them."""
    plain = 4 if has_biases else 2
    projected = name == "lstm" and len(params) == count * (plain + 1)
    each = plain + projected
    if len(params) != count * each:
        text = f"got {len(params)} parameters for {count} layers and directions of {plain} each"
        raise RuntimeError(problem(name, text, "one list of all of them"))
    found = []
    for start in range(0, len(params), each):
        group = list(params[start : start + each])
        last = group.pop() if projected else None
        found.append((*group, *(() if has_biases else (None, None)), last))
    return found


def _define_layer(name: str) -> Any:
    mode, what, gates, _ = _KINDS[name]

    def function(input: Any, *arguments: Any, **named: Any) -> Any:
        return _layer(name, mode, input, *arguments, **named)

    function.__name__ = function.__qualname__ = name
    state = "(state, state)" if name == "lstm" else "state"
    function.__doc__ = _LAYER_TEXT.format(name=name, what=what, gates=gates, state=state)
    return _core.shield(function, False, True)


def _layer(name: str, mode: str, data: Any, *arguments: Any) -> tuple[Any, ...]:
    states = 2 if name == "lstm" else 1
    if len(arguments) != 8:
        text = f"takes 9 arguments, got {len(arguments) + 1}"
        raise TypeError(problem(name, text, "see help(torch." + name + ")"))
    # A packed sequence's second argument are batch sizes, and its fourth the parameters.
    packed = isinstance(arguments[2], (list, tuple))
    sizes = arguments[0].tolist() if packed else None
    rest = arguments[1:] if packed else arguments
    hx, params, has_biases, layers, dropout, train, bidirectional = rest[:7]
    batch_first = not packed and rest[7]
    directions = 2 if bidirectional else 1
    weights = _weights(name, params, has_biases, layers * directions)
    given: State = tuple(hx) if states == 2 else (hx,)
    rate = float(dropout) if train else 0.0
    steps = data.transpose(0, 1) if batch_first else data
    output, last = run_layers(mode, steps, given, weights, sizes, directions, rate)
    return (output.transpose(0, 1) if batch_first else output, *last)


def _define_cell(name: str) -> Any:
    mode, what, gates, value = _KINDS[name]

    def function(
        input: Any,
        hx: Any,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Any:
        states: State = tuple(hx) if name == "lstm" else (hx,)
        projected = F.linear(input, w_ih, b_ih)
        _, result = CELLS[mode](projected, states, StateWeight(w_hh, b_hh))
        return result if name == "lstm" else result[0]

    function.__name__ = function.__qualname__ = f"{name}_cell"
    state, at = ("(state, state)", "[0]") if name == "lstm" else ("state", "")
    function.__doc__ = _CELL_TEXT.format(
        name=f"{name}_cell", what=what, gates=gates, state=state, at=at, value=value
    )
    return _core.shield(function, False, True)


lstm, gru, rnn_tanh, rnn_relu = map(_define_layer, _KINDS)
lstm_cell, gru_cell, rnn_tanh_cell, rnn_relu_cell = map(_define_cell, _KINDS)
