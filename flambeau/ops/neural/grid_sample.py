"""`grid_sample`: an image read at any positions, between its pixels and beyond its border.

Positions are turned into pixels, then into neighbours and their weights. The neighbours are places
that carry no gradient; positions get theirs through the weights alone, as in PyTorch, and none
where padding holds them at the border. Source: Jaderberg et al. 2015; cubic weights of Keys 1981.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import prims
from flambeau.ir.failure import failure
from flambeau.ir.lock import late
from flambeau.ir.node import Node
from flambeau.ir.size import Size, prod
from flambeau.language.definition import given_dtype, op
from flambeau.language.dtypes import PUBLIC_NAMES
from flambeau.language.layout import same
from flambeau.language.samples import ErrorSample, Sample, T, sample
from flambeau.language.schema import Tensor
from flambeau.ops.common import known_positive, same_sizes, shown
from flambeau.ops.neural.resample import cubic_weights

_F = "nn.functional"
MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")


def _pixels(place: Node, size: Size, align_corners: bool) -> Node:
    """Pixel of a position in [-1, 1], whose ends are outer pixels' centres or their borders."""
    extent = prims.constant(size, place)
    if align_corners:
        return (place + 1.0) * ((extent - 1.0) * 0.5)
    return (place + 1.0) * (extent * 0.5) - 0.5


def _held(pixel: Node, size: Size) -> Node:
    """The pixel within [0, size - 1]; without gradient at its ends, NaN at 0."""
    last = prims.constant(size, pixel) - 1.0
    below = prims.where(pixel < last, pixel, last)
    return prims.where(pixel > 0.0, below, prims.full_like(0, pixel))


def _mirrored(pixel: Node, size: Size, align_corners: bool) -> Node:
    """The pixel reflected at the outer pixels' centres or borders until it is inside."""
    if align_corners and same(size, 1):
        return prims.full_like(0, pixel)
    low = 0.0 if align_corners else -0.5
    span = prims.constant(size, pixel) - (1.0 if align_corners else 0.0)
    distance = prims.abs(pixel - low)
    turns = prims.floor(distance / span)
    remainder = prims.fmod(distance, span)
    odd = prims.ne(prims.fmod(turns, prims.full_like(2, turns)), prims.full_like(0, turns))
    return prims.where(odd, span - remainder, remainder) + low


def _padded(pixel: Node, size: Size, padding: str, align_corners: bool) -> Node:
    """The pixel where padding moves it; zeros leave it where it is."""
    if padding == "reflection":
        pixel = _mirrored(pixel, size, align_corners)
    return pixel if padding == "zeros" else _held(pixel, size)


_Neighbour = tuple[Node, Node, Node | None]  # whole pixel, whether it is inside, weight


def _neighbours(
    place: Node, size: Size, mode: str, padding: str, align_corners: bool
) -> list[_Neighbour]:
    """The pixels along one dimension that a position is made of."""
    pixel = _pixels(place, size, align_corners)
    if mode != "bicubic":
        pixel = _padded(pixel, size, padding, align_corners)
    if mode == "nearest":
        return [_inside(prims.round(pixel), size, None)]
    first = prims.floor(pixel)
    weight = pixel - first
    if mode == "bilinear":
        return [_inside(first, size, 1.0 - weight), _inside(first + 1.0, size, weight)]
    neighbours = []
    for offset, share in enumerate(cubic_weights(weight, -0.75)):
        pixel_index = prims.stop_gradient(first + (offset - 1.0))
        neighbours.append(_inside(_padded(pixel_index, size, padding, align_corners), size, share))
    return neighbours


def _inside(pixel_index: Node, size: Size, weight: Node | None) -> _Neighbour:
    last = prims.constant(size, pixel_index) - 1.0
    inside = (pixel_index >= 0.0) & (pixel_index <= last)
    index = prims.cast(prims.where(inside, pixel_index, prims.full_like(0, pixel_index)), "i64")
    return index, inside, weight


