"""`torch.cuda` in a build without CUDA: `is_available()` is False, and what needs a GPU raises."""

from __future__ import annotations

from typing import Any

from flambeau.runtime import missing as _missing
from flambeau.runtime.absent import Absent, context
from flambeau.runtime.errors import AcceleratorError, OutOfMemoryError

_absent = Absent("cuda", AssertionError, "Torch not compiled with CUDA enabled")


class CudaError(RuntimeError):
    """An error of the CUDA runtime; never raised without one."""


class DeferredCudaCallError(Exception):
    """An error of a call that waited for the first use of CUDA; never raised without it."""


default_generators: tuple[Any, ...] = ()
has_half = True
_initialized = False
has_magma = False

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
        caching_allocator_enable=None, memory_allocated=0, max_memory_allocated=0,
        memory_reserved=0, max_memory_reserved=0, memory_cached=0, max_memory_cached=0,
        memory_stats={}, memory_stats_as_nested_dict={}, host_memory_stats={},
        host_memory_stats_as_nested_dict={}, _is_compiled=False, _is_in_bad_fork=False,
    ),
    **_absent.refusals(
        "init current_device set_device get_device_name get_device_capability "
        "get_device_properties can_device_access_peer synchronize current_stream default_stream "
        "set_stream get_stream_from_external cudart current_blas_handle current_solver_handle "
        "get_rng_state set_rng_state initial_seed ipc_collect mem_get_info memory_snapshot "
        "memory_summary reset_peak_memory_stats reset_max_memory_allocated "
        "reset_max_memory_cached reset_accumulated_memory_stats reset_peak_host_memory_stats "
        "reset_accumulated_host_memory_stats set_per_process_memory_fraction "
        "get_per_process_memory_fraction get_sync_debug_mode set_sync_debug_mode check_error "
        "caching_allocator_alloc caching_allocator_delete change_current_allocator "
        "get_allocator_backend list_gpu_processes utilization temperature power_draw clock_rate "
        "memory_usage device_memory_used make_graphed_callables graph_pool_handle"
    ),
}  # fmt: skip
_types = _absent.types(
    "Event ExternalStream Stream CUDAGraph CUDAPluggableAllocator GreenContext MemPool graph "
    "FloatTensor DoubleTensor HalfTensor BFloat16Tensor ByteTensor CharTensor ShortTensor "
    "IntTensor LongTensor BoolTensor FloatStorage DoubleStorage HalfStorage BFloat16Storage "
    "ByteStorage CharStorage ShortStorage IntStorage LongStorage BoolStorage "
    "ComplexFloatStorage ComplexDoubleStorage"
)
globals().update(_functions | _types)

__all__ = [
    *(name for name in (*_functions, *_types) if not name.startswith("_")),
    "AcceleratorError", "CudaError", "DeferredCudaCallError", "OutOfMemoryError", "StreamContext",
    "amp", "default_generators", "device", "device_of", "has_half", "has_magma", "memory", "nvtx",
    "random", "stream",
]  # fmt: skip

from flambeau.cuda import amp, memory, nvtx, random  # noqa: E402 - they take names from above

# Distinguishes names of PyTorch that are missing here from misspelt ones.
globals()["__getattr__"] = _missing.getter(__name__)
