"""The instructions of a block program while it is made, and where each value is.

A value is computed where its operands are: in the prologue (numbers and constants), before the
loop of a statement (what is the same for a whole block of rows or of columns), or in its body. An
operand that varies along fewer axes than the result is expanded, once, where it is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from flambeau.compiler.baseline.program import (
    ALONG_S,
    ALONG_W,
    BOTH,
    ENCODED,
    NONE,
    Draft,
    Instruction,
    Numbers,
    Statement,
)
from flambeau.ir import kernel as k
from flambeau.ir import size as sizes
from flambeau.ir.kernel import Kernel
from flambeau.ir.node import ITEM_SIZE, Node, topological
from flambeau.ir.size import Size


def width_of(dtype: str) -> int:
    """Bytes of a value in a register."""
    return 4 if dtype in ENCODED else ITEM_SIZE[dtype]


@dataclass(frozen=True)
class Place:
    """Where a value is: its register, what it varies along, and in which list it is computed."""

    register: int
    level: int
    home: str  # "prologue", "before" or "body"


@dataclass
class Scope:
    """The statement that is being lowered."""

    statement: Statement = field(default_factory=Statement)
    places: dict[object, Place] = field(default_factory=dict)  # of its body


class Emission:
    """The instructions of a kernel, and where its values are.

    Args:
        kernel: the kernel.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.across = kernel.form in ("column", "scan")
        self.spans = not self.across and _spans(kernel)
        self.axis = "k" if self.across else f"p{len(kernel.rows) - 1}" if self.spans else ""
        self.outside = ALONG_W if self.across else ALONG_S  # what varies along it is in `before`
        self.draft = Draft(
            kernel.form, kernel.tiled, self.spans, kernel.size_count, len(kernel.scalars)
        )
        self.draft.parameters = [
            (8 if dtype == "error" else ITEM_SIZE[dtype], "w" in access)
            for dtype, access in kernel.parameters
        ]
        self.expressions: dict[Size, int] = {}
        self.levels: dict[Node, int] = {}
        self.constant: set[Node] = set()
        self.places: dict[object, Place] = {}  # of the prologue and of all `before`
        self.results: dict[str, Place] = {}  # of reductions and scans
        self.scope = Scope()

    # --------------------------------------------------------------------------- levels

    def _set_levels(self) -> None:
        across = ALONG_W if self.across else ALONG_S
        fixed = {k.KEPT.name: BOTH, k.REDUCED.name: across, k.CARRY.name: BOTH}
        for node in topological(self.kernel.roots()):
            level = fixed.get(node.op, NONE)
            expression = k.value_expression(node)
            if expression is not None:
                level |= self._level(expression)
            for operand in node.inputs:
                level |= self.levels[operand]
            self.levels[node] = level
            if self._is_constant(node, expression):
                self.constant.add(node)

    def _level(self, expression: Size) -> int:
        """The axes that an expression varies along. A block of one axis varies along all of it."""
        free = sizes.free_symbols(expression)
        if self.across and self.kernel.inner == 1:
            return BOTH if self.axis in free else NONE
        if not self.axis:
            return BOTH if "r" in free else NONE
        return (ALONG_W if "r" in free else 0) | (ALONG_S if self.axis in free else 0)

    def _is_constant(self, node: Node, expression: Size | None) -> bool:
        """Whether a value depends on numbers alone."""
        if any(form.matches(node) for form in (k.CONST, k.SCALAR)):
            return True
        if k.INDEX.matches(node) and not node.inputs:
            assert expression is not None
            return all(name[0] == "n" for name in sizes.free_symbols(expression))
        if expression is not None or k.CHECK_INDEX.matches(node) or not node.inputs:
            return False
        return all(operand in self.constant for operand in node.inputs)

    def _home(self, node: Node) -> str:
        if node in self.constant:
            return "prologue"
        return self._home_of(self.levels[node])

    def _home_of(self, level: int) -> str:
        return "body" if level & ~self.outside else "before"

    # --------------------------------------------------------------------------- instructions

    def _add(self, home: str, instruction: Instruction) -> None:
        listed = {
            "prologue": self.draft.prologue,
            "before": self.scope.statement.before,
            "body": self.scope.statement.body,
        }[home]
        listed.append(instruction)

    def _register(self, width: int) -> int:
        self.draft.registers.append(width)
        return len(self.draft.registers) - 1

    def _emit(
        self,
        code: str,
        level: int,
        home: str,
        width: int,
        operands: Sequence[int] = (),
        numbers: Sequence[int] = Numbers(),
        functions: Sequence[str] = (),
    ) -> Place:
        """Adds an instruction with a result."""
        place = Place(self._register(width), level, home)
        self._add(
            home,
            Instruction(code, level, place.register, tuple(operands), numbers, tuple(functions)),
        )
        return place

    def _find(self, key: object) -> Place | None:
        return self.scope.places.get(key) or self.places.get(key)

    def _remember(self, key: object, place: Place) -> Place:
        (self.scope.places if place.home == "body" else self.places)[key] = place
        return place

    def _size(self, expression: Size) -> int:
        """The number of a size expression; -1 for 0."""
        if isinstance(expression, int) and expression == 0:
            return -1
        return self.expressions.setdefault(expression, len(self.expressions))

    def _at(self, node: Node, level: int, home: str) -> int:
        """The register of a value, expanded to a level."""
        return self._expanded(node, self._place_of(node), width_of(node.dtype), level, home)

    def _place_of(self, node: Node) -> Place:
        if k.CARRY.matches(node):
            return self.results[node.attribute("name")]
        place = self._find(node)
        assert place is not None
        return place

    def _expanded(self, key: object, place: Place, width: int, level: int, home: str) -> int:
        """The register of a place with a value for every element of a level."""
        if place.level == level or (place.home == "prologue" and home == "prologue"):
            return place.register
        target = BOTH if place.home == "prologue" else level
        expanded = self._find((key, "expanded", target))
        if expanded is None:
            name = {NONE: "splat", ALONG_S: "spread", ALONG_W: "repeat"}[place.level]
            expanded = self._emit(
                "expand", target, place.home, width, [place.register],
                Numbers(place.level), [f"{name} {width}"],
            )  # fmt: skip
            self._remember((key, "expanded", target), expanded)
        return expanded.register


def _spans(kernel: Kernel) -> bool:
    """Whether a block may have several rows: no extent depends on the last row axis."""
    if not kernel.rows:
        return False
    extents = [kernel.inner, kernel.reduce]
    for node in topological(kernel.roots()):
        if k.CHECK_INDEX.matches(node):
            extents.append(node.attribute("size"))
    axis = f"p{len(kernel.rows) - 1}"
    return all(axis not in sizes.free_symbols(extent) for extent in extents)


__all__ = ["Emission", "Place", "Scope", "width_of"]
