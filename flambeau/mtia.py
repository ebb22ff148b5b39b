"""`torch.mtia` in a build without Meta's accelerators: `is_available()` is False; work raises."""

from flambeau.runtime.absent import Absent, context

_absent = Absent("mtia", RuntimeError, "this build has no MTIA backend")
device = context(_absent, "device")
StreamContext = context(_absent, "StreamContext")
stream = StreamContext


class DeferredMtiaCallError(Exception):
    """An error of a call that waited for the first use of MTIA; never raised without it."""


_functions = {
    **_absent.answers(
        is_available=False, is_initialized=False, device_count=0, is_bf16_supported=False,
        get_rng_state_all=[], set_rng_state_all=None, manual_seed=None, manual_seed_all=None,
        seed=None, seed_all=None, memory_allocated=0, max_memory_allocated=0, memory_stats={},
        reset_peak_memory_stats=None, record_memory_history=None,
    ),
    **_absent.refusals(
        "init current_device set_device current_stream default_stream set_stream empty_cache "
        "get_device_capability get_device_properties get_rng_state set_rng_state initial_seed "
        "graph_pool_handle attach_out_of_memory_observer snapshot synchronize"
    ),
}  # fmt: skip
_types = _absent.types("MTIAGraph Event Stream graph")
globals().update(_functions | _types)

__all__ = [*_functions, *_types, "DeferredMtiaCallError", "StreamContext", "device", "stream"]
