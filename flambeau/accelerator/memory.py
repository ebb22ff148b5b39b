"""`torch.accelerator.memory`: memory of the accelerator, of which there is none."""

import flambeau.accelerator as _accelerator

__all__ = [
    "empty_cache", "empty_host_cache", "get_memory_info", "max_memory_allocated",
    "max_memory_reserved", "memory_allocated", "memory_reserved", "memory_stats",
    "reset_accumulated_memory_stats", "reset_peak_memory_stats",
]  # fmt: skip

empty_cache = _accelerator._functions["empty_cache"]
empty_host_cache = _accelerator._functions["empty_host_cache"]
get_memory_info = _accelerator._functions["get_memory_info"]
max_memory_allocated = _accelerator._functions["max_memory_allocated"]
max_memory_reserved = _accelerator._functions["max_memory_reserved"]
memory_allocated = _accelerator._functions["memory_allocated"]
memory_reserved = _accelerator._functions["memory_reserved"]
memory_stats = _accelerator._functions["memory_stats"]
reset_accumulated_memory_stats = _accelerator._functions["reset_accumulated_memory_stats"]
reset_peak_memory_stats = _accelerator._functions["reset_peak_memory_stats"]
