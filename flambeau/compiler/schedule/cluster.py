"""Which heavy values share a kernel.

Heavy values are visited operands first; each joins the cluster of one of its operands (or one that
reads the same memory) if its value can be had at the very point the cluster computes, and if no
launch would then have to come both before and after the kernel. Joining is decided by lowering:
every reference between members must be to the member's own position, nothing else is fusable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flambeau.compiler.schedule.dependencies import Vertex
from flambeau.compiler.schedule.domain import Domain, depends
from flambeau.compiler.schedule.heavy import Analysis, kind_of
from flambeau.compiler.schedule.lower import Lowering
from flambeau.compiler.schedule.prepare import routine_of
from flambeau.ir import kernel as k
from flambeau.ir.dtypes import PARTS
from flambeau.ir.geometry import Index, Shape, address, refined, reshape_groups
from flambeau.ir.node import Node, node, topological
from flambeau.ir.size import Size, affine_in
from flambeau.prims.record import record_of

CANDIDATES = 6  # clusters tried per value
READERS = 4  # clusters remembered per source, for sharing loads
MEMORY_LIMIT = 40  # distinct buffers of one kernel
VALUE_LIMIT = 600  # values of one kernel
PARTS_LIMIT = {
    "map": 8,
    "reduce": 4,
    "scan": 4,
}  # parts of one tensor that siblings of a kernel read
REDUCTION_LIMIT = 8  # reductions of one kernel that read nothing in common
EPILOGUE_LIMIT = 2  # tensors of the result's size that an epilogue reads (see `_part`)
_PASSING = frozenset({"s.copy", "s.part", "s.base"})


@dataclass
class Member:
    """A heavy value inside a cluster.

    Attributes:
        level: "full" or "row" (see `domain`).
        value: its expression; for a reduction or scan the operand's.
        refs: what the expression reads.
        size: number of values in it.
    """

    level: str
    value: Node
    refs: list[Node]
    size: int = 1


class Cluster(Vertex):
    """Heavy values computed by one kernel, or one native routine.

    Attributes:
        order: number of its first value, in the order of the program.
        domain: iteration space; None for a routine.
        members: in topological order.
        sources: nodes whose memory is read.
        reads: by node, the references to it.
        size: number of values in all members' expressions.
        alone: nothing may join.
        parts: whether others read further parts of the same tensors.
        product: the opaque value whose template takes the other members as its epilogue.
    """

    __slots__ = (
        "alone", "domain", "lowering", "members", "order", "parts", "product", "reads", "size",
        "sources",
    )  # fmt: skip

    def __init__(self, number: int, domain: Domain | None, lowering: Lowering | None) -> None:
        super().__init__(number)
        self.order = number
        self.domain = domain
        self.lowering = lowering
        self.members: dict[Node, Member] = {}
        self.sources: set[Node] = set()
        self.reads: dict[Node, set[Node]] = {}
        self.size = 0
        self.alone = False
        self.parts = False
        self.product: Node | None = None

    def clear(self) -> None:
        """Removes all members; what is outside of them stays a source."""
        self.members.clear()
        self.reads.clear()
        self.size = 0

    @property
    def opaque(self) -> bool:
        """Whether this is a routine, or a template with its epilogue."""
        return self.domain is None or self.product is not None


class Clustering:
    """The assignment of heavy values to clusters.

    Args:
        analysis: the graph's heavy values.
    """

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.clusters: list[Cluster] = []
        self.owners: dict[Node, list[Cluster]] = {}  # several for a concatenation
        self._readers: dict[Node, list[Cluster]] = {}
        self._groups: dict[Node, Cluster] = {}
        self._joined: dict[Cluster, dict[int, list[Cluster]]] = {}  # owners of concatenations
        self._last_draw: list[Cluster] = []

    def run(self) -> list[Cluster]:
        """Assigns every heavy value; returns the clusters in order of their first value."""
        for value, role in self.analysis.roles.items():
            if role == "input":
                continue
            if role == "opaque":
                self._add_opaque(value)
            elif role == "cat":
                owners = _distinct(o for part in value.inputs for o in self.owners[part])
                self.owners[value] = owners
                for owner in owners:
                    self._joined.setdefault(owner, {})[id(owners)] = owners
            else:
                self._place(value)
        for cluster in list(self.clusters):
            if cluster.product is not None and self._crowded(cluster):
                self._part(cluster)
            elif cluster.members and cluster.domain is not None and cluster.domain.kind == "reduce":
                self._merge_partial(cluster)
        return [c for c in self.clusters if c.members]

    def add_root(self, value: Node) -> None:
        """Assigns one more value, computed from those that are assigned."""
        self.analysis.roles[value] = "root"
        self._place(value)

    # ----------------------------------------------------------------------------- structure

    def sources_of(self, value: Node) -> list[Node]:
        """Heavy values (inputs included) that a heavy value's expression reads."""
        roles = self.analysis.roles
        found: dict[Node, None] = {}
        seen: set[Node] = set()
        stack = list(value.inputs)
        while stack:
            current = stack.pop()
            if current in seen:
                continue
            seen.add(current)
            if current in roles:
                found[current] = None
            else:
                stack.extend(current.inputs)
        return list(found)

    def _new(self, domain: Domain | None) -> Cluster:
        lowering = None if domain is None else Lowering(self.analysis.roles)
        cluster = Cluster(len(self.clusters), domain, lowering)
        self.clusters.append(cluster)
        return cluster

    def _add_opaque(self, value: Node) -> None:
        space = routine_of(value).epilogue
        if space is None:
            self._add_routine(value)
            return
        cluster = self._new(Domain("map", space(value)))
        cluster.product = value
        self._follow_sources(cluster, value)
        cluster.members[value] = Member("full", k.kept("result", value.dtype), [])
        self.owners[value] = [cluster]

    def _follow_sources(
        self, cluster: Cluster, value: Node, others: Sequence[Cluster] = ()
    ) -> None:
        """Puts a cluster behind those whose values its opaque value reads, and behind `others`."""
        sources = self.sources_of(value)
        cluster.sources.update(sources)
        cluster.follow([*self._owners(sources), *others])

    def _add_routine(self, value: Node) -> None:
        constants = tuple(a for a in value.attributes if a[0] != "result")
        group = node(routine_of(value).name, value.inputs, constants)
        cluster = self._groups.get(group)
        if cluster is None:
            cluster = self._groups[group] = self._new(None)
            self._follow_sources(cluster, value, self._earlier_draw(value))
            if record_of(value).kind == "random":
                self._last_draw = [cluster]
        cluster.members[value] = Member("full", value, [])
        self.owners[value] = [cluster]

    def _earlier_draw(self, value: Node) -> list[Cluster]:
        """The draw that must happen before this one: the slots of generators that a program names
        may all hold the same generator, so that one order serves all.
        """
        return self._last_draw if record_of(value).kind == "random" else []

    def _owners(self, sources: Iterable[Node]) -> list[Cluster]:
        owners = self.owners
        return _distinct(c for s in sources for c in owners.get(s, ()))

    # ----------------------------------------------------------------------------- placing

    def _place(self, value: Node) -> None:
        sources = self.sources_of(value)
        above = self._owners(sources)
        alone = value.op == "s.copy" and value.attribute("alone")
        for cluster in () if alone else self._candidates(sources, above):
            if self._join(value, cluster, above):
                break
        else:
            cluster = self._start(value, above)
            cluster.alone = alone
        self.owners[value] = [cluster]
        for source in sources:
            readers = self._readers.setdefault(source, [])
            if cluster not in readers:
                readers.append(cluster)
                del readers[:-READERS]
        if cluster.opaque:
            return
        for other in above:
            if other is not cluster and not other.opaque and other.members:
                self._merge(other, cluster)

    def _merge_partial(self, cluster: Cluster) -> None:
        """Merges the kernels of partial reductions that a cluster finishes."""
        partial: dict[object, Cluster] = {}
        for other in sorted(self._owners(cluster.sources), key=lambda c: c.order):
            if other.domain is not None and other.domain.blocked:
                first = partial.setdefault(other.domain.key, other)
                if first is not other:
                    self._merge(other, first)

    def _candidates(self, sources: list[Node], above: list[Cluster]) -> list[Cluster]:
        latest = sorted(above, key=lambda c: -c.order)
        found = {c.bit: c for c in latest if c.product is not None or not c.opaque}
        for source in sources:
            for reader in self._readers.get(source, ()):
                if reader.members and reader.bit not in found and not reader.opaque:
                    found[reader.bit] = reader
        return list(found.values())[:CANDIDATES]

    def _start(self, value: Node, above: list[Cluster]) -> Cluster:
        role = self.analysis.roles[value]
        if role in ("reduce", "scan"):
            domain = self._reduction_domain(value)
        else:
            domain = Domain("map", self._map_shape(value))
            if domain.level(value.shape) is None:  # sizes that only a guard says are equal
                domain = Domain("map", value.shape)
        cluster = self._new(domain)
        assert cluster.lowering is not None
        member = fit(value, role, domain, cluster.lowering)
        assert member is not None
        self._accept(cluster, {value: member}, above)
        return cluster

    def _reduction_domain(self, value: Node) -> Domain:
        """The domain of a reduction or scan; other dimensions are split as `_map_shape` does."""
        operand, axis = value.inputs[0], value.attribute("axis")
        kind = "scan" if self.analysis.roles[value] == "scan" else "reduce"
        blocked = value.op == "s.blocks"
        shape = operand.shape
        computed = self.analysis.roles.get(operand, "root") == "root"
        fine = self._map_shape(operand) if computed else shape
        if fine == shape or shape[axis] == 1:
            return Domain(kind, shape, axis, blocked)
        split: list[Size] = []
        place = 0
        for first, second in reshape_groups(shape, fine):
            if axis in first:
                place = len(split)
                split.append(shape[axis])
            else:
                split.extend(fine[d] for d in second)
        return Domain(kind, tuple(split), place, blocked)

    def _map_shape(self, value: Node) -> Shape:
        """The value's shape, split as finely as the reshapes between it and what it reads."""
        shape = value.shape
        roles = self.analysis.roles
        stack, seen = [value], {value}
        while stack:
            current = stack.pop()
            if current.op == "reshape":
                shape = refined(shape, current.inputs[0].shape)
            elif current.op not in _PASSING and kind_of(current) != "pointwise":
                continue
            for operand in current.inputs:
                if operand not in seen and operand not in roles:
                    seen.add(operand)
                    stack.append(operand)
        return shape

    def _join(self, value: Node, cluster: Cluster, above: list[Cluster]) -> bool:
        """Puts a value into a cluster if that is possible and right."""
        if cluster.alone or cluster.size > VALUE_LIMIT or len(cluster.sources) > MEMORY_LIMIT:
            return False
        others = [c for c in above if c is not cluster]
        if any(other.follows(cluster) for other in others):
            return False
        assert cluster.domain is not None and cluster.lowering is not None
        role = self.analysis.roles[value]
        if cluster.product is not None and role != "root":
            return False
        sibling = cluster not in above
        if role in ("reduce", "scan") and cluster.domain.kind == "map":
            return self._convert(value, role, cluster, others, sibling)
        member = fit(value, role, cluster.domain, cluster.lowering)
        if member is None:
            return False
        if sibling and not few_parts(cluster.reads, references([member]), cluster.domain):
            cluster.parts = True
            return False
        members = {**cluster.members, value: member}
        if not consistent(members, [member], cluster.domain):
            return False
        if cluster.product is not None and not self._suits(member, cluster):
            return False
        self._accept(cluster, {value: member}, others)
        return True

    def _suits(self, member: Member, cluster: Cluster) -> bool:
        """Whether an epilogue reads memory along its rows: other loads are better had in tiles.

        Complex numbers, which kernels compute as pairs, have no place in one.
        """
        domain = cluster.domain
        assert domain is not None and cluster.product is not None
        inner = f"a{len(domain.shape) - 1}"
        product = cluster.product
        computed = (product, *product.inputs, *topological((member.value,)))
        if any(value.dtype in PARTS for value in computed):
            return False
        for reference in member.refs:
            target = reference.attribute("target")
            if target in cluster.members:
                continue
            strides = self.analysis.prepared.read_strides(target)
            found = affine_in(address(reference.attribute("index"), strides), domain.axes)
            if found is None or found[0].get(inner, 0) not in (0, 1):
                return False
        return True

    def _convert(
        self, value: Node, role: str, cluster: Cluster, others: list[Cluster], sibling: bool
    ) -> bool:
        """Turns a map cluster into one over the domain of a reduction of its values."""
        domain = self._reduction_domain(value)
        lowering = Lowering(self.analysis.roles)
        members = self._refit([*cluster.members, value], domain, lowering)
        if members is None:
            return False
        if sibling:
            earlier = references(member for key, member in members.items() if key is not value)
            if not few_parts(earlier, references([members[value]]), domain):
                cluster.parts = True
                return False
        cluster.domain, cluster.lowering = domain, lowering
        cluster.clear()
        self._accept(cluster, members, others)
        return True

    def _refit(
        self, values: Sequence[Node], domain: Domain, lowering: Lowering
    ) -> dict[Node, Member] | None:
        members: dict[Node, Member] = {}
        for value in values:
            member = fit(value, self.analysis.roles[value], domain, lowering)
            if member is None:
                return None
            members[value] = member
        return members if consistent(members, members.values(), domain) else None

    def _merge(self, other: Cluster, cluster: Cluster) -> None:
        """Moves all members of `other` into `cluster` where possible."""
        assert other.domain is not None and cluster.domain is not None
        if cluster.alone or other.alone or cluster.domain.key != other.domain.key:
            return
        if cluster.domain.kind == "scan":
            return
        if cluster.size + other.size > VALUE_LIMIT:
            return
        if len(cluster.sources | other.sources) > MEMORY_LIMIT:
            return
        if not few_parts(cluster.reads, other.reads, cluster.domain):
            cluster.parts = other.parts = True
            return
        if self._many_reductions(cluster, other):
            return
        if cluster.detour(other) or other.detour(cluster):
            return
        lowering = Lowering(self.analysis.roles)
        members = self._refit([*other.members, *cluster.members], cluster.domain, lowering)
        if members is None:
            return
        cluster.lowering = lowering
        cluster.clear()
        for value in other.members:
            self.owners[value] = [cluster]
        cluster.absorb(other)
        cluster.order = min(cluster.order, other.order)
        for number, owners in self._joined.pop(other, {}).items():
            owners[:] = _distinct(cluster if o is other else o for o in owners)
            self._joined.setdefault(cluster, {})[number] = owners
        other.members = {}
        self._accept(cluster, members, ())

    def _many_reductions(self, cluster: Cluster, other: Cluster) -> bool:
        """Whether two clusters have many reductions and nothing that both read."""
        if len(cluster.members) + len(other.members) <= REDUCTION_LIMIT:
            return False
        roles = self.analysis.roles
        count = sum(roles[v] == "reduce" for c in (cluster, other) for v in c.members)
        return count > REDUCTION_LIMIT and cluster.reads.keys().isdisjoint(other.reads)

    def _crowded(self, cluster: Cluster) -> bool:
        """Whether an epilogue reads more tensors of the result's size than a tile has room for."""
        assert cluster.product is not None
        refs = (ref for member in cluster.members.values() for ref in member.refs)
        read: set[Node] = {ref.attribute("target") for ref in refs}
        read.difference_update(cluster.members)
        return sum(s.shape == cluster.product.shape for s in read) > EPILOGUE_LIMIT

    def _part(self, cluster: Cluster) -> None:
        """Gives a template's epilogue a kernel of its own.

        An optimizer's step on a weight reads three tensors and writes three: from tile to tile
        that is slower, and drives the operands out of the caches, where one pass over whole
        tensors costs little more than reading the gradient again.
        """
        product = cluster.product
        assert product is not None and cluster.domain is not None
        moved = [value for value in cluster.members if value is not product]
        domain = Domain("map", cluster.domain.shape)
        rest = self._new(domain)
        assert rest.lowering is not None
        members = self._refit(moved, domain, rest.lowering)
        assert members is not None
        cluster.members = {product: cluster.members[product]}
        cluster.reads.clear()
        cluster.sources = set(self.sources_of(product))
        rest.order = cluster.order
        for value in moved:
            self.owners[value] = [rest]
        for number, owners in self._joined.get(cluster, {}).items():
            owners.append(rest)
            self._joined.setdefault(rest, {})[number] = owners
        for other in list(cluster.followers):
            other.follow((rest,))
        self._accept(rest, members, [cluster])

    def _accept(
        self, cluster: Cluster, members: dict[Node, Member], above: Iterable[Cluster]
    ) -> None:
        cluster.members.update(members)
        for member in members.values():
            cluster.size += member.size
            add_references(cluster.reads, member)
        cluster.sources.update(cluster.reads)
        cluster.sources.difference_update(cluster.members)
        cluster.follow(above)


