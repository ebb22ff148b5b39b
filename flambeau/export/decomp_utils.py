"""Tables of decompositions for `ExportedProgram.run_decompositions`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._decomp import core_aten_decompositions

__all__ = ["CustomDecompTable", "default_decompositions"]

Operator = Any  # an overload
Table = dict[Operator, Callable[..., Operator]]


class CustomDecompTable(Table):
    """Decompositions to core ATen, which a program may change.

    Example:
        >>> table = torch.export.default_decompositions()
        >>> _ = table.pop(torch.ops.aten.linear.default, None)
        >>> program = torch.export.export(nn.Linear(2, 3), (torch.ones(1, 2),))
        >>> [n.name for n in program.run_decompositions(table).graph.nodes][-2:]
        ['linear', 'output']
    """

    def __init__(self) -> None:
        super().__init__(core_aten_decompositions())

    def copy(self) -> CustomDecompTable:
        """Another table with the same entries."""
        table = CustomDecompTable()
        table.clear()
        table.update(self)
        return table

    def materialize(self) -> Table:
        """The entries as a dictionary."""
        return dict(self)


def default_decompositions() -> CustomDecompTable:
    """The decompositions to core ATen, the set of operators that exporters agree on."""
    return CustomDecompTable()
