"""The iteration space of a kernel, and where in it a node of another shape lives.

A domain is the index space of a tensor shape. In a "reduce" or "scan" domain one axis is set apart.
A value is at the *full* level when it has an element for every point, at the *row* level when it
has one for every point of the other axes (what a reduction gives).
"""

from __future__ import annotations

from flambeau.ir.geometry import Index, Shape, count, reshape_index
from flambeau.ir.kernel import REDUCE_BLOCK
from flambeau.ir.size import Size, SizeExpr, ceildiv, free_symbols, minimum, sub, symbol


class Domain:
    """An index space.

    Args:
        kind: "map", "reduce" or "scan".
        shape: extents.
        axis: the reduced or scanned dimension.
        blocked: the reduced axis is split in blocks of `REDUCE_BLOCK`, each reduced alone; the
            block number is then an axis of its own (a row axis).

    Attributes:
        index: full index in terms of the axis symbols.
        axes: axis symbols by name -> extent, in order; dimensions of extent 1 have none.
        special: name of the reduced or scanned axis' symbol, "" where there is none.
    """

    def __init__(
        self, kind: str, shape: Shape, axis: int | None = None, blocked: bool = False
    ) -> None:
        self.kind, self.shape, self.axis, self.blocked = kind, shape, axis, blocked
        self.key = (kind, shape, axis, blocked)
        self.axes: dict[str, Size] = {}
        self.special = ""
        self.special_extent: Size = 1 if axis is None else shape[axis]
        index: list[Size] = []
        self._row: list[Size] = []
        row_shape: list[Size] = []
        for d, extent in enumerate(shape):
            if d == axis:
                index.append(self._special_axis(extent, row_shape))
                continue
            index.append(self._axis(f"a{d}", extent))
            row_shape.append(extent)
            self._row.append(index[-1])
        self.index: Index = tuple(index)
        self.row_shape: Shape = tuple(row_shape)
        self.numel = count(shape)
        self.row_numel = None if axis is None else count(self.row_shape)
        self._positions: dict[tuple[Shape, bool], Index] = {}

    def _axis(self, name: str, extent: Size) -> Size:
        if extent == 1:
            return 0
        self.axes[name] = extent
        return symbol(name, extent=extent)

    def _special_axis(self, extent: Size, row_shape: list[Size]) -> Size:
        if not self.blocked:
            if extent == 1:
                return 0
            self.special = "x"
            self.axes["x"] = extent
            return symbol("x", extent=extent)
        blocks = ceildiv(extent, REDUCE_BLOCK)
        block = self._axis("b", blocks)
        row_shape.append(blocks)
        self._row.append(block)
        self.special = "x"
        here = sub(extent, block * REDUCE_BLOCK)
        self.special_extent = minimum(REDUCE_BLOCK, here)
        self.axes["x"] = self.special_extent
        return block * REDUCE_BLOCK + symbol("x", extent=REDUCE_BLOCK)

    def text(self) -> str:
        """Kind and extents, for people."""
        extents = ", ".join(str(extent) for extent in self.shape)
        axis = "" if self.axis is None else f" along {self.axis}"
        return f"{self.kind} [{extents}]{axis}{' in blocks' if self.blocked else ''}"

    def level(self, shape: Shape) -> str | None:
        """ "full", "row" or None (neither): where a value of this shape lives."""
        if shape == self.shape:
            return "full"
        if self.axis is not None and shape == self.row_shape:
            return "row"
        numel = count(shape)
        if numel == self.numel:
            return "full"
        return "row" if self.row_numel is not None and numel == self.row_numel else None

    def position(self, shape: Shape, level: str) -> Index:
        """The index of a value of this shape at the kernel's point (or row)."""
        full = level == "full"
        key = (shape, full)
        index = self._positions.get(key)
        if index is None:
            source = (self.index, self.shape) if full else (tuple(self._row), self.row_shape)
            index = self._positions[key] = reshape_index(source[0], source[1], shape)
        return index


def depends(index: Index, name: str) -> bool:
    """Whether an index mentions a symbol."""
    return any(isinstance(p, SizeExpr) and name in free_symbols(p) for p in index)


def divides(size: Size, name: str, lanes: int) -> bool:
    """Whether a size divides what depends on a symbol by another size than a multiple of `lanes`
    (0: by any size)."""
    if isinstance(size, int) or name not in free_symbols(size):
        return False
    if size.kind == "sum":
        return any(divides(atom, name, lanes) for monomial in size.terms for atom in monomial)
    if size.kind in ("floordiv", "mod") and name in free_symbols(size.operands[0]):
        divisor = size.operands[1]
        if not isinstance(divisor, int) or not lanes or divisor % lanes:
            return True
    return any(divides(operand, name, lanes) for operand in size.operands)
