"""Rearrangements of images: pixel shuffles, sliding blocks and their sums, sampling grids.

All are views of windows, reshapes and permutations; `fold` adds the blocks `unfold` takes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.node import Node
from flambeau.ir.size import Size, prod
from flambeau.language.definition import function, op
from flambeau.language.layout import same
from flambeau.language.promotion import CATEGORY, default_dtype
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.broadcasting import averaged, is_float
from flambeau.ops.cast_rules import by_arguments
from flambeau.ops.common import shown, static_size
from flambeau.ops.neural.convolution import add_windows, numbers, windows_of

_F = "nn.functional"


def _check_factor(name: str, x: Node, what: str, factor: int) -> None:
    if x.ndim < 3:
        problem = f"expects input to have at least 3 dimensions, but got input with {x.ndim} "
        problem += "dimension(s)"
        raise failure(RuntimeError, name, problem, "(*, C, H, W)")
    if factor <= 0:
        problem = f"expects a positive {what}, but got {factor}"
        raise failure(RuntimeError, name, problem, f"{what} >= 1")


@op(
    where=f"torch {_F}",
    layout="images",
    samples=lambda: [sample(T(2, 8, 3, 2), 2), sample(T(9, 2, 2), 3), sample(T(4, 3, 2), 1)],
    errors=lambda: [ErrorSample(sample(T(1, 2, 4, 4), 2), RuntimeError, "divisible")],
)
def pixel_shuffle(self: Tensor, upscale_factor: int) -> Tensor:
    """Channels become pixels: `(*, C r^2, H, W)` -> `(*, C, H r, W r)` (Shi et al. 2016).

    Raises:
        RuntimeError: the channels are no multiple of r^2.

    Example:
        >>> torch.pixel_shuffle(torch.arange(4.0).reshape(4, 1, 1), 2)
        tensor([[[0., 1.],
                 [2., 3.]]])
    """
    r = upscale_factor
    _check_factor("pixel_shuffle", self, "upscale_factor", r)
    channels = static_size(self.shape[-3])
    if channels % (r * r):
        problem = "expects its input's 'channel' dimension to be divisible by the square of "
        problem += f"upscale_factor, but input.size(-3)={channels} is not divisible by {r * r}"
        raise failure(RuntimeError, "pixel_shuffle", problem, "(*, C r^2, H, W)")
    lead, (high, wide) = self.shape[:-3], self.shape[-2:]
    n = len(lead)
    parts = prims.reshape(self, (*lead, channels // (r * r), r, r, high, wide))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    shape = (*lead, channels // (r * r), high * r, wide * r)
    return prims.reshape(prims.permute(parts, order), shape)


@op(
    where=f"torch {_F}",
    layout="images",
    samples=lambda: [sample(T(2, 2, 6, 4), 2), sample(T(1, 3, 6), 3)],
    errors=lambda: [ErrorSample(sample(T(1, 2, 4, 4), 3), RuntimeError, "divisible")],
)
def pixel_unshuffle(self: Tensor, downscale_factor: int) -> Tensor:
    """Pixels become channels: `(*, C, H r, W r)` -> `(*, C r^2, H, W)`.

    Raises:
        RuntimeError: height or width are no multiple of r.

    Example:
        >>> torch.pixel_unshuffle(torch.zeros(1, 4, 6), 2).shape
        torch.Size([4, 2, 3])
    """
    r = downscale_factor
    _check_factor("pixel_unshuffle", self, "downscale_factor", r)
    lead, channels = self.shape[:-3], self.shape[-3]
    high, wide = (static_size(s) for s in self.shape[-2:])
    for what, size, d in (("height", high, -2), ("width", wide, -1)):
        if size % r:
            problem = f"expects {what} to be divisible by downscale_factor, but "
            problem += f"input.size({d})={size} is not divisible by {r}"
            raise failure(RuntimeError, "pixel_unshuffle", problem, "pad the input")
    n = len(lead)
    parts = prims.reshape(self, (*lead, channels, high // r, r, wide // r, r))
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    shape = (*lead, channels * (r * r), high // r, wide // r)
    return prims.reshape(prims.permute(parts, order), shape)


@op(
    where=f"torch {_F}",
    layout="images",
    aliases="native_channel_shuffle",
    samples=lambda: [sample(T(2, 6, 3, 2), 2), sample(T(1, 4, 5), 4)],
    errors=lambda: [ErrorSample(sample(T(1, 3, 4), 2), RuntimeError, "divisible")],
)
def channel_shuffle(self: Tensor, groups: int) -> Tensor:
    """Channel g C/groups + c moves to c groups + g: groups are interleaved (Zhang et al. 2018).

    Raises:
        RuntimeError: fewer than 3 dimensions, or channels that do not divide by the groups.

    Example:
        >>> torch.channel_shuffle(torch.arange(4).reshape(1, 4, 1), 2).reshape(4)
        tensor([0, 2, 1, 3])
    """
    if self.ndim < 3:
        problem = f"expects input with > 2 dims, but got input with sizes {shown(self.shape)}"
        raise failure(RuntimeError, "channel_shuffle", problem, "(N, C, *)")
    channels = static_size(self.shape[1])
    if groups <= 0 or channels % groups:
        problem = f"Number of channels must be divisible by groups. Got {channels} channels and "
        problem += f"{groups} groups."
        raise failure(RuntimeError, "channel_shuffle", problem, "choose a divisor of the channels")
    batch, spatial = self.shape[0], self.shape[2:]
    parts = prims.reshape(self, (batch, groups, channels // groups, *spatial))
    return prims.reshape(prims.transpose(parts, 1, 2), self.shape)


# ------------------------------------------------------------------------------ blocks


def _unfold_samples() -> Iterator[Sample]:
    yield sample(T(2, 3, 5, 6), 2)
    yield sample(T(3, 5, 6), (3, 2), 1, 1, 2)
    yield sample(T(1, 2, 7, 8), (2, 3), (2, 1), (1, 2), (2, 1))


_BLOCKS = "int[] kernel_size, int[] dilation=1, int[] padding=0, int[] stride=1"


def _block_numbers(
    name: str, kernel: Any, dilation: Any, padding: Any, stride: Any
) -> tuple[tuple[int, ...], ...]:
    pairs = (
        numbers(name, "kernel_size", kernel, 2),
        numbers(name, "dilation", dilation, 2),
        numbers(name, "padding", padding, 2),
        numbers(name, "stride", stride, 2),
    )
    for what, values in (("kernel size", pairs[0]), ("dilation", pairs[1]), ("stride", pairs[3])):
        if any(v <= 0 for v in values):
            problem = f"{what} should be greater than zero, but got "
            problem += f"{what.replace(' ', '_')}={values}"
            raise failure(RuntimeError, name, problem, "at least 1")
    if any(v < 0 for v in pairs[2]):
        problem = f"padding should be non-negative, but got padding={pairs[2]}"
        raise failure(RuntimeError, name, problem, "crop")
    return pairs


def _block_counts(
    name: str, size: Sequence[int], chosen: tuple[tuple[int, ...], ...], what: str
) -> tuple[int, ...]:
    kernel, dilation, padding, stride = chosen
    counts = tuple(
        (s + 2 * p - d * (k - 1) - 1) // t + 1
        for s, k, d, p, t in zip(size, kernel, dilation, padding, stride, strict=True)
    )
    if any(c < 1 for c in counts):
        problem = f"Given {what} {tuple(size)}, kernel_size={kernel}, dilation={dilation}, "
        problem += f"padding={padding}, calculated shape of the array of sliding blocks as "
        problem += f"{counts}, but its components must be at least one"
        raise failure(RuntimeError, name, problem, "smaller kernel or more padding")
    return counts


@op(
    f"unfold(Tensor input, {_BLOCKS}) -> Tensor",
    where=_F,
    varying=True,
    samples=_unfold_samples,
    errors=lambda: [ErrorSample(sample(T(1, 2, 4, 4), 5), RuntimeError, "sliding blocks")],
)
def unfold(input: Node, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Node:
    """Sliding blocks of images as columns (im2col).

    Shape: `(N, C, H, W)` or `(C, H, W)` -> `(N, C kh kw, L)`, L the number of blocks.

    Raises:
        RuntimeError: another rank, or no block fits.

    Example:
        >>> F.unfold(torch.zeros(1, 2, 4, 4), 3).shape
        torch.Size([1, 18, 4])
    """
    if input.ndim not in (3, 4):
        problem = "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other "
        problem += f"non-zero dimensions for input, but got: {shown(input.shape)}"
        raise failure(RuntimeError, "unfold", problem, "(N, C, H, W)")
    chosen = _block_numbers("unfold", kernel_size, dilation, padding, stride)
    kernel, steps, pads, strides = chosen
    size = [static_size(s) for s in input.shape[-2:]]
    _block_counts("unfold", size, chosen, "input with spatial size")
    x = input if input.ndim == 4 else prims.unsqueeze(input, 0)
    x = prims.pad(x, (0, 0, *pads), (0, 0, *pads))
    for d in (0, 1):
        x = windows_of(x, 2 + d, kernel[d], strides[d], steps[d])
    rows = prims.permute(x, (0, 1, 4, 5, 2, 3))
    out = prims.reshape(rows, (x.shape[0], prod((x.shape[1], *kernel)), prod(x.shape[2:4])))
    return out if input.ndim == 4 else prims.squeeze(out, 0)


def _fold_samples() -> Iterator[Sample]:
    yield sample(T(2, 12, 20), (5, 6), 2)
    yield sample(T(8, 12), (5, 6), (2, 2), 1, 1, (2, 2))
    yield sample(T(1, 12, 9), (5, 5), (2, 3), 1, (1, 0), (2, 1))


def _fold_errors() -> Iterator[ErrorSample]:
    yield ErrorSample(sample(T(1, 9, 9), (4, 4), 2), RuntimeError, "divisible by the product")
    yield ErrorSample(sample(T(1, 8, 7), (4, 4), 2), RuntimeError, "sliding blocks")


def _check_fold(
    x: Node, size: tuple[int, ...], chosen: tuple[tuple[int, ...], ...], counts: tuple[int, ...]
) -> None:
    kernel = chosen[0]
    rows, columns = static_size(x.shape[-2]), static_size(x.shape[-1])
    if rows % prod(kernel):
        problem = "Expected size of input's dimension 1 to be divisible by the product of "
        problem += f"kernel_size, but got input.size(1)={rows} and kernel_size={kernel}"
        raise failure(RuntimeError, "fold", problem, "(N, C kh kw, L)")
    if columns != prod(counts):
        problem = f"Given output_size={size}, kernel_size={kernel}, dilation={chosen[1]}, "
        problem += f"padding={chosen[2]}, stride={chosen[3]}, expected size of input's dimension 2 "
        problem += f"to match the calculated number of sliding blocks {counts[0]} * {counts[1]} = "
        problem += f"{prod(counts)}, but got input.size(2)={columns}"
        raise failure(RuntimeError, "fold", problem, "the result of unfold")


@op(
    f"fold(Tensor input, int[] output_size, {_BLOCKS}) -> Tensor",
    where=_F,
    promote="keep",
    varying=True,
    samples=_fold_samples,
    errors=_fold_errors,
)
def fold(
    input: Node, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Node:
    """Adds sliding blocks up to images (col2im), the transpose of `unfold`.

    Shape: `(N, C kh kw, L)` or `(C kh kw, L)` -> `(N, C, *output_size)`.

    Raises:
        RuntimeError: the sizes are not those of an `unfold`.

    Example:
        >>> F.fold(torch.zeros(1, 18, 4), (4, 4), 3).shape
        torch.Size([1, 2, 4, 4])
    """
    if input.ndim not in (2, 3):
        problem = "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and "
        problem += f"non-zero dimensions for input, but got: {shown(input.shape)}"
        raise failure(RuntimeError, "fold", problem, "(N, C kh kw, L)")
    chosen = _block_numbers("fold", kernel_size, dilation, padding, stride)
    kernel, steps, pads, strides = chosen
    size = numbers("fold", "output_size", output_size, 2)
    counts = _block_counts("fold", size, chosen, "output_size")
    _check_fold(input, size, chosen, counts)
    batch: Size = input.shape[0] if input.ndim == 3 else 1
    channels = static_size(input.shape[-2]) // prod(kernel)
    x = prims.reshape(input, (batch, channels, *kernel, *counts))
    x = prims.permute(x, (0, 1, 4, 5, 2, 3))
    for d in (1, 0):
        extent = size[d] + 2 * pads[d]
        x = add_windows(x, 2 + d, extent, strides[d], steps[d], kernel[d])
        x = prims.slice(x, 2 + d, pads[d], size[d])
    return x if input.ndim == 3 else prims.squeeze(x, 0)


# ------------------------------------------------------------------------------ grids


def _line(count: int, align_corners: bool, dtype: str) -> Node:
    """`count` places from -1 to 1: of the outermost pixels' centres, or of their borders."""
    if count == 1:
        return prims.full(0.0, (1,), dtype)
    i = prims.cast(prims.iota((count,), 0, "i64"), dtype)
    line = i * (2.0 / (count - 1)) + -1.0
    return line if align_corners else line * ((count - 1) / count)