def _value(x: Node, corner: Sequence[_Neighbour], sizes: Sequence[Size], shape: Any) -> Node:
    """Elements (N, C, positions) of one neighbour times its weight; 0 outside."""
    place, inside, weight = corner[0]
    for (index, within, share), size in zip(corner[1:], sizes[1:], strict=True):
        place = place * prims.constant(size, place) + index
        inside = inside & within
        weight = share if weight is None or share is None else weight * share
    spread = prims.broadcast(place, shape, (0, 2))
    value = prims.gather(x, spread, 2)
    if weight is not None:
        value = value * prims.broadcast(weight, shape, (0, 2))
    return prims.where(prims.broadcast(inside, shape, (0, 2)), value, prims.full_like(0, value))


def _sampled(input: Node, grid: Node, mode: str, padding_mode: str, align_corners: bool) -> Node:
    """(N, C, *S') from checked arguments."""
    count = input.ndim - 2
    sizes, out = input.shape[2:], grid.shape[1:-1]
    lead, places = input.shape[:2], prod(out)
    x = prims.reshape(input, (*lead, prod(sizes)))
    flat = prims.reshape(grid, (lead[0], places, count))
    lines = []
    for d, size in enumerate(sizes):  # the grid's last dimension is (x, y[, z])
        place = prims.squeeze(prims.slice(flat, 2, count - 1 - d, 1), 2)
        lines.append(_neighbours(place, size, mode, padding_mode, align_corners))
    shape = (*lead, places)
    total: Node | None = None
    for corner in itertools.product(*lines):
        part = _value(x, corner, sizes, shape)
        total = part if total is None else total + part
    assert total is not None
    return prims.reshape(total, (*lead, *out))


def _check(input: Node, grid: Node, mode: str) -> None:
    shapes = f"input with sizes {shown(input.shape)} and grid with sizes {shown(grid.shape)}"
    dtypes = [PUBLIC_NAMES[given_dtype(x)] for x in (input, grid)]
    if input.ndim not in (4, 5) or grid.ndim != input.ndim:
        problem = (
            f"expected 4D or 5D input and grid with same number of dimensions, but got {shapes}"
        )
        hint = "(N, C, H, W) and (N, H', W', 2)"
    elif dtypes[0] != dtypes[1]:
        problem = "expected grid to have the dtype of the input, torch.{}, got torch.{}".format(
            *dtypes
        )
        hint = "convert one of them"
    elif not same_sizes(input.shape[:1], grid.shape[:1]):
        problem = f"expected grid and input to have same batch size, but got {shapes}"
        hint = "expand"
    elif not same(grid.shape[-1], input.ndim - 2):
        problem = f"expected grid to have size {input.ndim - 2} in last dimension, but got {shapes}"
        hint = "positions are (x, y) or (x, y, z)"
    elif not all(known_positive(size) for size in input.shape[2:]):
        problem = f"expected input to have non-empty spatial dimensions, got {shapes}"
        hint = "sizes"
    elif mode == "bicubic" and input.ndim == 5:
        problem, hint = "bicubic interpolation only supports 4D input", "mode='bilinear'"
    else:
        return
    raise failure(RuntimeError, "grid_sample", problem, hint)


def _samples() -> Iterator[Sample]:
    grid = T(2, 3, 2, 2, low=-1.3, high=1.3)
    yield sample(T(2, 2, 3, 4), grid, align_corners=False)
    yield sample(T(2, 2, 3, 4), grid, "nearest", "border", True)
    yield sample(T(2, 2, 3, 4), grid, padding_mode="reflection", align_corners=False)
    deep = T(1, 2, 2, 1, 3, low=-1.3, high=1.3)
    yield sample(T(1, 2, 3, 4, 2), deep, padding_mode="border", align_corners=True)
    yield sample(T(2, 2, 3, 4), grid, "bicubic", "reflection", False)


