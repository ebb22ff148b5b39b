"""Hints about what costs a scheduled program time: `TORCH_LOGS=perf_hints`."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.compiler.schedule import cluster, members
from flambeau.compiler.schedule.cluster import Clustering
from flambeau.compiler.schedule.prepare import is_opaque
from flambeau.ir.schedule_grammar import COPY
from flambeau.prims.record import record_of

# Reasons for two kernels that another program might avoid.
_AVOIDABLE = frozenset(
    (
        cluster.VALUES,
        cluster.MEMORY,
        cluster.BETWEEN,
        cluster.DOMAINS,
        cluster.SCANS,
        cluster.REDUCTIONS,
        cluster.ACROSS,
        cluster.CROWDED,
        members.FEW_COMMON,
    )
)


def hints(clustering: Clustering) -> Iterator[str]:
    """A line for each operand that is copied, and for each pair of kernels that could be one."""
    for value in filter(is_opaque, clustering.analysis.nodes):
        for operand in value.inputs:
            if COPY.matches(operand) or record_of(operand).view is not None:
                shape = ", ".join(map(str, operand.shape))
                what = f"{operand.op} {operand.dtype}[{shape}]".removeprefix("s.")
                yield f"an operand of {value.op} is copied to memory of its own: {what}"
    for line, reason in clustering.separations():
        if reason in _AVOIDABLE:
            yield line
