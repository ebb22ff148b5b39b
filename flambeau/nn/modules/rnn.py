"""Recurrent layers and cells."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

import flambeau as torch
from flambeau.nn import init
from flambeau.nn.messages import problem
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.nn.utils.rnn import PackedSequence

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def apply_permutation(tensor: Any, permutation: Any, dim: int = 1) -> Any:
    """Rows of `tensor` in another order."""
    return tensor.index_select(dim, permutation)


def _draw(module: Module) -> None:
    bound = 1.0 / math.sqrt(module.hidden_size) if module.hidden_size > 0 else 0
    for weight in module.parameters():
        init.uniform_(weight, -bound, bound)


class RNNBase(Module):
    """The base of LSTM, GRU and RNN.

    Args:
        mode: "LSTM", "GRU", "RNN_TANH" or "RNN_RELU".
        input_size, hidden_size: widths of input and state.
        num_layers: layers on top of each other.
        bias: whether there are biases.
        batch_first: tensors are `(N, L, H)` instead of `(L, N, H)`.
        dropout: between layers.
        bidirectional: a second direction; outputs are joined.
        proj_size: width of the projected LSTM state; 0 for none.
    """

    __constants__ = ["mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first",
                     "dropout", "bidirectional", "proj_size"]  # fmt: skip

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._check(dropout)
        self._flat_weights_names: list[str] = []
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for direction in range(2 if bidirectional else 1):
                self._add_layer(layer, direction, {"device": device, "dtype": dtype})
        self.reset_parameters()

    def _check(self, dropout: Any) -> None:
        if not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1 or dropout is True:
            text = (
                "dropout should be a number in range [0, 1] representing the probability of an "
                "element being zeroed"
            )
            raise ValueError(problem(self.mode, text, "dropout=0.1"))
        if dropout > 0 and self.num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                f"dropout expects num_layers greater than 1, but got dropout={dropout} and "
                f"num_layers={self.num_layers}",
                stacklevel=4,
            )
        if not isinstance(self.hidden_size, int):
            text = f"hidden_size should be of type int, got: {type(self.hidden_size).__name__}"
            raise TypeError(problem(self.mode, text, "give an int"))
        if self.mode not in _GATES:
            raise ValueError(problem("RNNBase", "Unrecognized RNN mode: " + self.mode, "'LSTM'"))
        for name in ("hidden_size", "num_layers"):
            if getattr(self, name) <= 0:
                text = f"{name} must be greater than zero"
                raise ValueError(problem(self.mode, text, "give a positive number"))
        if self.proj_size < 0:
            text = "proj_size should be a positive integer or zero to disable projections"
            raise ValueError(problem(self.mode, text, "proj_size=0"))
        if self.proj_size >= self.hidden_size:
            text = "proj_size has to be smaller than hidden_size"
            raise ValueError(problem(self.mode, text, "give a smaller one"))

    def _add_layer(self, layer: int, direction: int, options: dict[str, Any]) -> None:
        rows = _GATES[self.mode] * self.hidden_size
        state = self.proj_size or self.hidden_size
        width = self.input_size if layer == 0 else state * (2 if self.bidirectional else 1)
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (rows, width),
            "weight_hh": (rows, state),
        }
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.proj_size > 0:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        suffix = f"_l{layer}" + ("_reverse" if direction else "")
        names = [name + suffix for name in shapes]
        for name, shape in zip(names, shapes.values()):
            setattr(self, name, Parameter(torch.empty(shape, **options)))
        self._flat_weights_names.extend(names)
        self._all_weights.append(names)

    @property
    def all_weights(self) -> list[list[Any]]:
        """The parameters, a list per layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights(self) -> list[Any]:
        return [getattr(self, name, None) for name in self._flat_weights_names]

    def flatten_parameters(self) -> None:
        """Nothing: the parameters need no common memory here."""

    def reset_parameters(self) -> None:
        """Draws new weights, uniform on (-1/sqrt(hidden_size), 1/sqrt(hidden_size))."""
        _draw(self)

    def extra_repr(self) -> str:
        """The sizes, and what differs from the defaults."""
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        for name, default in (("bias", True), ("batch_first", False), ("dropout", 0.0)):
            if getattr(self, name) is not default and getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text + (f", bidirectional={self.bidirectional}" if self.bidirectional else "")

    # ------------------------------------------------------------------------ checks
    def check_input(self, input: Any, batch_sizes: Any) -> None:
        """The input's dimensions and width."""
        expected = 2 if batch_sizes is not None else 3
        if input.dim() != expected:
            text = f"input must have {expected} dimensions, got {input.dim()}"
            raise RuntimeError(problem(self.mode, text, "(L, N, input_size)"))
        if self.input_size != input.size(-1):
            text = (
                "input.size(-1) must be equal to input_size. Expected "
                f"{self.input_size}, got {input.size(-1)}"
            )
            raise RuntimeError(problem(self.mode, text, "change input_size"))

    def get_expected_hidden_size(self, input: Any, batch_sizes: Any) -> tuple[int, int, int]:
        """Shape of the hidden state."""
        if batch_sizes is not None:
            batch = int(batch_sizes[0])
        else:
            batch = input.size(0) if self.batch_first else input.size(1)
        directions = 2 if self.bidirectional else 1
        return self.num_layers * directions, batch, self.proj_size or self.hidden_size

    def check_hidden_size(
        self,
        hx: Any,
        expected_hidden_size: tuple[int, int, int],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:
        """The state's shape."""
        if tuple(hx.size()) != tuple(expected_hidden_size):
            text = msg.format(expected_hidden_size, list(hx.size()))
            raise RuntimeError(problem(self.mode, text, "(layers * directions, N, hidden)"))

    def check_forward_args(self, input: Any, hidden: Any, batch_sizes: Any) -> None:
        """Input and state."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Any) -> Any:
        """The state with its batch in another order."""
        return hx if permutation is None else apply_permutation(hx, permutation)

    # ------------------------------------------------------------------------ forward
    def _zero_state(self, like: Any, shape: tuple[int, int, int]) -> Any:
        return torch.zeros(shape, dtype=like.dtype, device=like.device)

    def _run(self, data: Any, states: tuple[Any, ...], batch_sizes: Any) -> tuple[Any, ...]:
        """All layers as one function: a mode or a trace sees `torch.lstm`, not its steps."""
        function = getattr(torch, self.mode.lower())
        hx = states if len(states) > 1 else states[0]
        weights = [getattr(self, name) for names in self._all_weights for name in names]
        settings = (self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        if batch_sizes is not None:
            return function(data, batch_sizes, hx, weights, *settings)
        return function(data, hx, weights, *settings, self.batch_first)

    def _unpack_input(self, input: Any) -> tuple[Any, Any, Any, Any]:
        if isinstance(input, PackedSequence):
            return input.data, input.batch_sizes, input.sorted_indices, input.unsorted_indices
        return input, None, None, None

    def _forward(self, input: Any, states: Any, count: int) -> Any:
        """Common path; `states` is a tuple of `count` tensors or None."""
        data, batch_sizes, order, back = self._unpack_input(input)
        batched = batch_sizes is not None or self._check_dims(data)
        if not batched:
            dim = 0 if self.batch_first else 1
            data = data.unsqueeze(dim)
        shape = self.get_expected_hidden_size(data, batch_sizes)
        if states is None:
            states = self._initial_states(data, shape)
        else:
            if batch_sizes is None:
                self._check_state_dims(states, batched)
            if not batched:
                states = tuple(s.unsqueeze(1) for s in states)
            states = tuple(self.permute_hidden(s, order) for s in states)
        given = states if count > 1 else states[0]
        self.check_forward_args(data, given, batch_sizes)
        output, *states = self._run(data, states, batch_sizes)
        if batch_sizes is not None:
            output = PackedSequence(output, batch_sizes, order, back)
        states = tuple(self.permute_hidden(s, back) for s in states)
        if not batched:
            output = output.squeeze(0 if self.batch_first else 1)
            states = tuple(s.squeeze(1) for s in states)
        return output, states if count > 1 else states[0]

    def _initial_states(self, data: Any, shape: tuple[int, int, int]) -> tuple[Any, ...]:
        return (self._zero_state(data, shape),)

    def _check_dims(self, data: Any) -> bool:
        if data.dim() not in (2, 3):
            name = type(self).__name__
            text = f"{name}: Expected input to be 2D or 3D, got {data.dim()}D tensor instead"
            raise ValueError(problem(name, text, "(L, N, input_size) or (L, input_size)"))
        return data.dim() == 3

    def _check_state_dims(self, states: tuple[Any, ...], batched: bool) -> None:
        dims = 3 if batched else 2
        if any(state.dim() != dims for state in states):
            kind = "batched 3-D" if batched else "unbatched 2-D"
            found = tuple(state.dim() for state in states)
            got = f"({found[0]}-D, {found[1]}-D) tensors" if len(found) > 1 else f"{found[0]}-D"
            text = f"For {kind} input, hx should also be {dims}-D but got {got}" + (
                "" if len(found) > 1 else " tensor"
            )
            raise RuntimeError(problem(type(self).__name__, text, "unsqueeze the state"))


def _no_projection(name: str, kwargs: dict[str, Any]) -> None:
    if kwargs.get("proj_size", 0):
        text = "proj_size argument is only supported for LSTM, not RNN or GRU"
        raise ValueError(problem(name, text, "use nn.LSTM"))


class RNN(RNNBase):
    """Layers of h = tanh(W x + b + U h + c).

    Args:
        input_size, hidden_size, num_layers, nonlinearity ("tanh" or "relu"), bias, batch_first,
        dropout, bidirectional: see `RNNBase`.

    Example:
        >>> nn.RNN(3, 4, device="meta")(torch.zeros(5, 2, 3, device="meta"))[0].shape
        torch.Size([5, 2, 4])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _no_projection("RNN", kwargs)
        if len(args) > 3:
            self.nonlinearity = args[3]
            args = (*args[:3], *args[4:])
        else:
            self.nonlinearity = kwargs.pop("nonlinearity", "tanh")
        modes = {"tanh": "RNN_TANH", "relu": "RNN_RELU"}
        if self.nonlinearity not in modes:
            text = f"Unknown nonlinearity '{self.nonlinearity}'. Select from 'tanh' or 'relu'."
            raise ValueError(problem("RNN", text, "nonlinearity='tanh'"))
        super().__init__(modes[self.nonlinearity], *args, **kwargs)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """(output of the last layer, last state of each layer)."""
        return self._forward(input, None if hx is None else (hx,), 1)


class GRU(RNNBase):
    """Gated recurrent units (Cho et al. 2014); arguments of `RNNBase` without mode.

    Example:
        >>> nn.GRU(3, 4, device="meta")(torch.zeros(5, 2, 3, device="meta"))[0].shape
        torch.Size([5, 2, 4])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _no_projection("GRU", kwargs)
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """(output of the last layer, last state of each layer)."""
        return self._forward(input, None if hx is None else (hx,), 1)


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997); arguments of `RNNBase`.

    Example:
        >>> output, (h, c) = nn.LSTM(10, 20, 2)(torch.zeros(5, 3, 10))
        >>> output.shape, h.shape
        (torch.Size([5, 3, 20]), torch.Size([2, 3, 20]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(self, input: Any, batch_sizes: Any) -> tuple[int, int, int]:
        """Shape of the cell state."""
        layers, batch, _ = self.get_expected_hidden_size(input, batch_sizes)
        return layers, batch, self.hidden_size

    def check_forward_args(self, input: Any, hidden: Any, batch_sizes: Any) -> None:
        """Input and both states."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(
            hidden[0],
            self.get_expected_hidden_size(input, batch_sizes),
            "Expected hidden[0] size {}, got {}",
        )
        self.check_hidden_size(
            hidden[1],
            self.get_expected_cell_size(input, batch_sizes),
            "Expected hidden[1] size {}, got {}",
        )

    def permute_hidden(self, hx: Any, permutation: Any) -> Any:
        """The state (or both) with the batch in another order."""
        if isinstance(hx, tuple):
            return tuple(super(LSTM, self).permute_hidden(part, permutation) for part in hx)
        return super().permute_hidden(hx, permutation)

    def _initial_states(self, data: Any, shape: tuple[int, int, int]) -> tuple[Any, ...]:
        cell = (shape[0], shape[1], self.hidden_size)
        return self._zero_state(data, shape), self._zero_state(data, cell)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """(output of the last layer, (hidden state, cell state) of each layer)."""
        return self._forward(input, None if hx is None else tuple(hx), 2)


