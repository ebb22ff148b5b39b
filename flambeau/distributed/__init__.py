"""`torch.distributed` in a build without communication: `is_available()` is False.

Programs that ask first run in one process; what needs a group of processes raises.
"""

from __future__ import annotations

import os

from flambeau.runtime import missing as _missing
from flambeau.runtime.absent import Absent

_absent = Absent("distributed", RuntimeError, "this build has no distributed back end yet")

_functions = {
    **_absent.answers(
        is_available=False, is_initialized=False,
        is_nccl_available=False, is_gloo_available=False, is_mpi_available=False,
        is_ucc_available=False, is_xccl_available=False,
    ),
    **_absent.refusals(
        "init_process_group destroy_process_group get_rank get_world_size get_backend new_group "
        "new_subgroups get_process_group_ranks get_global_rank get_group_rank get_node_local_rank "
        "barrier monitored_barrier all_reduce broadcast reduce all_gather all_gather_into_tensor "
        "all_gather_object broadcast_object_list gather gather_object scatter scatter_object_list "
        "reduce_scatter reduce_scatter_tensor all_to_all all_to_all_single send recv isend irecv "
        "batch_isend_irecv send_object_list recv_object_list init_device_mesh "
        "get_default_backend_for_device"
    ),
}  # fmt: skip
_types = _absent.types(
    "ProcessGroup Backend DeviceMesh P2POp Store TCPStore FileStore HashStore "
    "PrefixStore ProcessGroupGloo ProcessGroupNCCL Work"
)
globals().update(_functions | _types)
for _each in ("undefined", "gloo", "nccl", "xccl", "ucc", "mpi"):
    setattr(_types["Backend"], _each.upper(), _each)


def is_torchelastic_launched() -> bool:
    """Whether `torch.distributed.run` started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


class ReduceOp:
    """How a reduction over processes combines values; only the names exist here."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)


class GroupMember:
    """Processes of a group; only the names exist here."""

    WORLD = None
    NON_GROUP_MEMBER = object()


group = GroupMember

__all__ = [
    *_functions, *_types, "GroupMember", "ReduceOp", "group", "is_torchelastic_launched",
]  # fmt: skip

globals()["__getattr__"] = _missing.getter(
    __name__, submodules=("autograd", "device_mesh", "elastic", "nn", "rpc", "run", "tensor")
)
