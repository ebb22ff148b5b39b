"""Kernels (grammar 2): the immutable loop program of one fused kernel.

The scheduler builds these, a printer spells them for a target, and nothing else may know both. A
kernel is free of names and of concrete sizes, so that equal work in different parts of a program is
one and the same text, compiled once.

Axes and symbols. Every index and extent is a `Size` over these symbols only:

    n0 n1 ..    size arguments of the call (extents, strides, offsets; `long n[]` in C)
    p0 p1 ..    parallel row axes, `rows` gives their extents
    r           the inner axis, extent `inner`
    k           the axis that forms "column" and "scan" loop over, extent `reduce`
    d0 d1 ..    data-dependent indices, local to one `k.load` or `k.index`: its inputs 0, 1, ..

`inner` and `reduce` may depend on p* (blocks: `min(4096, n0 - 4096*p0)`), then at most 8192.
Divisions and remainders in indices only ever see non-negative operands. Indices count elements.

Forms:

    map     [Pass]: for every row, for every r (parallel too): stores. No reductions, no `keeps`.
    row     [Pass | RowStores, ...]: for every row, each Pass in turn loops r over [0, inner),
            reducing along r, writing vectors of values to scratch (`keeps`) and storing. *Later*
            statements read a result as `k.reduced(name)`, a resident vector as `k.kept(name)`.
            RowStores happen once per row and use row scalars only (nothing that depends on r).
    column  [ReducePass | Pass, ...]: for every row and every r (both parallel; r is vectorised, in
            blocks of `COLUMN_BLOCK`): a ReducePass loops k over [0, reduce), reducing along k (one
            result per r) and storing; a Pass happens once per r (no reductions, no `keeps`, nothing
            depends on k).
    scan    [ScanPass]: rows and r as in "column"; k runs sequentially; `k.carry(name)` is the
            running value that includes element k, also for the scans after it. Stores happen at
            every k.
    template
            [Pass, ..] or nothing: a compute-bound loop nest (a matrix product, say) that the
            printer `codegen/c/kernels/c_template_<family>.py` spells, with `settings` as its
            compile-time choices. The body is what happens to its results, its *epilogue*: Passes
            without reductions, where p0 .. and r count the results' coordinates and
            `k.kept("result")` is the result itself, of dtype `settings["result"]`. The module that
            schedules it defines its chunks and the size of its scratch.

Values that do not depend on r (in "row": means, inverse deviations; broadcast loads) are row
scalars: the printer computes them once per row.

Order: all loads of one vector of elements precede its stores, since a store may go to the memory
a load of the same index came from (in-place); so no `restrict`. No element of a written buffer is
read at another index in the same kernel.

Chunks. The kernel function runs chunks [begin, end); `chunk_count` says how many there are:

    map without rows      chunk c is r in [c*MAP_CHUNK, min(inner, (c+1)*MAP_CHUNK))
    map, row with rows    chunk c is rows [c*q, min(total, (c+1)*q)) of the row-major flattened
                          rows; row without rows: one row
    column, scan          as with rows, with one more last row axis: blocks of COLUMN_BLOCK of r
    map with `tiled`      as with rows, where the last row axis counts in blocks of TILE_BLOCK:
                          some load has stride 1 along the last row axis while stores have it
                          along r, so the printer transposes TILE_BLOCK x TILE_BLOCK tiles
    q is `rows per chunk`, the LAST size argument n[size_count - 1] (absent: "map without rows").

Reductions use the canonical order (docs/design.md § 3): over r in "row", over k in "column".
`argmax` and `argmin` give the first position (i64) along the reduced axis; NaN wins in max, min
and arg*. A reduction over no elements gives the identity (arg*: 0).
Scan operations: sum prod max min (NaN wins), and linear: the value is `k.pair(a, b)` and the
running value y becomes a*y + b (rounded twice), b at k = 0.

`check_index` (size, dimension, parameter) of an i64 value wraps it into [0, size). A value outside
[-size, size) (with `strict`: outside [0, size)) is reported to the parameter, of dtype "error", and
replaced by 0.

Element types: `sum`, `prod`, `max`, `min` have the dtype of their value, `xor` that of integers;
`any`, `all` take and give bool. A store's value has the dtype of its parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from flambeau.ir import size as sizes_module
from flambeau.ir.dtypes import CATEGORY
from flambeau.ir.lock import computed_once, memo
from flambeau.ir.node import ITEM_SIZE, Form, Node, topological
from flambeau.ir.size import Size

MAP_CHUNK = 8192  # elements per chunk of a map without rows
COLUMN_BLOCK = 64  # columns that a "column" or "scan" kernel handles together
TILE_BLOCK = 64  # edge of the tiles of a transposing map
REDUCE_BLOCK = 4096  # elements per block of the canonical reduction order
REDUCE_CHUNK = 512  # elements whose sums start anew in a block: the lanes of chunks are added

REDUCTIONS = ("sum", "prod", "max", "min", "argmax", "argmin", "any", "all", "xor")
SCANS = ("sum", "prod", "max", "min", "linear")

Store = tuple[int, Size, Node]  # parameter, element index, value
Reduction = tuple[str, str, Node]  # name, operation, reduced value
Keep = tuple[str, Node]  # name, value
Setting = str | int | bool


@dataclass(frozen=True)
class Pass:
    """One loop over r. See the module's page for what each form allows."""

    stores: tuple[Store, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    keeps: tuple[Keep, ...] = ()


@dataclass(frozen=True)
class RowStores:
    """Stores that happen once per row, of values that are row scalars."""

    stores: tuple[Store, ...]


@dataclass(frozen=True)
class ReducePass:
    """Form "column": one loop over k for every r."""

    reductions: tuple[Reduction, ...] = ()
    stores: tuple[Store, ...] = ()


@dataclass(frozen=True)
class ScanPass:
    """Form "scan": the sequential loop over k for every r."""

    scans: tuple[Reduction, ...]
    stores: tuple[Store, ...]


Statement = Pass | RowStores | ReducePass | ScanPass

_texts: dict[tuple[Kernel, str], str] = memo()  # of equal layers' kernels, printed once


@dataclass(frozen=True)
class Kernel:
    """One fused kernel.

    Attributes:
        form: "map", "row", "column", "scan" or "template".
        parameters: per buffer its element type ("error": an error record) and access "r", "w" or
            "rw".
        size_count: number of size arguments, n0 .. n{size_count - 1}.
        scalars: per run-time scalar its dtype: "f64" is read as `.d`, "i64" and "bool" as `.i`.
        rows: extents of the parallel row axes p0 .. (may be empty).
        inner: extent of r.
        reduce: extent of k; 1 where the form has no k.
        body: statements, in order.
        tiled: see "Chunks" in the module's page.
        template: form "template": which one.
        settings: form "template": sorted (name, value) pairs that choose its code.
    """

    form: str
    parameters: tuple[tuple[str, str], ...]
    size_count: int
    scalars: tuple[str, ...]
    rows: tuple[Size, ...]
    inner: Size
    body: tuple[Statement, ...]
    reduce: Size = 1
    tiled: bool = False
    template: str = ""
    settings: tuple[tuple[str, Setting], ...] = ()

    def setting(self, name: str) -> Any:
        """A compile-time choice of a template."""
        return dict(self.settings)[name]

    @computed_once
    def _text(self) -> str:
        key = self, str(self.settings)  # 1 and True are equal, and print differently
        text = _texts.get(key)
        if text is None:
            text = _texts[key] = _print(self)
        return text

    def text(self) -> str:
        """Canonical text: equal text means equal kernels."""
        return self._text

    def roots(self) -> list[Node]:
        """Every value that a statement uses directly, in order of appearance."""
        values: list[Node] = []
        for statement in self.body:
            values.extend(statement_values(statement))
        return values

    @property
    def takes_rows_per_chunk(self) -> bool:
        """Whether the last size argument is the number of rows per chunk."""
        return self.form != "template" and not (self.form == "map" and not self.rows)


# ------------------------------------------------------------------------------- value nodes

LOAD, INDEX, CONST, SCALAR = map(Form, ("k.load", "k.index", "k.const", "k.scalar"))
REDUCED, KEPT, CARRY, PAIR = map(Form, ("k.reduced", "k.kept", "k.carry", "k.pair"))
CHECK_INDEX = Form("check_index")
RESULTS = (REDUCED, KEPT, CARRY)  # of earlier statements, by name


def load(
    parameter: int,
    index: Size,
    dtype: str,
    inputs: Iterable[Node] = (),
    mask: Node | None = None,
    other: str = "0",
) -> Node:
    """Element `index` of a parameter. `inputs` (i64 values) are bound to d0, d1, .. in `index`.

    With a `mask` (a bool value, then the last input) elements where it is false are not read and
    are `other`, written as `const` writes its value.
    """
    operands = tuple(inputs)
    if mask is None:
        return LOAD(operands, (("index", index), ("parameter", parameter)), dtype)
    packed = (("index", index), ("masked", True), ("other", other), ("parameter", parameter))
    return LOAD((*operands, mask), packed, dtype)


def index(expression: Size, inputs: Iterable[Node] = ()) -> Node:
    """The i64 value of an index expression; `inputs` are bound to d0, d1, .. as in `load`."""
    return INDEX(inputs, (("expression", expression),), "i64")


def const(value: Any, dtype: str) -> Node:
    """A constant. Stored as text, so that 0.0, -0.0, 0 and False stay different (and NaN equal)."""
    return CONST((), (("value", encode_constant(value, dtype)),), dtype)


def scalar(slot: int, dtype: str) -> Node:
    """Run-time scalar number `slot` of the kernel (`Kernel.scalars`), dtype f64, i64 or bool."""
    return SCALAR((), (("slot", slot),), dtype)


def reduced(name: str, dtype: str) -> Node:
    """Result of a reduction of an earlier statement."""
    return REDUCED((), (("name", name),), dtype)


def kept(name: str, dtype: str) -> Node:
    """Element r of a resident vector, which an earlier Pass of the same row wrote."""
    return KEPT((), (("name", name),), dtype)


def pair(a: Node, b: Node) -> Node:
    """The two values that scan operation `linear` takes at each element."""
    return PAIR((a, b), (), a.dtype)


def carry(name: str, dtype: str) -> Node:
    """Running value of a scan, element k included."""
    return CARRY((), (("name", name),), dtype)


@lru_cache(maxsize=4096)
def _encode_float(value: float, negative: bool) -> str:
    if value != value:
        return "nan"
    return value.hex()  # "inf", "-inf", "0x1.8p+1"


def encode_constant(value: Any, dtype: str) -> str:
    """`value` as text: hexadecimal floats ("0x1.8p+1", "inf", "nan"), ints, "true"/"false", and for
    complex types real and imaginary part joined by a comma."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype[0] == "c":
        number = complex(value)
        return f"{encode_constant(number.real, 'f64')},{encode_constant(number.imag, 'f64')}"
    if CATEGORY[dtype] == 2:
        number = float(value)
        return _encode_float(number, str(number)[0] == "-")
    return str(int(value))


def decode_constant(text: str, dtype: str) -> bool | int | float | complex:
    """The value that `encode_constant` wrote."""
    if dtype == "bool":
        return text == "true"
    if dtype[0] == "c":
        real, imaginary = text.split(",")
        return complex(float.fromhex(real), float.fromhex(imaginary))
    if CATEGORY[dtype] == 2:
        return float.fromhex(text)
    return int(text)


# ------------------------------------------------------------------------------- questions


def statement_values(statement: Statement) -> list[Node]:
    """Values a statement uses directly: reductions or scans, `keeps`, stores."""
    values: list[Node] = []
    if isinstance(statement, (Pass, ReducePass)):
        values.extend(value for _, _, value in statement.reductions)
    if isinstance(statement, Pass):
        values.extend(value for _, value in statement.keeps)
    if isinstance(statement, ScanPass):
        values.extend(value for _, _, value in statement.scans)
    values.extend(value for _, _, value in statement.stores)
    return values


def value_expression(value: Node) -> Size | None:
    """The index expression inside a `k.load` or `k.index`; None for other nodes."""
    expression: Size | None = None
    if LOAD.matches(value):
        expression = value.attribute("index")
    elif INDEX.matches(value):
        expression = value.attribute("expression")
    return expression


def chunk_count(kernel: Kernel, sizes: Sequence[Size]) -> Size:
    """Number of chunks of a call with these size arguments, as a size expression.

    Args:
        kernel: the kernel.
        sizes: one expression per size argument, the rows per chunk last where it takes them.
    """
    bound = {f"n{i}": s for i, s in enumerate(sizes)}
    if not kernel.takes_rows_per_chunk:
        return sizes_module.ceildiv(sizes_module.substitute(kernel.inner, bound), MAP_CHUNK)
    total = row_count(kernel, bound)
    return sizes_module.ceildiv(total, sizes[-1])


def row_count(kernel: Kernel, bound: Mapping[str, Size]) -> Size:
    """Number of chunkable rows: row axes, with blocks of r or of the last row axis where the form
    has them; `bound` gives the size arguments by symbol name."""
    extents = [sizes_module.substitute(e, bound) for e in kernel.rows]
    if kernel.form in ("column", "scan"):
        inner = sizes_module.substitute(kernel.inner, bound)
        extents.append(sizes_module.ceildiv(inner, COLUMN_BLOCK))
    elif kernel.tiled:
        extents[-1] = sizes_module.ceildiv(extents[-1], TILE_BLOCK)
    total: Size = 1
    for extent in extents:
        total = sizes_module.mul(total, extent)
    return total


def scratch_bytes(kernel: Kernel, sizes: Sequence[Size]) -> Size:
    """Bytes of scratch of the resident vectors: for each, in order of appearance, `inner` elements
    rounded up to a multiple of 64 elements. Only row kernels have any."""
    bound = {f"n{i}": s for i, s in enumerate(sizes)}
    total: Size = 0
    for statement in kernel.body:
        if isinstance(statement, Pass):
            for _, value in statement.keeps:
                extent = sizes_module.substitute(kernel.inner, bound)
                padded = sizes_module.mul(sizes_module.ceildiv(extent, 64), 64)
                bytes_needed = sizes_module.mul(padded, ITEM_SIZE[value.dtype])
                total = sizes_module.add(total, bytes_needed)
    return total


# ------------------------------------------------------------------------------- canonical text


def _attribute_text(value: Node) -> str:
    return "".join(f" {name}={item}" for name, item in value.attributes)


def _print(kernel: Kernel) -> str:
    numbers: dict[Node, int] = {}
    lines = [
        f"kernel {kernel.form}{' tiled' if kernel.tiled else ''}",
        "parameters " + " ".join(f"{access}:{dtype}" for dtype, access in kernel.parameters),
        f"sizes {kernel.size_count} scalars {' '.join(kernel.scalars)}",
        f"rows {' , '.join(str(e) for e in kernel.rows)}",
        f"inner {kernel.inner} reduce {kernel.reduce}",
    ]
    if kernel.template:
        choices = " ".join(f"{name}={value!r}" for name, value in kernel.settings)
        lines.append(f"template {kernel.template} {choices}")
    for value in topological(kernel.roots()):
        numbers[value] = number = len(numbers)
        operands = "".join(f" %{numbers[i]}" for i in value.inputs)
        lines.append(f"%{number} = {value.op} {value.dtype}{operands}{_attribute_text(value)}")
    for statement in kernel.body:
        lines.append(type(statement).__name__)
        if isinstance(statement, (Pass, ReducePass)):
            for name, operation, value in statement.reductions:
                lines.append(f"  reduce {name} {operation} %{numbers[value]}")
        if isinstance(statement, ScanPass):
            for name, operation, value in statement.scans:
                lines.append(f"  scan {name} {operation} %{numbers[value]}")
        if isinstance(statement, Pass):
            for name, value in statement.keeps:
                lines.append(f"  keep {name} %{numbers[value]}")
        for parameter, position, value in statement.stores:
            lines.append(f"  store {parameter} [{position}] %{numbers[value]}")
    return "\n".join(lines) + "\n"
