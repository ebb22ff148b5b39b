"""einops: rearrangements, reductions, layers and packing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce

from tests.libraries.cases import Case, Program

IMAGES = torch.randn(2, 3, 8, 12, generator=torch.Generator().manual_seed(0))
FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "patches": lambda x: rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=4, q=3),
    "channels": lambda x: rearrange(x, "b c h w -> b h w c"),
    "flat": lambda x: rearrange(x, "b ... -> b (...)"),
    "mean": lambda x: reduce(x, "b c (h 2) (w 3) -> b c h w", "mean"),
    "largest": lambda x: reduce(x, "b c h w -> b c", "max"),
    "product": lambda x: reduce(x, "b c h w -> b w", "prod"),
    "sum": lambda x: reduce(x, "b c h w -> b 1 1 w", "sum"),
    "repeated": lambda x: repeat(x, "b c h w -> b (2 c) h w k", k=3),
    "product of two": lambda x: einsum(x, x, "b c h w, b d h w -> b c d"),
    "packed": lambda x: unpack(*pack([x, x[:, 0]], "b * w"), "b * w"),
    "list": lambda x: rearrange([x, x + 1], "k b c h w -> b (k c) h w"),
}


class Mixer(torch.nn.Sequential):
    """Layers of einops between others."""

    def __init__(self) -> None:
        super().__init__(
            Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4),
            EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=48, d=16),
            torch.nn.GELU(),
            Rearrange("b t d -> b d t"),
            torch.nn.Linear(6, 6),
            Reduce("b d t -> b d", "mean"),
        )


CASES: dict[str, Callable[[], Case | Program]] = {
    name.replace(" ", "_"): functools.partial(lambda call: Program(lambda: call(IMAGES)), call)
    for name, call in FUNCTIONS.items()
}
CASES["mixer"] = lambda: Case(Mixer(), (IMAGES,))
