"""Chooses the row axes, inner axis and reduced axis of a kernel, and merges axes.

Everything is decided from the addresses (affine in the axes, mostly): an axis along which memory is
dense should be the inner one, neighbours that are dense together become one axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from flambeau.compiler.schedule.domain import Domain
from flambeau.ir.size import Size, SizeExpr, affine_in, free_symbols

Affine = tuple[dict[str, Size], Size]
FEW_LANES = 8  # a static extent below this is no good vector axis
NARROW = 8  # a static reduced extent up to this is better looped over than vectorised,
SCATTERED = 256  # or up to this where memory is not dense along it (windows)


@dataclass
class Axes:
    """The loop structure of a kernel.

    Attributes:
        form: of the kernel.
        rows: groups of domain axes, outermost first; a group is one row axis.
        inner: group of the inner axis (may be empty: extent 1).
        reduced: whether the domain's special axis is `k` ("column", "scan").
        tiled: see `Kernel.tiled`.
    """

    form: str
    rows: list[list[str]]
    inner: list[str]
    reduced: bool = False
    tiled: bool = False


@dataclass
class Accesses:
    """Addresses and index expressions of a kernel over its domain's axes.

    Attributes:
        loads: addresses that are read.
        stores: addresses that are written at every point (not once per row).
        others: addresses of row stores, and index expressions used as values.
    """

    domain: Domain
    loads: list[Size] = field(default_factory=list)
    stores: list[Size] = field(default_factory=list)
    others: list[Size] = field(default_factory=list)
    _affine: dict[Size, Affine | None] = field(default_factory=dict)

    def affine(self, expression: Size) -> Affine | None:
        """Factors per axis and the rest; None where not affine."""
        if isinstance(expression, int):
            return {}, expression
        if expression not in self._affine:
            self._affine[expression] = affine_in(expression, self.domain.axes)
        return self._affine[expression]

    def factor(self, expression: Size, axis: str) -> Size | None:
        """Stride along an axis; None where unknown."""
        affine = self.affine(expression)
        return None if affine is None else affine[0].get(axis, 0)

    def rank(self, expression: Size) -> int:
        """Number of axes an address depends on; a data-dependent index counts as two."""
        affine = self.affine(expression)
        return 0 if affine is None else len(affine[0]) + 2 * _is_indirect(expression)


def choose(accesses: Accesses) -> Axes:
    """Picks form, order and grouping of the axes."""
    domain = accesses.domain
    names = [name for name in domain.axes if name != domain.special]
    if domain.kind == "map":
        return _choose_map(accesses, names)
    lane = _lane_axis(accesses, names)
    if domain.kind == "scan":
        return _parallel("scan", accesses, names, lane)
    if lane is None:
        return Axes("row", _groups(accesses, names), [domain.special] if domain.special else [])
    return _parallel("column", accesses, names, lane)


def _parallel(form: str, accesses: Accesses, names: list[str], lane: str | None) -> Axes:
    groups = _groups(accesses, names)
    inner = next((g for g in groups if lane in g), [])
    rows = [g for g in groups if g is not inner]
    return Axes(form, rows, inner, reduced=bool(accesses.domain.special))


def _lane_axis(accesses: Accesses, names: list[str]) -> str | None:
    """The axis beside the special one that memory is dense along; None where it is the special
    one (form "row"), or nothing is dense."""
    special = accesses.domain.special
    votes: dict[str, int] = {}
    for address in (*accesses.loads, *accesses.stores):
        along = accesses.factor(address, special) if special else 0
        if along is None or (along == 0 and special and not _is_indirect(address)):
            continue
        weight = 4 ** accesses.rank(address)  # a vector per row weighs little beside a matrix
        if along == 1:
            votes[special] = votes.get(special, 0) + weight
            continue
        for name in names:
            if accesses.factor(address, name) == 1:
                votes[name] = votes.get(name, 0) + weight
    best, most = None, 0
    for name, number in votes.items():
        few = _is_few(accesses.domain.axes[name])
        if name != special and few and accesses.domain.kind == "reduce":
            continue
        if number > most or (number == most and name == special):
            best, most = name, number
    if best is None or best == special:
        limit = NARROW if best else SCATTERED
        return _narrow_lane(accesses, names, limit) if accesses.domain.kind == "reduce" else None
    return best


def _narrow_lane(accesses: Accesses, names: list[str], limit: int) -> str | None:
    """For a short reduced axis: the axis that results are dense along (pooling windows)."""
    extent = accesses.domain.special_extent
    if not isinstance(extent, int) or extent > limit or not names:
        return None
    axes = accesses.domain.axes
    wide = [name for name in names if not _is_few(axes[name])]
    for address in (*accesses.others, *accesses.stores):
        for name in wide:
            if accesses.factor(address, name) == 1:
                return name
    return wide[-1] if wide else None


def _is_few(extent: Size) -> bool:
    return isinstance(extent, int) and extent < FEW_LANES


def _is_indirect(address: Size) -> bool:
    """Whether an address depends on data (d0, d1, ..), which may change along any axis."""
    return any(name[0] == "d" for name in free_symbols(address))


def _choose_map(accesses: Accesses, names: list[str]) -> Axes:
    ordered = _store_order(accesses, names)
    groups = _groups(accesses, ordered)
    if not groups:
        return Axes("map", [], [])
    axes = Axes("map", groups[:-1], groups[-1])
    if _is_short(accesses, axes.inner):
        _lengthen(accesses, axes)
    _choose_tiles(accesses, axes)
    return axes


def _is_short(accesses: Accesses, group: list[str]) -> bool:
    return len(group) == 1 and _is_few(accesses.domain.axes[group[0]])


def _lengthen(accesses: Accesses, axes: Axes) -> None:
    """Trades a short inner axis for a long one that loads are dense along: scattered stores cost
    less than a loop of a few elements."""
    votes = [
        0
        if _is_short(accesses, group)
        else sum(1 for address in accesses.loads if accesses.factor(address, group[-1]) == 1)
        for group in axes.rows
    ]
    best = max(votes, default=0)
    if best:
        number = votes.index(best)
        axes.rows[number], axes.inner = axes.inner, axes.rows[number]


def _store_order(accesses: Accesses, names: list[str]) -> list[str]:
    """Axes from the largest stride of the first store to the smallest."""
    if len(names) < 2 or not accesses.stores:
        return names
    factors = {name: accesses.factor(accesses.stores[0], name) for name in names}
    if factors[names[-1]] == 1:
        return names
    following = next((name for name in names if factors[name] == 1), None)
    if following is None:
        return _load_order(accesses, names)
    remaining = [name for name in names if name != following]
    ordered = [following]
    stride: Size = accesses.domain.axes[following]
    while remaining:
        axis = next((name for name in remaining if factors[name] == stride), None)
        if axis is None:
            break
        remaining.remove(axis)
        ordered.append(axis)
        stride = stride * accesses.domain.axes[axis]
    return remaining + ordered[::-1]


def _load_order(accesses: Accesses, names: list[str]) -> list[str]:
    """The axis most loads are dense along goes last."""
    votes = {
        name: sum(1 for address in accesses.loads if accesses.factor(address, name) == 1)
        for name in names
    }
    best = max(names, key=lambda name: (votes[name], names.index(name)))
    return [name for name in names if name != best] + [best] if votes[best] else names


def _groups(accesses: Accesses, names: Sequence[str]) -> list[list[str]]:
    """Merges neighbours that every address steps through as if they were one axis."""
    groups: list[list[str]] = []
    expressions = list(dict.fromkeys((*accesses.loads, *accesses.stores, *accesses.others)))
    for name in names:
        if groups and _dense_together(accesses, expressions, groups[-1][-1], name):
            groups[-1].append(name)
        else:
            groups.append([name])
    return groups


def _dense_together(
    accesses: Accesses, expressions: Iterable[Size], outer: str, inner: str
) -> bool:
    extent = accesses.domain.axes[inner]
    for expression in expressions:
        if isinstance(expression, int):
            continue
        affine = accesses.affine(expression)
        if affine is None:
            symbols = free_symbols(expression)
            if outer in symbols or inner in symbols:
                return False
            continue
        factors = affine[0]
        if factors.get(outer, 0) != factors.get(inner, 0) * extent:
            return False
    special = accesses.domain.special_extent
    if isinstance(special, SizeExpr):
        return not {outer, inner} & free_symbols(special)
    return True


def _choose_tiles(accesses: Accesses, axes: Axes) -> None:
    """Transposes by tiles where a load is dense along a row axis only."""
    if not axes.rows or not axes.inner:
        return
    inner = axes.inner[-1]
    if not all(accesses.factor(address, inner) == 1 for address in accesses.stores):
        return
    for address in accesses.loads:
        if accesses.factor(address, inner) in (0, 1, None):
            continue
        for number, group in enumerate(axes.rows):
            if accesses.factor(address, group[-1]) == 1:
                axes.rows.append(axes.rows.pop(number))
                axes.tiled = True
                return