def _distinct(clusters: Iterable[Cluster]) -> list[Cluster]:
    return list({c.bit: c for c in clusters}.values())


def fit(value: Node, role: str, domain: Domain, lowering: Lowering) -> Member | None:
    """The value as a member of a cluster over `domain`; None where it has no place there."""
    if role in ("reduce", "scan"):
        return _fit_reduction(value, role, domain, lowering)
    level = domain.level(value.shape)
    if level is None:
        return None
    expression = lowering.expand(value, domain.position(value.shape, level))
    return Member(level, expression, *collect_refs(expression))


def _fit_reduction(value: Node, role: str, domain: Domain, lowering: Lowering) -> Member | None:
    operand = value.inputs[0]
    if domain.kind != role or domain.level(operand.shape) != "full":
        return None
    if domain.blocked != (value.op == "s.blocks"):
        return None
    position = domain.position(operand.shape, "full")
    axis = value.attribute("axis")
    assert domain.axis is not None
    if operand.shape != domain.shape or axis != domain.axis:
        others = (*position[:axis], *position[axis + 1 :])
        if position[axis] != domain.index[domain.axis] or depends(others, domain.special):
            return None
        if operand.shape[axis] != domain.shape[domain.axis]:
            return None
    expression = lowering.at(operand, position)
    if len(value.inputs) == 2:  # linear_scan
        pair = (expression, lowering.at(value.inputs[1], position))
        expression = k.pair(*pair)
    level = "full" if role == "scan" else "row"
    return Member(level, expression, *collect_refs(expression))


