"""The steps of random shape programs: what is done to a tensor, in sizes that the call decides.

A rule's function is called with tensors and small numbers that are fixed; every other number it
uses is computed from the sizes of its operands, as models compute them. A rule may refuse its
operands by raising, which leaves the step out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flambeau

F = flambeau.nn.functional
WIDTHS = (2, 3, 4, 8, 16)  # sizes that are written down in a program


@dataclass(frozen=True)
class ShapeRule:
    """A step of the programs.

    Attributes:
        function: of the operands, then of a number per entry of `numbers`.
        arity: how many operands.
        numbers: the choices of each fixed number; "d" is a dimension, "w" one of `WIDTHS`.
        rank: the least number of dimensions of the first operand.
    """

    function: Callable[..., Any]
    numbers: tuple[Any, ...] = ()
    arity: int = 1
    rank: int = 1


def weights(*shape: int) -> Any:
    """The same values for the same sizes, in (-1, 1)."""
    count = 1
    for size in shape:
        count *= size
    return ((flambeau.arange(count) * 0.7 + len(shape)).cos() * 0.5).reshape(shape)


# ------------------------------------------------------------------------------- reshaping


def _split_last(x: Any, width: int) -> Any:
    return x.view(*x.shape[:-1], -1, width)


def _split_by_quotient(x: Any, dimension: int, width: int) -> Any:
    shape = [*x.shape]
    shape[dimension : dimension + 1] = [shape[dimension] // width, width]
    return x.reshape(shape)


def _merge(x: Any, dimension: int) -> Any:
    shape = [*x.shape]
    shape[dimension - 1 : dimension + 1] = [shape[dimension - 1] * shape[dimension]]
    return x.reshape(shape)


def _whole_rows(x: Any, width: int) -> Any:
    """As many whole rows of a width as the elements fill."""
    rows = x.numel() // width
    return x.reshape(-1)[: rows * width].view(rows, width)


def _regroup(x: Any, width: int) -> Any:
    return x.reshape(x.shape[0], -1, width, x.shape[-1] // width)


def _last_two_swapped(x: Any) -> Any:
    return x.reshape(*x.shape[:-2], x.shape[-1], x.shape[-2])


# ------------------------------------------------------------------------------- parts


def _front(x: Any, dimension: int, width: int) -> Any:
    return x.narrow(dimension, 0, x.shape[dimension] // width)


def _stepped(x: Any, dimension: int, step: int, first: int) -> Any:
    key = [slice(None)] * x.ndim
    key[dimension] = slice(first, None, step)
    return x[tuple(key)]


def _without_last(x: Any, dimension: int, width: int) -> Any:
    key = [slice(None)] * x.ndim
    key[dimension] = slice(None, -width)
    return x[tuple(key)]


def _halves(x: Any, dimension: int) -> Any:
    first, second = x.split([x.shape[dimension] // 2, -(-x.shape[dimension] // 2)], dimension)
    return flambeau.cat([second, first], dimension)


def _rotated(x: Any, dimension: int, parts: int) -> Any:
    first, *others = x.chunk(parts, dimension)
    return flambeau.cat([*others, first], dimension)


def _last_part(x: Any, dimension: int, width: int) -> Any:
    return x.split(width, dimension)[-1]


def _filled_up(x: Any, width: int) -> Any:
    """The last dimension, padded to a multiple."""
    return F.pad(x, (0, -x.shape[-1] % width))


def _blocks(x: Any, width: int) -> Any:
    """The last dimension in blocks, the last of them filled up, each minus its mean."""
    padded = _filled_up(x, width)
    blocks = padded.reshape(*x.shape[:-1], padded.shape[-1] // width, width)
    blocks = blocks - blocks.mean(-1, keepdim=True)
    return blocks.flatten(-2)[..., : x.shape[-1]]


# ------------------------------------------------------------------------------- windows


def _images(x: Any, spatial: int) -> Any:
    """The operand with one channel and as many spatial dimensions."""
    return x.reshape(-1, 1, *x.shape[-spatial:])


def _convolved(x: Any, width: int, stride: int, padding: int) -> Any:
    y = F.conv1d(_images(x, 1), weights(3, 1, width), stride=stride, padding=padding)
    return y.reshape(*x.shape[:-1], 3, y.shape[-1])


def _convolved_plane(x: Any, width: int, stride: int, padding: int) -> Any:
    y = F.conv2d(_images(x, 2), weights(4, 1, width, width), stride=stride, padding=padding)
    return y.flatten(2).transpose(1, 2)


def _pooled(x: Any, width: int, stride: int, ceil: bool) -> Any:
    y = F.avg_pool1d(_images(x, 1), width, stride, ceil_mode=ceil)
    return y.reshape(*x.shape[:-1], -1)


def _peaks(x: Any, width: int, stride: int) -> Any:
    y = F.max_pool2d(_images(x, 2), width, stride)
    return y.reshape(*x.shape[:-2], *y.shape[-2:])


def _adapted(x: Any, width: int) -> Any:
    return F.adaptive_avg_pool1d(_images(x, 1), width).reshape(*x.shape[:-1], width)


def _stretched(x: Any) -> Any:
    y = F.interpolate(_images(x, 1), scale_factor=2.0, mode="nearest")
    return y.reshape(*x.shape[:-1], -1)


# ------------------------------------------------------------------------------- products


def _linear(x: Any, width: int) -> Any:
    """To a fixed width, from one that is a part of the last dimension's size."""
    return F.linear(_split_last(x, width), weights(2 * width, width)).flatten(-2)


def _mixed(x: Any) -> Any:
    return x @ x.transpose(-1, -2) @ x * 0.1


