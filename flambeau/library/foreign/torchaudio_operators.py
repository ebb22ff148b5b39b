"""`torch.ops.torchaudio`: recursive filters, alignment and the transducer's loss.

Graves et al. 2006 (connectionist temporal classification: the most likely path), Graves 2012
(sequence transduction). torchaudio has the derivatives of filters; the loss's is here.
"""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.library.foreign.definition import define
from flambeau.library.registration import Library

Tensor = Any
LIBRARY = Library("torchaudio", "DEF")
_FLAGS = Library("_torchaudio", "DEF")


@define(_FLAGS, "is_align_available() -> bool")
def is_align_available() -> bool:
    """True: forced alignment is there."""
    return True


@define(_FLAGS, "cuda_version() -> int?")
def cuda_version() -> None:
    """None: there is no CUDA."""


@define(
    LIBRARY,
    "_lfilter_core_loop(Tensor input_signal_windows, Tensor a_coeff_flipped, "
    "Tensor(a!) padded_output_waveform) -> Tensor(a!)",
)
def lfilter_core_loop(windows: Tensor, coefficients: Tensor, output: Tensor) -> Tensor:
    """A recursive filter: subtracts the weighted former outputs from each input, in place.

    Args:
        windows: (batch, channels, samples), the input after the other half of the filter.
        coefficients: (channels, order + 1), of the latest output last; 1 for the latest itself.
        output: (batch, channels, order + samples), zeros at its beginning.
    """
    order = coefficients.shape[1] - 1
    weights = coefficients[:, :order]
    state = output[:, :, :order]
    samples = []
    for sample in windows.unbind(2):
        latest = sample - (state * weights).sum(2)
        samples.append(latest)
        state = torch.cat([state[:, :, 1:], latest[:, :, None]], 2) if order else state
    if samples:
        output[:, :, order:] = torch.stack(samples, 2)
    return output


@define(
    LIBRARY,
    "_overdrive_core_loop(Tensor waveform, Tensor temp, Tensor(a!) last_in, Tensor(b!) last_out, "
    "Tensor(c!) output_waveform) -> (Tensor(a!), Tensor(b!), Tensor(c!))",
)
def overdrive_core_loop(
    waveform: Tensor, temp: Tensor, last_in: Tensor, last_out: Tensor, output: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The differences of `temp`, decayed and summed, mixed with the waveform, in place."""
    before, state, samples = last_in.clone(), last_out.clone(), []
    for sample in temp.unbind(1):
        state = sample - before + 0.995 * state
        before = sample
        samples.append(state)
    if samples:
        output.copy_(waveform * 0.5 + torch.stack(samples, 1) * 0.75)
    last_in.copy_(before)
    last_out.copy_(state)
    return last_in, last_out, output


@define(
    LIBRARY,
    "forced_align(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, "
    "int blank) -> (Tensor, Tensor)",
)
def forced_align(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int
) -> tuple[Tensor, Tensor]:
    """The most likely label of each frame among all paths that spell the targets; *log_probs*.

    Raises:
        RuntimeError: more labels than frames.
    """
    frames, labels = int(input_lengths[0]), targets[0, : int(target_lengths[0])].tolist()
    repeats = sum(a == b for a, b in zip(labels, labels[1:], strict=False))
    if frames < len(labels) + repeats:
        raise RuntimeError(
            f"[forced_align] targets length is too long for CTC: {frames} frames, {len(labels)} "
            f"labels, {repeats} repeats\nhint: shorten the targets"
        )
    path = _best_path(log_probs[0, :frames], labels, blank)
    return torch.tensor([path], dtype=targets.dtype), log_probs.detach()


def _best_path(scores: Tensor, labels: list[int], blank: int) -> list[int]:
    states = [blank]
    for label in labels:
        states += [label, blank]
    emissions = scores[:, torch.tensor(states)]
    count = len(states)
    skips = [False] * count  # from two states before: between different labels
    for place in range(3, count, 2):
        skips[place] = states[place] != states[place - 2]
    never = torch.full((2,), float("-inf"), dtype=scores.dtype)
    may_skip = torch.tensor(skips)
    best = torch.cat([emissions[0, :2], never[:1].expand(max(0, count - 2))])[:count]
    moves = []
    for frame in range(1, emissions.shape[0]):
        padded = torch.cat([never, best])
        one, two = padded[1 : count + 1], padded[:count].masked_fill(~may_skip, float("-inf"))
        choice = torch.where(two > torch.maximum(best, one), 2, torch.where(one > best, 1, 0))
        best = torch.stack([best, one, two]).amax(0) + emissions[frame]
        moves.append(choice.tolist())
    last = best.tolist()
    place = count - 1 if count == 1 or last[-1] > last[-2] else count - 2
    path = [states[place]]
    for choice in reversed(moves):
        place -= choice[place]
        path.append(states[place])
    return path[::-1]


@define(
    LIBRARY,
    "rnnt_loss_forward(Tensor logits, Tensor targets, Tensor logit_lengths, "
    "Tensor target_lengths, int blank, float clamp, bool fused_log_softmax) -> (Tensor, Tensor)",
)
def rnnt_loss_forward(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    clamp: float,
    fused_log_softmax: bool,
) -> tuple[Tensor, Tensor]:
    """Costs of a transducer, (batch,), and their gradient with respect to the logits.

    Args:
        logits: (batch, frames, labels + 1, classes).
        clamp: the largest gradient, where it is positive.
        fused_log_softmax: whether *logits* are not normalized yet.
    """
    with torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        scores = leaf.log_softmax(-1) if fused_log_softmax else leaf
        costs = torch.stack(
            [
                _transducer_cost(scores[n, :frames, : labels + 1], targets[n, :labels], blank)
                for n, (frames, labels) in enumerate(
                    zip(logit_lengths.tolist(), target_lengths.tolist(), strict=True)
                )
            ]
        )
        (gradient,) = torch.autograd.grad(costs.sum(), leaf)
    if clamp > 0:
        gradient = gradient.clamp(-clamp, clamp)
    return costs.detach(), gradient


def _transducer_cost(scores: Tensor, labels: Tensor, blank: int) -> Tensor:
    """Minus the logarithm of the sum over all paths, by diagonals of frame + label."""
    frames, states = scores.shape[:2]
    stays = scores[:, :, blank]
    emits = scores[:, :-1].gather(2, labels.long().expand(frames, -1)[..., None]).squeeze(2)
    rows: list[list[Any]] = [[None] * states for _ in range(frames)]
    rows[0][0] = scores.new_zeros(())
    for frame in range(frames):
        for state in range(states):
            ways = []
            if frame:
                ways.append(rows[frame - 1][state] + stays[frame - 1, state])
            if state:
                ways.append(rows[frame][state - 1] + emits[frame, state - 1])
            if ways:
                rows[frame][state] = torch.stack(ways).logsumexp(0)
    return -(rows[-1][-1] + stays[-1, -1])
