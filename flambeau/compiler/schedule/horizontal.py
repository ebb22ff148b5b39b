"""Horizontal fusion: puts small independent kernels over one iteration space into one kernel.

The values of such kernels share no operand, so fusion saves no memory traffic, only launches, and
on the CPU a launch costs about 10 ns. That is measured (`python -m bench.compiled_launches`): small
reductions gain, pointwise kernels and larger reductions lose more by the pointers of many tensors
than launches cost. The target's limits say so. Only tuned programs know their sizes, so no other
is fused. Every value is computed as before: no bit changes. Clusters that stay apart although they
are independent are recorded with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from flambeau.compiler.schedule.build import COST_PER_NANOSECOND
from flambeau.compiler.schedule.cluster import Cluster, Clustering
from flambeau.compiler.schedule.fusion_roots import LOAD_COST
from flambeau.compiler.schedule.members import Refused
from flambeau.compiler.targets import Target
from flambeau.ir.node import Node, topological
from flambeau.ir.schedule_grammar import REF
from flambeau.ir.size import ENDLESS, estimate
from flambeau.prims.record import record_of

OPEN = 4  # kernels of one iteration space that a cluster is tried with
WORK = "they are independent, and two launches cost less than one kernel of so much work"
BUFFERS = "they are independent, but one kernel would use too many buffers"


def fuse_independent(clustering: Clustering, values: Mapping[str, int], target: Target) -> None:
    """Merges small independent clusters of equal iteration spaces.

    Args:
        clustering: all clusters, with all their dependencies.
        values: of the program's symbols.
        target: its limits count.
    """
    _Fusion(clustering, values, target).run()


class _Fusion:
    def __init__(self, clustering: Clustering, values: Mapping[str, int], target: Target) -> None:
        self.clustering, self.values, self.target = clustering, values, target
        self.work: dict[int, int] = {}
        self.open: dict[object, list[int]] = {}

    def run(self) -> None:
        """Tries each cluster with the kernels of its iteration space that have room, in order."""
        clusters = self.clustering.clusters
        for number in [cluster.number for cluster in clusters]:
            cluster = clusters[number]
            if cluster.domain is None or cluster.opaque or cluster.alone:
                continue
            self.work[number] = self._nanoseconds(cluster)
            group = self.open.setdefault(cluster.domain.key, [])
            if not self._fused(number, group):
                group.append(number)

    def _fused(self, number: int, group: list[int]) -> bool:
        """Moves a cluster into the latest kernel of a group that it does not depend on; returns
        whether that is possible and right."""
        clusters = self.clustering.clusters
        for other in reversed(group[-OPEN:]):
            cluster, earlier = clusters[number], clusters[other]
            if cluster.follows(earlier) or earlier.follows(cluster):
                continue
            work = self.work[number] + self.work[other]
            reason = self._apart(cluster, earlier, work)
            if reason is not None:
                self.clustering.refuse(number, other, Refused(reason))
                return False
            if self.clustering.fuse(number, other):
                self.work[other] = work
                return True
        return False

    def _apart(self, cluster: Cluster, earlier: Cluster, work: int) -> str | None:
        """The reason against a kernel of both."""
        limits, domain = self.target.fused, cluster.domain
        assert domain is not None
        if work > (limits.map_work if domain.kind == "map" else limits.work):
            return WORK
        crowded = len(_memory(cluster) | _memory(earlier)) > limits.buffers
        return BUFFERS if crowded else None

    def _nanoseconds(self, cluster: Cluster) -> int:
        """The estimated time of a cluster's kernel."""
        assert cluster.domain is not None
        roots = [member.value for member in cluster.members.values()]
        cost = len(roots)
        for value in topological(roots):
            cost += LOAD_COST if REF.matches(value) else max(1, record_of(value).cost)
        points = estimate(cluster.domain.numel, self.values, ENDLESS)
        return points * cost // COST_PER_NANOSECOND


def _memory(cluster: Cluster) -> set[Node]:
    """The values that a cluster's kernel may read from memory or write to it."""
    return {*cluster.sources, *cluster.members}
