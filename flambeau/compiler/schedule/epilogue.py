"""The epilogue of a template: the members of its cluster as the body of its kernel.

The template's own buffers and size arguments come first; what the epilogue loads, stores and
computes with follows. Its coordinates are p0 .. (all dimensions of the domain but one) and r.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from flambeau.compiler.schedule.build import (
    COST_PER_NANOSECOND,
    Builder,
    InPlaceConflict,
    Memory,
    Place,
    Sizes,
    handed_over,
)
from flambeau.compiler.schedule.cluster import Cluster
from flambeau.compiler.schedule.fusion_roots import LOAD_COST
from flambeau.ir import kernel as k
from flambeau.ir.node import Node, topological
from flambeau.ir.size import Size, floordiv, mul, symbol
from flambeau.prims.record import record_of


@dataclass(frozen=True)
class Epilogue:
    """The additions of an epilogue to a template's kernel and its launch.

    Attributes:
        parameters: (dtype, access) of each buffer.
        memory: the buffers.
        sizes: size arguments.
        scalars: dtypes of run-time scalars.
        arguments: the scalars of the call.
        body: statements.
        work: estimated nanoseconds.
    """

    parameters: tuple[tuple[str, str], ...]
    memory: list[Memory]
    sizes: list[Size]
    scalars: tuple[str, ...]
    arguments: list[tuple[str, int, bool]]
    body: tuple[k.Statement, ...]
    work: Size


class EpilogueBuilder(Builder):
    """Builds the epilogue of a cluster with a template.

    Args:
        cluster: values and domain.
        stores: per stored member the buffers and indices that it is written to.
        reads: where the memory of a fusion root is.
        own: how many buffers and size arguments the template has itself.
    """

    def __init__(
        self,
        cluster: Cluster,
        stores: dict[Node, list[Place]],
        reads: dict[Node, Place],
        own: tuple[int, int],
    ) -> None:
        super().__init__(cluster, stores, reads)
        self.own = own[0]
        for number in range(self.own):
            self.parameters["template", number] = ["", "r"]
        self.sizes = Sizes(own[1])
        roots = self._roots()
        self._collect(roots)

    def runs_along(self, dimension: int) -> bool:
        """Whether a stored result is contiguous along a dimension of the domain."""
        name = f"a{dimension}"
        factors = [self.accesses.factor(address, name) for address in self.accesses.stores]
        return all(factor == 1 for factor in factors)

    def check_operands(self, operands: list[Memory]) -> None:
        """Raises where memory would be overwritten that the template itself reads."""
        for places in self.stores.values():
            for place in places:
                if place.memory[0] == "input" and place.memory in operands:
                    assert isinstance(place.memory[1], int)
                    raise InPlaceConflict([place.memory[1]])

    def finish(self, order: tuple[int, ...]) -> Epilogue:
        """The epilogue, for p0 .., r being the domain's dimensions in this order."""
        self.symbols = {f"a{d}": symbol(f"p{i}") for i, d in enumerate(order[:-1])}
        self.symbols[f"a{order[-1]}"] = symbol("r")
        self.loops = frozenset(
            {"r", *(f"p{i}" for i in range(len(order))), *(f"d{i}" for i in range(8))}
        )
        self._rewritten = {}
        self._check_in_place()
        body = tuple(self._statements())
        added = list(self.parameters.items())[self.own :]
        return Epilogue(
            parameters=tuple((dtype, access) for _, (dtype, access) in added),
            memory=[memory for memory, _ in added],
            sizes=list(self.sizes.arguments),
            scalars=tuple(self.scalars.values()),
            arguments=[handed_over(key, dtype) for key, dtype in self.scalars.items()],
            body=body,
            work=floordiv(mul(self.domain.numel, self.cost), COST_PER_NANOSECOND),
        )


def cost_of(body: Iterable[k.Statement]) -> int:
    """The cost of a point of an epilogue, as `build` counts it."""
    values = topological([value for each in body for value in k.statement_values(each)])
    return sum(LOAD_COST if k.LOAD.matches(value) else record_of(value).cost for value in values)
