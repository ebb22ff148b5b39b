"""Decides which fusion roots share a kernel, and records why others do not.

Fusion roots are visited operands first; each joins the cluster of one of its operands (or one that
reads the same memory) if its value can be had at the very point the cluster computes, and if no
launch would then have to come both before and after the kernel. A cluster is a value: one that
grows or is merged is replaced by a new one. Where values may not share a kernel, the reason is
recorded (`Clustering.text`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from flambeau.compiler.schedule.dependencies import Vertex, Vertices
from flambeau.compiler.schedule.domain import Domain, divides
from flambeau.compiler.schedule.fusion_roots import Analysis, is_copy, kind_of
from flambeau.compiler.schedule.lower import Lowering
from flambeau.compiler.schedule.members import (
    FEW_COMMON,
    Member,
    References,
    Refused,
    check_parts,
    check_positions,
    fit,
    references,
)
from flambeau.compiler.schedule.prepare import routine_of
from flambeau.ir import kernel as k
from flambeau.ir.dtypes import PARTS
from flambeau.ir.geometry import Shape, address, refined, reshape_groups
from flambeau.ir.node import Node, node, topological
from flambeau.ir.schedule_grammar import BLOCKS, COPY, REF, numbered
from flambeau.ir.size import Size, affine_in
from flambeau.prims.record import record_of
from flambeau.prims.shape import is_reshape

CANDIDATES = 6  # clusters tried per value
READERS = 4  # clusters remembered per source, for sharing loads
MEMORY_LIMIT = 40  # distinct buffers of one kernel
VALUE_LIMIT = 600  # values of one kernel
REDUCTION_LIMIT = 8  # reductions of one kernel that read nothing in common
LANES = 16  # of the longest vectors: quotients by multiples of it are equal in all lanes
EPILOGUE_LIMIT = 2  # tensors of the result's size that an epilogue reads (see `_part`)

ROUTINE = "a native routine computes one of them, from memory to memory"
ALONE = "it is a copy that is written after all reads of its memory"
VALUES = f"their kernel would compute more than {VALUE_LIMIT} values"
MEMORY = f"their kernel would use more than {MEMORY_LIMIT} buffers"
BETWEEN = "a launch between them reads the one and is read by the other"
DOMAINS = "the kernels' iteration spaces differ"
DIVISION = "each element would be found by a division"
SCANS = "scans with kernels of their own are not merged"
REDUCTIONS = f"more than {REDUCTION_LIMIT} reductions would share no operand"
EPILOGUE = "an epilogue computes no reductions or scans"
ACROSS = "the epilogue would read memory across its rows"
COMPLEX = "an epilogue has no complex numbers"
CROWDED = f"the epilogue would read more than {EPILOGUE_LIMIT} tensors of the result's size"
TEMPLATE = "a template begins a kernel of its own, and reads its operands from memory"
ELSEWHERE = "values join one kernel, and it was found before this one"


@dataclass(frozen=True, eq=False, kw_only=True)
class Cluster(Vertex):
    """Fusion roots computed by one kernel, or one native routine.

    Attributes:
        order: number of its first value, in the order of the program.
        domain: iteration space; None for a routine.
        lowering: the values' elements over the domain's axes.
        members: in topological order.
        sources: nodes whose memory is read.
        reads: by node, the references to it.
        size: number of values in all members' expressions.
        alone: nothing may join.
        parts: whether others read further parts of the same tensors.
        product: the opaque value whose template takes the other members as its epilogue.
        together: how many independent kernels it is in one (`horizontal`).
    """

    order: int
    domain: Domain | None
    lowering: Lowering | None
    members: Mapping[Node, Member] = field(default_factory=dict)
    sources: frozenset[Node] = frozenset()
    reads: References = field(default_factory=dict)
    size: int = 0
    alone: bool = False
    parts: bool = False
    product: Node | None = None
    together: int = 1

    @property
    def opaque(self) -> bool:
        """Whether this is a routine, or a template with its epilogue."""
        return self.domain is None or self.product is not None

    def extended(self, members: Mapping[Node, Member]) -> Cluster:
        """The cluster with further members."""
        joined = {**self.members, **members}
        reads = references(members.values(), self.reads)
        return replace(
            self,
            members=joined,
            reads=reads,
            sources=self.sources.union(reads).difference(joined),
            size=self.size + sum(member.size for member in members.values()),
        )

    def over(self, domain: Domain, lowering: Lowering, members: Mapping[Node, Member]) -> Cluster:
        """The cluster with these members, over a domain; its sources stay."""
        empty = replace(self, domain=domain, lowering=lowering, members={}, reads={}, size=0)
        return empty.extended(members)


class Refusal(NamedTuple):
    """A pair of clusters, by a value of each, that may not share a kernel."""

    value: Node
    other: Node
    reason: str


class Clustering:
    """The assignment of fusion roots to clusters.

    Args:
        analysis: the graph's fusion roots.

    Attributes:
        clusters: the present ones.
        owners: number of the cluster that computes a value; a concatenation has those of its parts.
        refusals: in order; a later attempt may have succeeded.
    """

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.clusters: Vertices[Cluster] = Vertices()
        self.owners: dict[Node, int] = {}
        self.refusals: list[Refusal] = []
        self._count = 0
        self._readers: dict[Node, list[int]] = {}
        self._routines: dict[Node, int] = {}
        self._last_draw: list[int] = []

    def run(self) -> None:
        """Assigns every fusion root."""
        for value, role in self.analysis.roles.items():
            if role == "opaque":
                self._add_opaque(value)
            elif role not in ("input", "cat"):
                self._place(value)
        for cluster in self.clusters:
            if cluster.product is not None and self._crowded(cluster):
                self._part(cluster)
            elif cluster.number in self.clusters and cluster.domain is not None:
                if cluster.domain.kind == "reduce":
                    self._merge_partial(cluster.number)

    def add_root(self, value: Node) -> None:
        """Assigns one more value, computed from those that are assigned."""
        self.analysis.roles[value] = "root"
        self._place(value)

    # ----------------------------------------------------------------------------- structure

    def sources_of(self, value: Node) -> list[Node]:
        """Fusion roots (inputs included) that a fusion root's expression reads."""
        roles = self.analysis.roles
        sources: dict[Node, None] = {}
        seen: set[Node] = set()
        stack = list(value.inputs)
        while stack:
            current = stack.pop()
            if current in seen:
                continue
            seen.add(current)
            if current in roles:
                sources[current] = None
            else:
                stack.extend(current.inputs)
        return list(sources)

    def owners_of(self, sources: Iterable[Node]) -> list[int]:
        """The clusters that compute these values; inputs have none."""
        owners: dict[int, None] = {}
        for source in sources:
            number = self.owners.get(source)
            if number is not None:
                owners[number] = None
            elif self.analysis.roles[source] == "cat":
                owners.update(dict.fromkeys(self.owners[part] for part in source.inputs))
        return list(owners)

    def _new(self, domain: Domain | None, alone: bool = False) -> Cluster:
        number, self._count = self._count, self._count + 1
        lowering = None if domain is None else Lowering(self.analysis.roles)
        return Cluster(
            number=number,
            numbers=1 << number,
            order=number,
            domain=domain,
            lowering=lowering,
            alone=alone,
        )

    def _put(self, cluster: Cluster, values: Iterable[Node], above: Iterable[int]) -> None:
        """Makes a cluster, which comes after others, the present one of its number and the owner
        of values."""
        self.clusters.put(cluster)
        self.clusters.follow(cluster.number, above)
        self.owners.update(dict.fromkeys(values, cluster.number))

    def _add_opaque(self, value: Node) -> None:
        space = routine_of(value).epilogue
        if space is None:
            self._add_routine(value)
            return
        sources = self.sources_of(value)
        result = Member("full", k.kept("result", value.dtype))
        cluster = self._new(Domain("map", space(value)))
        cluster = replace(
            cluster, product=value, members={value: result}, sources=frozenset(sources)
        )
        self._put(cluster, [value], self.owners_of(sources))

    def _add_routine(self, value: Node) -> None:
        constants = tuple(a for a in value.attributes if a[0] != "result")
        call = node(routine_of(value).name, value.inputs, constants)
        number = self._routines.get(call)
        above: list[int] = []
        if number is None:
            sources = self.sources_of(value)
            cluster = replace(self._new(None), sources=frozenset(sources))
            number = self._routines[call] = cluster.number
            above = self.owners_of(sources)
            if record_of(value).kind == "random":
                # The slots of generators that a program names may all hold the same generator: one
                # order serves all.
                above += self._last_draw
                self._last_draw = [number]
        else:
            cluster = self.clusters[number]
        members = {**cluster.members, value: Member("full", value)}
        self._put(replace(cluster, members=members), [value], above)

    # ----------------------------------------------------------------------------- placing

    def _place(self, value: Node) -> None:
        sources = self.sources_of(value)
        above = self.owners_of(sources)
        alone = bool(COPY.matches(value) and value.attribute("alone"))
        for number in () if alone else self._candidates(sources, above):
            try:
                cluster = self._joined(value, number, number not in above, above)
            except Refused as refusal:
                self._refuse(value, number, refusal)
            else:
                break
        else:
            cluster = self._started(value, alone)
        self._put(cluster, [value], above)
        for source in sources:
            readers = self._readers.setdefault(source, [])
            if cluster.number not in readers:
                readers.append(cluster.number)
                del readers[:-READERS]
        if not cluster.opaque:
            self._merge_all(above, cluster.number)

    def _merge_all(self, others: Iterable[int], number: int) -> None:
        for other in others:
            if other != number and other in self.clusters and not self.clusters[other].opaque:
                self._merge(other, number)

    def _merge_partial(self, number: int) -> None:
        """Merges the kernels of partial reductions that a cluster finishes."""
        partial: dict[object, int] = {}
        above = [self.clusters[n] for n in self.owners_of(self.clusters[number].sources)]
        for other in sorted(above, key=lambda c: c.order):
            if other.domain is not None and other.domain.blocked:
                first = partial.setdefault(other.domain.key, other.number)
                if first != other.number:
                    self._merge(other.number, first)

    def _candidates(self, sources: list[Node], above: list[int]) -> list[int]:
        owners = sorted((self.clusters[n] for n in above), key=lambda c: -c.order)
        numbers = {c.number: None for c in owners if c.domain is not None}
        for source in sources:
            for reader in self._readers.get(source, ()):
                if reader in self.clusters and not self.clusters[reader].opaque:
                    numbers[reader] = None
        return list(numbers)[:CANDIDATES]

    def _started(self, value: Node, alone: bool) -> Cluster:
        """A new cluster of one value."""
        role = self.analysis.roles[value]
        if role in ("reduce", "scan"):
            domain = self._reduction_domain(value)
        else:
            domain = Domain("map", self._map_shape(value))
            if domain.level(value.shape) is None:  # sizes that only a guard says are equal
                domain = Domain("map", value.shape)
        cluster = self._new(domain, alone)
        assert cluster.lowering is not None
        return cluster.extended({value: fit(value, role, domain, cluster.lowering)})

    def _reduction_domain(self, value: Node) -> Domain:
        """The domain of a reduction or scan; other dimensions are split as `_map_shape` does."""
        operand, axis = value.inputs[0], value.attribute("axis")
        kind = "scan" if self.analysis.roles[value] == "scan" else "reduce"
        blocked = BLOCKS.matches(value)
        shape = operand.shape
        computed = self.analysis.roles.get(operand, "root") == "root"
        fine = self._map_shape(operand) if computed else shape
        if fine == shape or shape[axis] == 1:
            return Domain(kind, shape, axis, blocked)
        split: list[Size] = []
        position = 0
        for first, second in reshape_groups(shape, fine):
            if axis in first:
                position = len(split)
                split.append(shape[axis])
            else:
                split.extend(fine[d] for d in second)
        return Domain(kind, tuple(split), position, blocked)

    def _map_shape(self, value: Node) -> Shape:
        """The value's shape, split as finely as the reshapes between it and what it reads."""
        shape = value.shape
        roles = self.analysis.roles
        stack, seen = [value], {value}
        while stack:
            current = stack.pop()
            if is_reshape(current):
                shape = refined(shape, current.inputs[0].shape)
            elif not is_copy(current) and kind_of(current) != "pointwise":
                continue
            for operand in current.inputs:
                if operand not in seen and operand not in roles:
                    seen.add(operand)
                    stack.append(operand)
        return shape

    # ----------------------------------------------------------------------------- joining

    def _joined(self, value: Node, number: int, sibling: bool, above: list[int]) -> Cluster:
        """A cluster with one more value.

        Raises:
            Refused: that is not possible, or not right.
        """
        cluster = self.clusters[number]
        if cluster.alone:
            raise Refused(ALONE)
        if cluster.size > VALUE_LIMIT:
            raise Refused(VALUES)
        if len(cluster.sources) > MEMORY_LIMIT:
            raise Refused(MEMORY)
        if any(self.clusters[n].follows(cluster) for n in above if n != number):
            raise Refused(BETWEEN)
        domain, lowering = cluster.domain, cluster.lowering
        assert domain is not None and lowering is not None
        role = self.analysis.roles[value]
        if cluster.product is not None and role != "root":
            raise Refused(EPILOGUE)
        if role in ("reduce", "scan") and domain.kind == "map":
            return self._converted(value, cluster, sibling)
        member = fit(value, role, domain, lowering)
        others = role == "root" and member.level == "full" and value.shape != domain.shape
        if others and self._divides(member, domain.axes, {*cluster.members, value}):
            raise Refused(DIVISION)
        if sibling:
            check_parts(cluster.reads, references([member]), domain)
        check_positions({**cluster.members, value: member}, [member], domain)
        if cluster.product is not None:
            self._check_epilogue(member, cluster)
        return cluster.extended({value: member})

    def _check_epilogue(self, member: Member, cluster: Cluster) -> None:
        """Raises Refused unless an epilogue reads memory along its rows: other loads are better had
        in tiles. Complex numbers, which kernels compute as pairs, have no place in one."""
        domain, product = cluster.domain, cluster.product
        assert domain is not None and product is not None
        inner = f"a{len(domain.shape) - 1}"
        computed = (product, *product.inputs, *topological((member.value,)))
        if any(value.dtype in PARTS for value in computed):
            raise Refused(COMPLEX)
        for reference in member.refs:
            target = reference.attribute("target")
            if target in cluster.members:
                continue
            strides = self.analysis.prepared.read_strides(target)
            affine = affine_in(address(reference.attribute("index"), strides), domain.axes)
            if affine is None or affine[0].get(inner, 0) not in (0, 1):
                raise Refused(ACROSS)

    def _converted(self, value: Node, cluster: Cluster, sibling: bool) -> Cluster:
        """A map cluster as one over the domain of a reduction of its values, which it then has."""
        domain = self._reduction_domain(value)
        lowering = Lowering(self.analysis.roles)
        members = self._refitted([*cluster.members, value], domain, lowering)
        special = (domain.special,)
        if any(self._divides(member, special, members) for member in members.values()):
            raise Refused(DIVISION)
        if sibling:
            earlier = references(member for key, member in members.items() if key is not value)
            check_parts(earlier, references([members[value]]), domain)
        return cluster.over(domain, lowering, members)

    def _divides(self, member: Member, axes: Iterable[str], members: Collection[Node]) -> bool:
        """Whether an axis is divided to find what a member reads, other than by vectors' lengths: a
        division per element takes longer than the elements of a kernel of their own."""
        for value in topological((member.value,)):
            lanes = LANES
            if k.INDEX.matches(value):
                place: Size = value.attribute("expression")
                lanes = 0  # what is compared changes between any two vectors
            elif REF.matches(value) and value.attribute("target") not in members:
                strides = self.analysis.prepared.read_strides(value.attribute("target"))
                place = address(value.attribute("index"), strides)
            else:
                continue
            if any(divides(place, axis, lanes) for axis in axes):
                return True
        return False

    def _refitted(
        self, values: Sequence[Node], domain: Domain, lowering: Lowering
    ) -> dict[Node, Member]:
        """The values as members over another domain."""
        roles = self.analysis.roles
        members = {value: fit(value, roles[value], domain, lowering) for value in values}
        check_positions(members, members.values(), domain)
        return members

    # ----------------------------------------------------------------------------- merging

    def _merge(self, other: int, number: int) -> bool:
        """Moves all members of a cluster into another; returns whether that is possible."""
        try:
            cluster = self._merged(self.clusters[other], self.clusters[number])
        except Refused as refusal:
            self.refuse(other, number, refusal)
            return False
        values = self.clusters[other].members
        self.clusters.merge(cluster, other)
        self.owners.update(dict.fromkeys(values, number))
        return True

    def fuse(self, other: int, number: int) -> bool:
        """Moves all members of a cluster into an independent one; returns whether that is
        possible."""
        together = self.clusters[other].together + self.clusters[number].together
        if not self._merge(other, number):
            return False
        self.clusters.put(replace(self.clusters[number], together=together))
        return True

    def _merged(self, other: Cluster, cluster: Cluster) -> Cluster:
        """Two clusters as one, in place of the second.

        Raises:
            Refused: that is not possible, or not right.
        """
        domain = cluster.domain
        assert other.domain is not None and domain is not None
        if cluster.alone or other.alone:
            raise Refused(ALONE)
        if domain.key != other.domain.key:
            raise Refused(DOMAINS)
        if domain.kind == "scan":
            raise Refused(SCANS)
        if cluster.size + other.size > VALUE_LIMIT:
            raise Refused(VALUES)
        if len(cluster.sources | other.sources) > MEMORY_LIMIT:
            raise Refused(MEMORY)
        check_parts(cluster.reads, other.reads, domain)
        if self._many_reductions(cluster, other):
            raise Refused(REDUCTIONS)
        first, second = cluster.number, other.number
        if self.clusters.detour(first, second) or self.clusters.detour(second, first):
            raise Refused(BETWEEN)
        lowering = Lowering(self.analysis.roles)
        members = self._refitted([*other.members, *cluster.members], domain, lowering)
        merged = cluster.over(domain, lowering, members)
        return replace(merged, order=min(cluster.order, other.order))

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
        product, number = cluster.product, cluster.number
        assert product is not None and cluster.domain is not None
        moved = [value for value in cluster.members if value is not product]
        domain = Domain("map", cluster.domain.shape)
        epilogue = replace(self._new(domain), order=cluster.order)
        assert epilogue.lowering is not None
        members = self._refitted(moved, domain, epilogue.lowering)
        bare = replace(
            self.clusters[number],
            members={product: cluster.members[product]},
            reads={},
            sources=frozenset(self.sources_of(product)),
        )
        self.clusters.put(bare)
        self._put(epilogue.extended(members), moved, ())
        for follower in self.clusters.followers(number):
            self.clusters.follow(follower, (epilogue.number,))
        self.clusters.follow(epilogue.number, (number,))
        self._refuse(moved[0], number, Refused(CROWDED))

    # ----------------------------------------------------------------------------- reasons

    def refuse(self, other: int, number: int, refusal: Refused) -> None:
        """Records why two clusters are not one."""
        self._refuse(_first(self.clusters[number]), other, refusal)
        self._refuse(_first(self.clusters[other]), number, refusal)

    def _refuse(self, value: Node, number: int, refusal: Refused) -> None:
        """Records why a value is not computed with those of a cluster."""
        other, reason = self.clusters[number], refusal.args[0]
        self.refusals.append(Refusal(value, _first(other), reason))
        if reason == FEW_COMMON:
            self.clusters.put(replace(other, parts=True))

    def apart(self) -> dict[tuple[int, int], str]:
        """The pairs of clusters one of which reads the other, or which might have been one, each
        with the reason why it is two."""
        pairs: dict[tuple[int, int], str] = {}
        for refusal in self.refusals:
            first, second = sorted((self.owners[refusal.other], self.owners[refusal.value]))
            if first != second:
                pairs.setdefault((first, second), refusal.reason)
        for cluster in self.clusters:
            for number in self.owners_of(cluster.sources):
                first, second = sorted((number, cluster.number))
                pairs.setdefault((first, second), _untried(self.clusters[number], cluster))
        return dict(sorted(pairs.items()))

    def text(self) -> str:
        """The clusters, then the pairs of them that are apart, and why."""
        lines, numbers = numbered(self.analysis.nodes)
        listing: list[str] = []
        for cluster in self.clusters:
            space = "routine" if cluster.domain is None else cluster.domain.text()
            after = ", ".join(map(str, sorted(cluster.predecessors))) or "none"
            several = f", {cluster.together} in one" if cluster.together > 1 else ""
            listing.append(f"cluster {cluster.number}: {space}, after {after}{several}")
            listing.extend("  " + lines[numbers[value]] for value in cluster.members)
        listing += [line for line, _ in self.separations()]
        return "\n".join(listing) + "\n"

    def separations(self) -> list[tuple[str, str]]:
        """A line about each pair of clusters that are apart, with the reason."""
        return [
            (
                f"clusters {first} ({_names(self.clusters[first])}) and {second} "
                f"({_names(self.clusters[second])}) are apart: {reason}",
                reason,
            )
            for (first, second), reason in self.apart().items()
        ]


def _first(cluster: Cluster) -> Node:
    return next(iter(cluster.members))


def _names(cluster: Cluster) -> str:
    return " ".join(dict.fromkeys(value.op for value in cluster.members))


def _untried(earlier: Cluster, cluster: Cluster) -> str:
    """Why a cluster is apart from one that it reads, where none was tried to put in the other."""
    if earlier.domain is None or cluster.domain is None:
        return ROUTINE
    if cluster.alone:
        return ALONE
    return TEMPLATE if cluster.product is not None else ELSEWHERE
