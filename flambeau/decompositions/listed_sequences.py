"""Inner operators of sequences: alignment losses, Sobol points, layers of oneDNN's form."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.decompositions.inner_gradients import gradients
from flambeau.decompositions.listed import listed
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.ops.neural.ctc import losses_of

__all__: list[str] = []

Tensor = Any
Value = Any


# ------------------------------------------------------------------------------ alignment
@listed("_ctc_loss", "_ctc_loss.Tensor")
def _ctc_loss(
    log_probs: Tensor, targets: Tensor, inputs: Value, lengths: Value, blank: int, zero: bool
) -> Value:
    losses, _, alpha = losses_of(log_probs, targets, inputs, lengths, blank, zero)
    if zero:  # it is the gradient alone that does not see infinite losses
        infinite = losses_of(log_probs.detach(), targets, inputs, lengths, blank, False)[0].isinf()
        losses = torch.where(infinite, math.inf, losses)
    alpha = alpha.transpose(0, 1).contiguous()
    return (losses, alpha) if log_probs.ndim == 3 else (losses.squeeze(0), alpha.squeeze(0))


@listed("_ctc_loss_backward", "_ctc_loss_backward.Tensor")
def _ctc_loss_backward(
    grad: Tensor, log_probs: Tensor, targets: Tensor, inputs: Value, lengths: Value,
    losses: Tensor, alpha: Tensor, blank: int, zero: bool,
) -> Tensor:  # fmt: skip
    def loss(x: Tensor) -> Tensor:
        return losses_of(x, targets, inputs, lengths, blank, zero)[0].reshape(grad.shape)

    return gradients(loss, [log_probs], grad)[0]


# ------------------------------------------------------------------------------ Sobol points
def _check_points(name: str, **operands: Tensor) -> None:
    """Refuses points and direction numbers that are no int64.

    Raises:
        RuntimeError: another dtype.
    """
    for role, x in operands.items():
        if x.dtype is not torch.int64:
            problem = f"{role} needs to be of type Long, but it is of {x.dtype}"
            raise failure(RuntimeError, name, problem, "convert it with .long()")


@listed("_sobol_engine_initialize_state_")
def _sobol_engine_initialize_state_(self: Tensor, dimension: int) -> Tensor:
    _check_points("_sobol_engine_initialize_state_", sobolstate=self)
    with torch.no_grad():
        return self.copy_(late("flambeau.quasirandom").initial_state(dimension))


@listed("_sobol_engine_scramble_")
def _sobol_engine_scramble_(self: Tensor, matrices: Tensor, dimension: int) -> Tensor:
    _check_points("_sobol_engine_scramble_", sobolstate=self, ltm=matrices)
    with torch.no_grad():
        return self.copy_(late("flambeau.quasirandom").scrambled(self, matrices))


def _steps(quasi: Tensor, state: Tensor, generated: int, first: int, count: int) -> Tensor:
    """Integer points `first` to `first + count - 1`, if `quasi` is point `generated`."""
    _check_points("_sobol_engine_draw", quasi=quasi, sobolstate=state)
    points = late("flambeau.quasirandom").integer_points
    start = points(quasi, state, generated, 1)[0]  # exclusive or is its own inverse
    return points(start, state, first, count)


@listed("_sobol_engine_draw")
def _sobol_engine_draw(
    quasi: Tensor, n: int, state: Tensor, dimension: int, generated: int, dtype: Value
) -> Value:
    points = _steps(quasi, state, generated, generated + 1, n)
    target = torch.float32 if dtype is None else dtype
    if not target.is_floating_point:
        problem = f"not implemented for {target}"
        raise failure(NotImplementedError, "_sobol_engine_draw", problem, "torch.float32")
    last = points[-1].clone() if n else quasi.clone()
    return points.to(target) * 2.0**-30, last


@listed("_sobol_engine_ff_")
def _sobol_engine_ff_(
    self: Tensor, n: int, state: Tensor, dimension: int, generated: int
) -> Tensor:
    with torch.no_grad():
        return self.copy_(_steps(self, state, generated, generated + n, 1)[0])


# ------------------------------------------------------------------------------ recurrent layers
@listed("mkldnn_rnn_layer")
def _rnn_layer(
    input: Tensor, weight0: Tensor, weight1: Tensor, weight2: Tensor, weight3: Tensor,  # noqa: A002
    hx: Tensor, cx: Tensor, reverse: bool, batch_sizes: Value, mode: int, hidden: int, layers: int,
    has_biases: bool, bidirectional: bool, batch_first: bool, train: bool,
) -> Value:  # fmt: skip
    if mode != 2 or batch_sizes:
        problem = f"mode={mode}, batch_sizes={batch_sizes}: an LSTM layer of one length is there"
        raise failure(RuntimeError, "mkldnn_rnn_layer", problem, "torch.lstm, torch.gru")
    steps = input.flip(0) if reverse else input
    weights = [weight0, weight1, *((weight2, weight3) if has_biases else ())]
    states = [x.reshape(1, input.shape[1], hidden) for x in (hx, cx)]
    y, hy, cy = torch.lstm(steps, states, weights, has_biases, 1, 0.0, train, False, False)
    y = y.flip(0) if reverse else y
    return y, hy.reshape(hx.shape), cy.reshape(cx.shape), input.new_empty((0,), dtype=torch.uint8)


@listed("mkldnn_rnn_layer_backward")
def _rnn_layer_backward(
    input: Tensor, weight0: Tensor, weight1: Tensor, weight2: Tensor, weight3: Tensor,  # noqa: A002
    hx: Tensor, cx: Tensor, output: Tensor, hy: Tensor, cy: Tensor, of_output: Value, of_hy: Value,
    of_cy: Value, reverse: bool, mode: int, hidden: int, layers: int, biases: bool, *flags: Value,
) -> Value:  # fmt: skip
    train, bidirectional, batch_sizes, batch_first, _ = flags
    pairs = [(of_output, output), (of_hy, hy), (of_cy, cy)]
    factors = [torch.zeros_like(x) if grad is None else grad for grad, x in pairs]

    def layer(*operands: Tensor) -> Tensor:
        results = _rnn_layer(*operands, reverse, batch_sizes, mode, hidden, layers, biases,
                             bidirectional, batch_first, train)  # fmt: skip
        return torch.cat([x.reshape(-1) for x in results[:3]])

    operands = [input, weight0, weight1, weight2, weight3, hx, cx]
    grad = torch.cat([x.reshape(-1) for x in factors])
    return tuple(gradients(layer, operands, grad))
