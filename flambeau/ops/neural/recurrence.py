"""One step of a recurrent layer after its matrix products: what LSTM and GRU do with the gates.

Each is one kernel; with `saving` it also gives what the layer's own backward pass needs
(`nn/modules/recurrence.py`), the `_backward` form is that pass's step. Sources: Hochreiter and
Schmidhuber 1997, Cho et al. 2014.
"""

from __future__ import annotations

from collections.abc import Iterator

from flambeau import prims
from flambeau.ir.environment import same_size
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size, floordiv
from flambeau.language.definition import op
from flambeau.language.samples import Sample, T, sample
from flambeau.language.schema import Tensor


def _parts(gates: Node, count: int) -> list[Node]:
    """The gates, which stand beside each other in the last dimension."""
    width = floordiv(gates.shape[-1], count)
    last = gates.ndim - 1
    return [prims.slice(gates, last, width * i, width) for i in range(count)]


def _joined(parts: list[Node]) -> Node:
    return prims.cat(parts, parts[0].ndim - 1)


def _gates_of_state(
    name: str, product: Node, bias: Node | None, width: Size, count: int
) -> list[Node]:
    """The gates from the state: beside each other in the last dimension or, (gates, batch, width),
    each on its own; the bias is added."""
    if product.ndim == 2:
        if not same_size(product.shape[-1], width * count):
            problem = f"the gates are not {count} times as wide as the state"
            raise failure(
                RuntimeError, name, problem, "weights of shape (gates * hidden_size, ...)"
            )
        gates = _parts(product, count)
    else:
        parts = [prims.slice(product, 0, i, 1) for i in range(count)]
        gates = [prims.reshape(part, part.shape[1:]) for part in parts]
    if bias is None:
        return gates
    return [gate + part for gate, part in zip(gates, _parts(bias, count), strict=True)]


def _lstm_samples() -> Iterator[Sample]:
    yield sample(T(3, 8), T(3, 8), T(3, 2))
    yield sample(T(3, 8), T(4, 3, 2), T(3, 2), T(8))
    yield sample(T(3, 8), T(3, 8), T(3, 2), saving=True)


def _lstm(
    from_input: Node, from_state: Node, memory: Node, bias: Node | None
) -> tuple[Node, Node, list[Node]]:
    of_state = _gates_of_state("LSTM", from_state, bias, memory.shape[-1], 4)
    of_input = _parts(from_input, 4)
    enter, forget, candidate, leave = (a + b for a, b in zip(of_input, of_state, strict=True))
    enter, forget, leave = (prims.sigmoid(x) for x in (enter, forget, leave))
    candidate = prims.tanh(candidate)
    memory = forget * memory + enter * candidate
    return leave * prims.tanh(memory), memory, [enter, forget, candidate, leave]


@op(name="_lstm_step", where="private", promote="keep", samples=_lstm_samples)
def lstm_step(
    from_input: Tensor,
    from_state: Tensor,
    memory: Tensor,
    bias: Tensor | None = None,
    saving: bool = False,
) -> tuple[Tensor, ...]:
    """Hidden state and memory from both products' gates: input, forget, cell, output.

    Saving: and the gates after their activations.
    """
    hidden, new, gates = _lstm(from_input, from_state, memory, bias)
    return (hidden, new, _joined(gates)) if saving else (hidden, new)


@op(
    name="_lstm_step_backward",
    kind="step",
    samples=lambda: [sample(*[T(3, 2)] * 3, T(3, 8), T(3, 2), T(3, 2))],
)
def lstm_step_backward(
    grad_output: Tensor,
    grad_hidden: Tensor,
    grad_memory: Tensor,
    gates: Tensor,
    memory: Tensor,
    new_memory: Tensor,
) -> tuple[Tensor, Tensor]:
    """Gradients of the gates before their activations, and of the memory before the step."""
    enter, forget, candidate, leave = _parts(gates, 4)
    grad = grad_output + grad_hidden
    reached = prims.tanh(new_memory)
    inner = grad_memory + grad * leave * (1.0 - reached * reached)
    gradients = [
        inner * candidate * (enter * (1.0 - enter)),
        inner * memory * (forget * (1.0 - forget)),
        inner * enter * (1.0 - candidate * candidate),
        grad * reached * (leave * (1.0 - leave)),
    ]
    return _joined(gradients), inner * forget


