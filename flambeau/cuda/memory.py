"""`torch.cuda.memory`: the functions of `torch.cuda` that concern memory."""

from flambeau import cuda as _cuda

_names = (
    "CUDAPluggableAllocator", "MemPool", "caching_allocator_alloc", "caching_allocator_delete",
    "caching_allocator_enable", "change_current_allocator", "empty_cache",
    "get_allocator_backend", "get_per_process_memory_fraction", "host_memory_stats",
    "host_memory_stats_as_nested_dict", "list_gpu_processes", "max_memory_allocated",
    "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory_allocated",
    "memory_cached", "memory_reserved", "memory_snapshot", "memory_stats",
    "memory_stats_as_nested_dict", "memory_summary", "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_peak_host_memory_stats", "reset_peak_memory_stats", "set_per_process_memory_fraction",
)  # fmt: skip

__all__ = list(_names)


def _record_memory_history(enabled: str | None = "all", *settings: object, **more: object) -> None:
    """Returns: there is no memory of GPUs whose history could be recorded."""


def _dump_snapshot(filename: str = "dump_snapshot.pickle", *settings: object) -> None:
    """Raises: there is no memory of GPUs.

    Raises:
        AssertionError: always.
    """
    _cuda._absent.refuse("memory._dump_snapshot")


def _snapshot(device: object = None) -> None:
    """Raises: there is no memory of GPUs.

    Raises:
        AssertionError: always.
    """
    _cuda._absent.refuse("memory._snapshot")


globals().update({name: getattr(_cuda, name) for name in __all__})