def _errors() -> Iterator[ErrorSample]:
    image, grid = T(2, 2, 3, 4), T(2, 3, 2, 2)
    yield ErrorSample(sample(image, grid, "cubic"), ValueError, "mode to be")
    yield ErrorSample(sample(image, grid, padding_mode="same"), ValueError, "padding_mode")
    yield ErrorSample(sample(image, T(2, 3, 2, 3)), RuntimeError, "size 2 in last")
    yield ErrorSample(sample(image, T(1, 3, 2, 2)), RuntimeError, "same batch size")


@op(where=_F, promote="keep", samples=_samples, errors=_errors, autocast="float32")
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """The input read at the positions `grid`, (x, y) or (x, y, z) in [-1, 1].

    Shape: `(N, C, H, W)` and `(N, H', W', 2)` -> `(N, C, H', W')`; `(N, C, D, H, W)` and
    `(N, D', H', W', 3)` -> `(N, C, D', H', W')`.

    Args:
        mode: "bilinear" (of three dimensions: trilinear), "nearest" or "bicubic" (images only).
        padding_mode: what lies outside: "zeros", the "border", or the image's "reflection".
        align_corners: -1 and 1 are the centres of the outer pixels instead of their borders.

    Raises:
        ValueError: an unknown mode.
        RuntimeError: shapes or dtypes do not fit.

    Example:
        >>> image = torch.tensor([[[[1.0, 2.0]]]])
        >>> grid = torch.tensor([[[[0.0, 0.0], [0.5, 0.0]]]])
        >>> torch.nn.functional.grid_sample(image, grid, align_corners=False)
        tensor([[[[1.5000, 2.0000]]]])
    """
    if mode not in MODES:
        problem = f"expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        raise failure(ValueError, "grid_sample", problem, "mode='bilinear'")
    if padding_mode not in PADDINGS:
        problem = "expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
        problem += f"'{padding_mode}'"
        raise failure(ValueError, "grid_sample", problem, "padding_mode='zeros'")
    if align_corners is None:
        late("flambeau.core.warned").warn(
            "[grid_sample] align_corners=False is the default since PyTorch 1.3; give "
            "align_corners=True for the older behaviour. hint: state it"
        )
    _check(input, grid, mode)
    return _sampled(input, grid, mode, padding_mode, bool(align_corners))


def _define_sampler(suffix: str) -> None:
    name = f"grid_sampler{suffix}"

    def body(
        input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool
    ) -> Any:
        if suffix and input.ndim != int(suffix[1]) + 2:
            problem = f"expected a {int(suffix[1]) + 2}D input, got {shown(input.shape)}"
            raise failure(RuntimeError, name, problem, "grid_sampler takes both")
        mode, padding = MODES[interpolation_mode], PADDINGS[padding_mode]
        return grid_sample(input, grid, mode, padding, align_corners)

    body.__name__ = name
    count = 3 if suffix == "_3d" else 2
    ones = ", ".join("1" * count)
    body.__doc__ = f"""`nn.functional.grid_sample`, its modes given by number.

    Args:
        interpolation_mode: 0 bilinear, 1 nearest, 2 bicubic.
        padding_mode: 0 zeros, 1 border, 2 reflection.

    Raises:
        RuntimeError: shapes or dtypes do not fit.

    Example:
        >>> image, grid = torch.full((1, 1, {ones}), 3.0), torch.zeros(1, {ones}, {count})
        >>> torch.{name}(image, grid, 0, 0, False).item()
        3.0
    """
    op(
        f"{name}(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, "
        "bool align_corners) -> Tensor",
        where="torch",
        host=True,
        autocast="float32",
        samples=lambda: [
            sample(T(1, 2, 3, 4, 2), T(1, 2, 2, 1, 3), 0, 1, True)
            if suffix == "_3d"
            else sample(T(2, 2, 3, 4), T(2, 3, 2, 2), 0, 0, False)
        ],
    )(body)


for _suffix in ("", "_2d", "_3d"):
    _define_sampler(_suffix)