@op(
    name="affine_grid_generator",
    where="torch",
    promote="keep",
    autocast="lower",
    samples=lambda: [
        sample(T(2, 2, 3), (2, 1, 3, 4), False),
        sample(T(1, 3, 4), (1, 1, 2, 3, 2), True),
    ],
    errors=lambda: [
        ErrorSample(sample(T(1, 2, 3), (1, 1, 2), False), RuntimeError, "4D"),
        ErrorSample(sample(T(1, 3, 3), (1, 1, 2, 2), False), RuntimeError, "theta"),
    ],
    varying=True,
)
def affine_grid_of(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """Grid of (x, y[, z]) positions an affine map sends the output's pixels to.

    Shape: theta `(N, 2, 3)` and size (N, C, H, W) -> `(N, H, W, 2)`; theta `(N, 3, 4)` and size
    (N, C, D, H, W) -> `(N, D, H, W, 3)`.

    Raises:
        RuntimeError: the size has neither 4 nor 5 numbers, or theta does not fit it.

    Example:
        >>> torch.affine_grid_generator(torch.ones(1, 2, 3), (1, 1, 1, 2), True)
        tensor([[[[0., 0.],
                  [2., 2.]]]])
    """
    space = size[2:]
    count = len(space)
    if count not in (2, 3):
        problem = f"only supports 4D and 5D sizes, got {list(size)}"
        raise failure(RuntimeError, "affine_grid_generator", problem, "(N, C, H, W)")
    if CATEGORY[theta.dtype] < 2:
        problem = f"takes floating dtypes, got {theta.dtype}"
        raise failure(NotImplementedError, "affine_grid_generator", problem, "theta.float()")
    fitting = zip(theta.shape[1:], (count, count + 1), strict=False)
    if theta.ndim != 3 or not all(same(n, expected) for n, expected in fitting):
        problem = f"theta of {shown(theta.shape)} does not fit a size of {list(size)}"
        raise failure(RuntimeError, "affine_grid_generator", problem, f"(N, {count}, {count + 1})")
    shape = (*space, count + 1)
    columns = []
    for d in reversed(range(count)):
        line = _line(space[d], align_corners, theta.dtype)
        columns.append(prims.broadcast(line, (*space, 1), (d,)))
    columns.append(prims.full(1.0, (*space, 1), theta.dtype))
    base = prims.reshape(prims.cat(columns, count), (prod(space), count + 1))
    batch = theta.shape[0]
    spread = prims.broadcast(base, (batch, prod(space), count + 1), (1, 2))
    grid = prims.matmul(spread, prims.transpose(theta, 1, 2))
    return prims.reshape(grid, (batch, *shape[:-1], count))


@function(
    where=_F,
    samples=lambda: [
        sample(T(2, 2, 3), (2, 3, 4, 5), align_corners=True),
        sample(T(1, 2, 3), (1, 1, 3, 2), align_corners=False),
        sample(T(2, 3, 4), (2, 1, 3, 2, 4), align_corners=False),
    ],
)
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Any:
    """Sampling positions of a spatial transformer (Jaderberg et al. 2015).

    Shape: theta `(N, 2, 3)` and size (N, C, H, W) -> `(N, H, W, 2)`; theta `(N, 3, 4)` and size
    (N, C, D, H, W) -> `(N, D, H, W, 3)`.

    Raises:
        ValueError: theta is not floating, or its shape does not fit the size.

    Example:
        >>> F.affine_grid(torch.zeros(1, 2, 3), (1, 1, 4, 5), align_corners=False).shape
        torch.Size([1, 4, 5, 2])
    """
    if not theta.dtype.is_floating_point:
        problem = f"Expected theta to have floating point type, but got {theta.dtype}"
        raise failure(ValueError, "affine_grid", problem, "call .float()")
    if align_corners is None:
        warnings.warn(
            "[affine_grid] align_corners=False is the default since PyTorch 1.3; give "
            "align_corners=True for the older behaviour. hint: state it",
            stacklevel=2,
        )
    sizes = tuple(int(s) for s in size)
    rows = len(sizes) - 2
    if rows not in (2, 3):
        problem = f"only supports 4D and 5D sizes, got size {sizes}"
        raise failure(NotImplementedError, "affine_grid", problem, "(N, C, H, W)")
    if tuple(theta.shape[1:]) != (rows, rows + 1) or theta.ndim != 3:
        problem = f"Expected a batch of {rows}D affine matrices of shape Nx{rows}x{rows + 1} for "
        problem += f"size {sizes}. Got {theta.shape}."
        raise failure(ValueError, "affine_grid", problem, "one matrix per sample")
    if min(sizes) <= 0:
        problem = f"Expected non-zero, positive output size. Got {sizes}"
        raise failure(ValueError, "affine_grid", problem, "sizes >= 1")
    return affine_grid_of(theta, sizes, bool(align_corners))


# ------------------------------------------------------------------------------ across channels


def _response_rule(input: Any, *args: Any, **options: Any) -> str:
    """Means over volumes are float32: only inputs of three dimensions need none."""
    return "" if input.ndim == 3 else "float32"


@op(
    kind="loss",
    layout="first",
    autocast=by_arguments(_response_rule),
    saves_result=False,
    samples=lambda: [
        sample(T(2, 5, 3), 3),
        sample(T(1, 4, 3, 2), 2, 0.1, 0.5, 2.0),
        sample(T(0, 4, 3, dtype="i64"), 2),
    ],
    errors=lambda: [ErrorSample(sample(T(3, 2), 2), ValueError, "3D or higher")],
    varying=True,
)
def local_response_norm(
    input: Tensor, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """x / (k + alpha mean of x^2 over `size` neighbouring channels)^beta (Krizhevsky et al. 2012).

    Shape: `(N, C, *)`.

    Raises:
        ValueError: fewer than 3 dimensions.

    Example:
        >>> F.local_response_norm(torch.zeros(1, 4, 3), 2).shape
        torch.Size([1, 4, 3])
    """
    if input.ndim < 3:
        problem = f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)"
        raise failure(ValueError, "local_response_norm", problem, "(N, C, *)")
    if any(same(extent, 0) for extent in input.shape):
        return input  # integers, too, stay what they are
    if size < 1:
        problem = f"size should be greater than zero, but got {size}"
        raise failure(RuntimeError, "local_response_norm", problem, "neighbouring channels")
    low, high = [0] * input.ndim, [0] * input.ndim
    low[1], high[1] = size // 2, (size - 1) // 2
    around = windows_of(prims.pad(input * input, low, high), 1, size, 1, 1)
    mean = averaged(prims.sum(around, around.ndim - 1), size)
    if not is_float(input):  # PyTorch's mean of integers is one, what follows is not
        input, mean = (prims.cast(x, default_dtype()) for x in (input, mean))
    scale = mean * alpha + k
    return input / prims.pow(scale, prims.full_like(beta, scale))
