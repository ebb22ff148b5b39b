"""Micro-kernels: the innermost loops of matrix products, and the packing that feeds them.

Templates (products, convolution, attention) put these static C functions in front of their own
text. With `micro = Micro.of("f32", target)`, `micro.text()` defines, K standing for "f32", "f64",
"i32" or "i64" (integers wrap):

    void fb_kernel_micro_K(long long rows, long long depth, const Kx1 *a, const Kx1 *b,
                           long long b_step, Kx1 *c, long long c_step, long long accumulate)

        c[i * c_step + j] (+)= sum over k < depth of a[k * rows + i] * b[k * b_step + j]
        for i < rows, j < `micro.columns`; `accumulate`: added to c, else stored.

    Each element is one chain of FMAs from +0 in increasing k, whatever the instruction set: with at
    most `CHUNK` of K per call, in increasing order, this is the canonical sum of docs/design.md.
    `rows` is at most `micro.rows`: the panel of A is packed with that very width. A height that
    has no code of its own runs as several (a panel of 13 rows as 8, 4 and 1).
    `b_step` is `micro.columns` for a packed slab; rows of B that lie along memory need no packing.

`micro.packing(stored)` defines, for elements stored as that kind, as a half type (K = "f32")
or a narrower integer (K = "i32"):

    void fb_kernel_pack_K_STORED(long long used, long long width, long long depth,
                                 const Tx1 *from, long long step, long long k_step,
                                 Kx1 *to, long long to_step)

        to[k * to_step + i] = from[i * step + k * k_step] for i < used, 0 for used <= i < width.

    It serves both operands: a panel of A (used = width = rows) and a slab of B (width = columns).
    With `Micro.of(kind, target, planes=2)` numbers are complex, real and imaginary parts apart: a
    row of a panel is `rows` real parts, then as many imaginary ones, a row of a slab or of c
    `columns` real parts, then imaginary ones. Offsets and steps count real numbers.

    `staged` micro-kernels have five more arguments, last: `const Kx1 *before, long long
    before_step`, sums so far, which take the place of c's where those are added to; `ahead`, of
    packed elements that are needed soon: a vector of them per k is fetched into the nearest cache;
    and `a_row, a_k`, strides of a in bytes, so that it need not be packed. Where `rounded` is set,
    there are two more: `u16x1 *out, long long out_step`; unless out is null, sums are rounded and
    stored there, and c is scratch memory. The caller defines `fb_kernel_finish` before.

    T is `MEMORY_KIND[stored]`. Memory along i or along k is read in whole vectors, the latter
    turned in registers; other strides element by element. Nothing outside of `to`'s rows is
    written, nothing outside of `from`'s elements read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from flambeau.compiler.codegen.c.printer.c_forms import SYMBOL
from flambeau.compiler.codegen.c.printer.c_types import MEMORY_KIND, kind_bits
from flambeau.compiler.codegen.c.template import Value, render
from flambeau.compiler.targets import Target
from flambeau.compiler.templates.product import CHUNK
from flambeau.compiler.templates.tile import VECTORS

PREFETCH = 12  # rows of b
NEAR = 4  # rows of an unpacked b: where they are a power of two apart, many share few cache sets


@dataclass(frozen=True)
class Micro:
    """The micro-kernels of a kind for a target.

    Attributes:
        kind: of packed operands and sums.
        lanes: of a vector.
        heights: panel heights with code of their own, the largest first.
        target: what declares the instructions.
        planes: 2 for complex numbers, else 1.
        staged: whether sums so far may lie elsewhere, and what comes next is fetched.
        rounded: the half type that sums may be rounded to on their way to memory, or "".
        vectors: of a row of sums.
    """

    kind: str
    lanes: int
    heights: tuple[int, ...]
    target: Target
    planes: int = 1
    staged: bool = False
    rounded: str = ""
    vectors: int = VECTORS

    @staticmethod
    def of(kind: str, target: Target, planes: int = 1, vectors: int = VECTORS) -> Micro:
        """The micro-kernels that suit a target."""
        heights = target.heights if planes == 1 else target.complex_heights
        lanes = target.lanes(kind_bits(kind) // 8)
        return Micro(kind, lanes, heights, target, planes, vectors=vectors)

    @property
    def masks(self) -> bool:
        """Whether lanes of a vector may be left out of loads and stores at no cost."""
        return self.target.masks_lanes(self.kind, self.lanes)

    @property
    def rows(self) -> int:
        """Most rows of a panel of A."""
        return self.heights[0]

    @property
    def columns(self) -> int:
        """Columns of a slab of B."""
        return self.vectors * self.lanes // self.planes

    @property
    def name(self) -> str:
        """The C function's name."""
        narrow = "" if self.vectors == VECTORS else f"_{self.vectors}"
        return f"{SYMBOL}_micro_{self.kind}{narrow}"

    @property
    def packed(self) -> str:
        """Kind of a packed element."""
        return self.kind

    @property
    def group(self) -> int:
        """Elements of K per packed element."""
        return 1

    @property
    def chunk(self) -> int:
        """Elements of K of one call of the micro-kernel, at most."""
        return CHUNK

    @property
    def starts(self) -> bool:
        """Whether sums have a start of their own, an argument of the micro-kernel."""
        return False

    @property
    def chain(self) -> str:
        """The C function of one step of a chain; "" where sums of products wrap."""
        return "" if self.kind[0] == "i" else f"fb_fma_{self.kind}x{self.lanes}"

    @property
    def exchanged(self) -> bool:
        """Whether the element of B is the first operand of a step."""
        return False

    @property
    def names(self) -> dict[str, Value]:
        """The names that the texts share.

        K: kind of sums; V: a vector of L of them; P, Q: a packed element, and L of them, of which
        one has G elements of K; W, R: columns of a slab and rows of a panel.
        """
        return {
            "K": self.kind,
            "V": f"{self.kind}x{self.lanes}",
            "P": self.packed,
            "Q": f"{self.packed}x{self.lanes}",
            "L": self.lanes,
            "G": self.group,
            "W": self.columns,
            "R": self.rows,
            "micro": self.name,
            "chain": self.chain,
            "integers": not self.chain,
            "vectors": [(j, j * self.lanes) for j in range(self.vectors)],
            "starts": self.starts,
            "rounded": self.rounded,
        }

    def text(self) -> str:
        """C text of the micro-kernels."""
        return _blocks(self)

    def block(self, height: int) -> tuple[Value, ...]:
        """The loops of the block of a height: rows, three of which are reached by one address, and
        the vectors of sums."""
        whole, thirds = self.staged and height == self.rows, -(-height // 3)
        rows = [(i, i // 3, i % 3, self._products(i)) for i in range(height)]
        sums = [(i, j, j * self.lanes) for i in range(height) for j in range(self.vectors)]
        groups = [(group, group - 1) for group in range(1, thirds)]
        narrows, converts = (whole and self.rounded == half for half in ("bf16", "f16"))
        return height, whole, narrows, converts, rows, sums, groups, range(thirds)

    def _products(self, row: int) -> list[Value]:
        """The sums of a row, with the operands of their steps in order."""
        pairs = [(f"a{row}", f"b{j}") for j in range(self.vectors)]
        if self.exchanged:
            pairs = [(b, a) for a, b in pairs]
        return [(f"s{row}_{j}", *pair) for j, pair in enumerate(pairs)]

    def packing(self, stored: str, swapped: bool = False) -> str:
        """C text of the packing function of a stored element type; `swapped`: the odd element of
        each pair along K comes first."""
        if self.planes == 1:
            return packing(self, self.packing_name(stored), stored, swapped=swapped)
        parts = self.packing_name(self.kind)
        names = {"pack": self.packing_name(stored), "parts": parts, "T": f"{MEMORY_KIND[stored]}x1"}
        text = render("product/pack_complex", names, self.names)
        return packing(self, parts, self.kind) + text

    def packing_name(self, stored: str, left: bool = False) -> str:
        """The packing function's name; `left`: of the operand whose rows are panels."""
        return f"{SYMBOL}_pack_{self.kind}_{stored}"


@functools.cache
def _blocks(micro: Micro) -> str:
    """C text of the micro-kernels: most of what is printed of a product."""
    names: dict[str, Value] = {
        "PREFETCH": PREFETCH,
        "NEAR": NEAR,
        "staged": micro.staged,
        "complex": micro.planes == 2,
        "earlier": "before" if micro.staged else "c",
        "blocks": [micro.block(height) for height in micro.heights],
        "lower": [("if" if i else "while", h) for i, h in enumerate(micro.heights[1:])],
    }
    return render("product/micro", names, micro.names)


# ------------------------------------------------------------------------------- packing


@functools.cache
def packing(
    micro: Micro, name: str, stored: str, *, decoder: str = "", swapped: bool = False
) -> str:
    """C text of a packing function.

    Args:
        micro: what it packs for.
        name: of the function.
        stored: dtype in memory.
        decoder: the function that turns what is stored into numbers, but for the lane count; "":
            the one of the dtype.
        swapped: the odd element of each pair along K comes first.
    """
    lanes, memory, tail = micro.lanes, MEMORY_KIND[stored], micro.rows % micro.lanes
    if not decoder and stored in ("f16", "bf16"):
        decoder = f"fb_from{stored}_u16x"
    elif not decoder and memory != micro.kind:
        decoder = f"fb_to_{micro.kind}x"
    results = [(k, k ^ swapped) for k in range(lanes)]
    names: dict[str, Value] = {
        "pack": name,
        "T": f"{memory}x1",
        "T_vector": f"{memory}x{lanes}",
        "decode": f"{decoder}{lanes}" if decoder else "",
        "decode_one": f"{decoder}1" if decoder else "",
        "masks": micro.masks,
        "parts": _halves(lanes, kind_bits(micro.kind) // 8),
        "swapped": swapped,
        "ordered": not swapped,
        "AHEAD": 4 * lanes,
        "tail": tail,
        "some": range(tail),
        "others": range(tail, lanes),
        "spills": micro.rows < lanes,
        "results": results,
        "spilled": results[:-1],
        "last": results[-1:],
        **transposition(lanes, micro.kind),
    }
    return render("product/pack", names, micro.names)


def _halves(lanes: int, item: int) -> list[Value]:
    """Parts of a vector whose sizes are powers of two, the largest first, with their bytes."""
    parts: list[Value] = []
    while lanes > 1:
        lanes //= 2
        parts.append((lanes, lanes * item))
    return parts


def transposition(lanes: int, kind: str) -> dict[str, Value]:
    """The names that transpose a square block in registers: `lanes`, exchanges (result, two
    operands, order of their lanes), and per row the result that becomes it."""
    rows = [f"t{i}" for i in range(lanes)]
    exchanges: list[Value] = []
    for first, second, orders in _exchanges(lanes, kind_bits(kind)):
        operands = rows[first], rows[second]
        for row, order in zip((first, second), orders):
            rows[row] = f"u{len(exchanges)}"
            exchanges.append((rows[row], *operands, listed(order)))
    registers = enumerate(_transposed(lanes, kind))
    return {
        "lanes": range(lanes),
        "exchanges": exchanges,
        "transposed": [(row, rows[register]) for row, register in registers],
    }


def listed(places: Iterable[int]) -> str:
    """The order of a shuffle."""
    return ", ".join(map(str, places))


def _exchanges(lanes: int, bits: int) -> Iterable[tuple[int, int, tuple[list[int], list[int]]]]:
    """The exchanges of a transposition in registers: (first, second, orders of the two results).

    Inside of parts of 128 bits elements are interleaved, then whole parts are exchanged: every step
    is one instruction on x86. Where the result for each k is left, `_transposed` tells.
    """
    inside = 128 // bits  # elements of a part
    parts = lanes // inside

    def by_part(pattern: list[int]) -> list[int]:
        return [
            part * inside + p % inside + (lanes if p >= inside else 0)
            for part in range(parts)
            for p in pattern
        ]

    low, high = ([0, 2], [1, 3]) if inside == 2 else ([0, 4, 1, 5], [2, 6, 3, 7])
    for i in range(0, lanes, 2):
        yield i, i + 1, (by_part(low), by_part(high))
    if inside == 4:
        for i in range(0, lanes, 4):
            for j in (0, 1):
                yield i + j, i + j + 2, (by_part([0, 1, 4, 5]), by_part([2, 3, 6, 7]))

    def parts_of(chosen: list[int]) -> list[int]:
        return [part * inside + e for part in chosen for e in range(inside)]

    distance = inside
    while distance < lanes:
        even = [*range(0, parts, 2), *range(parts, 2 * parts, 2)]
        odd = [part + 1 for part in even]
        for i in range(lanes):
            if not i & distance:
                yield i, i + distance, (parts_of(even), parts_of(odd))
        distance *= 2


def _transposed(lanes: int, kind: str) -> list[int]:
    """Returns, for each k, the register that holds element k of all rows after `_exchanges`."""
    rows = [[(i, k) for k in range(lanes)] for i in range(lanes)]
    for first, second, orders in _exchanges(lanes, kind_bits(kind)):
        both = rows[first] + rows[second]
        rows[first], rows[second] = ([both[p] for p in order] for order in orders)
    registers = [0] * lanes
    for register, elements in enumerate(rows):
        assert [i for i, _ in elements] == list(range(lanes))
        registers[elements[0][1]] = register
    return registers


__all__ = ["CHUNK", "VECTORS", "Micro", "listed", "packing", "transposition"]
