"""The interfaces of attention's kernels: forward, decoding (segments of keys, then their join) and
backward. The constants that are canonical are part of the semantics (docs/design.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from flambeau.compiler.targets import Target
from flambeau.compiler.templates.interface import (
    Array,
    Buffer,
    Group,
    Interface,
    Settings,
    SizeArgument,
    Template,
)
from flambeau.compiler.templates.tile import VECTORS, Tile
from flambeau.ir.size import Size, ceildiv, mul, symbol

KEYS = 128  # keys of a block: canonical
SEGMENT = 1024  # keys of a segment: canonical
LANES = 16  # of the sum of weights: canonical
ROWS = 64  # queries of a block of the backward kernel: canonical
DEPTH = 32  # queries of a chain of FMAs of the backward kernel: canonical
TILES = 4  # tiles of queries that share a packed block of keys, by default
TOGETHER = 4  # rows of queries that share a block of keys which was read and transposed
DRAWN = 512  # queries of the backward kernel whose bits of dropout are drawn at once
BITS = 32  # draws of an integer
STATE = 640  # words of a generator's state; whole vectors behind its 624 may be read

STRIDES = Group("strides", ("batch", "head", "row", "element"))


@dataclass(frozen=True)
class AttentionSettings(Settings):
    """Compile-time choices of attention's kernels.

    Attributes:
        dtype: of query, key, value and result.
        mask: dtype of the mask, which a call may lack; "": there is none.
        tiles: tiles of queries that share a packed block of keys.
        dropout: rows from one saved state of the generator to the next; 0: no weights are dropped.
        vectors: of the queries of a tile: one where they are few.
    """

    dtype: str
    mask: str
    tiles: int = TILES
    dropout: int = 0
    vectors: int = VECTORS

    @property
    def kind(self) -> str:
        """The dtype of scores and sums."""
        return "f64" if self.dtype == "f64" else "f32"

    def tile(self, target: Target) -> Tile:
        """The tile of the micro-kernels."""
        return Tile.of(self.kind, target, vectors=self.vectors)

    @property
    def scalars(self) -> tuple[tuple[str, str], ...]:
        """The factor of the scores; with dropout that of the weights which stay, and the limit
        below which a draw of 53 bits keeps its weight."""
        names = ("scale", "inverse", "limit") if self.dropout else ("scale",)
        return tuple((name, "f64") for name in names)

    @property
    def masks(self) -> tuple[str, ...]:
        """The mask's name, if there may be one."""
        return ("mask",) if self.mask else ()

    @property
    def flags(self) -> tuple[str, ...]:
        """The name of the size argument that is 1 where there is a mask."""
        return ("masked",) if self.mask else ()

    @property
    def states(self) -> tuple[str, ...]:
        """The name of the generator's saved states, if weights are dropped."""
        return ("states",) if self.dropout else ()

    def arrays(self, **counts: Size) -> tuple[Array, ...]:
        """Scratch arrays of computed numbers."""
        return tuple(Array(name, self.kind, count) for name, count in counts.items())

    def bits(self, rows: int) -> tuple[Array, ...]:
        """The scratch array of dropout's bits: [key / BITS][row]."""
        if not self.dropout:
            return ()
        count = mul(ceildiv(symbol("keys"), BITS), rows)
        return (Array("bits", "i64" if self.kind == "f64" else "i32", count),)


# batch; heads of the keys; heads of the query for each of them; queries; keys; elements of a query
# and of a value; by how many the keys that query i sees are more than i + 1.
PROBLEM = ("batch", "heads", "groups", "queries", "keys", "size", "width", "offset")


def _sizes(numbers: tuple[str, ...], strides: tuple[str, ...]) -> tuple[SizeArgument, ...]:
    """The problem, numbers of a kernel, and strides of buffers."""
    scalars = [SizeArgument(name) for name in (*PROBLEM, *numbers)]
    return (*scalars, *(SizeArgument(name, STRIDES) for name in strides))


def _buffers(settings: AttentionSettings, access: str, names: tuple[str, ...]) -> list[Buffer]:
    dtypes = {"mask": settings.mask, "states": "i32"}
    dtypes |= dict.fromkeys(("parts", "top", "sum", "lse"), settings.kind)
    return [Buffer(name, dtypes.get(name, settings.dtype), access) for name in names]


def forward(settings: AttentionSettings, target: Target) -> Interface:
    """Many queries. `wanted`: of top (1), sum (2) and lse (4).

    The arrays: a block of keys and of values, packed; a tile's scores and mask; a block's sums of
    values, later rows of results; per tile the packed queries, the sums of the segment and of the
    segments before it, and 8 rows of statistics."""
    rows, columns, _ = settings.tile(target)
    size, width = symbol("size"), symbol("width")
    masks, states = settings.masks, settings.states
    return Interface(
        _sizes(("wanted", *settings.flags), ("query", "key", "value", "out", *masks, *states)),
        (
            *_buffers(settings, "r", ("query", "key", "value", *masks)),
            *_buffers(settings, "w", ("out", "top", "sum", "lse")),
            *_buffers(settings, "r", states),
        ),
        settings.scalars,
        (
            *settings.arrays(
                keys=size * (KEYS + rows),
                values=(width + rows) * KEYS,
                s=(KEYS + rows) * columns,
                bias=KEYS * columns,
                chain=(width + rows) * columns,
                tiles=(size + 2 * width + 8) * (settings.tiles * columns),
            ),
            *settings.bits(settings.tiles * columns),
        ),
    )


