"""The scheduler: from a graph of primitives to an ordered list of kernel and routine launches.

Reads in this order: `heavy` (which values are points of decision), `lower` (a value at an index),
`domain` and `cluster` (which of them share a kernel), `axes` (what becomes rows, inner axis and
reduced axis), `build` (the Kernel), `routines` (native launches), `launch` (order, lifetimes).
Nothing here knows how a kernel is printed or run.
"""

from flambeau.compiler.schedule.launch import Buffer, Launch, Schedule, schedule

__all__ = ["Buffer", "Launch", "Schedule", "schedule"]
