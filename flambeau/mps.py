"""`torch.mps` in a build without Apple's GPUs: `is_available()` is False; work for one raises."""

from flambeau.runtime.absent import Absent

_absent = Absent("mps", RuntimeError, "this build has no MPS backend")
_functions = {
    **_absent.answers(is_available=False, device_count=0, manual_seed=None),
    **_absent.refusals(
        "compile_shader current_allocated_memory driver_allocated_memory empty_cache "
        "get_rng_state load_metallib recommended_max_memory seed set_per_process_memory_fraction "
        "set_rng_state synchronize"
    ),
}
_types = _absent.types("Event")
globals().update(_functions | _types)

__all__ = [*_functions, *_types]