def pitch(width: Size, columns: int) -> Size:
    """Elements from one row of sums of values to the next in the decoding kernel: whole slabs
    spill."""
    return ceildiv(width, columns) * columns + columns


def decode(settings: AttentionSettings, target: Target) -> Interface:
    """Few queries and many keys. `parts` [batch, heads, segment, row] has 2 + width elements:
    maximum, sum of weights, sums of values. `unused` is 0.

    The arrays: queries; a slab of keys or of values, packed; scores of a segment; a panel of
    weights; a block's sums of values and the segment's; a row of the mask."""
    rows, columns, _ = settings.tile(target)
    size, together = symbol("size"), -(-rows // TOGETHER) * TOGETHER
    step = pitch(symbol("width"), columns)
    operands = ("query", "key", "value", *settings.masks)
    return Interface(
        _sizes(("unused", *settings.flags), operands),
        (*_buffers(settings, "r", operands), *_buffers(settings, "w", ("parts",))),
        settings.scalars,
        settings.arrays(
            queries=size * together,
            slab=size * columns,
            values=columns * KEYS,
            scores=together * SEGMENT,
            panel=rows * KEYS,
            chain=step * together,
            sums=step * rows,
            bias=KEYS,
        ),
    )


def join(settings: AttentionSettings, target: Target) -> Interface:
    """Joins the `parts` of decoding, in which a mask has its effect. `wanted` as forward."""
    results = _buffers(settings, "w", ("out", "top", "sum", "lse"))
    return Interface(
        _sizes(("wanted",), ("out",)),
        (*_buffers(settings, "r", ("parts",)), *results),
        settings.scalars,
        settings.arrays(sums=symbol("width")),
    )


def backward(settings: AttentionSettings, target: Target) -> Interface:
    """Gradients; `mode` see `attention_backward.c.in`, `of_query` and so on: which are wanted.

    The arrays: a block of keys and of values, packed; of keys as panels by element; a tile's
    scores, the gradients of its weights and the mask; weights and gradients of a block of queries
    by row; gradients of a block of keys; tiles of queries, gradients of results, and statistics;
    queries and gradients as panels; rows of results; the gradient of all queries of a chunk, of
    which only the launch knows the number (`block_rows`). With dropout a chunk has at most `DRAWN`
    queries, and the gradients of all keys follow."""
    rows, columns, _ = settings.tile(target)
    size, width = symbol("size"), symbol("width")
    gradients = ("by_query", "by_key", "by_value")
    masks, states = settings.masks, settings.states
    operands = ("grad", "query", "key", "value", "out")
    one_block = {"by_key": (size + rows) * KEYS, "by_value": (width + rows) * KEYS}
    all_blocks = {}
    if settings.dropout:
        of_block = (size + width + 2 * rows) * KEYS
        all_blocks["by_keys"] = ceildiv(symbol("keys"), KEYS) * of_block
    block_rows = DRAWN if settings.dropout else symbol("block_rows")
    return Interface(
        _sizes(
            ("mode", "of_query", "of_key", "of_value", *settings.flags),
            (*operands, *gradients, *masks, *states),
        ),
        (
            *_buffers(settings, "r", (*operands, "top", "sum", *masks)),
            *_buffers(settings, "w", gradients),
            *_buffers(settings, "r", states),
        ),
        settings.scalars,
        (
            *settings.arrays(
                keys=size * (KEYS + rows),
                values=width * (KEYS + rows),
                key_panels=(size + rows) * KEYS,
                s=(KEYS + rows) * columns,
                change=(KEYS + rows) * columns,
                bias=KEYS * columns,
                weights=ROWS * KEYS,
                changes=ROWS * KEYS,
                **({} if settings.dropout else one_block),
                tiles=(size + width + 3) * ROWS,
                query_panels=(size + rows) * ROWS,
                grad_panels=(width + rows) * ROWS,
                spare=(size + width) * KEYS,
                by_query=mul(block_rows, size),
                **all_blocks,
            ),
            *settings.bits(DRAWN),
        ),
    )


def _samples(name: str) -> Iterator[AttentionSettings]:
    """Every dtype with its masks, other tiles, dropout."""
    for dtype in ("f32", "f64", "f16", "bf16"):
        masks = ("",) if name == "attention_join" else ("", "bool", dtype, "f32")
        for mask in dict.fromkeys(masks):
            yield AttentionSettings(dtype, mask)
            if name in ("attention", "attention_backward"):
                yield AttentionSettings(dtype, mask, dropout=64)
        if name == "attention":
            yield AttentionSettings(dtype, "", tiles=2 * TILES)
            yield AttentionSettings(dtype, "", tiles=1, vectors=1)


def _general(name: str, settings: AttentionSettings) -> AttentionSettings:
    """Settings of kernels that take a mask as numbers to add, or none at all."""
    mask = "" if name == "attention_join" else settings.kind
    return replace(settings, mask=mask, tiles=TILES, vectors=VECTORS)


TEMPLATES = {
    name: Template(
        name, AttentionSettings, interface, partial(_samples, name),
        general=partial(_general, name),
    )
    for name, interface in (
        ("attention", forward),
        ("attention_backward", backward),
        ("attention_decode", decode),
        ("attention_join", join),
    )
}  # fmt: skip

__all__ = [
    "BITS", "DEPTH", "DRAWN", "KEYS", "LANES", "PROBLEM", "ROWS", "SEGMENT", "STATE", "TEMPLATES",
    "TILES", "TOGETHER", "AttentionSettings", "pitch",
]  # fmt: skip
