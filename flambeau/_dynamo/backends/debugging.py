"""Backends that leave out a part of compilation, to find the one that is wrong."""

from __future__ import annotations

from flambeau._dynamo.backends.common import aot_autograd
from flambeau._functorch.compilers import boxed_nop
from flambeau._functorch.partitioners import min_cut_rematerialization_partition

__all__ = ["aot_eager_decomp_partition"]

aot_eager_decomp_partition = aot_autograd(
    fw_compiler=boxed_nop, partition_fn=min_cut_rematerialization_partition
)
"""Graphs of operators, split at the fewest saved bytes, whose operators run one by one."""
