"""`func.rearrange`: dimensions permuted, joined and split by a pattern, in the notation of einops.

A pattern becomes a reshape, a permutation and a reshape: views wherever those are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from flambeau.ops.shape.shape import stack
from flambeau.ops.shape.views import permute, reshape

__all__ = ["rearrange"]

_TOKEN = re.compile(r"\.\.\.|->|[()]|[^\s()]+?(?=->|\.\.\.)|[^\s()]+")
_DOTS = "..."


class Group(NamedTuple):
    """A dimension of a pattern: the axes it is made of."""

    names: tuple[str, ...]
    bracketed: bool = False

    @property
    def is_rest(self) -> bool:
        """Whether it matches all dimensions that have no name."""
        return self.names == (_DOTS,) and not self.bracketed


def _names(side: Sequence[Group]) -> list[str]:
    return [name for group in side for name in group.names]


def _refused(pattern: str, what: str, hint: str = "'b (h w) c -> b c h w'") -> ValueError:
    return ValueError(f"[rearrange] {what} in {pattern!r}\nhint: {hint}")


def _checked_name(token: str, pattern: str) -> str:
    if token == _DOTS:
        return token
    if "." in token:
        raise _refused(pattern, "dots that are no ellipsis", "three of them: ...")
    if token.isdigit():
        raise _refused(pattern, f"unnamed axis of size {token}", "only 1 needs no name")
    if not token.isidentifier() or token[0] == "_" or token[-1] == "_":
        raise _refused(
            pattern, f"invalid axis identifier {token!r}", "letters first, no underscore at an end"
        )
    return token


def _side(tokens: Sequence[str], pattern: str) -> tuple[Group, ...]:
    """The dimensions of one side."""
    groups: list[Group] = []
    inside: list[str] | None = None
    for token in tokens:
        if token == "(":
            if inside is not None:
                raise _refused(pattern, "brackets inside of brackets", "one level of them")
            inside = []
        elif token == ")":
            if inside is None:
                raise _refused(pattern, "brackets are not balanced")
            groups.append(Group(tuple(inside), True))
            inside = None
        else:
            names = () if token == "1" else (_checked_name(token, pattern),)
            if inside is None:
                groups.append(Group(names))
            else:
                inside.extend(names)
    if inside is not None:
        raise _refused(pattern, "brackets are not balanced")
    names_of_side = _names(groups)
    if len(set(names_of_side)) != len(names_of_side):
        raise _refused(pattern, "an axis that is named twice")
    return tuple(groups)


@lru_cache(maxsize=256)
def _parsed(pattern: str) -> tuple[tuple[Group, ...], tuple[Group, ...]]:
    """Both sides of a pattern.

    Raises:
        ValueError: it is none.
    """
    tokens = _TOKEN.findall(pattern)
    if tokens.count("->") != 1:
        raise _refused(pattern, "not exactly one '->'")
    middle = tokens.index("->")
    left, right = _side(tokens[:middle], pattern), _side(tokens[middle + 1 :], pattern)
    if unmatched := {*_names(left)} ^ {*_names(right)}:
        raise _refused(pattern, f"axes on one side only: {sorted(unmatched)}", "keep them all")
    if any(_DOTS in group.names and not group.is_rest for group in left):
        raise _refused(pattern, "an ellipsis in brackets on the left side", "no brackets there")
    return left, right


def _spelled(side: Sequence[Group], dots: Sequence[str]) -> list[tuple[str, ...]]:
    """The axes of every dimension, with those that an ellipsis matches."""
    spelled: list[tuple[str, ...]] = []
    for group in side:
        if group.is_rest:
            spelled.extend((name,) for name in dots)
        else:
            names = (dots if name == _DOTS else [name] for name in group.names)
            spelled.append(tuple(chain.from_iterable(names)))
    return spelled


def _sizes(
    pattern: str,
    shape: Sequence[Any],
    groups: Sequence[Sequence[str]],
    axes_lengths: Mapping[str, int],
) -> dict[str, Any]:
    """The size of every axis.

    Raises:
        ValueError: sizes that do not fit, or several that are not known.
    """
    sizes: dict[str, Any] = {}
    for extent, group in zip(shape, groups, strict=True):
        unknown = [name for name in group if name not in axes_lengths]
        product = math.prod(axes_lengths[name] for name in group if name in axes_lengths)
        if len(unknown) > 1:
            raise _refused(pattern, f"sizes of {unknown} are not known", f"{unknown[0]}=2")
        if (extent != product) if not unknown else (product < 1 or extent % product):
            raise _refused(pattern, f"{product} elements do not fit {extent}", "check the sizes")
        sizes.update({name: axes_lengths.get(name, extent // max(product, 1)) for name in group})
    return sizes


def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Any:
    """Turns, joins, splits, adds and drops dimensions, as `einops.rearrange` does.

    Source: Rogozhnikov, Einops: clear and reliable tensor manipulations, 2022.

    Args:
        tensor: a tensor, or a list of tensors, which are stacked along a first dimension.
        pattern: names of the dimensions before and after `->`. In brackets: axes that one
            dimension is made of; `1` or `()`: a dimension of size 1; `...`: all others.
        axes_lengths: sizes of axes that do not follow from the tensor's.

    Returns:
        A view where there is one, else a copy.

    Raises:
        ValueError: the pattern cannot be read, or does not fit the tensor.
        TypeError: no tensor.

    Example:
        >>> images = torch.zeros(32, 30, 40, 3)
        >>> torch.func.rearrange(images, "b h w c -> b c h w").shape
        torch.Size([32, 3, 30, 40])
        >>> torch.func.rearrange(images, "b (h h2) (w w2) c -> b (h w) (c h2 w2)", h2=2, w2=2).shape
        torch.Size([32, 300, 12])
    """
    left, right = _parsed(pattern)
    x = tensor if hasattr(tensor, "ndim") else stack.native(tensor)
    open_ended = any(group.is_rest for group in left)
    named = len(left) - open_ended
    if named > x.ndim or (named < x.ndim and not open_ended):
        raise _refused(pattern, f"{named} dimensions for a tensor of {x.ndim}", "name them all")
    dots = [f"{_DOTS}{i}" for i in range(x.ndim - named)]
    before, after = _spelled(left, dots), _spelled(right, dots)
    order = list(chain.from_iterable(before))
    if unused := axes_lengths.keys() - set(order):
        raise _refused(pattern, f"no axes of the names {sorted(unused)}", "names of the pattern")
    sizes = _sizes(pattern, x.shape, before, {n: int(s) for n, s in axes_lengths.items()})
    turned = [order.index(name) for name in chain.from_iterable(after)]
    x = permute.native(reshape.native(x, [sizes[name] for name in order]), turned)
    return reshape.native(x, [math.prod(sizes[name] for name in group) for group in after])