def _contracted(x: Any, y: Any) -> Any:
    return flambeau.einsum("...ij,...kj->...ik", x, y) * 0.1


def _attended(x: Any, width: int, causal: bool) -> Any:
    """Heads of a fixed width, as many as the last dimension has room for."""
    lead = x.shape[:-1]
    heads = x.view(*lead, -1, width).transpose(-3, -2)
    mixed = F.scaled_dot_product_attention(heads, heads * 0.5, heads, is_causal=causal)
    return mixed.transpose(-3, -2).reshape(*lead, -1).contiguous()


def _joined(x: Any, y: Any, dimension: int) -> Any:
    return flambeau.cat([x, y], dimension)


def _ended(x: Any) -> Any:
    """Ends the region: the host needs a value."""
    return x * (1.0 if x.detach().sum().item() > 0 else 0.5)


def _placed(x: Any, dimension: int) -> Any:
    """Positions along a dimension are added."""
    places = flambeau.arange(x.shape[dimension], dtype=x.dtype) / x.shape[dimension]
    return x + places.reshape(-1, *[1] * (x.ndim - 1 - dimension))


def _normalized(x: Any) -> Any:
    return F.layer_norm(x, x.shape[-1:])


def _averaged(x: Any, dimension: int) -> Any:
    return x.sum(dimension) / x.shape[dimension]


RULES: dict[str, ShapeRule] = {
    "split_last": ShapeRule(_split_last, ("w",)),
    "split_by_quotient": ShapeRule(_split_by_quotient, ("d", "w")),
    "merge": ShapeRule(_merge, ("d",), rank=2),
    "whole_rows": ShapeRule(_whole_rows, ("w",)),
    "regroup": ShapeRule(_regroup, ("w",), rank=2),
    "last_two_swapped": ShapeRule(_last_two_swapped, rank=2),
    "flatten": ShapeRule(lambda x, d: x.flatten(d), ("d",), rank=2),
    "flatten_front": ShapeRule(lambda x, d: x.flatten(0, d), ("d",), rank=2),
    "unflatten": ShapeRule(lambda x, d, w: x.unflatten(d, (w, -1)), ("d", "w")),
    "unflatten_last": ShapeRule(lambda x, d, w: x.unflatten(d, (-1, w)), ("d", "w")),
    "rows": ShapeRule(lambda x: x.reshape(-1, x.shape[-1]), rank=2),
    "unsqueeze": ShapeRule(lambda x, d: x.unsqueeze(d), ("d",)),
    "transpose": ShapeRule(lambda x, d, e: x.transpose(d, e), ("d", "d"), rank=2),
    "contiguous": ShapeRule(lambda x: x.contiguous()),
    "expand": ShapeRule(lambda x, w: x.unsqueeze(1).expand(-1, w, *x.shape[1:]), ((2, 3),)),
    "repeat": ShapeRule(lambda x, w: x.repeat(w, *[1] * (x.ndim - 1)), ((2, 3),)),
    "front": ShapeRule(_front, ("d", (2, 3))),
    "stepped": ShapeRule(_stepped, ("d", (2, 3, 4), (0, 1, 2))),
    "without_first": ShapeRule(_stepped, ("d", (1,), (1, 2))),
    "without_last": ShapeRule(_without_last, ("d", (1, 2, 3))),
    "halves": ShapeRule(_halves, ("d",)),
    "rotated": ShapeRule(_rotated, ("d", (2, 3))),
    "last_part": ShapeRule(_last_part, ("d", (4, 5))),
    "half_of": ShapeRule(lambda x, d: x.chunk(2, d)[0], ("d",)),
    "filled_up": ShapeRule(_filled_up, ("w",)),
    "blocks": ShapeRule(_blocks, ("w",)),
    "shifted": ShapeRule(lambda x, d: x.roll(x.shape[d] // 2, d), ("d",)),
    "flipped": ShapeRule(lambda x, d: x.flip(d), ("d",)),
    "unfold": ShapeRule(lambda x, d, w, s: x.unfold(d, w, s), ("d", (2, 3), (1, 2))),
    "convolved": ShapeRule(_convolved, ((3, 4), (1, 2, 4), (0, 1))),
    "convolved_plane": ShapeRule(_convolved_plane, ((2, 3), (1, 2), (0, 1)), rank=2),
    "pooled": ShapeRule(_pooled, ((2, 3), (2, 3), (False, True))),
    "peaks": ShapeRule(_peaks, ((2,), (1, 2)), rank=2),
    "adapted": ShapeRule(_adapted, ((4, 5),)),
    "stretched": ShapeRule(_stretched),
    "linear": ShapeRule(_linear, ("w",)),
    "mixed": ShapeRule(_mixed, rank=2),
    "contracted": ShapeRule(_contracted, arity=2, rank=2),
    "attended": ShapeRule(_attended, ((4, 8, 16), (False, True)), rank=2),
    "joined": ShapeRule(_joined, ("d",), arity=2),
    "added": ShapeRule(lambda x, y: x + y, arity=2),
    "weighted": ShapeRule(lambda x, y: x * y.mean(), arity=2),
    "ended": ShapeRule(_ended),
    "placed": ShapeRule(_placed, ("d",)),
    "normalized": ShapeRule(_normalized),
    "averaged": ShapeRule(_averaged, ("d",), rank=2),
    "highest": ShapeRule(lambda x, d: x.amax(d), ("d",), rank=2),
    "softmax": ShapeRule(lambda x, d: x.softmax(d), ("d",)),
    "running": ShapeRule(lambda x, d: x.cumsum(d) * 0.1, ("d",)),
    "tanh": ShapeRule(lambda x: x.tanh()),
    "gelu": ShapeRule(lambda x: F.gelu(x)),
}
