"""`torch.accelerator`: the accelerator of this machine, whichever it is. This build knows none."""

from flambeau.runtime.absent import Absent, context

_absent = Absent(
    "accelerator", RuntimeError, "Cannot access accelerator device when none is available"
)
device_index = context(_absent, "device_index")
_functions = {
    **_absent.answers(is_available=False, device_count=0, current_accelerator=None),
    **_absent.refusals(
        "current_device_idx current_device_index current_stream empty_cache empty_host_cache "
        "get_device_capability get_memory_info max_memory_allocated max_memory_reserved "
        "memory_allocated memory_reserved memory_stats reset_accumulated_memory_stats "
        "reset_peak_memory_stats set_device_idx set_device_index set_stream synchronize"
    ),
}
_types = _absent.types("Graph")
globals().update(_functions | _types)

__all__ = [*_functions, *_types, "device_index", "graphs", "memory"]

from flambeau.accelerator import graphs, memory  # noqa: E402 - they take names from above
