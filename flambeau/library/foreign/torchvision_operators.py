"""`torch.ops.torchvision`: non-maximum suppression, regions of interest, deformable convolution.

Girshick 2015 (RoI pooling), He et al. 2017 (RoI align), Dai et al. 2016 and 2017
(position-sensitive pooling, deformable convolution). torchvision itself registers the sizes, the
derivatives and the casts of these operators; here are their values and the backward operators.
"""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.library.foreign import sampling
from flambeau.library.foreign.definition import define, gradients
from flambeau.library.registration import Library

Tensor = Any
LIBRARY = Library("torchvision", "DEF")
_BOXES = "Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_IMAGE = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
# Declared without a function: calls raise NotImplementedError.
LIBRARY.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
LIBRARY.define(
    "qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, "
    "float rois_scale, int rois_zero_point, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor"
)
LIBRARY.define("box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor")


@define(LIBRARY, "_cuda_version() -> int")
def _cuda_version() -> int:
    """-1: there is no CUDA."""
    return -1


@define(LIBRARY, "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Indices of the boxes that no box of a higher score overlaps, by falling score.

    Args:
        dets: (N, 4): left, top, right, bottom.
        scores: (N,).
        iou_threshold: the share of the union above which a box counts as the same.
    """
    _check_boxes(dets, scores)
    order = scores.argsort(stable=True, descending=True)
    boxes = dets[order]
    left, top, right, bottom = boxes.unbind(1)
    areas = (right - left) * (bottom - top)
    width = (_pairs(torch.minimum, right) - _pairs(torch.maximum, left)).clamp(min=0)
    height = (_pairs(torch.minimum, bottom) - _pairs(torch.maximum, top)).clamp(min=0)
    shared = width * height
    overlaps = shared / (areas[:, None] + areas - shared) > iou_threshold
    overlaps = overlaps.triu(1)  # by boxes of higher score alone
    stays = torch.ones_like(order, dtype=torch.bool)
    while True:  # box n is settled after at most n rounds
        settled = ~(overlaps & stays[:, None]).any(0)
        if torch.equal(settled, stays):
            return order[stays]
        stays = settled


def _check_boxes(dets: Tensor, scores: Tensor) -> None:
    for condition, text in (
        (dets.dim() == 2, f"boxes should be a 2d tensor, got {dets.dim()}D"),
        (dets.shape[-1:] == (4,), "boxes should have 4 elements in dimension 1"),
        (scores.dim() == 1, f"scores should be a 1d tensor, got {scores.dim()}D"),
        (
            dets.shape[:1] == scores.shape[:1],
            "boxes and scores should have same number of elements in dimension 0",
        ),
    ):
        if not condition:
            raise RuntimeError(f"[nms] {text}\nhint: boxes (N, 4) and scores (N,)")


def _pairs(function: Any, values: Tensor) -> Tensor:
    return function(values[:, None], values)


# ------------------------------------------------------------------------- regions of interest


def _sampled(image: Tensor, rois: Tensor, start: Tensor, length: Tensor, bins: Any, r: int) -> Any:
    """Indices (K, bins y, bins x, samples y, samples x, 4), their weights, counts of samples."""
    columns = []
    for axis in (0, 1):
        counts = sampling.grid_sizes(length[axis], bins[axis], r)
        position, exists = sampling.bin_positions(start[axis], length[axis], bins[axis], counts)
        low, high, lower, upper = sampling.corners(position, image.shape[2 + axis])
        weights = torch.stack([lower, upper], -1) * exists[..., None]
        columns.append((torch.stack([low, high], -1), weights, counts))
    (rows, row_weights, row_counts), (places, place_weights, place_counts) = columns
    index = _outer(rows * image.shape[3], places, torch.add)
    weights = _outer(row_weights, place_weights, torch.mul)
    return index, weights, (row_counts * place_counts).clamp(min=1)


def _outer(rows: Tensor, columns: Tensor, function: Any) -> Tensor:
    """(K, P, S, 2) and (K, Q, T, 2) as (K, P, Q, S * T * 4)."""
    return function(rows[:, :, None, :, None, :, None], columns[:, None, :, None, :, None]).flatten(
        3
    )


def _boxes(rois: Tensor, scale: float, offset: float) -> tuple[Any, Any]:
    """Starts and lengths of boxes, along y and x."""
    left, top, right, bottom = (rois[:, 1:] * scale - offset).unbind(1)
    return (top, left), (bottom - top, right - left)


def _read(image: Tensor, rois: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums of pixels, (K, C, P, Q)."""
    pixels = image.flatten(2)
    step = max(1, sampling.CHUNK // max(1, index[:1].numel() * image.shape[1]))
    parts = []
    for first in range(0, max(1, index.shape[0]), step):
        chunk = slice(first, first + step)
        batch = rois[chunk, 0].long()
        values = pixels[batch[:, None, None, None], :, index[chunk]]  # (k, P, Q, samples, C)
        parts.append((values * weights[chunk][..., None]).sum(3))
    return torch.cat(parts).permute(0, 3, 1, 2)


def _align(image: Tensor, rois: Tensor, scale: float, bins: Any, ratio: int, aligned: bool) -> Any:
    start, length = _boxes(rois, scale, 0.5 if aligned else 0.0)
    if not aligned:
        length = tuple(side.clamp(min=1.0) for side in length)
    index, weights, count = _sampled(image, rois, start, length, bins, ratio)
    return _read(image, rois, index, weights) / count[:, None, None, None]


@define(LIBRARY, f"roi_align(Tensor input, {_BOXES}, int sampling_ratio, bool aligned) -> Tensor")
def roi_align(
    input: Tensor, rois: Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool
) -> Tensor:
    """Means of bilinear samples in the bins of each box, (K, C, height, width)."""
    return _align(input, rois, scale, (height, width), ratio, aligned).contiguous()


@define(
    LIBRARY,
    f"_roi_align_backward(Tensor grad, {_BOXES}, {_IMAGE}, int sampling_ratio, bool aligned)"
    " -> Tensor",
)
def _roi_align_backward(grad: Tensor, rois: Tensor, scale: float, *options: Any) -> Tensor:
    """The gradient of `roi_align` with respect to the image."""
    bins, shape, (ratio, aligned) = options[:2], options[2:6], options[6:]

    def forward(image: Tensor) -> Tensor:
        return _align(image, rois, scale, bins, ratio, aligned)

    return gradients(forward, (grad.new_zeros(shape),), grad)[0]


def _position_sensitive(values: Tensor, channel: Tensor) -> Tensor:
    """Selects, of (K, C, P, Q), the channels of each bin: (K, C / (P Q), P, Q)."""
    return values.gather(1, channel.long())


def _channels(rois: Tensor, channels: int, bins: Any) -> Tensor:
    """The channel that each bin of each output reads, (K, channels / bins, P, Q)."""
    count = bins[0] * bins[1]
    if channels % count:
        raise RuntimeError(
            f"[ps_roi] input channels must be a multiple of pooling height * pooling width, got "
            f"{channels} and {count}\nhint: one channel for each bin of each output"
        )
    channel = torch.arange(channels, dtype=torch.int32, device=rois.device)
    channel = channel.view(channels // count, *bins)
    return channel.expand(rois.shape[0], -1, -1, -1).contiguous()


@define(LIBRARY, f"ps_roi_align(Tensor input, {_BOXES}, int sampling_ratio) -> (Tensor, Tensor)")
def ps_roi_align(
    input: Tensor, rois: Tensor, scale: float, height: int, width: int, ratio: int
) -> tuple[Tensor, Tensor]:
    """As `roi_align`, each bin from a channel of its own; also returns these channels."""
    channel = _channels(rois, input.shape[1], (height, width))
    values = _ps_align(input, rois, channel, scale, (height, width), ratio)
    return values.contiguous(), channel


def _ps_align(
    image: Tensor, rois: Tensor, channel: Tensor, scale: float, bins: Any, ratio: int
) -> Tensor:
    start, length = _boxes(rois, scale, 0.5)
    index, weights, count = _sampled(image, rois, start, length, bins, ratio)
    values = _read(image, rois, index, weights) / count[:, None, None, None]
    return _position_sensitive(values, channel)


@define(
    LIBRARY,
    "_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale,"
    f" SymInt pooled_height, SymInt pooled_width, int sampling_ratio, {_IMAGE}) -> Tensor",
)
def _ps_roi_align_backward(
    grad: Tensor, rois: Tensor, channel: Tensor, scale: float, *options: Any
) -> Tensor:
    """The gradient of `ps_roi_align` with respect to the image."""
    bins, ratio, shape = options[:2], options[2], options[3:]

    def forward(image: Tensor) -> Tensor:
        return _ps_align(image, rois, channel, scale, bins, ratio)

    return gradients(forward, (grad.new_zeros(shape),), grad)[0]


def _pixels(image: Tensor, start: Any, length: Any, bins: Any) -> tuple[Tensor, Tensor]:
    """Indices of the pixels of each bin, (K, P, Q, pixels), and which of them exist."""
    rows, columns = (
        sampling.bin_slices(
            start[axis], length[axis] / bins[axis], bins[axis], image.shape[2 + axis]
        )
        for axis in (0, 1)
    )
    index = rows[0][:, :, None, :, None] * image.shape[3] + columns[0][:, None, :, None, :]
    exists = rows[1][:, :, None, :, None] & columns[1][:, None, :, None, :]
    return index.flatten(3), exists.flatten(3)


def _away_from_zero(values: Tensor) -> Tensor:
    """Rounded to whole numbers, halves away from zero as C's `round` does."""
    truncated = values.trunc()
    return truncated + (values - truncated).abs().ge(0.5) * values.sign()


@define(LIBRARY, f"roi_pool(Tensor input, {_BOXES}) -> (Tensor, Tensor)")
def roi_pool(
    input: Tensor, rois: Tensor, scale: float, height: int, width: int
) -> tuple[Tensor, Tensor]:
    """The largest pixel in each bin of each box, and its index in the image (-1: no pixel)."""
    left, top, right, bottom = _away_from_zero(rois[:, 1:] * scale).unbind(1)
    length = (bottom - top + 1).clamp(min=1), (right - left + 1).clamp(min=1)
    index, exists = _pixels(input, (top, left), length, (height, width))
    pixels, parts = input.flatten(2), []
    step = max(1, sampling.CHUNK // max(1, index[:1].numel() * input.shape[1]))
    for first in range(0, max(1, index.shape[0]), step):
        chunk = slice(first, first + step)
        batch = rois[chunk, 0].long()[:, None, None, None]
        values = pixels[batch, :, index[chunk]].masked_fill(
            ~exists[chunk][..., None], float("-inf")
        )
        parts.append(values.argmax(3))
    place = torch.cat(parts).permute(0, 3, 1, 2)  # (K, C, P, Q) among the bin's pixels
    chosen = index[:, None].expand(-1, input.shape[1], -1, -1, -1)
    chosen = chosen.gather(4, place[..., None]).squeeze(4)
    empty = ~exists.any(3)[:, None]
    values = pixels[rois[:, 0].long()].gather(2, chosen.flatten(2)).view_as(chosen)
    return values.masked_fill(empty, 0), chosen.masked_fill(empty, -1).int()


@define(
    LIBRARY,
    "_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, float spatial_scale, "
    f"SymInt pooled_height, SymInt pooled_width, {_IMAGE}) -> Tensor",
)
def _roi_pool_backward(grad: Tensor, rois: Tensor, argmax: Tensor, *options: Any) -> Tensor:
    """The gradient of `roi_pool` with respect to the image."""
    batch, channels, height, width = options[3:]
    image = grad.new_zeros(batch * channels, height * width)
    first = rois[:, 0].long()[:, None] * channels + torch.arange(channels, device=rois.device)
    place = first[..., None] * (height * width) + argmax.flatten(2).clamp(min=0)
    values = grad.masked_fill(argmax < 0, 0)
    image = image.flatten().scatter_add(0, place.flatten(), values.flatten())
    return image.view(batch, channels, height, width)


def _ps_pool(
    image: Tensor, rois: Tensor, channel: Tensor, scale: float, bins: Any, border: int
) -> Tensor:
    """Means of bins that end *border* pixels before the image does, as torchvision's do."""
    left, top, right, bottom = _away_from_zero(rois[:, 1:] * scale).unbind(1)
    length = (bottom - top).clamp(min=1), (right - left).clamp(min=1)
    height, width = image.shape[2] - border, image.shape[3] - border
    index, exists = _pixels(image[:, :, :height, :width], (top, left), length, bins)
    index = index + index // max(1, width) * border  # as an index into whole rows
    weights = exists / exists.sum(3, keepdim=True).clamp(min=1)
    return _position_sensitive(_read(image, rois, index, weights.to(image.dtype)), channel)


@define(LIBRARY, f"ps_roi_pool(Tensor input, {_BOXES}) -> (Tensor, Tensor)")
def ps_roi_pool(
    input: Tensor, rois: Tensor, scale: float, height: int, width: int
) -> tuple[Tensor, Tensor]:
    """The mean of the pixels in each bin, from a channel of its own; also these channels."""
    channel = _channels(rois, input.shape[1], (height, width))
    return _ps_pool(input, rois, channel, scale, (height, width), 1).contiguous(), channel


@define(
    LIBRARY,
    "_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, "
    f"SymInt pooled_height, SymInt pooled_width, {_IMAGE}) -> Tensor",
)
def _ps_roi_pool_backward(
    grad: Tensor, rois: Tensor, channel: Tensor, scale: float, *options: Any
) -> Tensor:
    """The gradient of `ps_roi_pool` with respect to the image.

    Here bins reach to the image's end, unlike in the operator: so they do in torchvision.
    """

    def forward(image: Tensor) -> Tensor:
        return _ps_pool(image, rois, channel, scale, options[:2], 0)

    return gradients(forward, (grad.new_zeros(options[2:]),), grad)[0]


# ------------------------------------------------------------------------ deformable convolution

_DEFORMED = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)


@define(LIBRARY, f"deform_conv2d({_DEFORMED}) -> Tensor")
def deform_conv2d(
    input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *options: Any
) -> Tensor:
    """A convolution whose taps are moved by `offset` and scaled by `mask`."""
    return _deformed(input, weight, offset, mask, bias, options).contiguous()


def _deformed(
    image: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, options: Any
) -> Tensor:
    strides, pads, dilations = options[0:2], options[2:4], options[4:6]
    groups, offset_groups, use_mask = options[6:]
    batch, channels, height, width = image.shape
    kernel, size = weight.shape[2:], offset.shape[2:]
    moves = offset.view(batch, offset_groups, kernel[0] * kernel[1], 2, *size)
    positions = []
    for axis in (0, 1):
        tap = torch.arange(kernel[axis], device=image.device) * dilations[axis]
        tap = tap[:, None].expand(*kernel) if axis == 0 else tap.expand(*kernel)
        output = torch.arange(size[axis], device=image.device) * strides[axis] - pads[axis]
        output = output[:, None] if axis == 0 else output
        positions.append(tap.reshape(-1, 1, 1) + output + moves[:, :, :, axis])
    low_y, high_y, above, below = sampling.corners_within(positions[0], height)
    low_x, high_x, before, after = sampling.corners_within(positions[1], width)
    pixels = image.view(batch, offset_groups, channels // offset_groups, height * width)
    columns = 0
    for y, along_y in ((low_y, above), (high_y, below)):
        for x, along_x in ((low_x, before), (high_x, after)):
            index = (y * width + x).flatten(2)[:, :, None].expand(-1, -1, pixels.shape[2], -1)
            columns = columns + pixels.gather(3, index) * (along_y * along_x).flatten(2)[:, :, None]
    if use_mask:
        columns = columns * mask.view(batch, offset_groups, 1, -1)
    columns = columns.view(batch, groups, -1, size[0] * size[1])
    kernels = weight.view(groups, weight.shape[0] // groups, -1)
    return (kernels @ columns).view(batch, weight.shape[0], *size) + bias[:, None, None]


@define(
    LIBRARY,
    f"_deform_conv2d_backward(Tensor grad, {_DEFORMED})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _deform_conv2d_backward(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    *options: Any,
) -> tuple[Tensor, ...]:
    """Gradients of `deform_conv2d` with respect to image, weight, offset, mask and bias."""

    def forward(*operands: Tensor) -> Tensor:
        return _deformed(*operands, options)

    return gradients(forward, (input, weight, offset, mask, bias), grad)
