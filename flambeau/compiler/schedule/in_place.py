"""In-place writes: every reader of an input's memory runs before the memory is overwritten."""

from __future__ import annotations

from collections.abc import Collection

from flambeau.compiler.schedule.build import InPlaceConflict, Memory
from flambeau.compiler.schedule.cluster import Cluster, Clustering
from flambeau.compiler.schedule.dependencies import Vertices
from flambeau.compiler.schedule.placement import Placement
from flambeau.compiler.schedule.prepare import Destination, Prepared, copy_of
from flambeau.ir.geometry import contiguous
from flambeau.ir.node import Node
from flambeau.ir.schedule_grammar import COPY


def order_in_place(clustering: Clustering, prepared: Prepared) -> None:
    """Adds the dependencies of in-place writes to clusters.

    Raises:
        InPlaceConflict: for the slots that need a copy which comes last.
    """
    conflicts = frozenset(_order(clustering.clusters, prepared))
    if conflicts and _write_late(clustering, prepared, conflicts):
        conflicts = frozenset(_order(clustering.clusters, prepared))
    if conflicts:
        raise InPlaceConflict(conflicts)


def _order(clusters: Vertices[Cluster], prepared: Prepared) -> list[int]:
    """Orders readers of slots before their writers; returns the slots where that cannot be."""
    placement = Placement(prepared)
    slots: dict[Memory, list[int]] = {}
    for cluster in clusters:
        for value in cluster.members:
            for place in placement.stores(value):
                if place.memory[0] == "input":
                    slots.setdefault(place.memory, []).append(cluster.number)
    if not slots:
        return []
    readers: dict[Memory, list[int]] = {}
    for cluster in clusters:
        for source in cluster.sources:
            if source.is_input:
                readers.setdefault(placement.place(source).memory, []).append(cluster.number)
    conflicts: list[int] = []
    for memory, writers in slots.items():
        if not _readers_first(clusters, readers.get(memory, []), writers):
            assert isinstance(memory[1], int)
            conflicts.append(memory[1])
    return conflicts


def _readers_first(clusters: Vertices[Cluster], readers: list[int], writers: list[int]) -> bool:
    """Orders readers of a slot before its writers; False where that cannot be."""
    pairs: list[tuple[int, int]] = []
    for writer in writers:
        for reader in readers:
            behind = clusters[reader].follows(clusters[writer])
            if reader == writer:
                # A routine reads and writes in an order of its own; a template raises itself.
                if clusters[writer].domain is None:
                    return False
            elif behind and reader not in writers:
                return False
            elif not behind:
                pairs.append((reader, writer))
    for reader, writer in pairs:
        if clusters[reader].follows(clusters[writer]):
            return False
        clusters.follow(writer, (reader,))
    return True


def _write_late(clustering: Clustering, prepared: Prepared, conflicts: Collection[int]) -> bool:
    """Gives the slots in conflict a copy that comes last, as `prepare` does for slots known to
    be `indirect`; False where clusters depend on how memory is then addressed."""
    moved: list[tuple[Node, Destination, list[Destination]]] = []
    for value, destinations in prepared.destinations.items():
        late = [d for d in destinations if d.kind == "input" and d.where in conflicts]
        others = [d for d in destinations if d not in late]
        strides = others[0].strides if others else contiguous(value.shape)
        again = len(late) > 1 or COPY.matches(value)
        if late and (again or strides != prepared.read_strides(value)):
            return False
        moved.extend((value, d, others) for d in late)
    for value, destination, others in moved:
        if others:
            prepared.destinations[value] = others
        else:
            del prepared.destinations[value]
        copy = copy_of(value, alone=True)
        prepared.destinations[copy] = [destination]
        clustering.add_root(copy)
    return True