def _gru_samples() -> Iterator[Sample]:
    yield sample(T(3, 6), T(3, 6), T(3, 2))
    yield sample(T(3, 6), T(3, 3, 2), T(3, 2), T(6))
    yield sample(T(3, 6), T(3, 6), T(3, 2), saving=True)


def _gru(
    from_input: Node, from_state: Node, hidden: Node, bias: Node | None
) -> tuple[Node, list[Node]]:
    reset_x, update_x, new_x = _parts(from_input, 3)
    reset_h, update_h, new_h = _gates_of_state("GRU", from_state, bias, hidden.shape[-1], 3)
    reset, update = prims.sigmoid(reset_x + reset_h), prims.sigmoid(update_x + update_h)
    new = prims.tanh(new_x + reset * new_h)
    return (hidden - new) * update + new, [reset, update, new, new_h]


@op(name="_gru_step", where="private", promote="keep", samples=_gru_samples)
def gru_step(
    from_input: Tensor,
    from_state: Tensor,
    hidden: Tensor,
    bias: Tensor | None = None,
    saving: bool = False,
) -> Tensor | tuple[Tensor, ...]:
    """The next hidden state from both products' gates: reset, update, new.

    Saving: and (reset, update, new, the state's share of new).
    """
    result, parts = _gru(from_input, from_state, hidden, bias)
    return (result, _joined(parts)) if saving else result


@op(
    name="_gru_step_backward",
    kind="step",
    samples=lambda: [sample(T(3, 2), T(3, 2), T(3, 8), T(3, 2))],
)
def gru_step_backward(
    grad_output: Tensor, grad_hidden: Tensor, gates: Tensor, hidden: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the gates from the input, of those from the state, and of the state beside."""
    reset, update, new, new_h = _parts(gates, 4)
    grad = grad_output + grad_hidden
    inner = grad * (1.0 - update) * (1.0 - new * new)
    of_reset = inner * new_h * (reset * (1.0 - reset))
    of_update = grad * (hidden - new) * (update * (1.0 - update))
    from_input = _joined([of_reset, of_update, inner])
    return from_input, _joined([of_reset, of_update, inner * reset]), grad * update


def _rnn_samples() -> Iterator[Sample]:
    yield sample(T(3, 2), T(3, 2), False)
    yield sample(T(3, 2), T(3, 2), True)
    yield sample(T(3, 2), T(1, 3, 2), False, T(2))


@op(name="_rnn_step", where="private", promote="keep", samples=_rnn_samples)
def rnn_step(
    from_input: Tensor, from_state: Tensor, rectified: bool, bias: Tensor | None = None
) -> Tensor:
    """The next hidden state: the sum's tangent, or its positive part."""
    from flambeau.ops.pointwise.activation import relu

    (of_state,) = _gates_of_state("RNN", from_state, bias, from_input.shape[-1], 1)
    total = from_input + of_state
    return relu(total) if rectified else prims.tanh(total)  # type: ignore[no-any-return]


@op(
    name="_rnn_step_backward",
    kind="step",
    samples=lambda: [sample(T(3, 2), T(3, 2), T(3, 2), False)],
)
def rnn_step_backward(
    grad_output: Tensor, grad_hidden: Tensor, hidden: Tensor, rectified: bool
) -> Tensor:
    """Gradient of the sum, from those of the hidden state after the step."""
    grad = grad_output + grad_hidden
    if rectified:
        return prims.where(hidden > 0.0, grad, prims.zeros_like(grad))
    return grad * (1.0 - hidden * hidden)
