"""The two operations of a gradient scaler, under PyTorch's names; both run as one program each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.capture import recording

Tensor = Any


def _unscale(gradients: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor) -> None:
    flags = [torch.isfinite(x).logical_not().any() for x in gradients]
    bad = flags[0] if len(flags) == 1 else torch.stack(flags).any()
    found_inf.copy_(torch.where(bad, torch.ones_like(found_inf), found_inf))
    for x in gradients:  # PyTorch leaves values alone where the factor is 1: so does the product
        x.copy_(x.float() * inv_scale if x.dtype != torch.float64 else x * inv_scale)


def _amp_foreach_non_finite_check_and_unscale_(
    self: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor
) -> None:
    """Multiplies tensors by `inv_scale`; sets `found_inf` to 1 where one is infinite or nan.

    Example:
        >>> grads, bad = [torch.tensor([4.0, 8.0])], torch.zeros(1)
        >>> torch._amp_foreach_non_finite_check_and_unscale_(grads, bad, torch.tensor(0.5))
        >>> grads, bad
        ([tensor([2., 4.])], tensor([0.]))
    """
    if self:
        with torch.no_grad():
            recording.record_sealed(_unscale, (self, found_inf, inv_scale), {})


def _update(
    scale: Tensor, tracker: Tensor, bad: Tensor, growth: float, backoff: float, interval: int
) -> None:
    failed = bad.reshape(()) != 0
    after = tracker.reshape(()) + 1
    full = after == interval
    grown = scale * growth
    grown = torch.where(torch.isfinite(grown), grown, scale)
    new = torch.where(failed, scale * backoff, torch.where(full, grown, scale))
    scale.copy_(new)
    zero = torch.zeros_like(after)
    tracker.copy_(torch.where(failed | full, zero, after))


def _amp_update_scale_(
    self: Tensor,
    growth_tracker: Tensor,
    found_inf: Tensor,
    scale_growth_factor: float,
    scale_backoff_factor: float,
    growth_interval: int,
) -> Tensor:
    """Lowers a scale after a step with infinite gradients; raises it after many without.

    Example:
        >>> scale, steps = torch.tensor(8.0), torch.tensor(0, dtype=torch.int32)
        >>> torch._amp_update_scale_(scale, steps, torch.tensor(1.0), 2.0, 0.5, 2000)
        tensor(4.)
    """
    values = (self, growth_tracker, found_inf)
    factors = (scale_growth_factor, scale_backoff_factor, growth_interval)
    with torch.no_grad():
        recording.record_sealed(_update, (*values, *factors), {})
    return self
