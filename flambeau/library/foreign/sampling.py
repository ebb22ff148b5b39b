"""Images read at fractional positions and in rectangles: what torchvision's operators share."""

from __future__ import annotations

from typing import Any

import flambeau as torch

Tensor = Any
CHUNK = 1 << 24  # elements that are read at a time


def corners(position: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The two pixels beside a position along one axis, and their weights.

    Positions more than one pixel outside have weights of 0; others outside read the border.

    Returns:
        Lower and upper index, and the weight of each.
    """
    inside = (position >= -1.0) & (position <= size)
    position = position.clamp(min=0)
    low = position.floor().clamp(max=size - 1)
    position = torch.where(low >= size - 1, low, position)
    upper_weight = position - low
    weights = (1 - upper_weight) * inside, upper_weight * inside
    low = low.long()
    return low, (low + 1).clamp(max=size - 1), *weights


def corners_within(position: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `corners`, but pixels outside of the image count as 0."""
    low = position.floor()
    upper_weight = position - low
    lower_inside = (low >= 0) & (low <= size - 1)
    upper_inside = (low >= -1) & (low <= size - 2)
    weights = (1 - upper_weight) * lower_inside, upper_weight * upper_inside
    low = low.detach().long()
    return low.clamp(0, size - 1), (low + 1).clamp(0, size - 1), *weights


def grid_sizes(lengths: Tensor, bins: int, sampling_ratio: int) -> Tensor:
    """Samples per bin along one axis, for each box."""
    if sampling_ratio > 0:
        return torch.full_like(lengths, sampling_ratio)
    return (lengths / bins).ceil()


def bin_positions(
    start: Tensor, length: Tensor, bins: int, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """Positions of samples along one axis, and which of them exist.

    Args:
        start: of each box, (K,).
        length: of each box, (K,).
        bins: per box.
        counts: samples per bin, (K,).

    Returns:
        Two tensors (K, bins, samples); boxes with fewer samples than others have False at the end.
    """
    most = max(int(counts.max()), 1) if counts.numel() else 1
    sample = torch.arange(most, dtype=start.dtype, device=start.device)
    index = torch.arange(bins, dtype=start.dtype, device=start.device)
    size = (length / bins)[:, None, None]
    step = size / counts[:, None, None].clamp(min=1)
    position = start[:, None, None] + index[None, :, None] * size + (sample + 0.5) * step
    return position, (sample < counts[:, None, None]).expand_as(position)


def bin_slices(start: Tensor, size: Tensor, bins: int, extent: int) -> tuple[Tensor, Tensor]:
    """Pixels of whole-numbered bins along one axis, and which of them exist.

    Args:
        start: first pixel of each box, (K,), whole numbers.
        size: of a bin, (K,).
        bins: per box.
        extent: of the image; bins end there.

    Returns:
        Indices and a mask, (K, bins, pixels).
    """
    index = torch.arange(bins, dtype=size.dtype, device=size.device)
    first = ((index * size[:, None]).floor() + start[:, None]).clamp(0, extent)
    last = (((index + 1) * size[:, None]).ceil() + start[:, None]).clamp(0, extent)
    most = max(int((last - first).max()), 1) if first.numel() else 1
    pixel = first[:, :, None] + torch.arange(most, dtype=size.dtype, device=size.device)
    exists = pixel < last[:, :, None]
    return pixel.long().clamp(max=extent - 1), exists