def collect_refs(value: Node) -> tuple[list[Node], int]:
    """All `s.ref` nodes below a value, and the number of nodes there."""
    found: list[Node] = []
    seen: set[Node] = {value}
    stack = [value]
    while stack:
        current = stack.pop()
        if current.op == "s.ref":
            found.append(current)
        for operand in current.inputs:
            if operand not in seen:
                seen.add(operand)
                stack.append(operand)
    return found, len(seen)


def references(members: Iterable[Member]) -> dict[Node, set[Node]]:
    """What members refer to, and the references to each."""
    reads: dict[Node, set[Node]] = {}
    for member in members:
        add_references(reads, member)
    return reads


def add_references(reads: dict[Node, set[Node]], member: Member) -> None:
    """Adds what a member refers to."""
    for reference in member.refs:
        target = reference.attribute("target")
        parts = reads.get(target)
        if parts is None:
            reads[target] = {reference}
        else:
            parts.add(reference)


def few_parts(reads: dict[Node, set[Node]], others: dict[Node, set[Node]], domain: Domain) -> bool:
    """Whether values with these references may share a kernel as siblings.

    What reads many parts of one tensor has no loads in common, and a kernel of it repeats one text
    for each part: the parts that `split` makes are better served by as many launches of one kernel.
    """
    limit = PARTS_LIMIT[domain.kind]
    for target, parts in others.items():
        present = reads.get(target)
        if present is None or len(present) + len(parts) <= limit:
            continue
        nested = present <= parts or parts <= present
        if not nested and len(present | parts) > limit:
            return False
    return True


def consistent(members: dict[Node, Member], checked: Iterable[Member], domain: Domain) -> bool:
    """Whether all references between members are to the member's own position."""
    for member in checked:
        for reference in member.refs:
            target = reference.attribute("target")
            found = members.get(target)
            if found is not None and not at_own_position(reference, target, found.level, domain):
                return False
            if target.op == "s.cat" and any(part in members for part in target.inputs):
                return False  # complete only when all its parts are written
    return True


def at_own_position(reference: Node, target: Node, level: str, domain: Domain) -> bool:
    """Whether a reference is to the element of `target` that the kernel's point computes."""
    index: Index = reference.attribute("index")
    return index == domain.position(target.shape, level)