# ------------------------------------------------------------------------------ cells
class RNNCellBase(Module):
    """One step of a recurrent layer.

    Args:
        input_size, hidden_size: widths of input and state.
        bias: whether there are biases.
        num_chunks: number of gates.
    """

    __constants__ = ["input_size", "hidden_size", "bias"]
    _mode: str

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        options = {"device": device, "dtype": dtype}
        self.weight_ih = Parameter(torch.empty((rows, input_size), **options))
        self.weight_hh = Parameter(torch.empty((rows, hidden_size), **options))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(torch.empty(rows, **options)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new weights, uniform on (-1/sqrt(hidden_size), 1/sqrt(hidden_size))."""
        _draw(self)

    def extra_repr(self) -> str:
        """The sizes, and what differs from the defaults."""
        text = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            text += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text

    def _step(self, mode: str, input: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
        name = type(self).__name__
        if input.dim() not in (1, 2):
            text = f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead"
            raise ValueError(problem(name, text, "(N, input_size) or (input_size)"))
        for state in states:
            if state is not None and state.dim() not in (1, 2):
                text = f"{name}: Expected hidden to be 1D or 2D, got {state.dim()}D instead"
                raise ValueError(problem(name, text, "(N, hidden_size) or (hidden_size)"))
        batched = input.dim() == 2
        x = input if batched else input.unsqueeze(0)
        full = tuple(
            torch.zeros((x.size(0), self.hidden_size), dtype=x.dtype, device=x.device)
            if state is None
            else (state if batched else state.unsqueeze(0))
            for state in states
        )
        function = getattr(torch, f"{mode.lower()}_cell")
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        result = function(x, full if len(full) > 1 else full[0], *weights)
        result = result if len(full) > 1 else (result,)
        return result if batched else tuple(state.squeeze(0) for state in result)


class RNNCell(RNNCellBase):
    """h = tanh(W x + b + U h + c).

    Args:
        nonlinearity: "tanh" or "relu"; others as `RNNCellBase`.

    Example:
        >>> nn.RNNCell(3, 4, device="meta")(torch.zeros(2, 3, device="meta")).shape
        torch.Size([2, 4])
    """

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The next state."""
        modes = {"tanh": "RNN_TANH", "relu": "RNN_RELU"}
        if self.nonlinearity not in modes:
            text = f"Unknown nonlinearity: {self.nonlinearity}"
            raise RuntimeError(problem("RNNCell", text, "'tanh' or 'relu'"))
        return self._step(modes[self.nonlinearity], input, (hx,))[0]


class LSTMCell(RNNCellBase):
    """One LSTM step; arguments as `RNNCellBase`.

    Example:
        >>> nn.LSTMCell(3, 4, device="meta")(torch.zeros(2, 3, device="meta"))[0].shape
        torch.Size([2, 4])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """(hidden, cell) after the step."""
        return self._step("LSTM", input, (None, None) if hx is None else tuple(hx))  # type: ignore[return-value]


class GRUCell(RNNCellBase):
    """One GRU step; arguments as `RNNCellBase`.

    Example:
        >>> nn.GRUCell(3, 4, device="meta")(torch.zeros(2, 3, device="meta")).shape
        torch.Size([2, 4])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The next state."""
        return self._step("GRU", input, (hx,))[0]
