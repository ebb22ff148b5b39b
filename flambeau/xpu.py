"""`torch.xpu` in a build without Intel GPUs: `is_available()` is False; work for one raises."""

from __future__ import annotations

from typing import Any

from flambeau.runtime.absent import Absent, context

_absent = Absent("xpu", AssertionError, "Torch not compiled with XPU enabled")
default_generators: tuple[Any, ...] = ()

device = context(_absent, "device")
device_of = context(_absent, "device_of")
StreamContext = context(_absent, "StreamContext")
stream = StreamContext

_functions = {
    **_absent.answers(
        is_available=False, is_initialized=False, device_count=0, get_arch_list=[],
        get_gencode_flags="", is_bf16_supported=False, is_tf32_supported=False,
        is_current_stream_capturing=False, get_rng_state_all=[], set_rng_state_all=None,
        manual_seed=None, manual_seed_all=None, seed=None, seed_all=None, empty_cache=None,
        memory_allocated=0, max_memory_allocated=0, memory_reserved=0, max_memory_reserved=0,
        memory_stats={}, memory_stats_as_nested_dict={}, memory_snapshot=[],
    ),
    **_absent.refusals(
        "init current_device set_device get_device_name get_device_capability "
        "get_device_properties can_device_access_peer synchronize current_stream set_stream "
        "get_stream_from_external get_rng_state set_rng_state initial_seed mem_get_info "
        "reset_peak_memory_stats reset_accumulated_memory_stats make_graphed_callables "
        "graph_pool_handle set_per_process_memory_fraction get_per_process_memory_fraction "
        "change_current_allocator utilization temperature power_draw clock_rate memory_usage "
        "device_memory_used"
    ),
}  # fmt: skip
_types = _absent.types("Event Stream XPUGraph XPUPluggableAllocator MemPool graph")
globals().update(_functions | _types)

__all__ = [
    *_functions, *_types, "StreamContext", "default_generators", "device", "device_of", "stream",
]  # fmt: skip
