"""Where fusion roots live: the memory, strides and offset at which readers find each."""

from __future__ import annotations

from flambeau.compiler.schedule.build import Place
from flambeau.compiler.schedule.prepare import Destination, Prepared
from flambeau.ir.geometry import contiguous
from flambeau.ir.node import Node


class Placement:
    """The memory of each fusion root.

    Args:
        prepared: the graph, with destinations.
    """

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self._places: dict[Node, Place] = {}

    def place(self, value: Node) -> Place:
        """Where readers find a fusion root."""
        place = self._places.get(value)
        if place is None:
            place = self._places[value] = self._find_place(value)
        return place

    def _find_place(self, value: Node) -> Place:
        if value.is_input:
            return Place(("input", value.attribute("slot")), value.attribute("strides"))
        destinations = self.prepared.destinations.get(value)
        if destinations:
            return self.destination(destinations[0])
        return Place(("temporary", value), contiguous(value.shape))

    def destination(self, destination: Destination) -> Place:
        """The memory of a destination; one inside another value's memory is resolved."""
        strides, offset = destination.strides, destination.offset
        if isinstance(destination.where, Node):
            owner = self.place(destination.where)
            return Place(owner.memory, strides, owner.offset + offset)
        return Place((destination.kind, destination.where), strides, offset)

    def stores(self, value: Node) -> list[Place]:
        """The destinations of a value; none if only other kernels read it."""
        return [self.destination(d) for d in self.prepared.destinations.get(value, ())]
