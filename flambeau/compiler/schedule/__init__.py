"""The scheduler: from a graph of primitives to an ordered list of kernel and routine launches.

Reads in this order: `prepare` (memory of operands and results), `fusion_roots` (which values may
begin a kernel), `lower` (a value at an index), `domain`, `members` and `cluster` (which of them
share a kernel), `in_place` and `order` (which launch comes first), `horizontal` (which independent
kernels become one), `axes` (what becomes rows, inner axis and reduced axis), `build` (the Kernel),
`routines` (native launches), `launch` (buffers, lifetimes). `compiler/pipeline.py` runs them.
Nothing here knows how a kernel is printed or run.
"""

from flambeau.compiler.schedule.build import InPlaceConflict
from flambeau.compiler.schedule.cluster import Cluster, Clustering
from flambeau.compiler.schedule.fusion_roots import Analysis, analyse
from flambeau.compiler.schedule.horizontal import fuse_independent
from flambeau.compiler.schedule.in_place import order_in_place
from flambeau.compiler.schedule.launch import Buffer, Launch, Schedule, lower
from flambeau.compiler.schedule.order import in_order, order_text
from flambeau.compiler.schedule.prepare import Prepared, prepare

__all__ = [
    "Analysis",
    "Buffer",
    "Cluster",
    "Clustering",
    "InPlaceConflict",
    "Launch",
    "Prepared",
    "Schedule",
    "analyse",
    "fuse_independent",
    "in_order",
    "lower",
    "order_in_place",
    "order_text",
    "prepare",
]
